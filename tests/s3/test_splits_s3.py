"""A load in shares on S3: new rows, rows that replace others, and what is left behind."""

from __future__ import annotations

import json

from omnigraph import Graph
from omnigraph.spark.load.run import split_reader
from omnigraph.write.load.job import LoadDestination, LoadJob, LoadMode
from omnigraph.write.load.run import load_into
from tests.maintain.orphan_files import orphans
from tests.spark.inputs import in_process

SCHEMA = "node P { name: String @key  age: I32? }\nedge K: P -> P"


def test_a_merge_in_shares_replaces_rows_and_leaves_nothing(s3_root, tmp_path):
    root = s3_root("shares.omni")
    path = tmp_path / "people.ndjson"
    with Graph.init(root.uri, SCHEMA, storage_options=root.options) as graph:
        for start in (0, 25):
            rows = [{"type": "P", "data": {"name": f"p{n}", "age": start}} for n in range(50)]
            path.write_text("".join(json.dumps(row) + "\n" for row in rows[start:]))
            load_into(
                graph._handle.store,
                graph.catalog,
                LoadJob([str(path)], LoadMode.MERGE),
                LoadDestination("main"),
                split_reader(in_process, 300),
            )
        ages = graph.snapshot().read("P", ["age"])["age"].to_pylist()
        assert sorted(ages) == [0] * 25 + [25] * 25
        assert orphans(graph._handle.store) == []
