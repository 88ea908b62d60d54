"""Revoked tokens, changed bundles and another identity provider, on two readers and a writer."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from tests.server.identity_provider import IdentityProvider
from tests.server.processes import Answer, ServerUnderTest
from tests.server.test_serve import serve

pytestmark = [pytest.mark.rotates(3), pytest.mark.xdist_group("served graph")]

SCHEMA = "node Person { name: String @key  tenant: String }"
ROWS = [
    {"type": "Person", "data": {"name": "Ada", "tenant": "t1"}},
    {"type": "Person", "data": {"name": "Bea", "tenant": "t2"}},
]
PEOPLE = "query people() { match { $p: Person } return { $p.name } order { $p.name } }"
ADD = 'query add($name: String) { insert Person { name: $name, tenant: "t1" } }'
BUNDLE = """
version: 2
groups: {staff: [ana], admins: [root]}
actors: {ana: {tenant: TENANT}}
rules:
  - {id: staff, allow: {actors: {group: staff}, actions: [read, change]}}
  - {id: admins, allow: {actors: {group: admins}, actions: [read]}}
rows:
  - {id: own, actors: {group: staff}, types: [Person], where: tenant = $actor.tenant}
"""
SERVER = """
version: 1
groups: {ops: [root]}
rules: [{id: ops, allow: {actors: {group: ops}, actions: [graph_list, config_manage, admin]}}]
"""
TOKENS = {"ana": "tk-ana-5d2e", "root": "tk-root-5d2e"}


class Guarded:
    """A store server with every kind of credential, and the files that it reloads."""

    def __init__(self, folder: Path, provider: IdentityProvider) -> None:
        self.folder = folder
        self.provider = provider
        root = folder / "g.omni"
        with Graph.init(root, SCHEMA, durability="os") as graph:
            graph.load(ROWS)
        self.write("policy.yaml", BUNDLE.replace("TENANT", "t1"))
        self.write("server.yaml", SERVER)
        self.write("tokens.json", json.dumps(TOKENS))
        claims = "{groups: groups, attributes: {tenant: tenant}}"
        self.write("oidc.yaml", provider.settings_text(claims=claims))
        options = ["--policy", str(folder / "policy.yaml"), "--workers", "2"]
        options += ["--server-policy", str(folder / "server.yaml")]
        environ = {
            "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": str(folder / "tokens.json"),
            "OMNIGRAPH_SERVER_OIDC_FILE": str(folder / "oidc.yaml"),
        }
        self.server: ServerUnderTest = serve(root, folder / "log", *options, **environ)

    def write(self, name: str, text: str) -> None:
        """Replace a file as an operator does."""
        other = self.folder / f"{name}.new"
        other.write_text(text)
        other.replace(self.folder / name)

    def ask(self, token: str, method: str, path: str, body: Any = None) -> Answer:
        return self.server.ask(method, path, body, {"Authorization": f"Bearer {token}"})

    def reload(self) -> None:
        assert self.ask(TOKENS["root"], "POST", "/reload").status == 200

    def everywhere(self, token: str) -> set[tuple[int, tuple[str, ...]]]:
        """The answers of many reads, each on a connection of its own: some of each reader."""

        def read(_: int) -> tuple[int, tuple[str, ...]]:
            answer = self.ask(token, "POST", "/graphs/g/query", {"query": PEOPLE})
            rows = answer.json.get("rows", ())
            return answer.status, tuple(row["p.name"] for row in rows)

        with ThreadPoolExecutor(8) as pool:
            return set(pool.map(read, range(16)))

    def add(self, token: str, name: str) -> Answer:
        body = {"query": ADD, "params": {"name": name}}
        return self.ask(token, "POST", "/graphs/g/mutate", body)


def test_changes_are_in_force_on_all_processes_when_the_reload_returns(tmp_path):
    with IdentityProvider() as provider:
        guarded = Guarded(tmp_path, provider)
        with guarded.server as server:
            server.await_listening()
            signed = provider.token(sub="olaf", tenant="t2")
            ana = TOKENS["ana"]
            # The bundle of the server opens its own routes to a token holder.
            assert guarded.ask(TOKENS["root"], "GET", "/graphs").status == 200
            assert guarded.ask(ana, "GET", "/graphs").status == 403
            assert guarded.everywhere(ana) == {(200, ("Ada",))}
            assert guarded.everywhere(signed) == {(200, ("Bea",))}
            assert guarded.add(ana, "Cy").json["actor_id"] == "ana"
            assert guarded.add(signed, "Dee").status == 403
            # Other rows.
            guarded.write("policy.yaml", BUNDLE.replace("TENANT", "t2"))
            guarded.reload()
            assert guarded.everywhere(ana) == {(200, ("Bea",))}
            assert guarded.add(ana, "Eve").status == 403
            # Other rights.
            guarded.write("policy.yaml", BUNDLE.replace("[read, change]", "[read]"))
            guarded.reload()
            assert guarded.add(ana, "Eve").status == 403
            # Another audience of the identity provider.
            guarded.write("oidc.yaml", provider.settings_text(audience="another"))
            guarded.reload()
            assert guarded.everywhere(signed) == {(401, ())}
            assert guarded.add(signed, "Fay").status == 401
            other = provider.token(sub="olaf", aud="another")
            assert guarded.everywhere(other) == {(200, ())}
            # A revoked token.
            guarded.write("tokens.json", json.dumps({"root": TOKENS["root"]}))
            guarded.reload()
            assert guarded.everywhere(ana) == {(401, ())}
            assert guarded.add(ana, "Gus").status == 401
            # Settings that are invalid change nothing.
            guarded.write("oidc.yaml", "version: 1\nissuer: http://elsewhere.example\n")
            assert guarded.ask(TOKENS["root"], "POST", "/reload").status == 409
            assert guarded.everywhere(other) == {(200, ())}
            # Three processes, each of which has fetched the keys of each provider at most once.
            assert provider.fetches <= 6
            metrics = guarded.ask(TOKENS["root"], "GET", "/metrics").body
        said = metrics + guarded.folder.joinpath("log").read_bytes()
        for secret in ("5d2e", "claim-3b9f-secret", signed, other.split(".")[1]):
            assert secret.encode() not in said
