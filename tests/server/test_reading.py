"""Reads over HTTP: queries, values, stored queries, snapshots, exports."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.server.boot import Quarantine
from omnigraph.server.handlers import reading
from tests.server.serving import (
    ADD,
    PEOPLE,
    QUERIES,
    Client,
    ListedAccess,
    Server,
    open_served,
    serving,
)

VALUES = [
    {
        "type": "Person",
        "data": {
            "name": "Ada",
            "age": -1,
            "big": 9007199254740993,
            "born": "1815-12-10",
            "seen": "1852-11-27T10:20:30.045Z",
            "score": 0.5,
            "tags": ["a", "ü"],
        },
    },
    {"type": "Person", "data": {"name": "Bo"}},
    {"type": "City", "data": {"name": "London"}},
    {"edge": "LivesIn", "from": "Ada", "to": "London"},
]


@pytest.fixture(scope="module")
def access() -> ListedAccess:
    return ListedAccess()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, access: ListedAccess) -> Iterator[Server]:
    queries = {**QUERIES, "delete_all": 'query delete_all() { delete City where name = "x" }'}
    with (
        open_served(tmp_path_factory.mktemp("reading") / "g.omni", VALUES) as graph,
        serving(
            {"g": graph}, queries=queries, tokens={"t": "ana", "u": "bo"}, access=access
        ) as server,
    ):
        yield server


@pytest.fixture
def ana(server: Server, access: ListedAccess) -> Iterator[Client]:
    access.denied = set()
    yield server.client("t", "g")
    access.denied = set()


# -- queries ---------------------------------------------------------------------------------


def test_values_are_written_as_the_contract_says(ana: Client) -> None:
    text = (
        "query all() { match { $p: Person } return { $p, $p.age, $p.big, $p.born, $p.seen, "
        "$p.score, $p.tags } order { $p.name } }"
    )
    answer = ana.post("/query", {"query": text}).ok()
    assert answer["rows"] == [
        {
            "p": "Ada",
            "p.age": -1,
            "p.big": 9007199254740993,
            "p.born": "1815-12-10",
            "p.seen": "1852-11-27T10:20:30.045Z",
            "p.score": 0.5,
            "p.tags": ["a", "ü"],
        },
        {
            "p": "Bo",
            "p.age": None,
            "p.big": None,
            "p.born": None,
            "p.seen": None,
            "p.score": None,
            "p.tags": None,
        },
    ]
    assert list(answer["rows"][0]) == answer["columns"]
    headers = {"Prefer": "respond-async, integers=string"}
    preferred = ana.post("/query", {"query": text}, headers=headers)
    assert preferred.ok()["rows"][0]["p.big"] == "9007199254740993"
    assert preferred.ok()["rows"][0]["p.age"] == -1
    assert preferred.headers["preference-applied"] == "integers=string"


def test_infinite_numbers_are_strings(ana: Client) -> None:
    text = 'query q($x: F64) { match { $p: Person { name: "Ada" } } return { $x as x } }'
    for given in ("NaN", "Infinity", "-Infinity"):
        answer = ana.post("/query", {"query": text, "params": {"x": given}})
        if answer.status == 200:
            assert answer.json["rows"] == [{"x": given}]
        else:
            answer.fails(400, "x")


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"query": PEOPLE, "branch": "main", "snapshot": "x"}, 400, "branch or snapshot, not both"),
        ({"query": PEOPLE + PEOPLE.replace("people", "other")}, 400, "multiple queries"),
        ({"query": PEOPLE, "name": "nope"}, 400, "query 'nope' not found"),
        ({"query": PEOPLE, "branch": "nope"}, 404, "branch 'nope' not found"),
        ({"query": PEOPLE, "snapshot": "nope"}, 404, "commit 'nope' not found"),
        ({"query": PEOPLE, "params": [1]}, 400, "params must be an object"),
        ({"query": QUERIES["adults"]}, 400, "age"),
        ({"query": QUERIES["adults"], "params": {"age": "x"}}, 400, "age"),
        ({"query": ADD, "params": {"name": "x"}}, 400, "contains mutations"),
        ({"query": ADD, "params": {"name": "x"}}, 400, "POST /mutate"),
        ({"query": ""}, 400, "no query"),
        ({"query": "/etc/passwd"}, 400, "parse error"),
        ({"query": "query q() { match { $p: Nope } return { $p } }"}, 400, "Nope"),
        ({"query": "query q() { match { $p: Person } return { $p as a, $p as a } }"}, 400, "a"),
    ],
)
def test_an_invalid_query_is_refused(
    ana: Client, body: dict[str, Any], status: int, text: str
) -> None:
    ana.post("/query", body).fails(status, text)


def test_an_error_in_a_text_has_a_typed_diagnostic(ana: Client) -> None:
    text = "query q() {\n  match { $p: Nope }\n  return { $p } }"
    diagnostic = ana.post("/query", {"query": text}).fails(400)["diagnostic"]
    assert (diagnostic["line"], diagnostic["phase"], diagnostic["severity"]) == (2, "type", "error")
    assert text.encode()[slice(*diagnostic["span"].values())] == b"Nope"


def test_the_deprecated_read_is_frozen(ana: Client) -> None:
    answer = ana.post("/read", {"query_source": PEOPLE, "query_name": "people"})
    assert answer.headers["deprecation"] == "true"
    assert "graph_commit_id" not in answer.ok()
    refused = ana.post("/read", {"query_source": ADD, "params": {"name": "x"}})
    assert "deprecation" not in refused.headers
    refused.fails(400)
    ana.post("/read", {"query": PEOPLE}).fails(422)


def test_a_commit_can_be_read(server: Server, ana: Client, access: ListedAccess) -> None:
    first = ana.post("/query", {"query": PEOPLE}).ok()["graph_commit_id"]
    ana.post("/mutate", {"query": ADD, "params": {"name": "Later"}}).ok()
    old = ana.post("/query", {"query": PEOPLE, "snapshot": first}).ok()
    assert old["target"] == {"branch": None, "snapshot": first}
    assert "Later" not in json.dumps(old["rows"])
    assert "Later" in json.dumps(ana.post("/query", {"query": PEOPLE}).ok()["rows"])
    access.denied = {("read", "main")}
    body = {"query": PEOPLE, "snapshot": first}
    ana.post("/query", body).fails(403)
    # Who may not list commits cannot tell a hidden one from one that does not exist.
    access.denied = {"read"}
    hidden = ana.post("/query", body).fails(404)
    absent = ana.post("/query", {"query": PEOPLE, "snapshot": "absent"}).fails(404)
    assert hidden["error"].replace(first, "?") == absent["error"].replace("absent", "?")
    assert hidden["reason"] == absent["reason"]


def test_a_read_includes_a_commit_that_the_client_names(ana: Client) -> None:
    made = ana.post("/mutate", {"query": ADD, "params": {"name": "Named"}})
    headers = {"Omnigraph-Commit": made.headers["omnigraph-commit"]}
    answer = ana.post("/query", {"query": PEOPLE}, headers=headers).ok()
    assert "Named" in json.dumps(answer["rows"])


def test_unknown_commits_do_not_drop_caches_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.server.state._REFRESH_SECONDS", 3_600.0)
    with open_served(tmp_path / "g.omni") as graph, serving({"g": graph}) as server:
        refreshed: list[None] = []
        refresh = graph.refresh
        graph.refresh = lambda: (refreshed.append(None), refresh())[1]  # type: ignore[method-assign]
        client = server.client(graph="g")
        for number in range(10):
            headers = {"Omnigraph-Commit": f"absent-{number}"}
            client.post("/query", {"query": PEOPLE}, headers=headers).ok()
        assert len(refreshed) == 1


def test_limits_of_a_query_are_typed(tmp_path: Path) -> None:
    from omnigraph.server.config import QueryLimits

    with open_served(tmp_path / "g.omni", VALUES) as graph:
        with serving({"g": graph}, limits=QueryLimits(max_rows=1)) as server:
            refused = server.client(graph="g").post("/query", {"query": PEOPLE}).fails(413)
            assert refused["reason"] == "row_limit_exceeded"
        with serving({"g": graph}, limits=QueryLimits(timeout=0.0)) as server:
            refused = server.client(graph="g").post("/query", {"query": PEOPLE}).fails(504)
            assert refused["reason"] == "query_timeout"


# -- stored queries --------------------------------------------------------------------------


def test_a_stored_query_takes_any_empty_body(ana: Client) -> None:
    ana.post("/queries/adults", raw=b"").fails(400, "age")
    ana.post("/queries/delete_all", raw=b"").ok()
    ana.post("/queries/delete_all", raw=b"null").ok()
    ana.post("/queries/delete_all", raw=b" {} ").ok()
    text = "invalid stored-query invocation body: "
    for malformed in (b"{", b"[]", b'{"params": 1, "params": 2}', b'{"expect_mutation": "x"}'):
        ana.post("/queries/delete_all", raw=malformed).fails(400, text)


def test_an_unknown_and_a_denied_stored_query_look_the_same(
    ana: Client, access: ListedAccess
) -> None:
    headers = {"Omnigraph-Request-Id": "same"}
    unknown = ana.post("/queries/absent", {"params": {}}, headers=headers)
    access.denied = {"invoke_query"}
    denied = ana.post("/queries/adults", {"params": {"age": 1}}, headers=headers)
    assert unknown.fails(404)["error"] == "stored query not found"
    assert (denied.status, denied.body, denied.headers) == (
        unknown.status,
        unknown.body,
        unknown.headers,
    )
    # Nor does the list name it.
    assert ana.get("/queries").ok()["queries"] == []
    access.denied = {("invoke_query", "query", "adults")}
    listed = [query["name"] for query in ana.get("/queries").ok()["queries"]]
    assert "adults" not in listed
    assert len(listed) == 2


def test_a_stored_query_asserts_its_kind(ana: Client, access: ListedAccess) -> None:
    body = {"params": {"age": 1}, "expect_mutation": True}
    text = "'adults' is a read — use omnigraph query adults"
    ana.post("/queries/adults", body).fails(400, text)
    body = {"params": {"name": "x"}, "expect_mutation": False}
    text = "'add_person' is a mutation — use omnigraph mutate add_person"
    ana.post("/queries/add_person", body).fails(400, text)
    body = {"params": {"name": "x"}, "snapshot": "s"}
    ana.post("/queries/add_person", body).fails(400, "stored mutation cannot target a snapshot")
    # The kind comes before the right to read or change.
    access.denied = {"change", "read"}
    ana.post("/queries/add_person", {"expect_mutation": False}).fails(400)
    ana.post("/queries/add_person", {"params": {"name": "x"}}).fails(403, "change")
    ana.post("/queries/adults", {"params": {"age": 1}}).fails(403, "read")


def test_a_stored_query_runs_on_a_branch_or_at_a_commit(ana: Client) -> None:
    ana.post("/branches", {"name": "stored"}).ok()
    body = {"params": {"name": "Only here"}, "branch": "stored"}
    assert ana.post("/queries/add_person", body).ok()["branch"] == "stored"
    people = ana.post("/query", {"query": PEOPLE, "branch": "stored"}).ok()
    assert "Only here" in json.dumps(people["rows"])
    body = {"params": {"age": -5}, "snapshot": people["graph_commit_id"]}
    answer = ana.post("/queries/adults", body).ok()
    assert answer["query_name"] == "adults"
    assert answer["target"]["snapshot"] == people["graph_commit_id"]
    ana.delete("/branches/stored").ok()


def test_parameters_are_described(tmp_path: Path) -> None:
    text = (
        "query q($a: String, $b: Bool?, $c: I32, $d: U32, $e: I64, $f: U64, $g: F32, $h: F64, "
        "$i: Date, $j: DateTime, $k: [I64]?, $l: Vector(3)) "
        "{ match { $p: Person } return { $p.name } }"
    )
    with (
        open_served(tmp_path / "g.omni", VALUES) as graph,
        serving({"g": graph}, queries={"q": text}) as server,
    ):
        entry = server.client(graph="g").get("/queries").ok()["queries"][0]
    described = [
        (p["kind"], p["nullable"], p.get("item_kind"), p.get("vector_dim")) for p in entry["params"]
    ]
    assert described == [
        ("string", False, None, None),
        ("bool", True, None, None),
        ("int", False, None, None),
        ("int", False, None, None),
        ("bigint", False, None, None),
        ("bigint", False, None, None),
        ("float", False, None, None),
        ("float", False, None, None),
        ("date", False, None, None),
        ("datetime", False, None, None),
        ("list", True, "bigint", None),
        ("vector", False, None, 3),
    ]


# -- exports ---------------------------------------------------------------------------------


def test_an_export_is_refused_before_its_first_byte(ana: Client) -> None:
    ana.post("/export", {"branch": "absent"}).fails(404, "branch 'absent' not found")
    ana.post("/export", {"type_names": ["Nope"]}).fails(400, "unknown export type 'Nope'")
    ana.post("/export", {"table_keys": ["Person"]}).fails(400, "unknown export table 'Person'")


def test_an_export_can_be_loaded_again(ana: Client) -> None:
    cities = ana.post("/export", {"type_names": ["City"]}).body
    assert [json.loads(line)["data"]["name"] for line in cities.splitlines()] == ["London"]
    both = ana.post("/export", {"type_names": ["City"], "table_keys": ["edge:LivesIn"]}).body
    assert len(both.splitlines()) == 2
    loaded = ana.post("/load", {"data": both.decode()}).ok()
    assert [table["rows_loaded"] for table in loaded["tables"]] == [1, 1]


def test_an_export_is_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces are made when the ones before are taken, and leaving stops the work."""
    rows = [{"type": "City", "data": {"name": f"{n:06}" + "x" * 2_000}} for n in range(12_000)]
    made: list[int] = []
    has_ended = threading.Event()
    pieces = reading._pieces

    def counted(lines: Iterator[str]) -> Iterator[bytes]:
        try:
            for piece in pieces(lines):
                made.append(len(piece))
                yield piece
        finally:
            has_ended.set()

    monkeypatch.setattr(reading, "_pieces", counted)
    with open_served(tmp_path / "g.omni", rows) as graph, serving({"g": graph}) as server:
        with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            connection.sendall(
                b"POST /graphs/g/export HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                b"Content-Length: 2\r\n\r\n{}"
            )
            assert connection.recv(4_096).startswith(b"HTTP/1.1 200")
        assert has_ended.wait(30)
        left_after = len(made)
        made.clear()
        whole = server.client(graph="g").post("/export", {}).body
        assert len(whole.splitlines()) == len(rows)
        assert sum(made) == len(whole)
        # The buffers of a socket do not hold the whole of it.
        assert left_after < len(made)


# -- readiness -------------------------------------------------------------------------------


def test_readiness_counts_and_names_nothing(tmp_path: Path) -> None:
    refused = Quarantine("secret-graph", "format_refused", "written by version 9 at /secret/path")
    broken = Quarantine("other", "storage_missing", "no such file /secret/path")
    with (
        open_served(tmp_path / "g.omni") as graph,
        serving({"g": graph}, unserved=(refused, broken), tokens={"t": "ana"}) as server,
    ):
        answer = server.client().get("/readyz")
        body = answer.ok()
        assert (body["status"], body["served"], body["unserved"]) == ("degraded", 1, 2)
        assert {reason["code"] for reason in body["reasons"]} == {
            "format_refused",
            "storage_missing",
        }
        assert "export" in json.dumps(body["reasons"])
        assert "load" in json.dumps(body["reasons"])
        assert b"secret" not in answer.body
        server.swap(run_state="default_deny", unserved={})
        body = server.client().get("/readyz").ok()
        assert body["status"] == "ready"
        assert "default-deny" in body["warnings"][0]
        server.process.is_draining = True
        assert server.client().get("/readyz").status == 503
        assert server.client().get("/healthz").ok()["status"] == "ok"


def test_a_look_up_by_key_needs_no_thread_once_its_table_is_in_memory(
    server: Server, ana: Client
) -> None:
    body = {
        "query": "query q($n: String) { match { $p: Person { name: $n } } return { $p.age } }",
        "params": {"n": "Ada"},
    }

    def answer() -> tuple[Any, int]:
        answer = ana.post("/query", body).ok()
        return answer, queued(server)

    def queued(server: Server) -> int:
        families = server.process.metrics.snapshot()
        (family,) = [f for f in families if f.name == "omnigraph_queue_seconds"]
        return int(sum(s.value for s in family.samples if s.name.endswith("_count")))

    first = [answer() for _ in range(20)]
    assert all(rows == first[0][0] for rows, _ in first)
    # Not one of the last ones has waited for a thread.
    assert first[-1][1] == first[-2][1] == queued(server)
