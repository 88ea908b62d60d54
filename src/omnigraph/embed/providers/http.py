"""One request to a provider: a deadline, a few attempts, and errors that show no key.

Connection failures, time-outs, 429 and 5xx are tried again, after as long as the provider asks for;
anything else is final. Redirects are refused: they would carry the key to another host.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from omnigraph.embed.providers.config import KEY_VARIABLES, EmbeddingConfig
from omnigraph.embed.providers.embedder import PLAIN, Waiting
from omnigraph.errors import EmbeddingError

_MOST_BYTES = 256 << 20
_PIECE = 1 << 16


class _Failed(Exception):
    """An attempt that failed in a way that may pass, and when the provider says it may."""

    def __init__(self, problem: str, after: float | None = None) -> None:
        super().__init__(problem)
        self.after = after


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


@dataclass(frozen=True, slots=True)
class Patience:
    """Until when a call may take, and how often it may try."""

    until: float | None
    timeout: float
    attempts: int
    backoff: float

    @staticmethod
    def of(config: EmbeddingConfig, deadline: float | None) -> Patience:
        """The patience of one call: the nearer of its deadline and that of the configuration."""
        own = time.monotonic() + config.deadline_ms / 1000 if config.deadline_ms else None
        ends = [moment for moment in (own, deadline) if moment is not None]
        return Patience(
            min(ends, default=None),
            config.timeout_ms / 1000,
            max(1, config.attempts),
            config.backoff_ms / 1000,
        )

    def left(self) -> float | None:
        """The seconds that are left; none without a deadline."""
        return None if self.until is None else self.until - time.monotonic()

    def later(self, seconds: float) -> Patience:
        """The same for a call that had to wait for its turn."""
        return self if self.until is None else replace(self, until=self.until + seconds)


def post_json(
    config: EmbeddingConfig,
    path: str,
    headers: Mapping[str, str],
    body: Mapping[str, object],
    patience: Patience,
    waiting: Waiting = PLAIN,
) -> Any:
    """The answer of a provider to a request, as plain data."""
    if not config.base_url.startswith(("http://", "https://")):
        raise EmbeddingError(
            f"the address of the embedding provider '{config.provider}' is none of HTTP",
            hint="check OMNIGRAPH_EMBED_BASE_URL",
        )
    request = urllib.request.Request(
        f"{config.base_url}{path}",
        json.dumps(body).encode("utf-8"),
        {"Content-Type": "application/json", **headers},
        method="POST",
    )
    for attempt in range(1, patience.attempts + 1):
        asked = time.monotonic()
        waiting.turn()
        patience = patience.later(time.monotonic() - asked)
        try:
            return _parsed(config, _sent(config, request, patience))
        except _Failed as failure:
            if attempt == patience.attempts:
                raise EmbeddingError(
                    f"the embedding provider '{config.provider}' failed {attempt} "
                    f"{'times' if attempt > 1 else 'time'}: {failure}",
                    hint="repeat later",
                    details={"provider": config.provider, "attempts": attempt},
                ) from None
            after = failure.after
        wait = max(patience.backoff * 2 ** (attempt - 1), after or 0.0)
        left = patience.left()
        if left is not None and left <= wait:
            raise _late(config)
        waiting.pause(wait, everyone=after is not None)
    raise AssertionError("unreachable")


def _sent(config: EmbeddingConfig, request: urllib.request.Request, patience: Patience) -> bytes:
    left = patience.left()
    if left is not None and left <= 0:
        raise _late(config)
    timeout = patience.timeout if left is None else min(patience.timeout, left)
    try:
        with _OPENER.open(request, timeout=timeout) as answer:
            return _read(answer, time.monotonic() + timeout)
    except urllib.error.HTTPError as error:
        with error:
            status = error.code
            after = _asked_for(error.headers.get("Retry-After"))
        if status == 429 or status >= 500:
            raise _Failed(f"HTTP status {status}", after) from None
        raise _refused(config, status) from None
    except TimeoutError:
        problem = "it did not answer in time"
    except (OSError, http.client.HTTPException) as error:
        late = isinstance(getattr(error, "reason", None), TimeoutError)
        problem = "it did not answer in time" if late else "the connection failed"
    left = patience.left()
    if left is not None and left <= 0:
        raise _late(config)
    raise _Failed(problem)


def _asked_for(header: str | None) -> float | None:
    """The seconds that a provider asks to wait, which may name a moment instead.

    >>> _asked_for("7"), _asked_for("soon"), _asked_for(None)
    (7.0, None, None)
    """
    if header is None:
        return None
    try:
        return max(0.0, float(int(header)))
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(header)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _read(answer: http.client.HTTPResponse, until: float) -> bytes:
    """The whole answer; one that trickles in does not outlast the request."""
    parts: list[bytes] = []
    size = 0
    while part := answer.read1(_PIECE):
        parts.append(part)
        size += len(part)
        if size > _MOST_BYTES or time.monotonic() > until:
            raise TimeoutError
    return b"".join(parts)


def _parsed(config: EmbeddingConfig, answer: bytes) -> Any:
    try:
        return json.loads(answer)
    except ValueError:
        raise not_understood(config) from None


def not_understood(config: EmbeddingConfig) -> EmbeddingError:
    return EmbeddingError(
        f"the answer of the embedding provider '{config.provider}' was not understood",
        hint="check OMNIGRAPH_EMBED_BASE_URL and OMNIGRAPH_EMBED_PROVIDER",
    )


def _refused(config: EmbeddingConfig, status: int) -> EmbeddingError:
    if status in (401, 403):
        hint = f"check {' or '.join(KEY_VARIABLES[config.provider])}"
    elif status == 404:
        hint = "check OMNIGRAPH_EMBED_MODEL and OMNIGRAPH_EMBED_BASE_URL"
    else:
        hint = "check that the model exists and gives vectors of the property's size"
    return EmbeddingError(
        f"the embedding provider '{config.provider}' refused the request for model "
        f"'{config.model}': HTTP status {status}",
        hint=hint,
        details={"provider": config.provider, "model": config.model, "status": status},
    )


def _late(config: EmbeddingConfig) -> EmbeddingError:
    return EmbeddingError(
        f"embedding deadline exceeded: the provider '{config.provider}' took too long",
        hint="raise OMNIGRAPH_EMBED_DEADLINE_MS, or repeat later",
        details={"provider": config.provider},
    )
