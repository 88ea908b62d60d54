"""Rules about a row alone: ranges, patterns, enums. They need no look at any other row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InputError, ValueViolation
from omnigraph.lang.schema.ast import CheckConstraint, RangeConstraint
from omnigraph.lang.schema.catalog import NodeType, Property
from omnigraph.lang.schema.patterns import BadPattern, matches
from omnigraph.storage.tables.store import KEY
from omnigraph.write.delta import Kind, TableDelta
from omnigraph.write.validate.violations import Violation, shown


def value_columns(kind: Kind) -> tuple[str, ...]:
    """The columns that some rule about values looks at."""
    names = [prop.name for prop in kind.properties.values() if prop.type.enum_values]
    if isinstance(kind, NodeType):
        names += [rule.property for rule in kind.ranges]
        names += [rule.property for rule in kind.checks]
    return tuple(dict.fromkeys(names))


def value_violations(delta: TableDelta) -> Iterator[Violation]:
    """Every value of a delta that breaks a rule, rule by rule."""
    if delta.rows is None or delta.rows.is_judged:
        return
    present = set(delta.rows.names)
    columns = [name for name in value_columns(delta.kind) if name in present]
    yield from table_violations(delta.kind, delta.rows.select([KEY, *columns]))


def table_violations(kind: Kind, table: pa.Table) -> Iterator[Violation]:
    """The same for rows at hand; used batch by batch where rows stream by."""
    yield from _empty_ids(kind, table)
    if isinstance(kind, NodeType):
        for rule in kind.ranges:
            yield from _ranges(kind, rule, table)
        for check in kind.checks:
            yield from _checks(kind, check, table)
    for prop in kind.properties.values():
        if prop.type.enum_values:
            yield from _enums(kind, prop, table)


def _empty_ids(kind: Kind, table: pa.Table) -> Iterator[Violation]:
    """No row may have the empty id, wherever it came from: no edge could name it in every form."""
    name = kind.key[0] if isinstance(kind, NodeType) and kind.key else KEY
    for position, value in _hits(table[KEY], pc.equal(table[KEY], "")):
        text = f"{kind.name}.{name}: the id of a row is empty"
        yield _violation(kind, table, position, text, name, value)


def _ranges(kind: Kind, rule: RangeConstraint, table: pa.Table) -> Iterator[Violation]:
    column = _column(table, rule.property)
    if column is None or pa.types.is_list(column.type):
        return
    where = f"{kind.name}.{rule.property}"
    if pa.types.is_floating(column.type):
        for position, value in _hits(column, pc.is_nan(column)):
            text = f"@range violation on {where}: value {value}"
            yield _violation(kind, table, position, text, rule.property, value)
    if rule.min is not None:
        for position, value in _hits(column, _outside(column, rule.min, pc.less)):
            text = f"@range violation on {where}: value {value} < min {rule.min}"
            yield _violation(kind, table, position, text, rule.property, value)
    if rule.max is not None:
        for position, value in _hits(column, _outside(column, rule.max, pc.greater)):
            text = f"@range violation on {where}: value {value} > max {rule.max}"
            yield _violation(kind, table, position, text, rule.property, value)


def _outside(column: pa.ChunkedArray, bound: int | float, beyond: Callable[..., Any]) -> Any:
    """Where a column lies beyond a bound, compared in a type that holds both exactly."""
    if pa.types.is_floating(column.type):
        # The bound that an F32 is nearest to is the one that was written.
        return beyond(column, pa.scalar(float(bound), column.type))
    if pa.types.is_uint64(column.type) and not isinstance(bound, float):
        return beyond(column.cast(pa.decimal128(20)), pa.scalar(bound, pa.decimal128(20)))
    return beyond(column, pa.scalar(bound))


def _checks(kind: Kind, rule: CheckConstraint, table: pa.Table) -> Iterator[Violation]:
    column = _column(table, rule.property)
    if column is None:
        return
    if column.null_count == len(column):
        return
    try:
        matching = matches(column, rule.pattern)
    except BadPattern:
        raise InputError(
            f"the pattern '{rule.pattern}' of @check on {kind.name}.{rule.property} "
            "is not a valid regular expression",
            hint="change the schema; look-around and back references are not known",
            details={"table_key": kind.table_key, "property": rule.property},
        ) from None
    for position, value in _hits(column, pc.invert(matching)):
        text = (
            f"@check violation on {kind.name}.{rule.property}: value '{value}' does not match "
            f"pattern '{rule.pattern}'"
        )
        yield _violation(kind, table, position, text, rule.property, value)


def _enums(kind: Kind, prop: Property, table: pa.Table) -> Iterator[Violation]:
    column = _column(table, prop.name)
    if column is None:
        return
    allowed = pa.array(prop.type.enum_values, pa.string())
    if prop.type.is_list:
        flat = pc.list_flatten(column)
        bad = pc.and_(pc.is_valid(flat), pc.invert(pc.is_in(flat, value_set=allowed)))
        owners = pc.list_parent_indices(column)
        hits = list(zip(owners.filter(bad).to_pylist(), flat.filter(bad).to_pylist(), strict=True))
    else:
        wrong = pc.and_(pc.is_valid(column), pc.invert(pc.is_in(column, value_set=allowed)))
        hits = list(_hits(column, wrong))
    expected = ", ".join(prop.type.enum_values or ())
    for position, value in hits:
        text = f"invalid enum value '{value}' for {kind.name}.{prop.name} (expected: {expected})"
        yield _violation(kind, table, position, text, prop.name, value)


def _column(table: pa.Table, name: str) -> pa.ChunkedArray | None:
    return table[name] if name in table.column_names else None


def _hits(column: pa.ChunkedArray, mask: Any) -> Iterator[tuple[int, str]]:
    """Positions and values where a mask is true."""
    if not pc.any(mask).as_py():
        return
    positions = pc.indices_nonzero(mask)
    for position in positions.to_pylist():
        yield position, shown(column[position].as_py())


def _violation(
    kind: Kind, table: pa.Table, position: int, text: str, name: str, value: str
) -> Violation:
    row_id = table[KEY][position].as_py()
    details = {"property": name, "value": value}
    return Violation(ValueViolation, kind.table_key, row_id, text, position, None, details)
