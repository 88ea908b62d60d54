"""Cleanup of a graph on S3."""

from __future__ import annotations

import pytest

from omnigraph import Graph
from omnigraph.errors import HistoryGone
from omnigraph.storage.objects.store import ObjectStore

SCHEMA = "node Doc { slug: String @key  body: Blob? }"


def doc(slug):
    return {"type": "Doc", "data": {"slug": slug, "body": "base64:" + "aGVs" * 30_000}}


def slugs(snapshot):
    return sorted(snapshot.read("Doc", ["slug"])["slug"].to_pylist())


def test_a_graph_on_s3_is_cleaned_like_any_other(s3, s3_root):
    root = s3_root("g.omni")
    objects = ObjectStore(root)

    def size():
        actual = objects.files_below("")
        return sum(info.size for path, info in actual if not path.startswith("__history/"))

    with Graph.init(root.uri, SCHEMA, storage_options=s3.options) as graph:
        first = graph.load([doc("a")]).commit_id
        graph.load([doc("b")])
        graph.tags.create("kept")
        graph.branches.create("feat")
        graph.load([doc("x")], branch="feat")
        graph.load([doc("y")], branch="feat")
        graph.mutate('query q() { delete Doc where slug = "a" }')
        location = graph._handle.store.manifest(None).current().pins["node:Doc"].location
        objects.write_bytes(f"{location}/data/nobody.lance", b"x" * 500)
        objects.write_bytes(f"{location}/tree/gone/data/nobody.lance", b"x" * 700)
        reported = graph.maintenance.cleanup(1, min_age=0, dry_run=True)
        before = size()
        report = graph.maintenance.cleanup(1, min_age=0)
        assert {**reported.to_json(), "dry_run": False} == report.to_json()
        assert before - size() == report.bytes_removed
        assert (report.files.bytes, report.forks.bytes) == (500, 700)
        assert report.table("node:Doc").old_versions_removed > 0
        assert report.manifest.old_versions_removed > 0
        assert slugs(graph.snapshot()) == ["b"]
        assert slugs(graph.snapshot("feat")) == ["a", "b", "x", "y"]
        assert slugs(graph.snapshot(tag="kept")) == ["a", "b"]
        with pytest.raises(HistoryGone):
            graph.snapshot(commit=first)
        with Graph.open(root.uri, storage_options=s3.options) as other:
            other.merge("feat")
            assert slugs(other.snapshot()) == ["b", "x", "y"]
        assert slugs(graph.snapshot()) == ["b", "x", "y"]
