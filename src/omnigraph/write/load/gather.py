"""Gathers records by type, converts them column by column and checks them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import ValueConversionError
from omnigraph.lang.schema.catalog import EdgeType, EntityType, NodeType
from omnigraph.lang.types import PropType, Scalar
from omnigraph.lang.values.arrow import to_timestamp
from omnigraph.lang.values.columns import ValueProblem, convert_column
from omnigraph.lang.values.spelling import key_id, show
from omnigraph.storage.tables.store import KEY
from omnigraph.storage.tables.wide_columns import BATCH_BYTES, vector_bytes
from omnigraph.write.blobs import blob_bytes, blob_size
from omnigraph.write.delta import refuse_wide
from omnigraph.write.ids import new_ids, spelled_keys
from omnigraph.write.load.rejects import Reject, file_and_line, source_line, violation_reject
from omnigraph.write.load.spool import spooled_schema
from omnigraph.write.validate.rules import Violation, table_violations

if TYPE_CHECKING:
    from omnigraph.write.load.intake import Intake, Sink

_ROWS = 16_384
_BYTES = 8 << 20
_TEXT = PropType(Scalar.STRING)
_ENDS = {"src": "from", "dst": "to"}


class Gatherer:
    """Records of one type, in columns, or one by one until they are moved to columns."""

    def __init__(self, intake: Intake, entity_type: EntityType, sink: Sink) -> None:
        self.entity_type = entity_type
        self.has_given_ids = False
        self._intake = intake
        self._sink = sink
        self._read_blob = partial(blob_bytes, files=intake.files_named)
        self._schema = spooled_schema(entity_type)
        self._columns_allowed = frozenset(entity_type.properties) | {KEY}
        self.integers = tuple(
            p.name for p in entity_type.properties.values() if p.type.scalar.is_integer
        )
        """The properties that take integers, or lists of them."""
        self._blobs = [
            p.name for p in entity_type.properties.values() if p.type.scalar is Scalar.BLOB
        ]
        self._is_edge = isinstance(entity_type, EdgeType)
        refuse_wide(entity_type)
        fitting = BATCH_BYTES // max(vector_bytes(entity_type.arrow_schema()), 1)
        self._most_rows = max(1, min(_ROWS, fitting))
        self._clear()

    def _clear(self) -> None:
        names = (*self.entity_type.properties, KEY, *(_ENDS if self._is_edge else ()))
        self._columns: dict[str, list[Any]] = {name: [] for name in names}
        self._data: list[dict[str, Any]] = []
        self._ends: list[tuple[Any, Any]] = []
        self._lines: list[np.ndarray] = []
        self._record_lines: list[int] = []
        self._rows = self._weight = 0
        self._is_typed = True

    def add(self, data: dict[str, Any], ends: tuple[Any, Any] | None, file: int, line: int) -> None:
        """Add one record: its properties, the two ends of an edge, and its file and line."""
        if not data.keys() <= self._columns_allowed and not self.is_fine(
            data.keys() - self._columns_allowed, file, line
        ):
            return
        self._data.append(data)
        if ends is not None:
            self._ends.append(ends)
        self._record_lines.append(source_line(file, line))
        self._rows += 1
        if self._blobs:
            files = self._intake.files_named
            self._weight += sum(blob_size(data.get(name), files) for name in self._blobs)
        if self._is_full:
            self.flush()
            self._intake.check()

    def add_all(self, columns: Mapping[str, list[Any]], lines: np.ndarray) -> None:
        """Add many records by columns, with nulls for absent values, and their source lines.

        Rejects are deferred: records of earlier lines may be added later.
        """
        start = 0
        for end in self._batch_ends(columns, len(lines)):
            self._move_to_columns()
            for name, values in self._columns.items():
                values.extend(
                    columns[name] if end - start == len(lines) else columns[name][start:end]
                )
            self._lines.append(lines[start:end])
            self._rows += end - start
            start = end
            if self._is_full:
                self.flush()

    def add_typed(
        self, columns: Mapping[str, pa.Array], given: pa.Array | None, lines: np.ndarray
    ) -> None:
        """Add many records by columns of their types, with the ids that were given, if any.

        Rejects are deferred, as with ``add_all``.
        """
        self.flush()
        bad: dict[int, ValueProblem] = {}
        ids: list[Any] = [None] * len(lines) if given is None else given.to_pylist()
        whole = dict(columns)
        whole[KEY] = self._ids(ids, whole, bad)
        self._store(whole, bad, lines)
        self._intake.count_records(len(lines))

    def _batch_ends(self, columns: Mapping[str, list[Any]], rows: int) -> Iterable[int]:
        """Where to flush: blobs may be large files, and even null vectors are wide."""
        done, room = 0, self._most_rows - self._rows
        files = self._intake.files_named
        named = list(zip(*(columns[name] for name in self._blobs), strict=True))
        for row in range(1, rows) if named or self._most_rows < _ROWS else ():
            self._weight += sum(blob_size(value, files) for value in named[row - 1]) if named else 0
            if self._is_full or row - done >= room:
                yield row
                done, room = row, self._most_rows
        self._weight += sum(blob_size(value, files) for value in named[-1]) if named else 0
        yield rows

    @property
    def _is_full(self) -> bool:
        return self._rows >= self._most_rows or self._weight > _BYTES

    def is_fine(self, unknown: Iterable[Any], file: int, line: int) -> bool:
        """Count properties that are not in the schema, or reject the record."""
        names = sorted(map(show, unknown))
        if self._intake.strict_properties:
            reason = f"{self.entity_type.name} has no property '{names[0]}'"
            self._intake.reject(file, line, reason, field=names[0])
            return False
        for name in names:
            self._intake.ignore(self.entity_type, name, 1)
        return True

    def _move_to_columns(self) -> None:
        """Move records that were added one by one to the columns."""
        if not self._data:
            return
        for name in (*self.entity_type.properties, KEY):
            self._columns[name].extend([record.get(name) for record in self._data])
        for position, name in enumerate(_ENDS if self._is_edge else ()):
            self._columns[name].extend([pair[position] for pair in self._ends])
        self._lines.append(np.array(self._record_lines, dtype=np.int64))
        self._data, self._ends, self._record_lines = [], [], []
        self._is_typed = False

    def flush(self) -> None:
        """Convert the gathered records and pass on the valid ones."""
        if not self._rows:
            return
        self._move_to_columns()
        values, lines = self._columns, np.concatenate(self._lines)
        bad: dict[int, ValueProblem] = {}
        columns: dict[str, pa.Array] = {}
        for name, prop in self.entity_type.properties.items():
            columns[name] = self._converted(name, prop.type, values[name], bad)
        for column in _ENDS if self._is_edge else ():
            columns[column] = self._converted(_ENDS[column], _TEXT, values[column], bad)
        columns[KEY] = self._ids(values[KEY], columns, bad)
        self._clear()
        self._store(columns, bad, lines)
        self._intake.count_records(len(lines))

    def _converted(
        self, name: str, type_: PropType, values: list[Any], bad: dict[int, ValueProblem]
    ) -> pa.Array:
        column, problems = convert_column(
            name, type_, values, is_typed=self._is_typed, read_blob=self._read_blob
        )
        for problem in problems:
            bad.setdefault(problem.row, problem)
        if not type_.nullable and column.null_count:
            for row, value in enumerate(values):
                if value is None:
                    bad.setdefault(row, ValueProblem(row, name, "null", "is required"))
        return column

    def _ids(
        self, given: list[Any], columns: dict[str, pa.Array], bad: dict[int, ValueProblem]
    ) -> pa.Array:
        has_given = given.count(None) < len(given)
        entity_type = self.entity_type
        if isinstance(entity_type, NodeType) and entity_type.key:
            made = _key_column(entity_type, columns, bad)
            if has_given:
                for row, (mine, theirs) in enumerate(zip(made.to_pylist(), given, strict=True)):
                    if theirs is not None and not _is_id(theirs, mine):
                        message = f"differs from the key {', '.join(entity_type.key)}"
                        bad.setdefault(row, ValueProblem(row, KEY, show(theirs), message))
            return made
        if not has_given:
            self._intake.digest_ids(entity_type, pa.nulls(len(given), pa.string()))
            return new_ids(len(given))
        self.has_given_ids = True
        column, problems = convert_column(KEY, _TEXT, given)
        for problem in problems:
            bad.setdefault(problem.row, problem)
        self._intake.digest_ids(entity_type, column)
        new = new_ids(column.null_count)
        return pc.replace_with_mask(column, pc.is_null(column), new)

    def _store(
        self, columns: dict[str, pa.Array], bad: dict[int, ValueProblem], lines: np.ndarray
    ) -> None:
        entity_type = self.entity_type
        for row in sorted(bad):
            problem = bad[row]
            file, line = file_and_line(int(lines[row]))
            reject = Reject(
                self._intake.files[file],
                line,
                f"{entity_type.name}.{problem.field}: {problem.message}",
                problem.field,
                problem.value,
                hint=problem.hint,
            )
            self._intake.rejects.defer(int(lines[row]), reject)
        arrays = [*(columns[field.name] for field in entity_type.arrow_schema()), pa.array(lines)]
        # Required columns have nulls until the rejected rows are removed.
        loose = pa.schema([field.with_nullable(True) for field in self._schema])
        self._check(_without(pa.RecordBatch.from_arrays(arrays, schema=loose), bad))

    def take(self, batch: pa.RecordBatch) -> None:
        """Add typed rows with their source lines; everything before them was added."""
        self._check(batch)
        self._intake.check()

    def _check(self, batch: pa.RecordBatch) -> None:
        """Check each row by itself, and pass on the valid ones."""
        violations: dict[int, Violation] = {}
        for violation in table_violations(self.entity_type, pa.Table.from_batches([batch])):
            if violation.row is not None:
                violations.setdefault(violation.row, violation)
        for row in sorted(violations):
            number = batch[-1][row].as_py()
            file, line = file_and_line(number)
            reject = violation_reject(self._intake.files[file], line, violations[row])
            self._intake.rejects.defer(number, reject)
        batch = _without(batch, violations)
        if batch.num_rows:
            self._intake.digest_rows(self.entity_type, batch)
            self._sink.add(pa.RecordBatch.from_arrays(batch.columns, schema=self._schema))


def _without(batch: pa.RecordBatch, rows: Iterable[int]) -> pa.RecordBatch:
    dropped = np.fromiter(rows, dtype=np.int64)
    if not len(dropped):
        return batch
    return batch.take(pa.array(np.delete(np.arange(batch.num_rows), dropped)))


def _is_id(given: Any, key: str | None) -> bool:
    """Whether a given id is the key: the same string, or the integer that it spells."""
    if isinstance(given, int) and not isinstance(given, bool):
        return key is not None and len(key) < 32 and given.bit_length() <= 64 and str(given) == key
    return bool(given == key)


def _key_column(
    entity_type: NodeType, columns: dict[str, pa.Array], bad: dict[int, ValueProblem]
) -> pa.Array:
    """Ids from keys; null for rows with an invalid key, which are rejected."""
    keys = [columns[name] for name in entity_type.key]
    spelled = spelled_keys(keys)
    if spelled is not None:
        return spelled
    ids: list[str | None] = []
    rows: Iterable[tuple[Any, ...]] = zip(
        *(to_timestamp(key).to_pylist() for key in keys), strict=True
    )
    for row, values in enumerate(rows):
        try:
            ids.append(None if any(value is None for value in values) else key_id(values))
        except ValueConversionError as error:
            ids.append(None)
            bad.setdefault(row, ValueProblem(row, ", ".join(entity_type.key), "", error.message))
    return pa.array(ids, pa.string())
