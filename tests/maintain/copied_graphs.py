"""A small graph with a history, and everything that can be read of one, to compare two."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from omnigraph import Graph

SCHEMA = """
node Person { name: String @key  age: I32? @index  note: String? @index  photo: Blob? }
edge Knows: Person -> Person
"""


def people(*names, age=1):
    return {
        "Person": pa.table(
            {
                "name": list(names),
                "age": pa.array([age] * len(names), pa.int32()),
                "photo": pa.array([b"x" * 70_000] * len(names), pa.large_binary()),
            }
        )
    }


def knows(a, b):
    return [{"edge": "Knows", "from": a, "to": b, "data": {}}]


def filled(location: str | Path, **options) -> Graph:
    """Branches with tables of their own, a branch of a branch, deleted rows, a tag, a merge."""
    graph = Graph.init(location, SCHEMA, **{"durability": "os", **options})
    graph.append(people("Ada", "Grace", "Alan"))
    graph.load(knows("Ada", "Grace"))
    graph.tags.create("first", commit=graph.commits()[0].commit_id)
    graph.branches.create("dev")
    graph.append(people("Barbara"), branch="dev")
    graph.mutate('query d() { delete Person where name = "Alan" }', branch="dev")
    graph.branches.create("team/x", from_branch="dev")
    graph.load(knows("Barbara", "Ada"), branch="team/x")
    graph.append(people("Edsger", age=7), branch="team/x")
    graph.append(people("Tony"))
    graph.branches.create("done")
    graph.append(people("Leslie"), branch="done")
    graph.merge("done")
    graph.branches.create("same")
    return graph


def story(graph: Graph) -> dict[str, object]:
    """What every branch, commit and tag shows."""
    reported: dict[str, object] = {"tags": {t.name: t.commit_id for t in graph.tags.list()}}
    for branch in graph.branches.list():
        reported[branch] = list(graph.snapshot(branch).export())
        reported[f"{branch} photos"] = [
            graph.snapshot(branch).read_blob("Person", name, "photo", 0, 3)
            for name in sorted(graph.snapshot(branch).read("Person", ["name"])["name"].to_pylist())
        ]
        commits = graph.commits(branch)
        reported[f"{branch} commits"] = [(c.commit_id, c.actor, c.parent) for c in commits]
        for commit in commits:
            if commit.commit_id not in reported:
                reported[commit.commit_id] = list(graph.snapshot(commit=commit.commit_id).export())
    return reported
