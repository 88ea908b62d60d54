"""What pyarrow and Lance answer to conversions from and to pandas, as JSON.

Executed as a program; its arguments name the modules to import first.
"""

from __future__ import annotations

import importlib
import json
import pickle
import sys
import tempfile


def main() -> None:
    for name in sys.argv[1:]:
        importlib.import_module(name)

    import lance
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.feather

    responses: dict[str, str] = {}

    def answer(name, call):
        try:
            value = call()
        except Exception as error:
            value = error
        responses[name] = f"{type(value).__module__}.{type(value).__qualname__} {value!s}"

    # Before anybody imported pandas.
    answer("nanoseconds", lambda: pa.scalar(1_234_567_891, pa.timestamp("ns")).as_py())
    answer(
        "nanoseconds with a zone", lambda: pa.scalar(1, pa.timestamp("ns", "Europe/Berlin")).as_py()
    )
    answer("a duration", lambda: pa.scalar(1_001, pa.duration("ns")).as_py())
    answer("a list of them", lambda: pa.array([1, None], pa.timestamp("ns")).to_pylist())
    table = pa.table(
        {
            "i": pa.array([1, None], pa.int64()),
            "s": pa.array(["a", None], pa.string()),
            "t": pa.array([1, None], pa.timestamp("us", "UTC")),
            "d": pa.array(["x", "y"], pa.string()).dictionary_encode(),
        }
    )
    answer("a table", lambda: table.to_pandas().to_json())
    answer("types of a frame", lambda: table.to_pandas().dtypes.to_dict())
    answer("an array", lambda: table["t"].to_pandas())
    answer(
        "types of its own",
        lambda: table.to_pandas(
            types_mapper={pa.int64(): __import__("pandas").Int64Dtype()}.get
        ).dtypes.to_dict(),
    )

    import pandas as pd

    frame = pd.DataFrame(
        {
            "a": [1, 2],
            "c": pd.Categorical(["u", "v"]),
            "n": pd.array([1, None], "Int64"),
            "t": pd.to_datetime(["2024-01-01", None]),
            "z": pd.to_datetime(["2024-01-01", None], utc=True),
        }
    )
    series = pd.Series([1.0, None], name="s")
    answer("from a frame", lambda: pa.table(frame).to_pylist())
    answer(
        "its schema",
        lambda: pa.Table.from_pandas(frame).schema.to_string(show_schema_metadata=True),
    )
    answer("a batch", lambda: pa.record_batch(frame).to_pylist())
    answer("types of the frame", lambda: pa.Schema.from_pandas(frame))
    answer("a series", lambda: pa.array(series).to_pylist())
    answer("a series in a table", lambda: pa.table({"s": series}).to_pylist())
    answer("an index", lambda: pa.array(pd.Index(["a", "b"])).to_pylist())
    answer("categories", lambda: pa.array(frame["c"]).type)
    answer("categories alone", lambda: pa.array(pd.Categorical(["u", "u"])).to_pylist())
    answer("an extension", lambda: pa.array(frame["n"].array).to_pylist())
    answer("periods", lambda: pa.array(pd.period_range("2024", periods=2, freq="D")).type)
    answer("intervals", lambda: pa.array(pd.interval_range(0, 2)).type)
    answer("a time", lambda: pa.array([pd.Timestamp(5)]).to_pylist())
    answer("no time", lambda: pa.array([pd.NaT], from_pandas=True).to_pylist())
    answer(
        "no time, typed",
        lambda: pa.array(
            [pd.NaT, pd.Timestamp(7)], pa.timestamp("ns"), from_pandas=True
        ).to_pylist(),
    )
    answer("no time, plain", lambda: pa.array([pd.NaT, pd.Timestamp(7)]).to_pylist())
    answer("nothing", lambda: pa.array([pd.NA, 1], from_pandas=True).to_pylist())
    answer("nothing, plain", lambda: pa.array([pd.NA, 1]).to_pylist())
    answer("a difference", lambda: pa.array([pd.Timedelta(3)]).type)
    answer("an offset", lambda: pa.array([pd.DateOffset(days=2)]).type)
    answer("a scalar", lambda: pa.scalar(pd.Timestamp(5)).type)
    answer("a filter", lambda: str(pc.field("t") > pd.Timestamp(5)))
    answer(
        "is in", lambda: pc.is_in(pa.array([1, 3]), value_set=pa.array(pd.Series([3]))).to_pylist()
    )
    answer("a pickle", lambda: pickle.loads(pickle.dumps(pa.table(frame))).equals(pa.table(frame)))
    answer("a pickled frame", lambda: pickle.loads(pickle.dumps(frame)).equals(frame))
    answer("there and back", lambda: pa.table(frame).to_pandas().equals(frame))
    answer("there and back, types", lambda: pa.table(frame).to_pandas().dtypes.to_dict())
    answer(
        "columns in order",
        lambda: pa.table(frame).to_pandas(split_blocks=True, self_destruct=True).to_json(),
    )
    answer("sparse", lambda: pa.array(pd.Series(pd.arrays.SparseArray([0, 1]))).to_pylist())
    answer("a protocol", lambda: pa.interchange.from_dataframe(frame[["a"]]).to_pylist())
    answer("no frame", lambda: pa.table(5))
    with tempfile.TemporaryDirectory() as folder:
        answer(
            "Lance",
            lambda: lance.write_dataset(frame[["a", "t"]], folder + "/l").to_table().to_pylist(),
        )
        answer(
            "Lance as a frame",
            lambda: lance.dataset(folder + "/l").to_table().to_pandas().to_json(),
        )
        answer(
            "Lance by time",
            lambda: lance.dataset(folder + "/l", asof=pd.Timestamp("2100-01-01")).version,
        )
        answer("feather", lambda: pyarrow.feather.write_feather(frame, folder + "/f"))
        answer("feather back", lambda: pyarrow.feather.read_feather(folder + "/f").to_json())
    shim = pa.lib._pandas_api
    answer("version", lambda: shim.version == pd.__version__)
    answer("have", lambda: shim.have_pandas)
    answer(
        "frame class",
        lambda: issubclass(pd.DataFrame, shim._data_frame) and isinstance(frame, shim._data_frame),
    )
    answer("modules", lambda: sys.modules["pandas"] is pd and type(pd).__name__)
    print(json.dumps(responses))


if __name__ == "__main__":
    main()
