"""What every tool works with: the graph of one actor, the grants, and the limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from omnigraph.api.branch_rights import BranchRights
from omnigraph.api.cursors import UNSIGNED, CursorKeys
from omnigraph.api.graph import Graph
from omnigraph.api.paging import MOST_ROWS, PagedRead, branch_state, fixed_state, read_page
from omnigraph.api.snapshot import GraphSnapshot
from omnigraph.api.stored_queries import StoredQueries
from omnigraph.commit.history import missing_state
from omnigraph.errors import HistoryGone, InputError, OmniGraphError, PolicyDenied
from omnigraph.identity import key_of_actor
from omnigraph.lang.diagnostics import Source
from omnigraph.lang.values.json_schemas import JsonSchema
from omnigraph.mcp.results import ToolResult, failure, page_of
from omnigraph.mcp.settings import AgentSettings, Grants
from omnigraph.read.limits import Cancel, Limits
from omnigraph.records import dataclass

MAIN = "main"
_LONGEST_KEY = 200
BRANCH: JsonSchema = {"type": "string", "description": "the branch to read; 'main' if left out"}
WRITTEN: JsonSchema = {"type": "string", "description": "the branch to write; must exist"}
AT: JsonSchema = {
    "type": "string",
    "description": "a commit id or a tag: read that state instead of the newest of a branch",
}
LIMIT: JsonSchema = {"type": "integer", "minimum": 1, "description": "at most so many rows"}
CURSOR: JsonSchema = {
    "type": "string",
    "description": "the cursor of the page before, with otherwise the same arguments",
}


@dataclass(frozen=True, slots=True)
class AgentContext:
    """One actor at one graph."""

    graph: Graph
    grants: Grants
    settings: AgentSettings
    cursors: CursorKeys = UNSIGNED
    """Sign the cursors of pages; a server passes those of its graph."""
    cancel: Cancel | None = None
    """Ends the queries of a call that nobody waits for any more."""
    describe: Callable[[OmniGraphError], ToolResult] = failure
    """An error as a result; a server leaves out what only its operators may see."""

    @property
    def queries(self) -> StoredQueries:
        """The stored queries of the graph."""
        return self.graph._handle.queries

    @property
    def actor(self) -> str | None:
        return self.graph._handle.actor

    def limits(self, wanted: int | None = None) -> tuple[int, int]:
        """The most rows and bytes of a result; a caller may ask for fewer rows."""
        most = self.settings.max_rows
        if wanted is not None:
            if wanted < 1:
                raise InputError("limit must be at least 1")
            most = min(most, wanted)
        return most, self.settings.max_bytes

    # -- states ------------------------------------------------------------------------------

    def snapshot(self, given: Mapping[str, Any], query: str | None = None) -> GraphSnapshot:
        """The state that the arguments of a tool name; ``query`` is the stored query that reads."""
        at, branch = given.get("at"), given.get("branch")
        if at is None:
            self.grants.require("read", branch or MAIN, query=query)
            return self.graph.snapshot(branch or MAIN)
        if branch is not None:
            raise InputError("pass branch or at, not both")
        may_list = self.grants.may("read", query=query)
        try:
            snapshot = self.graph.snapshot(at=at)
        except HistoryGone:
            if may_list:
                raise
            raise missing_state(at) from None
        if not may_list and not self.grants.may("read", snapshot.branch, query=query):
            # To whoever may not list commits, a hidden one looks absent.
            raise missing_state(at)
        self.grants.require("read", snapshot.branch, query=query)
        return snapshot

    def state(self, commit: str) -> GraphSnapshot:
        """The state of a commit that a cursor names."""
        snapshot = self.graph.snapshot(commit=commit)
        self.grants.require("read", snapshot.branch)
        return snapshot

    @property
    def rights(self) -> BranchRights:
        """What the actor may know of each branch in the history of another."""
        may = self.grants.may
        return BranchRights(
            self.graph._handle, lambda branch: may("read", branch), may_list=may("read")
        )

    def is_over(self) -> bool:
        """Whether nobody waits for the call any more."""
        return self.cancel is not None and self.cancel.is_set

    # -- leave -------------------------------------------------------------------------------

    def check_written(self, branch: str) -> None:
        """Raise if agents may not write to a branch."""
        prefix = self.settings.branch_prefix
        if prefix is not None and not branch.startswith(prefix):
            raise PolicyDenied(
                f"agents write only to branches that begin with '{prefix}', not to '{branch}'",
                hint=f"create a branch such as '{prefix}draft' and write there",
            )

    # -- queries -----------------------------------------------------------------------------

    def query_limits(self) -> Limits:
        """The limits of a query."""
        settings = self.settings
        return Limits(settings.timeout, None, settings.max_memory, self.cancel)

    def read(
        self,
        text: str,
        name: str | None,
        params: Mapping[str, Any] | None,
        given: Mapping[str, Any],
        stored: str | None = None,
    ) -> ToolResult:
        """Run a query that reads, and return a page; ``stored`` is its name if it is stored."""
        at, branch = given.get("at"), given.get("branch")
        handle = self.graph._handle
        if at is None:
            self.grants.require("read", branch or MAIN, query=stored)
            read_branch, resolve = branch or MAIN, branch_state(handle, branch or MAIN)
        else:
            snapshot = self.snapshot(given, stored)
            read_branch, resolve = snapshot.branch, fixed_state(snapshot._context)
        source = Source("<query>", text)
        read = PagedRead(source, name, params, resolve, (branch or MAIN, at))
        most_rows, most_bytes = self.limits(given.get("limit"))
        size = min(most_rows, MOST_ROWS)
        limits = self.query_limits()
        if not self.grants.may("export", read_branch, query=stored):
            limits = replace(limits, max_rows=self.settings.max_paged_rows)
        page = read_page(handle, read, size, given.get("cursor"), self.cursors, limits)
        return ToolResult(page_of(page, most_bytes))

    def write(
        self,
        text: str,
        name: str | None,
        params: Mapping[str, Any] | None,
        given: Mapping[str, Any],
        stored: str | None = None,
    ) -> ToolResult:
        """Run a query that writes; ``stored`` is its name if it is stored."""
        branch: str = given["branch"]
        self.check_written(branch)
        self.grants.require("change", branch, query=stored)
        if_commit, key = given.get("if_commit"), self._own_key(given.get("idempotency_key"))
        if stored is None:
            receipt = self.graph.mutate(
                text, name, params, branch, if_commit=if_commit, idempotency_key=key
            )
        else:
            receipt = self.graph.queries.invoke_mutation(
                stored, params, branch, if_commit=if_commit, idempotency_key=key
            )
        return ToolResult(receipt.to_json())

    def _own_key(self, key: str | None) -> str | None:
        """The idempotency key of a write; the keys of one actor are unknown to the others."""
        if key is None:
            return None
        if not 1 <= len(key) <= _LONGEST_KEY:
            raise InputError(f"idempotency_key must have 1 to {_LONGEST_KEY} characters")
        return key if self.actor is None else key_of_actor(self.actor, key)
