"""Versions on S3 that this program creates itself, beside those that Lance commits."""

from __future__ import annotations

import math
import random
import time
from concurrent.futures import ThreadPoolExecutor

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.commit import CommitConflictError
from lance.fragment import write_fragments

from omnigraph import Graph
from omnigraph.commit.failpoints import Failpoint, hooked, install
from omnigraph.errors import (
    Conflict,
    OmniGraphError,
    OutcomePending,
    PreconditionFailed,
    StorageUnavailable,
    StorageUnknown,
    VersionMismatch,
)
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.storage.tables import warm_rows
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.store import TableStore
from omnigraph.storage.tables.types import TableRef
from tests.s3.proxy import Action, Fault, Kind

pytestmark = pytest.mark.rotates(6)

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("n", pa.int64())])
REF, FORK = TableRef("nodes/thing"), TableRef("nodes/thing", "team")


def rows(*keys, n=1):
    return pa.table({"id": list(keys), "n": [n] * len(keys)}, schema=SCHEMA)


class World:
    """One table on S3, written by this program and by Lance."""

    def __init__(self, root, ref):
        self.root, self.ref = root, ref
        made = LanceDataset.commit(
            root.path(ref.location),
            LanceOperation.Overwrite(SCHEMA, []),
            enable_stable_row_ids=True,
            storage_options=root.options,
        )
        if ref.branch is not None:
            made.create_branch(ref.branch)
        self.store = TableStore(Datasets(ObjectStore(root)))
        self.version, self.e_tag = int(made.version), None

    @property
    def lance(self):
        """The newest version, as another program opens it."""
        return lance.dataset(self.root.path(self.ref.path), storage_options=self.root.options)

    @property
    def table(self):
        return self.store.open(self.ref, self.version, self.e_tag)

    def append(self, *keys, n=1):
        return self.store.stage_append(self.table, rows(*keys, n=n))

    def upsert(self, *keys, n=1):
        return self.store.stage_upsert(self.table, rows(*keys, n=n))

    def delete(self, *keys):
        return self.store.stage_delete_keys(self.table, pa.array(keys, pa.string()))

    def commit(self, staged):
        self.store.check_staged([staged])
        done = self.store.commit_staged(staged)
        self.version, self.e_tag = done.version, done.info.e_tag
        return done

    def follow(self):
        """Go on from the newest version of Lance."""
        self.version = int(self.lance.version)
        self.e_tag = None

    def stored_keys(self):
        return sorted(self.lance.to_table()["id"].to_pylist())


@pytest.fixture(params=[REF, FORK], ids=["main", "branch"])
def world(request, s3_root):
    return World(s3_root("g.omni"), request.param)


def test_lance_and_this_program_write_in_turn(world):
    assert world.append("a").built is not None
    world.commit(world.append("a", "b", "c"))
    world.commit(world.upsert("b", "d", n=2))
    done = world.commit(world.delete("a"))
    assert (done.version, done.row_count) == (world.version, 3)
    assert world.stored_keys() == ["b", "c", "d"]
    theirs = world.lance
    theirs.validate()
    assert theirs.read_transaction(world.version) is not None
    if world.ref.branch is None:
        assert theirs.checkout_version(world.version - 1).count_rows() == 4
    lance.write_dataset(
        rows("e"),
        world.root.path(world.ref.path),
        mode="append",
        storage_options=world.root.options,
    )
    world.lance.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(
        rows("b", "f", n=3)
    )
    world.lance.create_scalar_index("id", "BTREE")
    world.follow()
    world.commit(world.upsert("b", "g", n=4))
    world.commit(world.delete("c"))
    world.lance.optimize.compact_files()
    world.follow()
    world.commit(world.append("h"))
    stored = world.lance.to_table(filter="id = 'b'").to_pylist()
    assert stored == [{"id": "b", "n": 4}]
    world.lance.cleanup_old_versions(retain_versions=1)
    world.commit(world.delete("d", "e"))
    assert world.stored_keys() == ["b", "f", "g", "h"]
    world.lance.validate()


def test_rows_that_were_read_from_memory_are_those_of_lance(world):
    world.commit(world.append("a", "b", "c"))
    world.commit(world.delete("b"))
    world.commit(world.upsert("c", n=5))
    mine = world.table.warm.read(["id", "n"], row_ids=True)
    theirs = world.lance.scanner(
        columns=["id", "n"], with_row_id=True, with_row_address=True
    ).to_table()
    assert mine.sort_by("id").to_pylist() == theirs.sort_by("id").to_pylist()


def test_an_earlier_version_has_its_own_rows(world):
    world.commit(world.append("a", "b", "c"))
    before = world.version, world.e_tag
    world.commit(world.delete("b"))
    # Read first at the later version, from the store.
    fresh = TableStore(Datasets(ObjectStore(world.root)))
    later = fresh.open(world.ref, world.version, world.e_tag)
    assert sorted(later.warm.read(["id"])["id"].to_pylist()) == ["a", "c"]
    earlier = fresh.open(world.ref, *before)
    assert sorted(earlier.warm.read(["id"])["id"].to_pylist()) == ["a", "b", "c"]
    assert sorted(later.warm.read(["id"])["id"].to_pylist()) == ["a", "c"]


@pytest.mark.parametrize("most", [0, 4, 20_000], ids=["large", "mixed", "small"])
@pytest.mark.parametrize("seed", range(2))
def test_random_changes_agree_with_lance(world, monkeypatch, most, seed):
    """Whether all rows are in memory, or those of an earlier version are read by Lance."""
    monkeypatch.setattr(warm_rows, "MOST_ROWS", most)
    chance = random.Random(seed)
    world.commit(world.append(*(f"k{n}" for n in range(6))))
    if seed:
        world.lance.create_scalar_index("id", "BTREE")
        world.follow()
    for number in range(14):
        some = [f"k{n}" for n in chance.sample(range(9), chance.randint(1, 3))]
        condition = pc.field("id").isin(some)
        match chance.randrange(4):
            case 0:
                staged = world.append(f"new{number}")
            case 1 | 2:
                staged = world.upsert(*some, n=number)
            case _:
                staged = world.delete(*some)
        if staged is not None:
            world.commit(staged)
        theirs = world.lance.to_table(columns=["id", "n"], filter=condition, with_row_id=True)
        mine = world.table.read(["id", "n"], condition, row_ids=True)
        assert mine.sort_by("id").to_pylist() == theirs.sort_by("id").to_pylist()
    world.lance.validate()


# -- conflicts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["append", "delete"])
def test_who_comes_after_lance_changes_nothing(world, first):
    world.commit(world.append("a", "b"))
    staged = world.append("late")
    if first == "append":
        lance.write_dataset(
            rows("theirs"),
            world.root.path(world.ref.path),
            mode="append",
            storage_options=world.root.options,
        )
    else:
        world.lance.delete("id = 'a'")
    after = world.lance
    with pytest.raises(VersionMismatch):
        world.commit(staged)
    assert world.lance.version == after.version
    assert "late" not in world.stored_keys()


def test_lance_that_comes_after_it_sees_the_conflict(world):
    world.commit(world.append("a", "b"))
    base = world.lance
    fragment = base.get_fragments()[0]
    theirs = Transaction(
        base.version,
        LanceOperation.Delete([fragment.delete("id = 'a'")], [], "id = 'a'"),
    )
    world.commit(world.delete("b"))
    with pytest.raises(CommitConflictError):
        LanceDataset.commit(base, theirs, max_retries=0, storage_options=world.root.options)
    added = write_fragments(rows("c"), base, mode="append", storage_options=world.root.options)
    rebased = LanceDataset.commit(
        base,
        Transaction(base.version, LanceOperation.Append(added)),
        storage_options=world.root.options,
    )
    assert rebased.version == world.version + 1
    assert world.stored_keys() == ["a", "c"]


def test_exactly_one_of_several_writers_gets_a_version(world):
    world.commit(world.append("a"))
    staged = [world.append(f"w{n}") for n in range(6)]
    world.store.check_staged(staged)

    def commit(step):
        try:
            return world.store.commit_staged(step).version
        except VersionMismatch:
            return None

    with ThreadPoolExecutor(6) as pool:
        versions = list(pool.map(commit, staged))
    assert [v for v in versions if v is not None] == [world.version + 1]
    assert len(world.stored_keys()) == 2


# -- lost answers ---------------------------------------------------------------------------------

GRAPH = "node Person { name: String @key }"
ADD = "query add($name: String) { insert Person { name: $name } }"


@pytest.fixture
def graph(s3_root, proxy):
    root = s3_root("g.omni", proxy.endpoint)
    with Graph.init(root.uri, GRAPH, storage_options=root.options) as graph:
        graph.mutate(ADD, "add", {"name": "first"})
        yield graph


@pytest.mark.parametrize("at", [1, 2], ids=["of a table", "of the manifest"])
@pytest.mark.parametrize("action", [Action.CUT_AFTER, Action.UNAVAILABLE, Action.CONFLICT])
def test_a_version_whose_answer_was_lost_is_recognised(graph, proxy, at, action):
    fault = Fault(action, kind=Kind.PUT, path="_versions/", at=at)
    proxy.plan(fault)
    receipt = graph.mutate(ADD, "add", {"name": "second"})
    assert fault.reached.is_set()
    assert graph.commit(receipt.commit_id).commit_id == receipt.commit_id
    with Graph.open(graph.uri, storage_options=graph.storage_options) as fresh:
        assert fresh.snapshot().count("Person") == 2
        assert fresh.maintenance.verify().is_sound


def test_a_version_that_exists_and_cannot_be_read_is_not_taken_for_that_of_another(graph, proxy):
    """Its answer was lost, the repeated request meets its own file, and reading it back fails."""
    proxy.plan(
        Fault(Action.CUT_AFTER, kind=Kind.PUT, path="_versions/"),
        Fault(Action.UNAVAILABLE, kind=Kind.GET, path="_versions/", times=math.inf),
    )
    error: OmniGraphError | None = None
    try:
        graph.mutate(ADD, "add", {"name": "second"})
    except OmniGraphError as raised:
        error = raised
    proxy.reset()
    with Graph.open(graph.uri, storage_options=graph.storage_options) as fresh:
        is_stored = fresh.snapshot().count("Person") == 2
        assert not is_stored or error is None or isinstance(error, OutcomePending | StorageUnknown)
        assert fresh.maintenance.verify().is_sound


def test_a_version_that_did_not_arrive_is_undone(graph, proxy):
    proxy.plan(Fault(Action.CUT_BEFORE, kind=Kind.PUT, path="_versions/"))
    with pytest.raises((StorageUnavailable, StorageUnknown)):
        graph.mutate(ADD, "add", {"name": "second"})
    proxy.reset()
    graph.mutate(ADD, "add", {"name": "third"})
    with Graph.open(graph.uri, storage_options=graph.storage_options) as fresh:
        assert fresh.snapshot().count("Person") == 2
        assert fresh.maintenance.verify().is_sound


def test_a_table_that_another_program_moved_is_left_alone(graph):
    location = graph.snapshot().dataset("Person").uri
    theirs = lance.dataset(location, storage_options=graph.storage_options)
    theirs.delete("true")
    with pytest.raises(Conflict, match="no interrupted write explains it"):
        graph.mutate(ADD, "add", {"name": "second"})
    assert lance.dataset(location, storage_options=graph.storage_options).version == theirs.version
    assert graph._handle.store.sidecars.list() == []


def test_without_a_temporary_directory_lance_writes_to_the_store(graph, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    graph.mutate(ADD, "add", {"name": "second"})
    graph.mutate(ADD, "add", {"name": "third"})
    monkeypatch.undo()
    graph.mutate(ADD, "add", {"name": "fourth"})
    with Graph.open(graph.uri, storage_options=graph.storage_options) as fresh:
        assert fresh.snapshot().count("Person") == 4
        assert fresh.maintenance.verify().is_sound


def test_a_publish_that_is_refused_is_undone_at_once(s3_root):
    """The writer holds the lease of the publish already, which the undo needs too."""
    root = s3_root("g.omni")
    schema = f"{GRAPH} node City {{ name: String @key }}"
    city = "query add($name: String) { insert City { name: $name } }"
    with (
        Graph.init(root.uri, schema, storage_options=root.options) as graph,
        Graph.open(root.uri, storage_options=root.options) as other,
    ):
        head = graph.mutate(ADD, "add", {"name": "first"}).commit_id

        def write_between(point: Failpoint) -> None:
            if point is Failpoint.WRITE_AFTER_SIDECAR:
                install(None)
                other.mutate(city, "add", {"name": "between"})

        started = time.monotonic()
        with hooked(write_between), pytest.raises(PreconditionFailed):
            graph.mutate(ADD, "add", {"name": "second"}, if_commit=head)
        assert time.monotonic() - started < graph._handle.store.timeouts.publish
        assert graph._handle.store.sidecars.list() == []
        graph.mutate(ADD, "add", {"name": "third"})
        assert other.snapshot().count("Person") == 2
