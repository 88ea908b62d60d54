"""Requests to a server: their form, and the typed error of every status."""

from __future__ import annotations

import socket

import pytest

from omnigraph.client.http import Failure
from omnigraph.client.server import Connection, ServerRequest, no_response
from omnigraph.errors import (
    Cancelled,
    Conflict,
    HistoryGone,
    InputError,
    LimitExceeded,
    NotFound,
    OmniGraphError,
    OutcomePending,
    PolicyDenied,
    PreconditionFailed,
    QueryTimeout,
    ServerError,
    ServerUnavailable,
    SparkUnavailable,
    StorageFull,
    Unauthorized,
)
from tests.client.stub import DROP, stub_server

SECRET = "s3cret-token"


@pytest.fixture
def server():
    with stub_server() as stub:
        yield stub


@pytest.fixture
def closed_port():
    """An address where nobody listens."""
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{kept.getsockname()[1]}"


# -- requests -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("segments", "query", "path"),
    [
        (("branches", "feature/x"), None, "/branches/feature%2Fx"),
        (("branches", "a b"), None, "/branches/a%20b"),
        (("commits",), {"branch": "a b&c"}, "/commits?branch=a+b%26c"),
        (("queries", "ä"), None, "/queries/%C3%A4"),
        (("queries", "\udcff"), None, "/queries/%FF"),
    ],
)
def test_every_segment_is_one(server, segments, query, path):
    server.responses[f"GET {path}"] = {"ok": True}
    assert Connection(f"{server.url}/").get(*segments, query=query) == {"ok": True}
    assert server.requested == [f"GET {path}"]


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_segment_that_would_change_the_path_is_refused(server, name):
    with pytest.raises(InputError, match="invalid name"):
        Connection(server.url).get("queries", name)
    assert server.requested == []


def test_a_body_is_json(server):
    server.responses["POST /queries/q"] = {"rows": []}
    Connection(server.url).post("queries", "q", body={"params": {"name": "Zoë"}})
    request = server.requests[0]
    assert request.headers["Content-Type"] == "application/json"
    assert request.body == {"params": {"name": "Zoë"}}
    assert request.token is None


def test_a_token_is_a_bearer(server):
    server.responses["GET /graphs"] = {"graphs": []}
    Connection(server.url, SECRET).get("graphs")
    assert server.requests[0].token == f"Bearer {SECRET}"
    assert SECRET not in repr(Connection(server.url, SECRET))


@pytest.mark.parametrize("token", ["a\nX-Evil: 1", "tökén"])
def test_a_token_that_cannot_be_sent_is_refused(server, token):
    with pytest.raises(InputError, match="cannot be sent") as caught:
        Connection(server.url, token).get("graphs")
    assert token not in str(caught.value)
    assert server.requested == []


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("file:///etc/hosts", "invalid server address"),
        ("ftp://h", "invalid server address"),
        ("h:8080", "invalid server address"),
        ("http://", "invalid server address"),
        ("http://h/a b", "invalid server address"),
        ("http://h?x=1", "invalid server address"),
        ("http://hä", "invalid server address"),
        ("http://h:port", "cannot be parsed"),
        ("http://[::1", "cannot be parsed"),
        ("http://me:hidden@h", "a user or a password"),
    ],
)
def test_what_is_no_address_is_refused(address, text):
    with pytest.raises(InputError, match=text) as caught:
        Connection(address).get("graphs")
    assert "hidden" not in str(caught.value)
    assert caught.value.hint


# -- answers that are errors ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InputError),
        (401, Unauthorized),
        (403, PolicyDenied),
        (404, NotFound),
        (409, Conflict),
        (410, HistoryGone),
        (412, PreconditionFailed),
        (413, LimitExceeded),
        (499, Cancelled),
        (500, ServerError),
        (501, SparkUnavailable),
        (502, ServerError),
        (504, QueryTimeout),
        (507, StorageFull),
    ],
)
def test_an_error_object_is_shown_by_its_text(server, status, kind):
    server.responses["GET /x"] = (status, {"error": "so it is", "code": "c", "more": [1]})
    with pytest.raises(OmniGraphError) as caught:
        Connection(server.url).get("x")
    assert type(caught.value) is kind
    assert caught.value.message == "so it is"
    assert caught.value.details == {"status": status, "code": "c", "more": [1]}


@pytest.mark.parametrize("status", [408, 429, 503])
@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after": "0"}, 0.0),
        ({"Retry-After": "-1"}, None),
    ],
)
def test_a_busy_server_says_when_to_ask_again(server, status, header, seconds):
    server.responses["GET /x"] = (status, {"error": "too many"}, header)
    with pytest.raises(ServerUnavailable) as caught:
        Connection(server.url).get("x")
    assert caught.value.retryable
    assert caught.value.retry_after == seconds


def test_a_write_whose_outcome_is_open_is_not_repeated(server):
    server.responses["POST /x"] = (503, {"error": "unknown", "commit_id": "01ABC"})
    with pytest.raises(OutcomePending) as caught:
        Connection(server.url).post("x", body={}, changes=True)
    assert not caught.value.retryable
    assert caught.value.details["commit_id"] == "01ABC"
    assert caught.value.hint is None


@pytest.mark.parametrize("body", [b"down for\nmaintenance", b'{"message": "x"}', b'"text"', b""])
def test_another_error_is_shown_with_its_status(server, body):
    server.responses["GET /x"] = (502, body)
    with pytest.raises(ServerError) as caught:
        Connection(server.url).get("x")
    assert caught.value.message == f"server returned 502: {body.decode()}"


def test_a_text_of_a_server_neither_shows_the_token_nor_steers_the_terminal(server):
    server.responses["GET /x"] = (400, {"error": f"bad \x1b[31mtoken\x07 {SECRET}"})
    with pytest.raises(InputError) as caught:
        Connection(server.url, SECRET).get("x")
    assert caught.value.message == r"bad \x1b[31mtoken\x07 ***"


def test_a_page_of_a_proxy_is_cut(server):
    server.responses["GET /x"] = (502, b"x" * 100_000)
    with pytest.raises(ServerError) as caught:
        Connection(server.url).get("x")
    assert len(caught.value.message) < 5000


def test_a_redirect_is_not_followed(server):
    with stub_server() as other:
        other.responses["GET /x"] = {"ok": True}
        server.responses["GET /x"] = (302, b"", {"Location": f"{other.url}/x"})
        with pytest.raises(ServerError, match="server returned 302") as caught:
            Connection(server.url, SECRET).get("x")
        assert other.requested == []
    assert "redirects are not followed" in (caught.value.hint or "")


@pytest.mark.parametrize("body", [b"<html>", b"", b"\xff", b"[" * 100_000])
def test_a_success_that_is_no_json_is_not_understood(server, body):
    server.responses["GET /x"] = (200, body)
    with pytest.raises(ServerError, match="unexpected response"):
        Connection(server.url).get("x")


# -- no answer ------------------------------------------------------------------------------------


def test_a_server_that_is_not_there(closed_port):
    with pytest.raises(ServerUnavailable) as caught:
        Connection(closed_port).post("queries", "q", body={}, changes=True)
    assert caught.value.message == f"the server at {closed_port} cannot be reached"
    assert caught.value.retryable


def test_a_server_that_does_not_encrypt_gets_no_token(server):
    address = server.url.replace("http://", "https://")
    with pytest.raises(ServerUnavailable, match="cannot be reached"):
        Connection(address, SECRET).get("graphs")
    assert server.requested == []


def test_a_name_that_is_no_host():
    address = f"http://{'a' * 70}.invalid"
    with pytest.raises(ServerUnavailable, match="cannot be reached"):
        Connection(address).post("queries", "q", body={}, changes=True)


def test_a_read_without_an_answer_may_be_repeated(server):
    server.responses["GET /x"] = DROP
    with pytest.raises(ServerUnavailable, match="broke before the server responded") as caught:
        Connection(server.url).get("x")
    assert caught.value.retryable


@pytest.mark.parametrize(("seconds", "kind"), [(0.05, QueryTimeout), (None, ServerUnavailable)])
def test_a_read_that_takes_too_long_is_named_by_its_limit(seconds, kind):
    """The system itself may give up on a connection without any limit of ours."""
    request = ServerRequest("GET", ("x",), timeout=seconds)
    assert type(no_response("http://h", Failure.TIMEOUT, request)) is kind


def test_a_change_without_an_answer_has_no_known_outcome(server):
    server.responses["POST /queries/q"] = DROP
    with pytest.raises(OutcomePending) as caught:
        Connection(server.url).post("queries", "q", body={}, changes=True)
    assert not caught.value.retryable
