"""Changing schemas on a real S3 server: names that come and go, and what is lost for good."""

from __future__ import annotations

import json

import pytest

from omnigraph import Graph
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.names import SCHEMA_LEASE, SCHEMA_LOCK
from omnigraph.commit.schema.lock import MARK, is_locked
from omnigraph.commit.store import Timeouts
from omnigraph.errors import HistoryGone, OutcomePending, SchemaChanging
from omnigraph.storage.leases.local import lease_path
from omnigraph.storage.leases.s3_records import NOBODY
from omnigraph.storage.tables.types import TableRef
from tests.commit.world import at
from tests.evolve.world import AGES, KNOWS, RENAMED, SCHEMA, changed, fill, friends, values
from tests.faults.location import open_graph
from tests.s3.proxy import Action, Fault, Kind
from tests.sampling import rotating

CITY = SCHEMA + "node City { name: String @key }\n"
EVE = [{"type": "Person", "data": {"name": "Eve"}}]


@pytest.fixture
def graph(s3_root):
    root = s3_root("g.omni")
    with Graph.init(root.uri, SCHEMA, storage_options=root.options) as graph:
        fill(graph)
        yield graph


def test_names_come_and_go(graph):
    first = graph.snapshot().version
    graph.schema.apply(RENAMED)
    assert friends(graph, "Human") == KNOWS
    # The place of the old name is taken: the new table counts on somewhere else.
    both = RENAMED.replace(' @rename_from("Person")', "") + "node Person { name: String @key }\n"
    graph.schema.apply(both)
    graph.load([{"type": "Person", "data": {"name": "Zoe"}}])
    assert list(values(graph, "Person", "name")) == ["Zoe"]
    assert values(graph, "Human", "age") == AGES
    assert values(graph, "Person", "age", version=first) == AGES
    without = both.replace("node Person { name: String @key }\n", "")
    graph.schema.apply(without)
    graph.schema.apply(both)
    assert graph.snapshot().count("Person") == 0


def test_a_hard_drop_takes_the_past_with_it(graph):
    before = graph.snapshot().version
    wider = changed(("age: I32?", "age: I64"))
    graph.schema.apply(wider, values={"Person.age": 0})
    assert values(graph, "Person", "age") == AGES
    done = graph.schema.apply(changed(("  age: I32?", "")), allow_data_loss=True)
    assert done.cleared == ("node:Person",)
    assert friends(graph) == KNOWS
    with pytest.raises(HistoryGone):
        graph.snapshot(version=before).read("Person")


# -- leases that an apply could not remove --------------------------------------------------------


def leave_lease(graph, owner=NOBODY, seconds=1.0):
    """The object of the lease of an apply; it lives for some seconds."""
    record = {"owner": owner, "token": 1, "name": SCHEMA_LEASE, "ttl_seconds": seconds, "beat": 0}
    graph._handle.store.objects.write(lease_path(SCHEMA_LEASE), json.dumps(record))


def leave_lock(graph):
    store = graph._handle.store
    store.objects.write(MARK, "")
    version = store.manifest(None).current().manifest_version
    store.inline.create_branch(TableRef(MANIFEST), version, SCHEMA_LOCK)


OPERATIONS = {
    "write": lambda graph: graph.load(EVE),
    "create a branch": lambda graph: graph.branches.create("review"),
    "create a tag": lambda graph: graph.tags.create("v1"),
    "revert": lambda graph: graph.revert(graph.snapshot().commit_id),
    "clean up": lambda graph: graph.maintenance.cleanup(keep_versions=1),
    "apply": lambda graph: graph.schema.apply(CITY),
}


@pytest.mark.parametrize("name", rotating(list(OPERATIONS), 2, "after an apply on S3"))
def test_what_comes_next_waits_for_the_leases_of_an_apply_that_has_ended(graph, name):
    leave_lock(graph)
    leave_lease(graph)
    OPERATIONS[name](graph)
    assert not is_locked(graph._handle.store)


def test_an_apply_whose_lease_has_an_owner_keeps_everybody_out(graph):
    leave_lock(graph)
    leave_lease(graph, owner="somebody", seconds=60.0)
    for name, operation in OPERATIONS.items():
        with pytest.raises(SchemaChanging) as refused:
            operation(graph)
        assert refused.value.message == (
            "schema apply is already in progress"
            if name == "apply"
            else "write is unavailable while schema apply is in progress"
        )


def test_an_apply_waits_for_the_lease_of_one_that_has_ended(graph):
    leave_lease(graph)
    assert graph.schema.apply(CITY).applied


def test_an_apply_that_could_delete_nothing_is_completed_by_the_next_write(graph, s3_root, proxy):
    through = s3_root("g.omni", proxy.endpoint)
    storm = Fault(Action.UNAVAILABLE, kind=Kind.DELETE, times=float("inf"))
    with (
        open_graph(through, Timeouts(lease_ttl=2.0)) as applying,
        at(Failpoint.STAGING_BEFORE_PROMOTE, lambda: proxy.plan(storm)),
        pytest.raises(OutcomePending),
    ):
        applying.schema.apply(CITY)
    graph.load(EVE)
    assert "City" in graph.catalog.node_types
    assert set(values(graph, "Person", "age")) == {*AGES, "Eve"}
    assert graph._handle.store.sidecars.list() == []
