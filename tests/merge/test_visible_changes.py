"""What a reader gets who does not see all rows is what the graph without the hidden rows gives.

Random histories, with every kind of schema change, through random rules for rows: the change feed,
from a baseline and from the beginning, in pages of any size; the difference of any two states; and
exports, counts and rows of the newest and of old states.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.commit.schema.history import identified
from omnigraph.errors import HistoryGone
from omnigraph.merge import visible_changes
from omnigraph.read import visible_rows
from tests.merge.followers import Copy
from tests.merge.random_histories import RandomHistory
from tests.merge.random_views import ACTOR, Rule, Rules, Test
from tests.merge.test_replay import Follower, whole
from tests.rotation import in_turn
from tests.sampling import rotating

pytestmark = pytest.mark.rotates(3)

SEEDS = in_turn(range(70), 3)
"""Those of today. In two parts, each would have only odd or only even ones; see ``few``."""


@pytest.fixture(autouse=True)
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other case has too many ids to be looked up, so that columns are read as a whole."""
    if request.node.callspec.params["seed"] % 2:
        for module in (visible_changes, visible_rows):
            monkeypatch.setattr(module, "_FEW", 0)


def restricted(history: RandomHistory, rules: Rules) -> Graph:
    return Graph.open(history.graph.uri, mode="r", policy=rules.policy(), actor=ACTOR)


def left_of(graph: Graph, rules: Rules, **at: Any) -> Copy:
    """The newest or an earlier state without the hidden rows."""
    return rules.delete_hidden(whole(graph, **at), graph.snapshot(**at).catalog)


@pytest.mark.parametrize("seed", rotating(SEEDS, 1, "restricted feeds"))
def test_a_restricted_follower_has_the_graph_without_the_hidden_rows(seed: int, tmp_path: Path):
    history = RandomHistory(str(tmp_path), seed)
    random = Random(f"restricted followers {seed}")
    rules = Rules.random(random)
    with history.graph as graph, restricted(history, rules) as seen:
        history.load()
        near, far = Follower(seen, tmp_path, random), Follower(seen, tmp_path, random)
        for _ in range(12):
            act = history.step()
            now = left_of(graph, rules)
            try:
                near.read(seen)
            except HistoryGone:
                # Of what was dropped for good nobody can say what became hidden with it.
                assert history.lost_data
                near.begin(seen)
            assert near.copy.content() == now.content(), act
            if random.random() < 0.3:
                try:
                    far.read(seen)
                except HistoryGone as error:
                    seen.changes.poll(cursor=error.details["oldest_cursor"])
                    far.begin(seen)
                assert far.copy.content() == now.content(), act
        start = Copy({"types": []})
        try:
            for block in seen.changes.poll(limit=100_000).blocks:
                start.apply_events([event.to_json() for event in block.schema_events])
                start.apply_changes([change.to_json() for change in block.changes])
        except HistoryGone:
            return
        assert start.content() == left_of(graph, rules).content()


@pytest.mark.parametrize("seed", rotating(SEEDS, 1, "restricted diffs"))
def test_a_restricted_diff_leads_from_one_state_to_the_other(seed: int, tmp_path: Path):
    history = RandomHistory(str(tmp_path), seed)
    random = Random(f"restricted states {seed}")
    rules = Rules.random(random)
    with history.graph as graph, restricted(history, rules) as seen:
        states: list[tuple[str, Copy]] = []
        for _ in range(10):
            history.step()
            if history.lost_data:
                states.clear()
            states.append((graph.commits()[0].commit_id, left_of(graph, rules)))
        for _ in range(8):
            (one, before), (other, after) = random.choice(states), random.choice(states)
            actual = seen.snapshot(at=one).diff(seen.snapshot(at=other))
            copy = before.copied()
            copy.apply_events([event.to_json() for event in actual.schema_events])
            copy.apply_changes([change.to_json() for change in actual.changes])
            assert copy.content() == after.content()
            summary = seen.snapshot(at=one).diff(seen.snapshot(at=other), summary=True)
            assert summary.stats == actual.stats
            assert sum(counts.affected for counts in actual.tables.values()) == len(actual.changes)


@pytest.mark.parametrize("seed", rotating(SEEDS, 1, "restricted rows"))
def test_restricted_states_have_the_rows_that_are_left(seed: int, tmp_path: Path):
    history = RandomHistory(str(tmp_path), seed, keeps_history=True)
    random = Random(f"restricted rows {seed}")
    rules = Rules.random(random)
    with history.graph as graph, restricted(history, rules) as seen:
        commits = []
        for _ in range(8):
            history.step()
            commits.append(graph.commits()[0].commit_id)
        for commit in {commits[-1], *random.sample(commits, 3)}:
            check_rows(graph, seen, rules, commit, random)


def check_rows(graph: Graph, seen: Graph, rules: Rules, commit: str, random: Random) -> None:
    snapshot, everything = seen.snapshot(at=commit), graph.snapshot(at=commit)
    schema = before_schema(graph, commit)
    left = rules.delete_hidden(Copy(schema, everything.export()), everything.catalog)
    assert Copy(schema, snapshot.export()).content() == left.content()
    assert list(snapshot.export()) == [line for line in everything.export() if is_left(line, left)]
    for (_, name), kind in left.types.items():
        if kind.kind == "interface":
            continue
        key = f"{kind.kind}:{name}"
        assert snapshot.count(name) == snapshot.tables[key]["rows"] == len(kind.rows)
        assert sorted(snapshot.read(name, ["id"])["id"].to_pylist()) == sorted(kind.rows)
        scanned = [row_id for batch in snapshot.scan(name, ["id"]) for row_id in batch["id"]]
        assert sorted(row_id.as_py() for row_id in scanned) == sorted(kind.rows)
        ids = everything.read(name, ["id"])["id"].to_pylist()
        for row_id in random.sample(ids, min(3, len(ids))):
            one = snapshot.entity(name, row_id)
            assert one == (everything.entity(name, row_id) if row_id in kind.rows else None)


def before_schema(graph: Graph, commit: str) -> dict[str, Any]:
    """The types of an old state, in the form of a baseline."""
    context = graph.snapshot(at=commit)._context
    store = graph._handle.store
    return dict(identified(store, context.snapshot, context.catalog).to_json())


def is_left(line: str, left: Copy) -> bool:
    record = json.loads(line)
    key = ("node", record["type"]) if "type" in record else ("edge", record["edge"])
    return record["data"]["id"] in left.types[key].rows


# -- branches with rules of their own -------------------------------------------------------------

BRANCHED = """
node A { k: String @key  p: I32? }
node B { k: String @key  q: String? }
edge Ea: A -> B { p: I32? }
edge Eb: A -> A
"""


class OfBranch(Follower):
    """Follows a branch."""

    def __init__(self, graph: Graph, folder: Path, random: Random, branch: str) -> None:
        self.branch = branch
        super().__init__(graph, folder, random)

    def begin(self, graph: Graph) -> None:
        graph.changes.baseline(self.branch, self.path)
        self.copy, self.cursor = Copy.of_baseline(self.path.read_text())

    def options(self) -> dict[str, Any]:
        return {"branch": self.branch}


class FromTheBeginning(OfBranch):
    def begin(self, graph: Graph) -> None:
        self.copy, self.cursor = Copy({"types": []}), None


def random_rows(random: Random) -> list[dict[str, Any]]:
    """Some nodes, old and new, and edges between them."""
    names = [f"n{number}" for number in random.sample(range(8), 4)]
    rows: list[dict[str, Any]] = []
    for name in names:
        value = random.choice((None, *range(6)))
        rows.append({"type": "A", "data": {"k": name, "p": value}})
        text = None if value is None else f"t{value}"
        rows.append({"type": "B", "data": {"k": name, "q": text}})
    for number in random.sample(range(9), 3):
        one, other = random.choice(names), random.choice(names)
        data = {"id": f"x{number}", "p": random.randrange(3)}
        rows.append({"edge": "Ea", "from": one, "to": other, "data": data})
        rows.append({"edge": "Eb", "from": one, "to": other, "data": {"id": data["id"]}})
    return rows


def random_branch_rules(random: Random) -> Rules:
    rules = []
    for branch in ("main", "review"):
        level, text = random.randrange(1, 6), f"t{random.randrange(1, 6)}"
        shown = (Rule(("A",), (Test("p", random.choice(("<", ">=")), level),), (branch,)),)
        shown += (Rule(("B",), (Test("q", random.choice(("<", ">=")), text),), (branch,)),)
        rules += random.sample(shown, random.choice((1, 2, 2)))
        rules.append(Rule(("Ea", "Eb"), (), (branch,)))
    return Rules((*rules, Rule((random.choice("AB"),), (Test("k", "<", "n3"),))))


@pytest.mark.parametrize("seed", rotating(SEEDS, 1, "restricted branches"))
def test_branches_with_rules_of_their_own_are_followed(seed: int, tmp_path: Path):
    random = Random(f"restricted branches {seed}")
    rules = random_branch_rules(random)
    with Graph.init(tmp_path / "g.omni", BRANCHED, durability="os") as graph:
        for _ in range(3):
            graph.load(random_rows(random))
        with Graph.open(graph.uri, "r", policy=rules.policy(), actor=ACTOR) as seen:
            followers: list[OfBranch] = [OfBranch(seen, tmp_path, random, "main")]
            graph.branches.create("review")
            followers.append(OfBranch(seen, tmp_path, random, "review"))
            followers += [FromTheBeginning(seen, tmp_path, random, "review") for _ in range(2)]
            followers[-1].read(seen)
            for _ in range(6):
                branch = random.choice(("main", "review"))
                if random.random() < 0.3:
                    where = f'k = "n{random.randrange(8)}"'
                    graph.mutate(f"query q() {{ delete A where {where} }}", branch=branch)
                else:
                    graph.load(random_rows(random), branch=branch)
                for follower in followers[:3]:
                    follower.read(seen)
            for follower in followers:
                follower.read(seen)
                name = follower.branch
                everything = whole(graph, branch=name)
                left = rules.delete_hidden(everything, graph.catalog, name)
                assert follower.copy.content() == left.content(), (name, type(follower))
            states = seen.snapshot("main"), seen.snapshot("review")
            copy = rules.delete_hidden(whole(graph), graph.catalog)
            copy.apply_changes(change.to_json() for change in states[0].diff(states[1]).changes)
            everything = whole(graph, branch="review")
            assert (
                copy.content() == rules.delete_hidden(everything, graph.catalog, "review").content()
            )
