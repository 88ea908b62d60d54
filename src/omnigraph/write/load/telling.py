"""While a load tells how far it is, whoever listens cannot write to the same graph.

The load holds its tables then, or is about to: a write from inside would wait for itself, or make
the load judge all of its rows again.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from omnigraph.errors import InputError

if TYPE_CHECKING:
    from omnigraph.write.load.run import LoadProgress, Progress


class _Told(threading.local):
    """The graphs whose loads are telling something in this thread."""

    def __init__(self) -> None:
        self.graphs: list[str] = []


_TOLD = _Told()


def telling(uri: str, progress: Progress) -> Progress:
    """A progress callback that marks the graph while it runs."""

    def tell(at: LoadProgress) -> None:
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
            "a progress callback cannot write to the graph that is being loaded",
            hint="keep what it says, and write when the load has returned",
        )
