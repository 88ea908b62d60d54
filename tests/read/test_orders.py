"""Patterns in every order of their steps give the same rows, and a query has one plan.

The order of the steps depends on the sizes of the tables. Here the planner is told sizes at random,
so that it takes other orders than those that are good.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import numpy as np
import pytest

from omnigraph import Graph, Source
from omnigraph.commit.history import SnapshotRef
from omnigraph.lang.query.checked import Direction
from omnigraph.plan import order
from omnigraph.plan.costs import FOLLOW, NARROW_TEST, TEST
from omnigraph.plan.nodes import Intersect, Leg
from omnigraph.plan.statistics import ColumnFacts, Degrees, TableFacts, TableStatistics
from omnigraph.read import blocks, legs
from omnigraph.read.frame import Frame
from omnigraph.read.limits import Limits, ResourceGuard
from omnigraph.read.run import Run
from omnigraph.topology import adjacency
from tests.read.naive import Data, answer
from tests.read.test_agreement import compare, rows_of, traversal
from tests.read.world import check, read_back
from tests.rotation import rotation

SCHEMA = """
node Person { name: String @key  age: I32? }
node City { name: String @key }
edge Knows: Person -> Person { since: I32? }
edge Likes: Person -> Person
edge Lives: Person -> City
edge Near: City -> City
"""
PEOPLE, CITIES = 9, 4
QUESTIONS = 60


@pytest.fixture(scope="module", params=["auto", "csr", "indexed"])
def graph(request, tmp_path_factory) -> Iterator[tuple[Graph, Data]]:
    random = Random(rotation())
    people = [f"p{n}" for n in range(PEOPLE)]
    cities = [f"c{n}" for n in range(CITIES)]
    rows = [
        {"type": "Person", "data": {"name": n, "age": random.choice([None, 1, 2, 3])}}
        for n in people
    ]
    rows += [{"type": "City", "data": {"name": name}} for name in cities]
    for edge, count in (("Knows", 22), ("Likes", 12)):
        for _ in range(count):
            ends = {"from": random.choice(people), "to": random.choice(people)}
            rows.append({"edge": edge, **ends})
    rows += [
        {"edge": "Lives", "from": n, "to": random.choice(cities)}
        for n in people
        if random.random() < 0.8
    ]
    rows += [
        {"edge": "Near", "from": a, "to": b}
        for a, b in itertools.product(cities, cities)
        if random.random() < 0.4
    ]
    with (
        traversal(request.param),
        Graph.init(tmp_path_factory.mktemp("orders") / "g.omni", SCHEMA, durability="os") as made,
    ):
        made.load(rows)
        yield made, read_back(made)


# -- random patterns ------------------------------------------------------------------------------


def pattern(random: Random) -> tuple[list[str], list[str]]:
    """The clauses of a pattern, and the people in it."""
    count = random.randint(2, 5)
    people = [f"$v{n}" for n in range(count)]
    clauses = [f"{name}: Person" for name in people]
    if random.random() < 0.3:
        clauses[0] = f'{people[0]}: Person {{ name: "p{random.randrange(PEOPLE)}" }}'
    for number in range(1, count):
        clauses.append(edge(random, people[random.randrange(number)], people[number]))
    for _ in range(random.choice([0, 0, 1, 1, 2])):
        clauses.append(edge(random, *random.choices(people, k=2)))
    if random.random() < 0.4:
        one, other = random.choices(people, k=2)
        clauses += [f"{one} lives $x", f"{other} lives $x"]
    elif random.random() < 0.3:
        clauses += [f"{random.choice(people)} lives $x", "$x near $y"]
    for _ in range(random.choice([0, 1, 1, 2])):
        clauses.append(condition(random, people))
    if random.random() < 0.5:
        clauses.append(negation(random, people))
    return clauses, people


def shape(random: Random) -> tuple[list[str], list[str]]:
    """The clauses of a pattern with a well-known shape, and the people in it."""
    kind = random.choice(["cycle", "cycle", "star", "chain", "clique", "diamond", "absent cycle"])
    word = random.choice(["knows", "<knows>", "likes", "<likes>"])
    count = {"chain": 8, "clique": 4, "diamond": 4, "star": 5}.get(kind, random.choice([3, 4]))
    people = [f"$v{n}" for n in range(count)]
    if kind == "star":
        clauses = [edge(random, people[0], other) for other in people[1:]]
    elif kind == "clique":
        clauses = [f"{a} {word} {b}" for a, b in itertools.combinations(people, 2)]
    else:
        clauses = [f"{a} {word} {b}" for a, b in itertools.pairwise(people)]
    if kind == "chain":
        # Named at one end, or there would be too many to enumerate.
        clauses = [f'$v0: Person {{ name: "p{random.randrange(PEOPLE)}" }}', *clauses]
        clauses = [clause.replace("<", "").replace(">", "") for clause in clauses]
    if kind in ("cycle", "diamond"):
        clauses.append(f"{people[-1]} {word} {people[0]}")
    if kind == "diamond":
        clauses.append(f"{people[0]} {word} {people[2]}")
    if kind == "absent cycle":
        word = random.choice([word, "knows", "<likes>"])
        clauses.append(f"not {{ {people[-1]} {word} $n  $n {word} {people[0]} }}")
    for _ in range(random.choice([0, 0, 1, 2])):
        one, other = random.sample(people, 2)
        clauses.append(f"{one}.name != {other}.name")
    return clauses, people


def edge(random: Random, one: str, other: str) -> str:
    word = random.choice(["knows", "<knows>", "likes", "<likes>", "knows{1,2}", "$e knows"])
    if word == "$e knows":
        return f"{one} $e{random.randrange(10**6)}:knows {other}"
    if random.random() < 0.3:
        one, other = other, one
    return f"{one} {word} {other}"


def condition(random: Random, people: list[str]) -> str:
    one, other = random.choices(people, k=2)
    return random.choice(
        [
            f"{one}.name != {other}.name",
            f"{one}.name != {other}.name",
            f"{one}.name = {other}.name",
            f"{one}.age > {other}.age",
            f"{one}.age = 2",
            f"{one}.age != {other}.age",
        ]
    )


def negation(random: Random, people: list[str]) -> str:
    one, other = random.choices(people, k=2)
    word = random.choice(["knows", "<knows>", "likes"])
    return random.choice(
        [
            f"not {{ {one} {word} {other} }}",
            f"not {{ {one} {word} $n  $n {word} {other} }}",
            f"not {{ {one} {word} $n  $n.age > {other}.age }}",
            f"not {{ {one} lives $n  {other} lives $n }}",
            f"not {{ {one} {word} $n  not {{ $n likes {other} }} }}",
        ]
    )


def question(random: Random) -> tuple[list[str], str]:
    clauses, people = random.choice([pattern, pattern, shape])(random)
    one, other = random.choice(people), random.choice(people)
    returned = random.choice(
        [
            f"{{ count({one}) as n }}",
            f"{{ count({one}) as n }}",
            f"{{ count(distinct {one}) as n, count({other}) as m }}",
            f"{{ {one}.name, count({other}) as n }}",
            f"{{ {one}.name, {other}.age }}",
            f"distinct {{ {one}.name }}",
            f"{{ {one}.name }} order {{ {one}.name }} limit 5",
            f"{{ max({one}.age) as a, sum({other}.age) as b }}",
        ]
    )
    return clauses, returned


def text_of(clauses: list[str], returned: str) -> str:
    return f"query q() {{ match {{ {'  '.join(clauses)} }} return {returned} }}"


def random_facts(random: Random) -> TableFacts | None:
    """Facts about a table that need not be true; often none."""

    def pair() -> tuple[float, float]:
        return 2.0 ** random.randrange(-3, 9), 2.0 ** random.randrange(-3, 9)

    if random.random() < 0.3:
        return None
    fractions = random.choice([0.0, 0.5, 1.0]), random.choice([0.0, 0.5, 1.0])
    through = random.choice([None, 0.0, *pair()])
    most = random.choice([(1.0, 1.0), (1.0, 64.0), (64.0, 1.0), (0.0, 0.0), (256.0, 256.0)])
    column = ColumnFacts(random.choice([0.0, 1.0, 8.0]), random.choice([0.0, 0.5, 1.0]))
    return TableFacts({"age": column}, Degrees(pair(), fractions, pair(), through, most))


@contextmanager
def planned(random: Random) -> Iterator[None]:
    """Tables have random sizes for the planner, and its choices are made for it."""

    def of(catalog, types, edge_types, *_):
        nodes = {name: 2.0 ** random.randrange(25) for name in catalog.node_types}
        rows = {name: 2.0 ** random.randrange(25) for name in catalog.edge_types}
        made = {name: random_facts(random) for name in (*nodes, *rows)}
        return TableStatistics(catalog, nodes, rows, made)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableStatistics, "of", of)
        match random.randrange(4):
            case 0:
                patch.setattr(order, "_is_cheaper", lambda *_: True)
            case 1:
                patch.setattr(order, "_is_cheaper", lambda *_: False)
            case 2:
                patch.setattr(order, "_MOST_VARIABLES", 1)
        # Each threshold on both of its sides.
        patch.setattr(legs, "_WORTH_IT", random.choice([0.0, 0.9, 2.0]))
        patch.setattr(legs, "FEW_STARTS", random.choice([0, 4_096]))
        patch.setattr(blocks, "ROWS", random.choice([1, 7, 1 << 20]))
        patch.setattr(adjacency, "_FEW_NEIGHBOURS", random.choice([0, 4]))
        patch.setattr(adjacency, "_FEW_TESTS", random.choice([0, 4_096]))
        patch.setattr(adjacency, "_MOST_BITS", random.choice([0, 1 << 28]))
        yield


def agree(graph: tuple[Graph, Data], random: Random) -> None:
    made, data = graph
    clauses, returned = question(random)
    text = text_of(clauses, returned)
    query = check(made.catalog, text)
    expected = answer(query, data)
    for _ in range(3):
        with planned(random):
            try:
                compare(query, rows_of(made.query(text)), expected)
            except BaseException as error:
                error.add_note(f"{text}\n{made.snapshot().explain(text)}")
                raise


@pytest.mark.parametrize("part", range(3))
def test_every_order_gives_the_same_rows(graph, part, request):
    random = Random(1_000 * rotation() + part)
    # Looked up one by one, neighbours take ten times as long: a quick run asks less of them.
    is_indexed = request.node.callspec.params["graph"] == "indexed"
    for _ in range(QUESTIONS // (27 if is_indexed else 6)):
        agree(graph, random)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(6))
def test_every_order_gives_the_same_rows_of_many_patterns(graph, part):
    random = Random(f"{rotation()} {part}")
    for _ in range(QUESTIONS):
        agree(graph, random)


def test_the_joins_of_an_intersection_are_made_once(graph):
    """Results are cached by the identity of a step: a step that is gone may lend it to another."""
    made, _ = graph
    handle = made._handle
    context = handle.read(SnapshotRef("main"))
    text = "query q() { match { $a knows $b $b knows $c $a knows $c } return { count($a) as n } }"
    prepared = handle.plans.read(context.catalog, Source("<query>", text), None)
    run = Run(handle.query_context(context), ResourceGuard(Limits()), prepared.info)
    step = Intersect(
        (Leg("a", "Knows", Direction.OUT), Leg("b", "Knows", Direction.OUT)), "c", "Person"
    )
    assert run.joins(step)[0] is run.joins(step)[0]


def test_blocks_of_an_intersection_have_the_rows_of_the_leading_side(graph, monkeypatch):
    """A side with more neighbours leads where tests against the other are cheaper."""
    made, _ = graph
    handle = made._handle
    context = handle.read(SnapshotRef("main"))
    text = "query q() { match { $p lives $x $q lives $x $p knows $q } return { count($p) as n } }"
    prepared = handle.plans.read(context.catalog, Source("<query>", text), None)
    run = Run(handle.query_context(context), ResourceGuard(Limits()), prepared.info)
    step = Intersect(
        (Leg("p", "Knows", Direction.OUT), Leg("x", "Lives", Direction.IN)), "q", "Person"
    )
    people, cities = run.nodes("Person"), run.nodes("City")
    pairs = list(itertools.product(people.index().numbers, cities.index().numbers))
    starts, ends = np.array(pairs, np.int32).T
    frame = Frame(len(pairs), {"p": starts, "x": ends})
    knows = run.edges("Knows").index().adjacency("out").degrees(starts)
    lives = run.edges("Lives").index().adjacency("in").degrees(ends)
    monkeypatch.setattr(legs, "FEW_STARTS", 0)
    monkeypatch.setattr(legs, "_WORTH_IT", 2.0)
    monkeypatch.setattr(adjacency, "_FEW_NEIGHBOURS", 1)
    # An edge is followed in each case, and the other one is tested.
    led_by_knows, led_by_lives = FOLLOW + NARROW_TEST, FOLLOW + TEST
    expected = np.where(knows * led_by_knows <= lives * led_by_lives, knows, lives)
    assert legs.leads_of(run, step, frame).tested.tolist() == expected.tolist()
    assert (expected > np.minimum(knows, lives)).any()
    monkeypatch.setattr(legs, "_WORTH_IT", 0.0)
    assert legs.leads_of(run, step, frame).tested.tolist() in (knows.tolist(), lives.tolist())


def test_a_query_has_one_plan_whatever_the_order_of_its_clauses(graph):
    made, _ = graph
    random = Random(rotation())
    for _ in range(40):
        clauses, returned = question(random)
        plans = set()
        for _ in range(4):
            # A block comes after what it refers to.
            random.shuffle(clauses)
            clauses.sort(key=lambda clause: clause.startswith("not"))
            text = text_of(clauses, returned)
            plan = str(made.snapshot().explain(text)).partition("expected:")[0]
            plans.add(re.sub(r"~\d+", "~", plan))
        assert len(plans) == 1, f"{text}\n" + "\n".join(plans)
