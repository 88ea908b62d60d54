"""Writes over HTTP: mutations, loads, branches, schemas; conflicts, admission, left clients."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph import Graph
from omnigraph.commit.failpoints import Failpoint, hooked
from omnigraph.errors import OutcomePending
from omnigraph.server.admission import WriteCaps
from tests.server.serving import (
    ADD,
    PEOPLE,
    QUERIES,
    SCHEMA,
    Client,
    ListedAccess,
    Response,
    Server,
    ndjson,
    open_served,
    serving,
)

pytestmark = pytest.mark.rotates(2)

SET_AGE = (
    "query set_age($name: String, $age: I32) { update Person set { age: $age } where name = $name }"
)


@pytest.fixture(scope="module")
def access() -> ListedAccess:
    return ListedAccess()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, access: ListedAccess) -> Iterator[Server]:
    with (
        open_served(tmp_path_factory.mktemp("writing") / "g.omni") as graph,
        serving(
            {"g": graph}, queries=QUERIES, tokens={"t": "ana", "u": "bo"}, access=access
        ) as server,
    ):
        yield server


@pytest.fixture
def ana(server: Server, access: ListedAccess) -> Iterator[Client]:
    access.denied = set()
    yield server.client("t", "g")
    access.denied = set()


def people(client: Client, branch: str = "main") -> dict[str, Any]:
    rows = client.post("/query", {"query": PEOPLE, "branch": branch}).ok()["rows"]
    return {row["p.name"]: row["p.age"] for row in rows}


def head(client: Client, branch: str = "main") -> str:
    commit: str = client.get(f"/commits?branch={branch}&limit=1").ok()["commits"][0][
        "graph_commit_id"
    ]
    return commit


# -- mutations -------------------------------------------------------------------------------


def test_both_routes_take_both_spellings(ana: Client) -> None:
    new = {"query": ADD, "name": "add", "params": {"name": "s1"}}
    old = {"query_source": ADD, "query_name": "add", "params": {"name": "s2"}}
    for route in ("/mutate", "/change"):
        for number, body in enumerate((new, old)):
            body = {**body, "params": {"name": f"{route}{number}"}}
            assert ana.post(route, body).ok()["query_name"] == "add"
    for twice in ({"query_source": ADD}, {"query_name": "add"}):
        ana.post("/mutate", {**new, **twice}).fails(422, "duplicate")
    ana.post("/mutate", {"params": {}}).fails(422, "query")


def test_a_receipt_names_its_commit(ana: Client) -> None:
    answer = ana.post("/mutate", {"query": ADD, "params": {"name": "receipt"}})
    body = answer.ok()
    commit_id = body["commit"]["graph_commit_id"]
    assert answer.headers["omnigraph-commit"] == commit_id == body["receipt"]["commit_id"]
    assert ana.get(f"/commits/{commit_id}").ok() == body["commit"]
    assert body["receipt"]["tables"] == {"node:Person": {"inserted": 1, "updated": 0, "deleted": 0}}
    nothing = ana.post("/mutate", {"query": SET_AGE, "params": {"name": "absent", "age": 1}})
    assert nothing.ok()["commit"] is None
    assert "omnigraph-commit" not in nothing.headers


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"query": PEOPLE}, 400, "read query"),
        ({"query": ADD}, 400, "name"),
        ({"query": ADD, "params": {"name": "x"}, "branch": "absent"}, 404, "branch 'absent'"),
        ({"query": "query q() { insert Nope { name: 1 } }"}, 400, "Nope"),
        ({"query": ADD, "params": {"name": "x", "age": 3_000_000_000}}, 400, "age"),
        (
            {"query": 'query q() { insert Knows { from: "Ada", to: "Nobody" } }'},
            400,
            "Nobody",
        ),
    ],
)
def test_an_invalid_mutation_changes_nothing(
    ana: Client, body: dict[str, Any], status: int, text: str
) -> None:
    before = head(ana)
    ana.post("/mutate", body).fails(status, text)
    assert head(ana) == before


def test_a_conditional_write_runs_on_its_commit_only(ana: Client) -> None:
    route, name = "/mutate/if-graph-commit", "Omnigraph-If-Graph-Commit"
    body = {"query": ADD, "params": {"name": "conditional"}}
    ana.post(route, body).fails(400, name)
    before = head(ana)
    made = ana.post(route, body, headers={name: before}).ok()
    assert made["commit"]["parent_commit_id"] == before
    body = {"query": ADD, "params": {"name": "too late"}}
    refused = ana.post(route, body, headers={name: before}).fails(412, code="conflict")
    assert refused["precondition_failure"] == {"expected": before, "actual": head(ana)}
    assert refused["reason"] == "precondition_failed"
    stored = "/queries/add_person/if-graph-commit"
    ana.post(stored, {"params": {"name": "x"}}, headers={name: before}).fails(412)
    ana.post(stored, {"params": {"name": "stored if"}}, headers={name: head(ana)}).ok()
    ana.post("/queries/adults/if-graph-commit", {}, headers={name: before}).fails(400, "read")
    # The header counts on every write, also where it is not required.
    ana.post("/mutate", body, headers={name: before}).fails(412)
    data = {"data": ndjson([{"type": "City", "data": {"name": "if"}}])}
    ana.post("/load", data, headers={name: before}).fails(412)


def test_an_idempotency_key_runs_a_write_once(ana: Client) -> None:
    headers = {"Idempotency-Key": "key-1"}
    body = {"query": ADD, "params": {"name": "once"}}
    first = ana.post("/mutate", body, headers=headers).ok()
    again = ana.post("/mutate", body, headers=headers).ok()
    assert again["commit"] == first["commit"]
    other = {"query": ADD, "params": {"name": "another"}}
    refused = ana.post("/mutate", other, headers=headers).fails(409, "used for another write")
    assert refused["reason"] == "idempotency_reused"
    data = {"data": ndjson([{"type": "City", "data": {"name": "Once"}}])}
    headers = {"Idempotency-Key": "k" * 200}
    first = ana.post("/load", data, headers=headers).ok()
    assert ana.post("/load", data, headers=headers).ok()["commit"] == first["commit"]
    ana.post("/load", data, headers={"Idempotency-Key": "k" * 201}).fails(400)


def test_the_idempotency_keys_of_one_actor_are_unknown_to_another(
    server: Server, ana: Client
) -> None:
    headers = {"Idempotency-Key": "key-of-both"}
    body = {"query": ADD, "params": {"name": "of both"}}
    first = ana.post("/mutate", body, headers=headers).ok()
    second = server.client("u", "g").post("/mutate", body, headers=headers).ok()
    assert (first["actor_id"], second["actor_id"]) == ("ana", "bo")
    assert second["commit"]["parent_commit_id"] == first["commit"]["graph_commit_id"]


def test_metrics_need_no_token_where_only_this_machine_can_connect(server: Server) -> None:
    assert b"omnigraph_" in server.client(None).get("/metrics").body
    server.client(None).get("/graphs").fails(401)


# -- loads -----------------------------------------------------------------------------------


def test_a_load_into_a_missing_branch_forks_it(ana: Client, access: ListedAccess) -> None:
    data = {"data": ndjson([{"type": "City", "data": {"name": "Forked"}}]), "branch": "forked"}
    text = "branch 'forked' not found; pass `from` to create it"
    ana.post("/load", data).fails(404, text)
    access.denied = {"branch_create"}
    ana.post("/load", {**data, "from": "main"}).fails(403, "branch_create")
    assert ana.get("/branches").ok()["branches"] == ["main"]
    access.denied = set()
    made = ana.post("/load", {**data, "from": "main"}).ok()
    assert (made["base_branch"], made["branch_created"], made["mode"]) == ("main", True, "merge")
    # The branch exists now: the right to create it is not needed, and the base is echoed.
    access.denied = {"branch_create"}
    again = ana.post("/load", {**data, "from": "main"}).ok()
    assert (again["base_branch"], again["branch_created"]) == ("main", False)
    access.denied = set()
    ana.post("/load", {**data, "branch": "n", "from": "absent"}).fails(404, "'absent'")
    ana.delete("/branches/forked").ok()


def test_who_may_read_learns_that_a_branch_does_not_exist(
    ana: Client, access: ListedAccess
) -> None:
    data = {"data": ""}
    access.denied = {"change"}
    ana.post("/load", {**data, "branch": "absent"}).fails(404, "pass `from` to create it")
    ana.post("/load", data).fails(403)
    access.denied = {"change", "read"}
    ana.post("/load", {**data, "branch": "absent"}).fails(403)


def test_raw_lines_load_and_ids_beside_the_data_too(ana: Client) -> None:
    lines = ndjson(
        [
            {"type": "Person", "id": "New", "data": {"name": "New", "age": 5}},
            {"edge": "Knows", "id": "e1", "from": "New", "to": "Ada", "data": {}},
        ]
    )
    headers = {"Content-Type": "application/x-ndjson; charset=utf-8"}
    answer = ana.post("/load/ndjson?mode=append", raw=lines.encode(), headers=headers)
    body = answer.ok()
    assert body["nodes"] == [{"name": "Person", "entities_loaded": 1}]
    assert body["edges"] == [{"name": "Knows", "entities_loaded": 1}]
    assert (body["total_entities"], body["mode"]) == (2, "append")
    assert answer.headers["omnigraph-commit"] == body["commit"]["graph_commit_id"]
    again = ana.post("/load/ndjson?mode=append", raw=lines.encode(), headers=headers)
    assert again.fails(409)["reason"] == "key_conflict"
    ana.post("/load/ndjson?mode=other", raw=b"", headers=headers).fails(400, "mode")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('{"type": "Nope", "data": {}}', "<stream>:2"),
        ('{"type": "Person", "data": {"name": 3}}', "<stream>:2"),
        ('{"type": "Person"', "<stream>:2"),
        ("\ufeff\u0000", "<stream>:2"),
        ('{"edge": "Knows", "from": "Ada", "to": "Nobody"}', "Nobody"),
    ],
)
def test_an_invalid_row_is_named(ana: Client, line: str, text: str) -> None:
    data = ndjson([{"type": "City", "data": {"name": "Never"}}]) + "\n" + line
    ana.post("/load", {"data": data}).fails(400, text)


def test_no_request_reads_a_file_of_the_server(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("top secret")
    schema = "node File { name: String @key  content: Blob? }"
    Graph.init(tmp_path / "g.omni", schema).close()
    attempts: list[tuple[str, dict[str, Any]]] = []
    for address in (secret.as_uri(), str(secret)):
        row = {"type": "File", "data": {"name": "f", "content": address}}
        text = 'query q($c: Blob) { insert File { name: "f", content: $c } }'
        attempts += [
            ("/load", {"data": ndjson([row])}),
            ("/mutate", {"query": text, "params": {"c": address}}),
            ("/mutate", {"query": address}),
            ("/query", {"query": address}),
            ("/load", {"data": address}),
            ("/schema/apply", {"schema_source": address}),
        ]
    with (
        Graph.open(tmp_path / "g.omni", local_files=False) as graph,
        serving({"g": graph}) as server,
    ):
        client = server.client(graph="g")
        for route, body in attempts:
            answer = client.post(route, body)
            assert answer.status == 400, (route, body, answer.body)
            assert b"top secret" not in answer.body
        assert b"top secret" not in client.post("/export", {}).body


# -- branches, merges, schemas ---------------------------------------------------------------


def test_branches(ana: Client, access: ListedAccess) -> None:
    ana.post("/branches", {"name": "b1"}).ok()
    ana.post("/branches", {"name": "b1"}).fails(409)
    for invalid in ("", "a b", "__schema_apply_lock__", "a..b", "x" * 500):
        ana.post("/branches", {"name": invalid}).fails(400)
    ana.post("/branches", {"name": "b2", "from": "absent"}).fails(404)
    ana.delete("/branches/absent").fails(404, "branch 'absent' not found")
    ana.delete("/branches/main").fails(400, "cannot delete branch 'main'")
    ana.post("/branches/merge", {"source": "b1", "target": "b1"}).fails(
        400, "distinct source and target"
    )
    ana.post("/branches/merge", {"source": "absent"}).fails(404)
    ana.post("/branches/merge", {"source": "b1", "target": "absent"}).fails(404)
    assert ana.post("/branches/merge", {"source": "b1"}).ok()["outcome"] == "already_up_to_date"
    ana.delete("/branches/b1").ok()


def test_a_merge_deletes_its_source_only_where_that_is_allowed(
    ana: Client, access: ListedAccess
) -> None:
    ana.post("/branches", {"name": "feature"}).ok()
    ana.post("/mutate", {"query": ADD, "params": {"name": "f"}, "branch": "feature"}).ok()
    access.denied = {"branch_delete"}
    merged = ana.post("/branches/merge", {"source": "feature", "delete_branch": True}).ok()
    assert merged["branch_deleted"] is False
    assert "policy denied" in merged["branch_delete_error"]
    access.denied = set()
    merged = ana.post("/branches/merge", {"source": "feature", "delete_branch": True}).ok()
    assert merged["branch_deleted"] is True
    assert "branch_delete_error" not in merged
    assert ana.get("/branches").ok()["branches"] == ["main"]


def test_merge_conflicts_are_listed(ana: Client) -> None:
    names = [f"conflict-{n}" for n in range(5)]
    rows = [{"type": "Person", "data": {"name": name, "age": 1}} for name in names]
    ana.post("/load", {"data": ndjson(rows)}).ok()
    ana.post("/branches", {"name": "other"}).ok()
    for branch, age in (("main", 2), ("other", 3)):
        rows = [{"type": "Person", "data": {"name": name, "age": age}} for name in names]
        ana.post("/load", {"data": ndjson(rows), "branch": branch}).ok()
    before = head(ana)
    refused = ana.post("/branches/merge", {"source": "other"}).fails(409, code="conflict")
    assert refused["error"] == (
        "merge conflicts: node:Person:conflict-0 (divergent_update); "
        "node:Person:conflict-1 (divergent_update); "
        "node:Person:conflict-2 (divergent_update); and 2 more"
    )
    assert [conflict["row_id"] for conflict in refused["merge_conflicts"]] == names
    assert refused["reason"] == "merge_conflicts"
    assert head(ana) == before
    ana.delete("/branches/other").ok()


def test_commits_are_filtered(ana: Client, server: Server) -> None:
    bo = server.client("u", "g")
    bo.post("/mutate", {"query": ADD, "params": {"name": "by bo"}}).ok()
    commits = ana.get("/commits?actor=bo").ok()["commits"]
    assert {commit["actor_id"] for commit in commits} == {"bo"}
    assert [c["kind"] for c in ana.get("/commits?kind=init").ok()["commits"]] == ["init"]
    assert len(ana.get("/commits?limit=2").ok()["commits"]) == 2
    times = [commit["created_at"] for commit in ana.get("/commits").ok()["commits"]]
    assert times == sorted(times, reverse=True)
    ana.get("/commits?branch=absent").fails(404)
    ana.get("/commits/absent").fails(404, "commit 'absent' not found")


def test_a_schema_is_applied_where_no_cluster_manages_it(tmp_path: Path) -> None:
    changed = SCHEMA + "node Team { name: String @key }\n"
    with open_served(tmp_path / "g.omni") as graph:
        with serving({"g": graph}, is_cluster=True) as server:
            refused = server.client(graph="g").post("/schema/apply", {"schema_source": changed})
            assert "omnigraph cluster apply" in refused.fails(409, "restart")["error"]
        with serving({"g": graph}, queries=QUERIES) as server:
            client = server.client(graph="g")
            applied = client.post("/schema/apply", {"schema_source": changed}).ok()
            assert (applied["supported"], applied["applied"], applied["step_count"]) == (
                True,
                True,
                1,
            )
            assert applied["steps"][0]["kind"] == "add_type"
            assert client.get("/schema").ok()["schema_source"] == changed
            broken = changed.replace("    age: I32?\n", "")
            refused = client.post("/schema/apply", {"schema_source": broken})
            assert refused.fails(400, "'adults'")["details"]["queries"] == ["adults"]
            client.post("/schema/apply", {"schema_source": "node"}).fails(400)
            required = changed.replace("    age: I32?\n", "    age: I32?\n    must: I32\n")
            client.post("/schema/apply", {"schema_source": required}).fails(400)
            client.post("/branches", {"name": "b"}).ok()
            client.post("/schema/apply", {"schema_source": SCHEMA}).fails(409, "only main")


# -- concurrent writers ----------------------------------------------------------------------


def at_once(count: int, work: Callable[[int], Response]) -> list[Response]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def test_concurrent_inserts_are_all_kept(ana: Client) -> None:
    responses = at_once(
        8, lambda n: ana.post("/mutate", {"query": ADD, "params": {"name": f"many-{n}"}})
    )
    assert [answer.status for answer in responses] == [200] * 8
    assert {f"many-{n}" for n in range(8)} <= people(ana).keys()
    commits = {answer.json["commit"]["graph_commit_id"] for answer in responses}
    assert len(commits) == 8
    for answer in responses:
        commit = ana.get(f"/commits/{answer.json['commit']['graph_commit_id']}").ok()
        assert commit == answer.json["commit"]


def test_concurrent_updates_of_a_row_are_typed_conflicts(ana: Client) -> None:
    """Whoever loses is told the table and both versions, also from a group of writers."""
    ana.post("/mutate", {"query": ADD, "params": {"name": "contended"}}).ok()

    def update(number: int) -> Response:
        body = {"query": SET_AGE, "params": {"name": "contended", "age": number}}
        return ana.post("/mutate", body)

    refused: list[Response] = []
    for _ in range(5):
        responses = at_once(8, update)
        winners = [number for number, answer in enumerate(responses) if answer.status == 200]
        assert winners
        assert people(ana)["contended"] in winners
        refused += [answer for answer in responses if answer.status != 200]
    assert refused
    for answer in refused:
        body = answer.fails(409, "stale view", code="conflict")
        assert (body["reason"], body["retryable"]) == ("version_mismatch", True)
        conflict = body["manifest_conflict"]
        assert conflict["table_key"] == "node:Person"
        assert conflict["actual"] > conflict["expected"]


# -- admission -------------------------------------------------------------------------------


def test_an_actor_has_so_many_writes_in_flight(tmp_path: Path) -> None:
    """A write that waits counts; another actor, and reads, are not affected."""
    tokens = {"t": "ana", "u": "bo"}
    with open_served(tmp_path / "g.omni") as graph:
        with serving({"g": graph}, tokens=tokens, caps=WriteCaps(2, 1 << 20)) as server:
            ana, bo = server.client("t", "g"), server.client("u", "g")
            # Both slots of the actor are taken, as by writes that have not ended.
            permits = [server.process.admission.enter("ana", 10) for _ in range(2)]
            refused = ana.post("/mutate", {"query": ADD, "params": {"name": "x"}})
            body = refused.fails(429, "actor in-flight count cap 2 exceeded")
            assert body["code"] == body["reason"] == "too_many_requests"
            assert body["retryable"] is True
            assert refused.headers["retry-after"] == "60"
            ana.post("/branches", {"name": "b"}).fails(429)
            ana.post("/query", {"query": PEOPLE}).ok()
            bo.post("/mutate", {"query": ADD, "params": {"name": "by bo"}}).ok()
            for permit in permits:
                permit.release()
            ana.post("/mutate", {"query": ADD, "params": {"name": "x"}}).ok()
            assert server.process.admission.in_flight == 0
        with serving({"g": graph}, caps=WriteCaps(2, 100)) as server:
            body = {"data": " " * 200}
            server.client(graph="g").post("/load", body).fails(429, "actor byte budget exceeded")


# -- clients that leave ----------------------------------------------------------------------


def wait_until(condition: Callable[[], Any]) -> Any:
    for _ in range(2_000):
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError("it never happened")


def leave_after_sending(server: Server, path: str, body: dict[str, Any]) -> None:
    content = json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
        connection.sendall(
            b"POST %b HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (path.encode(), len(content), content)
        )


def test_a_write_ends_though_its_client_left(server: Server, ana: Client) -> None:
    body = {"query": ADD, "params": {"name": "left alone"}}
    leave_after_sending(server, "/graphs/g/mutate", body)
    wait_until(lambda: "left alone" in people(ana))
    wait_until(lambda: server.process.admission.in_flight == 0)


def test_a_read_is_cancelled_when_its_client_left(tmp_path: Path) -> None:
    """The read would take minutes; the server ends it, and stops at once."""
    rows = [{"type": "City", "data": {"name": str(n)}} for n in range(3_000)]
    text = (
        "query q() { match { $a: City  $b: City  $c: City  $a.name < $b.name  $b.name < $c.name }"
        " return { count($a) as n } }"
    )
    with open_served(tmp_path / "g.omni", rows) as graph, serving({"g": graph}) as server:
        leave_after_sending(server, "/graphs/g/query", {"query": text})
        lines: list[dict[str, Any]] = []

        def statuses() -> list[int]:
            lines.extend(server.log_lines())
            return [line["status"] for line in lines if line["event"] == "request"]

        assert wait_until(statuses) == [499]
        assert server.process.reads.in_flight == 0
        assert server.client(graph="g").get("/schema").ok()


# -- a publish whose outcome is unknown ----------------------------------------------------------


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The disk refuses to sync a manifest that readers see already."""
    published = threading.local()
    sync = os.fsync

    def note(point: Failpoint) -> None:
        if point is Failpoint.PUBLISH_AFTER:
            published.fails = True
        elif point is Failpoint.PUBLISH_BEFORE:
            published.fails = False

    def failing_sync(descriptor: int) -> None:
        if getattr(published, "fails", False):
            raise OSError(errno.EIO, "the disk failed")
        sync(descriptor)

    with monkeypatch.context() as patched, hooked(note):
        patched.setattr(os, "fsync", failing_sync)
        yield


def test_a_write_whose_outcome_is_unknown_names_its_commit_and_asks_for_no_repetition(
    server: Server, ana: Client, unsynced: None
) -> None:
    answer = ana.post("/mutate", {"query": ADD, "params": {"name": "maybe"}})
    body = answer.fails(503, "could not be synced")
    assert (body["reason"], body["retryable"]) == ("outcome_pending", False)
    assert "retry-after" not in answer.headers
    assert body["commit_id"]
    assert body["commit_id"] in body["error"]


def test_the_client_raises_it_as_the_library_does_and_finds_the_commit_later(
    server: Server, ana: Client, unsynced: None
) -> None:
    with omnigraph.connect(server.url, graph="g", token="t") as graph:
        with pytest.raises(OutcomePending) as raised:
            graph.mutate(ADD, params={"name": "perhaps"})
        assert not raised.value.retryable
        commit = graph.commit(raised.value.details["commit_id"])
        assert commit.actor == "ana"
        assert "perhaps" in people(ana)


# -- indexes -------------------------------------------------------------------------------------


def test_a_load_builds_the_missing_indexes_if_it_is_asked_to(tmp_path: Path) -> None:
    line = ndjson([{"type": "Person", "data": {"name": "Lin"}}]).encode()
    headers = {"Content-Type": "application/x-ndjson"}
    with (
        open_served(tmp_path / "g.omni") as graph,
        serving({"g": graph}, access=ListedAccess({"admin"})) as server,
    ):
        client = server.client(graph="g")
        plain = client.post("/load/ndjson", raw=line, headers=headers).ok()
        assert "indexes_built" not in plain
        dry = client.post("/load/ndjson?indexes=true&dry_run=true", raw=line, headers=headers)
        assert dry.ok()["indexes_built"] == 0
        first = client.post("/load/ndjson?indexes=true", raw=line, headers=headers).ok()
        again = client.post("/load/ndjson?indexes=true", raw=line, headers=headers).ok()
        assert first["indexes_built"] > 0
        assert again["indexes_built"] == 0
        assert first["commit"]["graph_commit_id"] == first["receipt"]["commit_id"]
