"""Writes docs/http-api.md from the table of routes, so that every operation is documented.

Usage: python tools/http_api_page.py > docs/http-api.md
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from omnigraph.server.bodies import IDLE_SECONDS
from omnigraph.server.errors import REASONS
from omnigraph.server.heads import LARGEST_HEADERS, LONGEST_TARGET, MOST_HEADERS
from omnigraph.server.openapi import TEXTS, document, statuses_of
from omnigraph.server.routes import ROUTES, Route

HEADERS = "\n".join(
    f"| {name} | {where} | {meaning} |"
    for name, where, meaning in (
        (
            "`Omnigraph-Request-Id`",
            "response, request",
            "the id of the request in the log; a client may choose it",
        ),
        (
            "`Omnigraph-Http-Api`",
            "request, response",
            "the version of this interface that the client expects, for example `0.8`; "
            "another one is refused",
        ),
        ("`Omnigraph-Commit`", "response of a write", "its commit"),
        ("`Omnigraph-Commit`", "request of a read", "a commit that the read must include"),
        (
            "`Omnigraph-If-Graph-Commit`",
            "request of a write",
            "the commit that the branch must be at, otherwise 412",
        ),
        (
            "`Idempotency-Key`",
            "request of a write",
            "1 to 200 characters; the write runs once, and a repeated request returns the first "
            "receipt. Operations that do not list it ignore it: a repeated delete of a branch or a "
            "tag answers 404, or deletes what was created under that name since",
        ),
        (
            "`Prefer: integers=string`",
            "request of a query",
            "integers that JavaScript would round are strings",
        ),
        ("`Retry-After`", "response 429, 503", "the seconds to wait"),
        ("`deprecation`, `link`", "response", "the operation is deprecated, and its successor"),
    )
)

INTRO = f"""\
# HTTP API

Every operation of the server, as in [openapi.json](openapi.json), which a running server has at
`/openapi.json` too. [client.md](client.md) describes the Python client.

The operations, names and texts are those of version 0.8.0 of the reference implementation, so its
clients work unchanged. What goes beyond them is marked with a star: it only adds.
[differences.md](differences.md) lists what differs.

## Requests

- Requests carry `Authorization: Bearer TOKEN`, except for `/healthz`, `/readyz` and
  `/openapi.json`. The actor of a request is that of its token, and nothing else.
- Bodies are JSON (`Content-Type: application/json`), as they are or with `Content-Encoding: gzip`
  or `zstd`. Unknown members are ignored; an optional member may be absent or null. A repeated key
  is refused.
- A name in a path is percent-encoded: the branch `a/b` is `a%2Fb`.
- `HEAD` works on every `GET` operation.
- The checks come in this order: route (404, 405), token (401), graph (400, 404), body (400, 408,
  413, 415, 422), policy (403), admission (429), and then the work itself.
- Limits: {LONGEST_TARGET >> 10} KiB for the path and query string, {LARGEST_HEADERS >> 10} KiB and
  {MOST_HEADERS} headers, and the body limit of the operation, which counts decoded bytes. A body
  must arrive without a pause of {IDLE_SECONDS:.0f} seconds.

## Headers

| Header | In | Meaning |
|---|---|---|
{HEADERS}

## Values

Integers and floats are numbers; NaN and infinities are strings. A Date is `"2026-01-31"`, a
DateTime `"2026-01-31T12:00:00.000Z"`, in UTC. Lists and vectors are arrays. A variable of a node or
an edge is its id. Commit times are microseconds since 1970.
"""

ERRORS = """\
## Errors

Every error is a JSON object:

| Member | Meaning |
|---|---|
| `error` | the text |
| `code` | the coarse kind, one of eight words |
| `reason` | the fine kind: a code of [errors.md](errors.md), or one of the table below |
| `retryable` | whether the same request may succeed later |
| `request_id` | the id of the request |
| `hint`, `details` | what to do; the same facts as data |
| `diagnostic` | of an invalid text: the first error with its position |
| `merge_conflicts` | of a merge: every row that could not be merged |
| `manifest_conflict` | of a lost race: the table, the expected and the actual version |
| `precondition_failure` | of a conditional write: the expected and the actual commit |
| `commit_id` | of a write whose outcome is unknown: the commit to look for |

A 503 with a `commit_id` has no `Retry-After`: the write may have succeeded. Look the commit up, or
repeat the request with the same `Idempotency-Key`.
"""


def page() -> str:
    """The whole page."""
    parts = [INTRO, _contents(), *map(_section, ROUTES), ERRORS, _statuses(), _reasons()]
    return "\n".join([*parts, _models()])


def _contents() -> str:
    rows = [
        f"| [{route.method} `{route.path}`](#{_anchor(route)}){_star(route)} "
        f"| {_action(route)} | {route.summary} |"
        for route in ROUTES
    ]
    head = "## Operations\n\n| Operation | Action | Meaning |\n|---|---|---|"
    return "\n".join([head, *rows, ""])


def _title(route: Route) -> str:
    return route.operation_id.removeprefix("cluster_")


def _anchor(route: Route) -> str:
    return _title(route).lower()


def _star(route: Route) -> str:
    return "" if route.since == "0.8" else " \\*"


def _action(route: Route) -> str:
    return "—" if route.action is None else f"`{route.action}`"


def _section(route: Route) -> str:
    return "\n".join([f"### {_title(route)}\n", *_lines(route), ""])


def _lines(route: Route) -> Iterator[str]:
    yield f"`{route.method} {route.path}`{_star(route)}: {route.summary}.\n"
    if route.deprecated:
        yield f"Deprecated: use [{route.successor}](#{route.successor}).\n"
    operation = document()["paths"][route.path][route.method.lower()]
    yield "| | |\n|---|---|"
    yield f"| action | {_action(route)} |"
    for where in ("path", "query", "header"):
        names = [p for p in operation.get("parameters", ()) if p["in"] == where]
        if names:
            yield f"| {where} | {', '.join(map(_parameter, names))} |"
    if route.request is not None:
        optional = " (optional)" if route.is_lenient else ""
        yield f"| body | {_link(route.request)}{optional}, up to {_size(route.body_limit)} |"
    elif route.has_body and (route.body_type is not None or route.method == "PUT"):
        kind = "any bytes" if route.body_type is None else f"`{route.body_type}`"
        yield f"| body | {kind}, up to {_size(route.body_limit)} |"
    yield f"| response | {_response(route)} |"
    others = [str(status) for status in statuses_of(route) if 200 < status < 400]
    if others:
        yield f"| also | {', '.join(others)} |"
    errors = [str(status) for status in statuses_of(route) if status >= 400]
    yield f"| errors | {', '.join(errors)} |"


def _parameter(parameter: dict[str, Any]) -> str:
    required = " (required)" if parameter["required"] and parameter["in"] != "path" else ""
    return f"`{parameter['name']}`{required}"


def _response(route: Route) -> str:
    kinds = [f"`{route.content_type.partition(';')[0]}`"]
    if route.response is not None:
        choices = getattr(route.response, "__args__", (route.response,))
        kinds = [" or ".join(map(_link, choices))]
    kinds += [f"`{kind}` by `Accept`" for kind in route.other_types]
    return ", ".join(kinds)


def _link(model: Any) -> str:
    return f"[{model.__name__}](#{model.__name__.lower()})"


def _size(size: int) -> str:
    return f"{size >> 20} MiB"


def _statuses() -> str:
    rows = [f"| {status} | {text} |" for status, text in TEXTS.items() if status != 200]
    return "\n".join(["| Status | Meaning |\n|---|---|", *rows, ""])


def _reasons() -> str:
    rows = [
        f"| `{reason}` | {status} | {meaning} |" for reason, (status, meaning) in REASONS.items()
    ]
    return "\n".join(["| Reason | Status | Meaning |\n|---|---|---|", *rows, ""])


# -- models ----------------------------------------------------------------------------------


def _models() -> str:
    schemas = document()["components"]["schemas"]
    parts = ["## Models\n"]
    for name, schema in schemas.items():
        parts.append(f"### {name}\n")
        if "enum" in schema:
            parts.append(f"One of {', '.join(f'`{value}`' for value in schema['enum'])}.\n")
            continue
        required = schema.get("required", ())
        parts.append("| Member | Type | |\n|---|---|---|")
        for member, value in schema.get("properties", {}).items():
            optional = "" if member in required else "optional"
            parts.append(f"| `{member}` | {_kind(value)} | {optional} |")
        parts.append("")
    return "\n".join(parts)


def _kind(schema: dict[str, Any]) -> str:
    """The type of a member, in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(map(_kind, schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    match schema.get("type"):
        case "array":
            return f"array of {_kind(schema.get('items', {}))}"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return f"object of {_kind(schema['additionalProperties'])}"
        case None:
            return "any"
        case kind:
            return str(kind)


if __name__ == "__main__":
    print(page(), end="")
