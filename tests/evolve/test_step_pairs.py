"""Any steps of a plan taken together, on rows, indexes and history, against a model in Python."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterable
from itertools import combinations, islice
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph, verify_graph
from omnigraph.errors import HistoryGone
from tests.evolve.step_model import (
    EDGE_STEPS,
    KEYED_STEPS,
    NODE_STEPS,
    Kind,
    Prop,
    Step,
    World,
    after,
    first_world,
    is_possible,
    new_row,
)
from tests.rotation import in_turn, rotation, sample

pytestmark = pytest.mark.rotates(6)

Case = tuple[str, tuple[Step, ...]]
"""Steps, and the type that they are about."""
Start = tuple[Path, World]
"""A graph, and what it shows."""

STEPS = {"T": NODE_STEPS, "E": EDGE_STEPS, "C": KEYED_STEPS}
QUICK_PAIRS = 8
TRIPLES = 24
DAYS = 5
"""In so many days the slow tests go through all pairs."""
GOING_ON = 4
"""Of all pairs one of so many is written to, merged and verified after the apply."""
TAG = "v1"
_SEARCHED = ("i", "s", "e", "new_a3")


def is_case(case: Case) -> bool:
    return is_possible(first_world(case[0]), case[1])


def pairs_with(subject: str, step: Step) -> list[Case]:
    """A step together with those that follow it in the list and have their turn today."""
    steps = STEPS[subject]
    later = steps[steps.index(step) + 1 :]
    return in_turn(filter(is_case, ((subject, (step, other)) for other in later)), DAYS)


def some_pairs() -> list[Case]:
    """Other ones each day."""
    every = [(s, chosen) for s, steps in STEPS.items() for chosen in combinations(steps, 2)]
    return list(islice(filter(is_case, sample(every, 3 * QUICK_PAIRS, "pairs")), QUICK_PAIRS))


def some_triples(subject: str) -> list[Case]:
    """Some of tens of thousands, others each day."""
    every = [(subject, chosen) for chosen in combinations(STEPS[subject], 3)]
    return list(islice(filter(is_case, sample(every, 3 * TRIPLES, "triples")), TRIPLES))


def name_of(one: Any) -> str:
    return one if isinstance(one, str) else " + ".join(map(str, one))


# -- the graph ------------------------------------------------------------------------------------


def row_id(kind: Kind, row: dict[str, Any], number: int) -> str:
    if not kind.is_node:
        return f"e{number}"
    parts = {kind.props[handle].name: row[handle] for handle in ("key", "a", "b") if handle in row}
    if "a" in row:
        return json.dumps([str(parts[name]) for name in sorted(parts)], separators=(",", ":"))
    return str(row["key"])


def record(world: World, subject: str, number: int, *, bare: bool = False) -> dict[str, Any]:
    """Add a row to the model, and give it as a load takes it."""
    kind = world.kinds[subject]
    row = new_row(kind, number)
    for handle, prop in kind.props.items():
        if prop.nullable and bare and handle not in ("j", "w"):
            row[handle] = None
    actual = row_id(kind, row, number)
    kind.rows[actual] = row
    data = {**kind.given(row), "id": actual}
    if kind.ends is None:
        return {"type": kind.name, "data": data}
    ids = sorted(world.kinds["T"].rows)
    return {"edge": kind.name, "from": ids[number % len(ids)], "to": ids[0], "data": data}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Start:
    """Rows in several fragments, some changed and deleted; indexes over a part; a merged branch."""
    path = tmp_path_factory.mktemp("pairs") / "g.omni"
    world = first_world("T")
    with Graph.init(path, world.text(), durability="os") as graph:
        for numbers, bare in (((0, 1, 2), False), ((3, 4), True)):
            graph.load(
                [record(world, s, n, bare=bare) for s in ("T", "C", "Z", "E") for n in numbers]
            )
            if not bare:
                graph.indexes.ensure()
        graph.branches.create("side")
        graph.load([record(world, s, 5) for s in ("T", "C", "E")], branch="side")
        graph.merge("side", "main")
        graph.branches.delete("side")
        for kind in (world.kinds[name] for name in ("T", "C", "E")):
            graph.mutate(f"query m() {{ update {kind.name} set {{ i: 42 }} where j = 1 }}")
            graph.mutate(f"query m() {{ delete {kind.name} where j = 2 }}")
            for actual, row in list(kind.rows.items()):
                row["i"] = 42 if row["j"] == 1 else row["i"]
                if row["j"] == 2:
                    del kind.rows[actual]
        graph.tags.create(TAG)
        edges = set(graph.snapshot().read("Knows", ["id"])["id"].to_pylist())
        kind = world.kinds["E"]
        kind.rows = {actual: row for actual, row in kind.rows.items() if actual in edges}
    return path, world


# -- what it shows --------------------------------------------------------------------------------


def check_rows(graph: Graph, world: World, **at: Any) -> None:
    for kind in world.kinds.values():
        check_type(graph, kind, **at)


def check_type(graph: Graph, kind: Kind, **at: Any) -> None:
    snapshot = graph.snapshot(**at)
    blobs = {handle for handle, prop in kind.props.items() if prop.scalar == "Blob"}
    wanted = {
        actual: {
            kind.props[handle].name: item for handle, item in row.items() if handle not in blobs
        }
        for actual, row in kind.rows.items()
    }
    names = [prop.name for handle, prop in kind.props.items() if handle not in blobs]
    shown = {row.pop("id"): row for row in snapshot.read(kind.name, ["id", *names]).to_pylist()}
    assert shown == wanted
    assert snapshot.count(kind.name) == len(wanted)
    for handle in blobs:
        for actual, row in kind.rows.items():
            content = snapshot.read_blob(kind.name, actual, kind.props[handle].name)
            assert content == (None if row[handle] is None else b"hello")


def check_queries(graph: Graph, kind: Kind) -> None:
    """Filters and searches find what the rows say, whatever the indexes know."""
    actual = [kind.props[handle] for handle in _SEARCHED if handle in kind.props]
    for prop in actual:
        handle = next(existing for existing, item in kind.props.items() if item is prop)
        for wanted in {row[handle] for row in kind.rows.values()} - {None}:
            ids = [i for i, row in kind.rows.items() if row[handle] == wanted]
            assert ask(graph, kind, prop, wanted) == sorted(ids), (prop.name, wanted)
    if not kind.is_node:
        return
    if "s" in kind.props:
        words = [row["s"] for row in kind.rows.values() if row["s"]]
        text = f'search($n.{kind.props["s"].name}, "{words[-1]}")'
        ids = [i for i, row in kind.rows.items() if row["s"] == words[-1]]
        assert run(graph, f"match {{ $n: {kind.name} {text} }} return {{ $n }}") == sorted(ids)
    if "v" in kind.props:
        existing = [(row["v"][1], i) for i, row in kind.rows.items() if row["v"]]
        near = f"order {{ nearest($n.{kind.props['v'].name}, [1.0, 0.0]) }} limit 1"
        nearest = run(graph, f"match {{ $n: {kind.name} }} return {{ $n }} {near}")
        assert nearest == [min(existing)[1]]


def ask(graph: Graph, kind: Kind, prop: Prop, wanted: Any) -> list[str]:
    literal = json.dumps(wanted)
    if kind.is_node:
        return run(
            graph, f"match {{ $n: {kind.name} {{ {prop.name}: {literal} }} }} return {{ $n }}"
        )
    walk = f"$a $n:{kind.name[0].lower()}{kind.name[1:]} $b"
    return run(graph, f"match {{ {walk} $n.{prop.name} = {literal} }} return {{ $n }}")


def run(graph: Graph, body: str) -> list[str]:
    return sorted(str(row["n"]) for row in graph.query(f"query q() {{ {body} }}").rows())


def lost_types(first: World, now: World) -> set[str]:
    """The types that were dropped for good, wholly or in part."""
    return {
        handle
        for handle, kind in first.kinds.items()
        if now.hard
        and (handle not in now.kinds or not kind.props.keys() <= now.kinds[handle].props.keys())
    }


def check_past(graph: Graph, first: World, now: World) -> None:
    """The tagged state under its own schema, but for what was dropped for good."""
    lost = lost_types(first, now)
    for handle, kind in first.kinds.items():
        if handle in lost:
            with pytest.raises(HistoryGone):
                graph.snapshot(tag=TAG).read(kind.name)
        else:
            check_type(graph, kind, tag=TAG)


# -- the tests ------------------------------------------------------------------------------------


def check_cases(first: Start, folder: Path, cases: Iterable[Case], stride: int = 1) -> None:
    """Each on a copy of the first graph; one of ``stride`` goes on after it, others each day."""
    path = folder / "g.omni"
    for number, (subject, chosen) in enumerate(cases, rotation()):
        print(f"{subject}: {name_of(chosen)}")
        shutil.copytree(first[0], path)
        with Graph.open(path, durability="os") as graph:
            world = copy.deepcopy(first[1])
            check_case(graph, world, subject, chosen, goes_on=number % stride == 0)
        shutil.rmtree(path)


def check_case(
    graph: Graph, world: World, subject: str, chosen: tuple[Step, ...], *, goes_on: bool
) -> None:
    first = copy.deepcopy(world)
    world.subject = subject
    before = graph.snapshot()
    world = after(world, chosen)
    options = {"values": world.given_values(), "allow_data_loss": world.hard}
    plan = graph.schema.plan(world.text(), **options)
    assert plan.supported, plan.describe()
    dry = graph.schema.apply(world.text(), dry_run=True, **options)
    assert (dry.violations, dry.steps) == ((), plan.steps)
    assert graph.schema.apply(world.text(), **options).applied
    check_rows(graph, world)
    check_past(graph, first, world)
    if not world.hard:
        check_type(graph, first.kinds[subject], commit=before.commit_id)
    if not goes_on:
        return
    applied, world = world, world.recovered()
    go_on(graph, world)
    if lost_types(first, applied):
        # It names what is gone.
        graph.tags.delete(TAG)
    assert verify_graph(graph.uri).problems == ()
    with Graph.open(graph.uri, "r") as reader:
        check_rows(reader, world)


def go_on(graph: Graph, world: World) -> None:
    """Indexes, a mutation, a load, another apply and a branch after the apply."""
    kind = world.kind
    check_queries(graph, kind)
    graph.indexes.ensure()
    graph.mutate(f"query m() {{ update {kind.name} set {{ j: 77 }} where j = 0 }}")
    for row in kind.rows.values():
        row["j"] = 77 if row["j"] == 0 else row["j"]
    graph.load([record(world, world.subject, 20), record(world, world.subject, 21, bare=True)])
    check_type(graph, kind)
    check_queries(graph, kind)
    kind.props["later"] = Prop("I64", "later", marks=["@index"])
    kind.props["j"].nullable = not kind.props["j"].nullable
    for row in kind.rows.values():
        row["later"] = None
    assert graph.schema.apply(world.text()).applied
    check_type(graph, kind)
    graph.branches.create("side")
    graph.load([record(world, world.subject, 30)], branch="side")
    graph.merge("side", "main")
    graph.branches.delete("side")
    check_rows(graph, world)


@pytest.mark.parametrize(("subject", "chosen"), some_pairs(), ids=name_of)
def test_some_pairs_of_steps_are_applied_together(
    first: Start, tmp_path: Path, subject: str, chosen: tuple[Step, ...]
) -> None:
    check_cases(first, tmp_path, [(subject, chosen)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("subject", "step"), [(s, step) for s, steps in STEPS.items() for step in steps], ids=str
)
def test_every_pair_of_steps_is_applied_together(
    first: Start, tmp_path: Path, subject: str, step: Step
) -> None:
    check_cases(first, tmp_path, pairs_with(subject, step), stride=GOING_ON)


@pytest.mark.slow
@pytest.mark.parametrize("subject", STEPS)
def test_some_triples_of_steps_are_applied_together(
    first: Start, tmp_path: Path, subject: str
) -> None:
    check_cases(first, tmp_path, some_triples(subject))
