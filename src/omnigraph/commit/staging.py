"""Markers of writes that stage for long, so that nobody tidies their files away meanwhile.

``__recovery/<ULID>.staging`` says which versions the write started from and since when it runs.
Nothing depends on it but tidying up: it is no sidecar, and a write that died leaves it behind.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from omnigraph.commit.names import branch_label
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.commit.ulid import new_ulid, now_micros
from omnigraph.errors import OmniGraphError, StorageCorrupt, StorageMissing

FOLDER = "__recovery"
ENDING = ".staging"


@contextmanager
def marked(store: GraphStore, branch: str | None, base: Snapshot) -> Iterator[str]:
    """Mark a write while it stages; gives its id."""
    operation = mark(store, branch, base)
    try:
        yield operation
    finally:
        unmark(store, operation)


def mark(store: GraphStore, branch: str | None, base: Snapshot) -> str:
    """Mark a write whose end another process will see; gives its id."""
    operation = new_ulid()
    told = {
        "operation_id": operation,
        "started_at": now_micros(),
        "branch": branch_label(branch),
        "base_branch": branch_label(base.branch),
        "tables": {key: pin.version for key, pin in base.pins.items()},
    }
    try:
        store.objects.write(_path(operation), json.dumps(told, sort_keys=True))
    except OmniGraphError:
        # It may have its name already.
        unmark(store, operation)
        raise
    return operation


def unmark(store: GraphStore, operation: str) -> None:
    """The write has ended."""
    # Whoever tidies up later finds a marker that is too old.
    with suppress(OmniGraphError):
        store.objects.delete(_path(operation))


@dataclass(frozen=True, slots=True)
class Marker:
    """A write that stages, or that died while it did."""

    operation: str
    started: datetime
    tables: frozenset[str]
    bases: Mapping[str, int] = field(default_factory=dict)
    """The versions that it started from."""


def markers(store: GraphStore, besides: Collection[str] = ()) -> list[Marker]:
    """Every marker but some, oldest first; one that goes meanwhile is passed over."""
    found = []
    for name in store.objects.list(FOLDER):
        if name.endswith(ENDING) and name not in besides:
            with suppress(StorageMissing):
                found.append(_marker(name, store.objects.read(f"{FOLDER}/{name}")))
    return found


def _marker(name: str, text: str) -> Marker:
    try:
        told = json.loads(text)
        started = datetime.fromtimestamp(told["started_at"] / 1_000_000, UTC)
        bases = {str(key): int(version) for key, version in told["tables"].items()}
        return Marker(str(told["operation_id"]), started, frozenset(bases), bases)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise StorageCorrupt(
            f"'{FOLDER}/{name}' does not say which write it marks",
            hint="remove it if no write runs",
        ) from None


def _path(operation: str) -> str:
    return f"{FOLDER}/{operation}{ENDING}"
