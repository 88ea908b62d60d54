"""The demo's files stay valid, and broken where they are meant to be."""

from __future__ import annotations

import subprocess
import sys

import pytest

from omnigraph import QueryError, Source, compile_query, compile_schema
from tests.pages import ROOT, query_names


def demo(name: str) -> Source:
    return Source(name, (ROOT / "demo" / name).read_text("utf-8"))


@pytest.mark.parametrize("name", ["schema.pg", "schema_v2.pg"])
def test_the_schemas_compile(name):
    catalog = compile_schema(demo(name))
    assert len(catalog.node_types) >= 8
    assert len(catalog.edge_types) >= 12


def test_every_query_compiles():
    catalog, source = compile_schema(demo("schema.pg")), demo("queries.gq")
    names = query_names(source.text)
    assert len(names) >= 12
    for name in names:
        compile_query(catalog, source, name)


def test_the_broken_query_shows_every_mistake_at_once():
    with pytest.raises(QueryError) as caught:
        compile_query(compile_schema(demo("schema.pg")), demo("broken.gq"))
    assert len(caught.value.diagnostics) >= 3


def test_the_graph_survives_its_killed_writer():
    reported = subprocess.run(
        [sys.executable, str(ROOT / "demo" / "graph.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "killed between two tables (exit -9)\nreaders see 3 people" in reported.stdout
    assert "opening to write: RolledBack" in reported.stdout
    assert "the next write works: 4 people" in reported.stdout
    assert "{'other.name': 'Grace', 'p.title': 'Analytical engine'}" in reported.stdout
    assert "[{'p.name': 'Edsger'}, {'p.name': 'Eve'}]" in reported.stdout
    assert "{'p.title': 'Analytical engine', 'people': 2}" in reported.stdout
    assert reported.stderr == ""
