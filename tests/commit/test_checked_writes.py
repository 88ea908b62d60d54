"""A publish counts only when what it wrote can be read: a version that was cut is taken back."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.commit.manifest import KEY
from omnigraph.commit.names import publish_lease
from omnigraph.commit.rows import TagRow, to_arrow
from omnigraph.errors import (
    HistoryGone,
    OutcomePending,
    StorageCorrupt,
    StorageError,
    StorageFull,
    StorageUnavailable,
)
from omnigraph.storage.read_back import ASIDE_SUFFIX
from omnigraph.storage.tables import ledger
from omnigraph.storage.tables.ledger import Ledger
from omnigraph.storage.tables.store import TableStore
from tests.commit.world import names, people, store_at

pytestmark = pytest.mark.rotates(2)


def newest(path: Path, folder: str) -> Path:
    return max((path / folder).iterdir(), key=lambda file: file.stat().st_mtime_ns)


def newest_version(path: Path) -> Path:
    return min((path / "__manifest/_versions").glob("*.manifest"))


def cut(file: Path, keep: float = 0.0) -> None:
    os.truncate(file, int(file.stat().st_size * keep))


LOST = {
    "rows": lambda path: cut(newest(path, "__manifest/data")),
    "a part of the rows": lambda path: cut(newest(path, "__manifest/data"), 0.5),
    "deletions": lambda path: cut(newest(path, "__manifest/_deletions")),
    "version": lambda path: cut(newest_version(path)),
    "a part of the version": lambda path: cut(newest_version(path), 0.6),
}
every_loss = pytest.mark.parametrize("loss", LOST)
# A tag comes in a fragment of its own, which goes as a whole.
of_a_tag = pytest.mark.parametrize("loss", [loss for loss in LOST if loss != "deletions"])


@pytest.fixture
def losing(monkeypatch, path):
    """Let the disk lose a part of the next publishes, without an error."""

    def lose(what: str, times: float = 1) -> list[str]:
        real, left = Ledger.upsert, [times]
        calls: list[str] = []

        def upsert(ledger, rows, key, replaced=None):
            # Without the address, so that all files come with the version.
            version = real(ledger, rows, key)
            if left[0] > 0:
                left[0] -= 1
                calls.append(what)
                LOST[what](path)
            return version

        monkeypatch.setattr(Ledger, "upsert", upsert)
        return calls

    return lose


STAGED = {
    "rows": ("write_fragments", LOST["rows"]),
    "a part of the rows": ("write_fragments", LOST["a part of the rows"]),
    "deletions": ("mark_deleted", LOST["deletions"]),
}


@pytest.mark.parametrize("retries", [5, 0])
@pytest.mark.parametrize("loss", STAGED)
def test_a_file_lost_before_the_publish_is_never_visible(graph, path, monkeypatch, loss, retries):
    graph.append(people(ada=1))
    name, lose = STAGED[loss]
    real, left = getattr(ledger, name), [1]

    def losing(*args, **options):
        made = real(*args, **options)
        if left[0]:
            left[0] -= 1
            lose(path)
        return made

    monkeypatch.setattr(ledger, name, losing)
    monkeypatch.setattr("omnigraph.commit.publisher.RETRIES", retries)
    if retries:
        graph.append(people(bob=2))
    else:
        with pytest.raises((StorageUnavailable, StorageFull), match="was not written completely"):
            graph.append(people(bob=2))
        assert names(graph) == ["ada"]
        graph.append(people(bob=2))
    assert left == [0]
    with Graph.open(path, "r") as fresh:
        assert names(fresh) == ["ada", "bob"]
        assert fresh.maintenance.verify().is_sound


@every_loss
def test_a_publish_that_the_disk_lost_once_is_made_again(graph, path, losing, loss):
    graph.append(people(ada=1))
    calls = losing(loss)
    receipt = graph.append(people(bob=2))
    assert calls == [loss]
    for mode in ("r", "rw"):
        with Graph.open(path, mode) as fresh:
            assert names(fresh) == ["ada", "bob"]
            assert fresh.commit(receipt.commit_id).commit_id == receipt.commit_id
            assert fresh.maintenance.verify().is_sound


@every_loss
def test_a_publish_that_the_disk_keeps_losing_is_taken_back(graph, path, losing, loss, monkeypatch):
    first = graph.append(people(ada=1))
    monkeypatch.setattr("omnigraph.commit.publisher.RETRIES", 0)
    losing(loss)
    with pytest.raises((StorageUnavailable, StorageFull), match="was not written completely"):
        graph.append(people(bob=2))
    with Graph.open(path, "r") as reader:
        assert names(reader) == ["ada"]
        assert reader.commits()[0].commit_id == first.commit_id
    again = graph.append(people(bob=2))
    assert names(graph) == ["ada", "bob"]
    assert graph.commit(again.commit_id).parent == first.commit_id
    assert graph.maintenance.verify().is_sound


@of_a_tag
def test_a_tag_has_no_sidecar_and_is_checked_too(graph, path, losing, loss, monkeypatch):
    graph.append(people(ada=1))
    monkeypatch.setattr("omnigraph.commit.publisher.RETRIES", 0)
    losing(loss)
    with pytest.raises(StorageError, match="was not written completely"):
        graph.tags.create("v1")
    with Graph.open(path, "r") as reader:
        assert reader.tags.list() == []
    graph.tags.create("v1")
    assert [tag.name for tag in graph.tags.list()] == ["v1"]


def test_a_version_that_others_may_have_seen_is_void(graph, path, losing):
    graph.append(people(ada=1))
    version = graph.snapshot().version + 1
    losing("deletions")
    graph.append(people(bob=2))
    for handle in (graph, Graph.open(path, "r")):
        with pytest.raises(HistoryGone, match="never acknowledged"):
            handle.snapshot(version=version)
        assert names(handle, version=version - 1) == ["ada"]


def test_a_version_that_nobody_can_read_is_kept_beside_and_its_number_is_free(graph, path, losing):
    graph.append(people(ada=1))
    version = graph.snapshot().version + 1
    losing("version")
    receipt = graph.append(people(bob=2))
    assert receipt.version == version
    (aside,) = (path / "__recovery").glob(f"*{ASIDE_SUFFIX}")
    assert f"__manifest~{version}~" in aside.name


def test_a_transaction_file_that_was_cut_is_written_again(graph, path, monkeypatch):
    graph.append(people(ada=1))
    real = Ledger.upsert

    def upsert(ledger, rows, key, replaced=None):
        version = real(ledger, rows, key, replaced)
        cut(newest(path, "__manifest/_transactions"), 0.5)
        return version

    monkeypatch.setattr(Ledger, "upsert", upsert)
    graph.append(people(bob=2))
    with Graph.open(path, "r") as reader:
        assert names(reader) == ["ada", "bob"]
        assert reader.maintenance.verify().is_sound


# -- tables ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["data", "_deletions", "_versions"])
def test_a_table_whose_files_the_disk_lost_moves_nothing(graph, path, folder, monkeypatch):
    person = "nodes/40d76f1f51639ec0"
    graph.append(people(ada=1, bob=2))
    before = graph.snapshot().version
    change = 'query older() { update Person set { age: 3 } where name = "ada" }'
    with monkeypatch.context() as patched:
        name = "commit_staged" if folder == "_versions" else "check_staged"
        real = getattr(TableStore, name)

        def lose(store, staged, *more):
            if folder != "_versions":
                cut(newest(path / person, folder), 0.5)
                return real(store, staged, *more)
            return _lose_version(real, store, staged, *more)

        def _lose_version(real, store, staged, *more):
            committed = TableStore._read_back

            def read_back(self, staged, made):
                cut(min((path / person / "_versions").glob("*.manifest")), 0.5)
                return committed(self, staged, made)

            patched.setattr(TableStore, "_read_back", read_back)
            return real(store, staged, *more)

        patched.setattr(TableStore, name, lose)
        with pytest.raises((StorageUnavailable, StorageFull), match="was not written completely"):
            graph.mutate(change)
    assert graph.commits()[0].version == before
    for handle in (graph, Graph.open(path, "rw")):
        assert names(handle) == ["ada", "bob"]
        assert handle.maintenance.verify().is_sound
    graph.mutate(change)
    assert sorted(graph.snapshot().read("Person", ["age"])["age"].to_pylist()) == [2, 3]


# -- opening a graph whose newest version cannot be read ------------------------------------------


def forget_checksums(path: Path) -> None:
    """As if the writer had died before it recorded what its files are."""
    shutil.rmtree(path / "__checksums")


@of_a_tag
def test_who_opens_to_write_takes_back_what_nobody_acknowledged(graph, path, loss):
    graph.append(people(ada=1))
    graph.tags.create("v1")
    graph.tags.delete("v1")
    graph.close()
    forget_checksums(path)
    LOST[loss](path)
    with pytest.raises(StorageCorrupt):
        Graph.open(path, "r")
    with Graph.open(path, "rw") as mended:
        assert [tag.name for tag in mended.tags.list()] == ["v1"]
        mended.append(people(carl=3))
    with Graph.open(path, "r") as reader:
        assert names(reader) == ["ada", "carl"]


def test_what_was_acknowledged_and_damaged_later_is_not_taken_back(graph, path):
    graph.append(people(ada=1))
    graph.append(people(bob=2))
    graph.close()
    cut(newest_version(path))
    for mode in ("r", "rw"):
        with pytest.raises(StorageCorrupt):
            Graph.open(path, mode)
    assert newest_version(path).stat().st_size == 0


def test_a_handle_that_lives_mends_a_branch_before_it_writes(graph, path):
    graph.append(people(ada=1))
    graph.branches.create("feat")
    graph.append(people(bob=2), branch="feat")
    with Graph.open(path, "rw") as other:
        store = other._handle.store
        existing = store.manifest("feat").current().manifest_version
        ledger = Ledger.open(store.datasets, store.manifest("feat").ref, existing)
        ledger.upsert(to_arrow([TagRow("x", None, 0)]), KEY)
        cut(min((path / "__manifest/tree/feat/_versions").glob("*.manifest")))
        with pytest.raises(StorageCorrupt):
            names(other, "feat")
        other.append(people(carl=3), branch="feat")
        assert names(other, "feat") == ["ada", "bob", "carl"]


def test_a_reader_waits_for_whoever_is_about_to_take_a_version_back(graph, path):
    graph.append(people(ada=1))
    graph.append(people(bob=2))
    file = newest_version(path)
    whole = file.read_bytes()
    store = store_at(path)
    actual: list[list[str]] = []
    with store.leases.acquire([publish_lease(None)], 5.0):
        cut(file)
        reader = threading.Thread(target=lambda: actual.append(names(Graph.open(path, "r"))))
        reader.start()
        reader.join(0.2)
        assert reader.is_alive()
        file.write_bytes(whole)
    reader.join(10.0)
    assert actual == [["ada", "bob"]]


def test_a_version_that_cannot_be_taken_back_leaves_the_outcome_open(
    graph, path, losing, monkeypatch
):
    graph.append(people(ada=1))
    losing("deletions")

    def fails(*_):
        raise StorageFull("no space is left")

    with monkeypatch.context() as patched:
        patched.setattr("omnigraph.storage.tables.ledger.withdraw", fails)
        with pytest.raises(OutcomePending) as caught:
            graph.append(people(bob=2))
    with Graph.open(path, "rw") as other:
        assert names(other) == ["ada", "bob"]
        done = other.commit(caught.value.details["commit_id"])
        assert caught.value.details["commit_id"] in done.completes
