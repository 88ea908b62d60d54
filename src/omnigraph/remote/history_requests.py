"""The requests about the history of a remote graph, and about single rows of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from omnigraph.client.server import ServerRequest
from omnigraph.commit.names import normal_branch
from omnigraph.errors import InputError
from omnigraph.lang.diagnostics import Source
from omnigraph.merge.change_filter import ChangeFilter
from omnigraph.merge.conflicts import choices_of
from omnigraph.merge.run import Resolve
from omnigraph.remote.requests import NDJSON, conditions, plain, plain_params

EVENT_STREAM = "text/event-stream"
LONGEST_WAIT = 25.0
"""How long one request waits for changes: proxies end a connection that is silent for longer."""
_MOST = 100_000
"""The largest page that a server sends."""


def changes(
    branch: str,
    cursor: str | None,
    start: str,
    limit: int | None,
    wait: float,
    wanted: Mapping[str, Collection[str] | None],
) -> ServerRequest:
    """A page of the change feed."""
    query = {
        "branch": _branch(branch),
        **_position(cursor, start),
        **_filters(wanted),
        **({} if limit is None else {"limit": _limit(limit)}),
        **({"wait": f"{int(wait * 1000)}ms"} if wait > 0 else {}),
    }
    return ServerRequest("GET", ("changes",), query)


def events(
    branch: str, cursor: str | None, start: str, wanted: Mapping[str, Collection[str] | None]
) -> ServerRequest:
    """The change feed as a stream of events."""
    query = {"branch": _branch(branch), **_position(cursor, start), **_filters(wanted)}
    return ServerRequest("GET", ("changes",), query, headers={"Accept": EVENT_STREAM})


def commit_changes(
    commit: str, token: str | None, limit: int, wanted: Mapping[str, Collection[str] | None]
) -> ServerRequest:
    """The changes of one commit."""
    query = {
        "limit": _limit(limit),
        **_filters(wanted),
        **({} if token is None else {"page_token": token}),
    }
    return ServerRequest("GET", ("commits", commit, "changes"), query)


def baseline(branch: str, *, rows: bool) -> ServerRequest:
    """A state to begin a copy with."""
    body = {"branch": _branch(branch), "rows": rows}
    headers = {"Accept": NDJSON}
    return ServerRequest("POST", ("changes", "baseline"), body=body, headers=headers)


def diff(
    before: str, after: str, wanted: Mapping[str, Collection[str] | None], summary: bool
) -> ServerRequest:
    """The difference between the states of two commits."""
    _checked(wanted)
    given = {name: list(values) for name, values in wanted.items() if values is not None}
    body = {"from": {"commit": before}, "to": {"commit": after}, "summary": summary, **given}
    return ServerRequest("POST", ("diff",), body=body)


def blame(type_name: str, entity_id: str, branch: str) -> ServerRequest:
    """The last change of a row."""
    query = {"type": type_name, "id": entity_id, "branch": _branch(branch)}
    return ServerRequest("GET", ("blame",), query)


def merge(
    source: str,
    target: str,
    resolve: Resolve,
    *,
    dry_run: bool,
    delete_branch: bool,
    idempotency_key: str | None = None,
) -> ServerRequest:
    """A merge of one branch into another, or its preview."""
    body: dict[str, Any] = {"source": _branch(source), "target": _branch(target)}
    if delete_branch:
        body["delete_branch"] = True
    body |= _merge_options(resolve, dry_run)
    headers = conditions(None, idempotency_key)
    return ServerRequest("POST", ("branches", "merge"), body=body, headers=headers, changes=True)


def replay(
    operation: str,
    commit: str,
    branch: str,
    resolve: Resolve,
    *,
    dry_run: bool,
    idempotency_key: str | None = None,
) -> ServerRequest:
    """A commit to revert or to apply."""
    body = {"commit": commit, "branch": _branch(branch), **_merge_options(resolve, dry_run)}
    headers = conditions(None, idempotency_key)
    return ServerRequest("POST", (operation,), body=body, headers=headers, changes=True)


def _merge_options(resolve: Resolve, dry_run: bool) -> dict[str, Any]:
    """The options that differ from their defaults: older servers do not know them."""
    choices = choices_of(resolve)
    return {
        **({} if choices is None else {"resolve": plain(choices)}),
        **({"dry_run": True} if dry_run else {}),
    }


def list_tags() -> ServerRequest:
    """All tags."""
    return ServerRequest("GET", ("tags",))


def create_tag(
    name: str,
    commit: str | None,
    branch: str,
    *,
    move: bool,
    idempotency_key: str | None = None,
) -> ServerRequest:
    """A new tag."""
    source = {"branch": _branch(branch)} if commit is None else {"commit": commit}
    body = {"name": name, "move": move, **source}
    headers = conditions(None, idempotency_key)
    return ServerRequest("POST", ("tags",), body=body, headers=headers, changes=True)


def delete_tag(name: str) -> ServerRequest:
    """A tag to delete."""
    return ServerRequest("DELETE", ("tags", name), changes=True)


def explain(
    source: Source, name: str | None, params: Any, commit: str, profile: bool, timeout: float | None
) -> ServerRequest:
    """A query to explain."""
    body = {"query": source.text, "snapshot": commit, "profile": profile}
    given = {"name": name, "params": plain_params(params)}
    body |= {key: value for key, value in given.items() if value is not None}
    return ServerRequest("POST", ("explain",), body=body, source=source, timeout=timeout)


def entity(type_name: str, entity_id: str, commit: str) -> ServerRequest:
    """One node or edge."""
    query = {"type": type_name, "id": entity_id, "snapshot": commit}
    return ServerRequest("GET", ("entity",), query)


def neighbours(
    type_name: str, entity_id: str, edge: str | None, direction: str, limit: int, commit: str
) -> ServerRequest:
    """The neighbours of a node."""
    query = {
        "type": type_name,
        "id": entity_id,
        "direction": direction,
        "limit": _limit(limit),
        "snapshot": commit,
        **({} if edge is None else {"edge": edge}),
    }
    return ServerRequest("GET", ("neighbours",), query)


def tables(commit: str) -> ServerRequest:
    """The tables of the state of a commit."""
    return ServerRequest("GET", ("snapshot",), {"snapshot": commit})


# -- parts ----------------------------------------------------------------------------------------


def _branch(name: str) -> str:
    """The name of a branch; refuses the names that no graph accepts."""
    normal_branch(name)
    return name


def _position(cursor: str | None, start: str) -> dict[str, str]:
    return {"start": start} if cursor is None else {"cursor": cursor}


def _filters(wanted: Mapping[str, Collection[str] | None]) -> dict[str, str]:
    _checked(wanted)
    names = {"kinds": "kind", "types": "type", "ops": "op"}
    return {names[name]: ",".join(values) for name, values in wanted.items() if values is not None}


def _checked(wanted: Mapping[str, Collection[str] | None]) -> None:
    """Refuse an invalid filter with the error of the embedded library."""
    ChangeFilter.of(**wanted)


def _limit(limit: int) -> str:
    if limit < 1:
        raise InputError("a page has at least one change", hint="pass a limit of 1 or more")
    return str(min(limit, _MOST))
