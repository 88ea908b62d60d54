"""Commits, tags and their snapshots, and resolving a reference to a state of the graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from omnigraph.commit.commits import Commit, CommitGroup, Tag
from omnigraph.commit.group_members import group_of
from omnigraph.commit.manifest import Manifest, list_branches
from omnigraph.commit.names import branch_label, normal_branch
from omnigraph.commit.rows import (
    COMPLETES,
    PICKS,
    REVERTS,
    ROLLED_BACK,
    WRITER,
    CommitRow,
    TagRow,
    WriterKind,
    completed_ids,
)
from omnigraph.commit.snapshot import ManifestState, Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import BranchNotFound, CommitNotFound, HistoryGone, InputError, NotFound
from omnigraph.records import dataclass

_KINDS: dict[str, str] = {
    WriterKind.MUTATION: "mutation",
    WriterKind.LOAD: "load",
    WriterKind.SCHEMA_APPLY: "schema",
    WriterKind.BRANCH_MERGE: "merge",
    WriterKind.ENSURE_INDICES: "indexes",
    WriterKind.OPTIMIZE: "optimize",
}
_KEEP_ROWS = {WriterKind.SCHEMA_APPLY, WriterKind.ENSURE_INDICES, WriterKind.OPTIMIZE}


def commit_of(row: CommitRow) -> Commit:
    """The commit of a row of the manifest."""
    return Commit(
        row.commit_id,
        branch_label(row.branch),
        row.manifest_version,
        row.created_at,
        row.parent,
        row.merged_parent,
        row.actor,
        completed_ids(row.extra.get(COMPLETES, [])),
        _kind(row),
        group_position(row),
    )


def group_position(row: CommitRow) -> CommitGroup | None:
    """The position of a commit in its group, without the ids that it wrote."""
    group = group_of(row)
    return None if group is None else CommitGroup(group.id, group.index, group.size)


def _kind(row: CommitRow) -> str | None:
    if COMPLETES in row.extra or ROLLED_BACK in row.extra:
        return "recovery"
    if REVERTS in row.extra:
        return "revert"
    if PICKS in row.extra:
        return "cherry-pick"
    if row.merged_parent is not None:
        return "merge"
    if row.parent is None and row.branch is None:
        return "init"
    return _KINDS.get(str(row.extra.get(WRITER)))


class History:
    """Looks commits up, on any branch."""

    def __init__(self, store: GraphStore) -> None:
        self._store = store

    def commits(self, branch: str | None) -> list[Commit]:
        """Every commit that is visible on a branch, inherited ones too, newest first."""
        return [commit_of(row) for row in reversed(self._store.manifest(branch).commits())]

    def commit(self, commit_id: str) -> Commit:
        """A commit by its id, or the recovery that completed it, on any branch."""
        return commit_of(self._find(commit_id)[1])

    def snapshot_of(self, commit_id: str) -> Snapshot:
        """The graph as a commit left it."""
        manifest, row = self._find(commit_id)
        manifest = self._store.manifest(row.branch) if row.branch != manifest.branch else manifest
        version = row.manifest_version
        newest = manifest.current().manifest_version
        # The recorded version is the planned one. If a publish without a commit came first, the row
        # is in a later version.
        while version <= newest:
            if manifest.void(version) is None:
                snapshot = manifest.at_version(version)
                if snapshot.head is not None and snapshot.head.order >= row.order:
                    group = group_of(row)
                    is_last = group is None or group.index == group.size - 1
                    # The state of an earlier member of a group shows the later ones, and says so.
                    return snapshot if is_last else replace(snapshot, member=row)
            version += 1
        raise HistoryGone(
            f"the state of commit '{commit_id}' was removed by cleanup",
            hint="a tag keeps the state of a commit",
            details={"commit_id": commit_id},
        )

    def snapshot_at(self, branch: str | None, moment: datetime) -> Snapshot:
        """The state of a branch at a time: that of its newest commit up to then."""
        if moment.tzinfo is None:
            raise InputError("the time has no time zone", hint="pass an aware datetime")
        micros = int(moment.timestamp() * 1_000_000)
        commits = self._store.manifest(branch).commits()
        before = [commit for commit in commits if commit.created_at <= micros]
        if not before:
            hint = None
            if commits:
                first = datetime.fromtimestamp(commits[0].created_at / 1_000_000, UTC)
                hint = f"its first is from {first.isoformat(timespec='seconds')}"
            raise HistoryGone("the branch has no commit from that time or before", hint=hint)
        return self.snapshot_of(before[-1].commit_id)

    def _find(self, commit_id: str) -> tuple[Manifest, CommitRow]:
        """Search by id on every branch, then among the commits of recoveries."""
        store = self._store
        recent = store.manifests.with_recent(commit_id)
        if recent is not None:
            with suppress(BranchNotFound):
                row = recent.commit(commit_id)
                if row is not None:
                    return recent, row
        names = list_branches(store.datasets)
        manifests = [store.manifest(normal_branch(name)) for name in names]
        for look in (Manifest.commit, Manifest.completion):
            for manifest in manifests:
                try:
                    row = look(manifest, commit_id)
                except BranchNotFound:
                    continue
                if row is not None:
                    return manifest, row
        raise missing_commit(commit_id)


def first_parents(store: GraphStore, branch: str | None, commit_id: str | None) -> list[CommitRow]:
    """A commit of a branch and its first parents, oldest first."""
    commits = {row.commit_id: row for row in store.manifest(branch).commits()}
    chain: list[CommitRow] = []
    while commit_id in commits:
        chain.append(commits[commit_id])
        commit_id = chain[-1].parent
    return chain[::-1]


def recent_first_parents(
    store: GraphStore, branch: str | None, commit_id: str, earlier: int
) -> list[CommitRow] | None:
    """The head of a branch and its first parents, from so many ``earlier`` than a commit on.

    Oldest first; nothing if the commit is not one of the newest, which are in memory. So the cost
    of following a branch does not grow with its history.
    """

    def read(state: ManifestState, _: int) -> list[CommitRow] | None:
        chain: list[CommitRow] = []
        row, has_commit, left = state.head, False, earlier
        while row is not None:
            chain.append(row)
            has_commit = has_commit or row.commit_id == commit_id
            if has_commit and (not left or row.parent is None):
                return chain[::-1]
            left -= has_commit
            row = None if row.parent is None else state.recent.get(row.parent)
        return None

    return store.manifest(branch).with_state(read)


def states_before_schema_changes(
    store: GraphStore, snapshot: Snapshot
) -> Iterator[tuple[str, str]]:
    """The newest schema changes of a state, each with the commit before it, newest first.

    All these states have the same rows: it ends at a commit that may have changed a row.
    """
    row, manifest = snapshot.head, store.manifest(snapshot.branch)
    while row is not None and row.parent is not None and _keeps_rows(row):
        yield row.commit_id, row.parent
        row = manifest.commit(row.parent)


def _keeps_rows(row: CommitRow) -> bool:
    is_plain = row.merged_parent is None and ROLLED_BACK not in row.extra
    return is_plain and row.extra.get(WRITER) in _KEEP_ROWS


def missing_commit(commit_id: str) -> CommitNotFound:
    return CommitNotFound(f"commit '{commit_id}' not found", details={"commit_id": commit_id})


def tag_of(row: TagRow) -> Tag:
    assert row.commit_id is not None
    return Tag(row.name, row.commit_id, row.created_at, row.actor, row.shows)


def find_tag(store: GraphStore, name: str) -> Tag:
    tags = store.manifest(None).tags()
    row = tags.get(name)
    if row is None:
        from omnigraph.lang.closest import suggest

        raise NotFound(f"tag '{name}' not found", hint=suggest(name, tags), details={"tag": name})
    return tag_of(row)


# Neither a commit, a tag, a version nor a time.
_NEWEST = (None, None, None, None)


@dataclass(frozen=True, slots=True)
class SnapshotRef:
    """The newest state of a branch, unless a commit, a tag, a version or a time is given.

    ``at`` is a time, or the name of a tag or a commit.
    """

    branch: str = "main"
    commit: str | None = None
    tag: str | None = None
    version: int | None = None
    at: datetime | str | None = None

    def __post_init__(self) -> None:
        choices = (self.commit, self.tag, self.version, self.at)
        if choices == _NEWEST:
            return
        if sum(choice is not None for choice in choices) > 1:
            raise InputError("pass only one of commit, tag, version and at")
        is_named = self.commit is not None or self.tag is not None or isinstance(self.at, str)
        if is_named and self.branch != "main":
            raise InputError(
                "branch cannot be combined with a commit or tag",
                hint="a commit or tag identifies its state; leave out the branch",
            )

    def resolve(self, store: GraphStore) -> Snapshot:
        """Look the state up in the store."""
        if isinstance(self.at, datetime):
            return History(store).snapshot_at(normal_branch(self.branch), self.at)
        if self.at is not None:
            return _tag_or_commit(store, self.at)
        if self.tag is not None:
            return History(store).snapshot_of(find_tag(store, self.tag).commit_id)
        if self.commit is not None:
            return History(store).snapshot_of(self.commit)
        manifest = store.manifest(normal_branch(self.branch))
        return manifest.current() if self.version is None else manifest.at_version(self.version)

    def target(self, snapshot: Snapshot) -> dict[str, str]:
        """The state that was read, in the form that a result reports.

        A version or a time is reported as its commit, which names the state on any branch.
        """
        name = self.at if isinstance(self.at, str) else self.commit or self.tag
        if name is None and (self.at, self.version) != (None, None) and snapshot.head is not None:
            return {"snapshot": snapshot.head.commit_id}
        if name is None:
            return {"branch": branch_label(snapshot.branch)}
        group = None if snapshot.member is None else group_of(snapshot.member)
        return {"snapshot": name} if group is None else {"snapshot": name, "shows": group.id}


def _tag_or_commit(store: GraphStore, name: str) -> Snapshot:
    row = store.manifest(None).tags().get(name)
    commit = name if row is None else tag_of(row).commit_id
    try:
        return History(store).snapshot_of(commit)
    except CommitNotFound:
        raise missing_state(name) from None


def missing_state(name: str) -> NotFound:
    """The error of a name that is neither a tag nor a commit."""
    hint = "pass a datetime for a time" if _is_time(name) else None
    return NotFound(f"no tag or commit '{name}'", hint=hint, details={"ref": name})


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
