"""A small graph of people with two stored queries, and its tools."""

from __future__ import annotations

import pytest

from omnigraph import Graph
from omnigraph.api.stored_queries import StoredQueries
from omnigraph.mcp.context import AgentContext
from omnigraph.mcp.settings import AgentSettings, EverythingAllowed

SCHEMA = """
node Person { name: String @key  age: I64?  bio: String? @index  photo: Blob? }
node City { name: String @key }
edge Knows: Person -> Person { since: Date? }
edge LivesIn: Person -> City
"""
ROWS = [
    {"type": "Person", "data": {"name": "Ada", "age": 36, "bio": "wrote the first program"}},
    {"type": "Person", "data": {"name": "Grace", "age": 9007199254740993, "bio": "a compiler"}},
    {"type": "City", "data": {"name": "London"}},
    {"edge": "Knows", "from": "Ada", "to": "Grace", "data": {"since": "1950-01-02"}},
    {"edge": "LivesIn", "from": "Ada", "to": "London", "data": {}},
]
QUERIES = {
    "older.gq": """
query older($min: I64)
    @description("People of at least an age")
    @instruction("Pass the age in years.")
{ match { $p: Person  $p.age >= $min } return { $p.name, $p.age } order { $p.name } }
query add_person($name: String, $branch: String?) { insert Person { name: $name, bio: $branch } }
""",
}
SLOW = (
    "query slow() { match { $a: Person $b: Person $c: Person "
    "$a.name < $b.name $b.name < $c.name } return { count($a.name) } }"
)
"""Takes minutes with thousands of people."""


@pytest.fixture
def queries(tmp_path):
    directory = tmp_path / "queries"
    directory.mkdir()
    for name, text in QUERIES.items():
        (directory / name).write_text(text)
    return directory


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        graph.load(ROWS)
        yield graph


@pytest.fixture
def context_of(graph, queries):
    """Makes the context of an agent."""

    def make(grants=None, queries_of=None, **settings):
        stored = StoredQueries.from_directory(queries) if queries_of is None else queries_of
        own = Graph(graph._handle.with_queries(stored))
        return AgentContext(own, grants or EverythingAllowed(), AgentSettings(**settings))

    return make
