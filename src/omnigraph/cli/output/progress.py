"""Progress of long operations: one redrawn line on stderr, on a terminal only."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING

from omnigraph.cli.command_context import check_interrupt, stderr
from omnigraph.cli.output import terminal
from omnigraph.maintain.units import format_bytes

if TYPE_CHECKING:
    from omnigraph.progress import Progress

_MIN_INTERVAL = 0.1
_TICK = 0.5
_WIDTH = 24


class ProgressBar:
    """One line, removed at the end. Without a total it shows the phase and the elapsed time."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._is_on = terminal.is_live(stderr())
        self._drawn = 0.0
        self._started = time.monotonic()
        self._parts: list[str] = []
        self._drawing = threading.Lock()
        self._over = threading.Event()
        self._ticker = threading.Thread(target=copy_context().run, args=(self._tick,), daemon=True)

    def show(self, phase: str, done: int = 0, total: int = 0, detail: str = "") -> None:
        """Draw the progress, unless it was drawn very recently."""
        now = time.monotonic()
        if not self._is_on or (now - self._drawn < _MIN_INTERVAL and (done < total or not total)):
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

    def update(self, progress: Progress) -> None:
        """Draw the progress of an engine call; passed to it as ``on_progress``."""
        check_interrupt()
        counts = dict(progress.detail)
        if not progress.total:
            counts = {progress.unit: progress.done, **counts}
        detail = ", ".join(
            format_bytes(count) if name == "bytes" else f"{count:,} {name}"
            for name, count in counts.items()
            if count
        )
        self.show(progress.phase, progress.done if progress.total else 0, progress.total, detail)

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
def progress_bar(title: str) -> Iterator[ProgressBar]:
    """Show a progress line for the duration of an operation."""
    line = ProgressBar(title)
    try:
        yield line
    finally:
        line.clear()
