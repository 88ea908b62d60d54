"""While a load or an upkeep tells how far it is, whoever listens cannot write to the same graph.

It holds its tables then, or is about to: a write from inside would wait for itself, or have all of
the work done again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from omnigraph.errors import InputError

P = TypeVar("P")


class _Told(threading.local):
    """The graphs of which something is being told in this thread."""

    def __init__(self) -> None:
        self.graphs: list[str] = []


_TOLD = _Told()


def telling(uri: str, progress: Callable[[P], None]) -> Callable[[P], None]:
    """A progress callback that marks the graph while it runs."""

    def tell(at: P) -> None:
        _TOLD.graphs.append(uri)
        try:
            progress(at)
        finally:
            _TOLD.graphs.pop()

    return tell


def refuse_while_telling(uri: str) -> None:
    """Refuse a write that a progress callback of the same graph asks for."""
    if uri in _TOLD.graphs:
        raise InputError(
            "a progress callback cannot write to the graph that it tells of",
            hint="keep what it says, and write when the call has returned",
        )
