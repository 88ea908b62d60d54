"""Where a load goes: a branch that is there, or one that is made for data that is good."""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.commit.branches import Branches
from omnigraph.commit.names import branch_label, normal_branch
from omnigraph.commit.protocol import WriteRequest, commit_write
from omnigraph.commit.publisher import check_head
from omnigraph.commit.receipts import LoadReceipt, Receipt
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.store import GraphStore
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.write.load.run import Load, LoadMode, LoadOptions, reading
from omnigraph.write.load.sources import LoadData


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """The branch of a load and the conditions of its commit.

    A branch that is missing is made from ``from_branch``; ``dry_run`` only looks.
    """

    branch: str
    from_branch: str | None = None
    actor: str | None = None
    if_commit: str | None = None
    idempotency_key: str | None = None
    dry_run: bool = False


def load_into(
    store: GraphStore,
    catalog: Catalog,
    data: LoadData,
    mode: LoadMode,
    options: LoadOptions,
    target: LoadTarget,
) -> LoadReceipt:
    """Read, judge and commit. A load that is refused leaves no trace, not even its branch."""
    base = branch = normal_branch(target.branch)
    is_new = target.from_branch is not None and branch_label(branch) not in Branches(store).list()
    if is_new:
        Branches(store).check_new(target.branch)
        base = normal_branch(target.from_branch)
    # A branch that is not there is known before anything is read.
    store.manifest(base).current()
    with reading(store, catalog, data, mode, options) as load:
        if is_new or target.dry_run:
            seen = store.manifest(base).current()
            check_head(seen.head, target.if_commit)
            load.check(seen)
        if target.dry_run:
            label = branch_label(branch)
            receipt = Receipt(None, seen.manifest_version, label, {}, target.actor, load.rows())
        else:
            if is_new:
                Branches(store).create(target.branch, target.from_branch)
            receipt = commit_write(store, _request(load, branch, target))
        return LoadReceipt(
            receipt.commit_id,
            receipt.version,
            receipt.branch,
            receipt.tables,
            receipt.actor,
            receipt.met,
            base_branch=target.from_branch,
            branch_created=is_new and not target.dry_run,
            records=load.records,
            ignored=load.ignored,
            rejected=load.rejected,
            dry_run=target.dry_run,
        )


def _request(load: Load, branch: str | None, target: LoadTarget) -> WriteRequest:
    return WriteRequest(
        WriterKind.LOAD,
        branch,
        load.touches,
        load.prepare,
        load.is_strict,
        target.actor,
        if_commit=target.if_commit,
        idempotency_key=target.idempotency_key,
        # What was read is gone by now; a load of another size is another one.
        fingerprint=f"load:{load.mode}:{load.records}" if target.idempotency_key else None,
    )
