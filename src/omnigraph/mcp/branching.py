"""Tools for branches: create, list, review, merge; and free mutations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from omnigraph.api.snapshot import GraphSnapshot
from omnigraph.errors import InputError
from omnigraph.lang.values.json_schemas import JsonSchema, object_schema
from omnigraph.mcp.context import CURSOR, LIMIT, MAIN, WRITTEN, AgentContext
from omnigraph.mcp.lists import ListReader
from omnigraph.mcp.results import ToolResult
from omnigraph.mcp.tools import AgentTool, Arguments
from omnigraph.merge.run import MergeReport

_INTO: JsonSchema = {
    "type": "string",
    "description": "the branch to merge into; 'main' if left out",
}
_TO = ".."
_SOURCE: JsonSchema = {"type": "string", "description": "the branch with the changes"}


def branch_reading_tools(context: AgentContext) -> Iterator[AgentTool]:
    """The tools for branches that change nothing."""
    branches = _BranchTools(context)
    yield AgentTool(
        "branch_list",
        "Branches",
        "The names of the branches, 'main' first.",
        object_schema({"limit": LIMIT, "cursor": CURSOR}),
        branches.names,
    )
    yield AgentTool(
        "branch_diff",
        "Changes of a branch",
        "What a branch changed since it was created or last merged: every changed node and edge, "
        "before and after. With `against` the difference to the newest state of that branch.",
        object_schema(
            {
                "branch": {"type": "string", "description": "the branch to review"},
                "base": {"type": "string", "description": "the branch it came from, or 'main'"},
                "against": {"type": "string", "description": "compare with the state of this one"},
                "types": {"type": "array", "items": {"type": "string"}},
                "limit": LIMIT,
                "cursor": CURSOR,
            },
            ["branch"],
        ),
        branches.diff,
    )


def branch_writing_tools(context: AgentContext) -> Iterator[AgentTool]:
    """The tools for branches that write."""
    branches = _BranchTools(context)
    may = context.grants.may
    prefix = context.settings.branch_prefix
    note = "" if prefix is None else f" Its name must begin with '{prefix}'."
    if may("branch_create", MAIN, f"{prefix or ''}draft"):
        yield AgentTool(
            "branch_create",
            "Create a branch",
            f"Create a branch to work on, without changing the one it comes from.{note}",
            object_schema(
                {
                    "name": {"type": "string", "description": "the name of the new branch"},
                    "from": {"type": "string", "description": "its source; 'main' if left out"},
                },
                ["name"],
            ),
            branches.create,
            writes=True,
        )
    if may("branch_merge", f"{prefix or ''}draft", MAIN):
        yield AgentTool(
            "branch_merge_preview",
            "Preview a merge",
            "What a merge would do: counts of rows for each table, and every conflict with the "
            "values of both sides. Nothing is written.",
            object_schema(
                {"source": _SOURCE, "into": _INTO, "limit": LIMIT, "cursor": CURSOR}, ["source"]
            ),
            branches.preview,
            # The writer's process computes it, on the newest state.
            writes=True,
        )
        yield AgentTool(
            "branch_merge",
            "Merge a branch",
            "Merge the changes of a branch in one commit. A conflict refuses all of it; decide "
            "conflicts with `resolve` after a preview.",
            object_schema(
                {
                    "source": _SOURCE,
                    "into": _INTO,
                    "resolve": {
                        "type": ["string", "object"],
                        "description": "'ours' (the target), 'theirs' (the source), or a choice "
                        "for each conflict id of the preview",
                    },
                    "delete_branch": {"type": "boolean", "description": "delete it afterwards"},
                },
                ["source"],
            ),
            branches.merge,
            writes=True,
            destroys=True,
        )
    if context.settings.free_text and may("change", f"{prefix or ''}draft"):
        yield AgentTool(
            "graph_mutate",
            "Mutation",
            "Run a mutation of your own: insert, update or delete, all of it in one commit or "
            "nothing. Inserts and deletes do not mix. For example: query add($n: String) "
            "{ insert Person { name: $n } }.",
            object_schema(
                {
                    "query": {"type": "string", "description": "the text of the mutation"},
                    "name": {"type": "string", "description": "which one, if there are several"},
                    "params": {"type": "object", "description": "parameters by name"},
                    **WRITE_OPTIONS,
                },
                ["query", "branch"],
            ),
            lambda given: context.write(
                given["query"], given.get("name"), given.get("params"), given
            ),
            writes=True,
            destroys=True,
        )


WRITE_OPTIONS: dict[str, JsonSchema] = {
    "branch": WRITTEN,
    "if_commit": {
        "type": "string",
        "description": "only if the branch is still at this commit",
    },
    "idempotency_key": {
        "type": "string",
        "description": "repeating the call with the same key writes once",
    },
}


class _BranchTools:
    """The functions of the tools for branches."""

    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self._graph = context.graph

    def names(self, given: Arguments) -> ToolResult:
        self._context.grants.require("read")
        pages = ListReader(self._context, "branch_list", given)
        return ToolResult(pages.page("branches", self._graph.branches.list(), None))

    def create(self, given: Arguments) -> ToolResult:
        name, source = given["name"], given.get("from") or MAIN
        self._context.check_written(name)
        self._context.grants.require("branch_create", source, name)
        self._graph.branches.create(name, source)
        return ToolResult({"branch": name, "from": source})

    def diff(self, given: Arguments) -> ToolResult:
        pages = ListReader(self._context, "branch_diff", given)
        before, after = self._compared(given, pages.state)
        difference = before.diff(after, types=given.get("types"))
        changes = [change.to_json() for change in difference.changes]
        state = f"{before.commit_id}{_TO}{after.commit_id}"
        return ToolResult(
            {
                "from_commit": before.commit_id,
                "to_commit": after.commit_id,
                "total": len(changes),
                "schema_events": [event.to_json() for event in difference.schema_events],
                **pages.page("changes", changes, state, after._context.view),
            }
        )

    def _compared(self, given: Arguments, state: str | None) -> tuple[GraphSnapshot, GraphSnapshot]:
        """The states to compare; those of the first page, if there was one before."""
        branch, against, context = given["branch"], given.get("against"), self._context
        base = against or given.get("base") or MAIN
        context.grants.require("read", branch)
        context.grants.require("read", base)
        if state is not None:
            before, _, after = state.partition(_TO)
            return context.state(before), context.state(after)
        newest = self._graph.snapshot(branch)
        if against is not None:
            return self._graph.snapshot(against), newest
        return self._graph.snapshot(commit=self._shared_commit(branch, base)), newest

    def _shared_commit(self, branch: str, base: str) -> str:
        """The newest commit of both branches; after a merge of the branch, the merged one."""
        theirs = {commit.commit_id for commit in self._graph.commits(base)}
        theirs |= {
            commit.merged_parent
            for commit in self._graph.commits(base)
            if commit.merged_parent is not None
        }
        for commit in self._context.rights.visible(self._graph.commits(branch)):
            if commit.commit_id in theirs:
                return commit.commit_id
        raise InputError(
            f"branches '{branch}' and '{base}' have no common commit",
            hint="compare their states with `against`",
        )

    def preview(self, given: Arguments) -> ToolResult:
        source, into = given["source"], given.get("into") or MAIN
        self._context.grants.require("branch_merge", source, into)
        pages = ListReader(self._context, "branch_merge_preview", given)
        heads = [self._graph.commits(branch)[0].commit_id for branch in (source, into)]
        report = self._graph.merge(source, into, dry_run=True)
        return ToolResult(_report(report, pages, _TO.join(heads)))

    def merge(self, given: Arguments) -> ToolResult:
        source, into = given["source"], given.get("into") or MAIN
        deletes = bool(given.get("delete_branch"))
        self._context.check_written(into)
        if deletes:
            self._context.check_written(source)
        self._context.grants.require("branch_merge", source, into)
        report = self._graph.merge(
            source, into, resolve=given.get("resolve"), delete_branch=deletes
        )
        return ToolResult(_report(report, ListReader(self._context, "branch_merge", {}), None))


def _report(report: MergeReport, pages: ListReader, heads: str | None) -> dict[str, Any]:
    conflicts = [conflict.to_json() for conflict in report.conflicts]
    return {
        "outcome": report.outcome.value,
        "source": report.source,
        "into": report.target,
        "commit_id": report.commit_id,
        "tables": {
            key: {
                "inserted": counts.inserted,
                "updated": counts.updated,
                "deleted": counts.deleted,
            }
            for key, counts in sorted(report.tables.items())
        },
        **pages.page("conflicts", conflicts, heads),
        "conflict_count": len(conflicts),
        "branch_deleted": report.branch_deleted,
    }
