"""A graph of people whose tables are looked at directly."""

from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph import Graph

SCHEMA = """\
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person
"""


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        yield graph


def add(graph, *names, branch="main"):
    return graph.append({"Person": pa.table({"name": list(names)})}, branch=branch)


def join(graph, *pairs, branch="main"):
    ends = {"src": [pair[0] for pair in pairs], "dst": [pair[1] for pair in pairs]}
    return graph.append({"Knows": pa.table(ends)}, branch=branch)


def table(graph, key, branch=None):
    """A table as the newest snapshot of a branch shows it."""
    store = graph._handle.store
    return store.table(store.manifest(branch).current().pins[key])
