"""The requests of a remote graph: every call as data, for both the sync and the async client."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import Any

from omnigraph.api.arguments import source_of
from omnigraph.client.server import ServerRequest
from omnigraph.commit.names import check_new_branch, normal_branch
from omnigraph.lang.diagnostics import Source

ARROW_STREAM = "application/vnd.apache.arrow.stream"
NDJSON = "application/x-ndjson"
IF_COMMIT = "Omnigraph-If-Graph-Commit"
IDEMPOTENCY_KEY = "Idempotency-Key"
STATE = "Omnigraph-Snapshot"
"""The commit whose state a server exports."""


def read_query(
    source: Source,
    name: str | None,
    params: Mapping[str, Any] | None,
    branch: str | None,
    snapshot: str | None,
    *,
    accept: str | None = None,
    timeout: float | None = None,
    page_size: int | None = None,
    cursor: str | None = None,
) -> ServerRequest:
    """A query that reads."""
    body = {
        "query": source.text,
        **_given(name=name, params=plain_params(params), branch=_branch(branch), snapshot=snapshot),
        **_given(page_size=page_size, cursor=cursor),
    }
    headers = {} if accept is None else {"Accept": accept}
    return ServerRequest(
        "POST", ("query",), body=body, headers=headers, source=source, timeout=timeout
    )


def mutate(
    source: Source,
    name: str | None,
    params: Mapping[str, Any] | None,
    branch: str,
    if_commit: str | None = None,
    idempotency_key: str | None = None,
) -> ServerRequest:
    """A query that writes."""
    body = {
        "query": source.text,
        "branch": _branch(branch),
        **_given(name=name, params=plain_params(params)),
    }
    return ServerRequest(
        "POST",
        ("mutate",),
        body=body,
        headers=_conditions(if_commit, idempotency_key),
        changes=True,
        source=source,
    )


def stored_query(
    name: str,
    params: Mapping[str, Any] | None,
    branch: str | None,
    snapshot: str | None = None,
    *,
    mutates: bool,
    accept: str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float | None = None,
    page_size: int | None = None,
    cursor: str | None = None,
) -> ServerRequest:
    """A query that the server has under a name."""
    body = {
        **_given(params=plain_params(params), branch=_branch(branch), snapshot=snapshot),
        **_given(page_size=page_size, cursor=cursor),
        "expect_mutation": mutates,
    }
    sent = {**({} if accept is None else {"Accept": accept}), **(headers or {})}
    return ServerRequest(
        "POST", ("queries", name), body=body, headers=sent, changes=mutates, timeout=timeout
    )


def conditions(if_commit: str | None, idempotency_key: str | None) -> dict[str, str]:
    """The headers of a conditional write."""
    return _conditions(if_commit, idempotency_key)


def load(
    pieces: bytes | Iterable[bytes],
    mode: str,
    branch: str,
    from_branch: str | None,
    options: Mapping[str, str],
    if_commit: str | None,
    idempotency_key: str | None,
) -> ServerRequest:
    """Lines of JSON to load."""
    return ServerRequest(
        "POST",
        ("load", "ndjson"),
        {
            **_given(**{"branch": _branch(branch), "mode": mode, "from": _branch(from_branch)}),
            **options,
        },
        pieces,
        {"Content-Type": NDJSON, **_conditions(if_commit, idempotency_key)},
        changes=True,
    )


def load_options(
    dry_run: bool,
    strict_properties: bool,
    max_rejects: int | None,
    *,
    indexes: bool = False,
    is_on_spark: bool = False,
) -> dict[str, str]:
    """The options of a load that differ from their defaults, as parameters of its address."""
    options = {
        "dry_run": "true" if dry_run else None,
        "strict_properties": "true" if strict_properties else None,
        "max_rejects": None if max_rejects is None else str(max_rejects),
        "indexes": "true" if indexes else None,
        "engine": "spark" if is_on_spark else None,
    }
    return {name: value for name, value in options.items() if value is not None}


def export(
    branch: str | None, snapshot: str | None, type_names: Iterable[str], table_keys: Iterable[str]
) -> ServerRequest:
    """All rows of a state."""
    body = {
        **_given(branch=_branch(branch), snapshot=snapshot),
        "type_names": list(type_names),
        "table_keys": list(table_keys),
    }
    return ServerRequest("POST", ("export",), body=body, headers={"Accept": NDJSON})


def snapshot(branch: str) -> ServerRequest:
    """The tables of a branch."""
    return ServerRequest("GET", ("snapshot",), _given(branch=_branch(branch)))


def commits(branch: str, **filters: str) -> ServerRequest:
    """The commits of a branch."""
    return ServerRequest("GET", ("commits",), _given(branch=_branch(branch), **filters))


def commit(commit_id: str) -> ServerRequest:
    """One commit."""
    return ServerRequest("GET", ("commits", commit_id))


def list_branches() -> ServerRequest:
    """The names of the branches."""
    return ServerRequest("GET", ("branches",))


def create_branch(name: str, from_branch: str) -> ServerRequest:
    """A new branch."""
    body = {"name": check_new_branch(name), "from": _branch(from_branch)}
    return ServerRequest("POST", ("branches",), body=body, changes=True)


def delete_branch(name: str) -> ServerRequest:
    """A branch to delete."""
    segments = "branches", _branch(name) or ""
    return ServerRequest("DELETE", segments, changes=True)


def schema_text() -> ServerRequest:
    """The text of the schema."""
    return ServerRequest("GET", ("schema",))


def apply_schema(
    source: Source,
    allow_data_loss: bool,
    allow_broken_queries: bool = False,
    values: Mapping[str, Any] | None = None,
    *,
    dry_run: bool = False,
) -> ServerRequest:
    """A new schema."""
    body = {"schema_source": source.text, "allow_data_loss": allow_data_loss}
    body |= _given(
        allow_broken_queries=allow_broken_queries or None,
        values=plain_params(values),
        dry_run=dry_run or None,
    )
    return ServerRequest("POST", ("schema", "apply"), body=body, changes=not dry_run, source=source)


def plan_schema(
    source: Source, allow_data_loss: bool, values: Mapping[str, Any] | None
) -> ServerRequest:
    """A desired schema, whose steps are asked for."""
    body = {"schema_source": source.text, "allow_data_loss": allow_data_loss}
    body |= _given(values=plain_params(values))
    return ServerRequest("POST", ("schema", "plan"), body=body, source=source)


def list_queries() -> ServerRequest:
    """The stored queries."""
    return ServerRequest("GET", ("queries",))


def get_query(name: str) -> ServerRequest:
    """One stored query."""
    return ServerRequest("GET", ("queries", name))


def query_source(given: Any) -> Source:
    """A query text, or the text of a file of this machine."""
    return source_of(given, "<query>")


def schema_source(given: Any) -> Source:
    """A schema text, or the text of a file of this machine."""
    return source_of(given, "<schema>")


# -- values ---------------------------------------------------------------------------------------


def plain_params(params: Any) -> dict[str, Any] | None:
    """Parameters as JSON values; a value without a form in JSON is sent as its text.

    >>> from datetime import date
    >>> plain_params({"since": date(2026, 1, 31), "n": 5})
    {'since': '2026-01-31', 'n': 5}
    """
    if params is None:
        return None
    if not isinstance(params, Mapping):
        from omnigraph.lang.query.params import not_an_object

        raise not_an_object(params)
    return {str(name): plain(value) for name, value in params.items()} or None


def plain(value: Any) -> Any:
    """A value of Python, Arrow or NumPy as a JSON value."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _not_finite(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        import base64

        return f"base64:{base64.b64encode(value).decode('ascii')}"
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    return str(value)


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _branch(name: str | None) -> str | None:
    """The name of a branch; refuses the names that no graph accepts."""
    normal_branch(name)
    return name


def _conditions(if_commit: str | None, idempotency_key: str | None) -> dict[str, str]:
    headers = {IF_COMMIT: if_commit, IDEMPOTENCY_KEY: idempotency_key}
    return {name: value for name, value in headers.items() if value is not None}


def _given(**members: Any) -> dict[str, Any]:
    """The members that are not none."""
    return {name: value for name, value in members.items() if value is not None}
