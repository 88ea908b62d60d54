"""Small queries are admitted one at a time; no query waits long, and none keeps the gate."""

from __future__ import annotations

import threading

import pytest

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
