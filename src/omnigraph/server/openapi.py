"""The OpenAPI 3.1 document, made from the table of routes."""

from __future__ import annotations

import functools
import json
from typing import Any, get_args

import msgspec

import omnigraph
from omnigraph.server.calls import EVENT_STREAM, JSON
from omnigraph.server.models.failures import ErrorOutput
from omnigraph.server.routes import ROUTES, Route

_REF = "#/components/schemas/{name}"
_SCHEME = "bearer_token"
_RENAMED = {"ConflictKind": "MergeConflictKindOutput"}
"""Enumerations of the engine, under the names of the contract."""
TEXTS = {
    200: "Success",
    201: "Success; there was no value before",
    202: "Accepted: there is nothing to answer, or a job, whose address is in `Location`",
    206: "A range of the bytes",
    302: "The bytes are at the address in `Location`",
    304: "The client has the newest bytes",
    400: "The request is invalid",
    401: "The token is missing or unknown",
    403: "The actor may not do this",
    404: "The graph, branch, commit or query does not exist",
    405: "The operation has another method",
    406: "The client accepts none of the content types",
    408: "The body did not arrive in time",
    409: "The request conflicts with the state of the graph",
    410: "The state was removed by cleanup",
    412: "A condition of the request does not hold",
    413: "The body, or the result, is too large",
    414: "The request target is too long",
    415: "The content type or encoding is not supported",
    416: "The range is beyond the end",
    421: "The server is not addressed by this name",
    422: "The body has the wrong shape",
    424: "The bytes are stored at an address that is not served",
    429: "The actor has too many requests in flight",
    431: "The headers are too large",
    499: "The client closed the connection",
    500: "The server failed",
    501: "The server cannot do this",
    502: "The embedding provider failed",
    503: "The server is unavailable, or the outcome of the write is not known yet",
    504: "The query took too long",
    507: "The storage is full",
}
_HEADERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Omnigraph-If-Graph-Commit": (
        "The commit that the branch must be at",
        {"type": "string"},
    ),
    "Idempotency-Key": (
        "Runs the write once; a repeated request returns the first receipt",
        {"type": "string", "minLength": 1, "maxLength": 200},
    ),
    "Range": ("A range of the bytes, such as `bytes=0-99`", {"type": "string"}),
    "If-Match": ("Tags, one of which the value must have, or `*`", {"type": "string"}),
    "If-None-Match": ("Tags, none of which the value may have, or `*`", {"type": "string"}),
    "If-Range": ("The tag of the parts that the client has", {"type": "string"}),
    "Omnigraph-Commit": ("A commit that the read must include", {"type": "string"}),
    "Last-Event-ID": (
        "The cursor of the last event that a stream of events brought",
        {"type": "string"},
    ),
    "Prefer": (
        "`integers=string` writes large integers as strings; `respond-async` loads in a job",
        {"type": "string"},
    ),
}


def document(*, is_open: bool = False) -> dict[str, Any]:
    """The document; ``is_open`` leaves security out, for a server without tokens."""
    schemas = _Schemas(ROUTES)
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        operation = _operation(route, schemas)
        if route.scope != "open" and not is_open:
            operation["security"] = [{_SCHEME: []}]
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    components: dict[str, Any] = {"schemas": schemas.components, "responses": _errors(schemas)}
    if not is_open:
        components["securitySchemes"] = {_SCHEME: {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Omnigraph API",
            "version": omnigraph.__version__,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "paths": paths,
        "components": components,
    }


def document_text() -> str:
    """The document as it is checked in."""
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


@functools.cache
def document_bytes(*, is_open: bool) -> bytes:
    """The document as it is served."""
    return msgspec.json.encode(document(is_open=is_open))


class _Schemas:
    """The schemas of all models."""

    def __init__(self, routes: tuple[Route, ...]) -> None:
        models: list[Any] = [ErrorOutput]
        for route in routes:
            models += [route.request] if route.request is not None else []
            models += get_args(route.response) or ([route.response] if route.response else [])
        self._models = list(dict.fromkeys(models))
        references, components = msgspec.json.schema_components(self._models, ref_template=_REF)
        text = json.dumps([references, components])
        for name, shown in _RENAMED.items():
            text = text.replace(f'"{name}"', f'"{shown}"').replace(f'/{name}"', f'/{shown}"')
        references, components = json.loads(text)
        self._by_model = dict(zip(self._models, references, strict=True))
        self.components: dict[str, Any] = dict(sorted(components.items()))

    def of(self, model: Any) -> dict[str, Any]:
        """The schema of a model, or of one of several."""
        choices = get_args(model)
        if choices:
            return {"oneOf": [self._by_model[choice] for choice in choices]}
        schema: dict[str, Any] = self._by_model[model]
        return schema


def _operation(route: Route, schemas: _Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.operation_id,
        "tags": [route.tag],
        "summary": route.summary,
    }
    if route.deprecated:
        operation["deprecated"] = True
    parameters = [*_path_parameters(route), *_query_parameters(route), *_header_parameters(route)]
    if parameters:
        operation["parameters"] = parameters
    if route.method == "PUT" or (
        route.has_body and (route.request is not None or route.body_type not in (None, JSON))
    ):
        operation["requestBody"] = _request_body(route, schemas)
    operation["responses"] = _responses(route, schemas)
    return operation


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in route.parameters
    ]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    schema = msgspec.json.schema(route.query)
    model = next(iter(schema["$defs"].values()))
    required = model.get("required", ())
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "schema": _without_default(value, schema),
        }
        for name, value in model["properties"].items()
    ]


def _without_default(value: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of one parameter, with the enumerations that it refers to."""
    choices = [
        schema["$defs"][choice["$ref"].rpartition("/")[2]] if "$ref" in choice else choice
        for choice in value.get("anyOf", [])
    ]
    plain = {key: item for key, item in value.items() if key not in ("default", "anyOf")}
    # A parameter that is given has a value; null is its absence.
    choices = [choice for choice in choices if choice != {"type": "null"}]
    return {**plain, **choices[0]} if choices else plain


def _header_parameters(route: Route) -> list[dict[str, Any]]:
    names = []
    if route.is_conditional:
        names.append("Omnigraph-If-Graph-Commit")
    if route.takes_key and (route.action == "change" or route.writes is not None):
        names.append("Idempotency-Key")
    if route.lane == "read" and route.scope == "graph":
        names.append("Omnigraph-Commit")
    if EVENT_STREAM in route.other_types:
        names.append("Last-Event-ID")
    if route.spool_limit or route.operation_id in (
        "cluster_query",
        "cluster_read",
        "cluster_invoke_query",
    ):
        names.append("Prefer")
    names += route.headers
    return [
        {
            "name": name,
            "in": "header",
            "required": name == "Omnigraph-If-Graph-Commit",
            "description": _HEADERS[name][0],
            "schema": _HEADERS[name][1],
        }
        for name in names
    ]


def _request_body(route: Route, schemas: _Schemas) -> dict[str, Any]:
    if route.request is None:
        kind = route.body_type or "application/octet-stream"
        return {"required": True, "content": {kind: {"schema": {"type": "string"}}}}
    schema = schemas.of(route.request)
    if route.is_lenient:
        schema = {"oneOf": [{"type": "null"}, schema]}
    return {"required": not route.is_lenient, "content": {JSON: {"schema": schema}}}


def statuses_of(route: Route) -> list[int]:
    """Every status that a route answers with, in order."""
    statuses = {route.success, 400, 500, *route.statuses}
    if route.scope != "open":
        statuses |= {401, 403, 429, 503}
    if route.scope == "graph":
        statuses |= {404, 410, 413, 502, 504, 507}
    if route.has_body:
        statuses |= {408, 413, 415}
        if not route.is_lenient:
            statuses |= {422}
    if route.lane == "write":
        statuses |= {409}
    return sorted(statuses)


def _responses(route: Route, schemas: _Schemas) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status in statuses_of(route):
        is_empty = status == 202 and route.response is None
        if status in (200, 201, 202, 206) and not is_empty:
            content = {route.content_type.partition(";")[0]: _success(route, schemas)}
            content |= {kind: {"schema": {"type": "string"}} for kind in route.other_types}
        elif status < 400:
            responses[str(status)] = {"description": TEXTS[status]}
            continue
        elif status == 503 and route.scope == "open":
            content = {JSON: {"schema": schemas.of(route.response)}}
        else:
            responses[str(status)] = {"$ref": f"#/components/responses/Error{status}"}
            continue
        responses[str(status)] = {"description": TEXTS[status], "content": content}
    return responses


def _errors(schemas: _Schemas) -> dict[str, Any]:
    """The error responses, shared by all operations."""
    content = {JSON: {"schema": schemas.of(ErrorOutput)}}
    return {
        f"Error{status}": {"description": text, "content": content}
        for status, text in TEXTS.items()
        if any(status in statuses_of(route) for route in ROUTES) and status >= 400
    }


def _success(route: Route, schemas: _Schemas) -> dict[str, Any]:
    if route.response is None:
        return {"schema": {"type": "object"} if route.content_type == JSON else {"type": "string"}}
    return {"schema": schemas.of(route.response)}
