"""Ids and the values of unique properties are unique."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.errors import KeyConflict, UniqueViolation
from omnigraph.lang.schema.catalog import NodeType
from omnigraph.storage.tables.store import KEY
from omnigraph.write.delta import Effect, Kind, TableDelta
from omnigraph.write.validate.finder import DuplicateValue, Finder
from omnigraph.write.validate.violations import Violation, named, shown


def unique_violations(delta: TableDelta, finder: Finder) -> Iterator[Violation]:
    """Repeated ids first; if there are any, other uniqueness rules are not checked."""
    if delta.rows is None or delta.effect is Effect.DELETE:
        return
    repeated = False
    for row, value in () if delta.made_ids else finder.repeated_ids(delta):
        repeated = True
        yield _repeated(delta, row, value)
    if repeated:
        return
    if delta.effect is Effect.APPEND and not delta.new_ids:
        for row, value in finder.existing_ids(delta):
            yield _existing(delta, row, value)
    for columns in delta.kind.unique:
        if set(columns) <= set(delta.rows.names):
            yield from _values(delta, columns, finder)


def _values(delta: TableDelta, columns: tuple[str, ...], finder: Finder) -> Iterator[Violation]:
    """Rows with a null in one of the columns are not compared; all others must differ."""
    inside = False
    for duplicate in finder.repeated_values(delta, columns):
        inside = True
        yield _duplicate(delta, columns, duplicate)
    if not inside:
        for duplicate in finder.existing_values(delta, columns):
            yield _duplicate(delta, columns, duplicate)


def _repeated(delta: TableDelta, row: int, value: str) -> Violation:
    key = _key_columns(delta.kind)
    text = (
        f"@unique violation on {delta.kind.name}.{named(key)}: value '{value}' "
        f"held by '{value}' and '{value}'"
    )
    hint = "the rows of one write name each id once"
    details = {"property": ", ".join(key), "value": value}
    return Violation(UniqueViolation, delta.table_key, value, text, row, hint, details)


def _existing(delta: TableDelta, row: int, value: str) -> Violation:
    text = f"{delta.table_key}: there is a row with id '{value}' already"
    hint = "append adds new rows only; use merge to replace"
    details = {"property": ", ".join(_key_columns(delta.kind)), "value": value}
    return Violation(KeyConflict, delta.table_key, value, text, row, hint, details)


def _duplicate(delta: TableDelta, columns: tuple[str, ...], duplicate: DuplicateValue) -> Violation:
    values = [shown(value) for value in duplicate.values]
    value = values[0] if len(values) == 1 else f"({', '.join(values)})"
    text = (
        f"@unique violation on {delta.kind.name}.{named(columns)}: value '{value}' "
        f"held by '{duplicate.first}' and '{duplicate.second}'"
    )
    details = {"property": ", ".join(columns), "value": value}
    return Violation(
        UniqueViolation,
        delta.table_key,
        duplicate.second,
        text,
        duplicate.row,
        None,
        details,
    )


def _key_columns(kind: Kind) -> tuple[str, ...]:
    return kind.key if isinstance(kind, NodeType) and kind.key else (KEY,)
