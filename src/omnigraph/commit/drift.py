"""Tables that are ahead of their pins because of an interrupted write."""

from __future__ import annotations

from omnigraph.commit.snapshot import Pin
from omnigraph.commit.store import GraphStore
from omnigraph.errors import Conflict, RecoveryRequired, StorageError


class Interrupted(Exception):
    """An interrupted write, whose sidecar still exists, has moved a table of this write."""

    def __init__(self, error: Conflict) -> None:
        super().__init__(str(error))
        self._error = error

    def error(self, *, waits: bool) -> Conflict:
        """The error to show when that write could not be recovered."""
        if not waits:
            return self._error
        return Conflict(
            f"{self._error.message}, and a running writer prevents its recovery",
            hint="repeat the write later",
            details=self._error.details,
        )


def drift_error(store: GraphStore, pin: Pin, head: int) -> Exception:
    """The error to raise: recoverable where an interrupted write explains it, else not."""
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
            f"{text}; the record of interrupted writes cannot be read",
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
