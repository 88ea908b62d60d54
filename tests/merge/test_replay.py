"""A copy that follows the change feed has what the graph has, through every kind of change.

The followers know what ``docs/changes.md`` says and nothing else. One of them reads after every
step, one when it comes to it, and one reads a single type; all in pages of random size, each page
by its cursor alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.errors import HistoryGone
from tests.merge.followers import Copy
from tests.merge.random_histories import RandomHistory
from tests.sampling import rotating

SEEDS = list(range(60))


def whole(graph: Graph, **at: Any) -> Copy:
    """What a graph has, by an export and the schema of a baseline."""
    return Copy(dict(graph.changes.baseline().schema), graph.snapshot(**at).export())


class Follower:
    """A copy and a cursor."""

    def __init__(self, graph: Graph, folder: Path, random: Random) -> None:
        self.random = random
        self.path = folder / "base.jsonl"
        self.begin(graph)

    def begin(self, graph: Graph) -> None:
        graph.changes.baseline(dest=self.path)
        self.copy, self.cursor = Copy.of_baseline(self.path.read_text())

    def options(self) -> dict[str, Any]:
        return {}

    def read(self, graph: Graph) -> None:
        """Everything until now, in pages of any size."""
        while True:
            limit = self.random.choice((1, 2, 3, 7, 1_000))
            page = graph.changes.poll(cursor=self.cursor, limit=limit, **self.options())
            reported = [json.loads(json.dumps(block.to_json())) for block in page.blocks]
            assert sum(len(b["schema_events"]) + len(b["changes"]) for b in reported) <= limit
            for block in reported:
                self.copy.apply_events(block["schema_events"])
                self.copy.apply_changes(block["changes"])
            self.cursor = page.cursor
            if page.caught_up:
                return


class OneType(Follower):
    """Follows a type by the name that it had when this began."""

    def begin(self, graph: Graph) -> None:
        super().begin(graph)
        key = self.random.choice(sorted(self.copy.types))
        self.name, self.type_id = key[1], self.copy.types[key].type_id
        self.copy.types = {key: self.copy.types[key]}

    def options(self) -> dict[str, Any]:
        return {"types": [self.name]}


@pytest.mark.parametrize("seed", rotating(SEEDS, 1, "replayed feeds"))
def test_a_follower_has_what_the_graph_has(seed: int, tmp_path: Path):
    history = RandomHistory(str(tmp_path), seed)
    random = Random(f"followers {seed}")
    with history.graph as graph:
        history.load()
        near, far = Follower(graph, tmp_path, random), Follower(graph, tmp_path, random)
        one = OneType(graph, tmp_path, random)
        for _ in range(12):
            act = history.step()
            now = whole(graph)
            near.read(graph)
            assert near.copy.content() == now.content(), act
            try:
                one.read(graph)
                assert one.copy.content() == now.of_type(one.type_id), act
            except HistoryGone:
                # A swap is several applies; only what was dropped for good is missing.
                assert history.lost_data
                one.begin(graph)
            if random.random() < 0.3:
                try:
                    far.read(graph)
                    assert far.copy.content() == now.content(), act
                except HistoryGone as error:
                    oldest = error.details["oldest_cursor"]
                    graph.changes.poll(cursor=oldest)
                    far.begin(graph)
        start = Copy({"types": []})
        try:
            for block in graph.changes.poll(limit=100_000).blocks:
                start.apply_events([event.to_json() for event in block.schema_events])
                start.apply_changes([change.to_json() for change in block.changes])
        except HistoryGone:
            return
        assert start.content() == whole(graph).content()


@pytest.mark.parametrize("seed", rotating(SEEDS, 1, "replayed diffs"))
def test_the_diff_of_two_states_leads_from_one_to_the_other(seed: int, tmp_path: Path):
    history = RandomHistory(str(tmp_path), seed)
    random = Random(f"states {seed}")
    with history.graph as graph:
        states: list[tuple[str, Copy]] = []
        for _ in range(10):
            history.step()
            if history.lost_data:
                states.clear()
            states.append((graph.commits()[0].commit_id, whole(graph)))
        for _ in range(8):
            (one, before), (other, after) = random.choice(states), random.choice(states)
            actual = graph.snapshot(at=one).diff(graph.snapshot(at=other))
            copy = before.copied()
            copy.apply_events([event.to_json() for event in actual.schema_events])
            copy.apply_changes([change.to_json() for change in actual.changes])
            assert copy.content() == after.content()
            assert actual.is_empty == (before.content() == after.content()) or actual.schema_events
