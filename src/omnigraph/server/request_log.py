"""The log of a server: one JSON object per line.

Every line has a time, a level and an event. Lines about a request have its id. Neither tokens nor
the parameters of queries are ever passed to this module.
"""

from __future__ import annotations

import contextlib
import logging
import os
import traceback
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from omnigraph.server.config import LogOptions

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR
_NAMES: Final = {DEBUG: "debug", INFO: "info", WARNING: "warning", ERROR: "error"}
_LONGEST_TEXT = 4096
_ENCODER = msgspec.json.Encoder(enc_hook=str)


class RequestLog:
    """Writes events to a file descriptor. Safe to share between threads and processes.

    Whoever reads the other end may be gone or slow to read: a line that cannot be written is lost,
    and never fails a request.
    """

    def __init__(self, options: LogOptions, process: str = "server") -> None:
        self._descriptor = options.descriptor
        self._level = getattr(logging, options.level.upper())
        self._process = process
        self.slow_seconds = options.slow_seconds
        self._allowed_level = INFO if options.all_decisions else DEBUG

    def is_enabled(self, level: int) -> bool:
        return bool(level >= self._level)

    def event(self, name: str, /, *, level: int = INFO, **fields: Any) -> None:
        """Log an event."""
        if not self.is_enabled(level):
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {
            "time": now,
            "level": _NAMES.get(level, "error"),
            "process": self._process,
            "event": name,
            **{key: value for key, value in fields.items() if value is not None},
        }
        # One write per line, so that lines of several processes do not mix.
        with contextlib.suppress(OSError):
            os.write(self._descriptor, _ENCODER.encode(line) + b"\n")

    # -- events of requests ----------------------------------------------------------------

    def wants_request(self, seconds: float) -> bool:
        """Whether a request that took this time is logged."""
        return seconds >= self.slow_seconds or self.is_enabled(DEBUG)

    def request(
        self,
        *,
        request_id: str,
        method: str,
        path: str,
        status: int,
        seconds: float,
        actor: str | None,
        query: str | None = None,
        query_name: str | None = None,
    ) -> None:
        """A request was answered; a slow one is logged with the text of its query."""
        milliseconds = round(seconds * 1000, 3)
        if self.is_enabled(DEBUG):
            self.event(
                "request",
                level=DEBUG,
                request_id=request_id,
                method=method,
                path=path,
                status=status,
                latency_ms=milliseconds,
                actor_id=actor,
            )
        if seconds >= self.slow_seconds and self.is_enabled(WARNING):
            self.event(
                "slow request",
                level=WARNING,
                request_id=request_id,
                method=method,
                path=path,
                status=status,
                latency_ms=milliseconds,
                actor_id=actor,
                query_name=query_name,
                query=None if query is None else query[:_LONGEST_TEXT],
            )

    def wants_decision(self, is_allowed: bool) -> bool:
        """Whether a decision is logged."""
        return self.is_enabled(self._allowed_level if is_allowed else INFO)

    def decision(
        self,
        *,
        request_id: str,
        graph: str | None,
        actor: str | None,
        action: str,
        branch: str | None,
        target: str | None,
        query: str | None,
        allowed: bool,
        rule: str | None,
    ) -> None:
        """A policy has decided; refusals are worth more attention."""
        self.event(
            "policy decision",
            level=self._allowed_level if allowed else INFO,
            request_id=request_id,
            graph=graph,
            actor_id=actor,
            action=action,
            branch=branch,
            target_branch=target,
            query=query,
            allowed=allowed,
            matched_rule_id=rule,
        )


class EngineLog(logging.Handler):
    """Passes what the engine and the libraries log on, as events."""

    def __init__(self, log: RequestLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.event(
            "engine",
            level=record.levelno,
            logger=record.name,
            message=record.getMessage(),
            traceback=_traceback(record),
        )


def _traceback(record: logging.LogRecord) -> str | None:
    if not record.exc_info or record.exc_info[1] is None:
        return None
    return "".join(traceback.format_exception(record.exc_info[1]))


def follow_engine(log: RequestLog) -> None:
    """Log the warnings of this process's engine and libraries."""
    root = logging.getLogger()
    root.handlers[:] = [EngineLog(log)]
    logging.getLogger("uvicorn").handlers.clear()
    logging.captureWarnings(True)
