"""No two rows with one id, nor with one value of what must be unique."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import KeyConflict, UniqueViolation
from omnigraph.lang.schema.catalog import NodeType
from omnigraph.storage.tables import KEY
from omnigraph.write.delta import Effect, Kind, TableDelta
from omnigraph.write.moments import to_timestamp
from omnigraph.write.validate.committed import Committed
from omnigraph.write.validate.violations import Violation, named, shown

_ROW = "row~"
_OTHER = "other~"


def unique_violations(delta: TableDelta, committed: Committed) -> Iterator[Violation]:
    """Repeated ids first; when there are some, nothing else about uniqueness can be said."""
    if delta.rows is None or delta.effect is Effect.DELETE:
        return
    repeated = False
    for violation in () if delta.made_ids else _repeated_ids(delta):
        repeated = True
        yield violation
    if repeated:
        return
    if delta.effect is Effect.APPEND and not delta.new_ids:
        yield from _known_ids(delta, committed)
    for columns in delta.kind.unique:
        if set(columns) <= set(delta.rows.names):
            yield from _repeated_values(delta, columns, committed)


def _repeated_ids(delta: TableDelta) -> Iterator[Violation]:
    ids = delta.column(KEY)
    if len(pc.unique(ids)) == len(ids):
        return
    key = _key_columns(delta.kind)
    seen: set[str] = set()
    for position, value in enumerate(ids.to_pylist()):
        if value in seen:
            text = (
                f"@unique violation on {delta.kind.name}.{named(key)}: value '{value}' "
                f"held by '{value}' and '{value}'"
            )
            hint = "the rows of one write name each id once"
            details = {"property": ", ".join(key), "value": value}
            yield Violation(UniqueViolation, delta.table_key, value, text, position, hint, details)
        seen.add(value)


def _key_columns(kind: Kind) -> tuple[str, ...]:
    return kind.key if isinstance(kind, NodeType) and kind.key else (KEY,)


def _known_ids(delta: TableDelta, committed: Committed) -> Iterator[Violation]:
    ids = delta.column(KEY).combine_chunks()
    known = committed.present(delta.table_key, ids)
    if not len(known):
        return
    mask = pc.is_in(ids, value_set=known)
    for position in pc.indices_nonzero(mask).to_pylist():
        value = ids[position].as_py()
        text = f"{delta.table_key}: there is a row with id '{value}' already"
        hint = "append adds new rows only; use merge to replace"
        details = {"property": ", ".join(_key_columns(delta.kind)), "value": value}
        yield Violation(KeyConflict, delta.table_key, value, text, position, hint, details)


def _repeated_values(
    delta: TableDelta, columns: tuple[str, ...], committed: Committed
) -> Iterator[Violation]:
    """Rows with null in one of the columns are free; all others must differ."""
    assert delta.rows is not None
    rows = delta.rows.select([KEY, *columns])
    rows = rows.append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))
    for column in columns:
        rows = rows.filter(pc.is_valid(rows[column]))
    rows = _one_zero(rows)
    if not rows.num_rows:
        return
    inside = False
    for violation in _among(delta, columns, rows):
        inside = True
        yield violation
    if not inside:
        yield from _against(delta, columns, rows, committed)


def _one_zero(rows: pa.Table) -> pa.Table:
    """Zero and minus zero are equal numbers, but a join compares their bits."""
    for position, field in enumerate(rows.schema):
        if pa.types.is_floating(field.type):
            same = pc.add(rows[field.name], pa.scalar(0.0, field.type))
            rows = rows.set_column(position, field, same)
    return rows


def _among(delta: TableDelta, columns: tuple[str, ...], rows: pa.Table) -> Iterator[Violation]:
    groups = rows.group_by(list(columns)).aggregate([(_ROW, "count"), (_ROW, "min")])
    if groups.num_rows == rows.num_rows:
        return
    crowded = groups.filter(pc.greater(groups[f"{_ROW}_count"], 1))
    shared = rows.join(crowded, list(columns), join_type="inner").sort_by(_ROW)
    ids = dict(zip(rows[_ROW].to_pylist(), rows[KEY].to_pylist(), strict=True))
    for record in _records(shared):
        first = record[f"{_ROW}_min"]
        if record[_ROW] != first:
            yield _held(delta, columns, record, record[_ROW], ids[first], record[KEY])


def _against(
    delta: TableDelta, columns: tuple[str, ...], rows: pa.Table, committed: Committed
) -> Iterator[Violation]:
    lead = rows[columns[0]].combine_chunks()
    there = committed.matching(delta.table_key, columns[0], lead, [KEY, *columns])
    if not there.num_rows:
        return
    # A row that this write replaces frees what it held.
    mine = delta.column(KEY).combine_chunks()
    there = there.filter(pc.invert(pc.is_in(there[KEY], value_set=mine)))
    there = _one_zero(there)
    there = there.rename_columns([_OTHER, *columns])
    both = rows.join(there, list(columns), join_type="inner").sort_by(_ROW)
    for record in _records(both):
        yield _held(delta, columns, record, record[_ROW], record[_OTHER], record[KEY])


def _records(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows as Python values, moments with their time of day."""
    for position, field in enumerate(rows.schema):
        if pa.types.is_date64(field.type):
            moments = to_timestamp(rows[field.name].combine_chunks())
            rows = rows.set_column(position, field.name, moments)
    records: list[dict[str, Any]] = rows.to_pylist()
    return records


def _held(
    delta: TableDelta,
    columns: tuple[str, ...],
    record: dict[str, Any],
    position: int,
    first: str,
    second: str,
) -> Violation:
    values = [shown(record[column]) for column in columns]
    value = values[0] if len(values) == 1 else f"({', '.join(values)})"
    text = (
        f"@unique violation on {delta.kind.name}.{named(columns)}: value '{value}' "
        f"held by '{first}' and '{second}'"
    )
    details = {"property": ", ".join(columns), "value": value}
    return Violation(UniqueViolation, delta.table_key, second, text, position, None, details)
