"""How far long work is, as one line on stderr that is drawn anew; nothing where nobody looks."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.cli.output import terminal

_OFTEN = 0.1
_TICK = 0.5
_WIDTH = 24


class Bar:
    """One line, gone when the work is over. Where no share is told, it shows that work goes on."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._is_on = terminal.is_live(sys.stderr)
        self._drawn = 0.0
        self._started = time.monotonic()
        self._parts: list[str] = []
        self._drawing = threading.Lock()
        self._over = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def show(self, phase: str, done: int = 0, total: int = 0, detail: str = "") -> None:
        """Draw how far it is, unless that was done a moment ago."""
        now = time.monotonic()
        if not self._is_on or (now - self._drawn < _OFTEN and (done < total or not total)):
            return
        parts = [self._title, phase]
        if total:
            filled = _WIDTH * min(done, total) // total
            parts.append(f"[{'█' * filled}{'·' * (_WIDTH - filled)}] {done}/{total}")
        if detail:
            parts.append(detail)
        self._parts = parts
        self._draw()
        if not self._ticker.is_alive() and not self._over.is_set():
            self._ticker.start()

    def clear(self) -> None:
        self._over.set()
        if self._ticker.is_alive():
            self._ticker.join()
        if self._drawn:
            terminal.redraw("")

    def _draw(self) -> None:
        with self._drawing:
            self._drawn = time.monotonic()
            spent = f"{self._drawn - self._started:.0f} s"
            terminal.redraw("  ".join([*self._parts, spent]))

    def _tick(self) -> None:
        while not self._over.wait(_TICK):
            self._draw()


@contextmanager
def bar(title: str) -> Iterator[Bar]:
    """A line for the time of some work."""
    line = Bar(title)
    try:
        yield line
    finally:
        line.clear()
