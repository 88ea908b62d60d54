"""The pieces in which a result is sent."""

from __future__ import annotations

import pyarrow as pa

from omnigraph.lang.types import PropType, Scalar
from omnigraph.result.columns import ResultColumn
from omnigraph.result.result import Result
from omnigraph.result.wire import ArrowPieces, json_pieces


def test_wide_rows_are_sent_in_small_pieces():
    """Each is a batch of the stream; the pieces of JSON have as many rows."""
    rows = pa.table({"text": [str(n) * 1_000 for n in range(4_000)]})
    columns = [ResultColumn("text", PropType(Scalar.STRING))]

    def result() -> Result:
        return Result(columns, rows, query_name="q", target={"branch": "main"})

    pieces = list(ArrowPieces(result()))
    assert len(pieces) > 10
    assert max(map(len, pieces)) < 3 << 20
    assert pa.ipc.open_stream(b"".join(pieces)).read_all().to_pylist() == rows.to_pylist()
    parts = list(json_pieces(result(), "native"))
    assert len(parts) == len(pieces) - 2
    assert [row for part in parts for row in part] == rows.to_pylist()
