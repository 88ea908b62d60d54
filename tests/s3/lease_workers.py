"""What other processes do with leases in the tests. Light to import: each process does."""

from __future__ import annotations

import signal
from typing import Any

from omnigraph.errors import Conflict
from omnigraph.storage.leases.s3 import S3Leases
from omnigraph.storage.objects.paths import Root
from omnigraph.storage.objects.store import ObjectStore


def leases_at(uri: str, options: dict[str, str], ttl: float) -> S3Leases:
    return S3Leases(ObjectStore(Root(uri, options)), ttl)


def hold(uri: str, options: dict[str, str], ttl: float, name: str, ready: Any) -> None:
    """Hold a lease until somebody kills this process."""
    with leases_at(uri, options, ttl).acquire([name], timeout=30):
        ready.set()
        signal.pause()


def hold_and_check(
    uri: str, options: dict[str, str], ttl: float, name: str, ready: Any, answer: Any
) -> None:
    """Hold a lease, and when asked say whether it is still held."""
    with leases_at(uri, options, ttl).acquire([name], timeout=30) as kept:
        ready.set()
        answer.recv()
        try:
            kept.check()
            answer.send("held")
        except Conflict as error:
            answer.send(error.details["lease"])


def count_up(uri: str, options: dict[str, str], ttl: float, name: str, times: int) -> None:
    """Add to a counter in a way that only works for one process at a time."""
    store = ObjectStore(Root(uri, options))
    leases = S3Leases(store, ttl)
    for _ in range(times):
        with leases.acquire([name], timeout=60) as kept:
            value = int(store.read("counter"))
            kept.check()
            store.write("counter", str(value + 1))
