"""Requests made from our own document: no internal error, no answer outside of the document.

Valid and invalid requests, with a token and without. The quick suite tries a few of each operation;
`make test-slow` tries many. Both try others each day.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import Case, GenerationMode
from schemathesis import checks as checking
from schemathesis.specs.openapi import checks as openapi_checks

from omnigraph.server.openapi import document
from tests.rotation import rotation
from tests.server.processes import until
from tests.server.serving import PEOPLE, QUERIES, Server, open_served, serving

# Jobs of the server run in this process, and draw random numbers while requests are generated.
pytestmark = [
    pytest.mark.rotates(6),
    pytest.mark.filterwarnings(
        "ignore:Do not use the `random` module:hypothesis.errors.HypothesisDeprecationWarning"
    ),
]

# Longer than what is generated: random tokens are tried too.
TOKEN = "a-token-that-nobody-guesses"
# The harness listens on a loopback address, where metrics need no token.
OPEN = ("health", "ready", "openapi", "metrics")
CHECKS = (
    checking.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_schema_conformance,
)
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)


@schemathesis.serializer("application/x-ndjson")
def serialize_lines(context: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


SCHEMA = schemathesis.openapi.from_dict(document())
OPERATIONS = {
    operation.definition.raw["operationId"]: operation
    for operation in (result.ok() for result in SCHEMA.get_all_operations())
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with (
        open_served(tmp_path_factory.mktemp("schemathesis") / "g.omni") as graph,
        serving({"g": graph}, queries=QUERIES, tokens={TOKEN: "ana"}) as server,
    ):
        yield server


def try_requests(server: Server, operation_id: str, mode: GenerationMode, examples: int) -> None:
    operation = OPERATIONS[operation_id]

    @seed(rotation())
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Case) -> None:
        _aim(case)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        response = _call(case, server, headers)
        case.validate_response(response, checks=CHECKS)
        answered = json.loads(response.content) if response.status_code >= 400 else {}
        assert answered.get("reason") != "internal"
        bare = case.call(base_url=server.url, timeout=60)
        case.validate_response(bare, checks=CHECKS)
        is_refused = bare.status_code == 401
        assert is_refused != (operation_id in OPEN) or bare.status_code in (400, 404, 405, 414)

    run()
    events = [line for line in server.log_lines() if line["event"] == "internal error"]
    assert events == []


def _call(case: Case, server: Server, headers: dict[str, str]) -> Any:
    """Send a request, again and again while too many jobs run: that is asked for, and no fault."""

    def answer() -> Any:
        response = case.call(base_url=server.url, headers=headers, timeout=60)
        is_busy = response.status_code == 503 and response.json()["reason"] == "overloaded"
        return None if is_busy else response

    return until(answer, "a slot for a job")


def _aim(case: Case) -> None:
    """Most random names exist nowhere: let requests reach the handlers."""
    parameters: dict[str, Any] = case.path_parameters or {}
    if "graph_id" in parameters:
        parameters["graph_id"] = "g"
    if "name" in parameters and len(str(parameters["name"])) % 2:
        parameters["name"] = "adults"
    body: Any = case.body
    if isinstance(body, dict) and isinstance(body.get("query"), str) and len(body["query"]) % 2:
        body["query"] = PEOPLE


# A request without parameters and body cannot be invalid.
REQUESTS = [
    pytest.param(operation_id, mode, id=f"{operation_id}-{mode.value}")
    for operation_id in OPERATIONS
    for mode in MODES
    if mode is GenerationMode.POSITIVE or operation_id not in OPEN
]


@pytest.mark.parametrize(("operation_id", "mode"), REQUESTS)
def test_no_request_is_answered_outside_of_the_document(
    server: Server, operation_id: str, mode: GenerationMode
) -> None:
    try_requests(server, operation_id, mode, 3)


@pytest.mark.slow
@pytest.mark.parametrize(("operation_id", "mode"), REQUESTS)
def test_many_requests(server: Server, operation_id: str, mode: GenerationMode) -> None:
    try_requests(server, operation_id, mode, 60)
