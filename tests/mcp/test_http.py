"""Agents at a server: the official client over HTTP, with every gate of the server."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import httpx2
import jsonschema
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from omnigraph import Graph, Policy
from omnigraph.server.access import Access, RunState
from omnigraph.server.admission import WriteCaps
from omnigraph.server.config import AgentOptions
from omnigraph.server.handlers import tooling
from tests.mcp.conftest import QUERIES, ROWS, SCHEMA, SLOW
from tests.server.processes import until
from tests.server.serving import Server, serving

pytestmark = pytest.mark.rotates(3)

TOKENS = {"t-ana": "ana", "t-bot": "bot", "t-bo": "bo", "t-eve": "eve", "t-pia": "pia"}
POLICY = """
version: 2
groups: { readers: [ana], services: [bot], writers: [bo], planners: [pia] }
actors: { ana: { names: [Ada] } }
protected_branches: [main]
rules:
  - id: readers-read
    allow: { actors: { group: readers }, actions: [read], branches: [main] }
  - id: planners-read
    allow: { actors: { group: planners }, actions: [read, read_history], branches: ["plans*"] }
  - id: services-invoke
    allow:
      actors: { group: services }
      actions: [invoke_query, read, change]
      queries: [older, add_person]
  - id: writers-draft
    allow:
      actors: { group: writers }
      actions: [read, change, invoke_query, branch_create, branch_merge, branch_delete]
rows:
  - { id: own, actors: { group: readers }, types: [Person], where: "name in $actor.names" }
  - { id: links, actors: { group: readers }, types: [Knows] }
  - { id: services, actors: { group: services }, types: ["*"] }
  - { id: writers, actors: { group: writers }, types: ["*"] }
  - { id: planners, actors: { group: planners }, types: ["*"] }
"""
ADD = "query add($n: String) { insert Person { name: $n } }"
PEOPLE = "query people() { match { $p: Person } return { $p.name } order { $p.name } }"
STORED = dict.fromkeys(("older", "add_person"), QUERIES["older.gq"])
ACCEPTS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


class CurrentPolicy:
    """The gate of a graph that is opened before its server."""

    def __init__(self, policy: Policy) -> None:
        self.view, self.check = policy.view, policy.check


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    path = tmp_path_factory.mktemp("agents") / "g.omni"
    with Graph.init(path, SCHEMA, durability="os") as graph:
        graph.load(ROWS)
        graph.mutate(ADD, params={"n": "Gone"})
        graph.mutate('query q() { delete Person where name = "Gone" }')
        graph.branches.create("plans")
        graph.mutate(ADD, params={"n": "Planned"}, branch="plans")
    gate = CurrentPolicy(Policy.parse(POLICY))
    with Graph.open(path, local_files=False, policy=gate, durability="os") as served:
        yield served


@pytest.fixture(scope="module")
def server(graph: Graph) -> Iterator[Server]:
    access = Access(RunState.POLICY, {"g": Policy.parse(POLICY)})
    branches = (("bo", "agents/{actor}/"), ("pia", "plans-"))
    agents = AgentOptions(branches=branches, max_rows=50, max_bytes=20_000)
    with serving(
        {"g": graph}, queries=STORED, tokens=TOKENS, access=access, agents=agents
    ) as server:
        yield server


@pytest.fixture(scope="module")
def large(graph: Graph) -> str:
    """A branch with ten megabytes of texts."""
    writer = graph.for_actor("bo")
    writer.branches.create("agents/bo/large")
    people = ({"name": f"p{number:04}", "bio": "ö" * 2500} for number in range(2000))
    writer.load([{"type": "Person", "data": data} for data in people], branch="agents/bo/large")
    return "agents/bo/large"


def with_client(server: Server, token: str, work, **options):
    async def run():
        http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60)
        transport = streamable_http_client(f"{server.url}/graphs/g/mcp", http_client=http)
        async with http, Client(transport, **options) as client:
            return await work(client)

    return asyncio.run(run())


def call(server: Server, token: str, tool: str, arguments: dict):
    return with_client(server, token, lambda client: client.call_tool(tool, arguments))


def data_of(result):
    assert not result.is_error, result.content[0].text
    return result.structured_content


def error_of(result):
    assert result.is_error
    return json.loads(result.content[0].text)


def post(server: Server, token: str | None, message, **headers: str):
    raw = message if isinstance(message, bytes) else json.dumps(message).encode()
    client = server.client(token, "g")
    return client.request("POST", "/mcp", raw=raw, headers=ACCEPTS | headers)


def tool_call(name: str, arguments: dict | None = None):
    params = {"name": name, "arguments": arguments or {}}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


# -- the protocol -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_official_client_lists_calls_and_gets_typed_errors(server, mode):
    async def work(client):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        rows = await client.call_tool("older", {"min": 30})
        wrong = await client.call_tool("older", {"min": "many"})
        with pytest.raises(MCPError, match="unknown tool: graph_query"):
            await client.call_tool("graph_query", {"query": PEOPLE})
        prompts = [prompt.name for prompt in (await client.list_prompts()).prompts]
        return tools, rows, wrong, prompts

    tools, rows, wrong, prompts = with_client(server, "t-bot", work, mode=mode)
    assert set(tools) == {"older", "add_person"}
    assert data_of(rows)["rows"][0] == {"p.name": "Ada", "p.age": 36}
    jsonschema.validate(rows.structured_content, tools["older"].output_schema)
    error = error_of(wrong)
    assert error["code"] == "bad_parameter"
    assert error["request_id"]
    assert "explore_graph" in prompts


def test_an_error_in_a_text_has_its_place_and_a_hint(server):
    text = "query q() { match { $p: Person } return { $p.nam } }"
    error = error_of(call(server, "t-bo", "graph_query", {"query": text}))
    assert (error["code"], error["hint"]) == ("query_invalid", "did you mean `name`?")
    assert error["diagnostics"][0]["line"] == 1
    assert "^^^" in error["shown"]


def test_resources_are_those_of_the_actor(server):
    async def work(client):
        listed = [str(resource.uri) for resource in (await client.list_resources()).resources]
        texts = {uri: (await client.read_resource(uri)).contents[0].text for uri in listed}
        with pytest.raises(MCPError, match="unknown resource"):
            await client.read_resource("omnigraph://nothing")
        return texts

    texts = with_client(server, "t-ana", work)
    assert "edge LivesIn" in texts["omnigraph://schema"]
    assert texts["omnigraph://queries"] == ""
    # Whoever may not read the history learns no authors.
    assert {commit["actor"] for commit in json.loads(texts["omnigraph://commits"])} == {None}
    assert with_client(server, "t-bot", work) == {}


# -- actors -----------------------------------------------------------------------------------


def test_the_list_of_tools_differs_by_actor(server):
    async def names(client):
        return {tool.name for tool in (await client.list_tools()).tools}

    reader, service, writer = (with_client(server, t, names) for t in ("t-ana", "t-bot", "t-bo"))
    assert "graph_query" in reader
    assert not reader & {"older", "add_person", "graph_mutate", "branch_create", "branch_merge"}
    assert service == {"older", "add_person"}
    assert {"graph_mutate", "branch_create", "branch_merge", "older"} <= writer


@pytest.mark.parametrize("token", ["t-ana", "t-bot"])
@pytest.mark.parametrize("modern", [True, False])
def test_a_denied_tool_is_an_unknown_tool_byte_for_byte(server, token, modern):
    version = {"Mcp-Protocol-Version": "2025-06-18"}
    bodies = []
    for name in ("graph_mutate", "branch_delet0", "branch_merge", "branch_xxxxx"):
        message, headers = tool_call(name, {"branch": "main"}), dict(version)
        if modern:
            meta = {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            }
            message["params"]["_meta"] = meta
            headers = {"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call"}
            headers["Mcp-Name"] = name
        answer = post(server, token, message, **headers)
        bodies.append((answer.status, answer.body.replace(name.encode(), b"?")))
    assert len(set(bodies)) == 1
    assert b"unknown tool: ?" in bodies[0][1]


READS = [
    ("graph_search", {"text": "compiler program"}),
    ("graph_entity", {"type": "Person", "id": "Grace"}),
    ("graph_neighbours", {"type": "Person", "id": "Ada"}),
    ("graph_neighbours", {"type": "Person", "id": "Grace"}),
    ("graph_query", {"query": "query q() { match { $p: Person } return { $p.name, $p.bio } }"}),
    ("graph_query", {"query": "query q() { match { $a knows $b } return { $a.name, $b.name } }"}),
    ("graph_query", {"query": "query q() { match { $c: City } return { $c.name } }"}),
    ("graph_changes", {}),
    ("graph_blame", {"type": "Person", "id": "Grace"}),
    ("graph_schema", {}),
    ("commit_list", {}),
    ("branch_diff", {"branch": "main", "against": "main"}),
]


@pytest.mark.parametrize(("tool", "arguments"), READS)
def test_no_tool_shows_a_row_beyond_the_view(server, tool, arguments):
    result = call(server, "t-ana", tool, arguments)
    text = result.content[0].text.replace("'Grace'", "?") if result.is_error else str(result)
    for hidden in ("Grace", "compiler", "London", "9007199254740993"):
        assert hidden not in text
    assert call(server, "t-bo", tool, arguments).is_error is False or tool == "graph_blame"


def test_every_tool_that_reads_is_tried_with_hidden_rows(server):
    async def names(client):
        tools = (await client.list_tools()).tools
        return {tool.name for tool in tools if tool.annotations.read_only_hint}

    assert with_client(server, "t-ana", names) - {tool for tool, _ in READS} == {"branch_list"}


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("graph_query", {"query": PEOPLE, "branch": "?"}),
        ("graph_schema", {"branch": "?"}),
        ("commit_list", {"branch": "?"}),
        ("graph_changes", {"branch": "?"}),
        ("branch_diff", {"branch": "?"}),
        ("graph_query", {"query": PEOPLE, "at": "?"}),
    ],
)
def test_a_hidden_branch_or_commit_looks_absent(server, graph, tool, arguments):
    commit = graph.commits("plans")[0].commit_id
    texts = []
    for branch, at in (("plans", commit), ("plant", "0" * len(commit))):
        given = {
            name: value.replace("?", at if name == "at" else branch)
            for name, value in arguments.items()
        }
        error = error_of(call(server, "t-ana", tool, given))
        error.pop("request_id")
        texts.append(json.dumps(error).replace(branch, "?").replace(at, "?"))
    assert texts[0] == texts[1]
    assert "not found" in texts[0] or "no tag or commit" in texts[0]


def test_the_history_of_a_branch_shows_nothing_of_unreadable_ones(server, graph):
    page = data_of(call(server, "t-pia", "graph_changes", {"branch": "plans"}))
    assert "Planned" in str(page["blocks"])
    assert "Gone" not in str(page)
    blamed = {"type": "Person", "id": "Gone", "branch": "plans"}
    assert error_of(call(server, "t-pia", "graph_blame", blamed))["code"] == "entity_not_found"
    texts = []
    for commit in (graph.commits("main")[0].commit_id, "0" * 26):
        start = {"branch": "plans", "start": f"after:{commit}"}
        error = error_of(call(server, "t-pia", "graph_changes", start))
        texts.append((error["code"], error["error"].replace(commit, "?")))
    assert texts[0] == texts[1]


# -- results ----------------------------------------------------------------------------------


def test_a_result_of_ten_megabytes_is_cut_and_its_pages_are_one_state(server, large):
    text = "query q() { match { $p: Person } return { $p.name, $p.bio } order { $p.name } }"

    async def work(client):
        arguments = {"query": text, "branch": large}
        first = await client.call_tool("graph_query", arguments)
        pages, page = [first], data_of(first)
        for _ in range(3):
            await client.call_tool(
                "graph_mutate",
                {"query": ADD, "params": {"n": f"a{len(pages)}"}, "branch": large},
            )
            pages.append(
                await client.call_tool("graph_query", {**arguments, "cursor": page["cursor"]})
            )
            page = data_of(pages[-1])
        return pages

    pages = with_client(server, "t-bo", work)
    for page in pages:
        assert len(page.content[0].text.encode()) < 22_000
        assert page.structured_content["truncated"] is True
        assert "cursor" in page.structured_content["note"]
    names = [row["p.name"] for page in pages for row in page.structured_content["rows"]]
    assert names == ["Ada", "Grace", *(f"p{n:04}" for n in range(len(names) - 2))]
    cursor = pages[0].structured_content["cursor"]
    arguments = {"query": text, "branch": large}
    for changed in (cursor[:-2] + "AA", cursor.swapcase(), "x"):
        error = error_of(call(server, "t-bo", "graph_query", {**arguments, "cursor": changed}))
        assert error["code"] == "bad_cursor"
    stolen = {"query": text, "cursor": cursor}
    assert error_of(call(server, "t-ana", "graph_query", stolen))["code"] == "foreign_cursor"


# -- writing ----------------------------------------------------------------------------------


def test_an_agent_writes_only_to_branches_of_its_own(server, graph):
    async def work(client):
        created = await client.call_tool("branch_create", {"name": "agents/bo/facts"})
        receipt = await client.call_tool(
            "graph_mutate",
            {"query": ADD, "params": {"n": "Cy"}, "branch": "agents/bo/facts"},
        )
        refusals = [
            await client.call_tool("branch_create", {"name": "agents/ana/facts"}),
            await client.call_tool("branch_create", {"name": "agents/bot"}),
            await client.call_tool("graph_mutate", {"query": ADD, "branch": "main"}),
            await client.call_tool("add_person", {"name": "Cy", "_branch": "main"}),
            await client.call_tool("branch_merge", {"source": "agents/bo/facts"}),
        ]
        return created, receipt, refusals

    created, receipt, refusals = with_client(server, "t-bo", work)
    assert data_of(created)["branch"] == "agents/bo/facts"
    assert data_of(receipt)["actor"] == "bo"
    assert graph.commit(data_of(receipt)["commit_id"]).branch == "agents/bo/facts"
    for refusal in refusals:
        assert "agents write only to branches that begin with 'agents/bo/'" in str(refusal)
        assert error_of(refusal)["code"] == "policy_denied"
    # A service that no rule of the setting names is limited by the policy only.
    assert data_of(call(server, "t-bot", "add_person", {"name": "Di", "_branch": "main"}))


def test_a_repeated_key_writes_once_and_is_the_actors_own(server):
    arguments = {"name": "Key", "_branch": "main", "idempotency_key": "k1"}
    first, again = (data_of(call(server, "t-bot", "add_person", arguments)) for _ in range(2))
    assert first["commit_id"] == again["commit_id"]
    other = {"name": "Key", "_branch": "agents/bo/keys", "idempotency_key": "k1"}
    data_of(call(server, "t-bo", "branch_create", {"name": "agents/bo/keys"}))
    assert data_of(call(server, "t-bo", "add_person", other))["commit_id"] != first["commit_id"]


# -- gates ------------------------------------------------------------------------------------


def test_a_token_is_needed_and_a_graph_without_rights_is_unknown(server):
    post(server, None, tool_call("older")).fails(401, "missing bearer token")
    post(server, "t-none", tool_call("older")).fails(401, "invalid bearer token")
    post(server, "t-eve", tool_call("older")).fails(404, "graph 'g' not found")


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
def test_other_methods_are_closed(server, method):
    answer = server.client("t-bo", "g").request(method, "/mcp")
    answer.fails(405)
    assert answer.headers["allow"] == "POST"


@pytest.mark.parametrize(
    ("headers", "status", "reason"),
    [
        ({"Origin": "https://evil.example"}, 403, "origin_not_allowed"),
        ({"Origin": "null"}, 403, "origin_not_allowed"),
        ({"Host": "evil.example"}, 421, "host_not_allowed"),
        ({"Host": "localhost.evil.example"}, 421, "host_not_allowed"),
        ({"Content-Type": "text/plain"}, 415, "content_type"),
        ({"Origin": "http://localhost:6274"}, 200, None),
        ({"Host": "localhost"}, 200, None),
    ],
)
def test_web_pages_of_others_are_refused(server, headers, status, reason):
    answer = post(server, "t-bot", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, **headers)
    assert answer.status == status
    if reason is not None:
        assert answer.json["reason"] == reason


def test_a_message_has_at_most_a_mebibyte(server):
    long = tool_call("graph_query", {"query": "x" * (1 << 20)})
    assert post(server, "t-bo", long).fails(413)["reason"] == "body_too_large"


def test_writes_count_in_the_admission_of_the_actor(graph):
    access = Access(RunState.OPEN)
    with serving({"g": graph}, access=access, caps=WriteCaps(writes=1)) as server:
        permit = server.process.admission.enter(None, 1)
        message = tool_call("branch_create", {"name": "agents/x"})
        refused = post(server, None, message, **{"Mcp-Protocol-Version": "2025-06-18"})
        assert refused.fails(429)["reason"] == "too_many_requests"
        assert refused.headers["retry-after"]
        permit.release()
        post(server, None, tool_call("branch_list")).ok()
        until(lambda: server.process.admission.in_flight == 0)


def test_a_server_without_the_package_says_so(server, monkeypatch):
    monkeypatch.setattr(tooling, "_is_loaded", False)
    monkeypatch.setitem(sys.modules, "omnigraph.server.agents", None)
    body = post(server, "t-bo", tool_call("branch_list")).fails(501)
    assert body["reason"] == "package_missing"
    assert "omnigraph[mcp]" in body["hint"]


def test_a_query_ends_when_its_agent_leaves(server, large):
    arguments = {"query": SLOW, "branch": large}

    async def work(client):
        await client.call_tool("graph_query", arguments)

    def leave():
        # A group of errors of the client: its request has timed out.
        with suppress(BaseException):
            with_client(server, "t-bo", work, read_timeout_seconds=0.5)
        left.set()

    left = threading.Event()
    threading.Thread(target=leave).start()
    until(lambda: server.process.reads.in_flight > 0, "the query runs")
    assert left.wait(30)
    started = time.monotonic()
    until(lambda: server.process.reads.in_flight == 0, "the query ends")
    # Its own limit would be 30 seconds.
    assert time.monotonic() - started < 20


# -- garbage ----------------------------------------------------------------------------------


def garbage() -> Iterator[bytes]:
    numbers = random.Random(7)
    good = json.dumps(tool_call("graph_query", {"query": PEOPLE})).encode()
    yield from (b"", b"null", b"[]", b"{}", b"[" * 5000, b"\xff\xfe", b'"\\ud800"', b"1e999")
    yield json.dumps([tool_call("older")] * 2).encode()
    yield b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\\ud800"}}'
    yield b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"graph_mutate",' + (
        b'"arguments":{"query":"\\ud800","branch":"agents/bo/x"}}}'
    )
    yield b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"graph_mutate",' + (
        b'"arguments":{"query":NaN,"branch":"agents/bo/x"}}}'
    )
    for name in ("graph_entity", "branch_create", "branch_merge", "graph_changes", "older"):
        for value in (None, [], {}, -1, 1e300, "x" * 3000, {"type": ["a"]}, True):
            yield json.dumps(tool_call(name, {"type": value, "id": value, "name": value})).encode()
            yield json.dumps({**tool_call(name), "params": value}).encode()
            yield json.dumps({**tool_call(name), "id": value, "method": value}).encode()
    for _ in range(60):
        index = numbers.randrange(len(good))
        yield good[:index] + bytes([numbers.randrange(256)]) + good[index + numbers.randrange(3) :]


def test_garbage_is_refused_and_is_never_a_fault_of_the_server(server):
    server.log_lines()
    for message in garbage():
        for version in ("2025-06-18", "2026-07-28", "x"):
            answer = post(server, "t-bo", message, **{"Mcp-Protocol-Version": version})
            assert answer.status < 500, (message, answer.body)
    faults = [line for line in server.log_lines() if line["level"] == "error"]
    assert faults == []


def test_neither_tokens_nor_parameters_are_logged(server):
    server.log_lines()
    call(server, "t-bo", "graph_query", {"query": PEOPLE, "params": {"n": "my secret"}})
    call(server, "t-bo", "graph_entity", {"type": "Person", "id": "my secret"})
    lines = server.log_lines()
    assert {line["tool"] for line in lines if line["event"] == "tool called"} == {
        "graph_query",
        "graph_entity",
    }
    assert "my secret" not in str(lines)
    assert not any(token in str(lines) for token in TOKENS)
