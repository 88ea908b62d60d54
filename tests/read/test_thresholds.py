"""What only happens with many rows happens here with few: answers stay the same.

Merging of equal rows, lookups instead of held tables, batches, blocks, lists instead of flags: each
has a number from which on it is used, and all of those numbers are small here.
"""

from __future__ import annotations

from random import Random

import pytest

from omnigraph.read import (
    aggregate,
    blocks,
    engine,
    frame,
    legs,
    order,
    pull,
    reach,
    run,
    searches,
    sources,
    threads,
)
from omnigraph.read.search import text
from omnigraph.topology import adjacency, edges
from tests.read.generate import make_chain, make_question
from tests.read.test_agreement import states
from tests.sampling import rotating

QUESTIONS = 300
PULLED = "hops are pulled"

VARIANTS = {
    "rows are merged at once": {(run, "_FEW"): 0},
    PULLED: {
        (run, "_FEW"): 0,
        (pull, "_FEW_EDGES"): 0,
        (pull, "_PUSH_COST"): 10**9,
        (adjacency, "_PIECE"): 3,
        (sources.EdgeSource, "cached_index"): sources.EdgeSource.index,
        (edges.EdgeIndex, "opposite"): lambda index, along: index.adjacency(edges.OPPOSITE[along]),
    },
    "neighbours are copied, and equal rows are sorted": {
        (run, "_FEW"): 0,
        (adjacency, "_FEW_LISTS"): 1,
        (frame, "_SPARSE"): 0,
    },
    "equal rows are counted": {(run, "_FEW"): 0, (frame, "_SPARSE"): 10**9},
    "little is held": {(run, "_FEW"): 0, (sources, "_SMALL"): 0, (sources, "_MOST_LOOKUPS"): 2},
    "nothing is held": {
        (sources, "_SMALL"): 0,
        (sources.NodeSource, "is_used_again"): lambda *_: False,
    },
    "everything is held": {(sources, "_SMALL"): 0, (sources, "_FRACTION"): 10**6},
    "batches are tiny": {(engine, "_FIRST_BATCH"): 1, (engine, "_BATCH"): 2},
    "no flags": {(aggregate, "_MOST_FLAGS"): 0, (reach, "_MOST_FLAGS"): 0},
    "codes and candidates": {
        (run, "_FEW"): 0,
        (sources, "_CODED"): 0,
        (sources, "_FEW_VALUES"): 0,
        (order, "_WORTH_IT"): 1,
        (searches, "_FEW"): 0,
    },
    "blocks of a row": {
        (run, "_FEW"): 0,
        (blocks, "ROWS"): 1,
        (blocks, "BYTES"): 1,
        (blocks, "FEW_STARTS"): 0,
        (legs, "FEW_STARTS"): 0,
        (blocks, "FEW_VALUES"): 0,
        (blocks, "FEW_NODES"): 0,
        (reach, "_MOST_STARTS"): 1,
        (text, "_BLOCK"): 1,
        (threads, "WORKERS"): 1,
    },
    "blocks of a row on three threads": {
        (run, "_FEW"): 0,
        (blocks, "ROWS"): 1,
        (blocks, "FEW_STARTS"): 0,
        (legs, "FEW_STARTS"): 0,
        (blocks, "FEW_NODES"): 0,
        (threads, "WORKERS"): 3,
        (threads, "FEWEST"): 2,
    },
    "blocks of a few rows": {
        (blocks, "ROWS"): 7,
        (blocks, "BYTES"): 99,
        (blocks, "FEW_VALUES"): 2,
        (blocks, "FEW_NODES"): 2,
        (reach, "_MOST_STARTS"): 2,
        (text, "_BLOCK"): 2,
        (threads, "WORKERS"): 2,
        (threads, "FEWEST"): 2,
    },
    "keys are sorted one after the other": {(order, "_MANY"): 0, (order, "_WORTH_IT"): 10**6},
}


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    actual = list(states(tmp_path_factory.mktemp("thresholds")))
    yield actual
    for graph in {id(state.graph): state.graph for state in actual}.values():
        graph.close()


@pytest.mark.parametrize("variant", rotating(list(VARIANTS), 1, "thresholds"))
def test_answers_do_not_depend_on_how_many_rows_are_many(pool, variant, monkeypatch):
    for (module, name), value in VARIANTS[variant].items():
        monkeypatch.setattr(module, name, value)
    pulls: list[bool] = []
    pull_step = run.pull

    def noted(*given, **options):
        after = pull_step(*given, **options)
        pulls.append(after is not None)
        return after

    monkeypatch.setattr(run, "pull", noted)
    for seed in range(QUESTIONS):
        random = Random(seed)
        state = random.choice(pool)
        make = make_chain if seed % 2 else make_question
        state.ask(make(random, state.graph.catalog))
    assert pulls.count(True) > 9 or variant != PULLED
