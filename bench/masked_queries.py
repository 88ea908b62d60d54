"""Queries of an actor who sees three quarters of the people, beside those of one who sees all.

Both run alternately in one process on the same open graph, warm. The ratio of the medians of their
processor times has a goal for each query.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from social.engines import Ours
from social.network import generate
from social.texts import QUERIES

from omnigraph import Graph, Policy

PEOPLE, EDGES = 100_000, 2_000_000
BUNDLE = """
version: 2
groups: {part: [part], all: [all]}
rows:
  - {id: all, actors: {group: all}, types: ["*"]}
  - {id: people, actors: {group: part}, types: [Person], where: "age < 70"}
  - {id: rest, actors: {group: part}, types: [Company, Knows, WorksAt]}
"""
COUNTS = """
query people() { match { $p: Person } return { count($p) as n } }
query pairs() { match { $a knows $b } return { count($a) as n } }
"""
ROWS: tuple[tuple[str, str, str, float, int], ...] = (
    ("masked point lookup", QUERIES, "point_lookup", 1.2, 200),
    ("masked two hops", QUERIES, "hops_2", 1.4, 60),
    ("masked full count, nodes", COUNTS, "people", 1.2, 200),
    ("masked full count, edges", COUNTS, "pairs", 1.2, 100),
)


def masked_queries(row: Callable[..., list[str]]) -> list[str]:
    """Ratios of restricted to unrestricted queries; the names of those that miss their goals."""
    missed: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        location = Path(directory, "social.omni")
        Ours.build(location, generate(PEOPLE, EDGES))
        with Graph.open(location, "r", policy=Policy.parse(BUNDLE)) as graph:
            for name, text, query, limit, rounds in ROWS:
                missed += row(name, _ratio(graph, text, query, rounds), "×", limit)
    return missed


def _ratio(graph: Graph, text: str, query: str, rounds: int) -> float:
    calls = [graph.for_actor(actor).prepare(text, query) for actor in ("part", "all")]
    params = {} if "name" not in calls[0].params else {"name": "person-000017"}
    times: list[list[float]] = [[], []]
    for number in range(rounds + 5):
        for call, own in zip(calls, times, strict=True):
            start = time.process_time()
            call(params).to_arrow()
            if number >= 5:
                own.append(time.process_time() - start)
    part, everything = map(statistics.median, times)
    return part / everything
