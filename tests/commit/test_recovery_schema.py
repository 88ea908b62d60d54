"""Schema applies that died: their tables, their staged files and their lock."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest

from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.lifecycle import table_location
from omnigraph.commit.manifest import MANIFEST, branch_reference
from omnigraph.commit.names import SCHEMA_LEASE, SCHEMA_LOCK
from omnigraph.commit.schema.staging import SchemaStaging
from omnigraph.errors import SchemaChanging
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.storage.tables.types import TableRef
from tests.commit.deaths import (
    HEAL_POINTS,
    Died,
    audited,
    leave_sidecar,
    left,
    move,
    pin,
    pinned,
    reopen,
)
from tests.commit.world import SCHEMA, at, companies, names, people, raising

PERSON, COMPANY = "node:Person", "node:Company"
STAGING_POINTS = (Failpoint.STAGING_BEFORE_PROMOTE, Failpoint.STAGING_BETWEEN_RENAMES)


@pytest.fixture
def graph(graph):
    """Ada, and a company."""
    graph.append(people(Ada=36) | companies("Acme"))
    return graph


# -- schema applies ---------------------------------------------------------------------------

GROWN = SCHEMA.replace("node Company { name: String @key }", "node City { name: String @key }")
GROWN = GROWN.replace("edge WorksAt: Person -> Company\n", "")
CITY = compile_schema(GROWN).node("City")


def dead_apply(graph, path, *, stage=True):
    """An apply of the reference that died before its publish: a new type, two less."""
    store = graph._handle.store
    store.inline.create(table_location(CITY), CITY.arrow_schema())
    if stage:
        SchemaStaging(store.objects).stage(compile_schema(GROWN), GROWN)
    return leave_sidecar(
        path,
        kind="SchemaApply",
        additional_registrations=[
            {"table_key": CITY.table_key, "table_path": table_location(CITY)}
        ],
        tombstones=[
            {"table_key": key, "tombstone_version": pinned(graph, key)}
            for key in (COMPANY, "edge:WorksAt")
        ],
    )


@pytest.mark.parametrize("where", ["open", "refresh"])
def test_a_schema_apply_that_staged_its_files_is_finished(graph, path, where):
    operation = dead_apply(graph, path)
    HEAL_POINTS[where](graph, path)
    assert [(kind, of) for kind, of, _ in audited(graph)] == [("RolledForward", operation)]
    assert sorted(graph.snapshot().tables) == ["edge:Knows", "node:City", "node:Person"]
    assert sorted(graph.catalog.node_types) == ["City", "Person"]
    assert not list(path.glob("*.staging"))
    graph.append({"City": pa.table({"name": ["Rome"]})})
    assert graph.snapshot().count("City") == 1


def test_a_healed_schema_apply_is_what_the_next_write_on_that_handle_follows(graph, path):
    dead_apply(graph, path)
    graph.append(people(Grace=1))
    assert sorted(graph.catalog.node_types) == ["City", "Person"]
    graph.append({"City": pa.table({"name": ["Rome"]})})


def test_a_schema_apply_that_staged_nothing_is_taken_back_by_an_open_only(graph, path):
    operation = dead_apply(graph, path, stage=False)
    assert graph.refresh() == ()
    assert left(path) == [operation]
    reopen(path)
    assert [(kind, of) for kind, of, _ in audited(graph)] == [("RolledBack", operation)]
    assert sorted(graph.catalog.node_types) == ["Company", "Person"]
    assert CITY.table_key not in graph.snapshot().tables


def test_a_schema_apply_is_not_promoted_when_its_tables_have_to_go_back(graph, path):
    before = pinned(graph, PERSON)
    SchemaStaging(graph._handle.store.objects).stage(compile_schema(GROWN), GROWN)
    move(path, PERSON, "Grace")
    leave_sidecar(
        path,
        pin(path, PERSON, before),
        pin(path, COMPANY, pinned(graph, COMPANY)),
        kind="SchemaApply",
    )
    reopen(path)
    assert names(graph) == ["Ada"]
    assert sorted(graph.catalog.node_types) == ["Company", "Person"]
    assert not list(path.glob("*.staging"))


def test_the_files_of_a_schema_apply_that_lives_are_left_alone(graph, other, path):
    operation = dead_apply(graph, path)
    with other._handle.store.leases.acquire([SCHEMA_LEASE], timeout=0.0):
        assert graph.refresh() == ()
        assert reopen(path) == ()
    assert left(path) == [operation]
    assert len(list(path.glob("*.staging"))) == 3


@pytest.mark.parametrize("again", [Failpoint.RECOVERY_BEFORE_PUBLISH, *STAGING_POINTS])
def test_a_schema_apply_is_finished_also_when_its_recovery_dies(graph, path, again):
    dead_apply(graph, path)
    with at(again, raising(Died())), pytest.raises(Died):
        reopen(path)
    reopen(path)
    assert sorted(graph.catalog.node_types) == ["City", "Person"]
    assert CITY.table_key in graph.snapshot().tables
    assert len(audited(graph)) == 1


# -- the lock of a schema apply ---------------------------------------------------------------


@pytest.fixture
def locked(graph, path):
    """Somebody began a schema apply; gives the file of its lock."""
    store = graph._handle.store
    version = store.manifest(None).current().manifest_version
    store.inline.create_branch(TableRef(MANIFEST), version, SCHEMA_LOCK)
    return path / branch_reference(SCHEMA_LOCK)


def grow_old(file):
    os.utime(file, (0, 0))


def test_while_a_schema_is_applied_nobody_writes(graph, path, locked):
    reopen(path)
    with pytest.raises(SchemaChanging):
        graph.append(people(Grace=1))
    with pytest.raises(SchemaChanging):
        graph.branches.create("feat")
    assert graph.branches.list() == ["main"]


@pytest.mark.parametrize("where", ["open", "refresh"])
def test_the_lock_that_nobody_holds_any_more_is_removed(graph, path, locked, where):
    grow_old(locked)
    HEAL_POINTS[where](graph, path)
    graph.append(people(Grace=1))
    assert names(graph) == ["Ada", "Grace"]


def test_an_old_lock_whose_holder_lives_stays(graph, other, path, locked):
    grow_old(locked)
    with other._handle.store.leases.acquire([SCHEMA_LEASE], timeout=0.0):
        reopen(path)
        with pytest.raises(SchemaChanging):
            graph.append(people(Grace=1))
    graph.append(people(Grace=1))


def test_the_lock_goes_with_the_dead_apply_it_belongs_to(graph, path, locked):
    dead_apply(graph, path)
    graph.refresh()
    graph.append(people(Grace=1))
    assert names(graph) == ["Ada", "Grace"]
