"""Removing versions: what is written down before, and who finishes what a dead process left."""

from __future__ import annotations

import json

import pytest

from omnigraph import Graph, verify_graph
from omnigraph.commit.failpoints import Failpoint, hooked
from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.names import table_lease
from omnigraph.commit.removal import (
    announce_hard_drop,
    finish_removals,
    is_cleared,
    remove_versions,
)
from omnigraph.commit.sidecar import HardDrop
from omnigraph.maintain.verify import ProblemCode
from omnigraph.storage.removed_versions import PATH, read_removed
from omnigraph.storage.tables.versions import removal_of
from tests.commit.deaths import Died

pytestmark = pytest.mark.rotates(3)

SCHEMA = "node Person { name: String @key  photo: Blob? }"
KEY = "node:Person"
PHOTO = "base64:" + "aGVs" * 50_000


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        for name in "abcd":
            graph.load([{"type": "Person", "data": {"name": name, "photo": PHOTO}}])
        graph.mutate('query q() { delete Person where name = "a" }')
        yield graph


def person(graph, branch=None):
    return graph._handle.store.manifest(branch).current().pins[KEY].ref


def die_at(point):
    def die(passed):
        if passed is point:
            raise Died

    return hooked(die)


def remove(graph, versions, branch=None):
    return remove_versions(graph._handle.store, person(graph, branch), versions, KEY)


def hard_drop(graph, through):
    """The intent of an apply that was published, and what it is about."""
    drop = HardDrop(KEY, person(graph).location, through)
    announce_hard_drop(graph._handle.store, drop)
    return drop


def files(graph):
    return {path for path, _ in graph._handle.store.objects.files_below(person(graph).location)}


def intents(graph):
    return [n for n in graph._handle.store.objects.list("__recovery") if n.endswith(".cleanup")]


def test_only_versions_that_nothing_needs_go(graph):
    graph.branches.create("feat")
    graph.load([{"type": "Person", "data": {"name": "f"}}], branch="feat")
    graph.load([{"type": "Person", "data": {"name": "g"}}])
    ref = person(graph)
    existing = graph._handle.store.datasets.listed_versions(ref)
    newest, fork_point = existing[-1], existing[-2]
    count, size = remove(graph, existing)
    left = set(graph._handle.store.datasets.listed_versions(ref))
    assert (left, count) == ({newest, fork_point}, len(existing) - 2)
    assert size > 0
    assert read_removed(graph._handle.store.objects).of(ref, None) == frozenset(existing) - left
    assert graph.snapshot().read("Person").num_rows == 4
    assert graph.snapshot("feat").read("Person").num_rows == 4
    assert verify_graph(graph.uri).problems == ()


def test_what_is_said_to_go_goes_and_nothing_else(graph):
    ref = person(graph)
    existing = graph._handle.store.datasets.listed_versions(ref)
    before = files(graph)
    removal = removal_of(graph._handle.store.datasets, ref, existing[:-1])
    remove(graph, existing[:-1])
    versions = {ref.version_path(v) for v in removal.versions}
    assert before - files(graph) == {*removal.files, *versions}


def test_a_hard_drop_removes_every_version_up_to_one(graph):
    ref = person(graph)
    newest = max(graph._handle.store.datasets.listed_versions(ref))
    drop = hard_drop(graph, newest - 1)
    assert not is_cleared(graph._handle.store, drop)
    assert finish_removals(graph._handle.store) == 1
    assert is_cleared(graph._handle.store, drop)
    assert set(graph._handle.store.datasets.listed_versions(ref)) == {newest}
    assert read_removed(graph._handle.store.objects).of(ref, None) == frozenset(range(1, newest))
    assert verify_graph(graph.uri).problems == ()
    # The sidecar may be met again: nothing is left to be announced.
    hard_drop(graph, newest - 1)
    assert intents(graph) == []


def test_a_table_that_goes_whole_is_emptied_first(graph):
    ref = person(graph)
    newest = max(graph._handle.store.datasets.listed_versions(ref))
    hard_drop(graph, newest)
    assert finish_removals(graph._handle.store) == 1
    assert set(graph._handle.store.datasets.listed_versions(ref)) == {newest + 1}
    assert graph._handle.store.tables.open(ref, newest + 1).count() == 0
    assert not any("/data/" in path for path in files(graph))


def test_copies_that_a_deleted_branch_left_go_with_a_hard_drop(graph):
    """A branch of a branch, whose tables nobody came to delete with their names."""
    ref = person(graph)
    for name, source in (("feat", "main"), ("feat-2", "feat")):
        graph.branches.create(name, source)
        graph.load([{"type": "Person", "data": {"name": name}}], branch=name)
    for name in ("feat-2", "feat"):
        graph._handle.store.inline.delete_branch(MANIFEST, name)
    graph.load([{"type": "Person", "data": {"name": "z"}}])
    newest = max(graph._handle.store.datasets.listed_versions(ref))
    hard_drop(graph, newest - 1)
    assert finish_removals(graph._handle.store) == 1
    assert set(graph._handle.store.datasets.listed_versions(ref)) == {newest}
    assert not any("/tree/" in path for path in files(graph))


def test_versions_that_a_cleanup_did_not_come_to_stay(graph):
    """They may have got a tag or a branch meanwhile."""
    ref = person(graph)
    with pytest.raises(Died), die_at(Failpoint.REMOVAL_AFTER_INTENT):
        remove(graph, [1, 2, 3])
    assert finish_removals(graph._handle.store) == 1
    assert set(graph._handle.store.datasets.listed_versions(ref)) >= {1, 2, 3}
    assert read_removed(graph._handle.store.objects).of(ref, None) == frozenset()
    assert verify_graph(graph.uri).problems == ()


def test_versions_that_a_hard_drop_did_not_come_to_go(graph):
    ref = person(graph)
    hard_drop(graph, 3)
    with pytest.raises(Died), die_at(Failpoint.REMOVAL_AFTER_INTENT):
        finish_removals(graph._handle.store)
    assert finish_removals(graph._handle.store) == 1
    assert not set(graph._handle.store.datasets.listed_versions(ref)) & {1, 2, 3}
    assert read_removed(graph._handle.store.objects).of(ref, None) == {1, 2, 3}
    assert verify_graph(graph.uri).problems == ()


def test_a_process_that_lives_is_left_to_its_removal(graph):
    with pytest.raises(Died), die_at(Failpoint.REMOVAL_AFTER_VERSIONS):
        remove(graph, [1, 2, 3])
    other = Graph.open(graph.uri, "r")
    with graph._handle.store.leases.acquire([table_lease(KEY, None)], 1.0):
        assert finish_removals(other._handle.store) == 0
        assert len(intents(graph)) == 1
    assert finish_removals(other._handle.store) == 1
    assert intents(graph) == []


def test_a_fork_that_is_gone_needs_no_finishing(graph):
    graph.branches.create("feat")
    for name in "fgh":
        graph.load([{"type": "Person", "data": {"name": name}}], branch="feat")
    ref = person(graph, "feat")
    old = graph._handle.store.datasets.listed_versions(ref)[:-1]
    with pytest.raises(Died), die_at(Failpoint.REMOVAL_AFTER_INTENT):
        remove(graph, old, "feat")
    graph.branches.delete("feat")
    graph.branches.create("feat")
    graph.load([{"type": "Person", "data": {"name": "new"}}], branch="feat")
    existing = set(graph._handle.store.datasets.listed_versions(ref))
    assert finish_removals(graph._handle.store) == 1
    assert set(graph._handle.store.datasets.listed_versions(ref)) == existing
    assert intents(graph) == []
    assert verify_graph(graph.uri).problems == ()


def test_an_intent_that_says_nothing_is_in_nobodys_way(graph):
    graph._handle.store.objects.write("__recovery/x.cleanup", "{}")
    Graph.open(graph.uri).close()
    actual = verify_graph(graph.uri).problems
    assert [(item.code, item.file) for item in actual] == [
        (ProblemCode.MARKER_DAMAGED, "__recovery/x.cleanup")
    ]


def test_the_intent_and_the_record_have_the_documented_form(graph):
    ref = person(graph)
    with pytest.raises(Died), die_at(Failpoint.REMOVAL_AFTER_INTENT):
        remove(graph, [1, 2, 4])
    objects = graph._handle.store.objects
    stored = json.loads(objects.read(f"__recovery/{intents(graph)[0]}"))
    assert {key: stored[key] for key in stored if key not in ("operation_id", "started_at")} == {
        "purpose": "cleanup",
        "table": KEY,
        "location": ref.location,
        "branch": "main",
        "life": None,
        "versions": [[1, 2], [4, 4]],
        "files": stored["files"],
    }
    assert all(path.startswith(f"{ref.location}/") for path in stored["files"])
    record = json.loads(objects.read(PATH))
    assert record["version"] == 1
    assert record["removed"] == {ref.location: {"life": None, "versions": [[1, 2], [4, 4]]}}
