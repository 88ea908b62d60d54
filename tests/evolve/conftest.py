"""The standard graph, and other handles of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph import Graph
from tests.evolve.world import SCHEMA, fill


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "g.omni"


@pytest.fixture
def graph(path: Path) -> Iterator[Graph]:
    with Graph.init(path, SCHEMA, durability="os") as graph:
        fill(graph)
        yield graph


@pytest.fixture
def other(graph: Graph, path: Path) -> Iterator[Graph]:
    """A second handle, opened before anything is applied."""
    with Graph.open(path, durability="os") as other:
        other.snapshot().read("Person")
        yield other
