"""States and their differences: diffs, reverted and applied commits, tags, who changed a row."""

from __future__ import annotations

from dataclasses import asdict

import msgspec
from msgspec import UNSET

from omnigraph.api.changes import read_blame
from omnigraph.api.snapshot import GraphSnapshot, diff_snapshots
from omnigraph.commit.commits import Tag
from omnigraph.merge.change_filter import ChangeFilter
from omnigraph.server.calls import Call, Reply
from omnigraph.server.handlers.branching import merge_output, only_key_of
from omnigraph.server.handlers.reading import MAIN
from omnigraph.server.handlers.states import (
    authorize_name,
    find_state,
    require_commit,
    rights_of,
)
from omnigraph.server.handlers.writing import note_commit
from omnigraph.server.models.history import (
    BlameOutput,
    BlameParameters,
    DiffOutput,
    DiffRequest,
    ReplayRequest,
    RowChangeOutput,
    StateOutput,
    TagCreateRequest,
    TagDeleteOutput,
    TagListOutput,
    TagOutput,
)
from omnigraph.server.models.responses import CommitOutput, TableChangeOutput

# -- diffs -----------------------------------------------------------------------------------


def authorize_diff(call: Call) -> None:
    """Comparing two states needs ``read`` on both."""
    request: DiffRequest = call.body
    authorize_name(call, request.from_)
    authorize_name(call, request.to)


def diff(call: Call) -> Reply:
    """The net changes between two states."""
    request: DiffRequest = call.body
    before, after = find_state(call, request.from_), find_state(call, request.to)
    difference = diff_snapshots(
        before,
        after,
        ChangeFilter.of(request.kinds, request.types, request.ops),
        summary=request.summary or False,
        max_changes=call.state.config.limits.max_rows,
    )
    tables = {key: asdict(counts) for key, counts in sorted(difference.tables.items())}
    output = DiffOutput(
        _state(before),
        _state(after),
        difference.stats,
        msgspec.convert(tables, dict[str, TableChangeOutput]),
        [event.to_json() for event in difference.schema_events],
        [RowChangeOutput.of(change) for change in difference.changes],
    )
    return Reply.json(output)


def _state(snapshot: GraphSnapshot) -> StateOutput:
    return StateOutput(snapshot.branch, snapshot.version, snapshot.commit_id)


# -- one commit ------------------------------------------------------------------------------


def authorize_replay(call: Call) -> None:
    """Changing a branch by another commit needs ``change`` on it."""
    call.require("change", call.body.branch or MAIN)


def revert(call: Call) -> Reply:
    """Undo the changes of a commit by a new commit."""
    return _replay(call, is_revert=True)


def cherry_pick(call: Call) -> Reply:
    """Apply the changes of a commit of any branch to a branch, by a new commit."""
    return _replay(call, is_revert=False)


def _replay(call: Call, *, is_revert: bool) -> Reply:
    request: ReplayRequest = call.body
    key = only_key_of(call)
    require_commit(call, request.commit)
    replay = call.graph.revert if is_revert else call.graph.cherry_pick
    is_preview = request.dry_run or False
    report = replay(
        request.commit,
        request.branch or MAIN,
        resolve=request.resolve,
        dry_run=is_preview,
        idempotency_key=key,
    )
    output = merge_output(call, report, is_preview=is_preview)
    return Reply.json(output, headers=note_commit(call, report.commit_id))


# -- tags ------------------------------------------------------------------------------------


def list_tags(call: Call) -> Reply:
    """All tags, by name."""
    return Reply.json(TagListOutput([_tag(tag) for tag in call.graph.tags.list()]))


def authorize_create_tag(call: Call) -> None:
    """A tag is a name for a state, as a branch is."""
    request: TagCreateRequest = call.body
    source = (request.branch or MAIN) if request.commit is None else None
    call.require("branch_create", source, request.name)


def create_tag(call: Call) -> Reply:
    """Tag a commit."""
    request: TagCreateRequest = call.body
    key = only_key_of(call)
    if request.commit is not None:
        require_commit(call, request.commit)
    tag = call.graph.tags.create(
        request.name,
        request.commit,
        branch=request.branch or MAIN,
        move=request.move or False,
        idempotency_key=key,
    )
    return Reply.json(_tag(tag))


def authorize_delete_tag(call: Call) -> None:
    call.require("branch_create", None, call.path["tag"])


def delete_tag(call: Call) -> Reply:
    """Delete a tag; its commit stays."""
    name = call.path["tag"]
    call.graph.tags.delete(name)
    return Reply.json(TagDeleteOutput(call.uri, name, call.actor))


def _tag(tag: Tag) -> TagOutput:
    shows = UNSET if tag.shows is None else tag.shows
    return TagOutput(tag.name, tag.commit_id, tag.created_at, tag.actor, shows)


# -- who changed a row -----------------------------------------------------------------------


def authorize_blame(call: Call) -> None:
    """Who changed a row is for those who may read the row, and the history."""
    branch = call.query.branch or MAIN
    call.require("read_history", branch)
    call.require("read", branch)


def blame(call: Call) -> Reply:
    """The commit that last changed a node or an edge."""
    given: BlameParameters = call.query
    handle, branch = call.graph._handle, given.branch or MAIN
    change = read_blame(handle, given.type, given.id, branch, rights_of(call))
    origin = None if change.origin is None else CommitOutput.of(change.origin)
    output = BlameOutput(given.type, given.id, change.op, CommitOutput.of(change.commit), origin)
    return Reply.json(output)
