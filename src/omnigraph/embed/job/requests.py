"""Requests to a provider: texts in batches, by several threads, every response stored at once.

A refused text fails its whole batch, which is halved until the text is isolated. More refused texts
than allowed, or any other failure, end the job, after the running requests were answered and their
vectors stored.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from types import TracebackType

import numpy as np

from omnigraph.embed.job.rate_limit import RateLimiter, estimate_tokens
from omnigraph.embed.job.spool import VectorSpool
from omnigraph.embed.providers.embedder import Embedder, Role
from omnigraph.errors import EmbeddingError, InputError, OmniGraphError

_REFUSED_TEXT = frozenset({400, 413, 422})
"""The status for a text that a provider does not accept, or that is too long."""
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Batching:
    """The size of one request."""

    texts: int = 128
    characters: int = 100_000
    """Of all texts together; a longer text is sent alone."""

    def __post_init__(self) -> None:
        for name, value in (("texts", self.texts), ("characters", self.characters)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise InputError(f"{name} must be a whole number, not {type(value).__name__}")
            if value < 1:
                raise InputError(f"{name} must be at least 1")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A text without a vector: its row, and why. The text itself is not shown."""

    type_name: str
    id: str
    property: str
    reason: str

    def __str__(self) -> str:
        return f"{self.type_name} '{self.id}', {self.property}: {self.reason}"


@dataclass(frozen=True, slots=True)
class PendingText:
    """A text to embed, and the first row that has it."""

    key: bytes
    text: str = field(repr=False)
    id: str


@dataclass(slots=True)
class ProviderUsage:
    """The use of the provider."""

    texts: int = 0
    requests: int = 0
    tokens: int | None = None


class _Stopped(Exception):
    """Another request failed for good; this one is of no use."""


class _RequestThrottle:
    """The throttle of one request; counts its attempts."""

    def __init__(self, requests: EmbeddingRequests, tokens: int) -> None:
        self._requests = requests
        self._tokens = tokens

    def acquire(self) -> None:
        self._requests.limiter.acquire(self._tokens, self._requests.stop)
        self._requests.count_request()

    def pause(self, seconds: float, *, everyone: bool) -> None:
        self._requests.limiter.pause(seconds, self._requests.stop, everyone=everyone)


class EmbeddingRequests:
    """Requests the vectors of one property. Use it as a context manager."""

    def __init__(
        self,
        embedder: Embedder,
        dimension: int,
        label: tuple[str, str],
        spool: VectorSpool,
        limiter: RateLimiter,
        batching: Batching,
        *,
        threads: int,
        max_refusals: int,
        check: Callable[[], None],
        on_usage: Callable[[ProviderUsage], None],
    ) -> None:
        self._embedder = embedder
        self._dimension = dimension
        self._label = label
        self._spool = spool
        self.limiter = limiter
        self._texts = min(batching.texts, embedder.max_texts)
        self._characters = batching.characters
        self._max_refusals = max_refusals
        self._check = check
        self._on_usage = on_usage
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="embedding")
        self._max_running = 2 * threads
        self._running: set[Future[None]] = set()
        self._next: list[PendingText] = []
        self._next_characters = 0
        self._lock = threading.Lock()
        self._failed = False
        self.usage = ProviderUsage()
        self.refusals: list[Refusal] = []

    # -- the caller's thread -------------------------------------------------------------

    def submit(self, text: PendingText) -> None:
        """Add a text to the next request; waits while enough requests are running."""
        characters = len(text.text)
        if self._next and self._next_characters + characters > self._characters:
            self._send()
        self._next.append(text)
        self._next_characters += characters
        if len(self._next) >= self._texts:
            self._send()

    def finish(self) -> None:
        """Send the remaining texts, and wait for all responses."""
        self._send()
        self._collect(0)

    def _send(self) -> None:
        if not self._next:
            return
        self._collect(self._max_running - 1)
        self._running.add(self._pool.submit(self._request, self._next))
        self._next, self._next_characters = [], 0

    def _collect(self, most: int) -> None:
        """Wait until at most ``most`` requests are running."""
        while self._running:
            done, self._running = wait(
                self._running,
                _POLL_SECONDS if len(self._running) > most else 0,
                return_when=FIRST_COMPLETED,
            )
            for future in done:
                future.result()
            self._check()
            if done:
                self._on_usage(self.usage)
            if len(self._running) <= most:
                return

    def __enter__(self) -> EmbeddingRequests:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Running requests are paid for, so they are waited for; the others never start.
        self._failed = kind is not None
        self._pool.shutdown(wait=True, cancel_futures=self._failed)

    # -- threads of the pool -------------------------------------------------------------

    def _request(self, texts: Sequence[PendingText]) -> None:
        self.stop()
        estimate = estimate_tokens(sum(len(text.text) for text in texts))
        try:
            batch = self._embedder.embed(
                [text.text for text in texts],
                self._dimension,
                role=Role.DOCUMENT,
                throttle=_RequestThrottle(self, estimate),
            )
        except EmbeddingError as error:
            if error.details.get("status") not in _REFUSED_TEXT:
                raise
            if len(texts) == 1:
                self._refuse(texts[0], f"the provider refuses it (HTTP {error.details['status']})")
                return
            middle = len(texts) // 2
            self._request(texts[:middle])
            self._request(texts[middle:])
            return
        if batch.tokens is not None:
            self.limiter.correct(batch.tokens - estimate)
        good = np.setdiff1d(np.arange(len(texts)), np.array(batch.without_direction, np.int64))
        self._spool.add([texts[position].key for position in good], batch.vectors[good])
        with self._lock:
            self.usage.texts += len(good)
            if batch.tokens is not None:
                self.usage.tokens = (self.usage.tokens or 0) + batch.tokens
        for position in batch.without_direction:
            self._refuse(texts[position], "its embedding is zero or not finite")

    def stop(self) -> None:
        """Abort a request that has not been sent if another failed."""
        if self._failed:
            raise _Stopped

    def count_request(self) -> None:
        with self._lock:
            self.usage.requests += 1

    def _refuse(self, text: PendingText, reason: str) -> None:
        refusal = Refusal(self._label[0], text.id, self._label[1], reason)
        with self._lock:
            self.refusals.append(refusal)
            count = len(self.refusals)
        if count > self._max_refusals:
            self._failed = True
            raise too_many_refusals(self.refusals, self._max_refusals)


def too_many_refusals(refusals: Sequence[Refusal], allowed: int) -> OmniGraphError:
    """The error for more refused texts than allowed."""
    more = f" (and {len(refusals) - 1} more)" if len(refusals) > 1 else ""
    return EmbeddingError(
        f"{refusals[0]}{more}",
        hint="change or empty the text, or raise max_failures; what was embedded is kept",
        details={
            "allowed": allowed,
            "failures": [
                {"type": r.type_name, "id": r.id, "property": r.property, "reason": r.reason}
                for r in refusals
            ],
        },
    )
