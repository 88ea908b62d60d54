"""Rows as JSON lines, the input format of load."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from omnigraph.errors import ValueConversionError
from omnigraph.lang.schema.catalog import EdgeType
from omnigraph.lang.values.columns import exported_values
from omnigraph.storage.tables.store import KEY
from omnigraph.write.delta import Kind

_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


class Encoder:
    """Rows of one type: all properties, including nulls, and the id."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._is_edge = isinstance(kind, EdgeType)
        self._head = _JSON({"edge" if self._is_edge else "type": kind.name})[:-1]

    def lines(self, batch: pa.RecordBatch) -> Iterator[str]:
        """One JSON object per row, without a line end."""
        names = [KEY, *self._kind.properties]
        columns: list[Sequence[Any]] = [
            batch[KEY].to_pylist(),
            *(self._column(name, batch[name]) for name in self._kind.properties),
        ]
        rows = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
        if not self._is_edge:
            for row in rows:
                yield f'{self._head}, "data": {_JSON(row)}}}'
            return
        ends = zip(batch["src"].to_pylist(), batch["dst"].to_pylist(), strict=True)
        for row, (source, target) in zip(rows, ends, strict=True):
            yield (
                f'{self._head}, "from": {_JSON(source)}, "to": {_JSON(target)}, '
                f'"data": {_JSON(row)}}}'
            )

    def _column(self, name: str, column: pa.Array) -> list[Any]:
        try:
            return exported_values(column, self._kind.properties[name].type)
        except ValueError as error:
            raise ValueConversionError(
                f"{self._kind.name}.{name} holds {error} that JSON cannot",
                hint="export as Parquet",
                details={"property": name},
            ) from None
