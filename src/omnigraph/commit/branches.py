"""Branches of the graph. One is a branch of the manifest; no table is copied to make it.

Creating and deleting take one lease, so that the rules about names hold between processes. The
reference of the manifest's branch is the authority: a branch exists from the moment it is there
until the moment it is gone, whatever its tables' forks look like.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.forks import reclaim_fork
from omnigraph.commit.manifest import MANIFEST, branch_reference
from omnigraph.commit.names import (
    BRANCHES_LEASE,
    SCHEMA_LOCK,
    check_new_branch,
    normal_branch,
    publish_lease,
    table_lease,
)
from omnigraph.commit.rows import MAIN
from omnigraph.commit.schema_lock import refuse_while_schema_changes
from omnigraph.commit.snapshot import Pin
from omnigraph.commit.store import GraphStore
from omnigraph.errors import (
    AlreadyExists,
    BranchExists,
    BranchInUse,
    BranchNotFound,
    Conflict,
    InputError,
    OmniGraphError,
    StorageError,
)
from omnigraph.storage.inline import BranchInfo

__all__ = ["Branches", "refuse_while_schema_changes"]

_LOG = logging.getLogger(__name__)


class Branches:
    """Creates, lists and deletes the branches of one graph."""

    def __init__(self, store: GraphStore) -> None:
        self._store = store

    def list(self) -> list[str]:
        """``main`` first, then the others in alphabetical order; internal ones are hidden."""
        return [MAIN, *sorted(set(self._known()) - {SCHEMA_LOCK})]

    def check_new(self, name: str) -> None:
        """Refuse a name that ``create`` would refuse, and do nothing else."""
        _check_name_is_free(check_new_branch(name), self._known())

    def create(self, name: str, source: str | None) -> None:
        """Fork a branch from the newest state of another."""
        branch = check_new_branch(name)
        origin = normal_branch(source)
        store = self._store
        with store.leases.held([BRANCHES_LEASE], store.patience.lease) as held:
            refuse_while_schema_changes(store, "branch create")
            known = self._known()
            _check_name_is_free(branch, known)
            version = store.manifest(origin).current().manifest_version
            # Files without a reference are what a crash left of an earlier attempt.
            store.inline.delete_branch(MANIFEST, branch)
            try:
                store.inline.create_branch(store.manifest(origin).ref, version, branch)
            except (AlreadyExists, Conflict):
                # The name was free and nobody else may take it while the lease is held: what is
                # there now is ours, and Lance stumbled over it because an answer was lost.
                made = self._known().get(branch)
                if made is None or (made.parent, made.parent_version) != (origin, version):
                    raise
                held.check()
            reached(Failpoint.BRANCH_AFTER_CREATE)
            store.datasets.checksums.record()
            store.manifests.forget(branch)

    def delete(self, name: str) -> None:
        """Remove a branch that nobody depends on."""
        branch = normal_branch(name)
        if branch is None:
            raise InputError("cannot delete branch 'main'")
        store = self._store
        with store.leases.held([BRANCHES_LEASE], store.patience.lease):
            known = self._known()
            if branch not in known:
                raise BranchNotFound(f"branch '{branch}' not found", details={"branch": branch})
            # A writer that is under way would publish into the next branch of that name.
            writers = [table_lease(pin.table_key, branch) for pin in self._pins(branch)]
            with store.leases.held([*writers, publish_lease(branch)], store.patience.lease):
                self._refuse_dependents(branch, known)
                owned = [pin for pin in self._pins(branch) if pin.branch == branch]
                reached(Failpoint.BRANCH_BEFORE_REF_DELETE)
                self._delete_manifest(branch)
                store.manifests.forget(branch)
            reached(Failpoint.BRANCH_BEFORE_TABLE_CLEANUP)
            self._remove_forks(branch, owned)

    def _delete_manifest(self, branch: str) -> None:
        """The reference is the branch: once it is gone, files that stay are only left over."""
        store = self._store
        try:
            store.inline.delete_branch(MANIFEST, branch)
        except StorageError as error:
            if store.objects.head(branch_reference(branch)) is not None:
                raise
            _LOG.warning("files of the deleted branch '%s' stay: %s", branch, error)

    def _known(self) -> dict[str, BranchInfo]:
        return self._store.inline.branches(MANIFEST)

    def _refuse_dependents(self, branch: str, known: dict[str, BranchInfo]) -> None:
        for other, info in known.items():
            if info.parent == branch:
                raise _needed(branch, other, "descendant branch")
        for other in (MAIN, *known):
            if other == branch:
                continue
            if any(pin.branch == branch for pin in self._pins(normal_branch(other))):
                raise _needed(branch, other, "branch")
        for name in self._tags_on(branch):
            raise BranchInUse(
                f"cannot delete branch '{branch}' because tag '{name}' names a commit of it",
                hint=f"delete the tag '{name}' first",
                details={"branch": branch, "tag": name},
            )

    def _tags_on(self, branch: str) -> Iterator[str]:
        """The tags that name what only this branch shows."""
        tags = self._store.manifest(None).tags()
        if not tags:
            return
        try:
            commits = self._store.manifest(branch).commits()
        except BranchNotFound:
            return
        own = {commit.commit_id for commit in commits if commit.branch == branch}
        yield from (name for name, row in tags.items() if row.commit_id in own)

    def _pins(self, branch: str | None) -> tuple[Pin, ...]:
        """What a branch shows; nothing if a crash left of it no more than its reference."""
        try:
            return tuple(self._store.manifest(branch).current().pins.values())
        except BranchNotFound:
            return ()

    def _remove_forks(self, branch: str, owned: Iterable[Pin]) -> None:
        """Best effort: what stays is removed by the next writer of that name, or by cleanup."""
        for pin in owned:
            try:
                reclaim_fork(self._store, pin.table_key, pin.location, branch)
            except OmniGraphError as error:
                _LOG.warning("the fork '%s' of '%s' stays: %s", branch, pin.location, error)


def _check_name_is_free(branch: str, known: dict[str, BranchInfo]) -> None:
    if branch in known:
        raise BranchExists(f"branch '{branch}' exists already", details={"branch": branch})
    for other in known:
        if other.startswith(f"{branch}/") or branch.startswith(f"{other}/"):
            raise BranchExists(
                f"branch '{branch}' cannot live beside '{other}': "
                "no name may be a path prefix of another",
                hint="choose another name",
                details={"branch": branch, "other": other},
            )
    if branch.split("/", 1)[0] == MAIN:
        raise InputError(f"branch '{branch}' cannot live below 'main'", hint="choose another name")


def _needed(branch: str, other: str, what: str) -> BranchInUse:
    return BranchInUse(
        f"cannot delete branch '{branch}' because {what} '{other}' still depends on it",
        hint=f"delete '{other}' first",
        details={"branch": branch, "dependent": other},
    )
