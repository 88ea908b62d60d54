"""Loggers whose records are one safe line each.

Records contain names, paths and ids from outside, which could break or forge lines of a log.
"""

from __future__ import annotations

import logging
from typing import Any

from omnigraph.escaping import escape


class LineLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger that escapes control characters."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if self.isEnabledFor(level):
            # The logging code is the caller of this method.
            kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
            self.logger.log(level, escape(str(msg)), *map(_plain, args), **kwargs)


def logger(name: str) -> LineLogger:
    """The logger of a module."""
    return LineLogger(logging.getLogger(name), {})


def _plain(value: object) -> object:
    return value if isinstance(value, int | float) else escape(str(value))
