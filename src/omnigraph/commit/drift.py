"""A table that is ahead of its pin, and what explains it."""

from __future__ import annotations

from omnigraph.commit.snapshot import Pin
from omnigraph.commit.store import GraphStore
from omnigraph.errors import Conflict, RecoveryRequired, StorageError


class Interrupted(Exception):
    """A table of this write was moved by an interrupted write whose sidecar still exists."""

    def __init__(self, error: Conflict) -> None:
        super().__init__(str(error))
        self.error = error


def drift_error(store: GraphStore, pin: Pin, head: int) -> Exception:
    """The error for a table ahead of its pin: recoverable if an interrupted write explains it."""
    key = pin.table_key
    text = f"'{key}' is at version {head}, but the graph shows {pin.version}"
    details = {"table_key": key, "expected": pin.version, "actual": head}
    try:
        covering = [
            sidecar.operation_id
            for sidecar in store.sidecars.load_all()
            for entry in sidecar.tables
            if entry.table_key == key and entry.table_branch == pin.branch
        ]
    except StorageError:
        return Conflict(
            f"{text}; the record of interrupted writes cannot be read",
            hint="reopen the graph read-write, or run `omnigraph repair` before writing",
            details=details,
        )
    if covering:
        return Interrupted(
            RecoveryRequired(
                f"{text}, because the write of sidecar {covering[0]} was interrupted",
                hint="reopen the graph read-write",
                details={**details, "sidecar": covering[0]},
            )
        )
    return Conflict(
        f"{text}, and no interrupted write explains it",
        hint="run `omnigraph repair` before writing",
        details=details,
    )
