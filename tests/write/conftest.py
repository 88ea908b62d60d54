"""A graph of people and companies, empty or filled, and a second handle of it."""

from __future__ import annotations

import shutil

import pytest

from omnigraph import Graph
from tests.write.deltas import fill
from tests.write.world import EDGES, PEOPLE, SCHEMA


@pytest.fixture(scope="session")
def templates(tmp_path_factory):
    """Every graph, made once."""
    root = tmp_path_factory.mktemp("templates")
    with Graph.init(root / "empty.omni", SCHEMA, durability="os") as graph:
        shutil.copytree(root / "empty.omni", root / "filled.omni")
    with Graph.open(root / "filled.omni", durability="os") as graph:
        graph.mutate(PEOPLE)
        graph.mutate(EDGES)
    fill(root / "rules.omni")
    return root


def _copy(templates, name, tmp_path):
    location = tmp_path / "g.omni"
    shutil.copytree(templates / name, location)
    return location


@pytest.fixture
def people(templates, tmp_path):
    """Four people and two companies, with edges of every type between them."""
    with Graph.open(_copy(templates, "filled.omni", tmp_path), durability="os") as graph:
        yield graph


@pytest.fixture
def empty(templates, tmp_path):
    """The same graph without rows."""
    with Graph.open(_copy(templates, "empty.omni", tmp_path), durability="os") as graph:
        yield graph


@pytest.fixture
def other(request):
    """A second handle of the filled graph."""
    with Graph.open(request.getfixturevalue("people").uri, durability="os") as other:
        yield other


@pytest.fixture
def ruled(templates, tmp_path):
    """The graph of ``tests.write.deltas``."""
    with Graph.open(_copy(templates, "rules.omni", tmp_path), durability="os") as graph:
        yield graph
