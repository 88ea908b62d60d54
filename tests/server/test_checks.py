"""The checks before a handler: their order and texts; hostile requests get typed JSON errors."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.server.bodies import DEFAULT_LIMIT, LOAD_LIMIT, BodyTimes
from tests.server.serving import (
    ADD,
    PEOPLE,
    QUERIES,
    Client,
    ListedAccess,
    Server,
    ndjson,
    open_served,
    serving,
)


@pytest.fixture(scope="module")
def access() -> ListedAccess:
    return ListedAccess()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, access: ListedAccess) -> Iterator[Server]:
    times = BodyTimes(idle=0.3, total=1.5)
    tokens = {"secret-ana": "ana", "secret-bo": "bo"}
    with (
        open_served(tmp_path_factory.mktemp("checks") / "g.omni") as graph,
        serving({"g": graph}, queries=QUERIES, tokens=tokens, access=access, times=times) as server,
    ):
        yield server


@pytest.fixture
def ana(server: Server, access: ListedAccess) -> Iterator[Client]:
    access.denied, access.hidden = set(), set()
    yield server.client("secret-ana", "g")
    access.denied, access.hidden = set(), set()


# -- the order -------------------------------------------------------------------------------


def test_the_checks_come_in_the_order_of_the_contract(
    server: Server, ana: Client, access: ListedAccess
) -> None:
    """Each request breaks everything that comes later too."""
    access.denied = {"change"}
    nobody, root = server.client(), server.client("secret-ana")
    nobody.post("/graphs/under_score/nowhere", raw=b"{").fails(404, "nothing at this path")
    nobody.post("/graphs/under_score/mutate", raw=b"{").fails(401, "missing bearer token")
    root.post("/graphs/under_score/mutate", raw=b"{").fails(400, "invalid graph id")
    root.post("/graphs/absent/mutate", raw=b"{").fails(404, "graph 'absent' not found")
    ana.post("/mutate", raw=b"{").fails(415, "Content-Type")
    ana.post("/mutate", raw=b"{", headers=_JSON).fails(400, "not JSON")
    ana.post("/mutate", {"params": {}}).fails(422, "query")
    ana.post("/mutate", {"query": "nonsense"}).fails(403, "policy denied")
    access.denied = set()
    ana.post("/mutate", {"query": "nonsense"}).fails(400, "parse error")


def test_a_denied_write_takes_no_slot(server: Server, ana: Client, access: ListedAccess) -> None:
    access.denied = {"change"}
    refused = server.process.admission.refused
    for _ in range(40):
        ana.post("/mutate", {"query": ADD}).fails(403)
    assert server.process.admission.refused == refused
    assert server.process.admission.in_flight == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "missing bearer token"),
        ("secret-ana", "missing bearer token"),
        ("bearer secret-ana", "missing bearer token"),
        ("Basic secret-ana", "missing bearer token"),
        ("Bearer  secret-ana", "invalid bearer token"),
        ("Bearer secret-an", "invalid bearer token"),
        ("Bearer secret-ana2", "invalid bearer token"),
        ("Bearer \u00e9", "missing bearer token"),
    ],
)
def test_only_an_exact_bearer_token_is_accepted(
    server: Server, value: str | None, text: str
) -> None:
    headers = {} if value is None else {"Authorization": value}
    answer = server.client().get("/graphs/g/schema", headers=headers)
    assert answer.fails(401, text)["code"] == "unauthorized"
    assert "www-authenticate" not in answer.headers


def test_the_actor_comes_from_the_token_alone(ana: Client) -> None:
    headers = {"X-Actor-Id": "eve", "Omnigraph-Actor": "eve"}
    body = {"query": ADD, "params": {"name": "by-ana"}, "actor_id": "eve", "actor": "eve"}
    made = ana.post("/mutate", body, headers=headers).ok()
    assert (made["actor_id"], made["commit"]["actor_id"]) == ("ana", "ana")


def test_a_repeated_authorization_is_refused(server: Server) -> None:
    head = b"GET /graphs/g/schema HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    once = b"Authorization: Bearer secret-ana\r\n"
    assert server.raw(head + once + b"\r\n").startswith(b"HTTP/1.1 200")
    twice = server.raw(head + once + once + b"\r\n")
    assert twice.startswith(b"HTTP/1.1 400")
    assert b'"reason":"repeated_header"' in twice


# -- bodies ----------------------------------------------------------------------------------

_JSON = {"Content-Type": "application/json"}
_QUERY = json.dumps({"query": PEOPLE}).encode()


def _padded(size: int) -> bytes:
    """A valid request of an exact size."""
    body = json.dumps({"query": PEOPLE, "pad": ""}).encode()
    return body[:-2] + b"x" * (size - len(body)) + body[-2:]


_NESTED = b'{"query":"q","params":' + b"[" * 50_000 + b"]" * 50_000 + b"}"
BODIES: list[tuple[str, bytes, int, str]] = [
    ("brackets", b"[" * 100_000, 422, "body_shape"),
    (
        "nested",
        b'{"query":"q","params":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        400,
        "body_not_json",
    ),
    ("not UTF-8", b'{"query": "\xff\xfe"}', 400, "body_not_json"),
    ("a lone surrogate", b'{"query": "\\ud800"}', 400, ""),
    ("empty", b"", 400, "body_not_json"),
    ("null", b"null", 422, "body_shape"),
    ("a list", b"[]", 422, "body_shape"),
    ("a missing member", b"{}", 422, "body_shape"),
    ("a wrong type", b'{"query": 1}', 422, "body_shape"),
    ("a repeated key", b'{"query": "a", "query": "b"}', 422, "repeated_key"),
    ("a repeated key inside", b'{"query": "a", "params": {"n": 1, "n": 2}}', 422, "repeated_key"),
    ("two documents", b'{"query": "a"} {}', 400, "body_not_json"),
    ("NaN", b'{"query": "a", "params": {"x": NaN}}', 400, "body_not_json"),
    ("a huge number", b'{"query": "a", "params": {"x": 1e999}}', 422, ""),
    ("many digits", b'{"query": "a", "params": {"x": ' + b"9" * 9_000 + b"}}", 422, ""),
    ("a byte too many", _padded(DEFAULT_LIMIT + 1), 413, "body_too_large"),
]


@pytest.mark.parametrize(
    ("body", "status", "reason"), [case[1:] for case in BODIES], ids=[case[0] for case in BODIES]
)
def test_a_malformed_body_is_refused_with_its_reason(
    ana: Client, body: bytes, status: int, reason: str
) -> None:
    answer = ana.post("/query", raw=body, headers=_JSON).fails(status)
    assert answer["code"] == "bad_request"
    assert not reason or answer["reason"] == reason


def test_a_body_may_have_exactly_the_limit(ana: Client) -> None:
    ana.post("/query", raw=_padded(DEFAULT_LIMIT), headers=_JSON).ok()
    lines = ndjson([{"type": "City", "data": {"name": f"c{n}"}} for n in range(4)])
    data = lines + "\n" * (DEFAULT_LIMIT + 1)
    ana.post("/load", {"data": data}).ok()
    too_large = b'{"data": "' + b" " * LOAD_LIMIT + b'"}'
    answer = ana.post("/load", raw=too_large, headers=_JSON)
    answer.fails(413)
    assert "connection" not in answer.headers


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_the_limit_counts_decoded_bytes(ana: Client, encoding: str) -> None:
    headers = {**_JSON, "Content-Encoding": encoding}
    ana.post("/query", raw=_packed(_QUERY, encoding), headers=headers).ok()
    ana.post("/query", raw=_packed(_padded(DEFAULT_LIMIT), encoding), headers=headers).ok()
    bomb = _packed(b" " * (64 << 20), encoding)
    assert len(bomb) < DEFAULT_LIMIT
    ana.post("/query", raw=bomb, headers=headers).fails(413)
    packed = _packed(_QUERY, encoding)
    for broken in (b"nonsense", packed[: len(packed) // 2], b""):
        ana.post("/query", raw=broken, headers=headers).fails(400)


def _packed(content: bytes, encoding: str) -> bytes:
    if encoding == "gzip":
        return gzip.compress(content)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, encoding) as stream:
        stream.write(content)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def test_other_encodings_and_types_are_refused(ana: Client) -> None:
    headers = {**_JSON, "Content-Encoding": "br"}
    ana.post("/query", raw=_QUERY, headers=headers).fails(415, "'br'")
    for given in ("text/plain", "application/x-www-form-urlencoded", "application/x-ndjson"):
        ana.post("/query", raw=_QUERY, headers={"Content-Type": given}).fails(415)
    for given in ("application/json; charset=utf-8", "Application/JSON", "application/x+json"):
        ana.post("/query", raw=_QUERY, headers={"Content-Type": given}).ok()
    ana.post("/load/ndjson", raw=b"", headers=_JSON).fails(415, "application/x-ndjson")


def test_a_body_that_stops_arriving_is_refused(server: Server) -> None:
    head = (
        b"POST /graphs/g/query HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret-ana\r\n"
        b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n"
    )
    answer = server.raw(head + b'{"query": ')
    assert answer.startswith(b"HTTP/1.1 408")
    assert b'"reason":"body_timeout"' in answer
    assert b"connection: close" in answer.lower()


def test_a_body_that_arrives_byte_by_byte_has_a_limit_too(server: Server) -> None:
    answer = server.dribble(
        b"POST /graphs/g/query HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret-ana\r\n"
        b"Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n",
        b" ",
        pause=0.05,
    )
    assert answer.startswith(b"HTTP/1.1 408")


# -- paths, headers, query strings -----------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/graphs/%2e%2e/schema", 400),
        ("GET", "/graphs/../schema", 400),
        ("GET", "/graphs/g%2Fschema", 404),
        ("GET", "/graphs/g/", 404),
        ("GET", "/graphs//schema", 404),
        ("GET", "/graphs/g/schema/", 404),
        ("GET", "//graphs/g/schema", 404),
        ("GET", "/graphs/%ff/schema", 400),
        ("GET", "/graphs/g/commits/%ff", 400),
        ("GET", "/graphs/g/commits/..%2F..%2Fetc%2Fpasswd", 404),
        ("DELETE", "/graphs/g/branches/%2e%2e", 404),
        ("DELETE", "/graphs/g/branches/%00", 400),
        ("DELETE", "/graphs/g/branches/a%2Fb", 404),
        ("DELETE", "/graphs/g/branches/merge", 405),
        ("GET", "/graphs/g/branches?branch=%ff", 200),
        ("GET", "/graphs/g/snapshot?branch=%ff", 400),
        ("GET", "/graphs/g/snapshot?branch=%00", 400),
        ("GET", "/graphs/g/snapshot?branch=a&branch=b", 400),
        ("GET", "/graphs/g/snapshot?branch=absent", 404),
        ("GET", "/graphs/g/snapshot?branch=", 200),
        ("GET", "/graphs/g/commits?limit=0", 400),
        ("GET", "/graphs/g/commits?limit=x", 400),
        ("GET", "/graphs/g/commits?limit=1&unknown=1", 200),
        ("GET", "/graphs/policies/schema", 400),
        ("GET", "/graphs/" + "g" * 65 + "/schema", 400),
        ("OPTIONS", "/graphs/g/schema", 405),
        ("PATCH", "/graphs/g/schema", 405),
        ("GET", "/snapshot", 404),
        ("GET", "/read", 404),
        ("GET", "/?" + "x" * 20_000, 414),
    ],
)
def test_paths_and_query_strings(
    server: Server, ana: Client, method: str, path: str, status: int
) -> None:
    answer = server.client("secret-ana").request(method, path)
    assert answer.status == status, answer.body
    if status != 200:
        assert answer.json["request_id"] == answer.headers["omnigraph-request-id"]


@pytest.mark.parametrize("branch", ["null", "true", "1", "none"])
def test_a_parameter_is_a_text_whatever_it_looks_like(ana: Client, branch: str) -> None:
    ana.get(f"/snapshot?branch={branch}").fails(404, f"branch '{branch}' not found")


def test_many_or_large_headers_are_refused(server: Server) -> None:
    client = server.client("secret-ana")
    many = {f"x-{n}": "1" for n in range(98)}
    client.get("/graphs/g/schema", headers=many).fails(431)
    client.get("/graphs/g/schema", headers={"x": "y" * 60_000}).ok()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"nonsense\r\n\r\n",
        b"\x00\xff\xfe\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /a b HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        b"GET / HTTP/1.1\r\n: empty\r\n\r\n",
        b"POST /graphs/g/query HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /graphs/g/query HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nx: " + b"y" * 200_000 + b"\r\n\r\n",
        b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ],
    ids=lambda request_bytes: repr(request_bytes[:40]),
)
def test_what_is_not_http_gets_a_typed_error_too(server: Server, request_bytes: bytes) -> None:
    answer = server.raw(request_bytes)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split(b" ")[1] in (b"400", b"404", b"414", b"431"), head
    assert {"error", "code", "reason", "request_id"} <= json.loads(body).keys()


def test_a_version_of_the_interface_that_we_do_not_speak_is_refused(ana: Client) -> None:
    answer = ana.get("/schema", headers={"Omnigraph-Http-Api": "0.8"})
    assert answer.ok()
    assert answer.headers["omnigraph-http-api"] == "0.8"
    assert "omnigraph-http-api" not in ana.get("/schema").headers
    refused = ana.get("/schema", headers={"Omnigraph-Http-Api": "7"}).fails(400)
    assert refused["reason"] == "api_contract_mismatch"


def test_a_request_id_is_taken_over_or_made(ana: Client) -> None:
    given = ana.get("/schema", headers={"Omnigraph-Request-Id": "trace-1.2"})
    assert given.headers["omnigraph-request-id"] == "trace-1.2"
    for hostile in ("x" * 100, 'a"b', "ü"):
        headers = {"Omnigraph-Request-Id": hostile}
        assert ana.get("/schema", headers=headers).headers["omnigraph-request-id"] != hostile


def test_no_request_of_this_file_was_an_internal_error(server: Server) -> None:
    events = [line for line in server.log_lines() if line["event"] == "internal error"]
    assert events == []


# -- flat routes -----------------------------------------------------------------------------


def test_flat_routes_exist_on_request_and_for_one_graph_only(tmp_path: Path) -> None:
    with open_served(tmp_path / "g.omni") as graph:
        with serving({"g": graph}, queries=QUERIES, flat=True) as server:
            client = server.client()
            assert "Person" in client.get("/schema").ok()["schema_source"]
            assert client.post("/query", {"query": PEOPLE}).ok()["row_count"] == 2
            assert client.post("/queries/adults", {"params": {"age": 1}}).ok()["row_count"] == 2
            client.get("/nowhere").fails(404)
        with serving({"g": graph, "h": graph}, flat=True) as server:
            server.client().get("/schema").fails(404)
