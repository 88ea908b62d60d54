"""What the tasks of Spark write is known to the last file, as any other write is."""

from __future__ import annotations

import json

import pytest

from omnigraph import Graph, verify_graph

SCHEMA = """
node P { name: String @key  age: I32? @index  photo: Blob? }
edge K: P -> P
"""
PHOTO = "base64:" + "aGVs" * 50_000


def lines(start, count):
    for n in range(start, start + count):
        data = {"name": f"p{n}", "age": n}
        yield json.dumps({"type": "P", "data": data | ({"photo": PHOTO} if n == start else {})})
    for n in range(start, start + count - 1):
        yield json.dumps({"edge": "K", "from": f"p{n}", "to": f"p{n + 1}"})


@pytest.mark.slow
def test_loads_merges_and_an_optimize_on_spark_are_known(spark, tmp_path):
    path = tmp_path / "g.omni"
    file = tmp_path / "people.ndjson"
    with Graph.init(path, SCHEMA, durability="os") as graph:
        graph.branches.create("feat")
        # The second load replaces some rows of the first: files of deletions come from tasks too.
        for start, branch in ((0, "main"), (150, "main"), (0, "feat")):
            file.write_text("\n".join(lines(start, 200)) + "\n")
            graph.load(file, engine="spark", spark=spark.session, branch=branch)
        graph.maintenance.optimize(engine="spark", spark=spark.session)
        assert graph.snapshot().count("P") == 350
    report = verify_graph(path)
    assert report.problems == ()
    assert (report.unverified_files, report.checked) == ((), report.files)
