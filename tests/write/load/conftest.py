"""A graph to load into: empty, and with a few rows in it."""

from __future__ import annotations

import shutil

import pytest

from omnigraph import Graph
from tests.write.load.world import SCHEMA, edge, node, people


@pytest.fixture(scope="session")
def load_templates(tmp_path_factory):
    root = tmp_path_factory.mktemp("load-templates")
    Graph.init(root / "empty.omni", SCHEMA, durability="os").close()
    shutil.copytree(root / "empty.omni", root / "filled.omni")
    with Graph.open(root / "filled.omni", durability="os") as graph:
        graph.load(
            [
                *people("Ada", "Bob"),
                node("Person", name="Cyd", age=30, email="cyd@x", born="1990-01-01"),
                node("Company", name="Acme"),
                node("Company", name="Brim"),
                node("Note", id="n1", text="hello"),
                edge("Knows", "Ada", "Bob", id="k1", weight=0.5),
                edge("WorksAt", "Ada", "Acme", id="w1"),
            ]
        )
    return root


def _opened(templates, name, tmp_path):
    shutil.copytree(templates / name, tmp_path / "g.omni")
    return Graph.open(tmp_path / "g.omni", durability="os")


@pytest.fixture
def empty(load_templates, tmp_path):
    with _opened(load_templates, "empty.omni", tmp_path) as graph:
        yield graph


@pytest.fixture
def filled(load_templates, tmp_path):
    """Three people, two companies, a note; Ada knows Bob and works at Acme."""
    with _opened(load_templates, "filled.omni", tmp_path) as graph:
        yield graph
