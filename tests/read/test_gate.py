"""Small queries are admitted one at a time; no query waits long, and none keeps the gate."""

from __future__ import annotations

import threading

import pytest

from omnigraph import Graph
from omnigraph.api.handle import Handle
from omnigraph.read import gate
from omnigraph.read.gate import GATE


def test_the_gate_is_free_after_its_block_whatever_happens():
    with GATE:
        assert not GATE.is_free
    assert GATE.is_free
    with pytest.raises(ValueError, match="wrong"), GATE:
        raise ValueError("wrong")
    assert GATE.is_free


def test_a_released_gate_is_not_released_again():
    entered, done = threading.Event(), threading.Event()

    def other():
        with GATE:
            entered.set()
            done.wait(10)

    thread = threading.Thread(target=other)
    with GATE:
        GATE.release()
        assert GATE.is_free
        thread.start()
        assert entered.wait(10)
        GATE.release()
        GATE.release_if_long()
        assert not GATE.is_free
    assert not GATE.is_free
    done.set()
    thread.join()
    assert GATE.is_free


def test_a_query_inside_of_a_query_has_the_same_admission():
    with GATE:
        with GATE:
            assert not GATE.is_free
        assert not GATE.is_free
    assert GATE.is_free


def test_a_long_query_releases_the_gate(monkeypatch):
    monkeypatch.setattr(gate, "_LONG", 0.0)
    with GATE:
        GATE.release_if_long()
        assert GATE.is_free


def test_a_query_that_waits_too_long_runs_without_the_gate(monkeypatch):
    monkeypatch.setattr(gate, "_PATIENCE", 0.0)
    done = []

    def other():
        with GATE:
            done.append("went on")

    with GATE:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert done == ["went on"]
        assert not GATE.is_free
    assert GATE.is_free


@pytest.mark.parametrize("pause", [0.0, float("inf")], ids=["now and then", "in a row"])
def test_the_gate_does_not_pass_after_each_of_many_queries_in_a_row(monkeypatch, pause):
    """Another thread waits for a while first, and does not wait for the lock in the meantime."""
    waited, asleep, gone = [], threading.Event(), threading.Event()
    monkeypatch.setattr(gate, "_PAUSE", pause)

    def wait():
        waited.append(GATE.is_free)
        asleep.set()
        assert gone.wait(10)

    def other():
        with GATE:
            pass

    monkeypatch.setattr(gate, "_wait", wait)
    thread = threading.Thread(target=other)
    with GATE:
        thread.start()
        assert not pause or asleep.wait(10)
    with GATE:
        gone.set()  # the other thread did not take it
    thread.join()
    assert waited == ([False] if pause else [])
    assert GATE.is_free


@pytest.mark.parametrize("is_remote", [False, True], ids=["local", "s3"])
def test_nobody_waits_at_the_gate_for_the_network(tmp_path, s3_root, monkeypatch, is_remote):
    """The state of a local graph is resolved behind the gate, that of a remote one in front."""
    root = s3_root("g.omni")
    location, options = (root.uri, root.options) if is_remote else (tmp_path / "g.omni", None)
    resolve, seen = Handle.read, []

    def watched(handle, ref):
        seen.append(GATE.is_free)
        return resolve(handle, ref)

    with Graph.init(
        location, "node Person { name: String @key }", storage_options=options
    ) as graph:
        monkeypatch.setattr(Handle, "read", watched)
        count = "query q() { match { $p: Person } return { count($p) as people } }"
        assert graph.query(count).rows() == [{"people": 0}]
    assert seen == [is_remote]
    assert GATE.is_free
