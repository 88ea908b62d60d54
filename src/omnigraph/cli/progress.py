"""How far long work is, as one line on stderr that is drawn anew; nothing where nobody looks."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.cli import terminal

_OFTEN = 0.1
_WIDTH = 24


class Bar:
    """One line; it is gone when the work is over."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._is_on = terminal.is_live(sys.stderr)
        self._drawn = 0.0
        self._started = time.monotonic()

    def show(self, phase: str, done: int = 0, total: int = 0, detail: str = "") -> None:
        """Draw how far it is, unless that was done a moment ago."""
        now = time.monotonic()
        if not self._is_on or (now - self._drawn < _OFTEN and (done < total or not total)):
            return
        self._drawn = now
        parts = [self._title, phase]
        if total:
            filled = _WIDTH * min(done, total) // total
            parts.append(f"[{'█' * filled}{'·' * (_WIDTH - filled)}] {done}/{total}")
        if detail:
            parts.append(detail)
        parts.append(f"{now - self._started:.0f} s")
        sys.stderr.write(f"\r\x1b[2K{'  '.join(parts)}")
        sys.stderr.flush()

    def clear(self) -> None:
        if self._is_on and self._drawn:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


@contextmanager
def bar(title: str) -> Iterator[Bar]:
    """A line for the time of some work."""
    line = Bar(title)
    try:
        yield line
    finally:
        line.clear()
