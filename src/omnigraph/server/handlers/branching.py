"""Branches and commits."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import partial

import msgspec
from msgspec import UNSET

from omnigraph.commit.history import missing_commit
from omnigraph.errors import PolicyDenied
from omnigraph.merge.conflicts import as_json
from omnigraph.merge.run import MergeReport
from omnigraph.server.calls import Call, Reply
from omnigraph.server.errors import RequestRefused
from omnigraph.server.handlers.reading import MAIN
from omnigraph.server.handlers.states import rights_of
from omnigraph.server.handlers.writing import (
    IF_COMMIT,
    commit_output,
    conditions_of,
    note_commit,
)
from omnigraph.server.models.requests import BranchCreateRequest, BranchMergeRequest, CommitFilter
from omnigraph.server.models.responses import (
    BranchCreateOutput,
    BranchDeleteOutput,
    BranchListOutput,
    BranchMergeOutcome,
    BranchMergeOutput,
    CommitListOutput,
    CommitOutput,
    TableChangeOutput,
)


def list_branches(call: Call) -> Reply:
    """The names of all branches."""
    return Reply.json(BranchListOutput(sorted(call.graph.branches.list())))


def authorize_create(call: Call) -> None:
    request: BranchCreateRequest = call.body
    call.require("branch_create", request.from_ or MAIN, request.name)


def create_branch(call: Call) -> Reply:
    """Fork a branch."""
    request: BranchCreateRequest = call.body
    base = request.from_ or MAIN
    call.graph.branches.create(request.name, base)
    return Reply.json(BranchCreateOutput(call.uri, base, request.name, call.actor))


def authorize_delete(call: Call) -> None:
    call.require("branch_delete", None, call.path["branch"])


def delete_branch(call: Call) -> Reply:
    """Delete a branch."""
    name = call.path["branch"]
    call.graph.branches.delete(name)
    return Reply.json(BranchDeleteOutput(call.uri, name, call.actor))


def authorize_merge(call: Call) -> None:
    request: BranchMergeRequest = call.body
    call.require("branch_merge", request.source, request.target or MAIN)


def merge_branches(call: Call) -> Reply:
    """Merge a branch; deleting it afterwards has a right of its own, and may fail alone."""
    request: BranchMergeRequest = call.body
    key = only_key_of(call)
    is_preview = request.dry_run or False
    merge = partial(
        call.graph.merge,
        request.source,
        request.target or MAIN,
        resolve=request.resolve,
        dry_run=is_preview,
        idempotency_key=key,
    )
    denied = None
    if request.delete_branch and not is_preview:
        denied = call.allows("branch_delete", None, request.source)
        try:
            report = merge(delete_branch=denied is None)
        except PolicyDenied as error:
            if error.details.get("action") != "branch_delete":
                raise
            # The actor does not see all of the branch, which only its deletion requires.
            denied, report = error, merge()
        if denied is not None:
            report = replace(report, branch_deleted=False, branch_delete_error=denied.message)
    else:
        report = merge()
    output = merge_output(call, report, is_preview=is_preview)
    return Reply.json(output, headers=note_commit(call, report.commit_id))


def only_key_of(call: Call) -> str | None:
    """The idempotency key of a write that takes no other condition; refuses one."""
    if call.headers.all(IF_COMMIT):
        raise RequestRefused(
            400,
            "condition_not_supported",
            f"this operation does not take the header '{IF_COMMIT}'",
            hint="preview it with dry_run, and give an Idempotency-Key to repeat it",
        )
    return conditions_of(call).idempotency_key


def merge_output(call: Call, report: MergeReport, *, is_preview: bool) -> BranchMergeOutput:
    """The report of a merge in the form of the contract."""
    tables = {key: asdict(counts) for key, counts in sorted(report.tables.items())}
    deleted, reason = report.branch_deleted, report.branch_delete_error
    conflicts = [json.loads(as_json(conflict.to_json())) for conflict in report.conflicts]
    return BranchMergeOutput(
        report.source,
        report.target,
        BranchMergeOutcome(report.outcome.value),
        call.actor,
        commit_output(call, report.commit_id),
        report.base if rights_of(call).knows_commit(report.base) else None,
        msgspec.convert(tables, dict[str, TableChangeOutput]),
        report.version,
        UNSET if deleted is None else deleted,
        UNSET if reason is None else reason,
        True if is_preview else UNSET,
        conflicts if is_preview else UNSET,
        json.loads(as_json(report.resolved)) if report.resolved else UNSET,
    )


# -- commits ---------------------------------------------------------------------------------


def authorize_commits(call: Call) -> None:
    call.require("read", call.query.branch)


def authorize_commit(call: Call) -> None:
    """Whoever may not read commits cannot tell a hidden one from an unknown one."""
    if call.allows("read") is not None:
        raise missing_commit(call.path["commit_id"])


def list_commits(call: Call) -> Reply:
    """The commits of a branch that the actor may know, newest first."""
    wanted: CommitFilter = call.query
    commits = [
        commit
        for commit in rights_of(call).visible(call.graph.commits(wanted.branch or MAIN))
        if wanted.actor in (None, commit.actor) and wanted.kind in (None, commit.kind)
    ]
    return Reply.json(CommitListOutput([CommitOutput.of(c) for c in commits[: wanted.limit]]))


def get_commit(call: Call) -> Reply:
    """One commit of any branch."""
    return Reply.json(CommitOutput.of(call.graph.commit(call.path["commit_id"])))
