"""Time, memory, rows and patience: each ends a query with an error of its own."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from omnigraph import Cancel, Graph
from omnigraph.errors import (
    Cancelled,
    InputError,
    LimitExceeded,
    MemoryExceeded,
    QueryTimeout,
    RowLimitExceeded,
)
from omnigraph.read import run as run_module
from tests.read.conftest import ask

EVERYBODY = "match { $p: Person } return { $p.name }"
PAIRS = "match { $a: Person $b: Person $c: Person $d: Person } return { $a, $b, $c, $d }"


def test_a_query_that_takes_too_long_is_ended(people):
    with pytest.raises(QueryTimeout, match="longer than 0 seconds") as caught:
        ask(people, EVERYBODY, timeout=0)
    assert caught.value.details == {"timeout": 0}
    assert isinstance(caught.value, LimitExceeded)
    assert len(ask(people, EVERYBODY, timeout=60)) == 4


def test_too_many_rows_are_refused(people):
    assert len(ask(people, EVERYBODY, max_rows=4)) == 4
    with pytest.raises(RowLimitExceeded, match="more than 3 rows"):
        ask(people, EVERYBODY, max_rows=3)
    assert len(ask(people, f"{EVERYBODY} limit 3", max_rows=3)) == 3
    assert len(ask(people, f"{EVERYBODY} limit 2 offset 2", max_rows=2)) == 2


def test_intermediate_rows_that_do_not_fit_are_refused_before_they_are_made(people):
    with pytest.raises(MemoryExceeded, match="intermediate rows") as caught:
        ask(people, PAIRS, max_memory=1_000)
    assert caught.value.details["max_memory"] == 1_000
    assert caught.value.details["bytes"] > 1_000
    assert len(ask(people, PAIRS)) == 256
    assert len(ask(people, PAIRS, max_memory=None)) == 256


def test_a_query_is_cancelled_from_another_thread(people, monkeypatch):
    """While it runs, between two steps."""
    cancel = Cancel()
    inside, messages = threading.Event(), []
    real = run_module.Run.run_step

    def slow(self, *arguments, **options):
        inside.set()
        while not cancel.is_set:
            pass
        return real(self, *arguments, **options)

    def query():
        try:
            ask(people, PAIRS, cancel=cancel)
        except Cancelled as error:
            messages.append(error.message)

    monkeypatch.setattr(run_module.Run, "run_step", slow)
    running = threading.Thread(target=query)
    running.start()
    assert inside.wait(60)
    cancel.set()
    running.join(60)
    assert messages == ["the query was cancelled"]


def test_a_query_that_is_cancelled_before_it_starts_does_not_start(people):
    cancel = Cancel()
    cancel.set()
    with pytest.raises(Cancelled):
        ask(people, EVERYBODY, cancel=cancel)


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"timeout": -1}, "timeout cannot be negative"),
        ({"timeout": "1"}, "timeout must be a number"),
        ({"timeout": float("nan")}, "timeout cannot be nan"),
        ({"max_rows": 1.5}, "max_rows must be a whole number"),
        ({"max_memory": -1}, "max_memory cannot be negative"),
        ({"cancel": True}, "cancel must be a Cancel"),
        ({"engine": "warp"}, "invalid engine 'warp'"),
    ],
)
def test_limits_that_make_no_sense_are_refused(people, how, text):
    with pytest.raises(InputError, match=text):
        ask(people, EVERYBODY, **how)


def test_a_result_that_is_not_pulled_computes_no_more_than_its_first_batch(tmp_path):
    """Rows stream: a limit, or a reader that stops, ends the work."""
    with Graph.init(tmp_path / "g", "node N { k: String @key }", durability="os") as graph:
        graph.append({"N": pa.table({"k": [str(n) for n in range(5_000)]})})
        result = graph.query("query q() { match { $a: N $b: N } return { $a.k, $b.k } }")
        first = next(iter(result.batches()))
        assert 0 < first.num_rows <= 65_536
        rows = ask(graph, "match { $a: N $b: N $a.k != $b.k } return { $a.k } limit 7")
        assert len(rows) == 7
