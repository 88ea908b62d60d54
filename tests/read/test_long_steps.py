"""A query can be ended inside of a step that takes long, and refused before it takes the memory.

What is a block of many rows elsewhere is a block of a few here.
"""

from __future__ import annotations

import threading
import time
import tracemalloc

import pyarrow as pa
import pytest

from omnigraph import Cancel, Graph
from omnigraph.errors import Cancelled, MemoryExceeded, QueryTimeout
from omnigraph.read import blocks, limits, order, reach, threads
from omnigraph.read.frame import Frame
from omnigraph.read.limits import Limits, ResourceGuard
from omnigraph.read.search import text
from tests.read.conftest import ask

pytestmark = pytest.mark.rotates(3)

SCHEMA = """\
node Person { name: String @key  age: I32?  city: String?  bio: String? }
edge Knows: Person -> Person { note: String? }
"""
COUNT = 400
WORDS = ("red fox", "lazy dog", "running river", "quick fox", "mountain")


@pytest.fixture(scope="module")
def circle(tmp_path_factory):
    """People in a circle who also know the 20 next ones; the first one knows everybody."""
    names = [f"p{n:03}" for n in range(COUNT)]
    pairs = [(a, (a + far) % COUNT) for a in range(COUNT) for far in range(1, 21)]
    pairs += [(0, b) for b in range(30, COUNT)]
    location = tmp_path_factory.mktemp("crowd") / "g.omni"
    with Graph.init(location, SCHEMA, durability="os") as graph:
        graph.load(
            {
                "Person": pa.table(
                    {
                        "name": names,
                        "age": pa.array([n % 90 for n in range(COUNT)], pa.int32()),
                        "city": [f"c{n % 7}" for n in range(COUNT)],
                        "bio": [WORDS[n % len(WORDS)] for n in range(COUNT)],
                    }
                ),
                "Knows": pa.table(
                    {
                        "from": [names[a] for a, _ in pairs],
                        "to": [names[b] for _, b in pairs],
                        "note": [WORDS[(a + b) % len(WORDS)] for a, b in pairs],
                    }
                ),
            }
        )
        ask(graph, "match { $a: Person $a knows $b } return { count($b) as n }")
        yield graph


@pytest.fixture
def small_blocks(monkeypatch):
    for module, name, value in (
        (blocks, "ROWS", 500),
        (blocks, "BYTES", 4_000),
        (blocks, "FEW_VALUES", 100),
        (order, "_MANY", 0),
        (reach, "_MOST_STARTS", 10),
        (text, "_BLOCK", 50),
    ):
        monkeypatch.setattr(module, name, value)


class Counting(Cancel):
    """Counts how often somebody looks, on any thread, and is set from some look on."""

    def __init__(self, patience: float) -> None:
        super().__init__()
        self.looks = 0
        self._patience = patience
        self._one_by_one = threading.Lock()

    @property
    def is_set(self) -> bool:
        with self._one_by_one:
            self.looks += 1
            return self.looks > self._patience


LONG = {
    "a product": ("match { $a: Person $b: Person $a.age < $b.age } return { count($a) as n }", 300),
    "a product that streams": ("match { $a: Person $b: Person } return { $a, $b }", 300),
    "a wide hop": ("match { $a: Person $a knows $b } return { $a.city, max($b.age) as n }", 15),
    "hops": ("match { $a: Person $a knows $b $b knows $c } return { $a, $c }", 300),
    "hops to groups": (
        "match { $a: Person $a knows $b $b knows $c } return { $a.city, $c.age, count($b) as n }",
        300,
    ),
    "hops to different rows": (
        "match { $a: Person $a knows $b $b knows $c } return distinct { $a.city, $c.city }",
        300,
    ),
    "a walk": ("match { $a: Person $a knows{1,3} $b } return { $a, $b }", 100),
    "a closed cycle": (
        "match { $a: Person $a knows $b $b knows $c $c knows $a } return { count($a) as n }",
        300,
    ),
    "edges": ("match { $a: Person $a $k:knows $b } return { $k.note, count($b) as n }", 15),
    "edges between two": ("match { $a: Person $a knows $b $a $k:knows $b } return { $k }", 200),
    "a negation": (
        "match { $a: Person $a knows $b not { $a knows $c $c knows $b } } return { $a, $b }",
        200,
    ),
    "a filter": (
        'match { $a: Person $a knows $b $a.bio contains "z" or $b.bio contains "z" } return { $a }',
        30,
    ),
    "gathered values": (
        "match { $a: Person $a knows $b } return { $a.bio, min($b.bio) as first }",
        30,
    ),
    "an order": ("match { $a: Person $a knows $b } return { $a.bio } order { $b.bio }", 50),
    "texts of edges": (
        'match { $a: Person $a $k:knows $b search($k.note, "fox") } return { $a }',
        50,
    ),
}


@pytest.mark.parametrize(("query", "least"), LONG.values(), ids=LONG)
def test_a_long_step_can_be_left_in_many_places(circle, small_blocks, query, least):
    """And wherever it is left, that is what the caller is told."""
    # The first run fills caches, and looks at the token while it does.
    expected = ask(circle, query)
    free = Counting(float("inf"))
    ask(circle, query, cancel=free)
    assert free.looks >= least
    for patience in (0, 1, free.looks // 3, free.looks // 2, free.looks - 1):
        cancel = Counting(patience)
        with pytest.raises(Cancelled):
            ask(circle, query, cancel=cancel)
        # Blocks that run on other threads look once more each.
        assert patience < cancel.looks <= patience + 1 + threads.WORKERS
    assert sorted(map(str, ask(circle, query))) == sorted(map(str, expected))


@pytest.mark.parametrize("name", ["a product", "hops to groups", "an order"])
def test_the_time_is_looked_at_as_often(circle, small_blocks, monkeypatch, name):
    """By a clock that moves a second with each look."""
    query, least = LONG[name]
    seconds = iter(range(10**6))
    monkeypatch.setattr(limits, "_now", lambda: next(seconds))
    with pytest.raises(QueryTimeout, match=f"longer than {least // 2} seconds"):
        ask(circle, query, timeout=least // 2)


def test_texts_and_vectors_that_no_index_knows_are_read_in_batches(tmp_path):
    """Each load leaves a part of the table, and between two of them the query can be left."""
    schema = "node N { k: String @key t: String? v: Vector(2)? }"
    with Graph.init(tmp_path / "g", schema, durability="os") as graph:
        numbers = pa.array([float(n % 7) for n in range(200)], pa.float32())
        for part in range(6):
            keys = [f"{part}-{n}" for n in range(100)]
            vectors = pa.FixedSizeListArray.from_arrays(numbers, 2)
            graph.append({"N": pa.table({"k": keys, "t": ["red fox"] * 100, "v": vectors})})
        for query in (
            'match { $n: N search($n.t, "fox") } return { $n }',
            'match { $n: N fuzzy($n.t, "fux") } return { $n }',
            'match { $n: N } return { $n } order { bm25($n.t, "fox") } limit 500',
            "match { $n: N } return { $n } order { nearest($n.v, [1.0, 0.5]) } limit 500",
        ):
            cancel = Counting(float("inf"))
            assert len(ask(graph, query, cancel=cancel)) in (500, 600)
            assert cancel.looks >= 6
            with pytest.raises(Cancelled):
                ask(graph, query, cancel=Counting(cancel.looks - 1))


def test_what_is_ready_too_late_is_not_given_out(people, monkeypatch):
    """The clock jumps while the last step runs."""
    now = [0.0]
    monkeypatch.setattr(limits, "_now", lambda: now[0])
    real = Frame.take

    def late(self, locations):
        now[0] = 100.0
        return real(self, locations)

    monkeypatch.setattr(Frame, "take", late)
    with pytest.raises(QueryTimeout):
        ask(people, "match { $p: Person } return { $p.name } order { $p.age }", timeout=60)


def test_the_time_counts_from_the_call():
    """Texts and parameters are read before anything can be checked."""
    started = time.monotonic() - 2
    with pytest.raises(QueryTimeout):
        ResourceGuard(Limits(timeout=1, started=started)).check()
    ResourceGuard(Limits(timeout=60, started=started)).check()


# -- memory -----------------------------------------------------------------------------------


def test_rows_that_nobody_keeps_do_not_count(tmp_path):
    """A product of four million rows in a tenth of the memory that they would take."""
    with Graph.init(tmp_path / "g", "node N { k: String @key n: I32 }", durability="os") as graph:
        keys = [f"{n:04}" for n in range(2_000)]
        numbers = pa.array([n % 1_000 for n in range(2_000)], pa.int32())
        graph.append({"N": pa.table({"k": keys, "n": numbers})})
        query = "match { $a: N $b: N $a.n < $b.n } return { count($a) as pairs }"
        assert ask(graph, query, max_memory=40 << 20) == [{"pairs": 4 * 999 * 500}]
        kept = "match { $a: N $b: N } return { $a.k, $b.k } order { $a.k }"
        with pytest.raises(MemoryExceeded):
            ask(graph, kept, max_memory=40 << 20)


HUGE = {
    "edges of pairs": "match { $a: Person $a knows $b $a $k:knows $b } return distinct { $k, $a }",
    "a hop": "match { $a: Person $a knows $b } return { $a, $b } order { $b.name }",
    "two hops": "match { $a: Person $a knows $b $b knows $c } return { $a, $c } order { $c.name }",
    "a walk": "match { $a: Person $a knows{1,3} $b } return { $a, $b } order { $b.name }",
    "values": "match { $a: Person $a knows $b } return { $a.bio, $b.bio, count($a) as n }",
    "a product": "match { $a: Person $b: Person } return { $a, $b } order { $a.name }",
}


@pytest.mark.parametrize("query", HUGE.values(), ids=HUGE)
def test_too_much_is_refused_before_it_is_there(circle, query, monkeypatch):
    monkeypatch.setattr(blocks, "FEW_VALUES", 0)
    ask(circle, query)
    tracemalloc.start()
    try:
        with pytest.raises(MemoryExceeded) as caught:
            ask(circle, query, max_memory=60_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.details["bytes"] > 60_000
    # The size is told before; what is left are the starts, flags, and the machinery itself.
    assert peak < max(caught.value.details["bytes"], 2_000_000)
