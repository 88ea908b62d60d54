"""What the history of a graph tells: nothing of branches and queries that an actor may not know."""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from omnigraph import Graph, Policy
from omnigraph.server.access import Access, RunState
from omnigraph.server.handlers import feed
from omnigraph.server.state import CurrentGate
from tests.server.serving import Client, FewTokens, Server, serving

pytestmark = pytest.mark.rotates(3)

SCHEMA = "node Doc { slug: String @key  pages: I32? }"
BUNDLE = """
version: 2
groups: {lead: [lead], main: [mia], draft: [dora], plain: [pat]}
rules:
  - {id: lead, allow: {actors: {group: lead}, actions: [read, read_history, change, schema_apply,
      invoke_query]}}
  - {id: main, allow: {actors: {group: main}, actions: [read, read_history],
      branches: [main, release]}}
  - {id: draft, allow: {actors: {group: draft}, actions: [read, read_history, export],
      branches: [draft]}}
  - {id: plain, allow: {actors: {group: plain}, actions: [read]}}
  - {id: call, allow: {actors: {group: plain}, actions: [invoke_query], queries: [known]}}
"""
QUERIES = {
    name: f"query {name}() {{ match {{ $d: Doc }} return {{ $d.pages }} }}"
    for name in ("known", "unknown")
}
TOKENS = {f"tok-{actor}": actor for actor in ("lead", "mia", "dora", "pat")}
DELETE = 'query q() { delete Doc where slug = "gone" }'


def doc(slug: str) -> list[dict[str, Any]]:
    return [{"type": "Doc", "data": {"slug": slug, "pages": 1}}]


def make_server(path: Any) -> Iterator[Server]:
    access = Access(RunState.POLICY, {"g": Policy.parse(BUNDLE)})
    gate = CurrentGate("g", lambda: access)
    with (
        Graph.open(path, local_files=False, policy=gate) as graph,
        serving({"g": graph}, queries=QUERIES, tokens=TOKENS, access=access) as server,
    ):
        yield server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """``gone`` was deleted on main before ``draft`` was created, ``hushed`` on ``secret``."""
    path = tmp_path_factory.mktemp("hidden") / "g.omni"
    with Graph.init(path, SCHEMA) as graph:
        graph.load(doc("gone"), actor="max")
        graph.mutate(DELETE, actor="max")
        graph.load(doc("kept"), actor="max")
        graph.branches.create("draft")
        graph.load(doc("own"), branch="draft", actor="dan")
        graph.branches.create("secret")
        graph.load(doc("hushed"), branch="secret", actor="spy")
        graph.mutate(DELETE.replace("gone", "hushed"), branch="secret", actor="spy")
        graph.load(doc("spied"), branch="secret", actor="spy")
        graph.branches.create("release", "secret")
        graph.load(doc("freed"), branch="release", actor="max")
        graph.load(doc("other"), actor="max")
        graph.merge("secret", actor="max")
    yield from make_server(path)


@pytest.fixture
def lead(server: Server) -> Client:
    return server.client("tok-lead", "g")


def encoded(content: Any) -> str:
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 5_000,
        b'{"a":' * 2_000,
        [1, None, None, 1, "[" * 3_000],
        [1, "\ud800", None, 0, ""],
        [1, None, "\ud800", 0, ""],
        [1, None, None, 1, "\ud800"],
        [2, None, None, 0, "", "\ud800"],
        [1, None, None, -1, ""],
        [1, None, None, "1", ""],
    ],
)
def test_a_malformed_cursor_is_refused(lead: Client, content: Any) -> None:
    for more in ({}, {"type": "Doc"}):
        sent = urlencode({"cursor": encoded(content), **more})
        lead.get(f"/changes?{sent}").fails(400, "cursor")
    commit = lead.get("/commits").json["commits"][0]["graph_commit_id"]
    sent = urlencode({"page_token": encoded(content)})
    lead.get(f"/commits/{commit}/changes?{sent}").fails(400, "cursor")


# -- branches ----------------------------------------------------------------------------------


def changed(body: Any) -> list[tuple[str, str]]:
    return [(change["op"], change["id"]) for block in body["blocks"] for change in block["changes"]]


def test_the_feed_of_a_branch_shows_nothing_of_the_history_of_another(server: Server) -> None:
    dora = server.client("tok-dora", "g")
    page = dora.get("/changes?branch=draft").ok()
    # What was inherited comes with the first commit of the branch.
    assert changed(page) == [("insert", "kept"), ("insert", "own")]
    assert b"gone" not in dora.get("/changes?branch=draft&limit=1").body
    read, cursor = [], ""
    while True:
        page = dora.get(f"/changes?branch=draft&limit=1{cursor}").ok()
        read += changed(page)
        cursor = f"&cursor={page['cursor']}"
        if page["caught_up"]:
            break
    assert read == [("insert", "kept"), ("insert", "own")]
    baseline = dora.post("/changes/baseline", {"branch": "draft"}).body.splitlines()
    resume = json.loads(baseline[-1])["baseline"]["resume_cursor"]
    assert dora.get(f"/changes?branch=draft&cursor={resume}").ok()["blocks"] == []
    dora.get("/blame?type=Doc&id=gone&branch=draft").fails(404)
    everything = server.client("tok-lead", "g").get("/changes?branch=draft").ok()
    assert ("delete", "gone") in changed(everything)


def test_a_hidden_commit_is_no_start_of_a_feed(server: Server, lead: Client) -> None:
    hidden = lead.get("/commits?branch=secret").json["commits"][0]["graph_commit_id"]
    absent = hidden[:-4] + "0000"
    mia = server.client("tok-mia", "g")
    same = {"Omnigraph-Request-Id": "same"}
    responses = [
        mia.get(f"/changes?start=after:{commit}", headers=same) for commit in (hidden, absent)
    ]
    assert [response.status for response in responses] == [404, 404]
    assert responses[0].body.replace(hidden.encode(), absent.encode()) == responses[1].body


def test_blame_names_no_commit_of_a_hidden_branch(server: Server, lead: Client) -> None:
    path = "/blame?type=Doc&id=spied"
    all_of_it = lead.get(path).ok()
    assert (all_of_it["origin"]["manifest_branch"], all_of_it["origin"]["actor_id"]) == (
        "secret",
        "spy",
    )
    shown = server.client("tok-mia", "g").get(path).ok()
    merge = {**all_of_it["commit"], "merged_parent_commit_id": None}
    assert shown == {**all_of_it, "commit": merge, "origin": None}
    inherited = server.client("tok-dora", "g").get("/blame?type=Doc&id=kept&branch=draft").ok()
    assert inherited["commit"]["actor_id"] != "max"


def commits(client: Client, branch: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = client.get(f"/commits?branch={branch}").ok()["commits"]
    return listed


def all_ids(lead: Client, branch: str) -> list[str]:
    """The commits that were made on a branch."""
    own = None if branch == "main" else branch
    return [
        row["graph_commit_id"] for row in commits(lead, branch) if row["manifest_branch"] == own
    ]


def names_none_of(body: bytes, hidden: list[str]) -> None:
    text = body.decode()
    # Cursors are encoded.
    assert not [commit for commit in hidden if commit in text]


def test_the_commits_of_a_branch_are_those_that_the_actor_may_know(
    server: Server, lead: Client
) -> None:
    """Inherited ones of hidden branches are absent, and no other commit names them."""
    dora, mia = (server.client(f"tok-{actor}", "g") for actor in ("dora", "mia"))
    assert [row["manifest_branch"] for row in commits(dora, "draft")] == ["draft"]
    assert [row["parent_commit_id"] for row in commits(dora, "draft")] == [None]
    secret, draft = all_ids(lead, "secret"), all_ids(lead, "draft")
    assert len(secret) == 3
    for branch, shown in (("main", {None}), ("release", {None, "release"})):
        response = mia.get(f"/commits?branch={branch}")
        names_none_of(response.body, [*secret, *draft])
        assert {row["manifest_branch"] for row in response.json["commits"]} == shown
    merge = commits(mia, "main")[0]
    assert (merge["kind"], merge["merged_parent_commit_id"]) == ("merge", None)
    assert commits(lead, "main")[0]["merged_parent_commit_id"] == secret[0]
    assert len(commits(lead, "release")) == len(commits(mia, "release")) + len(secret)
    # A filter is no way around it.
    assert mia.get("/commits?branch=release&actor=spy").ok()["commits"] == []


def test_the_feed_goes_on_with_the_next_commit_that_the_actor_may_know(
    server: Server, lead: Client
) -> None:
    mia, dora = (server.client(f"tok-{actor}", "g") for actor in ("mia", "dora"))
    hidden = [*all_ids(lead, "secret"), *all_ids(lead, "draft")]
    page = mia.get("/changes?branch=release")
    names_none_of(page.body, hidden)
    blocks = page.ok()["blocks"]
    last = blocks[-1]
    assert (last["cause"]["manifest_branch"], last["cause"]["parent_commit_id"]) == (
        "release",
        None,
    )
    # It is compared with the state of main that the reader has.
    assert [(row["op"], row["id"]) for row in last["changes"]] == [
        ("insert", "freed"),
        ("insert", "spied"),
    ]
    assert all(row["op"] == "insert" or row["id"] == "gone" for b in blocks for row in b["changes"])
    own = dora.get("/changes?branch=draft")
    names_none_of(own.body, all_ids(lead, "main"))
    (block,) = own.ok()["blocks"]
    # The types come with the first commit too.
    assert [event["kind"] for event in block["schema_events"]] == ["add_type"]
    read, cursor = [], ""
    while True:
        page = dora.get(f"/changes?branch=draft&limit=1{cursor}").ok()
        read += [len(block["schema_events"]) or changed(page)[0][1] for block in page["blocks"]]
        cursor = f"&cursor={page['cursor']}"
        if page["caught_up"]:
            break
    assert read == [1, "kept", "own"]
    commit = block["cause"]["graph_commit_id"]
    of_commit = dora.get(f"/commits/{commit}/changes")
    names_none_of(of_commit.body, all_ids(lead, "main"))
    assert [row["id"] for row in of_commit.ok()["changes"]] == ["own"]


def test_blame_of_a_row_that_changed_on_a_hidden_branch(server: Server, lead: Client) -> None:
    mia = server.client("tok-mia", "g")
    hidden = all_ids(lead, "secret")
    for row in ("spied", "kept", "freed"):
        blamed = mia.get(f"/blame?type=Doc&id={row}&branch=release")
        names_none_of(blamed.body, hidden)
        expected = None if row == "kept" else "release"
        assert blamed.ok()["commit"]["manifest_branch"] == expected
    mia.get("/blame?type=Doc&id=hushed&branch=release").fails(404)
    names_none_of(mia.get("/blame?type=Doc&id=spied").body, hidden)


def test_a_snapshot_names_no_hidden_branch(server: Server, lead: Client) -> None:
    mia = server.client("tok-mia", "g")
    assert b"secret" not in mia.get("/snapshot?branch=release").body


# -- agents ------------------------------------------------------------------------------------


def call_tool(client: Client, tool: str, **arguments: Any) -> Any:
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments},
    }
    accepted = {"Accept": "application/json, text/event-stream"}
    result = client.post("/mcp", message, headers=accepted).ok()["result"]
    return json.loads(result["content"][0]["text"])


def read_commits(client: Client) -> Any:
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "resources/read",
        "params": {"uri": "omnigraph://commits"},
    }
    accepted = {"Accept": "application/json, text/event-stream"}
    result = client.post("/mcp", message, headers=accepted).ok()["result"]
    return json.loads(result["contents"][0]["text"])


def test_agents_learn_nothing_of_the_history_of_hidden_branches(
    server: Server, lead: Client
) -> None:
    pytest.importorskip("mcp")
    mia = server.client("tok-mia", "g")
    changes = changed(call_tool(mia, "graph_changes", branch="release"))
    copy: set[str] = set()
    for op, slug in changes:
        (copy.add if op == "insert" else copy.discard)(slug)
    assert copy == {"kept", "spied", "freed"}
    assert "hushed" not in {slug for _, slug in changes}
    assert changes == changed(mia.get("/changes?branch=release").ok())
    blame = call_tool(mia, "graph_blame", type="Doc", id="spied")
    assert blame["commit"]["actor"] == "max"
    assert blame["origin"] is None
    assert call_tool(lead, "graph_blame", type="Doc", id="spied")["origin"]["actor"] == "spy"
    for branch in ("main", "release"):
        listed = call_tool(mia, "commit_list", branch=branch)["commits"]
        ids = {row["graph_commit_id"] for row in commits(mia, branch)}
        assert {row["commit_id"] for row in listed} == ids
        names_none_of(json.dumps(listed).encode(), all_ids(lead, "secret"))
    names_none_of(json.dumps(read_commits(mia)).encode(), all_ids(lead, "secret"))
    assert len(read_commits(mia)) == len(commits(mia, "main"))
    hidden = lead.get("/commits?branch=secret").json["commits"][0]["graph_commit_id"]
    absent = hidden[:-4] + "0000"
    first, second = (
        {**call_tool(mia, "graph_changes", start=f"after:{commit}"), "request_id": None}
        for commit in (hidden, absent)
    )
    assert first["code"] == "not_found"
    assert json.dumps(first).replace(hidden, absent) == json.dumps(second)


# -- stored queries ----------------------------------------------------------------------------


def test_a_preview_of_a_schema_names_no_hidden_query(tmp_path: Any) -> None:
    with Graph.init(tmp_path / "g.omni", SCHEMA):
        pass
    for server in make_server(tmp_path / "g.omni"):
        body = {"schema_source": "node Doc { slug: String @key }", "dry_run": True}
        broken = {
            actor: server.client(f"tok-{actor}", "g").post("/schema/apply", body).ok()
            for actor in ("lead", "pat")
        }
        assert broken["lead"]["broken_queries"] == ["known", "unknown"]
        assert broken["pat"]["broken_queries"] == ["known"]


# -- streams -----------------------------------------------------------------------------------


def test_a_stream_that_has_not_caught_up_ends_with_the_rights_of_its_reader(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = 0
    before = server.process.state

    def read_page(*args: Any, read: Any = feed.read_page) -> Any:
        nonlocal pages
        pages += 1
        if pages == 3:
            is_done = threading.Event()

            def revoke() -> None:
                server.swap(tokens=FewTokens({"another": "lead"}))
                is_done.set()

            server._loop.call_soon_threadsafe(revoke)
            assert is_done.wait(60)
        return read(*args)

    monkeypatch.setattr(feed, "read_page", read_page)
    head = [
        "GET /graphs/g/changes?limit=1 HTTP/1.1",
        "Host: x",
        "Accept: text/event-stream",
        "Authorization: Bearer tok-lead",
        "Connection: close",
    ]
    with socket.create_connection(("127.0.0.1", server.port), 60) as connection:
        connection.sendall("\r\n".join([*head, "", ""]).encode())
        received = b""
        while piece := connection.recv(1 << 16):
            received += piece
    try:
        assert received.count(b"\ndata: ") == pages == 3
    finally:
        server._loop.call_soon_threadsafe(server.process.swap, before)
