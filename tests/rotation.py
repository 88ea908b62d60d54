"""Which share of a large enumeration the quick suite runs today.

A suite that cannot run all its cases every time takes a sample. The sample changes from day to
day and is the same for everybody on one day, so that in time every case is met and a failure can
be repeated: the seed is in the report header of pytest, and ``OMNIGRAPH_TEST_SEED`` sets it.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable, Sequence
from typing import TypeVar

VARIABLE = "OMNIGRAPH_TEST_SEED"
_SECONDS_OF_A_DAY = 86_400

T = TypeVar("T")


def rotation() -> int:
    """The seed of this run: the number of the day (UTC), unless the environment says otherwise.

    It stays the same for this process and for those that it starts, also past midnight.
    """
    return int(os.environ.setdefault(VARIABLE, str(int(time.time()) // _SECONDS_OF_A_DAY)))


def sample(cases: Sequence[T], count: int, name: str) -> list[T]:
    """At most ``count`` of the cases, in their order; ``name`` keeps samples apart.

    The same for the same seed, in every process: workers of one run must agree.

    >>> cases = range(100)
    >>> sample(cases, 5, "a") == sample(cases, 5, "a")
    True
    >>> sample([1, 2], 5, "a")
    [1, 2]
    """
    if len(cases) <= count:
        return list(cases)
    chosen = random.Random(f"{rotation()} {name}").sample(range(len(cases)), count)
    return [cases[index] for index in sorted(chosen)]


def in_turn(cases: Iterable[T], days: int) -> list[T]:
    """One of ``days`` of the cases, in their order; after so many days all had their turn.

    For slow tests of products, of random histories, of failing reads and of damaged bytes.
    Enumerations of failing writes, for every kind of writer, and of failpoints stay whole.

    >>> sorted(in_turn(range(7), 1)) == list(range(7))
    True
    >>> len(in_turn(range(30), 3))
    10
    """
    return [case for number, case in enumerate(cases) if (number + rotation()) % days == 0]
