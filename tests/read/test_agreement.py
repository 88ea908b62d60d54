"""The engine and the naive evaluator give the same answers.

Random queries run against graphs in every state: fresh, changed by updates and deletes, on a
branch, with full, partial and no index coverage, through the handle that wrote and one that was
opened later, and by each way of traversal.
"""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import hypothesis
import lance
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph import Graph, QueryError
from omnigraph.commit.publisher import CommitIntent, Publication
from omnigraph.commit.rows import VersionRow
from omnigraph.commit.ulid import new_ulid, now_micros
from omnigraph.lang.query import typed
from omnigraph.lang.query.checked import CheckedRead
from omnigraph.lang.query.params import convert_params
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.storage.tables.types import CommittedTable
from tests.read.generate import (
    Question,
    World,
    make_question,
    make_value,
    make_world,
    partitions,
    questions,
    worlds,
)
from tests.read.naive import Answer, Data, answer, same
from tests.read.world import NOW, check, read_back, tables
from tests.rotation import rotation

pytestmark = pytest.mark.rotates(3)

MODES = ("auto", "indexed", "csr")
SEEDS = range(10)


@dataclass(frozen=True, repr=False)
class State:
    """A branch of a graph, and the rows it has."""

    label: str
    graph: Graph
    branch: str
    data: Data

    def __repr__(self) -> str:
        return f"<{self.label}, {self.branch}>"

    def ask(self, question: Question) -> None:
        """Compare the answers to one question; a text that is refused is refused alike."""
        params = {**question.params, typed.NOW_PARAMETER: NOW}
        try:
            query = check(self.graph.catalog, question.text)
        except QueryError:
            with pytest.raises(QueryError):
                self.graph.query(question.text, "q", params, branch=self.branch)
            return
        expected = answer(query, self.data, convert_params(query.params, params))
        result = self.graph.query(question.text, "q", params, branch=self.branch)
        compare(query, rows_of(result), expected)


# -- comparing ------------------------------------------------------------------------------------


def rows_of(result: Any) -> list[tuple[Any, ...]]:
    return [tuple(map(_plain, row.values())) for row in result.rows()]


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def compare(query: CheckedRead, actual: list[tuple[Any, ...]], expected: Answer) -> None:
    """Exactly the rows and the order that the query promises, and no more than that."""
    rounded = [_is_rounded(column.expr) for column in query.columns]

    def seen(row: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(_seen(value, near) for value, near in zip(row, rounded, strict=True))

    got, whole = list(map(seen, actual)), list(map(seen, expected.rows))
    wanted = whole[expected.window]
    if expected.total:
        assert got == wanted
        return
    if expected.ordered:
        positions = [key.expr.position for key in query.order]  # type: ignore[attr-defined]
        got_keys = [[row[at] for at in positions] for row in got]
        assert got_keys == [[row[at] for at in positions] for row in wanted]
    if expected.limit is None:
        assert Counter(got) == Counter(whole)
    else:
        assert len(got) == len(wanted)
        assert not Counter(got) - Counter(whole)


def _is_rounded(expr: typed.TypedExpr) -> bool:
    """Sums depend on the order in which they are taken."""
    return isinstance(expr, typed.Aggregate) and expr.function in (
        typed.AggregateFunction.SUM,
        typed.AggregateFunction.AVG,
    )


def _seen(value: Any, near: bool) -> Any:
    if near and isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.9g}")
    return type(value).__name__, same(value)


# -- graphs in every state ------------------------------------------------------------------------


def _fresh(graph: Graph, world: World, random: Random) -> None:
    """Everything in one commit, no index."""
    graph.append(tables(graph.catalog, world.data))


def _indexed(graph: Graph, world: World, random: Random) -> None:
    graph.append(tables(graph.catalog, world.data))
    graph.indexes.ensure()


def _partly_indexed(graph: Graph, world: World, random: Random) -> None:
    """Half of the edges come after the indexes were built, each in its own commit."""
    early = {name: rows[: len(rows) // 2] for name, rows in world.data.edges.items()}
    graph.append(tables(graph.catalog, Data(world.data.nodes, early)))
    graph.indexes.ensure()
    for name, rows in world.data.edges.items():
        for row in rows[len(rows) // 2 :]:
            graph.append(tables(graph.catalog, Data({}, {name: [row]})))


def _changed(graph: Graph, world: World, random: Random) -> None:
    """Rows were replaced and deleted, before and after indexes were built."""
    graph.append(tables(graph.catalog, world.data))
    change(graph, random)
    graph.indexes.ensure()
    change(graph, random)


def _compacted(graph: Graph, world: World, random: Random) -> None:
    """From many small commits, and then every table is written anew by Lance."""
    _partly_indexed(graph, world, random)
    change(graph, random)
    compact(graph)


def compact(graph: Graph) -> None:
    """Let Lance rewrite all tables, and show the graph what came of it."""
    store = graph._handle.store
    pins = store.manifest(None).current().pins
    versions, seen = [], {}
    for key, pin in pins.items():
        dataset = lance.dataset(store.root.path(pin.ref.path))
        dataset.optimize.compact_files(materialize_deletions_threshold=0.0)
        info = store.datasets.info(pin.ref, dataset.version)
        if dataset.version == pin.version or info is None:
            continue
        rows = dataset.count_rows()
        versions.append(VersionRow.of(key, CommittedTable(pin.ref, dataset.version, rows, info)))
        seen[key] = pin.version
    intent = CommitIntent(new_ulid(), None, now_micros())
    store.publisher.publish(store.manifest(None), Publication(seen, versions, commit=intent))


MAKERS: dict[str, Callable[[Graph, World, Random], None]] = {
    "fresh": _fresh,
    "indexed": _indexed,
    "partly indexed": _partly_indexed,
    "changed": _changed,
    "compacted": _compacted,
}
"""How a graph gets its rows; a new kind of housekeeping is a new entry."""


def change(graph: Graph, random: Random, branch: str = "main") -> None:
    """Delete a node with its edges, some edges, and update a property of every type."""
    data = read_back(graph, branch)
    for name, kind in graph.catalog.node_types.items():
        ids = [row["id"] for row in data.nodes[name]]
        if ids and random.random() < 0.5:
            text = f"query d($id: String) {{ delete {name} where name = $id }}"
            graph.mutate(text, params={"id": random.choice(ids)}, branch=branch)
        _update(graph, random, name, kind, "name", ids, branch)
    for name, kind in graph.catalog.edge_types.items():
        ids = [row["src"] for row in read_back(graph, branch).edges[name]]
        if ids and random.random() < 0.3:
            text = f"query d($id: String) {{ delete {name} where from = $id }}"
            graph.mutate(text, params={"id": random.choice(ids)}, branch=branch)
        _update(graph, random, name, kind, "from", ids, branch)


def _update(
    graph: Graph, random: Random, name: str, kind: Any, word: str, ids: list[str], branch: str
) -> None:
    properties = [p for p in kind.properties.values() if p.name != "name" and not p.type.is_list]
    if not properties or not ids:
        return
    prop = random.choice(properties)
    value = make_value(random, prop.type)
    if isinstance(value, int) and value > 2**63 - 1:
        value = 7  # what a parameter of type U64 can hold
    text = (
        f"query u($id: String, $to: {_parameter_type(prop.type)}) "
        f"{{ update {name} set {{ {prop.name}: $to }} where {word} = $id }}"
    )
    graph.mutate(text, params={"id": random.choice(ids), "to": value}, branch=branch)


def _parameter_type(type_: Any) -> str:
    return f"{type_.scalar}{'?' if type_.nullable else ''}"


def states(location: Path) -> Iterator[State]:
    """Graphs of fixed seeds, each in one of the states, on main and on a branch, opened twice."""
    for seed in SEEDS:
        random = Random(seed)
        world = make_world(random)
        name = list(MAKERS)[seed % len(MAKERS)]
        graph = Graph.init(location / f"{seed}.omni", world.schema, durability="os")
        MAKERS[name](graph, world, random)
        graph.branches.create("other")
        change(graph, random, "other")
        again = Graph.open(location / f"{seed}.omni", mode="r")
        for handle in (graph, again):
            for branch in ("main", "other"):
                yield State(f"seed {seed}, {name}", handle, branch, read_back(graph, branch))


@contextmanager
def traversal(mode: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if mode == "auto":
            patch.delenv("OMNIGRAPH_TRAVERSAL_MODE", raising=False)
        else:
            patch.setenv("OMNIGRAPH_TRAVERSAL_MODE", mode)
        yield


@pytest.fixture(scope="module", params=MODES)
def pool(request, tmp_path_factory) -> Iterator[list[State]]:
    """The states, opened and read under one way of traversal."""
    with traversal(request.param):
        actual = list(states(tmp_path_factory.mktemp("agreement")))
        yield actual
        for graph in {id(state.graph): state.graph for state in actual}.values():
            graph.close()


# -- the comparison itself ------------------------------------------------------------------------

CATALOG = compile_schema("node Aa { name: String @key  p0: I32? }")
ROWS = Data({"Aa": [{"id": n, "name": n, "p0": p} for n, p in (("a", 1), ("b", 1), ("c", None))]})


@pytest.mark.parametrize(
    ("tail", "right", "wrong"),
    [
        ("return { $v.name }", ["cab", "abc"], ["ab", "abb", "abcc"]),
        ("return { $v.name } limit 2", ["ab", "ca"], ["abc", "a", "aa", "ax"]),
        ("return { $v.name } order { $v.p0 }", ["cab"], ["cba", "abc", "ca"]),
        ("return { $v.name } order { $v.p0 desc } limit 2", ["ab"], ["ba", "ac"]),
        ("return distinct { $v.name, $v.p0 } order { $v.p0 }", ["cab", "cba"], ["abc", "cab c"]),
        ("return distinct { $v.name, $v.p0 } order { $v.p0 } limit 2", ["ca", "cb"], ["ab", "cc"]),
    ],
)
def test_the_comparison_accepts_what_is_promised_and_nothing_else(tail, right, wrong):
    query = check(CATALOG, f"query q() {{ match {{ $v: Aa }} {tail} }}")
    existing = {row["name"]: row["p0"] for row in ROWS.nodes["Aa"]}

    def rows(names: str) -> list[tuple[Any, ...]]:
        return [(name, existing.get(name))[: len(query.columns)] for name in names]

    for names in right:
        compare(query, rows(names), answer(query, ROWS))
    for names in wrong:
        with pytest.raises(AssertionError):
            compare(query, rows(names), answer(query, ROWS))


# -- the tests ------------------------------------------------------------------------------------


def _agree(pool: list[State], data: st.DataObject) -> None:
    state = data.draw(st.sampled_from(pool))
    state.ask(data.draw(questions(state.graph.catalog)))


def _partition(pool: list[State], data: st.DataObject) -> None:
    state = data.draw(st.sampled_from(pool))
    partition = data.draw(partitions(state.graph.catalog))

    def count(question: Question) -> int:
        result = state.graph.query(question.text, "q", question.params, branch=state.branch)
        return int(result.rows()[0]["n"])

    try:
        whole = count(partition.question())
        assert sum(map(count, partition.parts())) == whole
    except QueryError:
        return


@settings(max_examples=40)
@given(data=st.data())
def test_queries_give_what_the_naive_evaluator_gives(pool, data):
    _agree(pool, data)


@settings(max_examples=30)
@given(data=st.data())
def test_a_count_is_the_sum_over_true_false_and_unknown(pool, data):
    _partition(pool, data)


def _one_graph(world: World, requested: list[Question], location: Path, maker: str) -> None:
    with Graph.init(location / "graph.omni", world.schema, durability="os") as graph:
        MAKERS[maker](graph, world, Random(0))
        state = State(maker, graph, "main", read_back(graph))
        for question in requested:
            state.ask(question)


@settings(max_examples=6, suppress_health_check=[HealthCheck.data_too_large])
@given(data=st.data())
def test_random_graphs_answer_as_the_naive_evaluator_does(tmp_path_factory, data):
    world = data.draw(worlds())
    requested = data.draw(st.lists(questions(world.catalog), min_size=1, max_size=6))
    maker = data.draw(st.sampled_from(list(MAKERS)))
    _one_graph(world, requested, tmp_path_factory.mktemp("graph"), maker)


@pytest.mark.slow
@hypothesis.seed(rotation())
@settings(max_examples=800)
@given(data=st.data())
def test_many_queries_give_what_the_naive_evaluator_gives(pool, data):
    _agree(pool, data)


@pytest.mark.slow
@hypothesis.seed(rotation())
@settings(max_examples=300)
@given(data=st.data())
def test_many_counts_are_the_sum_over_true_false_and_unknown(pool, data):
    _partition(pool, data)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_many_random_graphs_answer_as_the_naive_evaluator_does(tmp_path, mode):
    makers = list(MAKERS)
    with traversal(mode):
        for number in range(20):
            random = Random(f"{mode}-{rotation()}-{number}")
            world = make_world(random)
            catalog = world.catalog
            requested = [make_question(random, catalog) for _ in range(25)]
            location = tmp_path / str(number)
            location.mkdir()
            _one_graph(world, requested, location, makers[number % len(makers)])
            shutil.rmtree(location)
