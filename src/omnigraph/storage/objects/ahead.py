"""Requests that are started before their answers are asked for, so that they run together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from omnigraph.storage.objects.requests import request_pool

_VALID_SECONDS = 1.0

Key = tuple[str, str]
"""What is asked, and the path of the object."""


class _Started(NamedTuple):
    at: float
    answer: Future[Any]


class RequestsAhead:
    """The started requests of each thread. An answer is used once, and only while it is new."""

    def __init__(self) -> None:
        self._local = threading.local()

    def start(self, requests: Mapping[Key, Callable[[str], Any]]) -> None:
        """Start requests for the calling thread; unused answers of earlier ones are dropped."""
        now, pool = time.monotonic(), request_pool()
        self._local.started = {
            key: _Started(now, pool.submit(ask, key[1])) for key, ask in requests.items()
        }

    def take(self, what: str, path: str) -> Future[Any] | None:
        """The answer of a request that this thread started, if there is one to use."""
        answer = self.peek(what, path)
        if answer is not None:
            del self._local.started[what, path]
        return answer

    def peek(self, what: str, path: str) -> Future[Any] | None:
        """The same, and the answer can be taken later."""
        started: dict[Key, _Started] = getattr(self._local, "started", {})
        request = started.get((what, path))
        if request is None or time.monotonic() - request.at > _VALID_SECONDS:
            return None
        return request.answer
