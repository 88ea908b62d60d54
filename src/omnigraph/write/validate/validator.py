"""The validator: all rules on the deltas of one write.

Rules run in a fixed order: values, uniqueness, endpoints, cardinality; inside each, tables by
their keys. It works on columns, and row by row only to report violations. It reads committed rows
only where a delta requires it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice

from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.lang.schema.catalog import Catalog, EdgeType, EntityType
from omnigraph.records import dataclass
from omnigraph.storage.tables.store import KEY
from omnigraph.write.delta import Deltas, TableDelta
from omnigraph.write.row_security import RowSecurity, refuse_hidden_images, refuse_hidden_rows
from omnigraph.write.validate.finder import Committed, Finder, InMemoryKeys, Keys
from omnigraph.write.validate.group_state import GroupState
from omnigraph.write.validate.rules import (
    Violation,
    added_edge_violations,
    cardinality_violations,
    removed_node_violations,
    unique_violations,
    value_violations,
)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The violations, and the versions of tables that were read but are not written."""

    violations: tuple[Violation, ...]
    consulted: dict[str, int]


class Validator:
    """Validates the deltas of one write against a snapshot."""

    def __init__(
        self,
        store: GraphStore,
        catalog: Catalog,
        deltas: Deltas,
        keys: Keys | None = None,
        group: GroupState | None = None,
        security: RowSecurity | None = None,
    ) -> None:
        """``group`` is the state of a group that the write is a member of.

        ``security`` is given if the actor of the write may not see all rows.
        """
        self._store = store
        self._catalog = catalog
        self._deltas = {key: deltas[key] for key in sorted(deltas)}
        self._keys = keys or InMemoryKeys()
        self._group = group
        self._security = security

    def judge(self, snapshot: Snapshot, limit: int | None = 1) -> Judgement:
        """The first violations, or all of them when there is no limit."""
        committed = Committed(self._store, snapshot, self._deltas, self._group, self._security)
        finder = self._keys.finder(committed, self._deltas)
        if self._security is None:
            rules = chain(
                self._value_rules(),
                self._unique_rules(finder),
                self._added_edge_rules(finder),
                self._other_rules(finder),
            )
            violations = self._violations(rules, finder, limit)
        else:
            violations = self._visible_violations(self._security, committed, finder, limit)
        return Judgement(violations, committed.consulted)

    def _visible_violations(
        self, security: RowSecurity, committed: Committed, finder: Finder, limit: int | None
    ) -> tuple[Violation, ...]:
        """The violations that an actor may know; refuses the write if it depends on hidden rows.

        An edge to a hidden node is one to a missing node, whatever else it would collide with.
        """
        assert committed.visible is not None
        refuse_hidden_images(security, self._deltas)
        rules = chain(self._value_rules(), self._added_edge_rules(finder))
        violations = self._violations(rules, finder, limit)
        if violations:
            return violations
        refuse_hidden_rows(security, self._catalog, self._deltas, committed.visible)
        rules = chain(self._unique_rules(finder), self._other_rules(finder))
        return self._violations(rules, finder, limit)

    def check(self, snapshot: Snapshot) -> dict[str, int]:
        """Raise the first violation, or return the consulted versions for the publish to assert."""
        judgement = self.judge(snapshot)
        if judgement.violations:
            raise judgement.violations[0].error()
        return judgement.consulted

    def _violations(
        self, rules: Iterable[Iterator[Violation]], finder: Finder, limit: int | None
    ) -> tuple[Violation, ...]:
        """The first violations of some rules, in their order."""
        if not any(
            delta.rows is not None and delta.rows.is_large for delta in self._deltas.values()
        ):
            return tuple(islice(chain.from_iterable(rules), limit))
        # Arrow and Lance release the interpreter lock, so rules run in parallel.
        with ThreadPoolExecutor(finder.at_once) as pool:
            matches = pool.map(lambda rule: list(islice(rule, limit)), rules)
            return tuple(islice(chain.from_iterable(matches), limit))

    # -- rules, in order -----------------------------------------------------------------

    def _value_rules(self) -> Iterator[Iterator[Violation]]:
        return (value_violations(delta) for delta in self._deltas.values())

    def _unique_rules(self, finder: Finder) -> Iterator[Iterator[Violation]]:
        return (unique_violations(delta, finder) for delta in self._deltas.values())

    def _added_edge_rules(self, finder: Finder) -> Iterator[Iterator[Violation]]:
        return (added_edge_violations(delta, finder) for delta in self._edges)

    def _other_rules(self, finder: Finder) -> Iterator[Iterator[Violation]]:
        for delta in self._deltas.values():
            if delta.replaces or len(delta.deleted):
                yield removed_node_violations(self._catalog, delta, finder)
        yield from (cardinality_violations(delta, finder) for delta in self._edges)

    @property
    def _edges(self) -> Iterator[TableDelta]:
        return (delta for delta in self._deltas.values() if isinstance(delta.entity_type, EdgeType))


def key_columns(entity_type: EntityType) -> tuple[str, ...]:
    """The columns that rules about sets of rows need."""
    ends = ("src", "dst") if isinstance(entity_type, EdgeType) else ()
    return tuple(dict.fromkeys((KEY, *ends, *chain.from_iterable(entity_type.unique))))
