"""The forwarder of the S3 tests: it changes nothing unless asked, and fails where it is told."""

from __future__ import annotations

import threading
from datetime import timedelta

import lance
import pyarrow as pa
import pytest
from obstore.exceptions import BaseError, GenericError, PreconditionError
from obstore.store import S3Store

from tests.s3.proxy import Action, Fault, Kind, S3Proxy


@pytest.fixture
def direct(s3_root):
    return open_store(s3_root("x"))


@pytest.fixture
def through(s3_root, proxy):
    """The same place through the proxy, by a client that repeats nothing."""
    return open_store(s3_root("x", proxy.endpoint))


def open_store(root):
    return S3Store(
        root.bucket, prefix=root.prefix, config=dict(root.options), retry_config={"max_retries": 0}
    )


def test_what_passes_is_unchanged_and_counted_by_kind(through, direct, proxy):
    data = bytes(range(256)) * 4096
    through.put("a b/ü", data)
    assert bytes(direct.get("a b/ü").bytes()) == data
    assert bytes(through.get("a b/ü").bytes()) == data
    assert through.head("a b/ü")["size"] == len(data)
    assert len(through.list_with_delimiter("a b/")["objects"]) == 1
    through.delete("a b/ü")
    assert proxy.counts == {
        Kind.PUT: 1,
        Kind.GET: 1,
        Kind.HEAD: 1,
        Kind.LIST: 1,
        Kind.DELETE: 1,
    }
    assert proxy.log[0].path.endswith("/x/a b/ü")
    proxy.reset()
    assert proxy.counts == {}


def test_a_cut_before_forwarding_leaves_nothing(through, direct, proxy):
    proxy.plan(Fault(Action.CUT_BEFORE, kind=Kind.PUT))
    with pytest.raises(BaseError):
        through.put("a", b"1")
    assert direct.list_with_delimiter(None)["objects"] == []
    through.put("a", b"1")


def test_a_cut_after_forwarding_leaves_the_object(through, direct, proxy):
    proxy.plan(Fault(Action.CUT_AFTER, kind=Kind.PUT))
    with pytest.raises(BaseError):
        through.put("a", b"1")
    assert bytes(direct.get("a").bytes()) == b"1"


@pytest.mark.parametrize(
    ("action", "status"), [(Action.UNAVAILABLE, "503"), (Action.CONFLICT, "409")]
)
def test_a_planned_answer_is_given_instead_of_the_real_one(through, direct, proxy, action, status):
    proxy.plan(Fault(action, kind=Kind.PUT))
    with pytest.raises(BaseError, match=status):
        through.put("a", b"1")
    assert direct.list_with_delimiter(None)["objects"] == []


def test_a_planned_precondition_failure_looks_like_a_real_one(through, proxy):
    tag = through.put("a", b"1")["e_tag"]
    proxy.plan(Fault(Action.PRECONDITION, kind=Kind.PUT))
    with pytest.raises(PreconditionError):
        through.put("a", b"2", mode={"e_tag": tag})
    through.put("a", b"2", mode={"e_tag": tag})


def test_a_body_can_end_in_the_middle(through, proxy):
    through.put("a", b"x" * 1000)
    proxy.plan(Fault(Action.TRUNCATE, kind=Kind.GET))
    with pytest.raises(GenericError):
        through.get("a").bytes()


def test_faults_count_only_what_they_match(through, proxy):
    through.put("a/1", b"1")
    through.put("b/1", b"1")
    fault = Fault(Action.UNAVAILABLE, at=2, times=2, kind=Kind.GET, path="/a/")
    proxy.plan(fault)
    outcomes = []
    for path in ("a/1", "b/1", "a/1", "b/1", "a/1", "a/1"):
        try:
            through.get(path)
            outcomes.append("ok")
        except BaseError:
            outcomes.append("503")
        assert fault.reached.is_set() == ("503" in outcomes)
    assert outcomes == ["ok", "ok", "503", "ok", "503", "ok"]


def test_a_delayed_request_waits_for_its_release(through, direct, proxy):
    fault = Fault(Action.DELAY, kind=Kind.PUT, seconds=60)
    proxy.plan(fault)
    writer = threading.Thread(target=through.put, args=("a", b"1"))
    writer.start()
    assert fault.reached.wait(30)
    assert direct.list_with_delimiter(None)["objects"] == []
    fault.released.set()
    writer.join(30)
    assert direct.head("a")["size"] == 1


def test_the_clock_of_the_server_can_be_shifted(s3, s3_root, direct):
    direct.put("a", b"1")
    upstream = int(s3.endpoint.rpartition(":")[2])
    with S3Proxy(upstream, clock_shift=timedelta(minutes=-5)) as early:
        seen = open_store(s3_root("x", early.endpoint)).head("a")["last_modified"]
    assert direct.head("a")["last_modified"] - seen == timedelta(minutes=5)


def test_lance_writes_and_reads_through_it(s3_root, proxy):
    root = s3_root("t", proxy.endpoint)
    table = pa.table({"a": [1, 2, 3]})
    lance.write_dataset(table, root.uri, storage_options=root.options)
    lance.write_dataset(table, root.uri, storage_options=root.options, mode="append")
    dataset = lance.dataset(root.uri, storage_options=root.options)
    assert (dataset.version, dataset.count_rows()) == (2, 6)
    assert dataset.to_table().column("a").to_pylist() == [1, 2, 3, 1, 2, 3]
    assert proxy.counts[Kind.PUT] >= 4


@pytest.mark.parametrize("action", [Action.CUT_BEFORE, Action.CUT_AFTER, Action.UNAVAILABLE])
def test_lance_itself_settles_a_commit_whose_answer_was_lost_once(s3_root, proxy, action):
    root = s3_root("t", proxy.endpoint)
    table = pa.table({"a": [1]})
    lance.write_dataset(table, root.uri, storage_options=root.options)
    proxy.plan(Fault(action, kind=Kind.PUT, path=".manifest"))
    lance.write_dataset(table, root.uri, storage_options=root.options, mode="append")
    dataset = lance.dataset(root.uri, storage_options=root.options)
    assert (dataset.version, dataset.count_rows()) == (2, 2)
