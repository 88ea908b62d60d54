"""Ids: their shape, their order, and that no two are the same."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.commit.ulid import UlidSource, is_ulid, new_ulid, now_micros, ulid_time
from omnigraph.errors import InputError

HIGHEST = (1 << 80) - 1


def test_an_id_is_26_characters_and_carries_the_time_it_was_made():
    before = time.time_ns() // 1_000_000
    made = UlidSource().new()
    after = time.time_ns() // 1_000_000
    assert is_ulid(made)
    assert before <= ulid_time(made) <= after


def test_ids_of_one_process_are_in_the_order_they_were_made():
    made = [new_ulid() for _ in range(5_000)]
    assert made == sorted(set(made))


def test_a_clock_that_steps_back_does_not_turn_the_order_round():
    times = iter([1_000, 1_000, 400, 1_001])
    source = UlidSource(clock=lambda: next(times))
    made = [source.new() for _ in range(4)]
    assert made == sorted(set(made))
    assert [ulid_time(item) for item in made] == [1_000, 1_000, 1_000, 1_001]


def test_when_the_random_part_runs_over_the_next_millisecond_is_taken():
    randoms = iter([HIGHEST, 7])
    source = UlidSource(clock=lambda: 5, entropy=lambda: next(randoms))
    first, second = source.new(), source.new()
    assert (first, second) == ("0000000005ZZZZZZZZZZZZZZZZ", "00000000060000000000000007")


def test_threads_never_get_the_same_id():
    source = UlidSource()
    made: list[list[str]] = [[] for _ in range(8)]
    start = threading.Barrier(8)

    def work(mine: list[str]) -> None:
        start.wait()
        mine.extend(source.new() for _ in range(500))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(mine == sorted(mine) for mine in made)
    assert len({item for mine in made for item in mine}) == 8 * 500


def test_a_forgetful_source_does_not_count_on_from_its_last_id():
    randoms = iter([10, 900])
    source = UlidSource(clock=lambda: 5, entropy=lambda: next(randoms))
    first = source.new()
    source.forget()
    assert source.new() == first[:-2] + "W4"


# In a process of its own: forking the one that runs the tests would copy their threads' locks.
FORK = """
import os, time
time.time_ns = lambda: 5_000_000_000
from omnigraph.commit.ulid import new_ulid
new_ulid()
child = os.fork()
made = new_ulid()
if child:
    os.waitpid(child, 0)
os.write(1, (made + "\\n").encode())
os._exit(0)
"""


def test_a_forked_child_makes_other_ids_than_its_parent():
    """Also within the millisecond in which its parent made one."""
    ran = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    child, parent = ran.stdout.split()
    assert is_ulid(child)
    assert is_ulid(parent)
    assert child != parent


@given(st.integers(0, (1 << 48) - 1), st.integers(0, HIGHEST))
def test_the_time_of_an_id_is_the_one_it_was_made_from(millis, random):
    made = UlidSource(clock=lambda: millis, entropy=lambda: random).new()
    assert is_ulid(made)
    assert ulid_time(made) == millis


@given(st.tuples(*[st.tuples(st.integers(0, (1 << 48) - 1), st.integers(0, HIGHEST))] * 2))
def test_ids_sort_as_their_times_and_random_parts_do(pair):
    made = [UlidSource(clock=lambda m=m: m, entropy=lambda r=r: r).new() for m, r in pair]
    assert (made[0] < made[1]) == (pair[0] < pair[1])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "01ARZ3NDEKTSV4RRFFQ69G5FA",
        "01ARZ3NDEKTSV4RRFFQ69G5FAVX",
        "01arz3ndektsv4rrffq69g5fav",
        "81ARZ3NDEKTSV4RRFFQ69G5FAV",
        "01ARZ3NDEKTSV4RRFFQ69G5FAI",
        "01ARZ3NDEKTSV4RRFFQ69G5FAV\n",
        "../01ARZ3NDEKTSV4RRFFQ69G5",
    ],
)
def test_other_texts_are_no_ids(text):
    assert not is_ulid(text)
    with pytest.raises(InputError, match="is not an id"):
        ulid_time(text)


def test_micros_are_those_of_the_system_clock():
    before = time.time_ns() // 1_000
    assert before <= now_micros() <= time.time_ns() // 1_000
