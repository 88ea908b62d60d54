"""Keeps progress callbacks from writing to the graph whose operation calls them.

The operation holds table leases, or is about to take them: a nested write would wait for itself,
or make the operation start over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from omnigraph.errors import InputError

P = TypeVar("P")


class _Notifying(threading.local):
    """URIs of the graphs whose progress callbacks run on this thread."""

    def __init__(self) -> None:
        self.uris: list[str] = []


_NOTIFYING = _Notifying()


def guard_callback(uri: str, on_progress: Callable[[P], None]) -> Callable[[P], None]:
    """Wrap a progress callback so that writes to the graph fail while it runs."""

    def notify(event: P) -> None:
        _NOTIFYING.uris.append(uri)
        try:
            on_progress(event)
        finally:
            _NOTIFYING.uris.pop()

    return notify


def reject_reentrant_write(uri: str) -> None:
    """Raise if a progress callback of this graph is running on this thread."""
    if uri in _NOTIFYING.uris:
        raise InputError(
            "a progress callback cannot write to the graph that calls it",
            hint="collect the data and write after the call has returned",
        )
