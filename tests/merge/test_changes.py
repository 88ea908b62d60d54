"""What differs between two states of a table is what reading both of them whole would show."""

from __future__ import annotations

from random import Random

import pytest

from omnigraph import Graph
from omnigraph.errors import HistoryGone
from omnigraph.merge.changes import find_changes
from tests.sampling import rotating

pytestmark = pytest.mark.rotates(3)

SCHEMA = """
node P {
    name: String @key
    age: I32?
    score: F64?
    tags: [String]?
    spot: Vector(3)?
    photo: Blob?
}
edge K: P -> P { w: I32? }
"""


def record(random: Random, name: str) -> dict:
    data = {
        "name": name,
        "age": random.randrange(3),
        "score": random.choice([0.0, -0.0, 1.5]),
        "tags": random.choice([[], ["a"], ["a", "b"], [""]]),
        "spot": random.choice([[1.0, 2.0, 3.0], [1.0, 2.0, 4.0]]),
        "photo": random.choice(["base64:YQ==", "base64:Yg=="]),
    }
    kept = {key: value for key, value in data.items() if key == "name" or random.random() < 0.7}
    return {"type": "P", "data": kept}


def change(random: Random, graph: Graph, branch: str) -> None:
    """One random write."""
    names = [f"p{n}" for n in range(12)]
    match random.randrange(6):
        case 0 | 1 | 2:
            some = random.sample(names, random.randrange(1, 5))
            graph.load([record(random, name) for name in some], branch=branch)
        case 3:
            gone = random.choice(names)
            text = f'query q() {{ delete P where name = "{gone}" }}'
            graph.mutate(text, branch=branch)
        case 4:
            graph.load([record(random, n) for n in names[:6]], "overwrite", branch)
        case 5:
            text = f"query q() {{ update P set {{ age: {random.randrange(9)} }} where age = 1 }}"
            graph.mutate(text, branch=branch)


def whole(graph, pin, schema):
    """Every row of a state by its id."""
    if pin is None:
        return {}
    batches = graph._handle.store.table(pin).whole_rows(schema.names)
    rows = [row for batch in batches for row in batch.to_pylist()]
    return {row["id"]: {key: repr(value) for key, value in row.items()} for row in rows}


def shown(rows):
    return {
        row["id"]: {key: repr(value) for key, value in row.items() if key != "_rowid"}
        for row in rows.to_pylist()
    }


@pytest.mark.parametrize("seed", rotating(range(12), 4, "changes"))
def test_changes_are_what_two_whole_readings_differ_in(seed, tmp_path):
    random = Random(seed)
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        branches = ["main"]
        states = []
        for step in range(10):
            if step in (2, 4, 6):
                name = f"b{step}"
                graph.branches.create(name, random.choice(branches))
                branches.append(name)
            branch = random.choice(branches)
            change(random, graph, branch)
            snapshot = graph._handle.store.manifest(None if branch == "main" else branch).current()
            states.append(snapshot.pin("node:P"))
        kind = graph.catalog.node_types["P"]
        schema = kind.arrow_schema()
        for _ in range(25):
            one, other = random.choice([None, *states]), random.choice(states)
            actual = find_changes(graph._handle.store, kind, one, other)
            before, after = whole(graph, one, schema), whole(graph, other, schema)
            same = {key for key in before if before[key] == after.get(key)}
            assert shown(actual.before) == {k: v for k, v in before.items() if k not in same}
            assert shown(actual.after) == {k: v for k, v in after.items() if k not in same}
            assert actual.ids.to_pylist() == sorted({*before, *after} - same)
            assert actual.inserted.to_pylist() == sorted(set(after) - set(before))
            assert actual.deleted.to_pylist() == sorted(set(before) - set(after))


@pytest.mark.parametrize("schema", ["node P { name: String @key }", "node Q { name: String @key }"])
@pytest.mark.parametrize("summary", [False, True])
def test_a_diff_with_a_state_that_a_hard_drop_emptied_is_history_gone(tmp_path, schema, summary):
    both = "node P { name: String @key  age: I32? }\nnode Q { name: String @key }"
    with Graph.init(tmp_path / "g.omni", both, durability="os") as graph:
        rows = [{"type": name, "data": {"name": "a"}} for name in ("P", "Q")]
        old = graph.load(rows).commit_id
        graph.schema.apply(schema, allow_data_loss=True)
        with pytest.raises(HistoryGone):
            graph.snapshot().diff(graph.snapshot(at=old), summary=summary)
