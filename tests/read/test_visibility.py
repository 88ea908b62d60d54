"""Which rows a view shows: masks, single rows, and row images that are not stored."""

from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph.plan.view import WHOLE
from omnigraph.read import sources
from omnigraph.read.tables import SnapshotTables
from omnigraph.read.visibility import needed_columns, visible_count, visible_ids, visible_mask
from tests.read.views import make_view, viewed

NAMES = ["Alice", "Bob", "Charlie", "Diana", "Nobody"]


def context_of(graph, view):
    handle = viewed(graph, view)._handle
    from omnigraph.commit.history import SnapshotRef

    return handle.query_context(handle.read(SnapshotRef()))


@pytest.fixture(params=["in memory", "by index"])
def way(request, monkeypatch):
    """Tables are cached in memory, or a few rows are looked up in storage."""
    if request.param == "by index":
        monkeypatch.setattr(sources, "_SMALL", 0)
        monkeypatch.setattr(sources._Source, "is_used_again", lambda *_: False)


@pytest.mark.usefixtures("way")
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
    context = context_of(people, make_view(people.catalog, {"Person": rule, "WorksAt": False}))
    assert visible_ids(context, "node:Person", NAMES) == seen
    assert visible_count(context, "node:Person") == len(seen)


@pytest.mark.usefixtures("way")
def test_a_visible_edge_has_two_visible_ends(people):
    rules = {"Person": "age is not null", "Knows": "since >= 2015"}
    context = context_of(people, make_view(people.catalog, rules))
    edges = people.snapshot().read("Knows")
    ends = dict(zip(edges["id"].to_pylist(), edges["dst"].to_pylist(), strict=True))
    assert {ends[i] for i in visible_ids(context, "edge:Knows", edges["id"].to_pylist())} == {
        "Charlie"
    }
    assert visible_count(context, "edge:Knows") == 1
    assert needed_columns(context, "edge:Knows") == ("src", "dst", "since")
    rows = pa.table({"src": ["Alice", "Alice"], "dst": ["Bob", "Diana"], "since": [2020, 2020]})
    assert visible_mask(context, "edge:Knows", rows).tolist() == [True, False]


def test_row_images_are_judged_by_their_own_values(people):
    context = context_of(people, make_view(people.catalog, {"Person": "age > 26"}))
    assert needed_columns(context, "node:Person") == ("age",)
    rows = pa.table({"age": pa.array([30, 20, None], pa.int32())})
    assert visible_mask(context, "node:Person", rows).tolist() == [True, False, False]
    assert visible_mask(context, "node:Person", rows.to_batches()[0]).tolist() == [
        True,
        False,
        False,
    ]


def test_everything_is_visible_without_a_policy(people):
    context = context_of(people, WHOLE)
    assert visible_ids(context, "node:Person", NAMES) == set(NAMES[:4])
    assert visible_count(context, "edge:Knows") == 3
    assert needed_columns(context, "edge:Knows") == ()


def test_after_a_commit_only_new_rows_are_judged(people, monkeypatch):
    """Masks are kept by fragment, and those of actors with equal rules are shared."""
    view = make_view(people.catalog, {"Person": "age > 26"})
    assert visible_count(context_of(people, view), "node:Person") == 2
    judged = []
    from omnigraph.topology import visible

    monkeypatch.setattr(
        visible,
        "true_rows",
        lambda condition, columns, rows, real=visible.true_rows: (
            judged.append(rows) or real(condition, columns, rows)
        ),
    )
    assert visible_count(context_of(people, view), "node:Person") == 2
    assert judged == []
    people.load([{"type": "Person", "data": {"name": "Eve", "age": 40}}])
    assert visible_count(context_of(people, view), "node:Person") == 3
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
    old = context_of(people, view)
    people.mutate('query q() { update Person set { age: 1 } where name = "Alice" }')
    assert visible_ids(context_of(people, view), "node:Person", NAMES) == {"Charlie"}
    assert visible_ids(old, "node:Person", NAMES) == {"Alice", "Charlie"}


def test_the_masks_of_many_views_are_bounded(people):
    views = people._handle.topology.views
    for age in range(40):
        view = make_view(people.catalog, {"Person": f"age > {age}"})
        visible_count(context_of(people, view), "node:Person")
    assert len(views) == 40
    views._memory = views.nbytes // 2
    views.shrink()
    assert 0 < len(views) < 40
    assert views.nbytes <= views._memory
