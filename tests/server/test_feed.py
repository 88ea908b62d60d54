"""The change feed over HTTP: pages, waiting, events, baselines; and what ends or refuses them."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.merge.cursor import Cursor
from omnigraph.policy.policy import Policy
from omnigraph.server.admission import WaitCaps
from omnigraph.server.handlers import feed as feed_handlers
from omnigraph.server.state import ServerProcess
from tests.server.processes import until
from tests.server.serving import ADD, Client, FewTokens, ListedAccess, Server, open_served, serving

pytestmark = pytest.mark.rotates(2)

TOKENS = {"t-ana": "ana", "t-bo": "bo"}


class Stream:
    """A stream of events, read line by line."""

    def __init__(self, server: Server, path: str, token: str = "t-ana", **headers: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        sent = {"Accept": "text/event-stream", "Authorization": f"Bearer {token}", **headers}
        self._connection.request("GET", f"/graphs/g{path}", headers=sent)
        self._answer = self._connection.getresponse()
        self.status = self._answer.status
        self.content_type = self._answer.headers["content-type"]

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    def frame(self) -> dict[str, str] | None:
        """The fields of the next frame; a comment has none, and ``None`` is the end."""
        fields: dict[str, str] = {}
        while line := self._answer.readline():
            text = line.decode().rstrip("\n")
            if not text:
                return fields
            name, _, value = text.partition(": ")
            fields[name] = value
        return None

    def block(self) -> dict[str, Any]:
        """The next event with data."""
        while (frame := self.frame()) is not None:
            if "data" in frame:
                document: dict[str, Any] = json.loads(frame["data"])
                assert document["cursor"] == frame["id"]
                return document
        raise AssertionError("the stream has ended")

    def ends(self) -> bool:
        while self.frame() is not None:
            pass
        return True


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with open_served(tmp_path / "g.omni") as graph:
        yield graph


@pytest.fixture
def server(graph: Graph) -> Iterator[Server]:
    with serving({"g": graph}, tokens=TOKENS, access=ListedAccess()) as server:
        yield server


@pytest.fixture
def ana(server: Server) -> Client:
    return server.client("t-ana", "g")


def add(graph: Graph, name: str, branch: str = "main") -> str:
    commit = graph.mutate(ADD, params={"name": name}, branch=branch, actor="writer").commit_id
    assert commit is not None
    return commit


def ids(page: dict[str, Any]) -> list[str]:
    return [change["id"] for block in page["blocks"] for change in block["changes"]]


def now(client: Client) -> str:
    cursor: str = client.get("/changes?start=now").ok()["cursor"]
    return cursor


def all_waiting(process: ServerProcess, count: int) -> None:
    until(lambda: process.commit_news.waiting == count, f"{count} waiting requests")


# -- pages ---------------------------------------------------------------------------------------


def test_pages_continue_one_another_and_equal_the_library(graph: Graph, ana: Client) -> None:
    add(graph, "Zoe")
    expected = graph.changes.poll()
    changes, position, pages = [], "start=beginning", 0
    while True:
        page = ana.get(f"/changes?{position}&limit=3").ok()
        pages += 1
        changes += [change for block in page["blocks"] for change in block["changes"]]
        if page["caught_up"]:
            assert "next_page_token" not in page
            break
        assert page["next_page_token"] == page["cursor"]
        position = f"page_token={page['next_page_token']}"
    assert pages > 2
    assert changes == [change.to_json() for change in expected.changes]
    assert page["cursor"] == expected.cursor


def test_filters_select_changes_and_are_lists_with_commas(graph: Graph, ana: Client) -> None:
    assert ids(ana.get("/changes?type=City,Knows&kind=node").ok()) == ["London"]
    assert ids(ana.get("/changes?op=delete").ok()) == []
    assert sorted(ids(ana.get("/changes?kind=node&op=insert,update").ok())) == [
        "Ada",
        "Grace",
        "London",
    ]


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        ("cursor=x", 400, "invalid cursor"),
        ("start=then", 400, "invalid start"),
        ("start=now&cursor=x", 400, "only one of"),
        ("limit=0", 400, "limit"),
        ("kind=row", 400, "invalid kind"),
        ("op=", 400, "invalid operation"),
        ("type=No", 400, "no type 'No'"),
        ("wait=61s", 400, "invalid wait"),
        ("wait=-1s", 400, "invalid wait"),
        ("wait=soon", 400, "invalid wait"),
        ("branch=no", 404, "branch 'no' not found"),
    ],
)
def test_what_is_wrong_is_said_as_a_page_and_before_a_stream(
    server: Server, ana: Client, query: str, status: int, text: str
) -> None:
    body = ana.get(f"/changes?{query}").fails(status, text)
    if "wait" not in query:
        events = ana.get(f"/changes?{query}", headers={"Accept": "text/event-stream"})
        assert events.fails(status, text)["reason"] == body["reason"]


def test_a_gap_is_410_and_names_the_oldest_cursor(ana: Client) -> None:
    lost = Cursor(None, "01J00000000000000000000000").text()
    body = ana.get(f"/changes?cursor={lost}").fails(410)
    gap = body["change_feed_gap"]
    assert gap["commit_id"] == "01J00000000000000000000000"
    assert ana.get(f"/changes?cursor={gap['oldest_cursor']}").ok()["caught_up"]


def test_the_changes_of_a_commit_come_in_pages(graph: Graph, ana: Client) -> None:
    commit = graph.commits()[0].commit_id
    listed, token = [], ""
    while True:
        page = ana.get(f"/commits/{commit}/changes?limit=2{token}").ok()
        assert page["cause"]["graph_commit_id"] == commit
        listed += [change["id"] for change in page["changes"]]
        if "next_page_token" not in page:
            break
        token = f"&page_token={page['next_page_token']}"
    assert len(listed) == 4
    ana.get("/commits/01NO/changes").fails(404, "commit '01NO' not found")


# -- waiting -------------------------------------------------------------------------------------


def test_a_wait_ends_with_a_commit_of_another_process(
    graph: Graph, server: Server, ana: Client
) -> None:
    cursor = now(ana)
    write = (
        "import sys; from omnigraph import Graph\n"
        "with Graph.open(sys.argv[1]) as graph:\n"
        "    graph.load([{'type': 'City', 'data': {'name': 'Rome'}}])"
    )
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ana.get, f"/changes?cursor={cursor}&wait=60s")
        all_waiting(server.process, 1)
        subprocess.run([sys.executable, "-c", write, graph.uri], check=True, timeout=60)
        assert ids(waiting.result(30).ok()) == ["Rome"]


def test_a_wait_ends_empty_when_the_time_is_up(graph: Graph, ana: Client) -> None:
    cursor = now(ana)
    page = ana.get(f"/changes?cursor={cursor}&wait=50ms").ok()
    assert (page["blocks"], page["caught_up"], page["cursor"]) == ([], True, cursor)


def test_a_wait_goes_on_after_a_commit_that_does_not_match(
    graph: Graph, server: Server, ana: Client
) -> None:
    cursor = now(ana)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ana.get, f"/changes?cursor={cursor}&wait=60s&type=City")
        all_waiting(server.process, 1)
        add(graph, "Zoe")
        assert not waiting.done()
        graph.mutate('query q() { insert City { name: "Rome" } }')
        page = waiting.result(30).ok()
    assert ids(page) == ["Rome"]


def test_many_who_wait_hold_no_thread_and_are_all_answered(graph: Graph, server: Server) -> None:
    clients = [server.client("t-ana", "g") for _ in range(60)]
    cursor = now(clients[0])
    with ThreadPoolExecutor(60) as pool:
        waiting = [
            pool.submit(client.get, f"/changes?cursor={cursor}&wait=60s") for client in clients
        ]
        all_waiting(server.process, 60)
        threads = [t.name for t in threading.enumerate() if t.name.startswith("omnigraph-")]
        assert len(threads) < 10, threads
        until(lambda: server.process.reads.in_flight == 0, "the last read to end")
        server.client("t-bo", "g").get("/branches").ok()
        add(graph, "Zoe")
        assert {tuple(ids(answer.result(30).ok())) for answer in waiting} == {("Zoe",)}
    all_waiting(server.process, 0)


def test_who_waits_has_a_cap_for_each_actor_and_for_all(graph: Graph) -> None:
    tokens = {"t-ana": "ana", "t-bo": "bo", "t-cy": "cy"}
    with serving({"g": graph}, tokens=tokens, wait_caps=WaitCaps(3, 2)) as server:
        ana, bo, cy = (server.client(token, "g") for token in tokens)
        poll = f"/changes?cursor={now(ana)}&wait=60s"
        with ExitStack() as open_streams, ThreadPoolExecutor(2) as pool:
            stream = open_streams.enter_context(Stream(server, "/changes?start=now"))
            stream.frame()
            waiting = pool.submit(ana.get, poll)
            all_waiting(server.process, 2)
            for headers in ({}, {"Accept": "text/event-stream"}):
                refused = server.client("t-ana", "g").get(poll, headers=headers)
                assert refused.fails(429, "2 waiting")["reason"] == "too_many_requests"
                assert refused.headers["retry-after"] == "5"
            # Whoever does not wait is answered.
            server.client("t-ana", "g").get("/changes?start=now").ok()
            other = pool.submit(bo.get, poll)
            all_waiting(server.process, 3)
            full = cy.get(poll)
            assert full.fails(503)["reason"] == "overloaded"
            assert full.headers["retry-after"] == "5"
            text = server.process.metrics.render().decode()
            assert 'omnigraph_admission_refused_total{kind="wait"} 3.0' in text
            add(graph, "Zoe")
            assert [ids(answer.result(30).ok()) for answer in (waiting, other)] == [["Zoe"]] * 2
            stream.block()
            # The polls have ended, the stream has not.
            assert server.process.waits.waiting == 1
            cy.get(f"/changes?cursor={now(cy)}&wait=1ms").ok()
        # Those who have left are not counted any more.
        until(lambda: server.process.waits.waiting == 0, "no waiting connections")


def test_a_client_that_leaves_does_not_wait_any_more(server: Server, ana: Client) -> None:
    cursor = now(ana)
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    path = f"/graphs/g/changes?cursor={cursor}&wait=60s"
    connection.request("GET", path, headers={"Authorization": "Bearer t-ana"})
    all_waiting(server.process, 1)
    connection.close()
    all_waiting(server.process, 0)


def test_a_deleted_branch_ends_the_wait_for_it(graph: Graph, server: Server, ana: Client) -> None:
    graph.branches.create("side")
    page = ana.get("/changes?branch=side&start=now").ok()
    with ThreadPoolExecutor(1) as pool:
        path = f"/changes?branch=side&cursor={page['cursor']}&wait=60s"
        waiting = pool.submit(ana.get, path)
        all_waiting(server.process, 1)
        graph.branches.delete("side")
        waiting.result(30).fails(404, "branch 'side' not found")


# -- events --------------------------------------------------------------------------------------


def test_events_follow_commits_and_continue_after_the_last_one(
    graph: Graph, server: Server
) -> None:
    with Stream(server, "/changes?start=now") as stream:
        assert (stream.status, stream.content_type) == (200, "text/event-stream")
        commits = [add(graph, name) for name in ("Zoe", "Yan")]
        blocks = [stream.block() for _ in commits]
        assert [block["cause"]["graph_commit_id"] for block in blocks] == commits
        assert blocks[0]["cause"]["actor_id"] == "writer"
    last = {"Last-Event-ID": blocks[0]["cursor"]}
    with Stream(server, "/changes?start=now", **last) as stream:
        assert stream.block()["cause"]["graph_commit_id"] == commits[1]


def test_a_stream_that_skips_commits_still_moves_its_position(graph: Graph, server: Server) -> None:
    with Stream(server, "/changes?start=now&type=City") as stream:
        first = stream.frame()
        add(graph, "Zoe")
        moved = stream.frame()
    assert first is not None
    assert moved is not None
    assert set(moved) == {"id"}
    assert moved["id"] != first["id"]


def test_a_silent_stream_has_heartbeats(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_handlers, "HEARTBEAT_SECONDS", 0.05)
    with Stream(server, "/changes?start=now") as stream:
        stream.frame()
        assert [stream.frame() for _ in range(3)] == [{"": "heartbeat"}] * 3


def test_an_error_in_a_stream_is_its_last_event(graph: Graph, server: Server) -> None:
    graph.branches.create("side")
    with Stream(server, "/changes?branch=side&start=now") as stream:
        stream.frame()
        graph.branches.delete("side")
        last = stream.frame()
        assert last is not None
        assert last["event"] == "error"
        assert json.loads(last["data"])["reason"] == "branch_not_found"
        assert stream.ends()


def test_head_of_a_stream_ends(ana: Client) -> None:
    answer = ana.request("HEAD", "/changes", headers={"Accept": "text/event-stream"})
    assert (answer.status, answer.body) == (200, b"")


# -- the end -------------------------------------------------------------------------------------


def test_waits_and_streams_end_when_the_server_does(graph: Graph) -> None:
    with serving({"g": graph}) as server:
        ana = server.client(None, "g")
        cursor = now(ana)
        with ThreadPoolExecutor(1) as pool, Stream(server, "/changes?start=now") as stream:
            waiting = pool.submit(ana.get, f"/changes?cursor={cursor}&wait=60s")
            all_waiting(server.process, 2)
            server._loop.call_soon_threadsafe(server.process.begin_drain)
            assert waiting.result(30).ok()["blocks"] == []
            assert stream.ends()


@pytest.mark.parametrize("change", ["tokens", "access"])
def test_a_revoked_token_or_another_policy_ends_waits_and_streams(
    graph: Graph, server: Server, ana: Client, change: str
) -> None:
    cursor = now(ana)
    state: dict[str, Any] = {"tokens": FewTokens({"t-bo": "bo"})}
    if change == "access":
        state = {"access": ListedAccess(denied={("ana", "read")})}
    with ThreadPoolExecutor(1) as pool, Stream(server, "/changes?start=now") as stream:
        waiting = pool.submit(ana.get, f"/changes?cursor={cursor}&wait=60s")
        all_waiting(server.process, 2)
        server._loop.call_soon_threadsafe(lambda: server.swap(**state))
        page = waiting.result(30).ok()
        add(graph, "Secret")
        assert (page["blocks"], page["cursor"]) == ([], cursor)
        assert stream.ends()
    assert ana.get(f"/changes?cursor={cursor}").status in (401, 403)


# -- baselines -----------------------------------------------------------------------------------


def test_a_baseline_and_the_changes_after_it_are_the_state(graph: Graph, ana: Client) -> None:
    lines = ana.post("/changes/baseline", {}).body.decode().splitlines()
    *rows, last = map(json.loads, lines)
    record = last["baseline"]
    assert rows == [json.loads(line) for line in graph.snapshot().export()]
    assert record["snapshot_commit_id"] == graph.snapshot().commit_id
    add(graph, "Zoe")
    assert ids(ana.get(f"/changes?cursor={record['resume_cursor']}").ok()) == ["Zoe"]
    only = ana.post("/changes/baseline", {"rows": False}).body.decode().splitlines()
    assert [set(json.loads(line)) for line in only] == [{"baseline"}]
    ana.post("/changes/baseline", {"branch": "no"}).fails(404)


# -- policies ------------------------------------------------------------------------------------

BUNDLE = """
version: 2
groups: {all: [ana, bo]}
rules: [{id: r, allow: {actors: {group: all}, actions: [read, export, change]}}]
rows:
  - {id: people, actors: {group: all}, types: [Person], where: "age < 40"}
  - {id: rest, actors: {group: all}, types: [City, Knows, LivesIn]}
"""


@pytest.fixture
def restricted(tmp_path: Path) -> Iterator[tuple[Graph, Server]]:
    """A graph whose rows an actor sees only in part, and its server."""
    policy = Policy.parse(BUNDLE)
    open_served(tmp_path / "g.omni").close()
    graph = Graph.open(tmp_path / "g.omni", local_files=False, policy=policy)
    access = PolicyAccess(policy)
    with graph, serving({"g": graph}, tokens=TOKENS, access=access) as server:
        yield graph, server


class PolicyAccess(ListedAccess):
    """Decides by a bundle."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self._policy = policy

    def decide(self, graph_id: Any, actor: Any, action: Any, *rest: Any, **more: Any) -> Any:
        return self._policy.decide(actor, action, *rest, **more)


def test_hidden_changes_are_neither_shown_nor_counted(
    restricted: tuple[Graph, Server], tmp_path: Path
) -> None:
    graph, server = restricted
    ana = server.client("t-ana", "g")
    cursor = now(ana)
    with Graph.open(graph.uri) as owner, Stream(server, "/changes?start=now") as stream:
        for number in range(5):
            owner.mutate(ADD, params={"name": f"hidden-{number}", "age": 70})
        owner.mutate(ADD, params={"name": "seen", "age": 20})
        page = ana.get(f"/changes?cursor={cursor}&limit=1").ok()
        assert ids(page) == ["seen"]
        assert page["caught_up"]
        assert [change["id"] for change in stream.block()["changes"]] == ["seen"]
        hidden = owner.commits()[1].commit_id
    listed = ana.get(f"/commits/{hidden}/changes").ok()
    assert listed["changes"] == []
    assert "next_page_token" not in listed
    assert b"hidden-" not in ana.post("/changes/baseline", {}).body
    assert page["blocks"][0]["cause"]["actor_id"] is None
