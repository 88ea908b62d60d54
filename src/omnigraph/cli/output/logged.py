"""Prints warnings that the engine logs while a command runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.cli.output import terminal

_ENGINE = "omnigraph"


class _WarningHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        terminal.warn(record.getMessage())


@contextmanager
def show_engine_warnings() -> Iterator[None]:
    """Print engine warnings on stderr for the duration of a command."""
    handler = _WarningHandler(logging.WARNING)
    engine = logging.getLogger(_ENGINE)
    engine.addHandler(handler)
    try:
        yield
    finally:
        engine.removeHandler(handler)
