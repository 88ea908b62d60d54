"""Branches of the graph. A branch is a branch of the manifest; creating it copies no table.

Creating and deleting take one lease, so that the rules about names hold between processes. The
reference of the manifest's branch is the authority: a branch exists exactly as long as its
reference, whatever the state of its tables' forks.

A branch gets its own copy of a table, a fork, when it first writes to it. A fork that no manifest
references was left by a crash or by a deleted branch, and is removed before the name is reused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.manifest import MANIFEST, branch_reference, list_branches
from omnigraph.commit.names import (
    BRANCHES_LEASE,
    MAIN,
    branch_label,
    check_new_branch,
    claim_lease,
    missing_branch,
    normal_branch,
    publish_lease,
    table_lease,
)
from omnigraph.commit.publisher import stale
from omnigraph.commit.rows import ROLLED_BACK
from omnigraph.commit.schema.lock import refuse_while_schema_changes
from omnigraph.commit.snapshot import Pin
from omnigraph.commit.staging import BranchClaim, claims, delete_claim, write_claim
from omnigraph.commit.store import GraphStore
from omnigraph.commit.ulid import new_ulid, now_micros
from omnigraph.errors import (
    BranchExists,
    BranchInUse,
    BranchNotFound,
    Conflict,
    InputError,
    OmniGraphError,
    StorageError,
    StorageUnknown,
)
from omnigraph.logs import logger
from omnigraph.storage.tables.branch_list import BranchInfo
from omnigraph.storage.tables.types import TableRef

_LOG = logger(__name__)


class Branches:
    """Creates, lists and deletes the branches of one graph."""

    def __init__(self, store: GraphStore) -> None:
        self._store = store

    def list(self) -> list[str]:
        """``main`` first, then the others in alphabetical order; internal branches are hidden."""
        return list_branches(self._store.datasets)

    def check_new(self, name: str) -> None:
        """Refuse a name that ``create`` would refuse."""
        _check_name_is_free(check_new_branch(name), self._branches())

    def create(
        self, name: str, source: str | None, check: Callable[[], object] | None = None
    ) -> None:
        """Fork a branch from the newest state of another, unless ``check`` raises."""
        self._create(name, source, check, is_claimed=False)

    def create_for_load(self, name: str, source: str | None) -> BranchClaim:
        """Create a branch for a load, with a claim whose lease the load holds."""
        claim = self._create(name, source, is_claimed=True)
        assert claim is not None
        return claim

    def _create(
        self,
        name: str,
        source: str | None,
        check: Callable[[], object] | None = None,
        *,
        is_claimed: bool,
    ) -> BranchClaim | None:
        branch = check_new_branch(name)
        origin = normal_branch(source)
        store = self._store
        with store.leases.acquire([BRANCHES_LEASE], store.timeouts.lease) as guard:
            refuse_while_schema_changes(store, "branch create")
            if check is not None:
                check()
            self._end_claims(branch, holds_lease=is_claimed)
            branches = self._branches()
            _check_name_is_free(branch, branches)
            version = store.manifest(origin).current().manifest_version
            claim = None
            if is_claimed:
                claim = BranchClaim(new_ulid(), branch, origin, version, now_micros())
                write_claim(store, claim)
                reached(Failpoint.BRANCH_AFTER_CLAIM)
            # Files without a reference were left by a crash.
            store.inline.delete_branch(MANIFEST, branch)
            # The name was free, so a branch that is there is ours as long as we hold the lease.
            source_ref = store.manifest(origin).ref
            store.inline.create_branch(source_ref, version, branch, guard.check)
            reached(Failpoint.BRANCH_AFTER_CREATE)
            store.datasets.checksums.record()
            store.manifests.forget(branch)
            if claim is not None:
                claim = replace(claim, identity=store.manifest(branch).identity())
                write_claim(store, claim)
            return claim

    def remove_abandoned(self, name: str | None = None) -> None:
        """Remove the branches of dead loads that have no commits of their own.

        With ``name`` only that branch, called by the load itself, which holds the lease of its
        claim.
        """
        store = self._store
        if claims(store):
            with store.leases.acquire([BRANCHES_LEASE], store.timeouts.lease):
                self._end_claims(name, holds_lease=name is not None)

    def _end_claims(self, branch: str | None, *, holds_lease: bool) -> None:
        for claim in claims(self._store):
            if branch is not None and claim.branch != branch:
                continue
            if holds_lease:
                self._end_claim(claim, self._store.timeouts.lease)
                continue
            # If the leases are taken, the load or a writer of its branch is still running.
            with (
                suppress(Conflict),
                self._store.leases.acquire([claim_lease(claim.branch)], timeout=0.0),
            ):
                if claim.operation in {live.operation for live in claims(self._store)}:
                    self._end_claim(claim, timeout=0.0)

    def _end_claim(self, claim: BranchClaim, timeout: float) -> None:
        """Remove a branch without commits, and the claim on it in any case."""
        store, branch = self._store, claim.branch
        branches = self._branches()
        if branch in branches and claim.is_of(branches[branch], self._identity(branch)):
            with store.leases.acquire(self._writers(branch), timeout):
                if any(
                    branch in (sidecar.branch, entry.table_branch)
                    for sidecar in store.sidecars.load_all()
                    for entry in sidecar.tables
                ):
                    # Pending writes may still be completed: recovery decides first.
                    return
                owned: Sequence[Pin] = ()
                if self._is_untouched(claim):
                    with suppress(BranchInUse):
                        owned = self._delete(branch, branches)
                        _LOG.warning("removed branch '%s' of a load that did not finish", branch)
            self._remove_forks(branch, owned)
        reached(Failpoint.BRANCH_BEFORE_UNCLAIM)
        delete_claim(store, claim)

    def _identity(self, branch: str) -> str | None:
        with suppress(BranchNotFound):
            return self._store.manifest(branch).identity()
        return None

    def _is_untouched(self, claim: BranchClaim) -> bool:
        """Whether a branch has no commits except recoveries that rolled a write back."""
        commits = self._store.manifest(claim.branch).commits()
        own = [commit for commit in commits if commit.manifest_version > claim.base_version]
        return all(ROLLED_BACK in commit.extra for commit in own)

    def delete(self, name: str, *, head: str | None = None) -> None:
        """Remove a branch without dependents; with ``head``, only if that is its newest commit."""
        branch = normal_branch(name)
        if branch is None:
            raise InputError("cannot delete branch 'main'")
        store = self._store
        with store.leases.acquire([BRANCHES_LEASE], store.timeouts.lease):
            branches = self._branches()
            if branch not in branches:
                raise missing_branch(branch)
            with store.leases.acquire(self._writers(branch), store.timeouts.lease):
                newest = store.manifest(branch).current().head if head is not None else None
                if newest is not None and newest.commit_id != head:
                    raise BranchInUse(
                        f"branch '{branch}' has commits after '{head}'",
                        hint="merge the branch again, then delete it",
                        details={"branch": branch, "head": newest.commit_id},
                    )
                owned = self._delete(branch, branches)
            reached(Failpoint.BRANCH_BEFORE_TABLE_CLEANUP)
            self._remove_forks(branch, owned)

    def _writers(self, branch: str) -> Sequence[str]:
        """The leases of all writers of a branch: a late one could publish into its successor."""
        tables = [table_lease(pin.table_key, branch) for pin in self._pins(branch)]
        return [*tables, publish_lease(branch)]

    def _delete(self, branch: str, branches: dict[str, BranchInfo]) -> Sequence[Pin]:
        """Remove a branch whose writers are locked out; returns the pins of its forks."""
        self._refuse_dependents(branch, branches)
        owned = [pin for pin in self._pins(branch) if pin.branch == branch]
        reached(Failpoint.BRANCH_BEFORE_REF_DELETE)
        try:
            self._store.inline.delete_branch(MANIFEST, branch)
        except StorageError as error:
            # The branch counts as deleted once its reference is; but a crash of this machine brings
            # back a reference whose removal is not on the disk.
            may_return = self._store.root.is_local and isinstance(error, StorageUnknown)
            if may_return or self._store.objects.head(branch_reference(branch)) is not None:
                raise
            _LOG.warning("files of the deleted branch '%s' stay: %s", branch, error)
        finally:
            self._store.manifests.forget(branch)
        return owned

    def _branches(self) -> dict[str, BranchInfo]:
        return self._store.inline.branches(MANIFEST)

    def _refuse_dependents(self, branch: str, branches: dict[str, BranchInfo]) -> None:
        for other, info in branches.items():
            if info.parent == branch:
                raise _needed(branch, other, "descendant branch")
        for other in (MAIN, *branches):
            if other == branch:
                continue
            if any(pin.branch == branch for pin in self._pins(normal_branch(other))):
                raise _needed(branch, other, "branch")
        own: set[str] = set()
        tags = self._store.manifest(None).tags()
        if tags:
            with suppress(BranchNotFound):
                commits = self._store.manifest(branch).commits()
                own = {commit.commit_id for commit in commits if commit.branch == branch}
        for name, row in tags.items():
            if row.commit_id in own:
                raise BranchInUse(
                    f"cannot delete branch '{branch}' because tag '{name}' names a commit of it",
                    hint=f"delete the tag '{name}' first",
                    details={"branch": branch, "tag": name},
                )

    def _pins(self, branch: str | None) -> tuple[Pin, ...]:
        """The pins of a branch; none if a crash left only its reference."""
        try:
            return tuple(self._store.manifest(branch).current().pins.values())
        except BranchNotFound:
            return ()

    def _remove_forks(self, branch: str, owned: Iterable[Pin]) -> None:
        """Best effort: leftovers are removed by the next writer of that name, or by cleanup."""
        for pin in owned:
            try:
                reclaim_fork(self._store, pin.table_key, pin.location, branch)
            except OmniGraphError as error:
                _LOG.warning("the fork '%s' of '%s' stays: %s", branch, pin.location, error)


def _check_name_is_free(branch: str, branches: dict[str, BranchInfo]) -> None:
    if branch in branches:
        raise BranchExists(f"branch '{branch}' exists already", details={"branch": branch})
    for other in branches:
        if other.startswith(f"{branch}/") or branch.startswith(f"{other}/"):
            raise BranchExists(
                f"branch '{branch}' conflicts with branch '{other}': "
                "no name may be a path prefix of another",
                hint="choose another name",
                details={"branch": branch, "other": other},
            )
    if branch.split("/", 1)[0] == MAIN:
        raise InputError(f"branch '{branch}' cannot be below 'main'", hint="choose another name")


def _needed(branch: str, other: str, what: str) -> BranchInUse:
    return BranchInUse(
        f"cannot delete branch '{branch}' because {what} '{other}' still depends on it",
        hint=f"delete '{other}' first",
        details={"branch": branch, "dependent": other},
    )


def fork_table(store: GraphStore, pin: Pin, branch: str) -> TableRef:
    """Fork the table of a pin into a branch. The caller holds the lease of both."""
    reached(Failpoint.FORK_BEFORE_CREATE)
    try:
        return store.inline.create_branch(pin.ref, pin.version, branch)
    except OmniGraphError as error:
        _check_not_owned(store, pin, branch, error)
        # What is there is of a dead writer, or of this attempt.
        _reclaim_children(store, pin.table_key, pin.location, branch)
        reached(Failpoint.FORK_BEFORE_RECLAIM)
        store.inline.unmake_branch(pin.location, branch)
        return store.inline.create_branch(pin.ref, pin.version, branch)


def clear_orphan(store: GraphStore, pin: Pin, branch: str | None) -> None:
    """Remove the fork of a dead writer before new files are written into it.

    The next writer that forks the table would remove those files with it.
    """
    if branch is None or pin.branch == branch:
        return
    # A fork has its first version before its reference.
    versions = f"{TableRef(pin.location, branch).path}/_versions"
    if branch not in store.inline.branches(pin.location) and not store.objects.list(versions):
        return
    with store.leases.acquire([table_lease(pin.table_key, branch)], store.timeouts.lease):
        if not _shows_its_fork(store, pin.table_key, branch):
            reclaim_fork(store, pin.table_key, pin.location, branch)


def reclaim_fork(store: GraphStore, table_key: str, location: str, branch: str) -> None:
    """Remove a fork that no manifest references, after the forks created from it.

    It is kept if its branch still uses a fork of it; leftover forks do not keep it, even if a
    branch of that name exists again. The caller holds the fork's lease.
    """
    _reclaim_children(store, table_key, location, branch)
    reached(Failpoint.FORK_BEFORE_RECLAIM)
    store.inline.delete_branch(location, branch)


def _reclaim_children(store: GraphStore, table_key: str, location: str, branch: str) -> None:
    """Remove the forks that were created from a fork."""
    branches = store.inline.branches(location)
    for child in [name for name, info in branches.items() if info.parent == branch]:
        with store.leases.acquire([table_lease(table_key, child)], store.timeouts.lease):
            if _shows_its_fork(store, table_key, child):
                raise Conflict(
                    f"branch '{child}' still depends on the fork '{branch}' of '{table_key}'",
                    hint=f"delete branch '{child}' first",
                    details={"branch": child},
                )
            reclaim_fork(store, table_key, location, child)


def _shows_its_fork(store: GraphStore, table_key: str, branch: str) -> bool:
    try:
        pin = store.manifest(branch).current().pin(table_key)
    except BranchNotFound:
        return False
    return pin is not None and pin.branch == branch


def _check_not_owned(store: GraphStore, pin: Pin, branch: str, cause: OmniGraphError) -> None:
    """Reread the manifest before anything is removed."""
    try:
        now = store.manifest(branch).current().pin(pin.table_key)
    except StorageError as error:
        raise Conflict(
            f"could not verify who owns '{pin.table_key}' on branch '{branch_label(branch)}' — "
            "refresh and retry",
            hint="refresh and retry",
        ) from error
    if now is None or now.branch == branch or now.version != pin.version:
        raise stale(pin.table_key, pin.version, now.version if now else 0) from cause
