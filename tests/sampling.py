"""Parametrizations of which a quick run takes other cases each day, and the slow tests all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.rotation import sample


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
