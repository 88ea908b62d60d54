"""Requests of a remote graph against a server that answers what a test tells it to."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph
from omnigraph import Graph
from omnigraph.errors import (
    Conflict,
    HistoryGone,
    LimitExceeded,
    MergeConflicts,
    NotServed,
    OutcomePending,
    ParameterError,
    PolicyDenied,
    QueryError,
    ServerError,
    ServerUnavailable,
    StorageUnavailable,
    Unauthorized,
    VersionMismatch,
)
from omnigraph.result.wire import ARROW_STREAM, ArrowPieces
from tests.client.stub import DROP, stub_server

SCHEMA = """\
node Person { name: String @key  age: I64?  born: Date?  seen: DateTime?  photo: Blob? }
edge Knows: Person -> Person { since: Date? }
"""
QUERY = "query q() { match { $p: Person } return { $p.name, $p.age } }"
COMMIT = {
    "graph_commit_id": "01A",
    "manifest_branch": None,
    "manifest_version": 3,
    "parent_commit_id": None,
    "merged_parent_commit_id": None,
    "actor_id": "ana",
    "created_at": 5,
    "kind": "load",
    "completes": ["01X"],
    "group": {"id": "01B", "index": 0, "size": 2},
}
LOADED = {
    "branch": "main",
    "branch_created": False,
    "base_branch": None,
    "nodes": [{"name": "Person", "entities_loaded": 2}],
    "edges": [],
    "actor_id": "ana",
    "commit": COMMIT,
}


@pytest.fixture
def server():
    with stub_server() as stub:
        stub.responses["GET /graphs/kb/schema"] = {"schema_source": SCHEMA}
        stub.responses["POST /graphs/kb/load/ndjson?branch=main&mode=merge"] = LOADED
        stub.responses["POST /graphs/kb/load/ndjson?branch=main&mode=append"] = LOADED
        yield stub


@pytest.fixture
def graph(server):
    with omnigraph.connect(server.url, graph="kb", token="secret") as graph:
        yield graph


# -- reads ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    with Graph.init(tmp_path_factory.mktemp("wire") / "g.omni", SCHEMA) as graph:
        graph.load(
            [
                {"type": "Person", "data": {"name": "Ana", "age": 2**60, "born": "1990-01-31"}},
                {"type": "Person", "data": {"name": "Bo", "seen": "2026-01-31T12:00:00.123Z"}},
                {"edge": "Knows", "from": "Ana", "to": "Bo", "data": {}},
            ]
        )
        yield graph


@pytest.mark.parametrize(
    "text",
    [
        QUERY,
        "query q() { match { $p: Person } return { $p } }",
        "query q() { match { $a: Person $a knows $b } return { $a, $b, $b.seen, $a.born } }",
        "query q() { match { $p: Person } return { count($p) as n } }",
        'query q() { match { $p: Person { name: "No" } } return { $p.name } }',
    ],
)
def test_a_result_survives_the_wire(server, graph, local, text):
    expected = local.query(text)
    server.responses["POST /graphs/kb/query"] = (
        200,
        b"".join(ArrowPieces(local.query(text))),
        {"Content-Type": ARROW_STREAM},
    )
    result = graph.query(text)
    assert result.envelope() == expected.envelope()
    assert result.to_arrow().equals(expected.to_arrow())
    assert repr(result) == repr(expected)
    assert (result._columns, result._links) == (expected._columns, expected._links)


def test_a_query_is_one_request(server, graph):
    params = {"d": date(2026, 1, 31), "t": datetime(2026, 1, 31, tzinfo=UTC), "b": b"x", "n": None}
    server.responses["POST /graphs/kb/query"] = {"rows": []}
    with pytest.raises(ServerError, match="does not return rows as Arrow"):
        graph.query(QUERY, "q", params, "side")
    request = server.requests[0]
    assert request.headers["Authorization"] == "Bearer secret"
    assert request.headers["Accept"] == ARROW_STREAM
    assert request.body == {
        "query": QUERY,
        "name": "q",
        "params": {
            "d": "2026-01-31",
            "t": "2026-01-31T00:00:00+00:00",
            "b": "base64:eA==",
            "n": None,
        },
        "branch": "side",
    }


def test_rows_that_are_cut_are_an_error_and_stay_one(server, graph, local):
    data = b"".join(ArrowPieces(local.query(QUERY)))
    headers = {"Content-Type": ARROW_STREAM}
    server.responses["POST /graphs/kb/query"] = (200, data[:-40], headers, len(data))
    result = graph.query(QUERY)
    for _ in range(2):
        with pytest.raises(ServerUnavailable, match="broke"):
            result.rows()


def test_a_snapshot_is_pinned_to_a_commit(server, graph):
    tables = [
        {
            "table_key": "node:Person",
            "table_path": "p",
            "table_version": 7,
            "table_branch": None,
            "row_count": 2,
        }
    ]
    server.responses["GET /graphs/kb/snapshot?branch=main"] = {
        "branch": "main",
        "manifest_version": 3,
        "internal_schema_version": 4,
        "tables": tables,
    }
    server.responses["GET /graphs/kb/commits?branch=main&limit=1"] = {"commits": [COMMIT]}
    snapshot = graph.snapshot()
    assert (snapshot.commit_id, snapshot.version, snapshot.count("Person")) == ("01A", 3, 2)
    with pytest.raises(omnigraph.OmniGraphError):
        snapshot.query(QUERY)
    assert server.requests[-1].body == {"query": QUERY, "snapshot": "01A"}
    server.responses["POST /graphs/kb/export"] = (200, b'{"a":1}\n{"b":2}\n')
    with pytest.raises(NotServed, match="only the head of a branch"):
        snapshot.export()
    answer = (200, b'{"a":1}\n{"b":2}\n', {"Omnigraph-Snapshot": "01A"})
    server.responses["POST /graphs/kb/export"] = answer
    assert list(snapshot.export(types=["Person", "edge:Knows"])) == ['{"a":1}', '{"b":2}']
    assert server.requests[-1].body == {
        "snapshot": "01A",
        "type_names": ["Person"],
        "table_keys": ["edge:Knows"],
    }


def test_commits_are_newest_first_whatever_the_server_does(server, graph):
    older = {**COMMIT, "graph_commit_id": "01", "created_at": 1}
    for listed in ([COMMIT, older], [older, COMMIT]):
        server.responses["GET /graphs/kb/commits?branch=main"] = {"commits": listed}
        assert [commit.commit_id for commit in graph.commits()] == ["01A", "01"]
    server.responses["GET /graphs/kb/commits/01A"] = COMMIT
    commit = graph.commit("01A")
    assert (commit.branch, commit.completes, commit.kind) == ("main", ("01X",), "load")
    assert commit.group == omnigraph.CommitGroup("01B", 0, 2)


def test_stored_queries_are_listed(server, graph):
    params = [
        {"name": "since", "kind": "date", "nullable": True},
        {"name": "v", "kind": "vector", "vector_dim": 4, "nullable": False},
        {"name": "names", "kind": "list", "item_kind": "string", "nullable": False},
    ]
    entry = {"name": "due", "tool_name": "due", "mutation": False, "params": params}
    server.responses["GET /graphs/kb/queries"] = {"queries": [entry]}
    (query,) = graph.queries.list()
    assert query.params == {"since": "date?", "v": "vector(4)", "names": "[string]"}


# -- writes ---------------------------------------------------------------------------------------


def test_the_commit_of_a_write_is_sent_with_later_requests(server, graph):
    change = {"branch": "main", "query_name": "q", "affected_nodes": 1, "affected_edges": 0}
    done = {**change, "actor_id": "ana", "commit": COMMIT}
    server.responses["POST /graphs/kb/mutate"] = (200, done, {"Omnigraph-Commit": "01A"})
    receipt = graph.mutate("query q() { delete Person }", if_commit="00", idempotency_key="k")
    assert (receipt.commit_id, receipt.version, receipt.affected_nodes) == ("01A", 3, 1)
    assert graph.actor == "ana"
    first = server.requests[0].headers
    assert (first["Omnigraph-If-Graph-Commit"], first["Idempotency-Key"]) == ("00", "k")
    assert "Omnigraph-Commit" not in first
    assert "node Person" in graph.schema.text()
    assert server.requests[1].headers["Omnigraph-Commit"] == "01A"


def sent(server) -> list[dict]:
    body = next(r.body for r in server.requests if "/load/ndjson" in r.path)
    return [json.loads(line) for line in body.splitlines()]


ROW = {"type": "Person", "data": {"name": "Ana", "age": 41}}


def test_a_file_is_sent_as_it_is_with_progress(server, graph, tmp_path):
    file = tmp_path / "d.jsonl"
    file.write_text(f"{json.dumps(ROW)}\n" * 3000 + json.dumps(ROW), "utf-8")
    seen: list[omnigraph.Progress] = []
    receipt = graph.load(file, on_progress=seen.append)
    assert receipt.tables["node:Person"].inserted == 2
    assert receipt.commit_id == "01A"
    assert sent(server) == [ROW] * 3001
    sizes = [step.done for step in seen if step.phase == "sending"]
    assert sizes == sorted(sizes)
    assert sizes[-1] == file.stat().st_size + 1
    assert seen[-1].phase == "loading"


@pytest.mark.parametrize(
    "given",
    [
        lambda folder: [ROW],
        lambda folder: [{"type": "Person", "data": {"name": "Ana", "age": 41}}],
        lambda folder: open(folder / "d.jsonl", "rb"),  # noqa: SIM115
        lambda folder: folder / "d.jsonl.gz",
        lambda folder: [folder / "d.jsonl"],
        lambda folder: folder / "Person.csv",
        lambda folder: folder / "Person.parquet",
        lambda folder: {"Person": pa.table({"name": ["Ana"], "age": [41]})},
    ],
)
def test_data_of_any_kind_becomes_lines(server, graph, tmp_path, given):
    (tmp_path / "d.jsonl").write_text(json.dumps(ROW), "utf-8")
    (tmp_path / "d.jsonl.gz").write_bytes(gzip.compress(json.dumps(ROW).encode()))
    (tmp_path / "Person.csv").write_text("name,age\nAna,41\n", "utf-8")
    pq.write_table(pa.table({"name": ["Ana"], "age": [41]}), tmp_path / "Person.parquet")
    data = given(tmp_path)
    graph.load(data)
    if hasattr(data, "close"):
        data.close()
    assert sent(server) == [ROW]


def test_typed_rows_keep_their_values(server, graph):
    people = pa.table(
        {
            "name": ["Ana"],
            "born": pa.array([date(1990, 1, 31)], pa.date32()),
            "seen": pa.array([1_769_860_800_123], pa.date64()),
            "photo": pa.array([b"hi"], pa.binary()),
        }
    )
    knows = pa.table({"src": ["Ana"], "dst": ["Ana"], "since": [None]})
    receipt = graph.append({"Person": people, "Knows": knows})
    assert type(receipt) is omnigraph.Receipt
    person = {
        "name": "Ana",
        "born": "1990-01-31",
        "seen": "2026-01-31T12:00:00.123000",
        "photo": "base64:aGk=",
    }
    assert sent(server) == [
        {"type": "Person", "data": person},
        {"edge": "Knows", "from": "Ana", "to": "Ana", "data": {"since": None}},
    ]


def test_a_file_that_cannot_be_read_sends_nothing_whole(server, graph, tmp_path):
    (tmp_path / "Person.csv").write_text("name\n'x\"y\nAna,1\n", "utf-8")
    with pytest.raises(omnigraph.InputError, match=r"Person\.csv"):
        graph.load(tmp_path / "Person.csv")
    assert all("/load/ndjson" not in request.path for request in server.requests)


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "kind", "details"),
    [
        ((401, {"error": "e", "code": "unauthorized", "reason": "unauthorized"}), Unauthorized, {}),
        ((403, {"error": "e", "reason": "policy_denied"}), PolicyDenied, {}),
        ((410, {"error": "e", "reason": "history_gone"}), HistoryGone, {}),
        ((413, {"error": "e", "reason": "body_too_large"}), LimitExceeded, {}),
        ((400, {"error": "e", "reason": "bad_parameter"}), ParameterError, {}),
        ((500, {"error": "internal error", "reason": "internal"}), ServerError, {}),
        ((503, {"error": "e", "reason": "closed"}), ServerUnavailable, {}),
        (
            (503, {"error": "e", "reason": "storage_unavailable"}, {"Retry-After": "2"}),
            StorageUnavailable,
            {"retry_after": 2.0},
        ),
        (
            (429, {"error": "e", "reason": "too_many_requests"}, {"Retry-After": "60"}),
            ServerUnavailable,
            {"retry_after": 60.0},
        ),
        (
            (
                409,
                {
                    "error": "e",
                    "reason": "version_mismatch",
                    "manifest_conflict": {"table_key": "node:P", "expected": 4, "actual": 5},
                },
            ),
            VersionMismatch,
            {"table_key": "node:P", "expected": 4, "actual": 5},
        ),
        (
            (409, {"error": "e", "reason": "merge_conflicts", "merge_conflicts": [{"kind": "x"}]}),
            MergeConflicts,
            {"conflicts": [{"kind": "x"}]},
        ),
        (
            (409, {"error": "e", "reason": "conflict", "details": {"branches": ["side"]}}),
            Conflict,
            {"branches": ["side"]},
        ),
        ((503, {"error": "e", "commit_id": "01A"}), OutcomePending, {"commit_id": "01A"}),
    ],
)
def test_the_reason_of_a_server_picks_the_class(server, graph, answer, kind, details):
    server.responses["GET /graphs/kb/branches"] = answer
    with pytest.raises(omnigraph.OmniGraphError) as caught:
        graph.branches.list()
    assert type(caught.value) is kind
    assert caught.value.details.items() >= details.items()
    assert caught.value.retry_after == details.get("retry_after")


@pytest.mark.parametrize("retryable", [True, False])
def test_whether_to_repeat_is_what_the_server_says(server, graph, retryable):
    body = {"error": "e", "reason": "conflict", "retryable": retryable, "hint": "do this"}
    server.responses["GET /graphs/kb/branches"] = (409, body)
    with pytest.raises(Conflict) as caught:
        graph.branches.list()
    assert caught.value.retryable is retryable
    assert caught.value.hint == "do this"
    assert Conflict.retryable


def test_findings_of_a_server_point_into_the_text(server, graph, tmp_path):
    text = "query q() {\n  match { $p: Nö }\n  return { $p }\n}\n"
    (tmp_path / "q.gq").write_text(text, "utf-8")
    finding = {
        "severity": "error",
        "phase": "type",
        "code": "T1",
        "message": "unknown",
        "hint": "h",
    }
    location = {"file": "<query>", "line": 2, "column": 15, "end_line": 2, "end_column": 17}
    body = {"error": "x", "reason": "query_invalid", "diagnostic": {**finding, **location}}
    server.responses["POST /graphs/kb/query"] = (400, body)
    with pytest.raises(QueryError) as caught:
        graph.query(tmp_path / "q.gq")
    assert caught.value.render().splitlines()[1:3] == [
        " 2 |   match { $p: Nö }",
        "   |               ^^",
    ]
    assert caught.value.render().startswith(f"{tmp_path}/q.gq:2:15: type error: T1: unknown")


@pytest.mark.parametrize(
    "diagnostic", [5, {}, {"line": 99, "column": 1}, {"line": 1, "column": "x"}, [], [[]]]
)
def test_findings_that_make_no_sense_leave_the_message(server, graph, diagnostic):
    body = {"error": "the text is wrong", "reason": "query_invalid", "diagnostic": diagnostic}
    server.responses["POST /graphs/kb/query"] = (400, body)
    with pytest.raises(omnigraph.InputError, match="the text is wrong"):
        graph.query(QUERY)


@pytest.mark.parametrize(
    "call",
    [
        lambda g: g.mutate("query q() { delete Person }"),
        lambda g: g.load([ROW]),
        lambda g: g.merge("side"),
        lambda g: g.branches.create("side"),
        lambda g: g.branches.delete("side"),
        lambda g: g.schema.apply("node A { name: String @key }"),
        lambda g: g.queries.invoke_mutation("close"),
    ],
)
def test_a_write_without_an_answer_has_no_known_outcome(server, graph, call):
    for path in (
        "POST /graphs/kb/mutate",
        "POST /graphs/kb/load/ndjson?branch=main&mode=merge",
        "POST /graphs/kb/branches/merge",
        "POST /graphs/kb/branches",
        "DELETE /graphs/kb/branches/side",
        "POST /graphs/kb/schema/apply",
        "POST /graphs/kb/queries/close",
    ):
        server.responses[path] = DROP
    with pytest.raises(OutcomePending):
        call(graph)


@pytest.mark.parametrize("document", [[], {}, {"branches": 5}, {"branches": [5]}, None, "x"])
def test_a_document_of_another_form_is_an_error_of_the_server(server, graph, document):
    server.responses["GET /graphs/kb/branches"] = document
    with pytest.raises(ServerError, match="unexpected response"):
        graph.branches.list()
