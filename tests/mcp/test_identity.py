"""Agents with tokens of an identity provider, and agents whose rights change while they work."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from tests.server.identity_provider import IdentityProvider
from tests.server.test_identity_processes import ADD, BUNDLE, PEOPLE, TOKENS, Guarded

pytestmark = [pytest.mark.rotates(6), pytest.mark.xdist_group("agent processes")]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Two readers and a writer, static and signed tokens, rules for rows."""
    with IdentityProvider() as provider:
        guarded = Guarded(tmp_path_factory.mktemp("guarded"), provider)
        with guarded.server as server:
            server.await_listening()
            yield guarded


@pytest.fixture
def reset(guarded: Guarded) -> Iterator[Guarded]:
    """The files of the server are those of the start afterwards."""
    texts = {path.name: path.read_text() for path in guarded.folder.glob("*.[yj]*")}
    yield guarded
    for name, text in texts.items():
        guarded.write(name, text)
    guarded.reload()


def session(guarded: Guarded, token: str, work):
    """What the official client does in one session; every message may reach another reader."""

    async def run():
        limits = httpx2.Limits(max_keepalive_connections=0)
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60, limits=limits) as http:
            url = f"http://{guarded.server.address}/graphs/g/mcp"
            async with Client(streamable_http_client(url, http_client=http)) as client:
                return await work(client)

    return asyncio.run(run())


def call(guarded: Guarded, token: str, tool: str, **arguments):
    result = session(guarded, token, lambda client: client.call_tool(tool, arguments))
    return json.loads(result.content[0].text)


async def names_of(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


# -- tokens of an identity provider --------------------------------------------------------------


def test_the_claims_of_an_agent_decide_what_its_tools_show_and_write(guarded):
    first, second = (guarded.provider.token(sub="olaf", tenant=name) for name in ("t1", "t2"))
    rows = [call(guarded, token, "graph_query", query=PEOPLE)["rows"] for token in (first, second)]
    assert rows == [[{"p.name": "Ada"}], [{"p.name": "Bea"}]]
    denied = call(guarded, second, "graph_mutate", query=ADD, params={"name": "X"}, branch="main")
    assert denied["code"] == "policy_denied"
    params, branch = {"name": "Olaf's"}, "main"
    receipt = call(guarded, first, "graph_mutate", query=ADD, params=params, branch=branch)
    assert receipt["actor"] == "olaf"
    # No group of the claims has any rule.
    nobody = guarded.provider.token(sub="nina", groups=[], tenant="t1")
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    assert guarded.ask(nobody, "POST", "/graphs/g/mcp", message).status == 404


def test_a_page_is_for_the_actor_and_the_claims_it_was_read_with(guarded):
    own = guarded.provider.token(sub="olaf", tenant="t1")
    again = guarded.provider.token(sub="olaf", tenant="t1", note="renewed")
    call(guarded, own, "graph_mutate", query=ADD, params={"name": "Zed"}, branch="main")
    given = {"query": PEOPLE, "limit": 1}
    first = call(guarded, own, "graph_query", **given)
    given["cursor"] = first["cursor"]
    assert call(guarded, again, "graph_query", **given)["row_count"] == 1
    other = guarded.provider.token(sub="olaf", tenant="t2")
    assert call(guarded, other, "graph_query", **given)["code"] == "view_changed"
    ana = guarded.provider.token(sub="mona", tenant="t1")
    assert call(guarded, ana, "graph_query", **given)["code"] == "foreign_cursor"


@pytest.mark.parametrize("changes", [{"exp": 1}, {"aud": "another"}, {"kind": "EC"}])
def test_a_token_that_is_not_valid_starts_no_session(guarded, changes):
    if "kind" in changes:
        changes = {"algorithm": "ES256", "kind": "EC"}
    token = guarded.provider.token(sub="olaf", tenant="t1", **changes)
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    assert guarded.ask(token, "POST", "/graphs/g/mcp", message).status == 401
    with pytest.raises(ExceptionGroup) as raised:
        session(guarded, token, names_of)
    assert raised.value.split(MCPError)[1] is None


# -- rights that change during a session ---------------------------------------------------------


@pytest.mark.parametrize("kind", ["static", "signed"])
def test_a_reload_changes_the_tools_and_the_rows_of_a_session(reset, kind):
    guarded = reset
    token = TOKENS["ana"] if kind == "static" else guarded.provider.token(sub="ana")

    async def work(client: Client):
        before = await names_of(client)
        guarded.write("policy.yaml", BUNDLE.replace("[read, change]", "[read]"))
        guarded.reload()
        after = [await names_of(client) for _ in range(6)]
        with pytest.raises(MCPError) as denied:
            await client.call_tool("graph_mutate", {"query": ADD, "branch": "main"})
        with pytest.raises(MCPError) as unknown:
            await client.call_tool("graph_nothing", {"query": ADD, "branch": "main"})
        guarded.write("policy.yaml", BUNDLE.replace("TENANT", "t2"))
        guarded.reload()
        rows = await client.call_tool("graph_query", {"query": PEOPLE})
        return before, after, denied.value, unknown.value, rows

    before, after, denied, unknown, rows = session(guarded, token, work)
    assert "graph_mutate" in before
    assert all(names == before - {"graph_mutate"} for names in after)
    assert str(denied).replace("graph_mutate", "graph_nothing") == str(unknown)
    assert json.loads(rows.content[0].text)["rows"] == [{"p.name": "Bea"}]


@pytest.mark.parametrize("kind", ["static", "signed"])
def test_a_revoked_token_ends_its_session(reset, kind):
    guarded = reset
    token = TOKENS["ana"]
    if kind == "signed":
        token = guarded.provider.token(sub="olaf", tenant="t2")
    errors = []

    async def work(client: Client):
        assert "graph_query" in await names_of(client)
        if kind == "static":
            guarded.write("tokens.json", json.dumps({"root": TOKENS["root"]}))
        else:
            guarded.write("oidc.yaml", guarded.provider.settings_text(audience="another"))
        guarded.reload()
        for _ in range(4):
            with pytest.raises(MCPError) as refused:
                await client.call_tool("graph_query", {"query": PEOPLE})
            errors.append(refused.value)

    session(guarded, token, work)
    # The client does not pass the status on.
    assert {str(error) for error in errors} == {"Server returned an error response"}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    assert guarded.ask(token, "POST", "/graphs/g/mcp", message).status == 401
