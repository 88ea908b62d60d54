"""Commits a load to an existing branch, or to one that is created once the data is valid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from omnigraph.commit.branch_claims import delete_claim
from omnigraph.commit.branches import Branches
from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.lifecycle import recover
from omnigraph.commit.metadata import LOAD, LOAD_BRANCH
from omnigraph.commit.names import branch_label, check_new_branch, claim_lease, normal_branch
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.publisher import check_head
from omnigraph.commit.receipts import LoadReceipt, Receipt
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.store import GraphStore
from omnigraph.commit.write_request import WriteRequest
from omnigraph.errors import OmniGraphError, OutcomePending, StorageError
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.logs import logger
from omnigraph.write.load.job import LoadDestination, LoadJob
from omnigraph.write.load.run import Load, LoadReader, first_commit, read_locally

_LOG = logger(__name__)


def load_into(
    store: GraphStore,
    catalog: Catalog,
    job: LoadJob,
    destination: LoadDestination,
    reader: LoadReader = read_locally,
) -> LoadReceipt:
    """Read, validate and commit. A refused load leaves no trace, not even its branch."""
    origin = branch = normal_branch(destination.branch)
    is_new = False
    if destination.from_branch is not None:
        # An earlier load that died may have left the branch, on a base that has moved on.
        recover(store, full=False)
        is_new = branch_label(branch) not in Branches(store).list()
    if is_new:
        Branches(store).check_new(destination.branch)
        origin = normal_branch(destination.from_branch)
    # A missing branch is an error before anything is read.
    base = store.manifest(origin).current()
    receipt: LoadReceipt | None = None
    try:
        with reader(store, catalog, job, destination, base) as load:
            receipt = _commit(store, load, origin, destination, is_new=is_new)
    except (OmniGraphError, OSError) as error:
        # Closing the sources fails after the commit, which it does not undo.
        if receipt is None or receipt.commit_id is None:
            raise
        _LOG.warning(
            "commit %s is loaded, but its input was not closed: %s", receipt.commit_id, error
        )
    return receipt


def _commit(
    store: GraphStore,
    load: Load,
    origin: str | None,
    destination: LoadDestination,
    *,
    is_new: bool,
) -> LoadReceipt:
    branch = normal_branch(destination.branch)
    if is_new or destination.dry_run:
        base = store.manifest(origin).current()
        check_head(base.head, destination.if_commit)
        load.check(base)
    creates = is_new and not destination.dry_run and any(load.rows().values())
    created = {"base_branch": destination.from_branch, "branch_created": creates}
    if destination.dry_run or (is_new and not creates):
        label = branch_label(branch)
        receipt = Receipt(None, base.manifest_version, label, {}, destination.actor, load.rows())
    elif creates:
        with _new_branch(store, destination) as made:
            receipt = commit_write(store, _request(load, made, destination, created))
    else:
        receipt = commit_write(store, _request(load, branch, destination, created))
    counts = {**load.counts(), **created}
    if receipt.commit_id is not None:
        # A repeat gets the counts of the first call; the commit stands if they cannot be read.
        with suppress(StorageError):
            first = first_commit(store, destination, branch)
            if first is not None:
                counts |= {**first.extra.get(LOAD, {}), **first.extra.get(LOAD_BRANCH, {})}
    return LoadReceipt(
        receipt.commit_id,
        receipt.version,
        receipt.branch,
        receipt.tables,
        receipt.actor,
        receipt.met,
        **counts,
        dry_run=destination.dry_run,
    )


@contextmanager
def _new_branch(store: GraphStore, destination: LoadDestination) -> Iterator[str | None]:
    """A branch for one write; it is removed when the write fails and nothing is on it.

    A load that dies leaves its claim on the branch, and the next writer removes both.
    """
    branches, branch = Branches(store), check_new_branch(destination.branch)
    with store.leases.acquire([claim_lease(branch)], store.timeouts.lease):
        try:
            claim = branches.create_for_load(branch, destination.from_branch)
            yield branch
        except OutcomePending:
            raise
        except BaseException:
            # Whatever goes wrong here, what stopped the load is what the caller must hear of.
            with suppress(OmniGraphError):
                branches.remove_abandoned(branch)
            raise
        reached(Failpoint.BRANCH_BEFORE_UNCLAIM)
        # The load is committed, so a claim that stays says nothing about its branch.
        with suppress(OmniGraphError):
            delete_claim(store, claim)


def _request(
    load: Load, branch: str | None, destination: LoadDestination, created: Mapping[str, Any]
) -> WriteRequest:
    return WriteRequest(
        WriterKind.LOAD,
        branch,
        load.touches,
        partial(load.prepare, extra={LOAD_BRANCH: created}),
        load.is_strict,
        destination.actor,
        if_commit=destination.if_commit,
        idempotency_key=destination.idempotency_key,
        fingerprint=load.fingerprint,
        schema_hash=load.schema_hash,
    )
