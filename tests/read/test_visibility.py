"""Which rows a view shows: masks in memory, rows of storage, and row images."""

from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph.commit.history import SnapshotRef
from omnigraph.plan.view import WHOLE
from omnigraph.read.tables import SnapshotTables
from omnigraph.read.visible_rows import VisibleRows
from tests.read.views import make_view, viewed

NAMES = ["Alice", "Bob", "Charlie", "Diana", "Nobody"]


def context_of(graph, view):
    handle = viewed(graph, view)._handle
    return handle.query_context(handle.read(SnapshotRef()))


def stored(graph, view):
    """The visible rows, read from storage."""
    context = context_of(graph, view)
    return VisibleRows(graph._handle.store, graph.catalog, context.snapshot, view)


def visible_ids(graph, view, type_name, ids):
    entity = graph.catalog.node_types.get(type_name) or graph.catalog.edge_types[type_name]
    return set(stored(graph, view).ids_among(entity, pa.array(ids)).to_pylist())


def visible_count(context, type_name):
    """By the masks in memory."""
    visibility = SnapshotTables(context).visibility
    if type_name == "Knows":
        edges = visibility.edges(type_name)
        return 0 if edges is None else edges.index().count
    nodes = visibility.nodes(type_name)
    return 0 if nodes.is_empty else nodes.mask().count


@pytest.mark.parametrize(
    ("rule", "seen"),
    [
        ("age > 26", {"Alice", "Charlie"}),
        ("age is null", {"Diana"}),
        ('city = "Oslo" or age < 26', {"Alice", "Bob", "Charlie"}),
        (True, {"Alice", "Bob", "Charlie", "Diana"}),
        (False, set()),
    ],
)
def test_visible_nodes_exist_and_satisfy_the_rule(people, rule, seen):
    view = make_view(people.catalog, {"Person": rule, "WorksAt": False})
    assert visible_ids(people, view, "Person", NAMES) == seen
    assert visible_count(context_of(people, view), "Person") == len(seen)


def test_a_visible_edge_has_two_visible_ends(people):
    rules = {"Person": "age is not null", "Knows": "since >= 2015"}
    view = make_view(people.catalog, rules)
    edges = people.snapshot().read("Knows")
    ends = dict(zip(edges["id"].to_pylist(), edges["dst"].to_pylist(), strict=True))
    seen = visible_ids(people, view, "Knows", edges["id"].to_pylist())
    assert {ends[i] for i in seen} == {"Charlie"}
    assert visible_count(context_of(people, view), "Knows") == 1
    rows = pa.table({"src": ["Alice", "Alice"], "dst": ["Bob", "Diana"], "since": [2020, 2020]})
    knows = people.catalog.edge_types["Knows"]
    assert stored(people, view).mask(knows, rows).tolist() == [True, False]


def test_row_images_are_judged_by_their_own_values(people):
    view = make_view(people.catalog, {"Person": "age > 26"})
    rows = pa.table({"age": pa.array([30, 20, None], pa.int32())})
    person = people.catalog.node_types["Person"]
    assert stored(people, view).mask(person, rows).tolist() == [True, False, False]


def test_everything_is_visible_without_a_policy(people):
    assert visible_ids(people, WHOLE, "Person", NAMES) == set(NAMES[:4])
    assert visible_count(context_of(people, WHOLE), "Knows") == 3


def test_after_a_commit_only_new_rows_are_judged(people, monkeypatch):
    """Masks are kept by fragment, and those of actors with equal rules are shared."""
    view = make_view(people.catalog, {"Person": "age > 26"})
    assert visible_count(context_of(people, view), "Person") == 2
    judged = []
    from omnigraph.topology import visible

    monkeypatch.setattr(
        visible,
        "true_rows",
        lambda condition, columns, rows, real=visible.true_rows: (
            judged.append(rows) or real(condition, columns, rows)
        ),
    )
    assert visible_count(context_of(people, view), "Person") == 2
    assert judged == []
    people.load([{"type": "Person", "data": {"name": "Eve", "age": 40}}])
    assert visible_count(context_of(people, view), "Person") == 3
    assert judged == [1]


def test_the_visible_edges_of_a_version_extend_those_of_the_one_before(people):
    view = make_view(people.catalog, {"Person": "age is not null"})

    def index():
        edges = SnapshotTables(context_of(people, view)).visibility.edges("Knows")
        return edges.index()

    first = index()
    before = first.adjacency("out")
    assert index() is first
    people.load([{"type": "Person", "data": {"name": "Eve", "age": 40}}])
    assert index().adjacency("out") is before
    people.load([{"edge": "Knows", "from": "Alice", "to": "Eve"}])
    assert index().count == first.count + 1
    assert "out" in index()._plain
    people.load([{"type": "Person", "data": {"name": "Alice", "age": None}}])
    assert index().count == 0
    assert len(index().adjacency("out").targets) == 0


def test_a_row_that_a_write_hides_is_hidden_from_then_on(people):
    view = make_view(people.catalog, {"Person": "age > 26"})
    old = stored(people, view)
    people.mutate('query q() { update Person set { age: 1 } where name = "Alice" }')
    assert visible_ids(people, view, "Person", NAMES) == {"Charlie"}
    person = people.catalog.node_types["Person"]
    assert set(old.ids_among(person, pa.array(NAMES)).to_pylist()) == {"Alice", "Charlie"}


def test_the_masks_of_many_views_are_bounded(people):
    views = people._handle.topology.views
    for age in range(40):
        view = make_view(people.catalog, {"Person": f"age > {age}"})
        visible_count(context_of(people, view), "Person")
    assert len(views) == 40
    views._memory = views.nbytes // 2
    views.shrink()
    assert 0 < len(views) < 40
    assert views.nbytes <= views._memory
