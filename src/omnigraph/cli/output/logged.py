"""What the engine logs while a command runs: its warnings, as those of the command."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.cli.output import terminal

_ENGINE = "omnigraph"


class _Remarks(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        terminal.warn(record.getMessage())


@contextmanager
def shown_warnings() -> Iterator[None]:
    """Show what the engine warns of on stderr, for the time of a command."""
    handler = _Remarks(logging.WARNING)
    engine = logging.getLogger(_ENGINE)
    engine.addHandler(handler)
    try:
        yield
    finally:
        engine.removeHandler(handler)
