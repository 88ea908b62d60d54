"""The validator: all rules on the deltas of one write.

Rules run in a fixed order: values, uniqueness, endpoints, cardinality; inside each, tables by
their keys. It works on columns, and row by row only to report violations. It reads committed rows
only where a delta requires it.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice

from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.lang.schema.catalog import Catalog, EdgeType, EntityType
from omnigraph.records import dataclass
from omnigraph.storage.tables.store import KEY
from omnigraph.write.delta import Deltas
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
    ) -> None:
        """``group`` is the state of a group that the write is a member of."""
        self._store = store
        self._catalog = catalog
        self._deltas = {key: deltas[key] for key in sorted(deltas)}
        self._keys = keys or InMemoryKeys()
        self._group = group

    def judge(self, snapshot: Snapshot, limit: int | None = 1) -> Judgement:
        """The first violations, or all of them when there is no limit."""
        committed = Committed(self._store, snapshot, self._deltas, self._group)
        finder = self._keys.finder(committed, self._deltas)
        violations = tuple(islice(self._violations(finder, limit), limit))
        return Judgement(violations, committed.consulted)

    def check(self, snapshot: Snapshot) -> dict[str, int]:
        """Raise the first violation, or return the consulted versions for the publish to assert."""
        judgement = self.judge(snapshot)
        if judgement.violations:
            raise judgement.violations[0].error()
        return judgement.consulted

    def _violations(self, finder: Finder, limit: int | None) -> Iterator[Violation]:
        rules = list(self._rules(finder))
        if not any(
            delta.rows is not None and delta.rows.is_large for delta in self._deltas.values()
        ):
            yield from chain.from_iterable(rules)
            return
        # Arrow and Lance release the interpreter lock, so rules run in parallel.
        with ThreadPoolExecutor(finder.at_once) as pool:
            for violations in pool.map(lambda rule: list(islice(rule, limit)), rules):
                yield from violations

    def _rules(self, finder: Finder) -> Iterator[Iterator[Violation]]:
        """The violations of every rule, in order."""
        deltas = self._deltas.values()
        yield from (value_violations(delta) for delta in deltas)
        yield from (unique_violations(delta, finder) for delta in deltas)
        edges = [delta for delta in deltas if isinstance(delta.entity_type, EdgeType)]
        for delta in deltas:
            if isinstance(delta.entity_type, EdgeType):
                yield added_edge_violations(delta, finder)
            elif delta.replaces or len(delta.deleted):
                yield removed_node_violations(self._catalog, delta, finder)
        yield from (cardinality_violations(delta, finder) for delta in edges)


def key_columns(entity_type: EntityType) -> tuple[str, ...]:
    """The columns that rules about sets of rows need."""
    ends = ("src", "dst") if isinstance(entity_type, EdgeType) else ()
    return tuple(dict.fromkeys((KEY, *ends, *chain.from_iterable(entity_type.unique))))
