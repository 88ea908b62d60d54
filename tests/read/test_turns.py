"""Small queries take turns; nobody waits long for one, and none is kept."""

from __future__ import annotations

import threading

import pytest

from omnigraph.read import gate as turns
from omnigraph.read.gate import in_turn, leave, leave_if_long


def is_free():
    if turns._turn.acquire(blocking=False):
        turns._turn.release()
        return True
    return False


def test_a_turn_ends_with_its_block_whatever_happens():
    with in_turn():
        assert not is_free()
    assert is_free()
    with pytest.raises(ValueError, match="wrong"), in_turn():
        raise ValueError("wrong")
    assert is_free()


def test_a_turn_that_was_left_is_not_left_again():
    with in_turn():
        leave()
        assert is_free()
        with turns._turn:
            leave()
            leave_if_long()
            assert not is_free()
    assert is_free()


def test_a_query_inside_of_a_query_has_the_same_turn():
    with in_turn():
        with in_turn():
            assert not is_free()
        assert not is_free()
    assert is_free()


def test_what_takes_longer_than_thought_leaves_its_turn(monkeypatch):
    monkeypatch.setattr(turns, "_LONG", 0.0)
    with in_turn():
        leave_if_long()
        assert is_free()


def test_whoever_gets_no_turn_goes_without(monkeypatch):
    monkeypatch.setattr(turns, "_PATIENCE", 0.0)
    done = []

    def other():
        with in_turn():
            done.append("went on")

    with in_turn():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert done == ["went on"]
        assert not is_free()
    assert is_free()
