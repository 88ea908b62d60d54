"""Actors over HTTP: signed tokens, rows, stored queries, and what is hidden, denied or absent."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph, Policy
from omnigraph.identity import Identity
from omnigraph.server.access import Access, RunState
from omnigraph.server.authentication import Authentication
from omnigraph.server.oidc import fetching, keys
from omnigraph.server.oidc.settings import parse_oidc
from omnigraph.server.oidc.verifier import OidcVerifier
from omnigraph.server.state import CurrentGate
from omnigraph.server.tokens import TokenTable
from tests.server.identity_provider import SECRET_CLAIM, IdentityProvider
from tests.server.serving import ADD, PEOPLE, QUERIES, ROWS, SCHEMA, Response, Server, serving
from tests.server.test_oidc import BAD_TOKENS

# The last test is about what all the others made the server say.
pytestmark = [pytest.mark.rotates(2), pytest.mark.xdist_group("identity")]

BUNDLE = """
version: 2
groups: {staff: [], service: [bot], admins: [root], guests: [guest], old: [olga],
  operators: []}
protected_branches: [main, secret/**]
rules:
  - {id: staff, allow: {actors: {group: staff}, actions: [read, export, change]}}
  - {id: service, allow: {actors: {group: service}, actions: [invoke_query, read],
      queries: [adults]}}
  - {id: guests, allow: {actors: {group: guests}, actions: [read], branch_scope: unprotected}}
  - {id: old, allow: {actors: {group: old}, actions: [read]}}
  - {id: admins, allow: {actors: {group: admins}, actions: [read, read_history, export, change,
      branch_create, branch_delete, branch_merge, invoke_query, admin]}}
  - {id: operators, allow: {actors: {group: operators}, actions: [admin]}}
rows:
  - {id: by-age, actors: {group: staff}, types: [Person], where: "age <= $actor.level"}
  - {id: all, actors: {group: admins}, types: ["*"]}
  - {id: people, actors: {group: service}, types: [Person]}
  - {id: open, actors: {group: guests}, types: ["*"]}
"""
STATIC = {"bot": "tk-bot-3b9f", "root": "tk-root-3b9f", "guest": "tk-guest-3b9f"}
STATIC |= {"olga": "tk-olga-3b9f", "nobody": "tk-nobody-3b9f"}


class Counting(Access):
    """Counts decisions."""

    decisions = 0

    def decide(self, *arguments: Any, **options: Any) -> Any:
        self.decisions += 1
        return super().decide(*arguments, **options)


class Guarded:
    """A server with a policy for rows, static tokens, and an identity provider."""

    def __init__(self, server: Server, provider: IdentityProvider, graph: Graph) -> None:
        self.server = server
        self.provider = provider
        self.graph = graph
        self.access: Counting = server.process.state.access  # type: ignore[assignment]
        self.bodies: list[bytes] = []
        self.lines: list[dict[str, Any]] = []

    def ask(self, token: str, method: str, path: str, body: Any = None) -> Response:
        client = self.server.client(token, "g")
        response = client.request(method, path, body, headers={"Omnigraph-Request-Id": "same"})
        client.close()
        self.bodies.append(response.body)
        self.lines += self.server.log_lines()
        return response

    def people(self, token: str) -> list[str]:
        rows = self.ask(token, "POST", "/query", {"query": PEOPLE}).ok()["rows"]
        return [row["p.name"] for row in rows]

    def work(self, ask: Callable[[], Response]) -> tuple[Response, int, int]:
        """A response, and how many decisions and reads of the storage it took."""
        traffic = self.graph._handle.store.objects.traffic
        decisions, reads = self.access.decisions, traffic.reads + traffic.lists
        response = ask()
        spent = traffic.reads + traffic.lists - reads
        return response, self.access.decisions - decisions, spent


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with pytest.MonkeyPatch.context() as patch:
        # On a busy machine the first keys may come late.
        patch.setattr(fetching, "FETCH_SECONDS", 60.0)
        yield from _guarded(tmp_path_factory)


def _guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    root: Path = tmp_path_factory.mktemp("guarded") / "g.omni"
    with Graph.init(root, SCHEMA, durability="os") as graph:
        graph.load(ROWS, actor="loader")
        graph.branches.create("draft")
        graph.branches.create("secret/plan")
        query = ADD.replace("age: $age", "age: 99")
        graph.mutate(query, params={"name": "Hidden", "age": None}, branch="secret/plan")
    access = Counting(RunState.POLICY, {"g": Policy.parse(BUNDLE)})
    gate = CurrentGate("g", lambda: access)
    with (
        IdentityProvider() as provider,
        Graph.open(root, local_files=False, policy=gate) as graph,
    ):
        verifier = OidcVerifier(parse_oidc(provider.settings_text()), lambda _: None)
        authentication = Authentication(TokenTable(STATIC), verifier)
        with serving(
            {"g": graph}, queries=QUERIES, authentication=authentication, access=access
        ) as server:
            yield Guarded(server, provider, graph)


# -- who asks --------------------------------------------------------------------------------------


def test_groups_and_attributes_of_a_token_decide_what_is_seen(guarded):
    provider = guarded.provider
    assert guarded.people(provider.token(level=36)) == ["Ada"]
    assert guarded.people(provider.token(level=37)) == ["Ada", "Grace"]
    # Without the attribute the rule opens nothing; without the group nothing is allowed.
    assert guarded.people(provider.token()) == []
    stranger = provider.token(groups=["others"])
    guarded.ask(stranger, "POST", "/query", {"query": PEOPLE}).fails(404, "graph 'g' not found")
    assert guarded.people(STATIC["root"]) == ["Ada", "Grace"]


def test_every_read_route_shows_the_same_rows(guarded):
    token = guarded.provider.token(level=36)
    tables = guarded.ask(token, "GET", "/snapshot").ok()["tables"]
    assert {table["table_key"]: table["row_count"] for table in tables} == {
        "node:Person": 1,
        "node:City": 0,
        "edge:Knows": 0,
        "edge:LivesIn": 0,
    }
    exported = guarded.ask(token, "POST", "/export", {}).body.decode().splitlines()
    assert [json.loads(line)["data"]["name"] for line in exported] == ["Ada"]
    read = guarded.ask(token, "POST", "/read", {"query_source": PEOPLE}).ok()
    assert [row["p.name"] for row in read["rows"]] == ["Ada"]
    commit = guarded.ask(STATIC["root"], "GET", "/commits").ok()["commits"][0]["graph_commit_id"]
    at = guarded.ask(token, "POST", "/query", {"query": PEOPLE, "snapshot": commit}).ok()
    assert at["row_count"] == 1


def test_the_author_of_a_commit_needs_the_right_to_read_history(guarded):
    for path in ("/commits?branch=main", "/commits"):
        seen = guarded.ask(STATIC["root"], "GET", path).ok()["commits"]
        hidden = guarded.ask(STATIC["olga"], "GET", path).ok()["commits"]
        assert "loader" in {commit["actor_id"] for commit in seen}
        assert {commit["actor_id"] for commit in hidden} == {None}
        assert [c["graph_commit_id"] for c in seen] == [c["graph_commit_id"] for c in hidden]
    one = seen[-1]["graph_commit_id"]
    assert guarded.ask(STATIC["olga"], "GET", f"/commits/{one}").ok()["actor_id"] is None
    filtered = guarded.ask(STATIC["olga"], "GET", "/commits?actor=loader").ok()["commits"]
    assert filtered == []


def test_the_actor_of_a_commit_is_that_of_the_token(guarded):
    body = {"query": ADD, "params": {"name": "Bea", "age": 1}, "branch": "draft", "actor": "root"}
    token = guarded.provider.token(sub="ana", level=5)
    answer = guarded.ask(token, "POST", "/mutate", body).ok()
    assert answer["actor_id"] == "ana"
    assert guarded.graph.for_actor("root").commits("draft")[0].actor == "ana"
    # What the actor would not see, it may not write.
    body["params"] = {"name": "Old", "age": 90}
    guarded.ask(token, "POST", "/mutate", body).fails(403, "policy denied")


@pytest.mark.parametrize("name", [name for name in BAD_TOKENS if name not in ("binary", "huge")])
def test_bad_tokens_get_the_same_401(guarded, name):
    unknown = guarded.ask("nobody-has-this", "POST", "/query", {"query": PEOPLE})
    fetches = guarded.provider.fetches
    answer = guarded.ask(BAD_TOKENS[name](guarded.provider), "POST", "/query", {"query": PEOPLE})
    assert answer.status == unknown.status == 401
    assert answer.body == unknown.body
    assert guarded.provider.fetches <= fetches + 1


def test_without_keys_signed_tokens_are_refused_and_static_ones_work(guarded, monkeypatch):
    verifier = guarded.server.process.state.tokens.oidc
    monkeypatch.setattr(keys, "RENEWAL_SECONDS", 0.0)
    monkeypatch.setattr(verifier._keys, "_loaded", float("-inf"))
    guarded.provider.answer = lambda request: request.send_error(500) is None
    try:
        refused = guarded.ask(guarded.provider.token(), "POST", "/query", {"query": PEOPLE})
        refused.fails(503, "keys of the identity provider")
        assert refused.json["retryable"]
        assert int(refused.headers["retry-after"]) >= 1
        assert guarded.people(STATIC["root"])
    finally:
        guarded.provider.answer = None


# -- stored queries --------------------------------------------------------------------------------


def test_an_actor_lists_and_invokes_only_its_stored_queries(guarded):
    bot = STATIC["bot"]
    listed = guarded.ask(bot, "GET", "/queries").ok()["queries"]
    assert [query["name"] for query in listed] == ["adults"]
    body = {"params": {"age": 37}}
    rows = guarded.ask(bot, "POST", "/queries/adults", body).ok()["rows"]
    assert [row["p.name"] for row in rows] == ["Grace"]
    denied = guarded.ask(bot, "POST", "/queries/add_person", {"params": {"name": "x"}})
    unknown = guarded.ask(bot, "POST", "/queries/nothing", {"params": {"name": "x"}})
    assert (denied.status, denied.body) == (unknown.status, unknown.body)
    assert denied.json["error"] == "stored query not found"
    # The right to read is one inside of the query, not for texts of the service's own.
    guarded.ask(bot, "POST", "/query", {"query": PEOPLE}).fails(403, "policy denied action 'read'")
    guarded.ask(STATIC["olga"], "GET", "/queries").ok()
    all_of_them = guarded.ask(STATIC["root"], "GET", "/queries").ok()["queries"]
    assert {query["name"] for query in all_of_them} == set(QUERIES)


def test_a_denied_stored_mutation_does_not_travel_to_the_writer(guarded):
    process = guarded.server.process
    forwarded: list[str] = []

    async def forward(scope: Any, receive: Any, send: Any) -> None:
        forwarded.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    process.forwarder = forward
    try:
        body = {"params": {"name": "x"}}
        guarded.ask(STATIC["bot"], "POST", "/queries/add_person", body).fails(404)
        assert forwarded == []
        guarded.ask(STATIC["root"], "POST", "/queries/add_person", body).ok()
        assert forwarded == ["/graphs/g/queries/add_person"]
    finally:
        process.forwarder = None


# -- hidden, denied, absent ------------------------------------------------------------------------

HIDDEN = "secret/plan"
ABSENT = "secret/none"


def pairs(guarded: Guarded) -> Iterator[tuple[str, str, str, str, Any]]:
    """An actor, a request about something hidden, its name, and the name of something absent."""
    guest, bot = STATIC["guest"], STATIC["bot"]
    commit = guarded.graph.commit(guarded.graph.commits(HIDDEN)[0].commit_id).commit_id
    unknown = commit[:-3] + ("ZZZ" if commit[-3:] != "ZZZ" else "YYY")
    yield guest, HIDDEN, ABSENT, "/query", {"query": PEOPLE, "branch": HIDDEN}
    yield guest, HIDDEN, ABSENT, "/read", {"query_source": PEOPLE, "branch": HIDDEN}
    yield guest, HIDDEN, ABSENT, "/export", {"branch": HIDDEN}
    yield guest, HIDDEN, ABSENT, "/mutate", {"query": ADD, "branch": HIDDEN}
    yield guest, HIDDEN, ABSENT, "/load", {"data": "", "branch": HIDDEN}
    yield guest, HIDDEN, ABSENT, "/branches/merge", {"source": HIDDEN, "target": "main"}
    yield guest, HIDDEN, ABSENT, "/branches/merge", {"source": "draft", "target": HIDDEN}
    yield guest, HIDDEN, ABSENT, f"/snapshot?branch={HIDDEN}", None
    yield guest, HIDDEN, ABSENT, f"/commits?branch={HIDDEN}", None
    yield guest, "secret%2Fplan", "secret%2Fnone", "DELETE /branches/secret%2Fplan", None
    yield guest, commit, unknown, f"/commits/{commit}", None
    yield guest, commit, unknown, "/query", {"query": PEOPLE, "snapshot": commit}
    yield guest, commit, unknown, "/export", {"snapshot": commit}
    yield bot, "add_person", "no_person", "/queries/add_person", {"params": {"name": "x"}}
    yield bot, "add_person", "no_person", "/queries/add_person/if-graph-commit", {}
    yield STATIC["nobody"], "/graphs/g/", "/graphs/x/", "/query", {"query": PEOPLE}


def test_hidden_and_absent_are_the_same_bytes_for_the_same_work(guarded):
    for token, hidden, absent, path, body in pairs(guarded):
        method, _, rest = path.rpartition(" ")
        method = method or ("GET" if body is None else "POST")

        def send(name: str, token=token, method=method, rest=rest, body=body, hidden=hidden):  # type: ignore[no-untyped-def]
            client = guarded.server.client(token)
            given = json.loads(json.dumps(body).replace(hidden, name))
            target = f"/graphs/g{rest}".replace(hidden, name)
            same = {"Omnigraph-Request-Id": "same"}
            return client.request(method, target, given, headers=same)

        # The first request of a kind loads what is cached afterwards.
        send(absent)
        first = guarded.work(lambda hidden=hidden: send(hidden))
        second = guarded.work(lambda absent=absent: send(absent))
        shown = [name.strip("/").removeprefix("graphs/").encode() for name in (hidden, absent)]
        shown = [name.replace(b"%2F", b"/") for name in shown]
        assert first[0].status == second[0].status == 404, (path, first[0].body, second[0].body)
        quoted = [b"'" + name + b"'" for name in shown]
        expected = (
            second[0]
            .body.replace(quoted[1], quoted[0])
            .replace(b'"' + shown[1] + b'"', b'"' + shown[0] + b'"')
        )
        assert first[0].body == expected, path
        assert first[1:] == second[1:], (path, "decisions and reads of the storage")
        assert first[0].headers.keys() == second[0].headers.keys()


def test_an_actor_who_may_not_list_commits_reads_those_of_its_branches(guarded):
    mine = guarded.graph.for_actor("root").mutate(
        ADD, params={"name": "Own", "age": 2}, branch="draft"
    )
    body = {"query": PEOPLE, "snapshot": mine.commit_id}
    assert guarded.ask(STATIC["guest"], "POST", "/query", body).ok()["row_count"] > 0
    inherited = {**body, "snapshot": guarded.graph.commits("main")[0].commit_id}
    guarded.ask(STATIC["guest"], "POST", "/query", inherited).fails(404, "not found")


def test_what_an_actor_may_know_is_denied_by_name(guarded):
    """The middle column: 403 with the action, whether it exists or not."""
    olga = STATIC["olga"]
    for branch in ("draft", "none", HIDDEN):
        answer = guarded.ask(olga, "POST", "/mutate", {"query": ADD, "branch": branch})
        answer.fails(403, f"policy denied action 'change' on branch '{branch}' for actor 'olga'")
    guarded.ask(STATIC["guest"], "POST", "/mutate", {"query": ADD}).fails(403, "on branch 'main'")
    guarded.ask(STATIC["guest"], "POST", "/mutate", {"query": ADD, "branch": "draft"}).fails(403)


def test_a_hidden_row_is_absent(guarded):
    query = 'query q() { match { $p: Person { name: "Grace" } } return { $p.name, $p.age } }'
    token = guarded.provider.token(level=36)
    hidden = guarded.ask(token, "POST", "/query", {"query": query}).ok()
    absent = guarded.ask(token, "POST", "/query", {"query": query.replace("Grace", "None")}).ok()
    assert hidden == absent
    assert hidden["row_count"] == 0


# -- explanations ----------------------------------------------------------------------------------


def test_an_administrator_asks_why(guarded):
    root = STATIC["root"]

    def explain(**body: Any) -> dict[str, Any]:
        answer: dict[str, Any] = guarded.ask(root, "POST", "/policy/explain", body).ok()
        return answer

    assert explain(actor="guest", action="read", branch="draft") == {
        "decision": "allow",
        "actor": "guest",
        "action": "read",
        "branch": "draft",
        "matched_rule": "guests",
        "message": "policy allowed action 'read' for actor 'guest'",
    }
    assert explain(actor="bot", action="read", query="adults")["matched_rule"] == "service"
    assert explain(actor="bot", action="read")["decision"] == "deny"
    row = {"type": "Person", "id": "Grace"}
    seen = explain(actor="x", groups=["staff"], attributes={"level": 40}, row=row)["row"]
    assert (seen["visible"], seen["rules"][0]["rule"]) == (True, "by-age")
    hidden = explain(actor="x", groups=["staff"], attributes={"level": 36}, row=row)["row"]
    assert not hidden["visible"]
    guarded.ask(root, "POST", "/policy/explain", {"actor": "x"}).fails(400, "nothing to explain")


def test_an_administrator_who_does_not_see_all_rows_cannot_ask_about_one(guarded):
    """With attributes of their choice they could find out the age of a hidden person."""
    token = guarded.provider.token(groups=["staff", "operators"], level=36)
    body = {"actor": "x", "groups": ["staff"], "attributes": {"level": 36}}
    action = {**body, "action": "read"}
    assert guarded.ask(token, "POST", "/policy/explain", action).ok()["decision"] == "allow"
    for name in ("Ada", "Grace", "None"):
        row = {**body, "row": {"type": "Person", "id": name}}
        guarded.ask(token, "POST", "/policy/explain", row).fails(403, "beyond its view")


def test_others_ask_about_their_own_actions_only(guarded):
    guest = STATIC["guest"]
    own = {"actor": "guest", "action": "change", "branch": HIDDEN}
    assert guarded.ask(guest, "POST", "/policy/explain", own).ok()["decision"] == "deny"
    for body in (
        {"actor": "root", "action": "read"},
        {**own, "groups": ["admins"]},
        {"actor": "guest", "row": {"type": "Person", "id": "Ada"}},
    ):
        answer = guarded.ask(guest, "POST", "/policy/explain", body)
        answer.fails(403, "policy denied action 'admin'")


# -- what is said ----------------------------------------------------------------------------------


def test_decisions_are_logged_and_tokens_and_claims_are_not(guarded):
    """Runs last, over everything that the tests of this file made the server say."""
    token = guarded.provider.token(level=36, tenants=["tenant-7c1"])
    guarded.people(token)
    guarded.ask(STATIC["bot"], "POST", "/queries/adults", {"params": {"age": 1}}).ok()
    guarded.lines += guarded.server.log_lines()
    decisions = [line for line in guarded.lines if line["event"] == "policy decision"]
    assert {(line["allowed"], line["level"]) for line in decisions} == {
        (True, "debug"),
        (False, "info"),
    }
    inner = [line for line in decisions if line.get("query") == "adults"]
    assert {line["action"] for line in inner} == {"invoke_query", "read"}
    assert all(line["graph"] == "g" and line["request_id"] for line in inner)
    metrics = guarded.server.process.metrics.render()
    said = b"".join(guarded.bodies) + metrics + json.dumps(guarded.lines).encode()
    for secret in ("3b9f", SECRET_CLAIM, "tenant-7c1", token, token.split(".")[1]):
        assert secret.encode() not in said
    assert Identity("ana").id in said.decode("utf-8", "replace")
