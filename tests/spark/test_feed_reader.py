"""The change feed as Spark is given it: offsets, partitions and rows, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from omnigraph import Graph
from omnigraph.spark.source.feed import FeedPlan
from tests.merge.followers import Copy
from tests.merge.random_histories import RandomHistory


def batch(plan: FeedPlan, start: dict[str, str], end: dict[str, str]) -> list[dict[str, Any]]:
    """The rows between two offsets; Spark reads partitions in any order."""
    actual = [
        row
        for partition in reversed(plan.commits(start, end))
        for rows in plan.read(partition)
        for row in rows.to_pylist()
    ]
    return sorted(actual, key=lambda row: (row["version"], row["position"]))


def test_a_copy_that_reads_batches_has_what_the_graph_has(tmp_path: Path):
    history = RandomHistory(str(tmp_path), 7, keeps_history=True)
    copy = Copy({"types": []})
    with history.graph as graph:
        plan = FeedPlan(graph.uri, max_commits=3)
        location = plan.first()
        for _ in range(7):
            history.step()
        while (end := plan.latest(location)) != location:
            rows = batch(plan, location, end)
            assert len({row["commit_id"] for row in rows}) <= 3
            for row in rows:
                if row["op"] == "schema":
                    assert (row["id"], row["before"], row["after"]) == (None, None, None)
                    copy.apply_events([json.loads(row["schema_event"])])
                    continue
                images = {s: row[s] and json.loads(row[s]) for s in ("before", "after")}
                copy.apply_changes([{**row, **images}])
            location = json.loads(json.dumps(end))
        whole = Copy(dict(graph.changes.baseline().schema), graph.snapshot().export())
        assert copy.content() == whole.content()


def test_a_stream_of_a_type_goes_on_when_another_type_takes_the_name(tmp_path: Path):
    schema = "node P { name: String @key }"
    with Graph.init(tmp_path / "g.omni", schema, durability="os") as graph:
        plan = FeedPlan(graph.uri, types=("P",), start="now")
        location = plan.first()
        renamed = schema.replace("P", 'Q @rename_from("P")')
        graph.schema.apply(renamed)
        graph.schema.apply(f"{renamed}\n{schema}")
        graph.load([{"type": name, "data": {"name": name}} for name in ("P", "Q")])
        rows = batch(plan, location, plan.latest(location))
        assert [(row["op"], row["type_name"], row["id"]) for row in rows] == [
            ("schema", "Q", None),
            ("insert", "Q", "Q"),
        ]
        event = json.loads(rows[0]["schema_event"])
        assert (event["kind"], event["from"], event["to"]) == ("rename_type", "P", "Q")
