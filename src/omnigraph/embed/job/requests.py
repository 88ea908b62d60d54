"""Requests to a provider: texts in batches, by several threads; every response is stored at once.

A refused text fails its whole batch, which is halved until the text is isolated. More refused texts
than allowed, or any other failure, end the job, after the running requests were answered and their
vectors stored.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import field
from pathlib import Path

import numpy as np

from omnigraph.argument_checks import Positive, check_fields
from omnigraph.embed.job.rate_limit import RateLimit, RateLimiter, estimate_tokens, no_check
from omnigraph.embed.job.spool import VectorSpool
from omnigraph.embed.job.targets import EmbedTarget
from omnigraph.embed.providers.choice import make_embedder
from omnigraph.embed.providers.config import EmbeddingConfig
from omnigraph.embed.providers.embedder import Embedder, Role
from omnigraph.errors import EmbeddingError, OmniGraphError
from omnigraph.records import dataclass

_REFUSED_TEXT = frozenset({400, 413, 422})
"""The HTTP status codes for a text that the provider does not accept, or that is too long."""
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Batching:
    """The size of one request."""

    texts: Positive = 128
    characters: Positive = 100_000
    """The maximum length of all texts together; a longer text is sent alone."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused text: its row and the reason. The text itself is not included."""

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
    """Counts of the provider's usage."""

    texts: int = 0
    requests: int = 0
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings of a job. They contain the key of the provider, which is never shown."""

    config: EmbeddingConfig
    folder: str
    again: bool = False
    rate: RateLimit = RateLimit()
    """The limit of one process."""
    batching: Batching = Batching()
    threads: int = 4
    max_refusals: int = 0


class EmbedWorker:
    """The resources of a process that its splits share."""

    def __init__(
        self,
        setup: Setup,
        embedder: Embedder | None = None,
        check: Callable[[], None] = no_check,
        on_usage: Callable[[ProviderUsage], None] = lambda _: None,
    ) -> None:
        self.setup = setup
        self.embedder = embedder or make_embedder(setup.config)
        self.spool = VectorSpool(Path(setup.folder))
        self.limiter = RateLimiter(setup.rate, check)
        self.check = check
        self.on_usage = on_usage


class _Stopped(Exception):
    """Another request failed permanently; this one is abandoned."""


class _RequestThrottle:
    """The throttle of one request; counts its attempts."""

    def __init__(self, requests: EmbeddingRequests, tokens: int) -> None:
        self._requests = requests
        self._limiter = requests.worker.limiter
        self._tokens = tokens

    def acquire(self) -> None:
        self._limiter.acquire(self._tokens, self._requests.stop)
        self._requests.count_request()

    def pause(self, seconds: float, *, everyone: bool) -> None:
        self._limiter.pause(seconds, self._requests.stop, everyone=everyone)


class EmbeddingRequests:
    """Requests the vectors of one property. Use it as a context manager."""

    def __init__(self, worker: EmbedWorker, target: EmbedTarget) -> None:
        setup = worker.setup
        self.worker = worker
        self._target = target
        self._max_texts = min(setup.batching.texts, worker.embedder.max_texts)
        self._pool = ThreadPoolExecutor(setup.threads, thread_name_prefix="embedding")
        self._max_running = 2 * setup.threads
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
        most = self.worker.setup.batching.characters
        if self._next and self._next_characters + characters > most:
            self._send()
        self._next.append(text)
        self._next_characters += characters
        if len(self._next) >= self._max_texts:
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
            self.worker.check()
            if done:
                self.worker.on_usage(self.usage)
            if len(self._running) <= most:
                return

    def __enter__(self) -> EmbeddingRequests:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # Running requests are charged, so the job waits for them; the others never start.
        self._failed = kind is not None
        self._pool.shutdown(wait=True, cancel_futures=self._failed)

    # -- threads of the pool -------------------------------------------------------------

    def _request(self, texts: Sequence[PendingText]) -> None:
        self.stop()
        estimate = estimate_tokens(sum(len(text.text) for text in texts))
        try:
            batch = self.worker.embedder.embed(
                [text.text for text in texts],
                self._target.dimension,
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
            self.worker.limiter.correct(batch.tokens - estimate)
        good = np.setdiff1d(np.arange(len(texts)), np.array(batch.without_direction, np.int64))
        self.worker.spool.add([texts[position].key for position in good], batch.vectors[good])
        with self._lock:
            self.usage.texts += len(good)
            if batch.tokens is not None:
                self.usage.tokens = (self.usage.tokens or 0) + batch.tokens
        for position in batch.without_direction:
            self._refuse(texts[position], "its embedding is zero or not finite")

    def stop(self) -> None:
        """Abort a request that was not sent yet, if another one failed."""
        if self._failed:
            raise _Stopped

    def count_request(self) -> None:
        with self._lock:
            self.usage.requests += 1

    def _refuse(self, text: PendingText, reason: str) -> None:
        refusal = Refusal(self._target.type_name, text.id, self._target.name, reason)
        with self._lock:
            self.refusals.append(refusal)
            count = len(self.refusals)
        allowed = self.worker.setup.max_refusals
        if count > allowed:
            self._failed = True
            raise too_many_refusals(self.refusals, allowed)


def too_many_refusals(refusals: Sequence[Refusal], allowed: int) -> OmniGraphError:
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
