"""The signing keys of an identity provider: fetched in a thread, cached, renewed at a bounded rate.

There is at most one fetch at a time and one per half minute, whatever tokens arrive. Keys that
could not be renewed for an hour are not used any more.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from omnigraph.errors import ServerUnavailable
from omnigraph.server.oidc.fetching import FetchFailed, fetch_json, is_safe_address
from omnigraph.server.oidc.settings import OidcSettings

if TYPE_CHECKING:
    from jwt import PyJWK

RENEWAL_SECONDS = 30.0
"""The time between two fetches, at least."""
FRESH_SECONDS = 600.0
"""Older keys are renewed while they are used."""
USABLE_SECONDS = 3600.0
"""Older keys are not used: the provider may have withdrawn them."""
_MOST_KEYS = 100
_LEAST_RSA_BITS = 2048
_CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}

KeySet = Mapping[tuple[str | None, str], "PyJWK"]
"""Keys by key id and algorithm."""
OnRefresh = Callable[[str | None], None]
"""Called after each fetch, with the reason if it failed."""


class SigningKeys:
    """The keys of one provider. Belongs to the event loop of its process."""

    def __init__(self, settings: OidcSettings, on_refresh: OnRefresh) -> None:
        self._settings = settings
        self._on_refresh = on_refresh
        self._jwks_url = settings.jwks_url
        self._document: Any = None
        self._keys: KeySet = {}
        self._loaded = self._attempted = -math.inf
        self._refreshing: asyncio.Task[None] | None = None
        self.version = 0
        """Changes with the keys."""

    def are_usable(self) -> bool:
        """Whether there are keys that are young enough; starts to renew those that are not."""
        age = monotonic() - self._loaded
        if FRESH_SECONDS < age <= USABLE_SECONDS:
            self._start()
        return age <= USABLE_SECONDS

    def find(self, key_id: str | None, algorithm: str) -> PyJWK | None:
        """A cached key; without an id, the only one of the algorithm."""
        if not self.are_usable():
            return None
        if key_id is not None:
            return self._keys.get((key_id, algorithm))
        fitting = [key for (_, name), key in self._keys.items() if name == algorithm]
        return fitting[0] if len(fitting) == 1 else None

    async def renew(self) -> None:
        """Fetch the keys unless that was done a moment ago.

        Raises ``ServerUnavailable`` if there are no keys at all, so that nobody can be recognised.
        """
        running = self._start()
        if running is not None:
            # Others wait for the same fetch: none of them may cancel it.
            await asyncio.shield(running)
        if monotonic() - self._loaded > USABLE_SECONDS:
            raise ServerUnavailable(
                "the keys of the identity provider are not available",
                hint="the log of the server says why",
                details={"retry_after": int(RENEWAL_SECONDS)},
            )

    def _start(self) -> asyncio.Task[None] | None:
        now = monotonic()
        if self._refreshing is None and now - self._attempted >= RENEWAL_SECONDS:
            self._attempted = now
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())
        return self._refreshing

    async def _refresh(self) -> None:
        failure: str | None = None
        try:
            document = await _on_a_thread(self._fetch)
            keys = read_keys(document, self._settings.algorithms)
            if document != self._document:
                self.version += 1
            self._document, self._keys, self._loaded = document, keys, monotonic()
        except FetchFailed as error:
            failure = str(error)
        finally:
            self._refreshing = None
        self._on_refresh(failure)

    def _fetch(self) -> Any:
        """The document with the keys; runs on a thread."""
        try:
            if self._jwks_url is None:
                self._jwks_url = discover(self._settings, fetch_json(self._settings.discovery_url))
            return fetch_json(self._jwks_url)
        except FetchFailed:
            # The provider may have moved its keys.
            self._jwks_url = self._settings.jwks_url
            raise


def discover(settings: OidcSettings, document: Any) -> str:
    """The address of the keys, from the configuration of the provider."""
    if not isinstance(document, dict) or document.get("issuer") != settings.issuer:
        raise FetchFailed("the configuration of the provider names another issuer")
    url = document.get("jwks_uri")
    if not isinstance(url, str) or not is_safe_address(url):
        raise FetchFailed("the configuration of the provider has no safe jwks_uri")
    return url


def read_keys(document: Any, algorithms: tuple[str, ...]) -> KeySet:
    """The usable keys of a document; others, such as keys for encryption, are left out."""
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list) or len(entries) > _MOST_KEYS:
        raise FetchFailed("not a set of keys")
    keys: dict[tuple[str | None, str], PyJWK] = {}
    for entry in entries:
        if not isinstance(entry, dict) or not _is_for_signatures(entry):
            continue
        key_id = entry.get("kid")
        for algorithm in algorithms:
            key = _key(entry, algorithm)
            if key is not None and isinstance(key_id, str | None):
                keys.setdefault((key_id, algorithm), key)
    if not keys:
        raise FetchFailed("no usable key")
    return keys


def _is_for_signatures(entry: dict[str, Any]) -> bool:
    operations = entry.get("key_ops")
    return (
        entry.get("use") in (None, "sig")
        and (not isinstance(operations, list) or "verify" in operations)
        # A private key that is published can be used by everybody.
        and "d" not in entry
    )


def _key(entry: dict[str, Any], algorithm: str) -> PyJWK | None:
    """A key, if the algorithm fits its kind."""
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    if entry.get("alg") not in (None, algorithm):
        return None
    kind = entry.get("kty")
    if algorithm in _CURVES:
        fits = kind == "EC" and entry.get("crv") == _CURVES[algorithm]
    else:
        fits = kind == ("OKP" if algorithm == "EdDSA" else "RSA")
    if not fits:
        return None
    try:
        key = PyJWK(entry, algorithm)
    except (PyJWTError, ValueError, TypeError):
        return None
    bits = getattr(key.key, "key_size", None)
    return None if kind == "RSA" and (bits is None or bits < _LEAST_RSA_BITS) else key


async def _on_a_thread(work: Callable[[], Any]) -> Any:
    """Run something on a thread that does not delay the end of the process."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def finish(result: Any, error: FetchFailed | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except FetchFailed as failure:
            error = failure
        except Exception as failure:
            error = FetchFailed(type(failure).__name__)
        # The loop may have ended meanwhile.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(finish, result, error)

    threading.Thread(target=run, name="omnigraph-oidc-keys", daemon=True).start()
    return await future
