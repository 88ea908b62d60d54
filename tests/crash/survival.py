"""What must hold when a process was killed: one checker for every operation and every place.

The crashed graph shows, read-only and after a read-write open, the whole operation or nothing of
it; nothing is left that would be in anybody's way; and writing goes on.
"""

from __future__ import annotations

import fcntl
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omnigraph import Graph
from omnigraph.commit.audit import RecoveryKind
from tests.crash import operations


@dataclass(frozen=True, slots=True)
class State:
    """All that users can see of a graph: by branch its rows and indexes, tags, and the schema."""

    rows: Mapping[str, Mapping[str, Sequence[tuple[Any, ...]]]]
    indexes: Mapping[str, Sequence[str]]
    tags: Sequence[str]
    schema: str

    @classmethod
    def of(cls, graph: Graph) -> State:
        branches = graph.branches.list()
        return cls(
            {branch: _rows(graph, branch) for branch in branches},
            {branch: _indexes(graph, branch) for branch in branches},
            [tag.name for tag in graph.tags.list()],
            graph.catalog.schema_hash,
        )


def _rows(graph: Graph, branch: str) -> dict[str, list[tuple[Any, ...]]]:
    snapshot = graph.snapshot(branch)
    matches = {}
    for name in (*graph.catalog.node_types, *graph.catalog.edge_types):
        table = snapshot.read(name)
        assert table.num_rows == snapshot.count(name), f"{name} on {branch}"
        matches[name] = sorted(tuple(map(str, row.values())) for row in table.to_pylist())
    return matches


def _indexes(graph: Graph, branch: str) -> list[str]:
    report = graph.indexes.status(branch)
    return [f"{i.table_key}.{i.column} {i.kind}" for i in report.indexes if not i.is_pending]


@dataclass(frozen=True, slots=True)
class Survival:
    """The states that a crashed operation may leave, and where writing must go on."""

    before: State
    after: State
    touched: tuple[str, ...]
    recovers: bool = False
    """The operation is a recovery itself: opening has no choice but to finish it."""

    def check(self, root: Path) -> State:
        """Look at a crashed graph, open it, go on writing; gives what the crash had left."""
        actual = files_of(root)
        with Graph.open(root, "r") as graph:
            left = State.of(graph)
        assert files_of(root) == actual, "a read-only open changed something"
        assert left in (self.before, self.after)
        with Graph.open(root) as graph:
            healed = State.of(graph)
            if self.recovers or left == self.after:
                assert healed == self.after
            assert healed in (self.before, self.after)
            for actual in graph.recovered:
                forward = actual.kind is RecoveryKind.ROLLED_FORWARD
                assert healed == (self.after if forward else self.before), actual
            check_tidy(graph, root)
            self.go_on(graph)
            grown = State.of(graph)
            check_tidy(graph, root)
        for branch, tables in healed.rows.items():
            for name, rows in tables.items():
                new = set(grown.rows[branch][name]) - set(rows)
                assert set(rows) <= set(grown.rows[branch][name])
                assert len(new) == (name in self.touched), f"{name} on {branch}"
        return left

    def go_on(self, graph: Graph) -> None:
        """Write to the tables of the operation, on every branch that there was or is to be."""
        for branch in {**self.before.rows, **self.after.rows}:
            if branch not in graph.branches.list():
                graph.branches.create(branch)
            rows = {}
            for name in set(self.touched) & set(self._types(graph)):
                rows |= operations.rows(name, f"next on {branch}")
            graph.append(rows, branch=branch)

    @staticmethod
    def _types(graph: Graph) -> list[str]:
        return [*graph.catalog.node_types, *graph.catalog.edge_types]


def files_of(root: Path) -> dict[str, tuple[int, int]]:
    """Every file with its size and time."""
    return {
        str(path.relative_to(root)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.is_file()
    }


# -- nothing in the way ---------------------------------------------------------------------------


def check_tidy(graph: Graph, root: Path) -> None:
    """No sidecar, no lease that is held, nothing audited twice, every head pinned, one chain."""
    left = [path.name for path in (root / "__recovery").glob("*.json")]
    left += [path.name for path in root.glob("*.staging")]
    assert left == []
    for lease in (root / "__recovery").glob("*.lease"):
        with lease.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    audited = Counter(row.operation_id for row in graph._handle.store.audit.rows())
    assert [operation for operation, count in audited.items() if count > 1] == []
    for branch in graph.branches.list():
        check_heads(graph, branch)
        check_chain(graph, branch)


def check_heads(graph: Graph, branch: str) -> None:
    """No table is ahead of what the graph shows, where the branch has a copy of its own."""
    snapshot = graph._handle.store.manifest(None if branch == "main" else branch).current()
    for key, pin in snapshot.pins.items():
        if pin.branch == snapshot.branch:
            head = graph._handle.store.tables.head(pin.ref)
            assert head == pin.version, f"{key} on {branch}: head {head}, pin {pin.version}"


def check_chain(graph: Graph, branch: str) -> None:
    """Every commit but the first follows the one before it."""
    commits = graph.commits(branch)
    parents = [commit.commit_id for commit in commits[1:]]
    assert [commit.parent for commit in commits] == [*parents, None]
