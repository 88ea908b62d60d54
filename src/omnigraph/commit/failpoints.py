"""The named boundaries between the phases of an operation, where a test may stop the process.

Product code calls ``reached(Failpoint.X)`` when it has passed a boundary; that does nothing
unless a test has installed a hook. The catalogue is complete: a test proves that every name in
it is crossed somewhere and that no other name is. No setting enables a hook.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum


class Failpoint(StrEnum):
    """Every boundary, named ``<operation>.<where>``."""

    INIT_AFTER_CLAIM = "init.after_claim"
    """The root belongs to this process and holds nothing else yet."""
    INIT_AFTER_CONTRACT = "init.after_contract"
    """The schema files are written."""
    INIT_AFTER_TABLES = "init.after_tables"
    """The empty tables exist; no manifest names them."""
    INIT_AFTER_MANIFEST = "init.after_manifest"
    """The manifest exists; the graph can be opened."""

    WRITE_AFTER_LEASES = "write.after_leases"
    """The writer alone may move its tables."""
    WRITE_AFTER_FORK = "write.after_fork"
    """The tables that the branch did not own yet are forked."""
    WRITE_AFTER_SIDECAR = "write.after_sidecar"
    """The sidecar is durable; no table has moved."""
    WRITE_BETWEEN_TABLES = "write.between_tables"
    """One table has moved and another has not; crossed once for each gap."""
    WRITE_BETWEEN_STEPS = "write.between_steps"
    """A table has moved by a part of its steps; crossed once for each gap."""
    WRITE_AFTER_TABLES = "write.after_tables"
    """Every table has moved; readers see none of it."""
    WRITE_AFTER_PUBLISH = "write.after_publish"
    """Readers see the write; its sidecar still exists."""
    WRITE_AFTER_SIDECAR_DELETE = "write.after_sidecar_delete"
    """The sidecar is deleted; the leases are still held."""

    PUBLISH_BEFORE = "publish.before"
    """An attempt is checked and about to commit to the manifest; crossed for each attempt."""
    PUBLISH_AFTER = "publish.after"
    """The manifest has the rows; nothing is acknowledged."""
    PUBLISH_COMPACT = "publish.compact"
    """The manifest is about to be compacted by one overwrite."""

    UNDO_AFTER_MARK = "undo.after_mark"
    """A living writer lost its publish; its sidecar says that it gave up, nothing is restored."""
    UNDO_BEFORE_RESTORE = "undo.before_restore"
    """It is about to restore a table; crossed for each."""
    UNDO_AFTER_RESTORE = "undo.after_restore"
    """Its tables are restored; the manifest does not name the restored heads."""
    UNDO_AFTER_PUBLISH = "undo.after_publish"
    """The restored heads are published; the sidecar still exists."""

    BRANCH_AFTER_CLAIM = "branch.after_claim"
    """A load has announced the branch that it is about to create for itself."""
    BRANCH_AFTER_CREATE = "branch.after_create"
    """The branch of the manifest exists; the load is not acknowledged."""
    BRANCH_BEFORE_UNCLAIM = "branch.before_unclaim"
    """A load's branch is committed to, or removed; the claim on it still exists."""
    BRANCH_BEFORE_REF_DELETE = "branch.before_ref_delete"
    """A branch passed all checks and its reference is about to be deleted."""
    BRANCH_BEFORE_TABLE_CLEANUP = "branch.before_table_cleanup"
    """The reference is deleted; the branch's forks of tables are not."""

    FORK_BEFORE_RECLAIM = "fork.before_reclaim"
    """A fork that no manifest references is about to be removed."""
    FORK_BEFORE_CREATE = "fork.before_create"
    """A table is about to be forked for the first write of a branch."""

    TAG_BEFORE_WRITE = "tag.before_write"
    """A tag is about to be written to the manifest."""

    RECOVERY_AFTER_LEASES = "recovery.after_leases"
    """The writer of a sidecar is proven dead and its tables are held."""
    RECOVERY_BEFORE_RESTORE = "recovery.before_restore"
    """A table is about to be rolled back; crossed for each."""
    RECOVERY_AFTER_RESTORE = "recovery.after_restore"
    """Every table is rolled back; the manifest does not name the restored heads."""
    RECOVERY_BEFORE_PUBLISH = "recovery.before_publish"
    """The commit of the recovery is about to be published."""
    RECOVERY_AFTER_PUBLISH = "recovery.after_publish"
    """The recovery is visible; it is not audited yet."""
    RECOVERY_AFTER_AUDIT = "recovery.after_audit"
    """The recovery is audited; the sidecar still exists."""
    RECOVERY_AFTER_DELETE = "recovery.after_delete"
    """The sidecar is deleted; the leases are still held."""

    SCHEMA_BEFORE_STAGING = "schema.before_staging"
    """The tables of a schema apply have moved; none of its files is written."""
    SCHEMA_AFTER_STAGING = "schema.after_staging"
    """Its files are staged beside the live ones; nothing is published."""
    SCHEMA_BEFORE_CLEANUP = "schema.before_cleanup"
    """The new schema is in force; hard-dropped data still exists."""

    STAGING_BEFORE_PROMOTE = "staging.before_promote"
    """Staged schema files are complete and about to replace the live ones."""
    STAGING_BETWEEN_RENAMES = "staging.between_renames"
    """Some schema files are promoted and others are not; crossed once for each gap."""

    INDEXES_AFTER_STAGE = "indexes.after_stage"
    """Index files are built; no table references them."""

    OPTIMIZE_BEFORE_COMPACTION = "optimize.before_compaction"
    """The plan of rewrites and indexes is made; nothing is written."""
    OPTIMIZE_AFTER_COMPACTION = "optimize.after_compaction"
    """Rows are rewritten; no version references them."""
    OPTIMIZE_AFTER_STAGE = "optimize.after_stage"
    """The indexes over them are built too; no table has moved."""

    CLEANUP_BEFORE_FILES = "cleanup.before_files"
    """The plan is made; orphaned files are about to be removed, table by table."""
    CLEANUP_BEFORE_FORK = "cleanup.before_fork"
    """An unused fork is about to be removed; crossed for each."""
    CLEANUP_BEFORE_MANIFEST = "cleanup.before_manifest"
    """Old states of a branch are about to be removed from its manifest; tables are untouched."""
    CLEANUP_BEFORE_TABLE = "cleanup.before_table"
    """Unused versions of a table are about to be removed; crossed for each copy."""
    CLEANUP_BEFORE_EMPTYING = "cleanup.before_emptying"
    """The rows of a dropped table that no state shows are about to be removed."""
    REMOVAL_AFTER_INTENT = "removal.after_intent"
    """The removal of versions is recorded; none is removed yet; crossed for each copy."""
    REMOVAL_AFTER_VERSIONS = "removal.after_versions"
    """The versions are removed; files that only they referenced are not; crossed for each copy."""
    CLEANUP_BEFORE_REST = "cleanup.before_rest"
    """All removable versions are removed; derived files and markers are not."""

    CLUSTER_BEFORE_CREATE = "cluster.before_create"
    """The sidecar of a graph is written; the graph does not exist."""
    CLUSTER_AFTER_CREATE = "cluster.after_create"
    """The graph exists; neither its sidecar nor the ledger says so."""
    CLUSTER_BEFORE_SCHEMA = "cluster.before_schema"
    """The sidecar of a migration is written; the graph has its former schema."""
    CLUSTER_AFTER_SCHEMA = "cluster.after_schema"
    """The graph has its new schema; neither its sidecar nor the ledger says so."""
    CLUSTER_AFTER_PAYLOADS = "cluster.after_payloads"
    """The texts of queries and policies are stored; the ledger does not name them."""
    CLUSTER_BEFORE_DELETE = "cluster.before_delete"
    """The sidecar of a deletion is written; the graph is complete."""
    CLUSTER_AFTER_DELETE = "cluster.after_delete"
    """The graph is deleted; the ledger still names it."""
    CLUSTER_BEFORE_LEDGER = "cluster.before_ledger"
    """Everything is done but recorded: the ledger is about to be written."""


Hook = Callable[[Failpoint], None]

_hook: Hook | None = None


def reached(point: Failpoint) -> None:
    """Report that a boundary was passed.

    >>> reached(Failpoint.PUBLISH_BEFORE)
    """
    hook = _hook
    if hook is not None:
        hook(point)


def install(hook: Hook | None) -> None:
    """Call ``hook`` at every boundary, in the thread that passes it; ``None`` removes it."""
    global _hook
    _hook = hook


@contextmanager
def hooked(hook: Hook) -> Iterator[None]:
    """Install a hook for a block, then restore the previous one.

    >>> passed = []
    >>> with hooked(passed.append):
    ...     reached(Failpoint.PUBLISH_AFTER)
    >>> reached(Failpoint.PUBLISH_AFTER)
    >>> [str(point) for point in passed]
    ['publish.after']
    """
    before = _hook
    install(hook)
    try:
        yield
    finally:
        install(before)
