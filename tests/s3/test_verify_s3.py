"""Verify on S3: what the store said of each file when it was written, compared by listing."""

from __future__ import annotations

import pytest

from omnigraph import Graph, verify_graph
from omnigraph.maintain.verify import ProblemCode
from omnigraph.storage.objects.store import ObjectStore

pytestmark = pytest.mark.rotates(3)

SCHEMA = """
node Doc { slug: String @key  title: String? @index  body: Blob? }
edge Cites: Doc -> Doc
"""
BLOB = "base64:" + "aGVs" * 50_000


@pytest.fixture
def location(s3, s3_root):
    root = s3_root("g.omni")
    with Graph.init(root.uri, SCHEMA, storage_options=s3.options) as graph:
        graph.load([{"type": "Doc", "data": {"slug": "a", "title": "one", "body": BLOB}}])
        graph.load(
            [{"type": "Doc", "data": {"slug": "b"}}, {"edge": "Cites", "from": "a", "to": "b"}]
        )
        graph.branches.create("feat")
        graph.load([{"type": "Doc", "data": {"slug": "a", "title": "two"}}], branch="feat")
        graph.indexes.ensure()
        graph.maintenance.optimize()
    return root


def test_every_file_of_every_writer_is_known(s3, location):
    report = verify_graph(location.uri, storage_options=s3.options)
    assert report.problems == ()
    assert (report.unverified_files, report.checked) == ((), report.files)


def test_an_object_that_was_replaced_is_named(s3, location):
    objects = ObjectStore(location)
    path = next(p for p, _ in objects.files_below("nodes") if p.endswith(".lance"))
    data = bytearray(objects.read_bytes(path))
    data[20] ^= 1
    objects.write_bytes(path, bytes(data))
    report = verify_graph(location.uri, storage_options=s3.options)
    changed = [p.file for p in report.problems if p.code is ProblemCode.CHECKSUM_MISMATCH]
    assert changed == [path]


def test_an_object_that_is_gone_is_named(s3, location):
    objects = ObjectStore(location)
    path = next(p for p, _ in objects.files_below("edges") if "/data/" in p)
    objects.delete(path)
    report = verify_graph(location.uri, storage_options=s3.options)
    assert {p.file for p in report.problems if p.code is ProblemCode.FILE_MISSING} == {path}
    assert {p.table for p in report.problems} == {"edge:Cites"}
