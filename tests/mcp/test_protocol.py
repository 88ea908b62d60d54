"""The tools over the protocol: the official client, in memory and over a real process."""

from __future__ import annotations

import asyncio
import os
import sys
import time

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

from omnigraph.mcp.protocol import EmbeddedCall, create_server
from tests.mcp.conftest import SLOW

ADD = "query add($n: String) { insert Person { name: $n } }"


def with_client(context, work):
    async def run():
        async with Client(create_server(lambda _: EmbeddedCall(context))) as client:
            return await work(client)

    return asyncio.run(run())


def test_the_official_client_lists_and_calls(context_of):
    async def work(client):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        result = await client.call_tool("older", {"min": 30})
        return tools, result

    tools, result = with_client(context_of(), work)
    assert tools["older"].annotations.read_only_hint is True
    assert tools["graph_mutate"].annotations.destructive_hint is True
    assert result.structured_content["rows"][0] == {"p.name": "Ada", "p.age": 36}


def test_an_error_is_a_result_and_an_unknown_tool_an_error_of_the_protocol(context_of):
    async def work(client):
        wrong = await client.call_tool("graph_query", {"query": "query q() {"})
        with pytest.raises(MCPError, match="unknown tool: nothing"):
            await client.call_tool("nothing", {})
        return wrong

    wrong = with_client(context_of(), work)
    assert wrong.is_error
    assert '"code":"query_invalid"' in wrong.content[0].text


def test_resources_are_the_schema_the_queries_and_the_commits(context_of):
    async def work(client):
        listed = [str(resource.uri) for resource in (await client.list_resources()).resources]
        texts = [(await client.read_resource(uri)).contents[0].text for uri in listed]
        with pytest.raises(MCPError, match="unknown resource"):
            await client.read_resource("omnigraph://nothing")
        return dict(zip(listed, texts, strict=True))

    texts = with_client(context_of(), work)
    assert "edge LivesIn" in texts["omnigraph://schema"]
    assert "query older(" in texts["omnigraph://queries"]
    assert '"kind": "load"' in texts["omnigraph://commits"]


def test_prompts_are_filled_and_need_their_arguments(context_of):
    async def work(client):
        names = [prompt.name for prompt in (await client.list_prompts()).prompts]
        filled = await client.get_prompt("review_branch", {"branch": "agents/<x>{y}"})
        with pytest.raises(MCPError, match="needs branch"):
            await client.get_prompt("review_branch", {})
        return names, filled.messages[0].content.text

    names, text = with_client(context_of(), work)
    assert names == ["explore_graph", "enrich_on_branch", "review_branch"]
    assert "`agents/<x>{y}`" in text


def test_the_command_serves_a_graph_over_standard_input_and_output(graph, queries):
    """A real process; it ends when its input does."""
    graph.close()
    command = ["-m", "omnigraph.cli", "mcp", graph.uri, "--queries", str(queries), "--as", "bot"]

    async def run():
        transport = stdio_client(
            StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))
        )
        async with Client(transport) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            await client.call_tool("branch_create", {"name": "b"})
            arguments = {"query": ADD, "params": {"n": "Alan"}, "branch": "b"}
            receipt = await client.call_tool("graph_mutate", arguments)
            file = await client.call_tool("graph_query", {"query": "/etc/passwd"})
            return names, receipt.structured_content, file

    names, receipt, file = asyncio.run(run())
    assert {"older", "add_person", "graph_query"} <= names
    assert receipt["actor"] == "bot"
    assert file.is_error
    assert "root" not in file.content[0].text


def test_a_cancelled_query_ends_at_once(graph, context_of):
    """The program waits for its threads, so a query that ran on would keep it for half a minute."""
    graph.load([{"type": "Person", "data": {"name": f"p{n:04}"}} for n in range(2000)])

    async def run():
        server = create_server(lambda _: EmbeddedCall(context_of()))
        async with Client(server, read_timeout_seconds=0.5) as client:
            with pytest.raises(MCPError, match=r"[Tt]imed out"):
                await client.call_tool("graph_query", {"query": SLOW})

    started = time.monotonic()
    asyncio.run(run())
    assert time.monotonic() - started < 20
