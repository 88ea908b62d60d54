"""Branches and commits."""

from __future__ import annotations

from dataclasses import asdict

import msgspec
from msgspec import UNSET, UnsetType

from omnigraph.commit.history import missing_commit
from omnigraph.errors import OmniGraphError
from omnigraph.server.calls import Call, Reply
from omnigraph.server.handlers.reading import MAIN
from omnigraph.server.handlers.writing import commit_output, note_commit
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
    target = request.target or MAIN
    report = call.graph.merge(request.source, target)
    deleted: bool | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    if request.delete_branch:
        deleted, reason = _delete_merged(call, request.source)
    tables = {key: asdict(counts) for key, counts in sorted(report.tables.items())}
    output = BranchMergeOutput(
        request.source,
        target,
        BranchMergeOutcome(report.outcome.value),
        call.actor,
        commit_output(call, report.commit_id),
        report.base,
        msgspec.convert(tables, dict[str, TableChangeOutput]),
        report.version,
        deleted,
        reason,
    )
    return Reply.json(output, headers=note_commit(call, report.commit_id))


def _delete_merged(call: Call, branch: str) -> tuple[bool, str | UnsetType]:
    denied = call.allows("branch_delete", None, branch)
    if denied is not None:
        return False, denied.message
    try:
        call.graph.branches.delete(branch)
    except OmniGraphError as error:
        return False, error.message
    return True, UNSET


# -- commits ---------------------------------------------------------------------------------


def authorize_commits(call: Call) -> None:
    call.require("read", call.query.branch)


def authorize_commit(call: Call) -> None:
    """Whoever may not read commits cannot tell a hidden one from an unknown one."""
    if call.allows("read") is not None:
        raise missing_commit(call.path["commit_id"])


def list_commits(call: Call) -> Reply:
    """The commits of a branch, newest first."""
    wanted: CommitFilter = call.query
    commits = [
        commit
        for commit in call.graph.commits(wanted.branch or MAIN)
        if wanted.actor in (None, commit.actor) and wanted.kind in (None, commit.kind)
    ]
    return Reply.json(CommitListOutput([CommitOutput.of(c) for c in commits[: wanted.limit]]))


def get_commit(call: Call) -> Reply:
    """One commit of any branch."""
    return Reply.json(CommitOutput.of(call.graph.commit(call.path["commit_id"])))
