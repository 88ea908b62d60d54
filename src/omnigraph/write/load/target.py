"""Where a load goes: a branch that is there, or one that is made for data that is good."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from omnigraph.commit.branch_claims import delete_claim
from omnigraph.commit.branches import Branches
from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.lifecycle import recover
from omnigraph.commit.metadata import LOAD, LOAD_BRANCH
from omnigraph.commit.names import (
    branch_label,
    check_actor,
    check_new_branch,
    claim_lease,
    normal_branch,
)
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.publisher import check_head
from omnigraph.commit.receipts import LoadReceipt, Receipt
from omnigraph.commit.rows import FINGERPRINT
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.store import GraphStore
from omnigraph.commit.write_request import PreparedWrite, WriteRequest, WriteView
from omnigraph.errors import OmniGraphError, OutcomePending, StorageError
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.logs import logger
from omnigraph.write.load.run import (
    Goal,
    Load,
    LoadMode,
    LoadOptions,
    Reader,
    reading,
)
from omnigraph.write.load.sources import LoadData

_LOG = logger(__name__)


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

    def __post_init__(self) -> None:
        if self.actor is not None:
            check_actor(self.actor)


def load_into(
    store: GraphStore,
    catalog: Catalog,
    data: LoadData,
    mode: LoadMode,
    options: LoadOptions,
    target: LoadTarget,
    reader: Reader = reading,
) -> LoadReceipt:
    """Read, judge and commit. A load that is refused leaves no trace, not even its branch."""
    base = branch = normal_branch(target.branch)
    if target.from_branch is not None:
        # An earlier load that died may have left the branch, on a base that has moved on.
        recover(store, full=False)
    is_new = target.from_branch is not None and branch_label(branch) not in Branches(store).list()
    if is_new:
        Branches(store).check_new(target.branch)
        base = normal_branch(target.from_branch)
    # A branch that is not there is known before anything is read.
    store.manifest(base).current()
    options = replace(options, is_keyed=target.idempotency_key is not None)
    goal = Goal(branch, base, _known_as(store, base, target))
    done: LoadReceipt | None = None
    try:
        with reader(store, catalog, data, mode, options, goal) as load:
            done = _committed(store, load, branch, base, target, is_new=is_new)
    except (OmniGraphError, OSError) as error:
        # What was read is let go after the commit, which stays what it is.
        if done is None or done.commit_id is None:
            raise
        _LOG.warning("commit %s is loaded, but its input was not closed: %s", done.commit_id, error)
    return done


def _committed(
    store: GraphStore,
    load: Load,
    branch: str | None,
    base: str | None,
    target: LoadTarget,
    *,
    is_new: bool,
) -> LoadReceipt:
    """Judge and commit what was read."""
    if is_new or target.dry_run:
        seen = store.manifest(base).current()
        check_head(seen.head, target.if_commit)
        load.check(seen)
    is_made = is_new and not target.dry_run and any(load.rows().values())
    origin = {"base_branch": target.from_branch, "branch_created": is_made}
    if target.dry_run or (is_new and not is_made):
        label = branch_label(branch)
        receipt = Receipt(None, seen.manifest_version, label, {}, target.actor, load.rows())
    elif is_made:
        with _new_branch(store, target) as made:
            receipt = commit_write(store, _request(load, made, target, origin))
    else:
        receipt = commit_write(store, _request(load, branch, target, origin))
    return _told(store, branch, load, receipt, target, origin)


def _known_as(store: GraphStore, branch: str | None, target: LoadTarget) -> str | None:
    """What the first load under the same idempotency key was known by."""
    if target.idempotency_key is None:
        return None
    scoped = (branch, target.idempotency_key)
    first = store.manifest(branch).with_state(lambda state, _: state.repeats.get(scoped))
    return None if first is None else first.extra.get(FINGERPRINT)


@contextmanager
def _new_branch(store: GraphStore, target: LoadTarget) -> Iterator[str | None]:
    """A branch for one write; it is removed when the write fails and nothing is on it.

    A load that dies leaves its claim on the branch, and the next writer removes both.
    """
    branches, branch = Branches(store), check_new_branch(target.branch)
    with store.leases.acquire([claim_lease(branch)], store.timeouts.lease):
        try:
            claim = branches.create_for_load(branch, target.from_branch)
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


def _told(
    store: GraphStore,
    branch: str | None,
    load: Load,
    receipt: Receipt,
    target: LoadTarget,
    origin: Mapping[str, Any],
) -> LoadReceipt:
    """The receipt with what the load says; that of the first call, if this one repeats it."""
    said = {**load.report(), **origin}
    if target.idempotency_key is not None and receipt.commit_id is not None:
        scoped = (branch, target.idempotency_key)
        # A look that fails takes nothing from the commit; then this call says what it did itself.
        with suppress(StorageError):
            first = store.manifest(branch).with_state(lambda state, _: state.repeats.get(scoped))
            if first is not None:
                said = {**said, **first.extra.get(LOAD, {}), **first.extra.get(LOAD_BRANCH, {})}
    return LoadReceipt(
        receipt.commit_id,
        receipt.version,
        receipt.branch,
        receipt.tables,
        receipt.actor,
        receipt.met,
        **said,
        dry_run=target.dry_run,
    )


def _request(
    load: Load, branch: str | None, target: LoadTarget, origin: Mapping[str, Any]
) -> WriteRequest:
    def prepare(view: WriteView) -> PreparedWrite:
        prepared = load.prepare(view)
        if target.idempotency_key is None:
            return prepared
        return replace(prepared, extra={**prepared.extra, LOAD_BRANCH: origin})

    return WriteRequest(
        WriterKind.LOAD,
        branch,
        load.touches,
        prepare,
        load.is_strict,
        target.actor,
        if_commit=target.if_commit,
        idempotency_key=target.idempotency_key,
        fingerprint=load.fingerprint,
        schema_hash=load.schema_hash,
    )
