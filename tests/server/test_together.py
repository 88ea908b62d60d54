"""Tried together: policy and groups, reloads and loads, limits and clients, broken connections."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import omnigraph
from omnigraph import Graph
from omnigraph.errors import OutcomePending, PolicyDenied, RowLimitExceeded, ServerUnavailable
from omnigraph.server.config import QueryLimits
from tests.server.serving import ADD, PEOPLE, ListedAccess, ndjson, open_served, serving

TOKENS = {"token-a": "ana", "token-b": "bo"}


def test_a_denied_write_among_grouped_ones_fails_alone(tmp_path: Path) -> None:
    access = ListedAccess({("bo", "change")})
    with (
        open_served(tmp_path / "g.omni") as graph,
        serving({"g": graph}, tokens=TOKENS, access=access) as server,
    ):
        clients = {token: server.client(token, "g") for token in TOKENS}
        start = threading.Barrier(8)

        def write(number: int) -> tuple[int, int]:
            token = "token-a" if number % 2 else "token-b"
            start.wait(60)
            answer = clients[token].post(
                "/mutate", {"query": ADD, "params": {"name": f"p{number}"}}
            )
            return number, answer.status

        with ThreadPoolExecutor(8) as pool:
            statuses = dict(pool.map(write, range(8)))
        assert statuses == {number: 200 if number % 2 else 403 for number in range(8)}
        added = [commit for commit in graph.commits() if commit.actor is not None]
        assert [commit.actor for commit in added] == ["ana"] * 4
        names = {row["p.name"] for row in graph.query(PEOPLE).rows()}
        assert {f"p{number}" for number in range(8)} & names == {"p1", "p3", "p5", "p7"}


def test_a_load_that_runs_while_the_state_is_replaced_ends_as_it_began(tmp_path: Path) -> None:
    rows = [{"type": "Person", "data": {"name": f"p{number}"}} for number in range(2_000)]
    with (
        open_served(tmp_path / "g.omni") as graph,
        serving({"g": graph}, tokens=TOKENS) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        loader, reader = server.client("token-a", "g"), server.client("token-b", "g")
        load = pool.submit(loader.post, "/load", {"data": ndjson(rows)})
        # From now on the actor of the load may not write any more.
        while not server.process.admission.in_flight and not load.done():
            reader.get("/schema").ok()
        server.swap(access=ListedAccess({("ana", "change")}))
        assert load.result().ok()["tables"] == [{"table_key": "node:Person", "rows_loaded": 2_000}]
        assert loader.post("/load", {"data": ndjson(rows[:1])}).status == 403
        assert len(reader.post("/query", {"query": PEOPLE}).ok()["rows"]) == 2_002


@pytest.fixture
def few_rows(tmp_path: Path):
    limits = QueryLimits(30.0, 1, 1 << 29)
    access = ListedAccess({"export"})
    with (
        open_served(tmp_path / "g.omni") as graph,
        serving({"g": graph}, tokens=TOKENS, access=access, limits=limits) as server,
    ):
        yield server


def test_the_row_limit_of_a_server_is_the_error_of_the_library(few_rows) -> None:
    with omnigraph.connect(few_rows.url, graph="g", token="token-a") as graph:
        with pytest.raises(RowLimitExceeded, match="more than 1 rows") as raised:
            graph.query(PEOPLE).rows()
        # The client cannot raise the limit of the server, so the hint does not offer it.
        assert raised.value.hint is not None
        assert "raise" not in raised.value.hint
        assert graph.query(f"{PEOPLE.rpartition('}')[0]} limit 1 }}").row_count == 1


def test_the_async_client_says_what_a_broken_connection_means(tmp_path: Path) -> None:
    """A read can be repeated; the outcome of a write is unknown."""

    async def run() -> None:
        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            url = f"http://127.0.0.1:{port}"
            async with await omnigraph.connect_async(url, graph="g", token="token-a") as graph:
                with pytest.raises(ServerUnavailable) as raised:
                    await graph.branches.list()
                assert raised.value.retryable
                with pytest.raises(OutcomePending):
                    await graph.mutate(ADD, params={"name": "maybe"})

    asyncio.run(run())


def test_a_graph_with_a_policy_refuses_one_member_of_a_group(tmp_path: Path) -> None:
    policy = omnigraph.Policy.parse(
        """
        version: 1
        groups: {staff: [ana, bo], writers: [ana]}
        rules:
          - id: write
            allow: {actors: {group: writers}, actions: [change], branch_scope: any}
        """
    )
    with open_served(tmp_path / "g.omni") as made:
        made.close()
    with Graph.open(tmp_path / "g.omni", policy=policy) as graph, ThreadPoolExecutor(6) as pool:

        def add(number: int) -> str:
            actor = "bo" if number == 3 else "ana"
            try:
                graph.mutate(ADD, params={"name": f"p{number}"}, actor=actor)
            except PolicyDenied:
                return "denied"
            return "written"

        outcomes = list(pool.map(add, range(6)))
    assert outcomes == ["written"] * 3 + ["denied"] + ["written"] * 2
