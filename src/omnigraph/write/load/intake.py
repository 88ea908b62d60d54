"""Records on their way into spools: columns are gathered, converted together and checked.

What is wrong with a record is collected with its file and line. Strict loads stop at the first;
others set such records aside, up to a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from omnigraph.commit.ulid import new_ulids
from omnigraph.errors import LoadError, ValueConversionError
from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.lang.schema.keys import key_id
from omnigraph.lang.types import PropType, Scalar
from omnigraph.storage.tables import KEY
from omnigraph.write.conform import find_type
from omnigraph.write.convert import Problem, convert_column
from omnigraph.write.delta import Kind
from omnigraph.write.load.spool import Spool
from omnigraph.write.moments import to_timestamp
from omnigraph.write.validate.values import table_violations
from omnigraph.write.validate.violations import Violation

_BATCH = 16_384
_TEXT = PropType(Scalar.STRING)


@dataclass(frozen=True, slots=True)
class Reject:
    """A record that was not taken, and why."""

    file: str
    line: int
    reason: str
    field: str | None = None
    value: str | None = None

    def error(self) -> LoadError:
        place = f"{self.file}:{self.line}"
        return LoadError(f"{place}: {self.reason}", details=self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Plain data in a fixed order."""
        return {
            "file": self.file,
            "line": self.line,
            "field": self.field,
            "value": self.value,
            "reason": self.reason,
        }


class Rejects:
    """What was refused so far. Beyond ``allowed`` the load ends with the one that was too much."""

    def __init__(self, allowed: int = 0, keep: Callable[[Reject], None] | None = None) -> None:
        self._allowed = allowed
        self._keep = keep
        self.count = 0
        self.first: list[Reject] = []

    @property
    def goes_on(self) -> bool:
        """Whether one more would be set aside instead of ending the load."""
        return self.count < self._allowed

    def add(self, reject: Reject) -> None:
        self.count += 1
        if self.count > self._allowed:
            raise reject.error()
        if len(self.first) < 100:
            self.first.append(reject)
        if self._keep is not None:
            self._keep(reject)


class Intake:
    """All types of a load: one gatherer and one spool for each that appears."""

    def __init__(
        self, catalog: Catalog, folder: Path, rejects: Rejects, *, strict_properties: bool = False
    ) -> None:
        self.catalog = catalog
        self.rejects = rejects
        self.files: list[str] = []
        self.ignored: dict[str, int] = {}
        self.records = 0
        self.progress: Callable[[Intake], None] | None = None
        self._folder = folder
        self._strict = strict_properties
        self._gatherers: dict[str, Gatherer] = {}

    def open_file(self, name: str) -> int:
        """Announce the next file; gives its number."""
        self.files.append(name)
        return len(self.files) - 1

    def gatherer(self, kind: Kind) -> Gatherer:
        found = self._gatherers.get(kind.table_key)
        if found is None:
            found = Gatherer(self, kind, Spool(kind, self._folder))
            self._gatherers[kind.table_key] = found
        return found

    def find(self, name: str) -> Kind:
        return find_type(self.catalog, name)

    def ignore(self, kind: Kind, name: str, rows: int, file: int, line: int) -> bool:
        """Count a property that the schema does not have; false when that is refused."""
        if self._strict:
            reason = f"{kind.name} has no property '{name}'"
            self.reject(file, line, reason, field=name)
            return False
        label = f"{kind.name}.{name}"
        self.ignored[label] = self.ignored.get(label, 0) + rows
        return True

    def reject(self, file: int, line: int, reason: str, **more: str | None) -> None:
        self.rejects.add(Reject(self.files[file], line, reason, **more))

    def spools(self) -> dict[str, Spool]:
        """Convert what is left, and give the spools of all types that had a record."""
        found = {}
        for key in sorted(self._gatherers):
            gatherer = self._gatherers[key]
            gatherer.flush()
            gatherer.spool.close()
            found[key] = gatherer.spool
        return found

    @property
    def given_ids(self) -> set[str]:
        """The tables for which some record brought its own id."""
        return {key for key, gatherer in self._gatherers.items() if gatherer.has_given_ids}


class Gatherer:
    """Records of one type, column by column."""

    def __init__(self, intake: Intake, kind: Kind, spool: Spool) -> None:
        self.kind = kind
        self.spool = spool
        self.has_given_ids = False
        self._intake = intake
        self._known = frozenset(kind.properties) | {KEY}
        self._properties = list(kind.properties)
        self._clear()

    def _clear(self) -> None:
        self._data: list[dict[str, Any]] = []
        self._ends: list[tuple[Any, Any]] = []
        self._files: list[int] = []
        self._lines: list[int] = []

    def add(self, data: dict[str, Any], ends: tuple[Any, Any] | None, file: int, line: int) -> None:
        """One record: its properties, for an edge its two ends, and where it stood."""
        if not data.keys() <= self._known and not self._is_fine(data, file, line):
            return
        self._data.append(data)
        if ends is not None:
            self._ends.append(ends)
        self._files.append(file)
        self._lines.append(line)
        if len(self._data) >= _BATCH:
            self.flush()

    def _is_fine(self, data: dict[str, Any], file: int, line: int) -> bool:
        """Properties that the schema does not have are counted, or refused."""
        names = sorted(map(str, data.keys() - self._known))
        return all(self._intake.ignore(self.kind, name, 1, file, line) for name in names)

    def flush(self) -> None:
        """Convert what was gathered and hand it to the spool."""
        if not self._data:
            return
        data, count = self._data, len(self._data)
        self._intake.records += count
        bad: dict[int, Problem] = {}
        columns: dict[str, pa.Array] = {}
        for name in self._properties:
            values = [record.get(name) for record in data]
            type_ = self.kind.properties[name].type
            columns[name] = self._convert(name, type_, values, bad)
        if isinstance(self.kind, EdgeType):
            for position, (name, column) in enumerate((("from", "src"), ("to", "dst"))):
                ends = [pair[position] for pair in self._ends]
                columns[column] = self._convert(name, _TEXT, ends, bad)
        columns[KEY] = self._ids(data, columns, bad)
        self._store(columns, bad, count)
        self._clear()
        if self._intake.progress is not None:
            self._intake.progress(self._intake)

    def _convert(
        self, name: str, type_: PropType, values: list[Any], bad: dict[int, Problem]
    ) -> pa.Array:
        column, problems = convert_column(name, type_, values)
        for problem in problems:
            bad.setdefault(problem.row, problem)
        if not type_.nullable and column.null_count:
            for row, value in enumerate(values):
                if value is None:
                    bad.setdefault(row, Problem(row, name, "null", "is required"))
        return column

    def _ids(
        self, data: list[dict[str, Any]], columns: dict[str, pa.Array], bad: dict[int, Problem]
    ) -> pa.Array:
        given = [record.get(KEY) for record in data]
        has_given = any(value is not None for value in given)
        kind = self.kind
        if isinstance(kind, NodeType) and kind.key:
            made = _key_column(kind, columns, bad, len(data))
            if has_given:
                for row, (mine, theirs) in enumerate(zip(made.to_pylist(), given, strict=True)):
                    if theirs is not None and theirs != mine:
                        said = f"differs from the key {', '.join(kind.key)}"
                        bad.setdefault(row, Problem(row, KEY, str(theirs), said))
            return made
        if not has_given:
            return pa.array(new_ulids(len(data)), pa.string())
        self.has_given_ids = True
        column, problems = convert_column(KEY, _TEXT, given)
        for problem in problems:
            bad.setdefault(problem.row, problem)
        new = iter(new_ulids(column.null_count))
        filled = [value if value is not None else next(new) for value in column.to_pylist()]
        return pa.array(filled, pa.string())

    def _store(self, columns: dict[str, pa.Array], bad: dict[int, Problem], count: int) -> None:
        arrays = [columns[field.name] for field in self.kind.arrow_schema()]
        arrays += [pa.array(self._files, pa.int32()), pa.array(self._lines, pa.int64())]
        for row in sorted(bad):
            self._refuse(row, bad[row])
        # Nulls among required values are gone once the bad rows are.
        loose = pa.schema([field.with_nullable(True) for field in self.spool.schema])
        batch = pa.RecordBatch.from_arrays(arrays, schema=loose)
        batch = self._keep(batch, [row for row in range(count) if row not in bad] if bad else None)
        broken: dict[int, Violation] = {}
        for violation in table_violations(self.kind, pa.Table.from_batches([batch])):
            if violation.row is not None:
                broken.setdefault(violation.row, violation)
        for row in sorted(broken):
            file, line = batch[-2][row].as_py(), batch[-1][row].as_py()
            self._intake.reject(file, line, broken[row].message)
        if broken:
            batch = self._keep(batch, [r for r in range(batch.num_rows) if r not in broken])
        if batch.num_rows:
            self.spool.add(pa.RecordBatch.from_arrays(batch.columns, schema=self.spool.schema))

    def _keep(self, batch: pa.RecordBatch, rows: list[int] | None) -> pa.RecordBatch:
        return batch if rows is None else batch.take(pa.array(rows, pa.int64()))

    def _refuse(self, row: int, problem: Problem) -> None:
        reason = f"{self.kind.name}.{problem.field}: {problem.message}"
        self._intake.reject(
            self._files[row], self._lines[row], reason, field=problem.field, value=problem.value
        )


def _key_column(
    kind: NodeType, columns: dict[str, pa.Array], bad: dict[int, Problem], count: int
) -> pa.Array:
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
