"""Texts on their way to a provider: in batches, by a few threads, each answer kept at once.

A text that the provider refuses takes its batch with it; such a batch is halved until the text is
found. More refused texts than allowed, or any other failure, end it, after what is under way has
been answered and kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from types import TracebackType

import numpy as np

from omnigraph.embed.job.pace import Pace, guessed_tokens
from omnigraph.embed.job.spool import Spool
from omnigraph.embed.providers.embedder import Embedder, Role
from omnigraph.errors import EmbeddingError, InputError, OmniGraphError

_OF_ONE_TEXT = frozenset({400, 413, 422})
"""What a provider answers when it does not like a text, or how much there is of it."""
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Batching:
    """How much goes into one request."""

    texts: int = 128
    characters: int = 100_000
    """Of all texts together; one that is longer goes alone."""

    def __post_init__(self) -> None:
        for name, value in (("texts", self.texts), ("characters", self.characters)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise InputError(f"{name} must be a whole number, not {type(value).__name__}")
            if value < 1:
                raise InputError(f"{name} must be at least 1")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A text that got no vector: whose it is, and why. The text itself is not shown."""

    type_name: str
    id: str
    property: str
    reason: str

    def __str__(self) -> str:
        return f"{self.type_name} '{self.id}', {self.property}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A text that has no vector yet, and the first row that has it."""

    key: bytes
    text: str = field(repr=False)
    id: str


@dataclass(slots=True)
class Spent:
    """What was asked of the provider."""

    texts: int = 0
    requests: int = 0
    tokens: int | None = None


class _Stopped(Exception):
    """Another request has failed for good; nobody looks at this one any more."""


class _RequestThrottle:
    """The throttle of one request; counts its attempts."""

    def __init__(self, asking: Asking, tokens: int) -> None:
        self._asking = asking
        self._tokens = tokens

    def acquire(self) -> None:
        self._asking.pace.turn(self._tokens, self._asking.stop)
        self._asking.count_request()

    def pause(self, seconds: float, *, everyone: bool) -> None:
        self._asking.pace.pause(seconds, self._asking.stop, everyone=everyone)


class Asking:
    """Asks for the vectors of one property. Use it as a context manager."""

    def __init__(
        self,
        embedder: Embedder,
        dimension: int,
        label: tuple[str, str],
        spool: Spool,
        pace: Pace,
        batching: Batching,
        *,
        threads: int,
        max_refusals: int,
        check: Callable[[], None],
        tell: Callable[[Spent], None],
    ) -> None:
        self._embedder = embedder
        self._dimension = dimension
        self._label = label
        self._spool = spool
        self.pace = pace
        self._texts = min(batching.texts, embedder.max_texts)
        self._characters = batching.characters
        self._max_refusals = max_refusals
        self._check = check
        self._tell = tell
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="embedding")
        self._most_waiting = 2 * threads
        self._running: set[Future[None]] = set()
        self._next: list[Wanted] = []
        self._letters = 0
        self._lock = threading.Lock()
        self._failed = False
        self.spent = Spent()
        self.refusals: list[Refusal] = []

    # -- the caller's thread -------------------------------------------------------------

    def want(self, text: Wanted) -> None:
        """Ask for one more text, soon; waits while enough is under way."""
        letters = len(text.text)
        if self._next and self._letters + letters > self._characters:
            self._send()
        self._next.append(text)
        self._letters += letters
        if len(self._next) >= self._texts:
            self._send()

    def finish(self) -> None:
        """Ask for what is left, and wait for all of it."""
        self._send()
        self._collect(0)

    def _send(self) -> None:
        if not self._next:
            return
        self._collect(self._most_waiting - 1)
        self._running.add(self._pool.submit(self._ask, self._next))
        self._next, self._letters = [], 0

    def _collect(self, most: int) -> None:
        """Wait until no more than so many requests are under way."""
        while self._running:
            done, self._running = wait(
                self._running,
                _POLL_SECONDS if len(self._running) > most else 0,
                return_when=FIRST_COMPLETED,
            )
            for each in done:
                each.result()
            self._check()
            if done:
                self._tell(self.spent)
            if len(self._running) <= most:
                return

    def __enter__(self) -> Asking:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # What is under way is paid for, so its answers are waited for; what is not never starts.
        self._failed = kind is not None
        self._pool.shutdown(wait=True, cancel_futures=self._failed)

    # -- threads of the pool -------------------------------------------------------------

    def _ask(self, texts: Sequence[Wanted]) -> None:
        self.stop()
        guess = guessed_tokens(sum(len(each.text) for each in texts))
        try:
            batch = self._embedder.embed(
                [each.text for each in texts],
                self._dimension,
                role=Role.DOCUMENT,
                throttle=_RequestThrottle(self, guess),
            )
        except EmbeddingError as error:
            if error.details.get("status") not in _OF_ONE_TEXT:
                raise
            if len(texts) == 1:
                self._refuse(texts[0], f"the provider refuses it (HTTP {error.details['status']})")
                return
            middle = len(texts) // 2
            self._ask(texts[:middle])
            self._ask(texts[middle:])
            return
        if batch.tokens is not None:
            self.pace.make_good(batch.tokens - guess)
        good = np.setdiff1d(np.arange(len(texts)), np.array(batch.without_direction, np.int64))
        self._spool.keep([texts[position].key for position in good], batch.vectors[good])
        with self._lock:
            self.spent.texts += len(good)
            if batch.tokens is not None:
                self.spent.tokens = (self.spent.tokens or 0) + batch.tokens
        for position in batch.without_direction:
            self._refuse(texts[position], "its embedding is zero or not finite")

    def stop(self) -> None:
        """End what has not been sent when others have failed."""
        if self._failed:
            raise _Stopped

    def count_request(self) -> None:
        with self._lock:
            self.spent.requests += 1

    def _refuse(self, text: Wanted, reason: str) -> None:
        refusal = Refusal(self._label[0], text.id, self._label[1], reason)
        with self._lock:
            self.refusals.append(refusal)
            count = len(self.refusals)
        if count > self._max_refusals:
            self._failed = True
            raise too_many(self.refusals, self._max_refusals)


def too_many(refusals: Sequence[Refusal], allowed: int) -> OmniGraphError:
    """The error of a job that met more texts without a vector than it may."""
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
