"""The contract of small objects, on local disk."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from omnigraph.errors import InputError, StorageCorrupt, StorageDenied, StorageFull, StorageMissing
from omnigraph.storage.durable import Durability
from omnigraph.storage.objects.failures import translate
from omnigraph.storage.objects.paths import parse_root
from omnigraph.storage.objects.store import ObjectStore
from tests.fork_server import fork_context


@pytest.fixture(params=list(Durability))
def store(tmp_path, request):
    return ObjectStore(parse_root(str(tmp_path / "g.omni")), request.param)


def test_what_was_written_is_read(store):
    store.write("a/b.txt", "Zürich → ok")
    assert store.read("a/b.txt") == "Zürich → ok"
    store.write("a/b.txt", "")
    assert store.read("a/b.txt") == ""


def test_a_missing_object_is_a_typed_error(store):
    with pytest.raises(StorageMissing, match="it does not exist"):
        store.read("nope")


def test_create_succeeds_once(store):
    assert store.create("claim", "first") is True
    assert store.create("claim", "second") is False
    assert store.read("claim") == "first"


def test_replace_needs_the_version_that_was_read(store):
    store.write("x", "1")
    seen = store.read_versioned("x")
    assert store.replace("x", "2", seen.version) is True
    assert store.replace("x", "3", seen.version) is False
    assert store.read("x") == "2"
    assert store.replace("gone", "1", seen.version) is False


def test_list_shows_one_directory_without_our_own_files(store):
    store.write("d/b", "")
    store.write("d/a", "")
    store.write("d/deeper/c", "")
    store.replace("d/a", "1", store.read_versioned("d/a").version)
    assert store.list("d") == ["a", "b"]
    assert store.list("missing") == []


def test_exists_sees_objects_and_prefixes(store):
    store.write("d/deeper/c", "")
    assert (store.exists("d/deeper/c"), store.exists("d")) == (True, True)
    assert (store.exists("d/deeper/x"), store.exists("e")) == (False, False)


def test_a_conditional_delete_needs_the_version_that_was_read(store):
    store.write("a.json", "one")
    version = store.read_versioned("a.json").version
    store.write("a.json", "two")
    assert not store.delete_if("a.json", version)
    assert store.read("a.json") == "two"
    assert store.delete_if("a.json", store.read_versioned("a.json").version)
    assert not store.delete_if("a.json", version)


def test_only_empty_directories_are_removed(store):
    store.write("g/kept/a.json", "one")
    store.write("g/empty/b.json", "two")
    store.delete("g/empty/b.json")
    store.remove_empty_folders("g")
    assert store.folders("g") == ["kept"]
    assert store.read("g/kept/a.json") == "one"


def test_delete_of_nothing_is_fine(store):
    store.write("x", "1")
    store.delete("x")
    store.delete("x")
    assert not store.exists("x")


def test_delete_prefix_leaves_nothing_below_it_and_everything_beside_it(store):
    for path in ("d/a", "d/e/b", "dd/c"):
        store.write(path, "")
    assert store.delete_prefix("d") == 2
    assert (store.exists("d"), store.exists("dd/c")) == (False, True)
    assert store.delete_prefix("d") == 0


def test_rename_replaces_the_target(store):
    store.write("a.staging", "new")
    store.write("a", "old")
    store.rename("a.staging", "a")
    assert store.read("a") == "new"
    assert not store.exists("a.staging")


def test_a_failed_write_leaves_the_old_text_and_no_temporary(tmp_path, monkeypatch):
    store = ObjectStore(parse_root(str(tmp_path / "g.omni")), Durability.DISK)
    store.write("x", "old")
    monkeypatch.setattr("omnigraph.storage.objects.local.sync_file", _disk_is_full)
    with pytest.raises(StorageFull, match="no space is left"):
        store.write("x", "new")
    assert store.read("x") == "old"
    assert sorted(os.listdir(tmp_path / "g.omni")) == ["x"]


def _disk_is_full(path):
    raise OSError(28, "No space left on device", str(path))


def test_bytes_that_are_no_text_are_corrupt(store, tmp_path):
    (tmp_path / "g.omni" / "x").write_bytes(b"\xff\xfe")
    with pytest.raises(StorageCorrupt, match="not UTF-8"):
        store.read("x")


def test_denied_access_is_loud():
    error = translate(PermissionError(13, "Permission denied"), "look at", "/g/x")
    assert isinstance(error, StorageDenied)
    assert "Permission denied" not in error.message


def test_traffic_is_counted(store):
    store.write("x", "1")
    store.read("x")
    store.list("")
    store.delete("x")
    traffic = store.traffic
    assert (traffic.reads, traffic.writes, traffic.lists, traffic.deletes) == (1, 1, 1, 1)


# -- several at once ------------------------------------------------------------------------------


def test_of_many_creators_exactly_one_wins(store):
    barrier = threading.Barrier(8)
    won: list[int] = []

    def claim(number: int) -> None:
        barrier.wait()
        if store.create("claim", str(number)):
            won.append(number)

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [store.read("claim")] == [str(number) for number in won]


def count_up(uri: str, times: int) -> None:
    store = ObjectStore(parse_root(uri), Durability.OS)
    for _ in range(times):
        while True:
            seen = store.read_versioned("counter")
            if store.replace("counter", str(int(seen.text) + 1), seen.version):
                break


def test_no_replacement_of_another_process_is_lost(tmp_path):
    uri = str(tmp_path / "g.omni")
    store = ObjectStore(parse_root(uri))
    store.write("counter", "0")
    context = fork_context()
    workers = [context.Process(target=count_up, args=(uri, 25)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0, 0]
    assert store.read("counter") == "100"


# -- addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "uri"),
    [
        ("/data/g.omni", "/data/g.omni"),
        ("/data/g.omni/", "/data/g.omni"),
        ("/data/x/../g.omni", "/data/g.omni"),
        ("file:///data/my%20graph", "/data/my graph"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("s3://bucket", "s3://bucket"),
    ],
)
def test_addresses_are_read(address, uri):
    assert parse_root(address).uri == uri


def test_a_relative_path_is_made_absolute(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert parse_root("g.omni").uri == str(Path(tmp_path, "g.omni"))


@pytest.mark.parametrize("address", ["", "http://host/g", "s3:///no-bucket", "gs://b/c", "a\0b"])
def test_other_addresses_are_refused(address):
    with pytest.raises(InputError):
        parse_root(address)


def test_options_are_not_shown():
    root = parse_root("s3://bucket/x", {"aws_secret_access_key": "very-secret"})
    assert "very-secret" not in repr(root)
