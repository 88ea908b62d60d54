"""Vectors that are filled on S3: on main, on a branch, and in several commits."""

from __future__ import annotations

import pytest

from omnigraph import Graph
from tests.embed.graphs import MOCK, SCHEMA, docs, mock_vector, vectors
from tests.s3.server import BUCKET


@pytest.fixture(autouse=True)
def _cache(monkeypatch, tmp_path):
    monkeypatch.setenv("OMNIGRAPH_CACHE_DIR", str(tmp_path / "cache"))


def test_vectors_are_filled_where_the_graph_is(s3, tmp_path):
    uri = f"s3://{BUCKET}/{tmp_path.name}/g.omni"
    expected = {f"d{n:04}": mock_vector(f"text {n}") for n in range(8)}
    with Graph.init(uri, SCHEMA, storage_options=s3.options, embedding=MOCK) as graph:
        graph.load(docs(4))
        graph.load(docs(4, start=4))
        graph.branches.create("work")
        assert len(graph.embeddings.fill(branch="work", commit_rows=3).commits) == 3
        assert vectors(graph, branch="work") == expected
        assert set(vectors(graph).values()) == {None}
        assert graph.embeddings.fill().filled == 8
        assert vectors(graph) == expected
