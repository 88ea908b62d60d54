"""The merges of ``Graph``: ``merge``, ``revert`` and ``cherry_pick``."""

from __future__ import annotations

from collections.abc import Mapping

import omnigraph
from omnigraph.api.arguments import Actor, Label, public
from omnigraph.api.handle import Handle
from omnigraph.api.row_access import require_whole_view, whole_tables
from omnigraph.lang.schema.catalog import Catalog


class GraphMerging:
    """The methods of a graph that merge branches and commits."""

    _handle: Handle

    @public
    def merge(
        self,
        source: str,
        into: str = "main",
        *,
        resolve: omnigraph.Resolve = None,
        dry_run: bool = False,
        delete_branch: bool = False,
        idempotency_key: Label | None = None,
        actor: Actor | None = None,
    ) -> omnigraph.MergeReport:
        """Merge the changes of a branch into another, in one commit; a conflict refuses all of it.

        ``resolve`` decides conflicts: ``"ours"`` (the branch merged into), ``"theirs"`` (the
        source), a choice by conflict id, or a file of choices. With ``dry_run``
        nothing is written, and the report has every conflict. With an ``idempotency_key`` it runs
        once, and a repeated call returns the first report.

        Raises:
            MergeConflicts: both branches changed the same values.
            NotFound: the branch does not exist.
            ReadOnly: the graph is open for reading.

        >>> graph.branches.create("review")
        >>> receipt = graph.mutate('query q() { insert Person { name: "Alan" } }', branch="review")
        >>> graph.merge("review", delete_branch=True).outcome.value
        'fast_forward'
        """
        from omnigraph.merge.repeats import MergeKey
        from omnigraph.merge.run import MergeOptions, merge_branches

        author = self._handle.authorize(actor, "branch_merge", source, into)
        if delete_branch:
            self._handle.authorize(actor, "branch_delete", target=source)
        self._check_resolve(resolve)
        catalog = self._merged_catalog(dry_run)
        handle = self._handle
        if delete_branch:
            require_whole_view(handle, author, "branch_delete", None, catalog, target=source)
        require = whole_tables(handle, author, "branch_merge", catalog, source, into)
        key = MergeKey.of(idempotency_key, "merge", source, resolve)
        options = MergeOptions(resolve, dry_run, author, delete_branch, require, key)
        return merge_branches(self._handle.store, catalog, source, into, options)

    @public
    def revert(
        self,
        commit: str,
        branch: str = "main",
        *,
        resolve: omnigraph.Resolve = None,
        dry_run: bool = False,
        idempotency_key: Label | None = None,
        actor: Actor | None = None,
    ) -> omnigraph.MergeReport:
        """Undo the changes of a commit by a new commit; later changes are kept.

        A row that was changed again since is a conflict: ``"ours"`` keeps it, ``"theirs"`` restores
        its state before the commit.

        Raises:
            MergeConflicts: a row was changed again since.
            NotFound: the commit or branch does not exist.

        >>> receipt = graph.mutate('query q() { delete Person where name = "Ada" }')
        >>> report = graph.revert(receipt.commit_id)
        >>> graph.snapshot().count("Person")
        2
        """
        from omnigraph.merge.repeats import MergeKey
        from omnigraph.merge.run import MergeOptions, revert_commit

        author = self._handle.authorize(actor, "change", branch)
        self._check_resolve(resolve)
        catalog = self._merged_catalog(dry_run)
        require = whole_tables(self._handle, author, "change", catalog, branch)
        key = MergeKey.of(idempotency_key, "revert", commit, resolve)
        options = MergeOptions(resolve, dry_run, author, require_view=require, key=key)
        return revert_commit(self._handle.store, catalog, commit, branch, options)

    @public
    def cherry_pick(
        self,
        commit: str,
        branch: str = "main",
        *,
        resolve: omnigraph.Resolve = None,
        dry_run: bool = False,
        idempotency_key: Label | None = None,
        actor: Actor | None = None,
    ) -> omnigraph.MergeReport:
        """Apply the changes of a commit of any branch to a branch, by a new commit.

        Raises:
            MergeConflicts: the branch changed the same values.
            NotFound: the commit or branch does not exist.

        >>> graph.branches.create("review")
        >>> receipt = graph.mutate('query q() { insert Person { name: "Alan" } }', branch="review")
        >>> report = graph.cherry_pick(receipt.commit_id)
        >>> graph.snapshot().count("Person")
        3
        """
        from omnigraph.merge.repeats import MergeKey
        from omnigraph.merge.run import MergeOptions, pick_commit

        author = self._handle.authorize(actor, "change", branch)
        self._check_resolve(resolve)
        catalog = self._merged_catalog(dry_run)
        require = whole_tables(self._handle, author, "change", catalog, branch)
        key = MergeKey.of(idempotency_key, "cherry_pick", commit, resolve)
        options = MergeOptions(resolve, dry_run, author, require_view=require, key=key)
        return pick_commit(self._handle.store, catalog, commit, branch, options)

    def _check_resolve(self, resolve: omnigraph.Resolve) -> None:
        if not isinstance(resolve, Mapping) and resolve not in ("ours", "theirs"):
            self._handle.check_local_file("resolve", resolve)

    def _merged_catalog(self, dry_run: bool) -> Catalog:
        return (self._handle.accepted() if dry_run else self._handle.write()).catalog
