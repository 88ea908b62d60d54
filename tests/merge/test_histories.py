"""Random histories on several branches, merged in any order, against a model of plain dicts.

No deleted row comes back, no write is lost, nothing is a conflict that need not be one; merging
twice is up to date, and merging back is a fast-forward.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from omnigraph import Graph
from omnigraph.errors import BranchInUse, MergeConflicts
from omnigraph.merge.run import Outcome
from tests.merge.history_model import KEYS, Commits, Trace, orphans, three_way
from tests.rotation import in_turn

pytestmark = pytest.mark.rotates(6)

SCHEMA = """
node P { name: String @key  a: I32?  b: String? }
node U { a: I32?  b: String? }
edge K: P -> P { w: I32? }
edge L: P -> U { w: I32? }
"""
COLUMNS = {"P": ("a", "b"), "U": ("a", "b"), "K": ("src", "dst", "w"), "L": ("src", "dst", "w")}
STEPS = 24
DAYS = 8
"""In so many days the slow tests go through all histories."""


class World:
    """A graph, and the model of it."""

    def __init__(self, graph: Graph, random: Random) -> None:
        self.graph = graph
        self.random = random
        self.commits = Commits()
        state = self.read("main")
        self.heads = {"main": self.commits.add((), state, Trace())}

    def read(self, branch):
        snapshot = self.graph.snapshot(branch)
        return {
            kind: {
                row["id"]: {name: row[name] for name in names}
                for row in snapshot.read(kind, ["id", *names]).to_pylist()
            }
            for kind, names in COLUMNS.items()
        }

    def state(self, branch):
        return self.commits.states[self.heads[branch]]

    # -- writes --------------------------------------------------------------------------

    def write(self, branch):
        self.commit(branch, lambda: self.random_write(branch, self.state(branch)))

    def optimize(self, branch):
        self.commit(branch, lambda: self.graph.maintenance.optimize(branch, engine="local"))

    def commit(self, branch, work):
        """Do something that makes a commit, or none when it changes nothing."""
        newest = self.graph.snapshot(branch).commit_id
        work()
        if self.graph.snapshot(branch).commit_id == newest:
            return
        head = self.heads[branch]
        before, after = self.state(branch), self.read(branch)
        trace = self.commits.traces[head].written(before, after)
        self.heads[branch] = self.commits.add((head,), after, trace)

    def random_write(self, branch, state):
        random = self.random
        name = f"p{random.randrange(4)}"
        number = random.randrange(3)
        match random.randrange(11):
            case 0 | 1:
                data = {"name": name, "a": number, "b": random.choice([None, "", "x"])}
                self.load(branch, {"type": "P", "data": data})
            case 2 | 3:
                self.mutate(branch, f'update P set {{ a: {number} }} where name = "{name}"')
            case 4:
                text = random.choice(["", "x", "y"])
                self.mutate(branch, f'update P set {{ b: "{text}" }} where name = "{name}"')
            case 5:
                self.mutate(branch, f'delete P where name = "{name}"')
            case 6:
                data = {"id": f"u{random.randrange(2)}", "a": number}
                self.load(branch, {"type": "U", "data": data})
            case 7:
                self.mutate(branch, f"delete U where a = {number}")
            case 8:
                self.load_edge(branch, "K", "P", state, number)
            case 9:
                self.load_edge(branch, "L", "U", state, number)
            case 10:
                text = random.choice(
                    [f"update K set {{ w: {number} }} where w <= 2", f"delete K where w = {number}"]
                )
                self.mutate(branch, text)

    def load_edge(self, branch, kind, end, state, number):
        if not state["P"] or not state[end]:
            return
        data = {"w": number}
        if self.random.random() < 0.7:
            data["id"] = f"{kind}{self.random.randrange(3)}"
        existing = state[kind].get(data.get("id"))
        source = self.random.choice(sorted(state["P"]))
        target = self.random.choice(sorted(state[end]))
        ends = (existing["src"], existing["dst"]) if existing else (source, target)
        self.load(branch, {"edge": kind, "from": ends[0], "to": ends[1], "data": data})

    def load(self, branch, record):
        self.graph.load([record], branch=branch)

    def mutate(self, branch, statement):
        self.graph.mutate(f"query q() {{ {statement} }}", branch=branch)

    def fork(self, name):
        source = self.random.choice(sorted(self.heads))
        self.graph.branches.create(name, source)
        self.heads[name] = self.heads[source]

    # -- merges --------------------------------------------------------------------------

    def merge(self, source, target):
        """Merge and check; gives what became of it."""
        theirs, ours = self.heads[source], self.heads[target]
        if theirs in self.commits.ancestors([ours]):
            self.must_be_up_to_date(source, target)
            return Outcome.UP_TO_DATE
        bases = self.commits.common([theirs], [ours])
        base = self.commits.state(bases)
        sides = (base, self.state(target), self.state(source))
        merged, conflicts = three_way(*sides)
        side = None
        if conflicts:
            self.must_have_conflicts(source, target, conflicts)
            side = self.random.choice([None, "ours", "theirs"])
            if side is None:
                return "conflicts"
            merged, _ = three_way(*sides, side)
        lost = orphans(merged)
        if lost:
            actual = self.refused(source, target, side)
            assert {(key, row) for key, row, kind in actual if kind == "orphan_edge"} == {
                (KEYS[kind], row) for kind, row in lost
            }
            return "orphans"
        report = self.graph.merge(source, target, resolve=side)
        assert report.outcome is (Outcome.FAST_FORWARD if bases == [ours] else Outcome.MERGED)
        assert set(report.resolved) == {f"{KEYS[kind]}/{row}" for kind, row in conflicts}
        assert self.read(target) == merged
        traces = self.commits.traces
        trace, wrong = traces[ours].merged(traces[theirs], merged, conflicts)
        assert wrong == []
        self.heads[target] = self.commits.add((ours, theirs), merged, trace)
        self.must_be_up_to_date(source, target)
        return report.outcome

    def must_be_up_to_date(self, source, target):
        before = self.graph.snapshot(target).commit_id
        assert self.graph.merge(source, target).outcome is Outcome.UP_TO_DATE
        assert self.graph.snapshot(target).commit_id == before

    def must_have_conflicts(self, source, target, conflicts):
        actual = self.refused(source, target, None)
        rows = {item for item in actual if item[2] not in ("orphan_edge",)}
        assert rows == {(KEYS[kind], row, what) for (kind, row), what in conflicts.items()}

    def refused(self, source, target, side):
        before = self.graph.snapshot(target).commit_id
        with pytest.raises(MergeConflicts) as caught:
            self.graph.merge(source, target, resolve=side)
        assert self.graph.snapshot(target).commit_id == before
        assert self.read(target) == self.state(target)
        reported = caught.value.details["conflicts"]
        return {(item["table_key"], item["row_id"], item["kind"]) for item in reported}


class Forgetful(World):
    """A world in which branches are deleted, and what only they had cannot be read any more.

    The model forgets nothing. A row may then be a conflict that need not be one, but no other row
    may come out differently.
    """

    def delete(self, branch):
        with suppress(BranchInUse):
            self.graph.branches.delete(branch)
            del self.heads[branch]

    def merge_and_delete(self, name, targets):
        """A branch of which others merge different commits."""
        self.fork(name)
        for target in targets:
            for _ in range(self.random.randrange(4)):
                self.write(name)
            self.merge(name, target)
        self.delete(name)

    def merge(self, source, target):
        theirs, ours = self.heads[source], self.heads[target]
        if theirs in self.commits.ancestors([ours]):
            # A merge that is not known to be done may be done again, to no effect.
            return self.merge_again(source, target)
        base = self.commits.state(self.commits.common([theirs], [ours]))
        expected, real = three_way(base, self.state(target), self.state(source))
        preview = self.graph.merge(source, target, dry_run=True)
        names = {key: kind for kind, key in KEYS.items()}
        actual = {
            (names[item.table_key], item.row_id)
            for item in preview.conflicts
            if item.is_between_rows
        }
        assert actual >= real.keys(), (actual, real)
        side = self.random.choice(["ours", "theirs"]) if actual else None
        chosen = self.state(target if side == "ours" else source)
        try:
            report = self.graph.merge(source, target, resolve=side)
        except MergeConflicts as error:
            kinds = {item["kind"] for item in error.details["conflicts"]}
            if kinds != {"orphan_edge"}:
                raise
            assert self.read(target) == self.state(target)
            return "orphans"
        merged = self.read(target)
        for kind in KEYS:
            for row_id in {*merged[kind], *expected[kind]}:
                allowed = [expected[kind].get(row_id)]
                if (kind, row_id) in actual:
                    resolved, _ = three_way(base, self.state(target), self.state(source), side)
                    allowed = [resolved[kind].get(row_id), chosen[kind].get(row_id)]
                assert merged[kind].get(row_id) in allowed, (kind, row_id)
        traces = self.commits.traces
        trace, wrong = traces[ours].merged(traces[theirs], merged, actual)
        assert wrong == []
        self.heads[target] = self.commits.add((ours, theirs), merged, trace)
        return f"{report.outcome} in doubt" if actual - real.keys() else report.outcome

    def merge_again(self, source, target):
        before = self.read(target)
        self.graph.merge(source, target, resolve="ours")
        assert self.read(target) == before
        return Outcome.UP_TO_DATE


def lived_and_forgot(graph: Graph, seed: int, steps: int) -> dict[str, int]:
    """A random history in which branches come and go; gives how often what happened."""
    random = Random(seed)
    world = Forgetful(graph, random)
    seen: dict[str, int] = {}
    for _ in range(3):
        world.write("main")
    for name in ("b0", "b1"):
        world.fork(name)
    for step in range(steps):
        branches = sorted(world.heads)
        chance = random.random()
        if chance < 0.1 and len(branches) < 5:
            world.fork(f"c{step}")
        elif chance < 0.18 and len(branches) > 3:
            world.delete(random.choice([name for name in branches if name != "main"]))
        elif chance < 0.3:
            world.merge_and_delete(f"c{step}", random.sample(branches, 2))
        elif chance < 0.65:
            world.write(random.choice(branches))
        else:
            outcome = world.merge(*random.sample(branches, 2))
            seen[outcome] = seen.get(outcome, 0) + 1
    return seen


def lived(graph: Graph, seed: int, steps: int = STEPS) -> dict[str, int]:
    """A random history; gives how often what happened."""
    random = Random(seed)
    world = World(graph, random)
    seen: dict[str, int] = {}
    for _ in range(3):
        world.write("main")
    world.fork("b1")
    for step in range(steps):
        if step == steps // 4 and random.random() < 0.7:
            world.fork("b2")
        branches = sorted(world.heads)
        if random.random() < 0.05:
            world.optimize(random.choice(branches))
        if random.random() < 0.65:
            world.write(random.choice(branches))
            continue
        source, target = random.sample(branches, 2)
        outcome = world.merge(source, target)
        seen[outcome] = seen.get(outcome, 0) + 1
        if outcome in (Outcome.MERGED, Outcome.FAST_FORWARD) and random.random() < 0.3:
            assert world.merge(target, source) is Outcome.FAST_FORWARD
            assert world.state(target) == world.state(source)
    return seen


@pytest.mark.parametrize("seed", range(5))
def test_merges_of_random_histories_do_what_the_model_does(seed, tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        lived(graph, seed)


# The long one: two deleted branches had changed a row, and both sides had resolved the conflict.
@pytest.mark.parametrize(("seed", "steps"), [(0, STEPS), (1, STEPS), (2, STEPS), (169, 60)])
def test_no_write_is_lost_when_branches_are_deleted(seed, steps, tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        lived_and_forgot(graph, seed, steps)


@pytest.mark.slow
@pytest.mark.parametrize("seed", in_turn(range(100, 250), DAYS))
def test_no_write_is_lost_in_many_histories_with_deleted_branches(seed, tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        print(lived_and_forgot(graph, seed, steps=60))


@pytest.mark.slow
@pytest.mark.parametrize("seed", in_turn(range(100, 300), DAYS))
def test_merges_of_many_random_histories_do_what_the_model_does(seed, tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        print(lived(graph, seed, steps=40))
