"""Checks whether existing rows satisfy the rules of a new schema.

Only rules that a plan makes stricter are checked, and only in the affected columns, with their new
values. The rules are the same as for every write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import UniqueViolation, ValueViolation
from omnigraph.evolve.changes import SchemaChanges, TypeChange, new_values
from omnigraph.lang.schema.ast import (
    Cardinality,
    CheckConstraint,
    Constraint,
    KeyConstraint,
    RangeConstraint,
    UniqueConstraint,
)
from omnigraph.lang.schema.catalog import EdgeType, EntityType, NodeType
from omnigraph.lang.schema.steps import (
    AddConstraint,
    ChangeCardinality,
    ChangeNullability,
    NarrowEnum,
    RenameProperty,
    WidenProperty,
)
from omnigraph.lang.types import Scalar
from omnigraph.lang.values.arrow import to_timestamp
from omnigraph.lang.values.spelling import key_id
from omnigraph.records import dataclass
from omnigraph.storage.tables.store import KEY
from omnigraph.write.delta import Effect, TableDelta, TableRows
from omnigraph.write.validate.finder import Committed, InMemoryFinder
from omnigraph.write.validate.rules import (
    Violation,
    cardinality_violations,
    named,
    table_violations,
    unique_violations,
    value_columns,
)

MOST = 100
"""The maximum number of reported violations."""


def violations_of(store: GraphStore, snapshot: Snapshot, changes: SchemaChanges) -> list[Violation]:
    """The first violations, in the order of the tables: at most ``MOST`` + 1."""
    violations = (
        violation
        for change in changes.changed
        for violation in _TypeCheck(store, snapshot, change).violations()
    )
    return list(islice(violations, MOST + 1))


class _TypeCheck:
    """Checks the rows of one type."""

    def __init__(self, store: GraphStore, snapshot: Snapshot, change: TypeChange) -> None:
        self._store = store
        self._snapshot = snapshot
        self._change = change
        self._rules = _rules(change)

    def violations(self) -> Iterator[Violation]:
        rules = self._rules
        pin = self._snapshot.pin(self._change.old.table_key)
        if rules.is_empty or pin is None or not pin.row_count:
            return
        values = tuple(
            dict.fromkeys((*rules.required, *rules.key, *value_columns(rules.entity_type)))
        )
        if values:
            for rows in self._batches(values):
                yield from _nulls(rules, rows)
                yield from table_violations(rules.entity_type, rows)
                yield from _other_ids(rules, rows)
        if rules.entity_type.unique or rules.counts:
            yield from self._sets()

    def _sets(self) -> Iterator[Violation]:
        entity_type = self._rules.entity_type
        ends = ("src", "dst") if isinstance(entity_type, EdgeType) else ()
        columns = dict.fromkeys((*ends, *(name for group in entity_type.unique for name in group)))
        rows = pa.concat_tables(self._batches(tuple(columns)))
        delta = TableDelta(entity_type, Effect.OVERWRITE, TableRows(rows), made_ids=True)
        deltas = {entity_type.table_key: delta}
        finder = InMemoryFinder(Committed(self._store, self._snapshot, deltas), deltas)
        yield from unique_violations(delta, finder)
        if self._rules.counts:
            yield from cardinality_violations(delta, finder)

    def _batches(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Columns of all rows with their new values, and their ids."""
        pin = self._snapshot.pin(self._change.old.table_key)
        assert pin is not None
        wanted = {KEY, *columns}
        plans = [plan for plan in self._change.columns if plan.field.name in wanted]
        reads = list(dict.fromkeys((KEY, *(plan.source for plan in plans if plan.source))))
        for batch in self._store.table(pin).scan(reads):
            yield pa.table({plan.field.name: new_values(plan, batch) for plan in plans})


@dataclass(frozen=True, slots=True)
class _Rules:
    """A type with only the rules that have to be checked."""

    entity_type: EntityType
    required: tuple[str, ...]
    key: tuple[str, ...]
    counts: bool

    @property
    def is_empty(self) -> bool:
        sets = self.entity_type.unique or self.counts
        return not (sets or self.required or self.key or value_columns(self.entity_type))


def _rules(change: TypeChange) -> _Rules:
    """The rules that a plan adds, and every rule about values that it fills in."""
    steps = change.steps
    added = [step.constraint for step in steps if isinstance(step, AddConstraint)]
    # A bound of an F32 is rounded to an F32; as an F64 it is exact.
    floats = {
        step.property_name
        for step in steps
        if isinstance(step, WidenProperty) and step.old.scalar is Scalar.F32
    }
    rules = [
        rule
        for rule in _constraints(change.new)
        if rule in added
        or not (change.filled | floats).isdisjoint(rule.columns)
        or (isinstance(rule, KeyConstraint) and _is_reordered(change))
    ]
    enums = {step.property_name for step in steps if isinstance(step, NarrowEnum)} | change.filled
    required = tuple(
        step.property_name
        for step in steps
        if isinstance(step, ChangeNullability)
        and not step.nullable
        and step.property_name not in change.filled
    )
    key = next((rule.columns for rule in rules if isinstance(rule, KeyConstraint)), ())
    properties = {name: p for name, p in change.new.properties.items() if name in enums}
    unique = tuple(rule.columns for rule in rules if isinstance(rule, UniqueConstraint))
    entity_type: EntityType = replace(
        change.new, properties=MappingProxyType(properties), unique=unique
    )
    if isinstance(entity_type, NodeType):
        entity_type = replace(
            entity_type,
            ranges=tuple(rule for rule in rules if isinstance(rule, RangeConstraint)),
            checks=tuple(rule for rule in rules if isinstance(rule, CheckConstraint)),
        )
    counts = any(isinstance(step, ChangeCardinality) for step in steps)
    is_bounded = isinstance(change.new, EdgeType) and change.new.cardinality != Cardinality()
    return _Rules(entity_type, required, key, counts and is_bounded)


def _is_reordered(change: TypeChange) -> bool:
    """Whether a rename changes the order of key columns, which determines ids."""
    old, new = change.old, change.new
    if not isinstance(old, NodeType) or not isinstance(new, NodeType):
        return False
    renamed = {step.old: step.new for step in change.steps if isinstance(step, RenameProperty)}
    return tuple(renamed.get(name, name) for name in old.key) != new.key


def _constraints(entity_type: EntityType) -> Iterable[Constraint]:
    yield from (UniqueConstraint(columns) for columns in entity_type.unique)
    if isinstance(entity_type, NodeType):
        yield from entity_type.ranges
        yield from entity_type.checks
        if entity_type.key:
            yield KeyConstraint(entity_type.key)


def _nulls(rules: _Rules, rows: pa.Table) -> Iterator[Violation]:
    for name in rules.required:
        empty = pc.is_null(rows[name])
        if not pc.any(empty).as_py():
            continue
        for row_id in rows[KEY].filter(empty).to_pylist():
            yield Violation(
                ValueViolation,
                rules.entity_type.table_key,
                row_id,
                f"{rules.entity_type.name}.{name} of '{row_id}' has no value",
                details={"property": name},
            )


def _other_ids(rules: _Rules, rows: pa.Table) -> Iterator[Violation]:
    """Rows whose id does not match their key: edges refer to rows by id."""
    if not rules.key:
        return
    entity_type = rules.entity_type
    columns = [to_timestamp(rows[name]) for name in rules.key]
    for row_id, *parts in zip(
        rows[KEY].to_pylist(), *(column.to_pylist() for column in columns), strict=True
    ):
        expected = None if None in parts else key_id(parts)
        if row_id != expected:
            shown = named(rules.key)
            yield Violation(
                UniqueViolation,
                entity_type.table_key,
                row_id,
                f"@key({', '.join(rules.key)}) on {entity_type.name}: the id '{row_id}' does not "
                f"match its key, '{expected}'",
                details={"property": shown, "value": expected},
            )
