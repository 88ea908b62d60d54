"""Every kind of writer that the enumeration of failing calls goes through.

The crash tests have most of them; here are those that matter only where a call can fail: every
kind of index, loads by each mode, tags that go, and graphs that are being created.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from omnigraph import Graph
from omnigraph.errors import AlreadyInitialized
from omnigraph.topology import persisted
from omnigraph.write.load import spool
from tests.crash import operations, scenarios
from tests.crash.harness import Harness
from tests.crash.operations import SCHEMA
from tests.crash.scenarios import BOTH, Scenario, in_many_parts, plain, tall, worn

NOTES = f"""{SCHEMA}
node Note {{
  name: String @key
  rank: I32? @index
  text: String? @index
  v: Vector(2)? @index
}}
"""
_WORDS = ("running foxes", "a lazy dog", "foxes and dogs", "nothing at all")


# -- graphs to start from -------------------------------------------------------------------------


def nothing(root: Path, crash: Harness) -> None:
    """A place for a graph."""
    root.mkdir()


def noted(root: Path, crash: Harness) -> None:
    """Notes with numbers, texts and vectors, which no index knows yet."""
    with Graph.init(root, NOTES, durability="os") as graph:
        graph.load(_notes("a"))
        graph.append(operations.rows("Person", "Ada", "Bob"))


def indexed(root: Path, crash: Harness) -> None:
    """The same with indexes, and rows that came after them."""
    noted(root, crash)
    with Graph.open(root, durability="os") as graph:
        graph.indexes.ensure()
        graph.load(_notes("b"))
        graph.mutate('query gone() { delete Note where name = "a1" }')


def tagged(root: Path, crash: Harness) -> None:
    plain(root, crash)
    with Graph.open(root, durability="os") as graph:
        graph.tags.create("v1")


def _notes(prefix: str) -> list[dict[str, object]]:
    return [
        {
            "type": "Note",
            "data": {"name": f"{prefix}{n}", "rank": n, "text": words, "v": [float(n), 1.0]},
        }
        for n, words in enumerate(_WORDS)
    ]


# -- operations -----------------------------------------------------------------------------------


def init(root: Path) -> Iterator[None]:
    """Create a graph, by force where an attempt before has left something."""
    yield
    try:
        Graph.init(root, SCHEMA)
    except AlreadyInitialized:
        Graph.init(root, SCHEMA, force=True)


def append_load(root: Path) -> Iterator[None]:
    graph = Graph.open(root, actor="ana")
    yield
    graph.load([{"type": "Person", "data": {"name": "Grace"}}], mode="append")


def overwrite_load(root: Path) -> Iterator[None]:
    graph = Graph.open(root, actor="ana")
    yield
    people = [{"type": "Person", "data": {"name": name}} for name in ("Ada", "Grace")]
    edge = {"edge": "Knows", "from": "Grace", "to": "Ada", "data": {"id": "k9"}}
    graph.load([*people, edge], mode="overwrite")


def update(root: Path) -> Iterator[None]:
    graph = Graph.open(root, actor="ana")
    yield
    graph.mutate('query older() { update Person set { age: 99 } where name = "Ada" }')


def change_notes(root: Path) -> Iterator[None]:
    """Rows that indexes know are changed and deleted."""
    graph = Graph.open(root, actor="ana")
    yield
    graph.mutate(
        "query change() {\n"
        '  update Note set { text: "a fox again" } where name = "a2"\n'
        '  insert Note { name: "c", rank: 3, text: "foxes" }\n'
        "}"
    )


def rebuild_indexes(root: Path) -> Iterator[None]:
    graph = Graph.open(root, actor="ana")
    yield
    graph.indexes.rebuild("Note")


def drop_property(root: Path) -> Iterator[None]:
    """A property goes; earlier versions keep it."""
    graph = Graph.open(root, actor="ana")
    yield
    graph.schema.apply(SCHEMA)


def spilled_load(root: Path) -> Iterator[None]:
    """A load whose rows do not fit in memory; its temporary files lie where calls fail."""
    spool._IN_MEMORY = 0
    (root / "tmp").mkdir(exist_ok=True)
    tempfile.tempdir = str(root / "tmp")
    graph = Graph.open(root, actor="ana")
    yield
    graph.load([{"type": "Person", "data": {"name": n}} for n in ("Ada", "Grace", "Hal")])


def direct_load(root: Path) -> Iterator[None]:
    """A load whose rows are written while it is read."""
    spool._DIRECT = 0
    graph = Graph.open(root, actor="ana")
    yield
    graph.load([{"type": "Person", "data": {"name": n}} for n in ("Grace", "Hal")], "append")


def store_topology(root: Path) -> Iterator[None]:
    """A query that keeps what it computed for later processes."""
    persisted._WORTH_IT = 0
    graph = Graph.open(root, actor="ana")
    yield
    actual = graph.query("query q() { match { $p: Person  $p knows $f } return { $f.name } }")
    assert actual.rows()


def delete_tag(root: Path) -> Iterator[None]:
    graph = Graph.open(root)
    yield
    graph.tags.delete("v1")


# -- the scenarios --------------------------------------------------------------------------------

_PEOPLE = ("Person",)
_OWN = (
    Scenario("init", init, nothing, ("Person", "Company")),
    Scenario("load by append", append_load, plain, _PEOPLE),
    Scenario("load by overwrite", overwrite_load, plain, BOTH),
    Scenario("update", update, plain, _PEOPLE),
    Scenario("change indexed rows", change_notes, indexed, _PEOPLE),
    Scenario("build every kind of index", operations.ensure_indexes, noted, _PEOPLE),
    Scenario("rebuild every kind of index", rebuild_indexes, indexed, _PEOPLE),
    Scenario("optimize every kind of index", operations.optimize, indexed, _PEOPLE),
    Scenario("optimize the manifest", operations.optimize, in_many_parts, _PEOPLE),
    Scenario("append beside indexes", operations.append_several, worn, _PEOPLE),
    Scenario("apply a drop", drop_property, tall, BOTH),
    Scenario("delete a tag", delete_tag, tagged, _PEOPLE),
    Scenario("load that spills", spilled_load, plain, _PEOPLE),
    Scenario("load that writes while it reads", direct_load, plain, _PEOPLE),
    Scenario("store a topology", store_topology, plain, BOTH),
)

SCENARIOS = (*_OWN, *scenarios.SCENARIOS)
