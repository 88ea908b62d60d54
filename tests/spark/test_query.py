"""Every operation of a plan on Spark gives the rows, types and order of the embedded engine."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

from omnigraph import Cancel, Graph
from omnigraph.errors import (
    Cancelled,
    InputError,
    LimitExceeded,
    QueryTimeout,
    RowLimitExceeded,
    SparkError,
    StorageError,
)
from omnigraph.spark import SparkEngine
from omnigraph.spark.query import result, sources
from omnigraph.spark.query import run as run_query
from omnigraph.spark.query.frame import Driver
from omnigraph.spark.session.failures import ROWS_LOST, Remote
from tests.read.test_execution import SCHEMA as VALUES
from tests.read.test_execution import THINGS
from tests.read.test_traversal import SCHEMA, fill
from tests.spark.query_session import all_same, both, quick_session, same

WALK = "match { $a: Person $a knows{1,3} $b } return { $a.name, $b.name } order { $a.name }"


@pytest.fixture(scope="module")
def session(spark: SparkEngine) -> Any:
    return quick_session(spark)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory):
    """Walks, loops, parallel edges; the same ids in several types."""
    with Graph.init(tmp_path_factory.mktemp("g") / "g.omni", SCHEMA, durability="os") as graph:
        fill(graph)
        yield graph


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory):
    """A type with every kind of value."""
    with Graph.init(tmp_path_factory.mktemp("v") / "v.omni", VALUES, durability="os") as graph:
        graph.load({"Thing": pa.table(THINGS)})
        yield graph


# -- steps ----------------------------------------------------------------------------------------


STEPS = [
    "match { $p: Person } return { $p.name, $p.age }",
    'match { $p: Person { name: "bob" } } return { $p }',
    'match { $p: Person $p.age > 26 $p.name starts_with "c" } return { $p.name }',
    "match { $a: Person $a knows $b } return { $a.name, $b.name }",
    WALK,
    "match { $a: Person $a worksAt{2,3} $c } return { $a.name, $c.name }",
    "match { $a: Person $a $k:knows $b } return { $a.name, $k.since, $k } order { $k.since }",
    "match { $a: Person $a knows{1,2} $b $b likes $a } return { $a, $b }",
    "match { $a: Person $a knows $_ $a likes $_ } return { $a.name }",
    "match { $p: Person not { $p knows $_ } } return { $p.name }",
    "match { $p: Person not { $p knows $q not { $q likes $p } } } return { $p.name }",
    "match { $p: Person $c: Company not { $p worksAt $c } } return { $p, $c }",
    "match { $p: Person $p knows $q ($q.age > 30) is null } return { $p, $q.age > 30 as u }",
]
MORE_STEPS = [
    "match { $p: Person $c: Company } return { $p, $c } order { $c.name desc, $p.age } limit 5",
    "match { $a: Person $b knows $a $b.age >= 30 } return { $a.name, $b.name }",
    "match { $a: Person $a <knows> $b } return { $a.name, $b.name }",
    "match { $a: Person $a <knows>{2,4} $b $b.age > 20 } return { $a.name, $b.name }",
    "match { $a: Person $a $k:<knows> $b $k.weight > 0.5 } return { $a, $b, $k.weight }",
    "match { $a: Person $a knows $b $b knows $c $c knows $a } return { $a, $b, $c }",
    "match { $a: Person $a $k:<knows> $a } return { $a.name, $k.weight }",
    "match { $a: Person $a worksAt $c $c about $t $t part $u } return { $a, $c, $t, $u }",
    "match { $p: Person not { $_ knows $p } } return { $p.name }",
    "match { $p: Person $p knows $q not { $q likes $p } } return { $p.name, $q.name }",
    "match { $p: Person not { $p knows{1,3} $q $q.age > $p.age } } return { $p.name }",
]
GROUPS = [
    "match { $a: Person } return { count($a) as n, avg($a.age) as m, max($a.name) as l }",
    "match { $a: Person $a.age > 99 } return { count($a) as n, sum($a.age) as s }",
    "match { $a: Person $a knows $b } return { $a, count($b) as n, min($b.age) as m }",
    "match { $a: Person $a knows $b $b knows $c } return { count($c) as n }",
    "match { $a: Person $b: Person $c: Person } return { $b.name, count($c) as n }",
    "match { $a: Person $a <knows>{1,3} $b } return { $a.name, count(distinct $b) as n } "
    "order { n desc, $a.name } limit 3 offset 1",
    "match { $a: Person $a knows $_ } return { sum($a.age) as s, count(distinct $a.age) as d }",
    "match { $a: Person $a worksAt $c } return distinct { $c as c } order { c }",
    "match { $a: Person $a knows $b } return distinct { $b.age } order { $b.age desc } limit 2",
]


def test_steps(graph: Graph, session: Any):
    counts = all_same(graph, session, STEPS)
    # Behind an edge between two types there is no second edge.
    assert [text for text, count in zip(STEPS, counts, strict=True) if not count] == [
        text for text in STEPS if "worksAt{2,3}" in text
    ]


@pytest.mark.slow
def test_more_steps(graph: Graph, session: Any):
    assert all(all_same(graph, session, MORE_STEPS))


def test_groups(graph: Graph, session: Any):
    assert all(all_same(graph, session, GROUPS))


# -- values ---------------------------------------------------------------------------------------


def test_values_of_every_type_come_back_as_they_are(values: Graph, session: Any):
    names = [name for name in THINGS if name != "slug"]
    shown = ", ".join(f"$t.{name}" for name in names)
    assert len(same(values, session, f"match {{ $t: Thing }} return {{ $t.slug, {shown} }}")) == 5
    grouped = [f"match {{ $t: Thing }} return {{ $t.{n} as v, count($t) as n }}" for n in names]
    different = [len({str(value) for value in THINGS[name]}) for name in names]
    assert all_same(values, session, grouped) == different


def test_values_of_every_type_have_the_same_order(values: Graph, session: Any):
    names = [name for name in THINGS if name not in ("tags", "numbers")]
    texts = [
        f"match {{ $t: Thing }} return {{ $t.slug }} order {{ $t.{name}{way} }}"
        for name in names
        for way in ("", " desc")
    ]
    assert set(all_same(values, session, texts)) == {5}
    ends = ", ".join(f"min($t.{n}) as a{n}, max($t.{n}) as b{n}" for n in names if n != "done")
    assert len(same(values, session, f"match {{ $t: Thing }} return {{ {ends} }}")) == 1


def test_membership_in_a_list_of_nulls(values: Graph, session: Any):
    names = [name for name in THINGS if name not in ("tags", "numbers")]
    unknown = " ".join(f"($t.{name} in [null]) is null" for name in names)
    shown = ", ".join(f"$t.{name} in [null] as x{name}" for name in names)
    texts = [
        f"match {{ $t: Thing {unknown} }} return {{ $t.slug, {shown} }}",
        "match { $t: Thing $t.count in [null] } return { $t.slug }",
        "match { $t: Thing not ($t.count in [1, null]) } return { $t.slug }",
        "match { $t: Thing ($t.count in [1, null]) is null } return { $t.slug }",
    ]
    assert all_same(values, session, texts) == [5, 0, 0, 4]
    long = ", ".join(map(str, range(10_001)))
    text = f"match {{ $t: Thing $t.count in [{long}] }} return {{ $t.slug }}"
    assert same(values, session, text) == [("a",)]


def test_conditions_of_every_kind(values: Graph, session: Any):
    conditions = (
        "$t.big > 5",
        "$t.count >= 9007199254740993",
        "$t.wide in [0.0, 7.5]",
        'not ($t.kind = "red")',
        '$t.tags contains "y"',
        "$t.numbers contains $t.count",
        "$t.displayName contains $t.slug",
        '$t.moment > datetime("2024-01-01T00:00:00Z")',
        '$t.day <= date("2024-01-01")',
    )
    texts = [
        f"match {{ $t: Thing }} return {{ $t.slug, {condition} as c }}" for condition in conditions
    ]
    texts += [f"match {{ $t: Thing {condition} }} return {{ $t.slug }}" for condition in conditions]
    assert len(all_same(values, session, texts)) == 18


def test_an_empty_type_and_an_empty_result(values: Graph, session: Any):
    assert same(values, session, "match { $e: Empty } return { $e.number }") == []
    assert same(values, session, "match { $e: Empty } return { count($e) as n }") == [(0,)]
    assert same(values, session, "match { $e: Empty $e leads{1,3} $f } return { $f }") == []
    assert same(values, session, "match { $t: Thing $t.count > 5 } return { $t } limit 0") == []
    # Nothing leads anywhere, so everybody is left.
    text = "match { $t: Thing not { $t.slug is not null $e: Empty } } return { $t.slug }"
    assert len(same(values, session, text)) == 5


# -- which state, which Spark ---------------------------------------------------------------------


def test_both_ways_to_reach_spark(graph: Graph, engine: SparkEngine):
    session = quick_session(engine)
    assert len(same(graph, session, WALK.replace("{1,3}", "{1,2}"))) == 9
    grouped = "match { $a: Person $a knows $b } return { $a.name, count($b) as n } order { n desc }"
    assert same(graph, session, grouped)[0] == ("cat", 2)
    without = "match { $p: Person not { $p knows $_ } } return { $p.name } limit 4"
    assert same(graph, session, without) == [("eve",), ("fay",)]


def test_an_earlier_state_and_a_branch(tmp_path, session: Any):
    names = "match { $p: Person } return { $p.name, $p.age } order { $p.name }"
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        first = graph.mutate('query q() { insert Person { name: "ann", age: 3 } }')
        graph.branches.create("other")
        graph.mutate('query q() { insert Person { name: "bob" } }', branch="other")
        graph.mutate('query q() { update Person set { age: 4 } where name = "ann" }')
        assert same(graph, session, names) == [("ann", 4)]
        assert same(graph, session, names, at=first.commit_id) == [("ann", 3)]
        assert same(graph, session, names, branch="other") == [("ann", 3), ("bob", None)]


def test_a_handle_starts_spark_for_its_queries(graph: Graph, spark: SparkEngine):
    """And shares it with whoever has it already."""
    rows = graph.query(
        "query q() { match { $p: Person } return { count($p) as n } }", engine="spark"
    ).rows()
    assert rows == [{"n": 6}]
    assert spark.session.range(3).count() == 3


def test_an_unknown_engine_is_refused(graph: Graph):
    with pytest.raises(InputError, match="invalid engine"):
        graph.query("query q() { match { $p: Person } return { $p } }", engine="flink")  # type: ignore[arg-type]


# -- larger than fits -----------------------------------------------------------------------------


def test_ends_are_found_by_a_join_where_ids_do_not_fit(
    graph: Graph, session: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sources, "MOST_IDS", 0)
    assert len(same(graph, session, WALK)) == 10
    text = "match { $a: Person $a $k:worksAt $c } return { $a, $c, $k.role }"
    assert len(same(graph, session, text)) == 3


def test_walks_over_tables_of_several_parts(
    tmp_path, session: Any, monkeypatch: pytest.MonkeyPatch
):
    """Each part is a share of its own: Spark then knows less of what it has computed."""
    monkeypatch.setattr(sources, "_SPLIT_ROWS", 1)
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        for name in ("ann", "bob", "cat"):
            graph.append({"Person": pa.table({"name": [name]})})
        ends = {"from": ["ann", "bob", "cat"], "to": ["bob", "cat", "cat"]}
        graph.load({"Knows": pa.table(ends)})
        text = "match { $a: Person $a knows{1,2} $b } return { $a.name, $b.name }"
        assert len(same(graph, session, text)) == 4


@pytest.mark.slow
def test_large_tables_are_shared_and_results_come_in_pieces(
    tmp_path, session: Any, monkeypatch: pytest.MonkeyPatch
):
    """More rows than a worker holds whole, in several parts of the table."""
    monkeypatch.setattr(sources, "_SPLIT_ROWS", 20_000)
    monkeypatch.setattr(result, "_FEW", 10)
    names = [f"p{number:05}" for number in range(60_000)]
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        ages = pa.array([number % 90 for number in range(60_000)], pa.int32())
        edges_ = {"from": names, "to": names[1:] + names[:1]}
        graph.append({"Person": pa.table({"name": names, "age": ages})})
        graph.load({"Knows": pa.table(edges_)})
        few = 'match { $p: Person { name: "p00007" } $p knows{1,3} $q } return { $q.name, $q.age }'
        assert len(same(graph, session, few)) == 3
        some = "match { $p: Person $p.age < 3 $p knows $q } return { $p.name, $q.age }"
        assert len(same(graph, session, f"{some} order {{ $p.name desc }}")) == 2001
        assert len(same(graph, session, f"{some} order {{ $q.age, $p.name }} limit 40")) == 40
        everything = (
            "match { $p: Person } return { $p.name, $p.age } order { $p.age, $p.name desc }"
        )
        assert len(same(graph, session, everything)) == 60_000
        counts = "match { $p: Person $p knows $q $q knows $r } return { count($r) as n }"
        assert same(graph, session, counts) == [(60_000,)]
        actual, _ = both(graph, session, "match { $p: Person } return { $p.name } limit 100")
        assert actual.num_rows == 100
        four = "$a: Person $b: Person $c: Person $d: Person"
        beyond = f"query q() {{ match {{ {four} }} return {{ count($a) as n }} }}"
        with pytest.raises(LimitExceeded, match="more rows than 64 bits can count"):
            graph.query(beyond, engine="spark", spark=session)


# -- limits and failures --------------------------------------------------------------------------


def test_limits_hold(graph: Graph, session: Any):
    text = "match { $a: Person $b: Person $c: Person } return { $a, $b, $c }"
    with pytest.raises(QueryTimeout):
        both(graph, session, text, timeout=0)
    with pytest.raises(RowLimitExceeded, match="more than 5 rows"):
        both(graph, session, text, max_rows=5)
    assert len(same(graph, session, f"{text} limit 5", max_rows=5)) == 5


def test_a_query_is_cancelled_while_it_runs(
    graph: Graph, session: Any, monkeypatch: pytest.MonkeyPatch
):
    cancel, inside, reported = Cancel(), threading.Event(), []
    real = Driver.checkpoint

    def slow(self: Driver, data: Any) -> Any:
        # Longer than anybody waits; Spark ends it.
        sleep = "reflect('java.lang.Thread', 'sleep', CAST(600000 AS BIGINT))"
        long = self.engine.session.range(2).selectExpr(f"{sleep} AS done")
        inside.set()
        return real(self, long)

    def query() -> None:
        try:
            graph.query(
                f"query q() {{ {WALK} }}", engine="spark", spark=session, cancel=cancel
            ).rows()
        except Cancelled as error:
            reported.append(error.message)

    monkeypatch.setattr(Driver, "checkpoint", slow)
    running = threading.Thread(target=query)
    running.start()
    assert inside.wait(60)
    cancel.set()
    running.join(60)
    assert reported == ["the query was cancelled"]


def _losing(real: Any, after: int, losses: int) -> Any:
    """Rows that are lost behind some of their batches, so many times."""
    left = [losses]

    def rows(*args: Any) -> Any:
        for number, batch in enumerate(real(*args)):
            if left[0] and number == after:
                left[0] -= 1
                lost = SparkError("query: executors of the cluster were lost")
                raise lost from Remote(f"[{ROWS_LOST}] Checkpoint block rdd_7_0 not found!")
            yield batch

    return rows


ORDERED = "match { $p: Person } return { $p.name } order { $p.name }"


@pytest.mark.parametrize(
    ("text", "after", "losses", "is_given"),
    [
        (ORDERED, 0, 3, True),
        (ORDERED, 2, 3, True),
        (ORDERED, 0, 4, False),
        ("match { $p: Person } return { $p.name }", 0, 1, True),
        ("match { $p: Person } return { $p.name }", 2, 1, False),
        (f"{ORDERED} limit 4 offset 1", 0, 1, True),
    ],
)
def test_a_query_whose_rows_are_lost_starts_again(
    text: str,
    after: int,
    losses: int,
    is_given: bool,
    graph: Graph,
    session: Any,
    monkeypatch: pytest.MonkeyPatch,
):
    """Unless some were given that cannot be told from those to come."""

    def one_by_one(*args: Any) -> Any:
        table = pa.table({"p.name": sorted(["ann", "bob", "cat", "dan", "eve", "fay"])})
        return iter(table.to_batches(max_chunksize=1))

    monkeypatch.setattr(run_query, "_rows", _losing(one_by_one, after, losses))
    if is_given:
        same(graph, session, text)
    else:
        with pytest.raises(SparkError, match="were lost"):
            same(graph, session, text)


def test_what_a_worker_cannot_read_is_told_as_by_the_embedded_engine(tmp_path, session: Any):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        graph.load({"Person": pa.table({"name": ["ann"]})})
        query = "query q() { match { $p: Person } return { $p.name } }"
        graph.snapshot().read("Person")
        for file in (tmp_path / "g.omni" / "nodes").rglob("*.lance"):
            if file.is_file():
                file.unlink()
        with pytest.raises(StorageError) as caught:
            graph.query(query, engine="spark", spark=session).rows()
        assert str(tmp_path) not in caught.value.message


def test_no_plan_shows_how_storage_is_reached(
    graph: Graph, spark: SparkEngine, session: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        graph._handle.store.datasets, "options", {"aws_secret_access_key": "hush-hush-hush"}
    )
    plans = []
    real = Driver.checkpoint

    def kept(self: Driver, data: Any) -> Any:
        plans.append(data._jdf.queryExecution().toString())
        return real(self, data)

    monkeypatch.setattr(Driver, "checkpoint", kept)
    assert len(same(graph, session, WALK)) == 10
    assert plans
    assert not [plan for plan in plans if "hush" in plan or "g.omni" in plan]
