"""Rows over HTTP: content types, streams that end or fail, and the clients that read them."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph
from omnigraph import Graph
from omnigraph.errors import Closed, RowLimitExceeded
from omnigraph.read import engine
from omnigraph.result import wire
from omnigraph.result.wire import ARROW_STREAM
from omnigraph.server import row_replies
from omnigraph.server.accept import accepted_type
from omnigraph.server.calls import JSON, NDJSON, RequestHeaders
from omnigraph.server.config import QueryLimits
from omnigraph.server.errors import RequestRefused
from omnigraph.server.heads import REQUEST_ID
from omnigraph.server.row_replies import ROW_TYPES
from tests.server.processes import until
from tests.server.serving import PEOPLE, QUERIES, Client, ListedAccess, Server, open_served, serving
from tests.server.test_serve import serve

pytestmark = pytest.mark.rotates(3)

TOKENS = {"token-a": "ana", "token-b": "bo"}
CITIES = "query cities() { match { $c: City } return { $c.name } }"
SORTED = "query cities() { match { $c: City } return { $c.name } order { $c.name } }"
BIG = "query big() { match { $p: Person } return { $p.name, $p.big } order { $p.name } }"
COUNT = 3_000
PEOPLE_ROWS = [{"name": "Ada", "age": 36, "big": 2**60}, {"name": "Grace", "age": 37}]
ROWS = [
    *({"type": "Person", "data": data} for data in PEOPLE_ROWS),
    *({"type": "City", "data": {"name": f"c{n:06}"}} for n in range(COUNT)),
]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with open_served(tmp_path_factory.mktemp("results") / "g.omni", ROWS) as graph:
        yield graph


@pytest.fixture(scope="module")
def access() -> ListedAccess:
    return ListedAccess()


@pytest.fixture(scope="module")
def server(local: Graph, access: ListedAccess) -> Iterator[Server]:
    stored = {**QUERIES, "cities": CITIES}
    limits = QueryLimits(max_rows=2_000)
    with serving(
        {"g": local}, queries=stored, tokens=TOKENS, access=access, limits=limits
    ) as server:
        yield server


@pytest.fixture
def ana(server: Server, access: ListedAccess) -> Iterator[Client]:
    access.denied = set()
    yield server.client("token-a", "g")
    access.denied = set()


def lines(body: bytes) -> list[Any]:
    return [json.loads(line) for line in body.splitlines()]


# -- content types -------------------------------------------------------------------------------

NOTHING = object()


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        (None, JSON),
        ("", JSON),
        (" , ", JSON),
        ("*/*", JSON),
        ("application/*", JSON),
        ("application/json", JSON),
        ("Application/JSON ; charset=utf-8", JSON),
        ("application/x-ndjson", NDJSON),
        (ARROW_STREAM, ARROW_STREAM),
        (f"{ARROW_STREAM}, application/json", JSON),
        (f"application/json;q=0.9, {ARROW_STREAM}", ARROW_STREAM),
        ("application/x-ndjson, */*", NDJSON),
        ("application/x-ndjson;q=0.1, */*;q=0.2", JSON),
        ("application/json;q=0, */*", NDJSON),
        ("application/*;q=0, */*;q=1", NOTHING),
        ("application/json;q=0, application/x-ndjson;q=0, */*", ARROW_STREAM),
        ("application/json;q=0.0", NOTHING),
        ("text/html", NOTHING),
        ("text/*, image/png", NOTHING),
        ("application/json;q=2", NOTHING),
        ("application/json;q=abc, application/x-ndjson", NDJSON),
        ("application/json;q=1.001", NOTHING),
        ("application/json;q=0.001", JSON),
        ("json", NOTHING),
        ("*/json", NOTHING),
        ("application/", NOTHING),
        ('text/plain;title="a, application/json;q=1"', NOTHING),
        ('text/plain;title="a\\", b", application/json', JSON),
        ("application/jsonx", NOTHING),
        ("\xff\xfe", NOTHING),
    ],
)
def test_the_type_is_chosen_by_the_rules_of_rfc_9110(accept, chosen):
    given = [] if accept is None else [(b"accept", accept.encode("latin-1"))]
    headers = RequestHeaders(given)
    if chosen is NOTHING:
        with pytest.raises(RequestRefused) as refused:
            accepted_type(headers, ROW_TYPES)
        assert (refused.value.status, refused.value.reason) == (406, "not_acceptable")
    else:
        assert accepted_type(headers, ROW_TYPES) == chosen


def test_several_headers_are_one_list():
    headers = RequestHeaders([(b"accept", b"text/html"), (b"accept", b"application/x-ndjson")])
    assert accepted_type(headers, ROW_TYPES) == NDJSON


@pytest.mark.parametrize(
    ("path", "body"),
    [("/query", {"query": PEOPLE}), ("/queries/adults", {"params": {"age": 1}})],
)
def test_a_read_has_three_forms(ana, path, body):
    document = ana.post(path, body).ok()
    answer = ana.post(path, body, headers={"Accept": NDJSON})
    assert answer.headers["content-type"] == f"{NDJSON}; charset=utf-8"
    assert lines(answer.body) == document["rows"]
    assert answer.headers["omnigraph-snapshot"] == document["graph_commit_id"]
    answer = ana.post(path, body, headers={"Accept": ARROW_STREAM})
    assert answer.headers["content-type"] == ARROW_STREAM
    assert pa.ipc.open_stream(answer.body).read_all().to_pylist() == document["rows"]
    assert answer.headers["omnigraph-snapshot"] == document["graph_commit_id"]
    refused = ana.post(path, body, headers={"Accept": "text/csv"}).fails(406)
    assert refused["reason"] == "not_acceptable"
    assert ARROW_STREAM in refused["hint"]


def test_the_deprecated_read_is_json_whatever_is_accepted(ana):
    body = {"query_source": PEOPLE}
    for accept in (NDJSON, "text/csv"):
        answer = ana.post("/read", body, headers={"Accept": accept})
        assert answer.headers["content-type"] == JSON
        assert "graph_commit_id" not in answer.ok()


def test_large_integers_are_strings_on_request(ana):
    prefer = {"Prefer": "integers=string"}
    answer = ana.post("/query", {"query": BIG}, headers=prefer)
    assert answer.headers["preference-applied"] == "integers=string"
    assert answer.ok()["rows"][0]["p.big"] == str(2**60)
    quoted = {"Prefer": 'integers="string"'}
    answer = ana.post("/query", {"query": BIG}, headers=quoted)
    assert answer.ok()["rows"][0]["p.big"] == str(2**60)
    answer = ana.post("/query", {"query": BIG}, headers={"Accept": NDJSON, **prefer})
    assert answer.headers["preference-applied"] == "integers=string"
    assert lines(answer.body)[0]["p.big"] == str(2**60)
    answer = ana.post("/query", {"query": BIG}, headers={"Accept": NDJSON})
    assert lines(answer.body)[0]["p.big"] == 2**60
    answer = ana.post("/query", {"query": BIG}, headers={"Accept": ARROW_STREAM, **prefer})
    assert "preference-applied" not in answer.headers


def test_an_empty_result_has_its_form(ana):
    text = 'query q() { match { $c: City { name: "no" } } return { $c.name } }'
    assert ana.post("/query", {"query": text}).ok()["rows"] == []
    assert ana.post("/query", {"query": text}, headers={"Accept": NDJSON}).body == b""
    arrow = ana.post("/query", {"query": text}, headers={"Accept": ARROW_STREAM}).body
    assert pa.ipc.open_stream(arrow).read_all().column_names == ["c.name"]


# -- the row cap ---------------------------------------------------------------------------------


def test_more_rows_than_the_cap_need_the_right_to_export(ana, access):
    for text in (CITIES, SORTED):
        refused = ana.post("/query", {"query": text}).fails(413)
        assert refused["reason"] == "row_limit_exceeded"
        answer = ana.post("/query", {"query": text}, headers={"Accept": NDJSON})
        assert len(lines(answer.body)) == COUNT
        answer = ana.post("/query", {"query": text}, headers={"Accept": ARROW_STREAM})
        assert pa.ipc.open_stream(answer.body).read_all().num_rows == COUNT
    access.denied = {("ana", "export")}
    for accept in (NDJSON, ARROW_STREAM):
        refused = ana.post("/query", {"query": SORTED}, headers={"Accept": accept}).fails(413)
        assert refused["reason"] == "row_limit_exceeded"
        assert "export" in refused["hint"]
        # Below the cap nobody is asked for more than `read`.
        assert ana.post("/query", {"query": PEOPLE}, headers={"Accept": accept}).status == 200


# -- streams that fail ---------------------------------------------------------------------------


@pytest.fixture
def capped(server: Server, access: ListedAccess) -> Iterator[Server]:
    """A stream of cities fails after some batches, because the actor may not export."""
    access.denied = {"export"}
    yield server
    access.denied = set()


def connected(server: Server) -> omnigraph.RemoteGraph:
    return omnigraph.connect(server.url, graph="g", token="token-a")


@pytest.mark.parametrize("accept", [NDJSON, ARROW_STREAM])
def test_a_stream_that_fails_is_incomplete_for_every_client(capped, accept):
    connection = http.client.HTTPConnection("127.0.0.1", capped.port, timeout=60)
    headers = {
        "Accept": accept,
        "Content-Type": "application/json",
        "Authorization": "Bearer token-a",
    }
    connection.request("POST", "/graphs/g/query", json.dumps({"query": CITIES}), headers)
    answer = connection.getresponse()
    assert answer.status == 200
    with pytest.raises(http.client.IncompleteRead) as broken:
        answer.read()
    connection.close()
    body = broken.value.partial
    assert b'"reason":"row_limit_exceeded"' in body
    if accept == NDJSON:
        *rows, before, error = body.splitlines()
        assert len(rows) >= 1_024
        assert before == b""
        failure = json.loads(error)
        assert (failure["status"], failure["request_id"]) == (413, answer.headers[REQUEST_ID])


@pytest.mark.parametrize("read", ["query", "stream", "stored query", "stored stream"])
def test_the_client_raises_the_error_of_a_stream(capped, read):
    with connected(capped) as graph:
        calls = {
            "query": lambda: graph.query(CITIES),
            "stream": lambda: graph.stream(CITIES),
            "stored query": lambda: graph.queries.invoke("cities"),
            "stored stream": lambda: graph.queries.stream("cities"),
        }
        rows = iter(calls[read]())
        assert "c.name" in next(rows)
        with pytest.raises(RowLimitExceeded, match="more than 2000 rows") as raised:
            list(rows)
        assert raised.value.details["status"] == 413


def test_the_async_client_raises_the_error_of_a_stream(capped):
    async def run() -> None:
        url = capped.url
        async with await omnigraph.connect_async(url, graph="g", token="token-a") as graph:
            with pytest.raises(RowLimitExceeded):
                await graph.query(CITIES)
            for stream in (graph.stream(CITIES), graph.queries.stream("cities")):
                count = 0
                try:
                    async for _ in stream:
                        count += 1
                except RowLimitExceeded:
                    assert count >= 1_024
                else:
                    raise AssertionError("the stream looks whole")

    asyncio.run(run())


def test_a_large_document_is_streamed_and_fails_in_its_type_too(tmp_path, monkeypatch):
    monkeypatch.setattr(row_replies, "_AT_ONCE", 1_000)
    limits = QueryLimits(max_rows=COUNT - 1)
    with open_served(tmp_path / "g.omni", ROWS) as graph:
        with serving({"g": graph}) as server:
            answer = server.client(graph="g").post("/query", {"query": CITIES})
            assert "content-length" not in answer.headers
            assert (answer.ok()["row_count"], len(answer.json["rows"])) == (COUNT, COUNT)
            whole = {k: v for k, v in answer.json.items() if k != "rows"}
            monkeypatch.setattr(row_replies, "_AT_ONCE", 1 << 20)
            answer = server.client(graph="g").post("/query", {"query": CITIES})
            assert "content-length" in answer.headers
            assert {k: v for k, v in answer.ok().items() if k != "rows"} == whole
        monkeypatch.setattr(row_replies, "_AT_ONCE", 1_000)
        with serving({"g": graph}, limits=limits) as server:
            from omnigraph.client.server import Connection

            connection = Connection(f"{server.url}/graphs/g")
            with pytest.raises(RowLimitExceeded, match=f"more than {COUNT - 1} rows"):
                connection.post("query", body={"query": CITIES})
            connection.close()


def test_a_kept_document_is_sent_in_pieces(tmp_path, monkeypatch):
    """With its length, or as the beginning of a streamed one: always the same rows."""
    monkeypatch.setattr(row_replies, "_PIECE", 10_000)
    monkeypatch.setattr(wire, "_ROWS", 256)
    with open_served(tmp_path / "g.omni", ROWS) as graph, serving({"g": graph}) as server:
        expected = graph.query(CITIES).json_rows()
        for most, has_length in ((1 << 20, True), (30_000, False)):
            monkeypatch.setattr(row_replies, "_AT_ONCE", most)
            client = server.client(graph="g")
            answer = client.post("/query", {"query": CITIES})
            assert ("content-length" in answer.headers) == has_length
            assert answer.ok()["rows"] == expected
            assert answer.json["row_count"] == len(expected)
            assert client.post("/query", {"query": PEOPLE}).ok()["row_count"] == 2


def test_time_that_a_client_takes_is_not_that_of_the_query(tmp_path, monkeypatch):
    """A stream is read for longer than a query may take."""
    monkeypatch.setattr(engine, "_BATCH", 256)
    rows = [{"type": "City", "data": {"name": f"{n:05}" + "x" * 2_000}} for n in range(12_000)]
    with open_served(tmp_path / "g.omni", rows) as local:
        began = time.monotonic()
        assert local.query(CITIES).row_count == len(rows)
        seconds = max(4 * (time.monotonic() - began), 1.0)
        with (
            serving({"g": local}, limits=QueryLimits(timeout=seconds)) as server,
            omnigraph.connect(server.url, graph="g") as graph,
        ):
            stream = graph.stream(CITIES)
            assert next(stream)
            over = time.monotonic() + seconds
            until(lambda: time.monotonic() > over)
            assert sum(1 for _ in stream) == len(rows) - 1


# -- clients -------------------------------------------------------------------------------------


def test_a_stream_brings_the_rows_of_the_graph(ana, server, local):
    expected = local.query(CITIES).json_rows()
    with connected(server) as graph:
        for rows in (graph.stream(CITIES), graph.queries.stream("cities")):
            assert sorted(map(str, rows)) == sorted(map(str, expected))
        state = graph.snapshot()
        assert len(list(graph.stream(CITIES, snapshot=state))) == COUNT
        unfinished = graph.stream(CITIES)
        assert next(unfinished)
        del unfinished
        with pytest.raises(omnigraph.QueryError):
            graph.stream("query q() { match { $c: Town } return { $c.name } }")
    with pytest.raises(Closed):
        graph.stream(CITIES)


def test_the_async_client_streams_and_pages(ana, server):
    async def run() -> None:
        async with await omnigraph.connect_async(server.url, graph="g", token="token-a") as graph:
            names = [row["c.name"] async for row in graph.stream(CITIES)]
            assert len(names) == COUNT
            paged: list[Any] = []
            sizes = []
            async for page in graph.pages(CITIES, page_size=1_400):
                paged += (row["c.name"] for row in page.result.rows())
                sizes.append(len(page.result))
            assert paged == sorted(names)
            assert sizes == [1_400, 1_400, 200]
            pages = [page async for page in graph.queries.pages("cities", page_size=1_999)]
            assert [page.cursor is None for page in pages] == [False, True]

    asyncio.run(run())


def test_a_closed_reader_ends_the_stream_of_the_server(ana, server: Server, tmp_path: Path):
    with connected(server) as graph:
        rows = graph.stream(CITIES)
        next(rows)
        rows.close()
        assert graph.query(PEOPLE).row_count == 2


# -- memory --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("accept", [JSON, NDJSON, ARROW_STREAM])
def test_a_process_does_not_grow_with_the_result(tmp_path: Path, accept: str):
    """60 MiB of rows are sent again and again by a process whose table is in memory."""
    names = [f"c{n:06}" for n in range(300_000)]
    texts = [f"{name} is a city with a long text {'x' * 150}" for name in names]
    schema = "node City { name: String @key  text: String }"
    with Graph.init(tmp_path / "g.omni", schema, durability="os") as graph:
        graph.append({"City": pa.table({"name": names, "text": texts})})
    query = "query q() { match { $c: City } return { $c.name, $c.text } }"
    headers = {"Accept": accept, "Content-Type": "application/json"}
    environ = {"OMNIGRAPH_QUERY_MAX_ROWS": "1000000", "OMNIGRAPH_QUERY_TIMEOUT": "600"}
    options = ("--workers", "1", "--unauthenticated")

    with serve(tmp_path / "g.omni", tmp_path / "log", *options, **environ) as server:
        server.await_listening()
        status = Path(f"/proc/{server.process.pid}/status")

        def megabytes(name: str) -> int:
            (line,) = (line for line in status.read_text().splitlines() if line.startswith(name))
            return int(line.split()[1]) >> 10

        def read() -> int:
            connection = server.connect(600)
            connection.request("POST", "/graphs/g/query", json.dumps({"query": query}), headers)
            answer, size = connection.getresponse(), 0
            while piece := answer.read(1 << 16):
                size += len(piece)
            connection.close()
            return size

        for _ in range(3):
            read()
        Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")
        before = megabytes("VmRSS")
        assert read() > 55 << 20
        # A document is kept up to 32 MiB, once.
        most = 40 + 32 if accept == JSON else 40
        assert megabytes("VmHWM") - before < most
