"""Every error has a status, a typed body, and nothing that only operators may see."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from omnigraph import Graph, errors
from omnigraph.errors import OmniGraphError
from omnigraph.server.admission import Draining, Overloaded, TooMany
from omnigraph.server.errors import STATUS, RequestRefused, failure_of, status_of
from omnigraph.server.hints import _PHRASES
from omnigraph.server.models.failures import ErrorOutput
from tests.server.contract import contract, violations
from tests.server.serving import PEOPLE, open_served, serving


def classes(root: type[OmniGraphError] = OmniGraphError) -> list[type[OmniGraphError]]:
    below = [kind for child in root.__subclasses__() for kind in classes(child)]
    return [root, *below]


STATUSES = {
    "bad_value": 400,
    "bad_parameter": 400,
    "bad_record": 400,
    "orphan_edge": 400,
    "unique_violation": 400,
    "query_invalid": 400,
    "schema_change_refused": 400,
    "unauthorized": 401,
    "policy_denied": 403,
    "branch_not_found": 404,
    "commit_not_found": 404,
    "branch_exists": 409,
    "key_conflict": 409,
    "version_mismatch": 409,
    "publish_contention": 409,
    "merge_conflicts": 409,
    "branch_in_use": 409,
    "schema_changing": 409,
    "idempotency_reused": 409,
    "history_gone": 410,
    "precondition_failed": 412,
    "memory_exceeded": 413,
    "row_limit_exceeded": 413,
    "too_many_requests": 429,
    "cancelled": 499,
    "internal": 500,
    "storage": 500,
    "storage_corrupt": 500,
    "storage_unknown": 500,
    "spark_unavailable": 501,
    "embedding": 502,
    "closed": 503,
    "draining": 503,
    "outcome_pending": 503,
    "overloaded": 503,
    "storage_unavailable": 503,
    "query_timeout": 504,
    "storage_full": 507,
}


def instance(kind: type[OmniGraphError], message: str = "it failed") -> OmniGraphError:
    if issubclass(kind, errors.LanguageError | RequestRefused):
        pytest.skip("made from a text or a request")
    try:
        return kind(message)
    except (TypeError, AttributeError):
        pytest.skip("has arguments of its own")


@pytest.mark.parametrize("code", STATUSES)
def test_the_table_of_statuses(code: str) -> None:
    kind = next(kind for kind in classes() if kind.code == code)
    if issubclass(kind, errors.LanguageError):
        assert next(STATUS[base] for base in kind.__mro__ if base in STATUS) == STATUSES[code]
    else:
        assert status_of(instance(kind)) == STATUSES[code]


@pytest.mark.parametrize("kind", classes(), ids=lambda kind: kind.__name__)
def test_every_class_has_a_valid_body_without_private_texts(kind: type[OmniGraphError]) -> None:
    error = instance(kind, "failed at /data/secret/g.omni/nodes")
    error.hint = "look at /data/secret/g.omni"
    error.details["path"] = ["/data/secret/g.omni", {"/data/secret/g.omni": b"bytes"}]
    failure = failure_of(error, "r", private={"/data/secret/g.omni": "graph 'g'"})
    body = json.loads(msgspec.json.encode(failure.body))
    assert list(violations(body, contract()["schemas"]["ErrorOutput"])) == []
    assert msgspec.convert(body, ErrorOutput)
    assert "secret" not in json.dumps(body)
    assert body["request_id"] == "r"
    assert 400 <= failure.status <= 599
    if failure.status == 500:
        assert "details" not in body


def test_a_pause_is_named_only_where_repeating_helps() -> None:
    def pause(error: OmniGraphError) -> str | None:
        return dict(failure_of(error, "r").headers).get("retry-after")

    assert pause(TooMany("busy", details={"retry_after": 60})) == "60"
    assert pause(Overloaded("busy", details={"retry_after": 0.2})) == "1"
    assert pause(Draining("ends")) == "1"
    assert pause(errors.StorageUnavailable("down")) == "1"
    assert pause(errors.Closed("closed")) == "1"
    pending = errors.OutcomePending("unknown", details={"commit_id": "c1"})
    assert pause(pending) is None
    assert failure_of(pending, "r").body.commit_id == "c1"
    assert pause(errors.VersionMismatch("stale")) is None


def test_members_of_conflicts_are_typed() -> None:
    stale = errors.VersionMismatch(
        "stale view", details={"table_key": "node:P", "expected": 4, "actual": 5}
    )
    body = json.loads(msgspec.json.encode(failure_of(stale, "r").body))
    assert body["manifest_conflict"] == {"table_key": "node:P", "expected": 4, "actual": 5}
    failed = errors.PreconditionFailed("moved", details={"expected": "a", "actual": None})
    body = json.loads(msgspec.json.encode(failure_of(failed, "r").body))
    assert body["precondition_failure"] == {"expected": "a", "actual": None}


def test_texts_that_are_not_unicode_can_be_sent() -> None:
    error = errors.InputError("bad \ud800", details={"value": "\ud800", "\udfff": object})
    assert msgspec.json.encode(failure_of(error, "r").body)


def test_a_fault_of_the_server_is_logged_and_not_shown(tmp_path: Path) -> None:
    """A closed graph is an error of ours; a broken one is hidden behind a fixed text."""
    graph = open_served(tmp_path / "g.omni")
    with serving({"g": graph}) as server:
        client = server.client(graph="g")
        client.post("/query", {"query": PEOPLE}).ok()
        for file in (tmp_path / "g.omni").rglob("*.lance"):
            file.unlink()
        graph.refresh()
        answer = client.post("/query", {"query": PEOPLE})
        body = answer.fails(500, code="internal")
        assert body["error"].startswith("storage: ")
        assert str(tmp_path) not in answer.body.decode()
        events = [line for line in server.log_lines() if line["event"] == "internal error"]
        assert events[0]["request_id"] == body["request_id"]
        assert str(tmp_path) in json.dumps(events) or "lance" in json.dumps(events)
        graph.close()
        closed = client.post("/query", {"query": PEOPLE})
        assert closed.fails(503)["retryable"] is False
        assert closed.headers["retry-after"]


def test_an_exception_that_nobody_expected_is_an_internal_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("secret")

    with open_served(tmp_path / "g.omni") as graph, serving({"g": graph}) as server:
        monkeypatch.setattr(Graph, "snapshot", fail)
        answer = server.client(graph="g").get("/snapshot")
        assert answer.fails(500)["error"] == "internal error"
        assert b"secret" not in answer.body
        assert "secret" in json.dumps(server.log_lines())


def test_hints_name_nothing_that_only_the_library_has():
    """The phrases that are replaced are those of the engine, so that none is missed by a change."""
    package = Path(errors.__file__).parent
    texts = "".join(p.read_text("utf-8") for p in package.rglob("*.py") if p.name != "hints.py")
    assert [phrase for phrase in _PHRASES if phrase not in texts] == []
    for phrase in _PHRASES:
        error = errors.InputError("it failed", hint=phrase)
        hint = failure_of(error, "r").body.hint
        assert isinstance(hint, str)
        assert not re.search(r"\b[a-z]+_[a-z]+=|Graph\.|\braise max_", hint)
