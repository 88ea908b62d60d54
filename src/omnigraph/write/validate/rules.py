"""The rules of the schema, and the wording of their violations.

Rules about a row alone (ranges, patterns, enums) look at its columns; rules about sets of rows
(uniqueness, endpoints, cardinality) word what a finder finds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import (
    CardinalityViolation,
    InputError,
    KeyConflict,
    OmniGraphError,
    OrphanEdge,
    UniqueViolation,
    ValueViolation,
)
from omnigraph.lang.schema.ast import CheckConstraint, RangeConstraint
from omnigraph.lang.schema.catalog import Catalog, EdgeType, EntityType, NodeType, Property
from omnigraph.lang.schema.patterns import BadPattern, matches
from omnigraph.lang.values.spelling import key_text
from omnigraph.records import dataclass
from omnigraph.storage.tables.store import KEY
from omnigraph.write.delta import Effect, TableDelta
from omnigraph.write.validate.finder import Dangling, DuplicateValue, Finder


@dataclass(frozen=True, slots=True)
class Violation:
    """A violated rule, and the row that violates it.

    ``row`` is its position among the rows of the delta; none for a committed row.
    """

    error_class: type[OmniGraphError]
    table_key: str
    row_id: str | None
    message: str
    row: int | None = None
    hint: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def error(self) -> OmniGraphError:
        """The violation as an error."""
        details = {"table_key": self.table_key, "id": self.row_id, **self.details}
        return self.error_class(self.message, hint=self.hint, details=details)


def shown(value: Any) -> str:
    """A value formatted for messages.

    >>> shown(1.5), shown(float("nan")), shown(True), shown(datetime(2024, 5, 1, 10))
    ('1.5', 'NaN', 'true', '2024-05-01T10:00:00.000Z')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return key_text(value) if isinstance(value, datetime) else str(value)


_ENDS = ("src", "dst")
_NO_TEXT = pa.scalar("", pa.string())


def named(columns: tuple[str, ...]) -> str:
    """Columns formatted for messages: one bare, several in parentheses."""
    return columns[0] if len(columns) == 1 else f"({', '.join(columns)})"


def value_columns(entity_type: EntityType) -> tuple[str, ...]:
    """The columns that rules about values need."""
    names = [prop.name for prop in entity_type.properties.values() if prop.type.enum_values]
    if isinstance(entity_type, NodeType):
        names += [rule.property for rule in entity_type.ranges]
        names += [rule.property for rule in entity_type.checks]
    return tuple(dict.fromkeys(names))


def value_violations(delta: TableDelta) -> Iterator[Violation]:
    """The violations of value rules in a delta, rule by rule."""
    if delta.rows is None or delta.rows.is_judged:
        return
    present = set(delta.rows.names)
    columns = [name for name in value_columns(delta.entity_type) if name in present]
    yield from table_violations(delta.entity_type, delta.rows.select([KEY, *columns]))


def table_violations(entity_type: EntityType, table: pa.Table) -> Iterator[Violation]:
    """The violations of value rules in a table; called per batch for streamed rows."""
    # An edge could not refer to an empty id in every input format.
    for position, value in _hits(table[KEY], pc.equal(table[KEY], _NO_TEXT)):
        name = entity_type.key[0] if isinstance(entity_type, NodeType) and entity_type.key else KEY
        text = f"{entity_type.name}.{name}: the id of a row is empty"
        yield _violation(entity_type, table, position, text, name, value)
    if isinstance(entity_type, NodeType):
        for rule in entity_type.ranges:
            yield from _ranges(entity_type, rule, table)
        for check in entity_type.checks:
            yield from _checks(entity_type, check, table)
    for prop in entity_type.properties.values():
        if prop.type.enum_values:
            yield from _enums(entity_type, prop, table)


def _ranges(entity_type: EntityType, rule: RangeConstraint, table: pa.Table) -> Iterator[Violation]:
    column = _column(table, rule.property)
    if column is None or pa.types.is_list(column.type):
        return
    where = f"{entity_type.name}.{rule.property}"
    outside = []
    if pa.types.is_floating(column.type):
        outside.append((pc.is_nan(column), ""))
    if rule.min is not None:
        outside.append((_outside(column, rule.min, pc.less), f" < min {rule.min}"))
    if rule.max is not None:
        outside.append((_outside(column, rule.max, pc.greater), f" > max {rule.max}"))
    for mask, bound in outside:
        for position, value in _hits(column, mask):
            text = f"@range violation on {where}: value {value}{bound}"
            yield _violation(entity_type, table, position, text, rule.property, value)


def _outside(column: pa.ChunkedArray, bound: int | float, beyond: Callable[..., Any]) -> Any:
    """The mask of values beyond a bound, compared in a type that represents both exactly."""
    if pa.types.is_floating(column.type):
        # For F32 the bound is rounded to the nearest F32.
        return beyond(column, pa.scalar(float(bound), column.type))
    if pa.types.is_uint64(column.type) and not isinstance(bound, float):
        return beyond(column.cast(pa.decimal128(20)), pa.scalar(bound, pa.decimal128(20)))
    # With its type: inferring it would load pandas.
    whole = pa.int64() if bound < 2**63 else pa.uint64()
    return beyond(column, pa.scalar(bound, pa.float64() if isinstance(bound, float) else whole))


def _checks(entity_type: EntityType, rule: CheckConstraint, table: pa.Table) -> Iterator[Violation]:
    column = _column(table, rule.property)
    if column is None:
        return
    if column.null_count == len(column):
        return
    try:
        matching = matches(column, rule.pattern)
    except BadPattern:
        raise InputError(
            f"the pattern '{rule.pattern}' of @check on {entity_type.name}.{rule.property} "
            "is not a valid regular expression",
            hint="change the schema; look-around and back references are not supported",
            details={"table_key": entity_type.table_key, "property": rule.property},
        ) from None
    for position, value in _hits(column, pc.invert(matching)):
        text = (
            f"@check violation on {entity_type.name}.{rule.property}: value '{value}' does not "
            f"match pattern '{rule.pattern}'"
        )
        yield _violation(entity_type, table, position, text, rule.property, value)


def _enums(entity_type: EntityType, prop: Property, table: pa.Table) -> Iterator[Violation]:
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
        shown = f"{entity_type.name}.{prop.name}"
        text = f"invalid enum value '{value}' for {shown} (expected: {expected})"
        yield _violation(entity_type, table, position, text, prop.name, value)


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
    entity_type: EntityType, table: pa.Table, position: int, text: str, name: str, value: str
) -> Violation:
    row_id = table[KEY][position].as_py()
    details = {"property": name, "value": value}
    return Violation(ValueViolation, entity_type.table_key, row_id, text, position, None, details)


def unique_violations(delta: TableDelta, finder: Finder) -> Iterator[Violation]:
    """Repeated ids first; if there are any, other uniqueness rules are not checked."""
    if delta.rows is None or delta.effect is Effect.DELETE:
        return
    key = (
        delta.entity_type.key
        if isinstance(delta.entity_type, NodeType) and delta.entity_type.key
        else (KEY,)
    )
    repeated = False
    for row, value in () if delta.made_ids else finder.repeated_ids(delta):
        repeated = True
        duplicate = DuplicateValue(row, (value,), value, value)
        yield _duplicate(delta, key, duplicate, "the rows of one write name each id once")
    if repeated:
        return
    if delta.effect is Effect.APPEND and not delta.new_ids:
        for row, value in finder.existing_ids(delta):
            text = f"{delta.table_key}: there is a row with id '{value}' already"
            hint = "append adds new rows only; use merge to replace"
            details = {"property": ", ".join(key), "value": value}
            yield Violation(KeyConflict, delta.table_key, value, text, row, hint, details)
    for columns in delta.entity_type.unique:
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


def _rank(column: str) -> int:
    return _ENDS.index(column) if column in _ENDS else len(_ENDS)


def _duplicate(
    delta: TableDelta, columns: tuple[str, ...], duplicate: DuplicateValue, hint: str | None = None
) -> Violation:
    # A schema has the columns sorted by name; of an edge, the source is shown before the target.
    pairs = sorted(zip(columns, duplicate.values, strict=True), key=lambda pair: _rank(pair[0]))
    columns = tuple(column for column, _ in pairs)
    values = [shown(value) for _, value in pairs]
    value = values[0] if len(values) == 1 else f"({', '.join(values)})"
    text = (
        f"@unique violation on {delta.entity_type.name}.{named(columns)}: value '{value}' "
        f"held by '{duplicate.first}' and '{duplicate.second}'"
    )
    details = {"property": ", ".join(columns), "value": value}
    return Violation(
        UniqueViolation, delta.table_key, duplicate.second, text, duplicate.row, hint, details
    )


def cardinality_violations(delta: TableDelta, finder: Finder) -> Iterator[Violation]:
    """Sources whose edges change and are then too many or too few.

    Only sources that gain, move or lose an edge are checked, so a node that never had one does
    not violate a minimum, nor does a deleted source.
    """
    entity_type = delta.entity_type
    if not isinstance(entity_type, EdgeType) or delta.effect is Effect.UPDATE:
        return
    low, high = entity_type.cardinality.min, entity_type.cardinality.max
    if not low and high is None:
        return
    for breach in finder.cardinality_breaches(delta, entity_type):
        bound = f"max {high}" if high is not None and breach.count > high else f"min {low}"
        text = (
            f"@card violation on edge {entity_type.name}: source '{breach.source}' has "
            f"{breach.count} edges ({bound})"
        )
        details = {"source": breach.source, "count": breach.count}
        yield Violation(
            CardinalityViolation, delta.table_key, breach.source, text, breach.row, None, details
        )


def added_edge_violations(delta: TableDelta, finder: Finder) -> Iterator[Violation]:
    """Edges of a delta whose source or target is neither committed nor in the same write."""
    entity_type = delta.entity_type
    if not isinstance(entity_type, EdgeType) or delta.rows is None or delta.effect is Effect.UPDATE:
        return
    for end, node in (("src", entity_type.from_type), ("dst", entity_type.to_type)):
        for dangling in finder.missing_ends(delta, end, f"node:{node}"):
            hint = f"add the {node} in the same write, or before it"
            yield _orphan(entity_type, dangling, end, node, hint)


def removed_node_violations(
    catalog: Catalog, delta: TableDelta, finder: Finder
) -> Iterator[Violation]:
    """Committed edges that stay although one of their nodes is removed."""
    node = delta.entity_type
    if not isinstance(node, NodeType) or not (delta.replaces or len(delta.deleted)):
        return
    for edge in catalog.edge_types.values():
        for end, name in (("src", edge.from_type), ("dst", edge.to_type)):
            if name == node.name:
                for dangling in finder.left_behind(delta, edge, end):
                    hint = "delete or replace the edge in the same write"
                    yield _orphan(edge, dangling, end, name, hint)


def _orphan(entity_type: EdgeType, dangling: Dangling, end: str, node: str, hint: str) -> Violation:
    text = f"edge {entity_type.name}: {end} '{dangling.value}' not found in {node}"
    details = {"end": end, "missing": dangling.value}
    return Violation(
        OrphanEdge, entity_type.table_key, dangling.edge_id, text, dangling.row, hint, details
    )
