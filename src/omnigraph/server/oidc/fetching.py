"""Fetches a JSON document of an identity provider, in bounded time and size.

Only over https, or from this machine. No redirect is followed: a document has one address.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import threading
from typing import Any
from urllib.parse import urlsplit

from omnigraph.client.connections import HttpConnection, NoResponse, Origin
from omnigraph.client.connections import failure_of as connection_failure

FETCH_SECONDS = 5.0
MOST_BYTES = 256 << 10


class FetchFailed(Exception):
    """Why there is no document, in words that name no part of it."""


def is_safe_address(url: str) -> bool:
    """Whether a document may be fetched from an address.

    >>> is_safe_address("https://id.example.org/keys"), is_safe_address("http://127.0.0.1:80/k")
    (True, True)
    >>> is_safe_address("http://id.example.org/keys"), is_safe_address("https://user@id.example")
    (False, False)
    """
    if not url.isascii() or not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return False
    if not host or "@" in parts.netloc or parts.fragment:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def fetch_json(url: str) -> Any:
    """The JSON document at an address; raises ``FetchFailed``. Blocks for at most five seconds."""
    if not is_safe_address(url):
        raise FetchFailed("the address is neither https nor a loopback address")
    try:
        connection = HttpConnection(Origin.of(url), FETCH_SECONDS)
    except NoResponse as error:
        raise FetchFailed(error.failure.name.lower()) from None
    # Every operation has a time limit, but a server that sends byte by byte must be cut off.
    timer = threading.Timer(FETCH_SECONDS, connection.abort)
    timer.daemon = True
    timer.start()
    try:
        answer = connection.exchange("GET", url, {"Accept": "application/json"}, None)
        if answer.status != 200:
            raise FetchFailed(f"status {answer.status}")
        body = answer.read(MOST_BYTES + 1)
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        raise FetchFailed(connection_failure(error).name.lower()) from None
    finally:
        timer.cancel()
        connection.close()
    if len(body) > MOST_BYTES:
        raise FetchFailed(f"more than {MOST_BYTES} bytes")
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise FetchFailed("not JSON") from None
