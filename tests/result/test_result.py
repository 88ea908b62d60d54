"""What users get out of a result, in every form."""

from __future__ import annotations

import gc
import io
import json
import math
import sys
import weakref
from collections.abc import Iterator
from datetime import date, datetime
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.errors import (
    Cancelled,
    Closed,
    InputError,
    InternalError,
    MemoryExceeded,
    OmniGraphError,
    PackageMissing,
    ValueConversionError,
)
from omnigraph.lang.query.typed import EntityKind
from omnigraph.lang.types import PropType, Scalar
from omnigraph.lang.values.arrow import arrow_array, arrow_type
from omnigraph.result.files import write_arrow, write_parquet
from omnigraph.result.result import EntityRef, Link, Result, ResultColumn

NOON = datetime(2024, 5, 1, 12, 30, 0, 123_000)
SAFE = 2**53 - 1


def column(name: str, scalar: Scalar, *, is_list: bool = False, size: int | None = None) -> Any:
    return ResultColumn(name, PropType(scalar, nullable=True, is_list=is_list, dimension=size))


def node(name: str, type_name: str = "Person") -> ResultColumn:
    return ResultColumn(name, PropType(Scalar.STRING), EntityRef(EntityKind.NODE, type_name, name))


def edge(name: str, type_name: str = "Knows") -> ResultColumn:
    return ResultColumn(name, PropType(Scalar.STRING), EntityRef(EntityKind.EDGE, type_name, name))


def array(values: list[Any], type_: PropType) -> pa.Array:
    if not (type_.is_list or type_.is_vector):
        return arrow_array(tuple(values), type_)
    if type_.scalar is not Scalar.DATETIME:
        return pa.array(values, arrow_type(type_))
    flat = [array(items, type_.element) for items in values]
    offsets = [0, *(sum(map(len, flat[: at + 1])) for at in range(len(flat)))]
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.concat_arrays(flat))


def result(columns: list[ResultColumn], *rows: tuple[Any, ...], **more: Any) -> Result:
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    arrays = [array(list(v), c.type) for v, c in zip(values, columns, strict=True)]
    table = pa.Table.from_arrays(arrays, names=[f"c{n}" for n in range(len(columns))])
    return Result(columns, table, query_name="q", target={"branch": "main"}, **more)


def streamed(batches: Iterator[pa.RecordBatch], **more: Any) -> Result:
    return Result(
        [column("n", Scalar.I64)], batches, query_name="q", target={"branch": "main"}, **more
    )


def numbers(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(values, pa.int64())})


EVERYTHING = [
    (Scalar.STRING, ["", "Zoë 😀", None]),
    (Scalar.BOOL, [True, False, None]),
    (Scalar.I32, [-(2**31), 2**31 - 1, None]),
    (Scalar.I64, [-(2**63), 2**63 - 1, None]),
    (Scalar.U32, [0, 2**32 - 1, None]),
    (Scalar.U64, [0, 2**64 - 1, None]),
    (Scalar.F32, [0.5, -0.0, None]),
    (Scalar.F64, [0.1, 1e300, None]),
    (Scalar.DATE, [date(1, 1, 1), date(9999, 12, 31), None]),
    (Scalar.DATETIME, [datetime(1, 1, 1), NOON, None]),
]


# -- Python and Arrow -----------------------------------------------------------------------------


@pytest.mark.parametrize(("scalar", "values"), EVERYTHING, ids=lambda v: str(v)[:8])
def test_rows_hold_exact_python_values(scalar, values):
    actual = result([column("x", scalar)], *((value,) for value in values))
    assert [row["x"] for row in actual.rows()] == values
    assert actual.to_pylist() == actual.rows() == list(actual)


def test_lists_and_vectors_are_lists():
    actual = result(
        [
            column("days", Scalar.DATETIME, is_list=True),
            column("tags", Scalar.STRING, is_list=True),
            column("v", Scalar.VECTOR, size=2),
        ],
        ([NOON, None], ["a", None], [0.5, 1.0]),
        ([], None, None),
    )
    assert actual.rows() == [
        {"days": [NOON, None], "tags": ["a", None], "v": [0.5, 1.0]},
        {"days": [], "tags": None, "v": None},
    ]


def test_a_slice_of_moments_in_lists_keeps_their_time():
    days = pa.array([[0], None, [86_400_001], [1]], pa.list_(pa.int64()))
    stored = pa.ListArray.from_buffers(
        pa.list_(pa.date64()), 4, days.buffers()[:2], children=[days.values.view(pa.date64())]
    )
    batch = pa.record_batch({"x": stored}).slice(1, 2)
    actual = Result(
        [column("x", Scalar.DATETIME, is_list=True)], [batch], query_name="q", target={}
    )
    assert actual.rows() == [{"x": None}, {"x": [datetime(1970, 1, 2, 0, 0, 0, 1000)]}]


def test_the_shape_is_known_without_pulling_a_row():
    pulled: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        pulled.append(1)
        yield numbers(1)

    actual = streamed(batches())
    assert (actual.columns, actual.schema) == (["n"], pa.schema([("n", pa.int64())]))
    assert pulled == []
    assert actual.row_count == len(actual) == 1


def test_batches_are_pulled_one_by_one_and_kept():
    pulled: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(3):
            pulled.append(number)
            yield numbers(number)

    actual = streamed(batches())
    reading = actual.batches()
    assert next(reading).num_rows == 1
    assert pulled == [0]
    assert bool(actual)
    assert pulled == [0]
    assert actual.row_count == 3
    assert [batch["n"][0].as_py() for batch in actual.batches()] == [0, 1, 2]
    assert pulled == [0, 1, 2]


def test_an_empty_result_has_its_columns():
    for actual in (streamed(iter(())), streamed(iter([numbers()]))):
        assert (actual.row_count, actual.rows(), bool(actual)) == (0, [], False)
        assert actual.to_arrow().schema.names == ["n"]
        assert pa.ipc.open_stream(actual.to_ipc()).read_all().num_rows == 0


def test_it_is_an_arrow_stream():
    actual = result([column("x", Scalar.U64), column("at", Scalar.DATETIME)], (2**64 - 1, NOON))
    table = pa.table(actual)
    assert table.equals(actual.to_arrow())
    assert table["at"].type == pa.date64()
    assert table["x"].to_pylist() == [2**64 - 1]


def test_arrow_ipc_round_trips(tmp_path):
    actual = result([column("x", Scalar.I64), column("x", Scalar.STRING)], (1, "a"), (None, "b"))
    assert pa.ipc.open_stream(actual.to_ipc()).read_all().equals(actual.to_arrow())
    assert actual.write_ipc(tmp_path / "rows.arrows") == 2
    with pa.ipc.open_stream(tmp_path / "rows.arrows") as stream:
        assert stream.read_all().equals(actual.to_arrow())


def test_what_cannot_be_written_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="cannot write"):
        result([node("p")], ("Ada",)).write_ipc(tmp_path / "missing" / "rows.arrows")
    assert list(tmp_path.iterdir()) == []


def test_batches_take_the_names_of_the_result():
    batch = pa.record_batch({"anything": pa.array([7], pa.int64())})
    assert streamed(iter([batch])).rows() == [{"n": 7}]


def test_a_batch_of_another_type_is_a_bug_of_the_engine():
    batch = pa.record_batch({"n": pa.array([7], pa.int32())})
    with pytest.raises(InternalError, match="int32"):
        streamed(iter([batch])).rows()


# -- the end of a stream --------------------------------------------------------------------------


def test_what_failed_once_fails_again():
    def batches() -> Iterator[pa.RecordBatch]:
        yield numbers(1)
        raise MemoryExceeded("too much")

    actual = streamed(batches())
    for _ in range(2):
        with pytest.raises(MemoryExceeded, match="too much"):
            actual.rows()


def test_an_interrupted_reading_never_passes_for_the_whole():
    def batches() -> Iterator[pa.RecordBatch]:
        yield numbers(1)
        raise KeyboardInterrupt

    actual = streamed(batches())
    with pytest.raises(KeyboardInterrupt):
        actual.rows()
    with pytest.raises(OmniGraphError, match="interrupted"):
        actual.rows()


@pytest.mark.parametrize("how", ["read", "close", "leave", "fail", "forget"])
def test_the_engine_is_told_once_that_nobody_reads_any_more(how):
    reported: list[str] = []

    def batches() -> Iterator[pa.RecordBatch]:
        yield numbers(1)
        if how == "fail":
            raise MemoryExceeded("too much")

    actual = streamed(batches(), close=lambda: reported.append("closed"))
    next(actual.batches())
    assert reported == []
    if how == "read":
        actual.rows()
    elif how == "close":
        actual.close()
    elif how == "leave":
        with actual:
            pass
    elif how == "fail":
        with pytest.raises(MemoryExceeded):
            actual.rows()
    actual = None  # type: ignore[assignment]
    gc.collect()
    assert reported == ["closed"]


def test_a_closed_result_says_so_and_a_complete_one_stays_readable():
    actual = streamed(iter([numbers(1), numbers(2)]))
    next(actual.batches())
    actual.close()
    with pytest.raises(Closed):
        actual.rows()
    whole = streamed(iter([numbers(1)]))
    whole.rows()
    whole.close()
    assert whole.rows() == [{"n": 1}]


# -- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form", [Result.rows, list, Result.json_rows, Result.envelope, Result.to_polars]
)
def test_rows_as_objects_refuse_a_name_that_is_there_twice(form):
    actual = result([node("f"), ResultColumn("f", PropType(Scalar.I64))], ("Ada", 2))
    with pytest.raises(InputError, match="two columns are called `f`") as refused:
        form(actual)
    assert "as" in (refused.value.hint or "")


def test_columns_by_position_take_a_name_that_is_there_twice():
    actual = result([node("f"), ResultColumn("f", PropType(Scalar.I64))], ("Ada", 2))
    assert actual.columns == ["f", "f"]
    assert [c.to_pylist() for c in actual.to_arrow().columns] == [["Ada"], [2]]
    assert actual.to_pandas().to_numpy().tolist() == [["Ada", 2]]
    assert "Ada" in repr(actual)
    assert actual._repr_html_().count("<th ") == 2


# -- JSON -----------------------------------------------------------------------------------------

JSON_CASES = [
    (Scalar.I64, SAFE, SAFE, SAFE),
    (Scalar.I64, SAFE + 1, SAFE + 1, str(SAFE + 1)),
    (Scalar.I64, -SAFE - 1, -SAFE - 1, str(-SAFE - 1)),
    (Scalar.U64, 2**64 - 1, 2**64 - 1, str(2**64 - 1)),
    (Scalar.U64, 7, 7, 7),
    (Scalar.I32, 2**31 - 1, 2**31 - 1, 2**31 - 1),
    (Scalar.F64, math.nan, "NaN", "NaN"),
    (Scalar.F64, math.inf, "Infinity", "Infinity"),
    (Scalar.F32, -math.inf, "-Infinity", "-Infinity"),
    (Scalar.F64, 0.1, 0.1, 0.1),
    (Scalar.DATE, date(33, 2, 1), "0033-02-01", "0033-02-01"),
    (Scalar.DATETIME, NOON, "2024-05-01T12:30:00.123Z", "2024-05-01T12:30:00.123Z"),
    (Scalar.DATETIME, datetime(2024, 5, 1), "2024-05-01T00:00:00.000Z", "2024-05-01T00:00:00.000Z"),
    (Scalar.STRING, 'Zoë "😀"', 'Zoë "😀"', 'Zoë "😀"'),
    (Scalar.BOOL, True, True, True),
]


@pytest.mark.parametrize(("scalar", "value", "native", "sdk"), JSON_CASES)
def test_json_keeps_every_value_in_both_forms(scalar, value, native, sdk):
    actual = result(
        [column("x", scalar), column("l", scalar, is_list=True)], (value, [value, None]), (None, [])
    )
    for form, wanted in (("native", native), ("sdk", sdk)):
        rows = [{"x": wanted, "l": [wanted, None]}, {"x": None, "l": []}]
        assert actual.json_rows(form) == rows
        assert json.loads(actual.to_json(form)) == rows


def test_vectors_are_arrays_and_a_null_vector_is_null():
    actual = result([column("v", Scalar.VECTOR, size=2)], ([0.5, math.nan],), (None,))
    assert actual.json_rows() == [{"v": [0.5, "NaN"]}, {"v": None}]


def test_an_unknown_form_of_json_is_refused():
    with pytest.raises(InputError, match="invalid form 'xml'"):
        result([node("p")], ("Ada",)).to_json("xml")


def test_the_envelope_says_what_was_asked_and_in_which_order_the_columns_are():
    actual = result([node("p"), column("n", Scalar.I64)], ("Ada", SAFE + 1))
    assert actual.envelope("sdk") == {
        "query_name": "q",
        "target": {"branch": "main"},
        "row_count": 1,
        "columns": ["p", "n"],
        "rows": [{"p": "Ada", "n": str(SAFE + 1)}],
    }
    assert list(actual.envelope()) == ["query_name", "target", "row_count", "columns", "rows"]


@pytest.mark.parametrize("form", [Result.rows, Result.to_json, repr])
def test_a_year_that_python_does_not_have_is_named_and_stays_readable_as_arrow(form):
    table = pa.table({"x": pa.array([400_000_000_000_000], pa.int64()).view(pa.date64())})
    actual = Result([column("x", Scalar.DATETIME)], table, query_name="q", target={})
    with pytest.raises(ValueConversionError, match="`x` holds a DateTime beyond"):
        form(actual)
    assert actual.to_arrow()["x"].cast(pa.int64()).to_pylist() == [400_000_000_000_000]


# -- frames ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scalar", "values"), EVERYTHING, ids=lambda v: str(v)[:8])
def test_pandas_and_polars_hold_the_same_values(scalar, values):
    actual = result([column("x", scalar)], *((value,) for value in values))
    frame = actual.to_pandas()
    shown = [None if frame["x"].isna()[n] else v for n, v in enumerate(frame["x"].tolist())]
    assert shown == values
    assert actual.to_polars()["x"].to_list() == values


def test_frames_show_the_time_of_day():
    actual = result([column("at", Scalar.DATETIME), column("n", Scalar.U64)], (NOON, 2**64 - 1))
    frame = actual.to_pandas()
    assert str(frame["at"].dtype) == "datetime64[ms]"
    assert str(frame["n"].dtype) == "UInt64"
    assert str(actual.to_polars().schema["at"]) == "Datetime(time_unit='ms', time_zone=None)"


def test_required_numbers_have_the_plain_types_of_pandas():
    actual = result([ResultColumn("n", PropType(Scalar.I64))], (1,))
    assert str(actual.to_pandas()["n"].dtype) == "int64"


@pytest.mark.parametrize("name", ["pandas", "polars", "networkx"])
def test_a_missing_package_is_an_error_that_names_the_extra(name, monkeypatch):
    class Absent:
        def find_spec(self, module: str, path: Any = None, target: Any = None) -> None:
            if module == name:
                raise ModuleNotFoundError(f"No module named '{name}'", name=name)

    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])
    for module in [item for item in sys.modules if item.split(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(PackageMissing) as missing:
        getattr(result([node("p")], ("Ada",)), f"to_{name}")()
    assert missing.value.hint == f"pip install 'omnigraph[{name}]'"


# -- networkx -------------------------------------------------------------------------------------


def friends() -> Result:
    return result(
        [
            node("a"),
            edge("k"),
            node("b"),
            node("c", "Company"),
            column("a.age", Scalar.I32),
            column("k.key", Scalar.STRING),
        ],
        ("Ada", "e1", "Grace", "Ada", 36, "x"),
        ("Ada", "e2", "Grace", "Ada", 36, "y"),
        ("Ada", "e2", "Grace", "Acme", 36, "y"),
        ("Alan", "e3", "Alan", "Acme", None, None),
        links=[Link(0, 2, "Knows", 1), Link(0, 3, "WorksAt")],
    )


def test_networkx_has_every_node_and_edge_once():
    graph = friends().to_networkx()
    assert set(graph.nodes) == {
        ("Person", "Ada"),
        ("Person", "Grace"),
        ("Person", "Alan"),
        ("Company", "Ada"),
        ("Company", "Acme"),
    }
    assert graph.nodes["Person", "Ada"] == {"type": "Person", "id": "Ada", "age": 36}
    assert sorted((a[1], b[1], key) for a, b, key in graph.edges(keys=True) if a[0] == b[0]) == [
        ("Ada", "Grace", ("Knows", "e1")),
        ("Ada", "Grace", ("Knows", "e2")),
        ("Alan", "Alan", ("Knows", "e3")),
    ]
    assert graph.edges[("Person", "Ada"), ("Person", "Grace"), ("Knows", "e2")]["key"] == "y"
    assert graph.number_of_edges(("Person", "Ada"), ("Company", "Acme")) == 1


def test_a_result_without_nodes_is_no_graph():
    with pytest.raises(InputError, match="no nodes"):
        result([column("n", Scalar.I64)], (1,)).to_networkx()


# -- for people -----------------------------------------------------------------------------------


def test_the_text_is_a_short_table():
    actual = result(
        [node("p"), column("p.age", Scalar.I32), column("at", Scalar.DATETIME)],
        ("Ada", 36, NOON),
        ("a\nb\x1b[31m", None, None),
    )
    assert repr(actual).splitlines() == [
        "<Result q: 2 rows>",
        "p         p.age  at",
        "────────  ─────  ───────────────────────",
        "Ada          36  2024-05-01 12:30:00.123",
        "a⏎b�[31m   null  null",
    ]
    assert repr(result([node("p")])) == "<Result q: 0 rows>\np\n─"


def test_the_text_of_a_long_result_pulls_no_more_than_it_shows():
    pulled: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(1000):
            pulled.append(number)
            yield numbers(number)

    actual = streamed(batches())
    assert repr(actual).splitlines()[0] == "<Result q: more than 10 rows>"
    assert len(pulled) == 11
    assert actual.row_count == 1000
    assert repr(actual).splitlines()[0] == "<Result q: 1,000 rows>"


def test_html_escapes_everything_and_runs_nothing():
    nasty = "<script>alert(1)</script>"
    actual = result(
        [node(f"p{nasty}", f"T{nasty}"), node("q"), column("x", Scalar.STRING, is_list=True)],
        (nasty, '"><img src=x onerror=alert(1)>', [nasty]),
        links=[Link(0, 1, f"E{nasty}")],
    )
    page = actual._repr_html_()
    assert "<script" not in page
    assert "<img" not in page
    tree = ElementTree.fromstring(page.replace("&nbsp;", " "))
    attributes = {name for part in tree.iter() for name in part.attrib}
    assert not {name for name in attributes if name.startswith("on") or name in ("href", "src")}


def test_the_page_of_a_long_result_pulls_no_more_than_it_shows() -> None:
    pulled = []

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, 10_000, 100):
            pulled.append(start)
            yield pa.record_batch({"n": pa.array(range(start, start + 100), pa.int64())})

    page = streamed(batches())._repr_html_()
    assert "the first 20 rows of a result that has not been read to its end" in page
    assert len(pulled) < 10


def test_html_is_well_formed_and_bounded():
    rows = [(f"person-{n}", f"person-{n % 7}", n) for n in range(500)]
    actual = result(
        [node("a"), node("b"), column("n", Scalar.I64)], *rows, links=[Link(0, 1, "Knows")]
    )
    page = ElementTree.fromstring(actual._repr_html_().replace("&nbsp;", " "))
    assert len(page.findall(".//tbody/tr")) == 20
    assert "500 rows, 480 more than shown" in "".join(page.itertext())
    svg = "{http://www.w3.org/2000/svg}"
    circles = page.findall(f".//{svg}circle")
    assert len(circles) == 40
    assert all(0 < float(c.attrib["cx"]) < 520 and 0 < float(c.attrib["cy"]) < 340 for c in circles)
    assert len({(c.attrib["cx"], c.attrib["cy"]) for c in circles}) == 40


def test_the_same_rows_are_drawn_the_same():
    assert friends()._repr_html_() == friends()._repr_html_()


def test_nodes_and_edges_are_drawn_once_each():
    page = friends()._repr_html_()
    assert page.count("<circle") == 5
    assert page.count("<polygon") == 5  # parallel edges are one line


def test_a_result_without_nodes_is_only_a_table():
    page = result([column("n", Scalar.I64)], (None,))._repr_html_()
    assert "<svg" not in page
    assert "<i>null</i>" in page


# -- written and forgotten ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "read"),
    [
        (write_arrow, lambda data: pa.ipc.open_stream(data).read_all()),
        (write_parquet, lambda data: pq.read_table(io.BytesIO(data))),
    ],
)
def test_a_result_is_written_batch_by_batch_and_forgotten(write, read):
    alive: list[weakref.ref[Any]] = []
    most = 0

    def batches():
        nonlocal most
        for start in range(0, 400_000, 20_000):
            batch = pa.RecordBatch.from_pydict({"n": range(start, start + 20_000)})
            alive.append(weakref.ref(batch))
            most = max(most, sum(kept() is not None for kept in alive))
            yield batch

    pieces: list[bytes] = []
    closed: list[bool] = []
    result = Result(
        [ResultColumn("n", PropType(Scalar.I64, nullable=True))],
        batches(),
        query_name="q",
        target={"branch": "main"},
        close=lambda: closed.append(True),
    )
    assert write(result, pieces.append) == 400_000
    assert read(b"".join(pieces))["n"].to_pylist() == list(range(400_000))
    # At most those of one row group are in memory.
    assert most < 10
    assert closed == [True]
    with pytest.raises(Closed):
        result.rows()


def test_a_result_that_fails_while_it_is_written_says_so(tmp_path):
    def batches():
        yield pa.RecordBatch.from_pydict({"n": [1]})
        raise Cancelled("the query was cancelled")

    result = Result([ResultColumn("n", PropType(Scalar.I64))], batches(), query_name="q", target={})
    with pytest.raises(Cancelled):
        write_parquet(result, lambda piece: None)
