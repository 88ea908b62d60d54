"""A graph that is cleaned at random moments, beside one that never is: the same rows in both."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from omnigraph import Graph
from omnigraph.errors import HistoryGone, OmniGraphError
from tests.rotation import in_turn

pytestmark = pytest.mark.rotates(6)

SCHEMA = """
node Person { name: String @key  age: I32? }
node Company { name: String @key }
edge Knows: Person -> Person
"""
STEPS = 40


def rows(snapshot):
    """Everything that a state holds, without the ids that were chosen at random."""
    people = snapshot.read("Person", ["name", "age"]).to_pylist()
    companies = snapshot.read("Company", ["name"]).to_pylist()
    edges = snapshot.read("Knows", ["src", "dst"]).to_pylist()
    return Counter(tuple(sorted(row.items(), key=str)) for row in (*people, *companies, *edges))


class Twins:
    """Two graphs that get the same writes; only one is cleaned."""

    def __init__(self, folder, seed):
        self.chance = random.Random(seed)
        self.cleaned = Graph.init(folder / "cleaned.omni", SCHEMA, durability="os")
        self.other = Graph.init(folder / "other.omni", SCHEMA, durability="os")
        self.states = {}
        self.tagged = {}
        self.gone = 0
        self.deleted = False
        self.doubts = 0

    def both(self, work):
        """Do something to both, with the same outcome; gives whether it was possible."""
        ends = []
        for graph in (self.cleaned, self.other):
            try:
                work(graph)
                ends.append(None)
            except OmniGraphError as error:
                ends.append(error.code)
        assert ends[0] == ends[1], ends
        return ends[0] is None

    def step(self):
        branches = self.cleaned.branches.list()
        branch = self.chance.choice(branches)
        name = f"p{self.chance.randrange(8)}"
        match self.chance.choice(ACTIONS):
            case "upsert":
                data = [
                    {"type": "Person", "data": {"name": name, "age": self.chance.randrange(99)}}
                ]
                self.both(lambda graph: graph.load(data, branch=branch))
            case "company":
                data = [{"type": "Company", "data": {"name": name}}]
                self.both(lambda graph: graph.load(data, branch=branch))
            case "edge":
                data = [{"edge": "Knows", "from": name, "to": f"p{self.chance.randrange(8)}"}]
                self.both(lambda graph: graph.load(data, branch=branch))
            case "delete":
                query = f'query q() {{ delete Person where name = "{name}" }}'
                self.both(lambda graph: graph.mutate(query, branch=branch))
            case "branch" if len(branches) < 5:
                new = f"b{self.chance.randrange(99)}"
                self.both(lambda graph: graph.branches.create(new, branch))
            case "unbranch":
                self.deleted |= self.both(lambda graph: graph.branches.delete(branch))
            case "merge":
                source = self.chance.choice(branches)
                if not self.is_in_doubt(source, branch):
                    self.both(lambda graph: graph.merge(source, branch, resolve="theirs"))
            case "optimize":
                self.both(lambda graph: graph.maintenance.optimize(branch, engine="local"))
            case "tag":
                head = self.cleaned.snapshot(branch)
                self.cleaned.tags.create("t", commit=head.commit_id, move=True)
                self.other.tags.create("t", branch=branch, move=True)
                self.tagged = {"t": rows(head)}
            case "clean":
                self.clean()
        for branch in self.cleaned.branches.list():
            head = self.cleaned.snapshot(branch)
            actual = rows(head)
            assert actual == rows(self.other.snapshot(branch)), branch
            self.states[head.commit_id] = actual

    def is_in_doubt(self, source, target):
        """Whether rows are conflicts because states were removed and branches deleted."""
        if source == target:
            return False
        cleaned, other = (
            Counter(
                # The ids of edges were chosen at random.
                (conflict.table_key, conflict.row_id if "node:" in conflict.table_key else None)
                for conflict in graph.merge(source, target, dry_run=True).conflicts
            )
            for graph in (self.cleaned, self.other)
        )
        assert cleaned >= other
        assert cleaned == other or self.deleted
        self.doubts += cleaned != other
        return cleaned != other

    def clean(self):
        keep, older = self.chance.choice([(1, None), (2, 0), (3, None), (None, 0), (0, 0)])
        reported = self.cleaned.maintenance.cleanup(keep, older, min_age=0, dry_run=True)
        report = self.cleaned.maintenance.cleanup(keep, older, min_age=0)
        assert {**reported.to_json(), "dry_run": False} == report.to_json()
        assert {table.error for table in report.tables} == {None}
        assert report.skipped == ()
        self.look_back()

    def look_back(self):
        existing = {
            c.commit_id for b in self.cleaned.branches.list() for c in self.cleaned.commits(b)
        }
        for commit in existing & set(self.states):
            try:
                actual = rows(self.cleaned.snapshot(commit=commit))
            except HistoryGone:
                self.gone += 1
                continue
            assert actual == self.states[commit]
        for tag, expected in self.tagged.items():
            assert rows(self.cleaned.snapshot(tag=tag)) == expected


ACTIONS = [
    *["upsert"] * 6,
    *["company"] * 2,
    *["edge"] * 2,
    *["delete"] * 2,
    *["branch"] * 3,
    "unbranch",
    *["merge"] * 4,
    "optimize",
    "tag",
    *["clean"] * 4,
]


def run(folder, seed, steps=STEPS):
    twins = Twins(folder, seed)
    try:
        for _ in range(steps):
            twins.step()
        twins.clean()
        twins.look_back()
        with Graph.open(twins.cleaned.uri) as again:
            for branch in again.branches.list():
                assert rows(again.snapshot(branch)) == rows(twins.other.snapshot(branch))
        assert twins.gone > 0
    finally:
        twins.cleaned.close()
        twins.other.close()


@pytest.mark.parametrize("seed", range(2))
def test_a_cleaned_graph_goes_on_like_one_that_never_was(seed, tmp_path):
    run(tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", in_turn(range(100, 120), 4))
def test_more_of_the_same(seed, tmp_path):
    run(tmp_path, seed, 120)
