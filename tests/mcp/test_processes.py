"""Agents at real processes: a server with readers and a writer, and the command of one agent."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from omnigraph import Graph
from tests.mcp.conftest import QUERIES, ROWS, SCHEMA
from tests.server.processes import ServerUnderTest, until

pytestmark = [pytest.mark.rotates(6), pytest.mark.xdist_group("agent processes")]

TOKENS = {"ana": "token-ana-1", "bo": "token-bo-2"}
POLICY = """
version: 2
groups: { readers: [ana], writers: [bo] }
rules:
  - { id: read, allow: { actors: { group: readers }, actions: [read] } }
  - id: write
    allow:
      actors: { group: writers }
      actions: [read, change, invoke_query, branch_create, branch_merge, branch_delete]
"""
ADD = "query add($n: String) { insert Person { name: $n } }"
PEOPLE = "query people() { match { $p: Person } return { $p.name } order { $p.name } }"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("agents")
    (folder / "queries").mkdir()
    (folder / "queries" / "people.gq").write_text(QUERIES["older.gq"])
    (folder / "policy.yaml").write_text(POLICY)
    with Graph.init(folder / "g.omni", SCHEMA, durability="os") as graph:
        graph.load(ROWS)
        graph.load([{"type": "Person", "data": {"name": f"p{n:03}"}} for n in range(300)])
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerUnderTest]:
    """Two readers and a writer."""
    command = [sys.executable, "-m", "omnigraph.cli", "serve", str(folder / "g.omni")]
    command += ["--queries", str(folder / "queries"), "--policy", str(folder / "policy.yaml")]
    command += ["--workers", "2", "--bind", "127.0.0.1:0"]
    environ = {
        "OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": json.dumps(TOKENS),
        "OMNIGRAPH_AGENT_BRANCHES": "bo=agents/{actor}/",
        "OMNIGRAPH_AGENT_MAX_ROWS": "40",
    }
    with ServerUnderTest(command, folder / "server.log", environ) as started:
        yield started.await_listening()


def with_client(server: ServerUnderTest, actor: str, work):
    """Every message has a connection of its own, so both readers answer."""

    async def run():
        limits = httpx2.Limits(max_keepalive_connections=0)
        headers = {"Authorization": f"Bearer {TOKENS[actor]}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60, limits=limits) as http:
            url = f"http://{server.address}/graphs/g/mcp"
            async with Client(streamable_http_client(url, http_client=http)) as client:
                return await work(client)

    return asyncio.run(run())


def data_of(result):
    assert not result.is_error, result.content[0].text
    return result.structured_content


def test_writes_of_agents_run_in_the_writer_and_are_read_on_any_reader(server, folder):
    branch = "agents/bo/facts"

    async def work(client):
        data_of(await client.call_tool("branch_create", {"name": branch}))

        async def add(number: int):
            arguments = {"query": ADD, "params": {"n": f"new {number}"}, "branch": branch}
            return data_of(await client.call_tool("graph_mutate", arguments))

        receipts = await asyncio.gather(*(add(number) for number in range(8)))
        text = 'query q() { match { $p: Person $p.name starts_with "new" } return { $p.name } }'
        counts = [
            data_of(await client.call_tool("graph_query", {"query": text, "branch": branch}))
            for _ in range(8)
        ]
        refused = await client.call_tool("graph_mutate", {"query": ADD, "branch": "main"})
        stored = data_of(await client.call_tool("add_person", {"name": "S", "_branch": branch}))
        return receipts, [page["row_count"] for page in counts], refused, stored

    receipts, counts, refused, stored = with_client(server, "bo", work)
    assert counts == [8] * 8
    assert "agents write only to branches that begin with 'agents/bo/'" in str(refused)
    assert {receipt["actor"] for receipt in (*receipts, stored)} == {"bo"}
    with Graph.open(folder / "g.omni", "r") as graph:
        commits = {commit.commit_id: commit for commit in graph.commits(branch)}
    assert {receipt["commit_id"] for receipt in receipts} <= commits.keys()
    # Writers that wait for one branch are published together.
    assert any(commits[receipt["commit_id"]].group for receipt in receipts)
    called = [line for line in server.events("tool called") if line["kind"] == "write"]
    assert {line["process"] for line in called} == {"writer"}


def test_a_cursor_of_one_reader_is_accepted_by_the_others(server):
    async def work(client):
        names, cursor = [], None
        while True:
            given = {"query": PEOPLE} | ({} if cursor is None else {"cursor": cursor})
            page = data_of(await client.call_tool("graph_query", given))
            names += [row["p.name"] for row in page["rows"]]
            cursor = page.get("cursor")
            if cursor is None:
                return names

    async def at_once(client):
        return await asyncio.gather(*(work(client) for _ in range(4)))

    def readers() -> set[str]:
        """The readers that have answered; which one accepts a connection is chance."""
        for names in with_client(server, "ana", at_once):
            assert names == ["Ada", "Grace", *(f"p{n:03}" for n in range(300))]
        called = server.events("tool called")
        return {line["process"] for line in called if line["actor_id"] == "ana"}

    until(lambda: len(readers()) == 2, "both readers answer")


def test_a_denied_tool_is_answered_by_the_reader_like_an_unknown_one(server):
    headers = {
        "Authorization": f"Bearer {TOKENS['ana']}",
        "Accept": "application/json",
        "Content-Type": "application/json",
    }
    bodies = set()
    for name in ("graph_mutate", "graph_xxxxxx"):
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name}}
        answer = server.ask("POST", "/graphs/g/mcp", json.dumps(message).encode(), headers)
        bodies.add((answer.status, answer.body.replace(name.encode(), b"?")))
    assert len(bodies) == 1
    assert not any(token in server.log for token in TOKENS.values())


# -- the command of one agent -----------------------------------------------------------------


def command_of(folder: Path, *options: str) -> list[str]:
    queries = str(folder / "queries")
    graph = str(folder / "g.omni")
    return [sys.executable, "-m", "omnigraph.cli", "mcp", graph, "--queries", queries, *options]


@pytest.mark.slow
def test_the_command_pages_lists_and_refuses_like_the_server(folder):
    async def work():
        command = command_of(folder, "--as", "bot", "--branch-prefix", "bots/", "--max-rows", "40")
        parameters = StdioServerParameters(
            command=command[0], args=command[1:], env=dict(os.environ)
        )
        async with Client(parameters) as client:
            first = data_of(await client.call_tool("graph_query", {"query": PEOPLE}))
            given = {"query": PEOPLE, "cursor": first["cursor"]}
            second = data_of(await client.call_tool("graph_query", given))
            refused = await client.call_tool("branch_create", {"name": "other"})
            commits = data_of(await client.call_tool("commit_list", {"limit": 1}))
            older = {"limit": 1, "cursor": commits["cursor"]}
            before = data_of(await client.call_tool("commit_list", older))
            return first, second, refused, [commits["commits"][0], before["commits"][0]]

    first, second, refused, commits = asyncio.run(work())
    rows = [row["p.name"] for page in (first, second) for row in page["rows"]]
    assert rows == ["Ada", "Grace", *(f"p{n:03}" for n in range(78))]
    assert json.loads(refused.content[0].text)["code"] == "policy_denied"
    assert commits[0]["parent"] == commits[1]["commit_id"]


def test_the_command_survives_garbage_and_ends_with_its_input(folder):
    lines = [b"garbage", b"[1, 2", b"\xff\xfe", b"{}", b'{"jsonrpc":"2.0","id":{},"method":5}']
    lines.append(b'{"jsonrpc":"2.0","id":7,"method":"ping"}')
    done = subprocess.run(
        command_of(folder, "--read-only"),
        input=b"\n".join(lines) + b"\n",
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answered = [json.loads(line) for line in done.stdout.splitlines()]
    assert any(message.get("id") == 7 for message in answered)
    assert b"Traceback" not in done.stderr
