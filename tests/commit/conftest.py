"""A graph of people and companies, at the level that a test asks for."""

from __future__ import annotations

import pytest

from omnigraph import Graph
from tests.commit.world import SCHEMA, store_at


@pytest.fixture
def path(tmp_path):
    """Where the graph of a test lives."""
    return tmp_path / "g.omni"


@pytest.fixture
def graph(path):
    """An empty graph."""
    with Graph.init(path, SCHEMA, durability="os") as graph:
        yield graph


@pytest.fixture
def other(graph, path):
    """A second handle of the same graph."""
    with Graph.open(path, durability="os") as other:
        yield other


@pytest.fixture
def store(graph, path):
    """The parts of the graph, with nothing warm."""
    return store_at(path)
