"""Optimize of a graph on S3."""

from __future__ import annotations

import lance
import pyarrow as pa

from omnigraph import Graph
from omnigraph.storage.objects.store import ObjectStore

SCHEMA = """
node Doc { slug: String @key  title: String? @index  vec: Vector(2)? @index  body: Blob? }
edge Cites: Doc -> Doc
"""
WORD = """
query word($w: String) {
  match { $d: Doc search($d.title, $w) } return { $d.slug } order { $d.slug }
}
"""


def docs(*numbers):
    return {
        "Doc": pa.table(
            {
                "slug": [f"d{n}" for n in numbers],
                "title": [f"word{n} common" for n in numbers],
                "vec": pa.array([[n + 1.0, 1.0] for n in numbers], pa.list_(pa.float32(), 2)),
                "body": pa.array([b"%d" % n * 40_000 for n in numbers], pa.large_binary()),
            }
        )
    }


def test_a_graph_on_s3_is_optimized_like_any_other(s3, s3_root):
    root = s3_root("g.omni")
    with Graph.init(root.uri, SCHEMA, storage_options=s3.options) as graph:
        graph.branches.create("feat")
        for branch in ("main", "feat"):
            for n in range(3):
                graph.append(docs(2 * n, 2 * n + 1), branch=branch)
            graph.load([{"type": "Doc", "data": {"slug": "d1", "title": "word7"}}], branch=branch)
            before = graph.snapshot(branch).read("Doc", ["slug", "title"]).sort_by("slug")
            report = graph.maintenance.optimize(branch)
            assert report.table("node:Doc").fragments_added == 1
            after = graph.snapshot(branch).read("Doc", ["slug", "title"]).sort_by("slug")
            assert after == before
            assert graph.snapshot(branch).read_blob("Doc", "d4", "body", 0, 4) == b"4444"
            for word, actual in (("word7", ["d1"]), ("word1", []), ("common", 5)):
                rows = graph.query(WORD, "word", {"w": word}, branch=branch).rows()
                slugs = [row["d.slug"] for row in rows]
                assert slugs == actual or len(slugs) == actual
            assert graph.maintenance.optimize(branch).commit_id is None
            pin = graph._handle.store.manifest(None if branch == "main" else branch).current().pins
            path = pin["node:Doc"].ref.path
            table = lance.dataset(root.path(path), storage_options=s3.options)
            assert table.version == pin["node:Doc"].version
            # Nothing is left of the versions that are in no history.
            files = ObjectStore(root).list(f"{path}/_versions")
            assert not [name for name in files if name.startswith("d")]
