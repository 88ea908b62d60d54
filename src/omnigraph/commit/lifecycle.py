"""Creation of a graph, and recovery when one is opened."""

from __future__ import annotations

import time
from contextlib import suppress

from omnigraph.commit.branches import Branches
from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.manifest import MANIFEST, branch_reference
from omnigraph.commit.names import INIT_LEASE, SCHEMA_LEASE, SCHEMA_LOCK
from omnigraph.commit.recovery import Recovered, Recovery
from omnigraph.commit.rows import CommitRow, HeadRow, Row, SchemaRow, TableRow, VersionRow, to_arrow
from omnigraph.commit.schema.files import Contract
from omnigraph.commit.schema.lock import has_apply_sidecar, is_ours, release
from omnigraph.commit.schema.staging import SchemaStaging, reconcile_staging
from omnigraph.commit.store import GraphStore
from omnigraph.commit.ulid import new_ulid, now_micros
from omnigraph.errors import AlreadyInitialized, Conflict, StorageError, StorageUnknown
from omnigraph.lang.fnv import fnv1a_64
from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType, entity_types
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.lang.schema.identity import initial_identity
from omnigraph.storage.leases.local import LEASE_FOLDER
from omnigraph.storage.removed_versions import start_record
from omnigraph.storage.tables.ledger import Ledger

# The lock branch of the reference program's schema apply does not identify its holder.
_ABANDONED_SECONDS = 600


def init_graph(store: GraphStore, source: str, *, force: bool = False) -> Contract:
    """Create a graph. Of several concurrent calls at one root, exactly one succeeds.

    The manifest is written last and atomically: until then there is no graph, and ``force``
    replaces the leftovers of a crash.
    """
    files = store.schema_files
    if not force and files.present():
        raise _initialized(store)
    catalog = compile_schema(source)
    try:
        with store.leases.acquire([INIT_LEASE], store.timeouts.lease):
            _claim_and_create(store, catalog, source, force)
    finally:
        # It contained the lease; the first write recreates the directory.
        store.objects.remove_if_empty(LEASE_FOLDER)
    try:
        return files.load()
    except StorageError as error:
        raise StorageUnknown(
            f"the graph at '{store.root.uri}' is created, but could not be read back",
            hint="open it with Graph.open",
        ) from error


def _claim_and_create(store: GraphStore, catalog: Catalog, source: str, force: bool) -> None:
    if _has_manifest(store):
        if not force:
            raise _initialized(store)
        raise AlreadyInitialized(
            f"there is a graph with data at '{store.root.uri}'",
            hint="choose another location, or remove that graph first",
        )
    if not store.schema_files.claim(source, force=force):
        raise _initialized(store)
    try:
        reached(Failpoint.INIT_AFTER_CLAIM)
        _create(store, catalog, source)
    except BaseException:
        if not _has_manifest(store):
            store.schema_files.remove()
        raise
    reached(Failpoint.INIT_AFTER_MANIFEST)


def _has_manifest(store: GraphStore) -> bool:
    """Whether the manifest has a version; an interrupted init may leave files without one."""
    names = store.objects.list(f"{MANIFEST}/_versions")
    return any(name.endswith(".manifest") for name in names)


def _create(store: GraphStore, catalog: Catalog, source: str) -> None:
    SchemaStaging(store.objects).discard()
    store.schema_files.write_contract(catalog)
    reached(Failpoint.INIT_AFTER_CONTRACT)
    rows = _first_rows(store, catalog, source)
    reached(Failpoint.INIT_AFTER_TABLES)
    store.objects.delete_prefix(MANIFEST)
    start_record(store.objects)
    Ledger.create(store.datasets, MANIFEST, to_arrow(rows))
    store.datasets.checksums.record()


def _first_rows(store: GraphStore, catalog: Catalog, source: str) -> list[Row]:
    rows: list[Row] = []
    for entity_type in entity_types(catalog):
        location = table_location(entity_type)
        # Left by an attempt that never wrote its manifest.
        store.objects.delete_prefix(location)
        created = store.inline.create(location, entity_type.arrow_schema())
        rows.append(TableRow(entity_type.table_key, location))
        rows.append(VersionRow.of(entity_type.table_key, created))
    genesis = CommitRow(new_ulid(), 1, None, now_micros())
    identity = initial_identity(catalog).to_json()
    return [
        *rows,
        genesis,
        HeadRow(None, genesis.commit_id),
        SchemaRow(1, catalog.schema_hash, source, identity),
    ]


def table_location(entity_type: NodeType | EdgeType) -> str:
    """The location of the table of a type, relative to the root.

    >>> table_location(compile_schema("node Person { x: I32? }").node("Person"))
    'nodes/40d76f1f51639ec0'
    """
    folder = "nodes" if isinstance(entity_type, NodeType) else "edges"
    return f"{folder}/{fnv1a_64(entity_type.name):016x}"


def recover(store: GraphStore, *, full: bool, is_clean: bool = False) -> list[Recovered]:
    """Complete or undo the leftovers of dead writers: sidecars, staging files, branches of loads.

    ``is_clean`` means that the caller has seen neither sidecars nor claims.
    """
    recovered = [] if is_clean else Recovery(store).heal(full=full)
    if SchemaStaging(store.objects).present():
        _reconcile(store)
    _remove_abandoned_lock(store)
    if not is_clean:
        with suppress(Conflict):
            Branches(store).remove_abandoned()
    return recovered


def _reconcile(store: GraphStore) -> None:
    """Promote or discard staging files, unless they belong to a running schema apply."""
    with suppress(Conflict), store.leases.acquire([SCHEMA_LEASE], timeout=0.0):
        if has_apply_sidecar(store):
            return
        reached(Failpoint.STAGING_BEFORE_PROMOTE)
        tables = store.manifest(None).current().pins
        reconcile_staging(store.objects, apply_pending=False, live_tables=tables)
        store.manifests.note_change()


def _remove_abandoned_lock(store: GraphStore) -> None:
    """Remove the lock branch of a schema apply that died: it would block every writer."""
    lock = store.objects.head(branch_reference(SCHEMA_LOCK))
    if lock is None:
        return
    is_old = time.time() - lock.modified.timestamp() >= _ABANDONED_SECONDS
    if not is_old and not is_ours(store):
        return
    with suppress(Conflict), store.leases.acquire([SCHEMA_LEASE], timeout=0.0):
        if not has_apply_sidecar(store):
            release(store)


def _initialized(store: GraphStore) -> AlreadyInitialized:
    return AlreadyInitialized(
        f"graph already initialized at '{store.root.uri}'; "
        "force=True only replaces what an interrupted init left",
        hint="open it with Graph.open",
    )
