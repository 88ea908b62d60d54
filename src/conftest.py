"""The graph of the examples in docstrings: a new copy, as ``graph``, for each of them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_USES = re.compile(r"\b(graph|folder|result)\b")
SCHEMA = """
node Person { name: String @key  age: I32?  photo: Blob? }
edge Knows: Person -> Person
"""
PEOPLE = "query people() { match { $p: Person } return { $p.name, $p.age } order { $p.name } }"
OLDER = """
query older($age: I32) @description("People of at least an age")
{ match { $p: Person  $p.age >= $age } return { $p.name } order { $p.name } }
"""
ROWS = [
    {"type": "Person", "data": {"name": "Ada", "age": 36}},
    {"type": "Person", "data": {"name": "Grace", "age": 37, "photo": "base64:aGk="}},
    {"edge": "Knows", "from": "Ada", "to": "Grace"},
]


@pytest.fixture(scope="session")
def example_graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph of two people, tagged ``v1``."""
    from omnigraph import Graph

    path = tmp_path_factory.mktemp("examples") / "team.omni"
    with Graph.init(path, SCHEMA, durability="os") as graph:
        graph.load(ROWS)
        graph.tags.create("v1")
    (path.parent / "queries").mkdir()
    (path.parent / "queries" / "older.gq").write_text(OLDER)
    return path


@pytest.fixture(autouse=True)
def _example(
    request: pytest.FixtureRequest, doctest_namespace: dict[str, Any], tmp_path: Path
) -> Iterator[None]:
    """Hand the graph to the examples that use it."""
    test = getattr(request.node, "dtest", None)
    if test is None or not any(_USES.search(example.source) for example in test.examples):
        yield
        return
    from omnigraph import Graph

    path = tmp_path / "team.omni"
    example = request.getfixturevalue("example_graph")
    shutil.copytree(example, path)
    with Graph.open(path, durability="os", queries=example.parent / "queries") as graph:
        doctest_namespace["graph"] = graph
        doctest_namespace["folder"] = tmp_path
        doctest_namespace["result"] = graph.query(PEOPLE)
        yield
