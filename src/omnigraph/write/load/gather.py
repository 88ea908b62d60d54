"""Records on their way into spools: gathered by type, converted column by column and checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from omnigraph.commit.ulid import new_ulids
from omnigraph.errors import ValueConversionError
from omnigraph.lang.schema.catalog import EdgeType, NodeType
from omnigraph.lang.schema.keys import key_id
from omnigraph.lang.types import PropType, Scalar
from omnigraph.storage.tables import KEY
from omnigraph.write.blobs import blob_size
from omnigraph.write.convert import Problem, convert_column, show
from omnigraph.write.delta import Kind
from omnigraph.write.load.numbers import integers_of
from omnigraph.write.load.rejects import file_and_line, place
from omnigraph.write.load.spool import Spool
from omnigraph.write.moments import to_timestamp
from omnigraph.write.validate.values import table_violations
from omnigraph.write.validate.violations import Violation

if TYPE_CHECKING:
    from omnigraph.write.load.intake import Intake

_ROWS = 16_384
_BYTES = 8 << 20
_TEXT = PropType(Scalar.STRING)


class Gatherer:
    """Records of one type."""

    def __init__(self, intake: Intake, kind: Kind, spool: Spool) -> None:
        self.kind = kind
        self.spool = spool
        self.has_given_ids = False
        self._intake = intake
        self._known = frozenset(kind.properties) | {KEY}
        types = {prop.name: prop.type for prop in kind.properties.values()}
        self.integers = integers_of(types)
        self._blobs = [p.name for p in kind.properties.values() if p.type.scalar is Scalar.BLOB]
        self._clear()

    def _clear(self) -> None:
        self._data: list[dict[str, Any]] = []
        self._ends: list[tuple[Any, Any]] = []
        self._places: list[int] = []
        self._weight = 0

    def add(self, data: dict[str, Any], ends: tuple[Any, Any] | None, file: int, line: int) -> None:
        """One record: its properties, for an edge its two ends, and where it stood."""
        if not data.keys() <= self._known and not self._is_fine(data, file, line):
            return
        self._data.append(data)
        if ends is not None:
            self._ends.append(ends)
        self._places.append(place(file, line))
        if self._blobs:
            self._weight += sum(blob_size(data.get(name)) for name in self._blobs)
        if len(self._data) >= _ROWS or self._weight > _BYTES:
            self.flush()

    def _is_fine(self, data: dict[str, Any], file: int, line: int) -> bool:
        """Properties that the schema does not have are counted, or refused."""
        names = sorted(show(name) for name in data.keys() - self._known)
        if self._intake.strict_properties:
            reason = f"{self.kind.name} has no property '{names[0]}'"
            self._intake.reject(file, line, reason, field=names[0])
            return False
        for name in names:
            self._intake.ignore(self.kind, name, 1)
        return True

    def flush(self) -> None:
        """Convert what was gathered and hand it to the spool."""
        if not self._data:
            return
        data = self._data
        bad: dict[int, Problem] = {}
        columns: dict[str, pa.Array] = {}
        for name, prop in self.kind.properties.items():
            values = [record.get(name) for record in data]
            columns[name] = _converted(name, prop.type, values, bad)
        if isinstance(self.kind, EdgeType):
            for position, (name, column) in enumerate((("from", "src"), ("to", "dst"))):
                ends = [pair[position] for pair in self._ends]
                columns[column] = _converted(name, _TEXT, ends, bad)
        columns[KEY] = self._ids(data, columns, bad)
        self._store(columns, bad)
        self._intake.took_records(len(data))
        self._clear()

    def _ids(
        self, data: list[dict[str, Any]], columns: dict[str, pa.Array], bad: dict[int, Problem]
    ) -> pa.Array:
        given = [record.get(KEY) for record in data]
        has_given = any(value is not None for value in given)
        kind = self.kind
        if isinstance(kind, NodeType) and kind.key:
            made = _key_column(kind, columns, bad)
            if has_given:
                for row, (mine, theirs) in enumerate(zip(made.to_pylist(), given, strict=True)):
                    if theirs is not None and not _is_id(theirs, mine):
                        said = f"differs from the key {', '.join(kind.key)}"
                        bad.setdefault(row, Problem(row, KEY, show(theirs), said))
            return made
        if not has_given:
            return pa.array(new_ulids(len(data)), pa.string())
        self.has_given_ids = True
        column, problems = convert_column(KEY, _TEXT, given)
        for problem in problems:
            bad.setdefault(problem.row, problem)
        self._intake.took_ids(kind, column)
        new = iter(new_ulids(column.null_count))
        filled = [value if value is not None else next(new) for value in column.to_pylist()]
        return pa.array(filled, pa.string())

    def _store(self, columns: dict[str, pa.Array], bad: dict[int, Problem]) -> None:
        kind, places = self.kind, np.array(self._places, dtype=np.int64)
        for row in sorted(bad):
            problem = bad[row]
            reason = f"{kind.name}.{problem.field}: {problem.message}"
            file, line = file_and_line(int(places[row]))
            self._intake.reject(file, line, reason, field=problem.field, value=problem.value)
        arrays = [*(columns[field.name] for field in kind.arrow_schema()), pa.array(places)]
        # Nulls among required values are gone once the bad rows are.
        loose = pa.schema([field.with_nullable(True) for field in self.spool.schema])
        batch = _without(pa.RecordBatch.from_arrays(arrays, schema=loose), bad)
        self.take(batch)

    def take(self, batch: pa.RecordBatch) -> None:
        """Typed rows with their places: check what each says by itself, and spool the rest."""
        broken: dict[int, Violation] = {}
        for violation in table_violations(self.kind, pa.Table.from_batches([batch])):
            if violation.row is not None:
                broken.setdefault(violation.row, violation)
        for row in sorted(broken):
            self._intake.refuse(broken[row], batch[-1][row].as_py())
        batch = _without(batch, broken)
        if batch.num_rows:
            self._intake.took_rows(self.kind, batch)
            self.spool.add(pa.RecordBatch.from_arrays(batch.columns, schema=self.spool.schema))


def _without(batch: pa.RecordBatch, rows: Iterable[int]) -> pa.RecordBatch:
    dropped = np.fromiter(rows, dtype=np.int64)
    if not len(dropped):
        return batch
    return batch.take(pa.array(np.delete(np.arange(batch.num_rows), dropped)))


def _converted(name: str, type_: PropType, values: list[Any], bad: dict[int, Problem]) -> pa.Array:
    column, problems = convert_column(name, type_, values)
    for problem in problems:
        bad.setdefault(problem.row, problem)
    if not type_.nullable and column.null_count:
        for row, value in enumerate(values):
            if value is None:
                bad.setdefault(row, Problem(row, name, "null", "is required"))
    return column


def _is_id(given: Any, key: str | None) -> bool:
    """Whether an id that was given is the key: the same text, or the number that it spells."""
    if isinstance(given, int) and not isinstance(given, bool):
        return key is not None and len(key) < 32 and given.bit_length() <= 64 and str(given) == key
    return bool(given == key)


def _key_column(kind: NodeType, columns: dict[str, pa.Array], bad: dict[int, Problem]) -> pa.Array:
    """Ids from keys; rows whose key is wrong already get a placeholder that nobody sees."""
    keys = [columns[name] for name in kind.key]
    if len(keys) == 1 and keys[0].type == pa.string():
        return keys[0]
    exact = [to_timestamp(key) if pa.types.is_date64(key.type) else key for key in keys]
    ids: list[str | None] = []
    rows: Iterable[tuple[Any, ...]] = zip(*(key.to_pylist() for key in exact), strict=True)
    for row, values in enumerate(rows):
        try:
            ids.append(None if any(value is None for value in values) else key_id(values))
        except ValueConversionError as error:
            ids.append(None)
            bad.setdefault(row, Problem(row, ", ".join(kind.key), "", error.message))
    return pa.array(ids, pa.string())
