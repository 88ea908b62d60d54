"""Tests of which a quick run takes other ones each day, and the slow tests all.

A file with the mark ``rotates(n)`` gives a quick run one of ``n`` of its tests.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tests.rotation import rotation, sample


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    numbers: Counter[str] = Counter()
    for item in items:
        mark = item.get_closest_marker("rotates")
        if mark is not None and item.get_closest_marker("slow") is None:
            file = item.nodeid.partition("::")[0]
            item.add_marker(pytest.mark.sampled)
            # Each file begins elsewhere, or all short files would have their turn on one day.
            if (numbers[file] + zlib.crc32(file.encode()) + rotation()) % mark.args[0]:
                item.add_marker(pytest.mark.slow)
            numbers[file] += 1


def rotating(cases: Sequence[Any], count: int, name: str) -> list[Any]:
    """All cases as parameters; those that are not in the sample of this run are slow tests.

    A case that is a tuple gives the values of several arguments. Every case has the mark
    ``sampled``, which ``make test-slow`` selects too, so that it runs them all.
    """
    chosen = set(sample(range(len(cases)), count, name))
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=_marks(index in chosen))
        for index, case in enumerate(cases)
    ]


def _marks(chosen: bool) -> list[pytest.MarkDecorator]:
    return [pytest.mark.sampled] if chosen else [pytest.mark.sampled, pytest.mark.slow]
