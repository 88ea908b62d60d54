"""The parts of a graph's handle that have a name of their own: branches, tags, indexes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from omnigraph.api.arguments import public
from omnigraph.commit.branches import Branches
from omnigraph.commit.history import Tag, Tags
from omnigraph.commit.lifecycle import recover
from omnigraph.commit.names import normal_branch
from omnigraph.commit.schema.history import schema_at
from omnigraph.maintain.optimize.indexes import (
    IndexReport,
    ensure_indexes,
    index_report,
    rebuild_indexes,
)
from omnigraph.maintain.optimize.policy import DEFAULT_POLICY, MaintenancePolicy
from omnigraph.merge.run import (
    MergeOptions,
    MergeReport,
    Resolve,
    merge_branches,
    pick_commit,
    revert_commit,
)

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph


class GraphBranches:
    """``graph.branches``"""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def list(self) -> Sequence[str]:
        """``main`` first, then the others in alphabetical order."""
        self._graph._checked()
        return Branches(self._graph._store).list()

    @public
    def create(self, name: str, from_branch: str = "main") -> None:
        """Fork a branch from the newest state of another; nothing is copied."""
        self._graph._writable()
        Branches(self._graph._store).create(name, from_branch)

    @public
    def delete(self, name: str) -> None:
        """Remove a branch that no other depends on."""
        self._graph._writable()
        recover(self._graph._store, full=False)
        Branches(self._graph._store).delete(name)

    @public
    def merge(
        self,
        source: str,
        target: str = "main",
        *,
        resolve: Resolve = None,
        dry_run: bool = False,
        delete_branch: bool = False,
        actor: str | None = None,
    ) -> MergeReport:
        """Bring what a branch changed into another, in one commit; conflicts refuse all of it.

        ``resolve`` decides conflicts: ``"ours"`` (the target), ``"theirs"`` (the source), a choice
        for each by its id, or a file of choices. With ``dry_run`` nothing is written, and the
        report has every conflict.
        """
        options = MergeOptions(resolve, dry_run, actor or self._graph._actor, delete_branch)
        contract = self._graph._accepted() if dry_run else self._graph._writable()
        return merge_branches(self._graph._store, contract.catalog, source, target, options)

    @public
    def revert(
        self,
        commit: str,
        branch: str = "main",
        *,
        resolve: Resolve = None,
        dry_run: bool = False,
        actor: str | None = None,
    ) -> MergeReport:
        """Take back what a commit changed, by a new commit; what came after it stays.

        What was changed again since is a conflict: ``"ours"`` leaves it, ``"theirs"`` takes the
        state before the commit.
        """
        options = MergeOptions(resolve, dry_run, actor or self._graph._actor)
        contract = self._graph._accepted() if dry_run else self._graph._writable()
        return revert_commit(self._graph._store, contract.catalog, commit, branch, options)

    @public
    def cherry_pick(
        self,
        commit: str,
        branch: str = "main",
        *,
        resolve: Resolve = None,
        dry_run: bool = False,
        actor: str | None = None,
    ) -> MergeReport:
        """Make what a commit of any branch changed part of a branch, by a new commit."""
        options = MergeOptions(resolve, dry_run, actor or self._graph._actor)
        contract = self._graph._accepted() if dry_run else self._graph._writable()
        return pick_commit(self._graph._store, contract.catalog, commit, branch, options)


class GraphTags:
    """``graph.tags``"""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def list(self) -> Sequence[Tag]:
        self._graph._checked()
        return Tags(self._graph._store).list()

    @public
    def create(
        self,
        name: str,
        commit: str | None = None,
        *,
        branch: str = "main",
        move: bool = False,
        actor: str | None = None,
    ) -> Tag:
        """Name a commit, by default the newest of a branch. Cleanup spares what a tag names."""
        self._graph._writable()
        store = self._graph._store
        if commit is None:
            head = store.manifest(normal_branch(branch)).current().head
            commit = head.commit_id if head else ""
        return Tags(store).create(name, commit, actor or self._graph._actor, move=move)

    @public
    def delete(self, name: str) -> None:
        self._graph._writable()
        Tags(self._graph._store).delete(name)


class GraphIndexes:
    """``graph.indexes``"""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @public
    def status(self, branch: str = "main", *, measure_recall: bool = False) -> IndexReport:
        """Which indexes there are, how much they cover, and which are still to be built.

        ``measure_recall`` searches for some stored vectors, and tells how much each index of
        vectors finds; that reads the vectors of up to a million rows.
        """
        contract = self._graph._checked()
        store = self._graph._store
        snapshot = store.manifest(normal_branch(branch)).current()
        catalog = schema_at(store, contract, snapshot)
        return index_report(store, catalog, snapshot, measure_recall=measure_recall)

    @public
    def ensure(
        self,
        branch: str = "main",
        actor: str | None = None,
        *,
        policy: MaintenancePolicy | None = None,
    ) -> IndexReport:
        """Build what the schema asks for and is missing; nothing happens when nothing is.

        Indexes of vectors are built anew when the schema asks for others, when the table has
        outgrown them, or when they find less than ``policy.recall`` of what is near.
        """
        contract = self._graph._writable()
        return ensure_indexes(
            self._graph._store,
            contract.catalog,
            normal_branch(branch),
            actor or self._graph._actor,
            (policy or DEFAULT_POLICY).recall,
        )

    @public
    def rebuild(
        self,
        what: str,
        column: str | None = None,
        *,
        branch: str = "main",
        actor: str | None = None,
    ) -> IndexReport:
        """Build the indexes of a type, or of one column of it, again, in one commit.

        ``what`` is a type or a table key such as ``node:Person``. For indexes that are damaged,
        or to learn their parameters from the rows that there are now.
        """
        contract = self._graph._writable()
        return rebuild_indexes(
            self._graph._store,
            contract.catalog,
            normal_branch(branch),
            actor or self._graph._actor,
            what,
            column,
        )
