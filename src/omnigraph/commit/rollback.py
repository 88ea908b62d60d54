"""Taking back the table commits of a write that was never published.

A table goes back by a further version with the content of its pin, never by removing one. The
restored heads are published in one commit by ``omnigraph:recovery``, so that pin and head agree
again and the next writer may write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from omnigraph.commit.audit import TableOutcome
from omnigraph.commit.publisher import CommitIntent, Publication, Published
from omnigraph.commit.rows import CommitRow, VersionRow
from omnigraph.commit.sidecar import Sidecar, SidecarPin
from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.commit.ulid import new_ulid, now_micros
from omnigraph.errors import OutcomePending, StorageUnavailable
from omnigraph.storage.table_types import CommittedTable, TableRef

RECOVERY_ACTOR = "omnigraph:recovery"
COMPLETES = "completes"
"""The key in a recovery's commit that names the commit it finished."""
ROLLED_BACK = "rolled_back"
"""The key in a recovery's commit that names the commit it took back."""


def find_ending(store: GraphStore, sidecar: Sidecar) -> CommitRow | None:
    """The commit of a sidecar, or the recovery that settled it, if one is published."""
    for commit in reversed(store.manifest(sidecar.branch).commits()):
        about = {commit.extra.get(COMPLETES), commit.extra.get(ROLLED_BACK), commit.commit_id}
        if sidecar.operation_id in about:
            return commit
    return None


def landing_branch(pin: SidecarPin) -> str | None:
    """The branch on which a sidecar's commits land; ``main`` may be spelled out."""
    return None if pin.table_branch == "main" else pin.table_branch


def landing_ref(pin: SidecarPin, snapshot_pin: Pin) -> TableRef:
    """The copy of the table that a sidecar's commits land on."""
    return TableRef(snapshot_pin.location, landing_branch(pin))


def landing_head(store: GraphStore, pin: SidecarPin, snapshot_pin: Pin) -> int:
    """The newest version of that copy; the pin itself when the branch has no copy.

    0 when the pinned version is gone: no other is looked for then.
    """
    ref = landing_ref(pin, snapshot_pin)
    if store.tables.info(ref, snapshot_pin.version) is None:
        return 0 if snapshot_pin.branch == ref.branch else snapshot_pin.version
    return store.tables.head(ref, snapshot_pin.version)


def restore_tables(
    store: GraphStore,
    sidecar: Sidecar,
    snapshot: Snapshot,
    *,
    unmoved_too: bool,
    before_each: Callable[[], None],
) -> tuple[list[tuple[str, CommittedTable]], list[TableOutcome]]:
    """Give the tables of a sidecar the content of their pins again.

    A table whose pin is not the one that the writer expected is left alone: somebody published
    over it, so nothing of this writer is on top. ``unmoved_too`` also puts a version on tables
    that did not move, which makes a late commit of a writer that is only paused fail.
    """
    restored: list[tuple[str, CommittedTable]] = []
    outcomes: list[TableOutcome] = []
    for entry in sidecar.tables:
        pin = snapshot.pin(entry.table_key)
        if pin is None or pin.version != entry.expected_version:
            continue
        head = landing_head(store, entry, pin)
        if head == pin.version and not unmoved_too:
            continue
        ref = landing_ref(entry, pin)
        if store.tables.info(ref, pin.version) is None:
            continue
        before_each()
        restored.append((entry.table_key, store.inline.restore(ref, head, pin.version)))
        outcomes.append(TableOutcome(entry.table_key, head, pin.version))
    return restored, outcomes


def publish_recovery(
    store: GraphStore,
    branch: str | None,
    expected: Mapping[str, int],
    versions: Sequence[VersionRow],
    extra: Mapping[str, Any],
    **more: Any,
) -> Published:
    """Publish in the name of the recovery.

    That its outcome is not known is nothing that the caller of some other write could look up:
    the sidecar stays, and the next recovery sees what became of it.
    """
    merged_parent = more.pop("merged_parent", None)
    intent = CommitIntent(new_ulid(), branch, now_micros(), RECOVERY_ACTOR, merged_parent, extra)
    publication = Publication(expected, versions, commit=intent, **more)
    try:
        return store.publisher.publish(store.manifest(branch), publication)
    except OutcomePending as error:
        raise StorageUnavailable(
            "the store does not answer while an interrupted write is recovered",
            hint="repeat later",
        ) from error
