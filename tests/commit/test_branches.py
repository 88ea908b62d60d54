"""Branches: what may be called how, what a write copies, and names that are used again."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from contextlib import contextmanager

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from omnigraph import Graph
from omnigraph.commit.branches import Branches, clear_orphan, fork_table
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.publisher import Publication
from omnigraph.commit.rows import VersionRow, WriterKind
from omnigraph.commit.store import Timeouts
from omnigraph.commit.write_request import PreparedWrite, WriteRequest
from omnigraph.errors import (
    BranchExists,
    BranchInUse,
    BranchNotFound,
    Conflict,
    HistoryGone,
    InputError,
    OrphanEdge,
    SchemaChanging,
    StorageMissing,
    StorageUnavailable,
    StorageUnknown,
    VersionMismatch,
)
from omnigraph.storage.tables.types import CommittedTable, TableRef
from tests.commit.world import (
    COMPANY,
    KNOWS,
    PERSON,
    WORKS_AT,
    at,
    companies,
    knows,
    manifest_of,
    names,
    people,
    raising,
    store_at,
    works_at,
)

pytestmark = pytest.mark.rotates(6)

TABLES = {"Person": PERSON, "Company": COMPANY, "Knows": KNOWS, "WorksAt": WORKS_AT}


@pytest.fixture
def graph(graph):
    """Ann and Bo, who know each other."""
    graph.append(people(ann=1, bo=2) | knows(("ann", "bo")))
    return graph


def forks(path):
    """Which tables have a copy for which branches."""
    matches = {}
    for name, location in TABLES.items():
        branches = sorted(lance.dataset(str(path / location)).branches.list())
        if branches:
            matches[name] = branches
    return matches


def owners(graph, branch):
    """Which tables of a branch are not those of main."""
    tables = graph.snapshot(branch).tables
    return {key: table["branch"] for key, table in tables.items() if table["branch"] != "main"}


# -- creating and listing ---------------------------------------------------------------------


def test_a_new_branch_copies_nothing_and_shows_everything(graph, other, path):
    """Main is first and appears once."""
    graph.branches.create("review/2026-05")
    graph.branches.create("a")
    assert graph.branches.list() == ["main", "a", "review/2026-05"] == other.branches.list()
    assert forks(path) == {}
    assert names(graph, "review/2026-05") == ["ann", "bo"]
    assert owners(graph, "a") == {}
    assert graph.snapshot("a").commit_id == graph.snapshot().commit_id


def test_names_are_not_trimmed(graph):
    """Unlike in the reference: one branch has one name."""
    graph.branches.create("b")
    for name in (" b ", "b\n", " main "):
        with pytest.raises(BranchNotFound):
            graph.append(people(cy=3), branch=name)
        with pytest.raises(BranchNotFound):
            names(graph, name)
        with pytest.raises(BranchNotFound):
            graph.branches.delete(name)
    assert graph.branches.list() == ["main", "b"]


@pytest.mark.parametrize("name", ["__run__01H", "v1.2", "a/b/c", "A", "x" * 200, "-", "main2"])
def test_ordinary_names(graph, name):
    """Also ones that look internal."""
    graph.branches.create(name)
    graph.append(people(cy=3), branch=name)
    assert names(graph, name) == ["ann", "bo", "cy"]
    graph.branches.delete(name)
    assert graph.branches.list() == ["main"]


NAMES = {
    "": "the name of a branch cannot be empty",
    "   ": "the name of a branch cannot be empty",
    "main": "cannot create branch 'main'",
    " main ": "cannot be the name of a branch",
    "b\n": "cannot be the name of a branch",
    "main/x": "branch 'main/x' cannot be below 'main'",
    "__schema_apply_lock__": "branch '__schema_apply_lock__' is internal",
    "/__schema_apply_lock__": "branch '/__schema_apply_lock__' is internal",
    "a b": "'a b' cannot be the name of a branch",
    "ü": "cannot be the name of a branch",
    "/a": "cannot be the name of a branch",
    "a/": "cannot be the name of a branch",
    "a//b": "cannot be the name of a branch",
    "..": "cannot be the name of a branch",
    "a/../b": "cannot be the name of a branch",
    "a/.": "cannot be the name of a branch",
    "a.lock": "cannot be the name of a branch",
    "a\\b": "cannot be the name of a branch",
    "a\0b": "name holds a NUL character",
    "x" * 201: "cannot be the name of a branch",
}


@pytest.mark.parametrize(("name", "text"), NAMES.items(), ids=[repr(name[:30]) for name in NAMES])
def test_names_that_are_refused(graph, name, text):
    with pytest.raises(InputError) as caught:
        graph.branches.create(name)
    assert text in caught.value.message
    assert graph.branches.list() == ["main"]


@pytest.mark.parametrize("name", ["__schema_apply_lock__", "//__schema_apply_lock__"])
def test_the_internal_branch_can_be_neither_read_nor_written(graph, name):
    for call in (
        lambda: graph.snapshot(name),
        lambda: graph.append(people(cy=3), branch=name),
        lambda: graph.branches.delete(name),
        lambda: graph.branches.create("b", from_branch=name),
        lambda: graph.commits(name),
        lambda: graph.indexes.ensure(name),
    ):
        with pytest.raises(InputError, match="is internal"):
            call()


def test_a_name_that_is_taken_is_refused(graph, other):
    graph.branches.create("b")
    graph.append(people(cy=3), branch="b")
    with pytest.raises(BranchExists, match="branch 'b' exists already") as caught:
        other.branches.create("b")
    assert caught.value.details == {"branch": "b"}
    assert names(other, "b") == ["ann", "bo", "cy"]


@pytest.mark.parametrize(("first", "second"), [("a", "a/b"), ("a/b", "a"), ("a/b/c", "a")])
def test_no_name_is_a_path_prefix_of_another(graph, first, second):
    """Decision 11: one directory cannot be a branch and hold another."""
    graph.branches.create(first)
    with pytest.raises(BranchExists, match="no name may be a path prefix of another") as caught:
        graph.branches.create(second)
    assert caught.value.details == {"branch": second, "other": first}
    graph.branches.delete(first)
    graph.branches.create(second)
    assert graph.branches.list() == ["main", second]


def test_names_with_a_common_beginning_live_side_by_side(graph, path):
    """Decision 11: deleting one never removes a directory in which another lives."""
    for name in ("a/b", "a/c", "ab", "a-b"):
        graph.branches.create(name)
        graph.append(people(**{name.replace("/", "_").replace("-", "_"): 1}), branch=name)
    graph.branches.delete("a/b")
    assert names(graph, "a/c") == ["a_c", "ann", "bo"]
    assert names(graph, "ab") == ["ab", "ann", "bo"]
    assert forks(path) == {"Person": ["a-b", "a/c", "ab"]}


def test_unknown_branches_are_not_found(graph):
    for call in (
        lambda: graph.snapshot("b"),
        lambda: graph.append(people(cy=3), branch="b"),
        lambda: graph.branches.delete("b"),
        lambda: graph.branches.create("c", from_branch="b"),
        lambda: graph.commits("b"),
        lambda: graph.indexes.status("b"),
        lambda: graph.tags.create("t", branch="b"),
    ):
        with pytest.raises(BranchNotFound, match="branch 'b' not found") as caught:
            call()
        assert caught.value.details == {"branch": "b"}
    assert graph.branches.list() == ["main"]


def test_creating_and_writing_wait_for_a_schema_apply(graph, path):
    """Its lock branch is hidden."""
    manifest_of(path).create_branch("__schema_apply_lock__")
    assert graph.branches.list() == ["main"]
    for call in (
        lambda: graph.branches.create("b"),
        lambda: graph.append(people(cy=3)),
        lambda: graph.branches.delete("b"),
        lambda: graph.tags.create("t"),
        lambda: graph.indexes.ensure(),
    ):
        with pytest.raises(SchemaChanging) as caught:
            call()
        assert caught.value.retryable
    assert names(graph) == ["ann", "bo"]


# -- writing ----------------------------------------------------------------------------------


def test_writes_to_a_branch_stay_on_it(graph, other):
    """One handle reads several branches, and a snapshot stays while its branch moves."""
    graph.branches.create("b")
    taken = other.snapshot("b")
    graph.append(people(cy=3), branch="b")
    graph.append(people(dee=4))
    graph.append(people(eve=5), branch="b")
    assert names(other, "b") == ["ann", "bo", "cy", "eve"]
    assert names(other) == ["ann", "bo", "dee"]
    assert taken.count("Person") == taken.read("Person").num_rows == 2


def test_the_first_write_forks_only_what_it_writes(graph, path):
    graph.branches.create("b")
    graph.append(knows(("bo", "ann")), branch="b")
    assert forks(path) == {"Knows": ["b"]}
    assert owners(graph, "b") == {"edge:Knows": "b"}
    assert graph.snapshot("b").count("Knows") == 2
    assert graph.snapshot().count("Knows") == 1
    graph.append(people(cy=3), branch="b")
    assert owners(graph, "b") == {"edge:Knows": "b", "node:Person": "b"}
    assert forks(path) == {"Knows": ["b"], "Person": ["b"]}


def test_a_second_write_does_not_fork_again(graph):
    graph.branches.create("b")
    passed = []
    for name in ("cy", "dee"):
        with at(Failpoint.FORK_BEFORE_CREATE, lambda name=name: passed.append(name)):
            graph.append(people(**{name: 1}), branch="b")
    assert passed == ["cy"]


def test_a_write_that_is_refused_leaves_the_branch_without_a_commit(graph):
    """A fork that was made for it is nobody's, and the next write works."""
    graph.branches.create("b")
    before = graph.snapshot("b").version
    with pytest.raises(Conflict), at(Failpoint.WRITE_AFTER_FORK, raising(Conflict("lost"))):
        graph.append(people(cy=3), branch="b")
    assert graph.snapshot("b").version == before
    assert owners(graph, "b") == {}
    graph.append(people(dee=4), branch="b")
    assert names(graph, "b") == ["ann", "bo", "dee"]


def test_a_delete_that_touches_two_tables_forks_both(graph, path):
    """The node table and the edge table of a cascade, in one commit."""
    graph.branches.create("b")
    store = graph._handle.store

    def stage_delete(view, key, condition):
        table = view.table(key)
        keys = table.read(["id"], condition)["id"].combine_chunks()
        return view.stage.stage_delete_keys(table, keys)

    def prepare(view):
        return PreparedWrite(
            {
                "node:Person": (stage_delete(view, "node:Person", pc.field("id") == "bo"),),
                "edge:Knows": (stage_delete(view, "edge:Knows", pc.field("dst") == "bo"),),
            }
        )

    touches = frozenset({"node:Person", "edge:Knows"})
    request = WriteRequest(WriterKind.MUTATION, "b", touches, prepare, strict=True)
    receipt = commit_write(store, request)
    assert (receipt.affected_nodes, receipt.affected_edges) == (1, 1)
    assert forks(path) == {"Person": ["b"], "Knows": ["b"]}
    assert (names(graph, "b"), names(graph)) == (["ann"], ["ann", "bo"])
    assert graph.snapshot("b").count("Knows") == 0


def test_a_branch_of_a_branch_inherits_and_then_owns(graph, path):
    """Its parent's copies are read until it writes its own."""
    graph.branches.create("b")
    graph.append(people(cy=3), branch="b")
    graph.branches.create("c", from_branch="b")
    graph.append(people(dee=4), branch="b")
    assert names(graph, "c") == ["ann", "bo", "cy"]
    assert owners(graph, "c") == {"node:Person": "b"}
    graph.append(people(eve=5), branch="c")
    assert owners(graph, "c") == {"node:Person": "c"}
    assert names(graph, "c") == ["ann", "bo", "cy", "eve"]
    assert names(graph, "b") == ["ann", "bo", "cy", "dee"]
    assert names(graph) == ["ann", "bo"]
    assert forks(path) == {"Person": ["b", "c"]}


def test_edges_of_a_branch_see_the_nodes_of_the_branch(graph):
    graph.branches.create("b")
    graph.append(people(cy=3) | companies("Acme"), branch="b")
    graph.append(works_at(("cy", "Acme")), branch="b")
    assert graph.snapshot("b").count("WorksAt") == 1
    with pytest.raises(OrphanEdge):
        graph.append(works_at(("cy", "Acme")))


def test_commits_of_a_branch_form_one_chain_from_the_fork_on(graph, other):
    """Whichever handle makes them."""
    fork = graph.snapshot().commit_id
    graph.branches.create("b")
    graph.append(people(m=1))
    made = [
        handle.append(people(**{f"p{number}": 1}), branch="b").commit_id
        for number, handle in enumerate([graph, other, graph, other])
    ]
    commits = {commit.commit_id: commit for commit in graph.commits("b")}
    assert [commits[made[n]].parent for n in range(4)] == [fork, *made[:3]]
    assert {commits[commit].branch for commit in made} == {"b"}


# -- deleting ---------------------------------------------------------------------------------


def test_main_cannot_be_deleted(graph):
    with pytest.raises(InputError, match="cannot delete branch 'main'"):
        graph.branches.delete("main")


def test_a_branch_that_was_forked_from_cannot_be_deleted(graph):
    graph.branches.create("b")
    graph.branches.create("c", from_branch="b")
    with pytest.raises(BranchInUse) as caught:
        graph.branches.delete("b")
    assert caught.value.message == (
        "cannot delete branch 'b' because descendant branch 'c' still depends on it"
    )
    assert caught.value.details == {"branch": "b", "dependent": "c"}
    assert (caught.value.hint, caught.value.retryable) == ("delete 'c' first", False)
    graph.branches.delete("c")
    graph.branches.delete("b")
    assert graph.branches.list() == ["main"]


def test_a_branch_whose_tables_another_shows_cannot_be_deleted(graph, store):
    """The manifest decides, whatever the parents of the branches are."""
    graph.branches.create("b")
    graph.branches.create("c")
    graph.append(people(cy=3), branch="b")
    pin = graph._handle.store.manifest("b").current().pins["node:Person"]
    adopted = VersionRow("node:Person", pin.version, "b", pin.row_count, pin.metadata)
    store.publisher.publish(store.manifest("c"), Publication({}, [adopted]))
    assert names(graph, "c") == ["ann", "bo", "cy"]
    with pytest.raises(BranchInUse) as caught:
        graph.branches.delete("b")
    assert caught.value.message == (
        "cannot delete branch 'b' because branch 'c' still depends on it"
    )
    graph.branches.delete("c")
    graph.branches.delete("b")


def test_deleting_removes_the_copies_and_nothing_of_main(graph, path):
    graph.branches.create("b")
    graph.append(people(cy=3) | knows(("cy", "ann")), branch="b")
    graph.branches.delete("b")
    assert forks(path) == {}
    for location in (PERSON, KNOWS, "__manifest"):
        assert not (path / location / "tree" / "b").exists()
    assert names(graph) == ["ann", "bo"]
    with pytest.raises(BranchNotFound):
        graph.snapshot("b")


def test_a_deleted_branch_is_gone_for_every_handle(graph, other):
    """Also for one that had it warm, to read and to write."""
    graph.branches.create("b")
    graph.append(people(cy=3), branch="b")
    assert names(other, "b") == ["ann", "bo", "cy"]
    graph.branches.delete("b")
    for call in (lambda: other.snapshot("b"), lambda: other.append(people(dee=4), branch="b")):
        with pytest.raises(BranchNotFound):
            call()
    assert other.branches.list() == ["main"]


def test_copies_that_cannot_be_removed_do_not_fail_the_delete(graph, path, monkeypatch):
    """The name is gone, and whoever uses it again removes them."""
    graph.branches.create("b")
    graph.append(people(cy=3), branch="b")
    inline = type(graph._handle.store.inline)
    real = inline.delete_branch

    def stubborn(self, location, name):
        if location == PERSON:
            raise StorageUnavailable("busy")
        real(self, location, name)

    monkeypatch.setattr(inline, "delete_branch", stubborn)
    graph.branches.delete("b")
    monkeypatch.undo()
    assert graph.branches.list() == ["main"]
    assert forks(path) == {"Person": ["b"]}
    graph.branches.create("b")
    graph.append(people(dee=4), branch="b")
    assert names(graph, "b") == ["ann", "bo", "dee"]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells which file is synced")
def test_a_deletion_that_is_not_on_the_disk_is_not_acknowledged(graph, path, monkeypatch):
    """A crash of the machine could bring the branch back."""
    graph = Graph.open(path, durability="disk")
    graph.branches.create("b")
    real = os.fsync

    def failing(descriptor):
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("__manifest/_refs/branches"):
            raise OSError(errno.EIO, "the disk failed")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(StorageUnknown, match="may not be on the disk"):
        graph.branches.delete("b")
    monkeypatch.undo()
    assert graph.branches.list() == ["main"]


def test_a_reference_that_lance_leaves_out_is_an_error(graph, path, monkeypatch):
    """Lance lists no reference that it cannot look at."""
    graph.branches.create("b")
    branches = type(lance.dataset(str(path / "__manifest")).branches)
    monkeypatch.setattr(branches, "list", lambda self: {})
    with pytest.raises(StorageUnavailable, match="a reference cannot be read"):
        graph.branches.list()
    monkeypatch.undo()
    assert graph.branches.list() == ["main", "b"]


def test_a_graph_that_cannot_be_looked_at_is_not_missing(graph, path, monkeypatch):
    real = os.stat

    def failing(file, *args, **kwargs):
        if str(file) == str(path):
            raise OSError(errno.EIO, "the disk failed")
        return real(file, *args, **kwargs)

    monkeypatch.setattr(os, "stat", failing)
    with pytest.raises(StorageUnavailable):
        Graph.open(path, mode="r")


# -- what crashes leave -----------------------------------------------------------------------


def leave_a_fork(path, rows):
    """A table's branch that the manifest does not know, with rows that nobody published."""
    dataset = lance.dataset(str(path / PERSON))
    branch = dataset.create_branch("b")
    lance.write_dataset(
        pa.table({"id": rows, "age": pa.array([0] * len(rows), pa.int32()), "name": rows}),
        branch,
        mode="append",
    )


def without_reference(path):
    leave_a_fork(path, ["ghost"])
    (path / PERSON / "_refs" / "branches" / "b.json").unlink()


def without_directory(path):
    leave_a_fork(path, ["ghost"])
    shutil.rmtree(path / PERSON / "tree" / "b")


def half_a_directory(path):
    without_reference(path)
    shutil.rmtree(path / PERSON / "tree" / "b" / "_versions")


def torn(path):
    """Of a load on Spark that died with the machine: its rows are there, its version is cut."""
    leave_a_fork(path, ["ghost"])
    for version in (path / PERSON / "tree" / "b" / "_versions").iterdir():
        version.write_bytes(version.read_bytes()[:10])


def torn_without_reference(path):
    torn(path)
    (path / PERSON / "_refs" / "branches" / "b.json").unlink()


LEFTOVERS = {
    "a fork with rows": lambda path: leave_a_fork(path, ["ghost"]),
    "a directory without its reference": without_reference,
    "a reference without its directory": without_directory,
    "half a directory": half_a_directory,
    "a torn version": torn,
    "a torn version without a reference": torn_without_reference,
}


@pytest.mark.parametrize("leave", LEFTOVERS.values(), ids=list(LEFTOVERS))
def test_a_leftover_fork_is_replaced_by_the_first_write(graph, path, leave):
    """Its rows are not resurrected, and no cleanup is needed."""
    graph.branches.create("b")
    leave(path)
    assert names(graph, "b") == ["ann", "bo"]
    graph.append(people(cy=3), branch="b")
    assert names(graph, "b") == ["ann", "bo", "cy"]
    assert names(Graph.open(path, "r"), "b") == ["ann", "bo", "cy"]
    assert owners(graph, "b") == {"node:Person": "b"}


@pytest.mark.parametrize("leave", LEFTOVERS.values(), ids=list(LEFTOVERS))
def test_a_leftover_fork_does_not_keep_a_branch_from_being_made_and_deleted(graph, path, leave):
    leave(path)
    graph.branches.create("b")
    graph.branches.delete("b")
    graph.branches.create("b")
    graph.append(people(cy=3), branch="b")
    assert names(graph, "b") == ["ann", "bo", "cy"]


def test_a_leftover_fork_of_a_leftover_fork_is_removed_with_it(graph, path):
    """Lance refuses to remove a branch that another was made from."""
    leave_a_fork(path, ["ghost"])
    lance.dataset(str(path / PERSON)).create_branch("old", ("b", None))
    graph.branches.create("b")
    graph.append(people(cy=3), branch="b")
    assert names(graph, "b") == ["ann", "bo", "cy"]
    assert forks(path) == {"Person": ["b"]}


def test_a_leftover_fork_that_only_shares_the_name_of_a_live_branch_goes_too(graph, path):
    """What the branch of that name shows is not the fork, so it keeps nothing."""
    leave_a_fork(path, ["ghost"])
    lance.dataset(str(path / PERSON)).create_branch("live", ("b", None))
    graph.branches.create("b")
    graph.branches.create("live")
    graph.append(people(cy=3), branch="b")
    assert forks(path) == {"Person": ["b"]}
    assert names(graph, "live") == ["ann", "bo"]


def test_nothing_is_removed_while_it_cannot_be_seen_who_owns_it(graph, path, monkeypatch):
    """The write fails and may be repeated; the fork is still there."""
    graph.branches.create("b")
    leave_a_fork(path, ["ghost"])
    manifest = graph._handle.store.manifest("b")

    def blind():
        def fail(self):
            raise StorageUnavailable("busy")

        monkeypatch.setattr(type(manifest), "current", fail)

    with (
        at(Failpoint.FORK_BEFORE_CREATE, blind),
        pytest.raises(Conflict, match="could not verify who owns 'node:Person'") as caught,
    ):
        graph.append(people(cy=3), branch="b")
    assert (caught.value.retryable, caught.value.hint) == (True, "refresh and retry")
    monkeypatch.undo()
    assert forks(path) == {"Person": ["b"]}
    graph.append(people(cy=3), branch="b")
    assert names(graph, "b") == ["ann", "bo", "cy"]


def test_a_fork_that_another_writer_published_meanwhile_is_no_orphan(graph, path):
    """Such as by a program that takes no lease of ours; the loser may repeat."""
    graph.branches.create("b")
    store = graph._handle.store

    def rival():
        leave_a_fork(path, ["rival"])
        ref = TableRef(PERSON, "b")
        info = store.datasets.info(ref, 3)
        row = VersionRow.of("node:Person", CommittedTable(ref, 3, 3, info))
        store.publisher.publish(store.manifest("b"), Publication({}, [row]))

    with at(Failpoint.FORK_BEFORE_CREATE, rival), pytest.raises(VersionMismatch) as caught:
        graph.append(people(cy=3), branch="b")
    assert caught.value.retryable
    assert caught.value.details == {"table_key": "node:Person", "expected": 2, "actual": 3}
    assert names(graph, "b") == ["ann", "bo", "rival"]
    graph.append(people(cy=3), branch="b")
    assert names(graph, "b") == ["ann", "bo", "cy", "rival"]


@pytest.mark.parametrize("error", ["Dataset already exists: b", "timed out"])
def test_rows_that_were_written_before_their_fork_stay_when_it_is_made_again(
    graph, path, monkeypatch, error
):
    """Those of a load on Spark, whose fork was made although the store said something else."""
    graph.branches.create("b")
    store = graph._handle.store
    pin = store.manifest("b").current().pin("node:Person")
    rows = path / pin.location / "tree" / "b" / "data" / "rows.lance"
    rows.parent.mkdir(parents=True)
    rows.write_bytes(b"rows")
    make, made = lance.LanceDataset.create_branch, []

    def answer_lost(self, *args):
        made.append(make(self, *args))
        if len(made) == 1:
            raise OSError(error)
        return made[-1]

    monkeypatch.setattr(lance.LanceDataset, "create_branch", answer_lost)
    assert fork_table(store, pin, "b") == TableRef(pin.location, "b")
    assert (len(made), rows.read_bytes()) == (2, b"rows")


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_branch_that_is_there_is_of_its_maker_only_while_its_lease_lasts(
    graph, other, monkeypatch, is_lost
):
    """A paused process on S3 may lose its lease; then another makes the branch."""
    store = graph._handle.store
    acquire, make = store.leases.acquire, store.inline.create_branch

    @contextmanager
    def losing(leases, timeout):
        with acquire(leases, timeout) as guard:
            if is_lost:
                monkeypatch.setattr(guard, "check", raising(Conflict("the lease expired")))
            yield guard

    def made_already(*args):
        make(*args)
        return make(*args)

    monkeypatch.setattr(store.leases, "acquire", losing)
    monkeypatch.setattr(store.inline, "create_branch", made_already)
    if is_lost:
        with pytest.raises(Conflict, match="the lease expired"):
            graph.branches.create("b")
    else:
        graph.branches.create("b")
    assert names(other, "b") == ["ann", "bo"]


def test_files_of_a_branch_without_its_reference_are_no_branch(graph, path):
    """The reference is the authority; what a crash left is replaced, not resurrected."""
    graph.branches.create("b")
    graph.append(companies("Ghost"), branch="b")
    (path / "__manifest" / "_refs" / "branches" / "b.json").unlink()
    for handle in (graph, Graph.open(path, "r")):
        assert handle.branches.list() == ["main"]
        with pytest.raises(BranchNotFound):
            handle.snapshot("b")
    graph.branches.create("b")
    assert graph.snapshot("b").count("Company") == 0
    assert len(graph.commits("b")) == 2
    graph.append(companies("Acme"), branch="b")
    assert graph.snapshot("b").read("Company", ["name"])["name"].to_pylist() == ["Acme"]


def test_a_reference_without_its_files_can_be_deleted(graph, path):
    """And keeps no other branch from being deleted."""
    graph.branches.create("b")
    graph.branches.create("c")
    shutil.rmtree(path / "__manifest" / "tree" / "b")
    with pytest.raises(BranchNotFound):
        graph.snapshot("b")
    graph.branches.delete("c")
    graph.branches.delete("b")
    assert graph.branches.list() == ["main"]
    graph.branches.create("b")
    assert names(graph, "b") == ["ann", "bo"]


def test_an_interrupted_delete_leaves_a_name_that_can_be_used_again(graph, path):
    """The name goes first; the copies that stay are replaced by the next first write."""
    graph.branches.create("b")
    graph.append(people(cy=3), branch="b")
    with (
        at(Failpoint.BRANCH_BEFORE_TABLE_CLEANUP, raising(KeyboardInterrupt())),
        pytest.raises(KeyboardInterrupt),
    ):
        graph.branches.delete("b")
    assert graph.branches.list() == ["main"]
    assert forks(path) == {"Person": ["b"]}
    graph.branches.create("b")
    graph.append(people(dee=4), branch="b")
    assert names(graph, "b") == ["ann", "bo", "dee"]


def test_an_interrupted_create_is_a_branch_that_exists(graph):
    with (
        at(Failpoint.BRANCH_AFTER_CREATE, raising(KeyboardInterrupt())),
        pytest.raises(KeyboardInterrupt),
    ):
        graph.branches.create("b")
    assert names(graph, "b") == ["ann", "bo"]
    graph.append(people(cy=3), branch="b")
    assert names(graph, "b") == ["ann", "bo", "cy"]


# -- names that are used again ----------------------------------------------------------------


def again(graph, name="cy"):
    """Delete the branch, make it anew at the same version, and write as much as before."""
    graph.branches.delete("b")
    graph.branches.create("b")
    graph.append(people(**{name: 3}), branch="b")


def test_a_recreated_branch_starts_from_its_new_fork(graph, other):
    """In the handle that did it, in one that had the old one warm, and in a new one."""
    graph.branches.create("b")
    graph.append(people(old=3), branch="b")
    taken = other.snapshot("b")
    assert names(other, "b") == ["ann", "bo", "old"]
    version = graph.snapshot("b").version
    again(graph, "new")
    assert graph.snapshot("b").version == version
    for handle in (graph, other, Graph.open(graph.uri, "r")):
        assert names(handle, "b") == ["ann", "bo", "new"]
        assert len(handle.commits("b")) == 3
    assert taken.count("Person") == 3
    assert other.snapshot("b").snapshot_id != taken.snapshot_id


def test_a_warm_writer_writes_to_the_recreated_branch(graph, other):
    """On top of what it holds now, not of what it held."""
    graph.branches.create("b")
    other.append(people(old=3), branch="b")
    again(graph, "new")
    other.append(people(more=4), branch="b")
    assert names(graph, "b") == ["ann", "bo", "more", "new"] == names(other, "b")


def test_a_recreated_branch_that_wrote_nothing_shows_main(graph, other):
    graph.branches.create("b")
    graph.append(people(old=3), branch="b")
    assert names(other, "b") == ["ann", "bo", "old"]
    graph.branches.delete("b")
    graph.append(people(dee=4))
    graph.branches.create("b")
    assert names(other, "b") == ["ann", "bo", "dee"] == names(graph, "b")
    other.append(people(eve=5), branch="b")
    assert names(graph, "b") == ["ann", "bo", "dee", "eve"]


def test_a_branch_recreated_from_another_parent_follows_that_parent(graph, other):
    graph.branches.create("a")
    graph.append(people(cy=3), branch="a")
    graph.branches.create("b")
    assert names(other, "b") == ["ann", "bo"]
    graph.branches.delete("b")
    graph.branches.create("b", from_branch="a")
    assert names(other, "b") == ["ann", "bo", "cy"]
    other.append(people(dee=4), branch="b")
    assert names(graph, "b") == ["ann", "bo", "cy", "dee"]


def test_indexes_of_a_former_life_are_not_those_of_the_new_one(graph, other):
    """Versions and paths are equal, the files are not."""
    graph.branches.create("b")
    graph.append(people(old=3), branch="b")
    graph.indexes.ensure("b")
    assert not [s for s in other.indexes.status("b").pending if s.table_key == "node:Person"]
    version = graph.snapshot("b").tables["node:Person"]["version"]
    again(graph, "new")
    graph.append(people(more=3), branch="b")
    assert graph.snapshot("b").tables["node:Person"]["version"] == version
    for handle in (graph, other):
        assert [s for s in handle.indexes.status("b").pending if s.table_key == "node:Person"]
        assert names(handle, "b") == ["ann", "bo", "more", "new"]


def test_a_held_snapshot_of_a_deleted_branch_never_shows_the_new_one(graph, other):
    """What main owns can still be read; of what the branch owned, it says that it is gone."""
    graph.branches.create("b")
    graph.append(people(old=3), branch="b")
    pinned = other.snapshot("b")
    again(graph, "new")
    assert (pinned.count("Person"), pinned.read("Knows").num_rows) == (3, 1)
    for _ in range(2):
        with pytest.raises(HistoryGone, match="branch 'b' was deleted") as caught:
            pinned.read("Person")
    assert caught.value.details == {"branch": "b"}
    assert names(other, "b") == ["ann", "bo", "new"]


def test_a_held_snapshot_of_a_child_notices_that_its_parent_is_another_one(graph, other):
    """The tables that a branch inherited belong to its parent's life."""
    graph.branches.create("b")
    graph.append(people(old=3), branch="b")
    graph.branches.create("c", from_branch="b")
    pinned = other.snapshot("c")
    graph.branches.delete("c")
    again(graph, "new")
    graph.branches.create("c", from_branch="b")
    with pytest.raises(HistoryGone):
        pinned.read("Person")
    assert names(other, "c") == ["ann", "bo", "new"]


def test_a_write_that_was_staged_on_the_former_life_is_staged_again(graph, other, monkeypatch):
    """Its files went with the branch; versions and owners look the same as before."""
    graph.branches.create("b")
    graph.append(people(old=3), branch="b")
    tables = type(graph._handle.store.tables)
    real = tables.stage_append

    def slow(self, table, data):
        staged = real(self, table, data)
        monkeypatch.undo()
        again(other, "new")
        return staged

    monkeypatch.setattr(tables, "stage_append", slow)
    graph.append(people(more=4), branch="b")
    for handle in (graph, other, Graph.open(graph.uri, "r")):
        assert names(handle, "b") == ["ann", "bo", "more", "new"]


@pytest.mark.parametrize(("recreated", "error"), [(False, BranchNotFound), (True, Conflict)])
def test_a_write_whose_branch_goes_while_it_is_staged_says_so(
    graph, other, monkeypatch, recreated, error
):
    """Staging holds no lease, so the files may go with the branch under it."""
    graph.branches.create("b")
    graph.append(people(old=3), branch="b")

    def staged(self, table, data):
        other.branches.delete("b")
        if recreated:
            other.branches.create("b")
        raise StorageMissing("the directory is gone")

    with monkeypatch.context() as patch:
        patch.setattr(type(graph._handle.store.tables), "stage_append", staged)
        with pytest.raises(error):
            graph.append(people(more=4), branch="b")
    if recreated:
        graph.append(people(more=4), branch="b")
        assert names(other, "b") == ["ann", "bo", "more"]


def test_an_open_snapshot_of_a_deleted_branch_says_that_it_is_gone(graph, other):
    """Also where its tables were opened, but their files not read yet."""
    graph.branches.create("b")
    graph.append(people(old=3), branch="b")
    pinned = graph.snapshot("b")
    graph._handle.store.table(graph._handle.store.manifest("b").current().pins["node:Person"])
    other.branches.delete("b")
    for read in (pinned.read, lambda kind: list(pinned.scan(kind))):
        with pytest.raises(HistoryGone, match="branch 'b' was deleted"):
            read("Person")


def test_a_delete_waits_for_the_writers_of_the_branch(graph, path):
    """Otherwise they would publish into the next branch of that name."""
    impatient = store_at(path, Timeouts(lease=0.0))
    graph.branches.create("b")

    def refused():
        with pytest.raises(Conflict, match="is locked by another writer"):
            Branches(impatient).delete("b")

    with at(Failpoint.WRITE_AFTER_TABLES, refused):
        graph.append(people(cy=3), branch="b")
    assert names(graph, "b") == ["ann", "bo", "cy"]
    Branches(impatient).delete("b")
    assert graph.branches.list() == ["main"]


def test_a_branch_whose_commit_is_tagged_stays_until_the_tag_goes(graph):
    graph.branches.create("b")
    receipt = graph.append(people(tagged=1), branch="b")
    graph.tags.create("keep", receipt.commit_id)
    with pytest.raises(BranchInUse, match="tag 'keep' names a commit of it"):
        graph.branches.delete("b")
    assert graph.snapshot(tag="keep").commit_id == receipt.commit_id
    graph.tags.delete("keep")
    graph.branches.delete("b")
    assert graph.branches.list() == ["main"]


def test_a_fork_left_by_an_earlier_life_of_a_child_does_not_block_its_parent(graph, store):
    """A delete that died before its clean-up, and names that came back since."""
    graph.branches.create("a")
    graph.append(people(one=1), branch="a")
    graph.branches.create("b", "a")
    graph.append(people(two=2), branch="b")
    store.inline.delete_branch("__manifest", "b")
    graph.branches.create("b")
    graph.branches.delete("a")
    graph.branches.create("a")
    graph.append(people(three=3), branch="a")
    assert graph.snapshot("a").count("Person") == graph.snapshot().count("Person") + 1
    assert graph.snapshot("b").count("Person") == graph.snapshot().count("Person")


def test_a_branch_is_deleted_when_its_reference_is_gone(graph, other, monkeypatch):
    """What stays of its files is left over, and the next branch of that name starts fresh."""
    graph.branches.create("b")
    graph.append(people(cy=3), branch="b")

    def unavailable(self, path):
        raise StorageUnavailable("the listing was cut off")

    with monkeypatch.context() as broken:
        broken.setattr(type(graph._handle.store.objects), "delete_prefix", unavailable)
        graph.branches.delete("b")
    for handle in (graph, other):
        assert handle.branches.list() == ["main"]
    other.branches.create("b")
    assert names(graph, "b") == ["ann", "bo"]


def test_a_branch_whose_reference_stays_is_not_deleted(graph, monkeypatch):
    graph.branches.create("b")
    inline = type(graph._handle.store.inline)

    def unavailable(self, location, name):
        raise StorageUnavailable("the store is away")

    with monkeypatch.context() as broken:
        broken.setattr(inline, "delete_branch", unavailable)
        with pytest.raises(StorageUnavailable):
            graph.branches.delete("b")
    assert graph.branches.list() == ["main", "b"]


def test_a_fork_without_a_reference_is_cleared_before_rows_are_written_beside_it(graph, path):
    """A writer died between the first version of its fork and the reference to it."""
    graph.branches.create("b")
    store = graph._handle.store
    pin = store.manifest(None).current().pin("node:Person")
    ref = store.inline.create_branch(pin.ref, pin.version, "b")
    (path / pin.location / "_refs/branches/b.json").unlink()
    clear_orphan(store, pin, "b")
    assert not (path / ref.path).exists()
    graph.append(people(cleo=3), branch="b")
    assert names(graph, "b") == ["ann", "bo", "cleo"]
