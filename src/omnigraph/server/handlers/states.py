"""Which state of a graph a request names, and whether its actor may know of it."""

from __future__ import annotations

from functools import partial

from omnigraph.api.branch_rights import BranchRights
from omnigraph.api.snapshot import GraphSnapshot
from omnigraph.errors import CommitNotFound, InputError, NotFound
from omnigraph.lang.closest import suggest
from omnigraph.server.calls import Call
from omnigraph.server.handlers.reading import MAIN, snapshot_of
from omnigraph.server.models.history import StateName


def authorize_read(call: Call) -> None:
    """Reading a branch needs ``read`` on it; a commit is looked up first, by the handler."""
    given = call.query if call.body is None else call.body
    if given.branch is not None and given.snapshot is not None:
        raise InputError("request may specify branch or snapshot, not both")
    if given.snapshot is None:
        call.require("read", given.branch or MAIN)


def state_of(call: Call) -> GraphSnapshot:
    """The state that a request with ``branch`` or ``snapshot`` reads."""
    given = call.query if call.body is None else call.body
    return snapshot_of(call, given.branch, given.snapshot)


def require_commit(call: Call, commit_id: str) -> None:
    """Refuse a commit whose state the actor may not read; a hidden one looks unknown."""
    snapshot_of(call, None, commit_id)


def rights_of(call: Call) -> BranchRights:
    """What the actor may know of each branch in the history of another."""
    may_read = partial(call.may, "read")
    return BranchRights(call.graph._handle, may_read, may_list=may_read())


def authorize_name(call: Call, name: str | StateName) -> None:
    """What can be decided by a name alone; whoever may not list branches has to name one."""
    if isinstance(name, StateName):
        if name.branch is not None:
            call.require("read", name.branch)
    elif call.allows("read") is not None:
        call.require("read", name)


def find_state(call: Call, name: str | StateName) -> GraphSnapshot:
    """The state of a branch, a tag or a commit that was authorised by its name."""
    graph = call.graph
    if isinstance(name, StateName):
        if name.branch is not None:
            return graph.snapshot(name.branch)
        commit = name.commit if name.tag is None else _tagged(call, name.tag)
        return snapshot_of(call, None, commit)
    if call.allows("read") is not None:
        return graph.snapshot(name)
    branches = graph.branches.list()
    if name in branches:
        call.require("read", name)
        return graph.snapshot(name)
    tags = {tag.name: tag.commit_id for tag in graph.tags.list()}
    try:
        return snapshot_of(call, None, tags.get(name, name))
    except CommitNotFound:
        raise NotFound(
            f"there is no branch, tag or commit '{name}'",
            hint=suggest(name, [*branches, *tags]),
            details={"ref": name},
        ) from None


def _tagged(call: Call, name: str) -> str:
    """The commit of a tag; whoever may not list tags knows none."""
    tags = {}
    if call.allows("read") is None:
        tags = {tag.name: tag.commit_id for tag in call.graph.tags.list()}
    if name not in tags:
        raise NotFound(f"tag '{name}' not found", hint=suggest(name, tags), details={"tag": name})
    return tags[name]
