"""The walkthroughs of ``docs/architecture.md`` name what a real call passes, in that order."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bench.walks import INSERT, ONE_HOP, SCHEMA, functions_passed, module_of
from omnigraph import Graph
from omnigraph.spark.load.run import split_reader
from omnigraph.write.load.job import LoadDestination, LoadJob, LoadMode
from omnigraph.write.load.run import load_into
from tests.spark.inputs import in_process

PAGE = (Path(__file__).parent.parent / "docs" / "architecture.md").read_text("utf-8")
HOP = re.compile(r"^\d+\. `([\w/]+\.py)` `([\w.]+)`", re.MULTILINE)
Call = Callable[[], Any]


class Hop(NamedTuple):
    module: str
    function: str


def rooms(trace: list[Hop]) -> set[str]:
    return {hop.module.partition("/")[0] for hop in trace if "/" in hop.module}


def hops(title: str) -> list[Hop]:
    """The numbered hops below a heading of the page."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return [Hop(*match) for match in HOP.findall(section)]


def passed(call: Call) -> list[Hop]:
    return [Hop(module_of(code), code.co_qualname) for code in functions_passed(call)]


def write(graph: Graph, folder: Path) -> Call:
    return partial(graph.mutate, INSERT, params={"name": "Ada"})


def query(graph: Graph, folder: Path) -> Call:
    return lambda: graph.query(ONE_HOP, params={"name": "p1"}).rows()


def bulk_load(graph: Graph, folder: Path) -> Call:
    """What ``graph.load(engine="spark")`` calls, with its tasks run in this process."""
    file = folder / "more.ndjson"
    file.write_text('{"type": "Person", "data": {"name": "Ada"}}\n', "utf-8")
    job, destination = LoadJob([str(file)], LoadMode.MERGE), LoadDestination("main")
    reader = split_reader(in_process, 1_000)
    return partial(load_into, graph._handle.store, graph.catalog, job, destination, reader)


def merge(graph: Graph, folder: Path) -> Call:
    """Both sides changed since the fork."""
    graph.branches.create("review")
    graph.mutate(INSERT, params={"name": "theirs"}, branch="review")
    graph.mutate(INSERT, params={"name": "ours"})
    return partial(graph.merge, "review")


CALLS = {"One write": write, "One query": query, "One bulk load": bulk_load, "One merge": merge}


@pytest.mark.parametrize("title", CALLS)
def test_a_call_passes_the_named_functions_in_order(title, tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        people = [{"type": "Person", "data": {"name": f"p{i}"}} for i in range(9)]
        graph.load([*people, {"edge": "Knows", "from": "p1", "to": "p2"}])
        graph.query(ONE_HOP, params={"name": "p1"}).rows()
        trace = passed(CALLS[title](graph, tmp_path))
    named = hops(title)
    assert named
    assert [hop for hop in named if hop not in trace] == []
    assert sorted(named, key=trace.index) == named
    assert rooms(trace) == rooms(named)
