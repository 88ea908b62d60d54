"""Blocks of one query on several threads: the same rows in the same order, and no thread left."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pytest

from omnigraph import Cancel, Graph
from omnigraph.errors import Cancelled, MemoryExceeded
from omnigraph.read import blocks, threads
from omnigraph.read.frame import Frame
from omnigraph.read.threads import can_spread, in_order

SCHEMA = """\
node N { k: String @key  n: I64 }
edge E: N -> N
"""
FEWEST = threads.FEWEST


@pytest.fixture(autouse=True)
def three(monkeypatch):
    monkeypatch.setattr(threads, "WORKERS", 3)
    monkeypatch.setattr(threads, "FEWEST", 2)


def workers():
    return [t for t in threading.enumerate() if t.name.startswith("omnigraph-read")]


def test_results_come_in_order_although_the_first_ends_last():
    others, active = threading.Event(), threading.Barrier(3)

    def work(item):
        if item < 3:
            active.wait(10)
        if item == 0:
            assert others.wait(10)
        if item == 2:
            others.set()
        return item * item

    assert list(in_order(work, range(9))) == [item * item for item in range(9)]
    assert workers() == []


def test_two_million_rows_are_enough_blocks_for_all_cores(monkeypatch):
    monkeypatch.setattr(threads, "FEWEST", FEWEST)
    numbers = np.zeros(1 << 21, np.int32)
    pieces = blocks.blocks(Frame(len(numbers), {"a": numbers}), 1)
    assert can_spread(len(pieces))
    assert not can_spread(len(pieces) // 2)


def test_items_are_taken_when_their_turn_comes():
    taken = []
    results = in_order(lambda item: item, (taken.append(n) or n for n in range(100)))
    assert next(results) == 0
    assert len(taken) <= threads.WORKERS + 1
    results.close()
    assert workers() == []


def test_the_error_of_the_first_failed_item_is_raised_and_no_more_are_begun():
    begun = []

    def work(item):
        begun.append(item)
        if item >= 4:
            raise ValueError(str(item))
        return item

    with pytest.raises(ValueError, match="4"):
        list(in_order(work, range(1_000)))
    assert len(begun) < 20
    assert workers() == []


def test_a_block_does_not_spread_its_own_blocks():
    assert can_spread(threads.FEWEST)
    assert not can_spread(threads.FEWEST - 1)
    assert not any(in_order(lambda _: can_spread(threads.FEWEST), range(5)))
    assert can_spread(threads.FEWEST)


def test_without_another_thread_the_caller_does_the_work(monkeypatch):
    def refused(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    assert list(in_order(lambda item: -item, range(5))) == [0, -1, -2, -3, -4]


# -- queries ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    root = tmp_path_factory.mktemp("spread") / "g.omni"
    with Graph.init(root, SCHEMA, durability="os") as graph:
        keys = [f"{n:03}" for n in range(60)]
        pairs = [(a, b) for a in range(60) for b in range(60) if (a * 7 + b * 3) % 5 == 0]
        graph.load(
            {
                "N": pa.table({"k": keys, "n": range(60)}),
                "E": pa.table(
                    {"from": [keys[a] for a, _ in pairs], "to": [keys[b] for _, b in pairs]}
                ),
            }
        )
        yield graph


TEXTS = {
    "triangles": "match { $a e $b  $b e $c  $a e $c } return { count($a) as n }",
    "squares": "match { $a <e> $b  $b <e> $c  $c <e> $d  $d <e> $a } return { count($a) as n }",
    "groups": "match { $a e $b  $b e $c } return { $a.n, count(distinct $c) as n, max($b.n) as m }",
    "rows": "match { $a e $b  $b e $c  $a e $c  $c.n < 9 } return { $a.k, $b.k, $c.n } "
    "order { $c.n desc }",
    "negation": "match { $a e $b  not { $b e $c  $c e $a  $c.n > 50 } } return { count($a) as n }",
    "reach": "match { $a: N  $a.n < 20  $a e{1,2} $b  $b e $c } "
    "return { $a.n, $b.n, max($c.n) as m }",
}


@pytest.mark.parametrize("name", TEXTS)
def test_rows_and_their_order_do_not_depend_on_threads(graph, name, monkeypatch):
    text = f"query q() {{ {TEXTS[name]} }}"
    monkeypatch.setattr(blocks, "ROWS", 50)
    monkeypatch.setattr(blocks, "FEW_NODES", 0)
    used = []
    real = threads.in_order
    monkeypatch.setattr(threads, "in_order", lambda *given: used.append(1) or real(*given))
    graph.query(text).rows()  # so that everything is in memory
    spread = graph.query(text).rows()
    assert used
    monkeypatch.setattr(threads, "WORKERS", 1)
    assert graph.query(text).rows() == spread
    assert workers() == []


def test_a_limit_ends_all_threads(graph, monkeypatch):
    monkeypatch.setattr(blocks, "ROWS", 20)
    text = f"query q() {{ {TEXTS['rows']} }}"
    graph.query(text).rows()
    with pytest.raises(MemoryExceeded):
        graph.query(text, max_memory=300)
    cancel = Cancel()
    real = blocks.step_blocks

    def slow(run, step, frame, live):
        if threading.current_thread().name.startswith("omnigraph-read"):
            cancel.set()
        return real(run, step, frame, live)

    monkeypatch.setattr(blocks, "step_blocks", slow)
    with pytest.raises(Cancelled):
        graph.query(text, cancel=cancel)
    assert workers() == []
