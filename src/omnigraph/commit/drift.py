"""A table that is ahead of its pin: it belongs to a write that nobody finished."""

from __future__ import annotations

from omnigraph.commit.snapshot import Pin
from omnigraph.commit.store import GraphStore
from omnigraph.errors import Conflict, RecoveryRequired, StorageError


class Interrupted(Exception):
    """A table that this write touches was left moved by a writer whose sidecar stands."""

    def __init__(self, error: Conflict) -> None:
        super().__init__(str(error))
        self._error = error

    def tell(self, *, waits: bool) -> Conflict:
        """The error to show when nobody could finish that write."""
        if not waits:
            return self._error
        return Conflict(
            f"{self._error.message}, and a writer that lives keeps it from being finished",
            hint="repeat the write later",
            details=self._error.details,
        )


def drift_error(store: GraphStore, pin: Pin, head: int) -> Exception:
    """What to raise: an interrupted write explains it, or it has to be repaired."""
    key = pin.table_key
    text = f"'{key}' is at version {head}, but the graph shows {pin.version}"
    details = {"table_key": key, "expected": pin.version, "actual": head}
    try:
        covered = any(
            entry.table_key == key and entry.table_branch == pin.branch
            for sidecar in store.sidecars.load_all()
            for entry in sidecar.tables
        )
    except StorageError:
        return Conflict(
            f"{text}; whether a write was interrupted cannot be seen",
            hint="reopen the graph read-write, or run `omnigraph repair` before writing",
            details=details,
        )
    if covered:
        return Interrupted(
            RecoveryRequired(
                f"{text}: an interrupted write left it so",
                hint="reopen the graph read-write",
                details=details,
            )
        )
    return Conflict(
        f"{text}, and no interrupted write explains it",
        hint="run `omnigraph repair` before writing",
        details=details,
    )
