"""Markers of long-running staging, so that cleanup keeps the files of such a write.

``__recovery/<ULID>.staging`` names the versions that the write started from and when it started.
Only cleanup reads it: it is not a sidecar, and a write that dies leaves it behind.
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
    """Keep a staging marker while a write stages; yields the operation id."""
    operation = mark(store, branch, base)
    try:
        yield operation
    finally:
        unmark(store, operation)


def mark(store: GraphStore, branch: str | None, base: Snapshot) -> str:
    """Write a staging marker that another process may remove; returns the operation id."""
    operation = new_ulid()
    content = {
        "operation_id": operation,
        "started_at": now_micros(),
        "branch": branch_label(branch),
        "base_branch": branch_label(base.branch),
        "tables": {key: pin.version for key, pin in base.pins.items()},
    }
    try:
        store.objects.write(_path(operation), json.dumps(content, sort_keys=True))
    except OmniGraphError:
        # It may have its name already.
        unmark(store, operation)
        raise
    return operation


def unmark(store: GraphStore, operation: str) -> None:
    """Remove the marker of a write that has ended."""
    # A marker that stays is ignored once it is old enough.
    with suppress(OmniGraphError):
        store.objects.delete(_path(operation))


@dataclass(frozen=True, slots=True)
class Marker:
    """A write that is staging, or died while staging."""

    operation: str
    started: datetime
    tables: frozenset[str]
    bases: Mapping[str, int] = field(default_factory=dict)
    """The versions that it started from."""


def markers(store: GraphStore, besides: Collection[str] = ()) -> list[Marker]:
    """Every marker except some, oldest first; one that is removed meanwhile is skipped."""
    result = []
    for name in store.objects.list(FOLDER):
        if name.endswith(ENDING) and name not in besides:
            with suppress(StorageMissing):
                result.append(_marker(name, store.objects.read(f"{FOLDER}/{name}")))
    return result


def _marker(name: str, text: str) -> Marker:
    try:
        content = json.loads(text)
        started = datetime.fromtimestamp(content["started_at"] / 1_000_000, UTC)
        bases = {str(key): int(version) for key, version in content["tables"].items()}
        return Marker(str(content["operation_id"]), started, frozenset(bases), bases)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise StorageCorrupt(
            f"'{FOLDER}/{name}' is not a valid staging marker",
            hint="remove it if no write runs",
        ) from None


def _path(operation: str) -> str:
    return f"{FOLDER}/{operation}{ENDING}"
