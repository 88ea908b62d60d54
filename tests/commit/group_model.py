"""Random small writes, made in groups and made alone: what can be seen of them is the same.

Each write has an actor of its own, so that the history of a graph says which writes it has. The
writes of a history are made again one by one, in its order, on another graph.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from omnigraph import Graph, Receipt
from omnigraph.commit.audit import RecoveryKind
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.rows import CommitRow
from omnigraph.errors import MergeConflicts, OmniGraphError, OutcomePending
from tests.commit.together import SCHEMA, rows_of, together

POINTS = (
    Failpoint.WRITE_AFTER_LEASES,
    Failpoint.WRITE_AFTER_SIDECAR,
    Failpoint.WRITE_BETWEEN_TABLES,
    Failpoint.WRITE_AFTER_TABLES,
    Failpoint.PUBLISH_BEFORE,
    Failpoint.PUBLISH_AFTER,
    Failpoint.WRITE_AFTER_PUBLISH,
    Failpoint.WRITE_AFTER_SIDECAR_DELETE,
)
"""Every boundary of a write that a test may end it at."""

_NAMES = [f"p{number}" for number in range(12)]
_INSERT = """
query add($n: String, $a: I32, $e: String?) { insert Person { name: $n, age: $a, email: $e } }
"""
_BOTH = """
query add($n: String, $a: I32) {
  insert Person { name: $n, age: $a }
  insert Company { name: $n }
}
"""


@dataclass(frozen=True)
class SmallWrite:
    """One write that may be a member of a group; it can be made again on another graph."""

    actor: str
    kind: str
    records: tuple[Mapping[str, Any], ...]
    key: str | None = None

    def run(self, graph: Graph, branch: str = "main") -> Receipt:
        how: dict[str, Any] = {"actor": self.actor, "branch": branch}
        keyed = {**how, "idempotency_key": self.key}
        match self.kind:
            case "insert":
                return graph.mutate(_INSERT, params=dict(self.records[0]), **keyed)
            case "insert both":
                return graph.mutate(_BOTH, params=dict(self.records[0]), **keyed)
            case "rows":
                names = [record["name"] for record in self.records]
                return graph.append({"Person": pa.table({"name": names})}, **how)
            case mode:
                return graph.load(list(self.records), mode, **keyed)


def random_write(chance: random.Random, number: int) -> SmallWrite:
    """A write that is valid, or is refused in one of several ways, depending on what is there."""
    actor, name = f"w{number}", chance.choice(_NAMES)
    key = f"key {number}" if chance.random() < 0.3 else None
    email = chance.choice([None, None, f"{chance.choice(_NAMES)}@x"])
    kind = chance.choice(["insert", "insert both", "rows", "merge", "merge", "append", "edge"])
    data = {"n": name, "a": number}
    if kind == "insert":
        return SmallWrite(actor, kind, ({**data, "e": email},), key)
    if kind == "insert both":
        return SmallWrite(actor, kind, (data,), key)
    if kind == "rows":
        return SmallWrite(actor, kind, tuple({"name": f"{name}-{number}-{n}"} for n in range(2)))
    if kind == "edge":
        return SmallWrite(actor, "merge", (_edge(chance, number),), key)
    people = chance.sample(_NAMES, chance.randrange(1, 3))
    records = [_person(own, number, email if own == name else None) for own in people]
    if chance.random() < 0.3:
        records.append(
            {"edge": "Knows", "from": people[0], "to": name, "data": {"id": f"k{number}"}}
        )
    return SmallWrite(actor, kind, tuple(records), key)


def _person(name: str, age: int, email: str | None) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, "age": age, "email": email}}


def _edge(chance: random.Random, number: int) -> Mapping[str, Any]:
    one, other = chance.choice(_NAMES), chance.choice(_NAMES)
    name = chance.choice(["Knows", "WorksAt"])
    # Now and then the edge of an earlier write is moved.
    edge_id = f"e{number if chance.random() < 0.7 else chance.randrange(number + 1)}"
    return {"edge": name, "from": one, "to": other, "data": {"id": edge_id}}


def random_rounds(seed: int, rounds: int) -> list[list[SmallWrite]]:
    """Writes that are made at the same time, round by round."""
    chance = random.Random(seed)
    actual, number = [], 0
    for _ in range(rounds):
        size = chance.randrange(2, 7)
        actual.append([random_write(chance, number + n) for n in range(size)])
        number += size
    return actual


def new_graph(location: Path) -> Graph:
    graph = Graph.init(location, SCHEMA, durability="os")
    graph.append({"Person": pa.table({"name": _NAMES[:3]}), "Company": pa.table({"name": ["p0"]})})
    return graph


def run_round(graph: Graph, writes: Sequence[SmallWrite]) -> list[Any]:
    return together(graph, *(lambda write=write: write.run(graph) for write in writes))


# -- the same writes alone ------------------------------------------------------------------------


def history(graph: Graph) -> list[CommitRow]:
    """The commits of the writes under their own actors, without init and the first rows."""
    recovered = recovered_actors(graph)
    rows = [replace(row, actor=recovered.get(row.commit_id, row.actor)) for row in rows_of(graph)]
    return [row for row in rows if row.actor is not None and row.actor.startswith("w")]


def recovered_actors(graph: Graph) -> dict[str, str]:
    """The actors of writes that died by themselves and were completed by a recovery's commit."""
    return {
        row.graph_commit_id: row.recovery_for_actor
        for row in graph._handle.store.audit.rows()
        if row.recovery_kind is RecoveryKind.ROLLED_FORWARD and row.recovery_for_actor is not None
    }


def made_alone(location: Path, graph: Graph, rounds: Sequence[Sequence[SmallWrite]]) -> Graph:
    """Another graph, on which the writes of a history were made one by one."""
    writes = {write.actor: write for item in rounds for write in item}
    alone = new_graph(location)
    for row in history(graph):
        writes[row.actor or ""].run(alone)
    return alone


def check_outcomes(
    graph: Graph, alone: Graph, rounds: Sequence[Sequence[SmallWrite]], outcomes: Sequence[Any]
) -> None:
    """Receipts say what was done; who was refused has left nothing."""
    by_actor = {row.actor: row.commit_id for row in history(graph)}
    assert len(by_actor) == len(history(graph)), "a write was made twice"
    receipts = {row.actor: row for row in history(alone)}
    for write, outcome in zip((w for item in rounds for w in item), outcomes, strict=True):
        commit = by_actor.get(write.actor)
        if isinstance(outcome, OutcomePending):
            if commit is not None:
                # A recovery completes a write that was left alone in its group by another commit.
                assert graph.commit(outcome.details["commit_id"]).commit_id == commit
        elif isinstance(outcome, OmniGraphError):
            assert commit is None, (write, outcome)
        elif isinstance(outcome, Receipt):
            assert commit == outcome.commit_id, write
            assert outcome.actor == write.actor
            if write.key is not None:
                assert write.run(graph) == outcome
                again = write.run(alone)
                assert (again.tables, again.met) == (outcome.tables, outcome.met)
                assert receipts[write.actor].commit_id == again.commit_id


def check_same(graph: Graph, alone: Graph, blamed: int | None = None) -> None:
    """Rows, lineage, feed, changes of each commit and blame are those of the same writes alone.

    ``blamed`` is the number of rows of each type whose blame is compared.
    """
    assert rows_by_type(graph) == rows_by_type(alone)
    rows = rows_of(graph)
    assert [row.parent for row in rows[1:]] == [row.commit_id for row in rows[:-1]]
    assert [row.order for row in rows] == sorted(row.order for row in rows)
    assert [row.actor for row in history(graph)] == [row.actor for row in history(alone)]
    assert feed(graph) == feed(alone)
    for one, other in zip(history(graph), history(alone), strict=True):
        assert changes_of(graph, one) == changes_of(alone, other), one.actor
    for name, entities in rows_by_type(graph).items():
        for row in entities[:blamed]:
            ours, theirs = (blamed_actor(its, name, row["id"]) for its in (graph, alone))
            assert ours == theirs, (name, row["id"])


def check_reverts(graph: Graph, alone: Graph, chance: random.Random, count: int) -> None:
    """A commit of a group is reverted as it would be alone, or refused as alone."""
    pairs = list(zip(history(graph), history(alone), strict=True))
    for one, other in chance.sample(pairs, min(count, len(pairs))):
        reports = []
        for its, row in ((graph, one), (alone, other)):
            try:
                report = its.revert(row.commit_id)
                reports.append((report.outcome, dict(report.tables)))
            except MergeConflicts as error:
                reports.append((type(error), len(error.details.get("conflicts", ()))))
        assert reports[0] == reports[1], one.actor
        assert rows_by_type(graph) == rows_by_type(alone)


def rows_by_type(graph: Graph) -> dict[str, list[dict[str, Any]]]:
    snapshot = graph.snapshot()
    return {
        name: sorted(snapshot.read(name).to_pylist(), key=lambda row: str(row["id"]))
        for name in ("Person", "Company", "Knows", "WorksAt")
    }


def feed(graph: Graph) -> list[Any]:
    page, recovered = graph.changes.poll(limit=100_000), recovered_actors(graph)
    return [
        (
            recovered.get(block.commit.commit_id, block.commit.actor),
            [change.to_json() for change in block.changes],
        )
        for block in page.blocks
        if block.commit.actor is not None and block.changes
    ]


def blamed_actor(graph: Graph, type_name: str, row_id: str) -> str | None:
    commit = graph.changes.blame(type_name, row_id).commit
    return recovered_actors(graph).get(commit.commit_id, commit.actor)


def changes_of(graph: Graph, row: CommitRow) -> list[Any]:
    return [change.to_json() for change in graph.changes.of_commit(row.commit_id).changes]
