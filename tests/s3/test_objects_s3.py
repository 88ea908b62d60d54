"""The contract of small objects on S3: what holds on local disk, and what a network adds."""

from __future__ import annotations

import socket
import threading
from datetime import timedelta
from functools import partial

import pytest
from obstore.store import LocalStore

from omnigraph.errors import (
    StorageCorrupt,
    StorageDenied,
    StorageMissing,
    StorageUnavailable,
    StorageUnknown,
)
from omnigraph.storage.objects import s3 as objects
from omnigraph.storage.objects.paths import Root, parse_root
from omnigraph.storage.objects.store import ObjectStore
from tests.s3.proxy import Action, Fault, Kind
from tests.s3.server import options_for

# The same tests as for local disk; they take the store of this module.
from tests.storage.test_objects import (  # noqa: F401
    test_a_missing_object_is_a_typed_error,
    test_create_succeeds_once,
    test_delete_of_nothing_is_fine,
    test_delete_prefix_leaves_nothing_below_it_and_everything_beside_it,
    test_exists_sees_objects_and_prefixes,
    test_list_shows_one_directory_without_our_own_files,
    test_rename_replaces_the_target,
    test_replace_needs_the_version_that_was_read,
    test_traffic_is_counted,
    test_what_was_written_is_read,
)


@pytest.fixture
def store(s3_root):
    return ObjectStore(s3_root("g.omni"))


@pytest.fixture
def through(s3_root, proxy):
    """The same place, reached through the proxy."""
    return ObjectStore(s3_root("g.omni", proxy.endpoint))


@pytest.fixture(params=["local", "s3"])
def either(request, tmp_path):
    if request.param == "local":
        return ObjectStore(parse_root(str(tmp_path / "g.omni")))
    return request.getfixturevalue("store")


# -- what identifies a state ----------------------------------------------------------------------


def test_an_identity_changes_with_the_content_and_ends_with_the_object(either):
    assert either.identity("d/x") is None
    either.write("d/x", "1")
    first = either.identity("d/x")
    assert either.identity("d/x") == first
    either.write("d/x", "22")
    assert either.identity("d/x") not in (None, first)
    either.delete("d/x")
    assert either.identity("d/x") is None


def test_a_directory_has_no_identity(either):
    either.write("d/x", "1")
    assert (either.identity("d"), either.head("d"), either.head("d/x/y")) == (None, None, None)


def test_a_head_has_size_and_identity(either):
    either.write("x", "Zürich")
    actual = either.head("x")
    assert (actual.size, actual.e_tag) == (7, either.identity("x"))
    assert actual.modified == either.read_versioned("x").modified


def test_signatures_keep_the_order_and_show_what_is_missing(either):
    for path in ("b", "d/x", "d/y", "a"):
        either.write(path, path)
    paths = ["d/y", "nope", "a", "d/x", "d/nope", "e/nope", "b"]
    before = either.signatures(paths)
    assert [signature is None for signature in before] == [
        *(False, True, False),
        *(False, True, True, False),
    ]
    assert either.signatures(paths) == before
    either.write("d/x", "changed")
    changed = [a != b for a, b in zip(before, either.signatures(paths), strict=True)]
    assert changed == [path == "d/x" for path in paths]


def test_looking_counts_as_reading(either):
    either.write("x", "1")
    before = either.traffic.reads
    either.head("x")
    either.identity("x")
    either.signatures(["x"])
    assert either.traffic.reads == before + 3


def test_signatures_of_one_directory_are_one_request(through, proxy):
    through.write("d/x", "1")
    through.write("d/y", "1")
    proxy.reset()
    through.signatures(["d/x", "d/y", "d/z", "alone"])
    assert proxy.counts == {Kind.LIST: 1, Kind.HEAD: 1}


def test_a_local_identity_is_the_tag_that_object_stores_give(tmp_path):
    store = ObjectStore(parse_root(str(tmp_path)))
    store.write("x", "hello")
    given = LocalStore(tmp_path).head("x")["e_tag"]
    assert store.identity("x") == given.strip('"')
    assert store.head("x").modified == LocalStore(tmp_path).head("x")["last_modified"]


# -- more than local disk -------------------------------------------------------------------------


def test_a_directory_that_became_empty_shows_nothing(store):
    store.write("d/e/x", "1")
    store.delete("d/e/x")
    assert (store.list("d/e"), store.list("d"), store.signatures(["d/e/x", "d/e/y"])) == (
        [],
        [],
        (None, None),
    )
    assert (store.exists("d/e"), store.exists("d"), store.delete_prefix("d/e")) == (False, False, 0)


def test_bytes_that_are_no_text_are_corrupt(store, s3_root):
    store.backend.put("x", b"\xff\xfe")
    with pytest.raises(StorageCorrupt, match="not UTF-8"):
        store.read("x")


def test_of_several_creators_exactly_one_wins(s3_root):
    # Few, because the server lets contenders for one object wait for whole seconds.
    stores = [ObjectStore(s3_root("g.omni")) for _ in range(3)]
    barrier = threading.Barrier(len(stores))
    won: list[str] = []

    def claim(number: int) -> None:
        barrier.wait()
        if stores[number].create("claim", str(number)):
            won.append(str(number))

    together([partial(claim, number) for number in range(len(stores))])
    assert [stores[0].read("claim")] == won


def together(tasks):
    threads = [threading.Thread(target=task) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_no_replacement_of_another_thread_is_lost(s3_root):
    root = s3_root("g.omni")
    ObjectStore(root).write("counter", "0")

    def count_up():
        store = ObjectStore(root)
        for _ in range(10):
            while True:
                seen = store.read_versioned("counter")
                if store.replace("counter", str(int(seen.text) + 1), seen.version):
                    break

    together([count_up] * 3)
    assert ObjectStore(root).read("counter") == "30"


OPERATIONS = {
    "read": lambda store: store.read("x"),
    "head": lambda store: store.head("x"),
    "exists": lambda store: store.exists("x"),
    "list": lambda store: store.list(""),
    "signatures": lambda store: store.signatures(["x", "y"]),
    "write": lambda store: store.write("x", "1"),
    "create": lambda store: store.create("x", "1"),
    "replace": lambda store: store.replace("x", "1", '"0"'),
    "rename": lambda store: store.rename("x", "y"),
    "delete": lambda store: store.delete("x"),
    "delete_prefix": lambda store: store.delete_prefix("x"),
}
# What asks before it writes fails at the question: then nothing can have happened.
WRITES = {"write", "create", "replace", "rename", "delete"}


@pytest.mark.parametrize("name", OPERATIONS)
def test_wrong_credentials_are_denied(s3_root, name):
    root = s3_root("g.omni")
    wrong = Root(root.uri, {**root.options, "aws_secret_access_key": "wrong"})
    with pytest.raises(StorageDenied) as caught:
        OPERATIONS[name](ObjectStore(wrong))
    assert "SignatureDoesNotMatch" not in caught.value.message


def test_a_bucket_that_is_not_there_is_missing_not_empty(s3):
    store = ObjectStore(parse_root("s3://no-such-bucket/g.omni", s3.options))
    for name in ("list", "exists", "read"):
        with pytest.raises(StorageMissing):
            OPERATIONS[name](store)


# -- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_short_storm_of_503_is_weathered(through, proxy, name):
    through.write("x", "1")
    proxy.plan(Fault(Action.UNAVAILABLE, times=2))
    OPERATIONS[name](through)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_long_storm_of_503_is_a_typed_error(through, proxy, quick, name):
    proxy.plan(Fault(Action.UNAVAILABLE, times=float("inf")))
    with pytest.raises(StorageUnknown if name in WRITES else StorageUnavailable):
        OPERATIONS[name](through)


@pytest.mark.parametrize("action", [Action.CUT_BEFORE, Action.TRUNCATE])
def test_a_read_that_breaks_is_repeated(through, proxy, action):
    through.write("x", "a longer text")
    proxy.plan(Fault(action, kind=Kind.GET))
    assert through.read("x") == "a longer text"


def test_a_read_that_always_breaks_is_a_typed_error(through, proxy, quick):
    through.write("x", "a longer text")
    proxy.plan(Fault(Action.TRUNCATE, kind=Kind.GET, times=float("inf")))
    with pytest.raises(StorageUnavailable):
        through.read("x")


def test_a_create_whose_answer_is_lost_is_found_by_reading(through, store, proxy):
    proxy.plan(Fault(Action.CUT_AFTER, kind=Kind.PUT))
    with pytest.raises(StorageUnknown, match="outcome is unknown"):
        through.create("x", "mine")
    assert store.read("x") == "mine"


def test_a_replacement_whose_answer_is_lost_is_found_by_reading(through, store, proxy):
    store.write("x", "1")
    proxy.plan(Fault(Action.CUT_AFTER, kind=Kind.PUT))
    with pytest.raises(StorageUnknown, match="outcome is unknown"):
        through.replace("x", "mine", store.read_versioned("x").version)
    assert store.read("x") == "mine"


@pytest.mark.parametrize("action", [Action.CONFLICT, Action.PRECONDITION])
def test_a_create_that_is_refused_although_nothing_is_there_is_repeated(through, proxy, action):
    proxy.plan(Fault(action, kind=Kind.PUT))
    assert through.create("x", "1") is True


def test_a_create_that_is_always_refused_ends(through, proxy):
    proxy.plan(Fault(Action.CONFLICT, kind=Kind.PUT, times=float("inf")))
    with pytest.raises(StorageUnavailable, match="other writers keep creating"):
        through.create("x", "1")


@pytest.mark.parametrize("action", [Action.CONFLICT, Action.PRECONDITION])
def test_a_replacement_that_is_refused_did_not_happen(through, store, proxy, quick, action):
    store.write("x", "1")
    proxy.plan(Fault(action, kind=Kind.PUT, times=float("inf")))
    assert through.replace("x", "2", store.read_versioned("x").version) is False
    assert store.read("x") == "1"


# -- dead endpoints -------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch):
    """The real time limits, a tenth as long."""
    for name in ("_CONNECT_TIMEOUT", "_REQUEST_TIMEOUT", "_RETRY_TIMEOUT", "_LONGEST_BACKOFF"):
        monkeypatch.setattr(objects, name, getattr(objects, name) / 10)
    monkeypatch.setattr(objects, "_FIRST_BACKOFF", timedelta(milliseconds=1))


@pytest.fixture
def silent():
    """An endpoint that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed():
    """An endpoint where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return f"http://127.0.0.1:{port}"


def test_the_time_limits_end_a_call_within_ten_seconds():
    slowest = max(objects._CONNECT_TIMEOUT, objects._REQUEST_TIMEOUT)
    assert objects._RETRY_TIMEOUT + slowest <= timedelta(seconds=10)


@pytest.mark.parametrize("endpoint", ["closed", "silent"])
def test_a_dead_endpoint_is_a_typed_error(quick, endpoint, request):
    options = options_for(request.getfixturevalue(endpoint))
    store = ObjectStore(parse_root("s3://bucket/g.omni", options))
    with pytest.raises(StorageUnavailable):
        store.read("x")
    with pytest.raises(StorageUnavailable):
        store.list("")
    with pytest.raises(StorageUnknown):
        store.create("x", "1")


# -- large objects --------------------------------------------------------------------------------


def test_a_large_object_has_the_time_that_it_needs(through, proxy, monkeypatch):
    """The ledger of a very large cluster takes longer than a request of a dead endpoint may."""
    text = "x" * 4096
    versions = {}
    for name in ("first", "second"):
        assert through.create(name, text)
        versions[name] = through.read_versioned(name).version
    monkeypatch.setattr(objects, "_REQUEST_TIMEOUT", timedelta(seconds=0.5))
    hasty = ObjectStore(through.root)
    proxy.plan(Fault(Action.DELAY, kind=Kind.PUT, seconds=2))
    with pytest.raises(StorageUnknown):
        hasty.replace("first", "y", versions["first"])
    monkeypatch.setattr(objects, "_LARGE", 1024)
    monkeypatch.setattr(objects, "_LEAST_RATE", 64)
    proxy.plan(Fault(Action.DELAY, kind=Kind.PUT, path="second", seconds=2))
    assert hasty.replace("second", text + "z", versions["second"])
    proxy.plan(Fault(Action.DELAY, at=2, kind=Kind.GET, path="second", seconds=2))
    assert hasty.read("second") == text + "z"
