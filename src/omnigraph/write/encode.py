"""Rows as JSON lines in the form that load reads."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import ValueConversionError
from omnigraph.lang.schema.catalog import EdgeType
from omnigraph.lang.types import Scalar
from omnigraph.storage.tables.store import KEY
from omnigraph.write.delta import Kind
from omnigraph.write.moments import to_timestamp

_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


class Encoder:
    """Rows of one type. Every property is there, also when it is null, and always the id."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._is_edge = isinstance(kind, EdgeType)
        self._head = _JSON({"edge" if self._is_edge else "type": kind.name})[:-1]

    def lines(self, batch: pa.RecordBatch) -> Iterator[str]:
        """One JSON object for each row, without a line end."""
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
        type_ = self._kind.properties[name].type
        if type_.scalar is Scalar.DATE:
            column = _as_days(column)
        elif type_.scalar is Scalar.DATETIME:
            column = to_timestamp(column)
        elif type_.scalar.is_float or type_.scalar is Scalar.VECTOR:
            self._refuse_infinite(name, column)
        try:
            values: list[Any] = column.to_pylist()
        except (ValueError, OverflowError):
            raise self._unspeakable(name, "a moment") from None
        plain = _PLAIN.get(type_.scalar)
        if plain is None:
            return values
        if type_.is_list:
            return [
                None if items is None else [None if v is None else plain(v) for v in items]
                for items in values
            ]
        return [None if value is None else plain(value) for value in values]

    def _refuse_infinite(self, name: str, column: pa.Array) -> None:
        flat = column.flatten() if hasattr(column, "flatten") else column
        if pc.all(pc.is_finite(flat)).as_py() is False:
            raise self._unspeakable(name, "a number")

    def _unspeakable(self, name: str, what: str) -> ValueConversionError:
        return ValueConversionError(
            f"{self._kind.name}.{name} holds {what} that JSON cannot",
            hint="export as Parquet",
            details={"property": name},
        )


def _as_days(column: pa.Array) -> pa.Array:
    """Days since 1970, which are there whatever the year."""
    return column.cast(pa.list_(pa.int32()) if pa.types.is_list(column.type) else pa.int32())


def _moment(value: datetime) -> str:
    return value.isoformat(timespec="milliseconds")


def _blob(value: bytes) -> str:
    return "base64:" + base64.b64encode(value).decode("ascii")


_PLAIN: dict[Scalar, Callable[[Any], Any]] = {
    Scalar.DATETIME: _moment,
    Scalar.BLOB: _blob,
}
