"""The lock of a schema apply: a branch of the manifest that blocks every writer.

The branch is for other programs. Ours also hold a lease while they run, and write a mark beside the
lock: a lock with a mark and without a lease belongs to an apply that died, and may be removed. A
lock without a mark does not identify its holder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from omnigraph.commit.manifest import MANIFEST, branch_reference
from omnigraph.commit.names import BRANCHES_LEASE, SCHEMA_LEASE, SCHEMA_LOCK, table_lease
from omnigraph.commit.rows import WriterKind
from omnigraph.commit.sidecar import FOLDER, Sidecar
from omnigraph.commit.store import GraphStore
from omnigraph.errors import Conflict, OmniGraphError, SchemaChangeRefused, SchemaChanging
from omnigraph.logs import logger
from omnigraph.storage.leases.local import LeaseGuard
from omnigraph.storage.tables.types import TableRef

_LOG = logger(__name__)

MARK = f"{FOLDER}/schema-apply.lock"
# The lock follows its mark at once.
_MARK_SECONDS = 60


def is_locked(store: GraphStore) -> bool:
    """Whether a schema apply holds the lock."""
    return store.objects.head(branch_reference(SCHEMA_LOCK)) is not None


def is_ours(store: GraphStore) -> bool:
    """Whether the lock was taken by this program, here or elsewhere.

    A leftover mark does not count for a lock that was taken much later.
    """
    mark, lock = store.objects.head(MARK), store.objects.head(branch_reference(SCHEMA_LOCK))
    if mark is None or lock is None:
        return False
    return abs((lock.modified - mark.modified).total_seconds()) <= _MARK_SECONDS


def refuse_while_schema_changes(store: GraphStore, operation: str = "write") -> None:
    """Refuse an operation that needs an unchanging schema."""
    if is_locked(store):
        raise SchemaChanging(
            f"{operation} is unavailable while schema apply is in progress",
            hint="repeat when it is done, or reopen read-write",
        )


def ensure_no_schema_apply(store: GraphStore) -> None:
    """Refuse while a schema apply runs; one that died is recovered first, without a restart.

    One that has ended, but could not remove its leases, is waited for as any writer is.
    """
    if not is_locked(store):
        return
    from omnigraph.commit.lifecycle import recover

    recover(store, full=False)
    if is_locked(store) and _await_disowned(store):
        recover(store, full=False)
    refuse_while_schema_changes(store)


def _await_disowned(store: GraphStore) -> bool:
    """Wait for the leases that an apply could not remove when it ended; whether there were any."""
    sidecars = _apply_sidecars(store)
    tables = {table_lease(pin.table_key, None) for sidecar in sidecars for pin in sidecar.tables}
    names = [name for name in (SCHEMA_LEASE, *tables) if store.leases.is_disowned(name)]
    if names:
        with suppress(Conflict), store.leases.acquire(names, store.timeouts.lease):
            pass
    return bool(names)


def refuse_branches(others: Sequence[str]) -> None:
    """Refuse a schema apply beside other branches: the schema is that of the whole graph."""
    if others:
        raise SchemaChangeRefused(
            "schema apply requires a graph with only main; found non-main branches: "
            + ", ".join(others),
            hint="a branch has tables in the shape of the schema it was created under, and could "
            "neither be read nor merged under another: merge what you want to keep, delete the "
            "branches, and apply again",
            details={"branches": list(others)},
        )


@contextmanager
def lock_schema(store: GraphStore) -> Iterator[LeaseGuard]:
    """Lock out all writers and other applies; refused where there are other branches than main."""
    with ExitStack() as leases:
        try:
            patience = store.timeouts.lease if store.leases.is_disowned(SCHEMA_LEASE) else 0.0
            guard = leases.enter_context(store.leases.acquire([SCHEMA_LEASE], patience))
        except Conflict as error:
            raise in_progress() from error
        _take(store)
        try:
            yield guard
        finally:
            _leave(store)


def release(store: GraphStore) -> None:
    """Remove the lock of an apply that has ended; the caller holds its lease."""
    if is_locked(store):
        store.inline.delete_branch(MANIFEST, SCHEMA_LOCK)
    store.objects.delete(MARK)


def _take(store: GraphStore) -> None:
    # No branch may be created between the check and the lock.
    with store.leases.acquire([BRANCHES_LEASE], store.timeouts.lease):
        if is_locked(store):
            if not is_ours(store):
                raise in_progress()
            release(store)
        refuse_branches(sorted(set(store.inline.branches(MANIFEST)) - {SCHEMA_LOCK}))
        if has_apply_sidecar(store):
            raise in_progress()
        store.objects.write(MARK, "")
        version = store.manifest(None).current().manifest_version
        # Files without a reference were left by a crash.
        store.inline.delete_branch(MANIFEST, SCHEMA_LOCK)
        store.inline.create_branch(TableRef(MANIFEST), version, SCHEMA_LOCK)


def _leave(store: GraphStore) -> None:
    """Release the lock, unless a sidecar is left: its recovery will.

    Never raises, since the outcome of the apply is already decided. A lock that remains has a mark
    and no lease, so the next writer removes it.
    """
    try:
        if not has_apply_sidecar(store):
            release(store)
    except OmniGraphError as error:
        _LOG.warning("the lock of a schema apply that has ended stays: %s", error)


def has_apply_sidecar(store: GraphStore) -> bool:
    """Whether a schema apply has begun to move tables, and not ended."""
    return bool(_apply_sidecars(store))


def _apply_sidecars(store: GraphStore) -> list[Sidecar]:
    return [s for s in store.sidecars.load_all() if s.writer_kind is WriterKind.SCHEMA_APPLY]


def in_progress() -> SchemaChanging:
    """The error of an apply while another one runs."""
    return SchemaChanging("schema apply is already in progress", hint="repeat when it is done")
