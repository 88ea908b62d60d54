"""What finding changes costs follows what changed, not how large a table is."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.merge.changes import find_changes
from tests.commit.file_calls import CallCounter

pytestmark = pytest.mark.rotates(6)

SCHEMA = "node P { name: String @key  age: I32? }\nnode Q { name: String @key }"
SMALL, LARGE = (6, 20), (30, 400)
"""How many parts a table has, and how many rows each of them."""


def person(part, row, age=1):
    return {"type": "P", "data": {"name": f"p{part:03d}-{row:04d}", "age": age}}


def built(directory: Path, size: tuple[int, int]) -> Path:
    """A table in many parts; two branches have since changed rows in three of them."""
    parts, rows = size
    with Graph.init(directory, SCHEMA, durability="os") as graph:
        for part in range(parts):
            graph.load([person(part, row) for row in range(rows)], mode="append")
        graph.branches.create("work")
        graph.load([person(1, 3, 5), person(2, 4, 5), person(999, 1)], branch="work")
        graph.mutate('query q() { delete P where name = "p003-0002" }', branch="work")
        graph.load([person(1, 4, 5), person(999, 2)])
    return directory


def states(graph: Graph):
    """The pins of the table where the branches parted, on the branch and on main."""
    pins = [
        graph._handle.store.manifest(branch).current().pin("node:P") for branch in ("work", None)
    ]
    report = graph.merge("work", dry_run=True)
    base = graph.snapshot(commit=report.base)._context.snapshot.pin("node:P")
    return base, *pins


def before_the_merge(graph: Graph):
    """The same when they were merged: main is what it was one commit ago."""
    base = graph.commits("work")[2].commit_id
    commits = (base, graph.commits("work")[0].commit_id, graph.commits()[1].commit_id)
    return [graph.snapshot(commit=commit)._context.snapshot.pin("node:P") for commit in commits]


def find(root: Path) -> Iterator[None]:
    """Find what both sides have changed, through a handle that has not opened the table."""
    base, work, main = states(Graph.open(root))
    graph = Graph.open(root)
    graph.snapshot()
    store = graph._handle.store
    before, opened = asdict(store.objects.traffic), store.datasets.opened
    yield
    kind = graph.catalog.node_types["P"]
    actual = [find_changes(store, kind, base, pin) for pin in (work, main)]
    after = asdict(store.objects.traffic)
    spent = {name: after[name] - before[name] for name in after}
    rows = [[len(item.inserted), len(item.updated), len(item.deleted)] for item in actual]
    print(json.dumps({"rows": rows, "opens": store.datasets.opened - opened} | spent))


def merge(root: Path) -> Iterator[None]:
    graph = Graph.open(root)
    yield
    print(graph.merge("work").outcome.value)


class Opened(CallCounter):
    """Which data files an operation opens."""

    def files(self, root: Path) -> tuple[set[str], Counter[str], dict]:
        cost = self.cost(find, root)
        names = set(re.findall(r"data/([^/\"]+\.lance)\"", self._trace.read_text()))
        return names, cost.calls, json.loads(cost.output)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory):
    """By size: the graph, the data files that were opened, the calls, what was found."""
    if sys.platform != "linux" or shutil.which("strace") is None:
        pytest.skip("system calls are counted with strace, which is not here")
    counter = Opened(tmp_path_factory.mktemp("calls"))
    matches = {}
    try:
        for size in (SMALL, LARGE):
            root = built(tmp_path_factory.mktemp("graph") / "g.omni", size)
            matches[size] = (root, *counter.files(root))
            cost = counter.cost(merge, root)
            assert cost.output.strip() == "merged"
            matches[size] = (*matches[size], cost.calls)
    finally:
        counter.close()
    return matches


def parts(graph: Graph, pin) -> dict[str, str]:
    """The signatures of the parts of a state, by their files."""
    return {
        fragment.signature.split("-")[0]: fragment.signature
        for fragment in graph._handle.store.table(pin).fragments()
    }


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
def test_no_file_of_a_part_that_did_not_change_is_opened(runs, size):
    root, opened, _, reported, _ = runs[size]
    with Graph.open(root, "r") as graph:
        base, work, main = (parts(graph, pin) for pin in before_the_merge(graph))
    unchanged = {file for file, text in base.items() if work.get(file) == main.get(file) == text}
    changed = {*base, *work, *main} - unchanged
    assert len(unchanged) == size[0] - 3
    assert opened & unchanged == set()
    assert opened <= changed
    assert opened
    assert reported["rows"] == [[1, 2, 1], [1, 1, 0]]


def test_a_large_table_is_asked_for_no_more_than_a_small_one(runs):
    (_, few, small, reported, _), (_, many, large, also, _) = runs[SMALL], runs[LARGE]
    assert reported == also
    assert len(few) == len(many)
    # Lance may open one file twice at the same moment.
    assert (large - small).total() <= 2


def test_a_merge_looks_at_no_table_that_the_branch_did_not_change(runs):
    root, *_, calls = runs[SMALL]
    with Graph.open(root, "r") as graph:
        pins = graph._handle.store.manifest(None).current().pins
    touched = {key for key, pin in pins.items() if any(pin.location in call for call in calls)}
    assert touched == {"node:P"}
