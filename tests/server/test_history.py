"""Diffs, merges, single commits, tags, blame, plans and single rows over HTTP and by the client."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

import omnigraph
from omnigraph import Graph, RemoteGraph
from omnigraph.errors import (
    AlreadyExists,
    HistoryGone,
    IdempotencyKeyReused,
    InputError,
    LimitExceeded,
    MergeConflicts,
    NotFound,
    PolicyDenied,
)
from omnigraph.policy.policy import Policy
from omnigraph.server.config import QueryLimits
from tests.sampling import rotating
from tests.server.serving import ADD, PEOPLE, QUERIES, Client, Server, open_served, serving
from tests.server.test_feed import TOKENS, PolicyAccess, now

pytestmark = pytest.mark.rotates(3)

SET_AGE = (
    "query set($name: String, $age: I32) { update Person set { age: $age } where name = $name }"
)


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with open_served(tmp_path / "g.omni") as graph:
        yield graph


@pytest.fixture
def server(graph: Graph) -> Iterator[Server]:
    with serving({"g": graph}, tokens=TOKENS, queries=QUERIES) as server:
        yield server


@pytest.fixture
def ana(server: Server) -> Client:
    return server.client("t-ana", "g")


@pytest.fixture
def remote(server: Server) -> Iterator[RemoteGraph]:
    with omnigraph.connect(server.url, graph="g", token="t-ana") as graph:
        yield graph


def set_age(graph: Graph, name: str, age: int, branch: str = "main") -> None:
    graph.mutate(SET_AGE, params={"name": name, "age": age}, branch=branch)


# -- diffs ---------------------------------------------------------------------------------------


def test_any_two_states_are_compared(graph: Graph, ana: Client, remote: RemoteGraph) -> None:
    graph.tags.create("v1")
    first = graph.snapshot()
    graph.branches.create("side")
    set_age(graph, "Ada", 40, "side")
    set_age(graph, "Grace", 41)
    for before, after in (
        ("v1", "main"),
        ({"tag": "v1"}, {"branch": "side"}),
        ("main", "side"),
        ({"commit": first.commit_id}, "side"),
        ("side", str(first.commit_id)),
    ):
        names = [next(iter(n.values())) if isinstance(n, dict) else n for n in (before, after)]
        states = [
            graph.snapshot(name) if name in ("main", "side") else graph.snapshot(at=name)
            for name in names
        ]
        expected = states[0].diff(states[1])
        answer = ana.post("/diff", {"from": before, "to": after}).ok()
        assert answer["changes"] == [change.to_json() for change in expected.changes]
        assert answer["stats"] == expected.stats
        assert answer["to"]["manifest_version"] == expected.to_version
        pair = [
            remote.snapshot(name) if name in ("main", "side") else remote.snapshot(at=name)
            for name in names
        ]
        assert pair[0].diff(pair[1]) == expected
        assert pair[0].diff(pair[1], summary=True).changes == ()
    edges = ana.post("/diff", {"from": "v1", "to": "main", "kinds": ["edge"]}).ok()
    assert edges["changes"] == []


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"from": "main", "to": "nowhere"}, 404, "no branch, tag or commit 'nowhere'"),
        ({"from": {"branch": "no"}, "to": "main"}, 404, "branch 'no' not found"),
        ({"from": {"tag": "no"}, "to": "main"}, 404, "tag 'no' not found"),
        ({"from": {"commit": "01NO"}, "to": "main"}, 404, "commit '01NO' not found"),
        ({"from": {}, "to": "main"}, 422, "one of"),
        ({"from": {"tag": "a", "branch": "b"}, "to": "main"}, 422, "one of"),
        ({"from": "main", "to": "main", "types": ["No"]}, 400, "no type 'No'"),
        ({"from": "main"}, 422, "to"),
    ],
)
def test_a_state_that_is_not_there_is_named(
    ana: Client, body: dict[str, Any], status: int, text: str
) -> None:
    ana.post("/diff", body).fails(status, text)


def test_a_diff_has_the_row_limit_of_the_server(graph: Graph) -> None:
    with serving({"g": graph}, limits=QueryLimits(max_rows=3)) as server:
        first = graph.commits()[-1].commit_id
        body = {"from": {"commit": first}, "to": "main"}
        client = server.client(None, "g")
        refused = client.post("/diff", body).fails(413, "more than 3 changes")
        assert "summary" in refused["hint"]
        assert client.post("/diff", {**body, "summary": True}).ok()["stats"]["inserts"] == 4
        with omnigraph.connect(server.url, graph="g") as remote, pytest.raises(LimitExceeded):
            remote.snapshot(commit=first).diff(remote.snapshot())


# -- merges --------------------------------------------------------------------------------------


def test_a_conflict_is_previewed_and_resolved_by_the_client(
    graph: Graph, remote: RemoteGraph, tmp_path: Path
) -> None:
    graph.branches.create("side")
    set_age(graph, "Ada", 1, "side")
    set_age(graph, "Ada", 2)
    expected = graph.merge("side", dry_run=True)
    preview = remote.merge("side", dry_run=True)
    assert (preview.conflicts, preview.tables) == (expected.conflicts, expected.tables)
    assert not preview.is_clean
    with pytest.raises(MergeConflicts) as raised:
        remote.merge("side")
    (conflict,) = raised.value.details["conflicts"]
    assert conflict["conflict_id"] == "node:Person/Ada"
    with pytest.raises(InputError, match="there is no conflict 'node:Person/Bo'"):
        remote.merge("side", resolve={"node:Person/Bo": "ours"})
    preview.conflicts.write(tmp_path / "choices")
    text = (tmp_path / "choices").read_text()
    (tmp_path / "choices").write_text(text.replace('"choice": null', '"choice": {"age": 9}'))
    report = remote.merge("side", resolve=tmp_path / "choices", delete_branch=True)
    assert report.resolved == {"node:Person/Ada": {"age": 9}}
    assert report.branch_deleted
    assert remote.snapshot().entity("Person", "Ada")["age"] == 9  # type: ignore[index]
    assert remote.branches.list() == ["main"]


def test_a_branch_that_cannot_be_deleted_does_not_fail_its_merge(
    graph: Graph, server: Server, ana: Client
) -> None:
    graph.branches.create("side")
    set_age(graph, "Ada", 1, "side")
    server.access.denied = {"branch_delete"}
    merged = ana.post("/branches/merge", {"source": "side", "delete_branch": True}).ok()
    assert merged["outcome"] == "fast_forward"
    assert merged["branch_deleted"] is False
    assert "branch_delete" in merged["branch_delete_error"]
    server.access.denied = set()
    set_age(graph, "Ada", 2, "side")
    graph.branches.create("side-child", "side")
    merged = ana.post("/branches/merge", {"source": "side", "delete_branch": True}).ok()
    assert merged["branch_deleted"] is False
    assert "side-child" in merged["branch_delete_error"]
    preview = {"source": "side", "delete_branch": True, "dry_run": True}
    assert "branch_deleted" not in ana.post("/branches/merge", preview).ok()


class TwoCopies:
    """The same random history on two copies; one is merged by the library, one over HTTP."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = Random(seed)
        base = folder / "base.omni"
        with Graph.init(base, "node P { k: String @key  a: I32?  b: I32? }") as graph:
            rows = [{"type": "P", "data": {"k": f"k{n}", "a": n, "b": n}} for n in range(6)]
            graph.load(rows)
            graph.branches.create("x")
            graph.branches.create("y")
            for _ in range(self.random.randrange(4, 9)):
                self.change(graph, self.random.choice(["main", "x", "y"]))
        self.paths = [folder / "library.omni", folder / "http.omni"]
        for path in self.paths:
            shutil.copytree(base, path)

    def change(self, graph: Graph, branch: str) -> None:
        key = f"k{self.random.randrange(8)}"
        if self.random.random() < 0.2:
            graph.mutate(f'query q() {{ delete P where k = "{key}" }}', branch=branch)
            return
        value = self.random.randrange(100)
        row = {"k": key, "a": value, "b": self.random.choice([None, value])}
        graph.load([{"type": "P", "data": row}], branch=branch)


@pytest.mark.parametrize("seed", rotating([(seed,) for seed in range(40)], 3, "merges over HTTP"))
def test_merges_over_http_equal_those_of_the_library(tmp_path: Path, seed: int) -> None:
    copies = TwoCopies(tmp_path, seed)
    random = copies.random
    with (
        Graph.open(copies.paths[0]) as library,
        Graph.open(copies.paths[1], local_files=False) as served,
        serving({"g": served}) as server,
        omnigraph.connect(server.url, graph="g") as remote,
    ):
        for source, target in (("x", "main"), ("y", "main"), ("main", "x"), ("y", "x")):
            previews = [side.merge(source, target, dry_run=True) for side in (library, remote)]
            assert facts(previews[0]) == facts(previews[1])
            sides = ["ours", "theirs", {"a": 7, "b": 7}]
            choices = {row.conflict_id: random.choice(sides) for row in previews[0].conflicts}
            resolve = random.choice(["ours", "theirs", choices, None])
            assert outcome(library, source, target, resolve) == outcome(
                remote, source, target, resolve
            )
            for branch in ("main", "x", "y"):
                assert rows(library, branch) == rows(remote, branch)


def facts(report: omnigraph.MergeReport) -> tuple[Any, ...]:
    return report.outcome, report.tables, report.conflicts, report.resolved


def outcome(graph: Any, source: str, target: str, resolve: Any) -> Any:
    try:
        return facts(graph.merge(source, target, resolve=resolve))
    except MergeConflicts as error:
        return error.message


def rows(graph: Any, branch: str) -> list[dict[str, Any]]:
    text = "query q() { match { $p: P } return { $p.k, $p.a, $p.b } order { $p.k } }"
    listed: list[dict[str, Any]] = graph.query(text, branch=branch).rows()
    return listed


# -- single commits ------------------------------------------------------------------------------


def test_a_commit_is_reverted_and_picked(graph: Graph, remote: RemoteGraph) -> None:
    graph.branches.create("side")
    made = graph.mutate(ADD, params={"name": "Zoe"}, branch="side").commit_id
    assert made is not None
    preview = remote.cherry_pick(made, dry_run=True)
    assert preview.commit_id is None
    picked = remote.cherry_pick(made)
    assert remote.commit(str(picked.commit_id)).kind == "cherry-pick"
    assert remote.commit(str(picked.commit_id)).actor == "ana"
    assert remote.snapshot().entity("Person", "Zoe") is not None
    reverted = remote.revert(str(picked.commit_id))
    assert reverted.tables["node:Person"].deleted == 1
    assert remote.snapshot().entity("Person", "Zoe") is None
    set_age(graph, "Ada", 50)
    last = graph.commits()[0].commit_id
    set_age(graph, "Ada", 51)
    with pytest.raises(MergeConflicts):
        remote.revert(last)
    assert len(remote.revert(last, dry_run=True).conflicts) == 1
    assert remote.revert(last, resolve="theirs").tables["node:Person"].updated == 1
    assert remote.snapshot().entity("Person", "Ada")["age"] == 36  # type: ignore[index]


# -- tags and states -----------------------------------------------------------------------------


def test_tags_name_states_for_the_client(graph: Graph, remote: RemoteGraph) -> None:
    tag = remote.tags.create("release/1")
    assert (tag.actor, tag.commit_id) == ("ana", graph.snapshot().commit_id)
    assert remote.tags.list() == list(graph.tags.list())
    with pytest.raises(AlreadyExists):
        remote.tags.create("release/1")
    set_age(graph, "Ada", 99)
    moment = datetime.now(UTC)
    set_age(graph, "Ada", 100)
    assert (
        remote.snapshot(tag="release/1").query(PEOPLE).rows()
        == graph.snapshot(tag="release/1").query(PEOPLE).rows()
    )
    assert remote.snapshot(tag="release/1").query(PEOPLE).target == {"snapshot": "release/1"}
    state = remote.snapshot(at=moment)
    assert state.entity("Person", "Ada")["age"] == 99  # type: ignore[index]
    assert state.tables == graph.snapshot(at=moment).tables
    assert state.count("Person") == 2
    with pytest.raises(HistoryGone):
        remote.snapshot(at=datetime.now(UTC) - timedelta(days=9))
    for name in ({"tag": "no"}, {"at": "no"}):
        with pytest.raises(NotFound):
            remote.snapshot(**name)  # type: ignore[arg-type]
    moved = remote.tags.create("release/1", move=True)
    assert moved.commit_id == graph.snapshot().commit_id
    remote.tags.delete("release/1")
    assert remote.tags.list() == []
    with pytest.raises(NotFound):
        remote.tags.delete("release/1")


# -- rows, authors and plans ---------------------------------------------------------------------


def test_rows_have_the_values_of_the_library(graph: Graph, remote: RemoteGraph) -> None:
    graph.load(
        [
            {
                "type": "Person",
                "data": {
                    "name": "Zoe",
                    "big": 1 << 60,
                    "born": "1990-02-03",
                    "seen": "2020-01-02T03:04:05.678Z",
                    "score": 0.25,
                    "tags": ["a", "b"],
                },
            },
            {"edge": "Knows", "from": "Zoe", "to": "Ada", "data": {"since": "2001-01-01"}},
            {"edge": "LivesIn", "from": "Zoe", "to": "London", "data": {}},
        ]
    )
    here, there = graph.snapshot(), remote.snapshot()
    assert there.entity("Person", "Zoe") == here.entity("Person", "Zoe")
    assert there.entity("Person", "No") is None
    edge = here.neighbours("Person", "Zoe", edge="Knows")[0].edge["id"]
    assert there.entity("Knows", edge) == here.entity("Knows", edge)
    assert there.neighbours("Person", "Zoe") == here.neighbours("Person", "Zoe")
    assert [n.direction for n in there.neighbours("Person", "Ada", direction="in")] == ["in"]
    assert there.neighbours("Person", "Ada", direction="in")[0].edge["since"] == date(2001, 1, 1)
    assert len(there.neighbours("Person", "Zoe", limit=1)) == 1
    with pytest.raises(NotFound):
        there.neighbours("Person", "No")
    with pytest.raises(InputError):
        there.entity("No", "x")


def test_who_changed_a_row_and_what_a_query_does(graph: Graph, remote: RemoteGraph) -> None:
    set_age(graph, "Ada", 50)
    assert remote.changes.blame("Person", "Ada") == graph.changes.blame("Person", "Ada")
    plan = remote.snapshot().explain(PEOPLE)
    assert plan.to_json()["pipeline"] == graph.snapshot().explain(PEOPLE).to_json()["pipeline"]
    profiled = remote.snapshot().explain(PEOPLE, profile=True).to_json()
    assert profiled["rows"] == 2
    assert remote.snapshot().explain(ADD).to_json()["kind"] == "mutation"


# -- the client's feed ---------------------------------------------------------------------------


def test_the_client_polls_follows_and_copies(
    graph: Graph, remote: RemoteGraph, tmp_path: Path
) -> None:
    baseline = remote.changes.baseline(dest=tmp_path / "base.jsonl")
    with Graph.open(graph.uri, "r") as own:
        embedded = own.changes.baseline(dest=tmp_path / "own.jsonl")
    assert (tmp_path / "base.jsonl").read_bytes() == (tmp_path / "own.jsonl").read_bytes()
    assert (baseline.cursor, baseline.records) == (embedded.cursor, embedded.records)
    assert baseline.snapshot.commit_id == embedded.snapshot.commit_id
    assert remote.changes.baseline().records == 0
    assert remote.changes.poll().blocks == graph.changes.poll().blocks
    assert remote.changes.poll(cursor=baseline.cursor, wait=0.05).changes == ()
    blocks = remote.changes.follow(cursor=baseline.cursor)
    for name in ("Zoe", "Yan"):
        graph.mutate(ADD, params={"name": name})
        block = next(blocks)
        assert [change.id for change in block.changes] == [name]
    assert remote.changes.poll(cursor=block.cursor).blocks == ()
    commit = block.commit.commit_id
    assert remote.changes.of_commit(commit).changes == graph.changes.of_commit(commit).changes
    graph.branches.create("side")
    blocks = remote.changes.follow("side", start="now")
    graph.mutate(ADD, params={"name": "Side"}, branch="side")
    assert next(blocks).commit.branch == "side"
    graph.branches.delete("side")
    with pytest.raises(NotFound):
        next(blocks)


def test_the_async_client_does_the_same(graph: Graph, server: Server) -> None:
    async def run() -> None:
        async with await omnigraph.connect_async(server.url, graph="g", token="t-ana") as remote:
            page = await remote.changes.poll()
            assert page.blocks == graph.changes.poll().blocks
            tag = await remote.tags.create("v1")
            assert await remote.tags.list() == [tag]
            before = await remote.snapshot(tag="v1")
            blocks = await remote.changes.follow(start="now")
            graph.mutate(ADD, params={"name": "Zoe"})
            block = await anext(aiter(blocks))
            assert [change.id for change in block.changes] == ["Zoe"]
            commit = block.commit.commit_id
            pages = await remote.changes.of_commit(commit)
            assert pages.changes == block.changes
            after = await remote.snapshot()
            expected = graph.snapshot(tag="v1").diff(graph.snapshot())
            assert await before.diff(after) == expected
            assert await after.entity("Person", "Zoe") == graph.snapshot().entity("Person", "Zoe")
            assert len(await after.neighbours("Person", "Ada")) == 1
            assert (await after.explain(PEOPLE)).to_json()["name"] == "people"
            assert (await remote.changes.blame("Person", "Zoe")).commit.commit_id == commit
            lines = [line async for line in await remote.changes.baseline()]
            assert lines[-1].startswith('{"baseline"')
            report = await remote.revert(commit, dry_run=True)
            assert report.is_clean
            await remote.revert(commit)
            await remote.cherry_pick(commit)
            await remote.branches.create("side")
            assert (await remote.merge("side", dry_run=True)).commit_id is None
            await remote.tags.delete("v1")
            with pytest.raises(NotFound):
                await remote.snapshot(at="v1")

    asyncio.run(run())


# -- conditions ----------------------------------------------------------------------------------

WRITES: list[tuple[str, Any, Any]] = [
    ("/mutate", {"query": ADD, "params": {"name": "K"}}, {"query": ADD, "params": {"name": "L"}}),
    ("/change", {"query": ADD, "params": {"name": "K"}}, {"query": ADD, "params": {"name": "L"}}),
    ("/queries/add_person", {"params": {"name": "K"}}, {"params": {"name": "L"}}),
    (
        "/load",
        {"data": '{"type": "City", "data": {"name": "K"}}'},
        {"data": '{"type": "City", "data": {"name": "L"}}'},
    ),
    (
        "/ingest",
        {"data": '{"type": "City", "data": {"name": "K"}}'},
        {"data": '{"type": "City", "data": {"name": "L"}}'},
    ),
    (
        "/load/ndjson",
        b'{"type": "City", "data": {"name": "K"}}',
        b'{"type": "City", "data": {"name": "L"}}',
    ),
]


def test_a_key_runs_every_write_once_and_refuses_another_body(graph: Graph, ana: Client) -> None:
    for number, (path, body, other) in enumerate(WRITES):
        headers = {"Idempotency-Key": f"key-{number}"}

        def send(content: Any, path: str = path, headers: dict[str, str] = headers) -> Any:
            if isinstance(content, bytes):
                kind = {"Content-Type": "application/x-ndjson"}
                return ana.post(path, raw=content, headers={**headers, **kind})
            return ana.post(path, content, headers=headers)

        first, again = send(body), send(body)
        assert first.ok() == again.ok(), path
        assert first.headers.get("omnigraph-commit") == again.headers.get("omnigraph-commit")
        assert send(other).fails(409)["reason"] == "idempotency_reused"
        assert sum(commit.kind != "init" for commit in graph.commits()) == number + 2


MERGES = [
    ("/branches/merge", {"source": "side", "delete_branch": True}, {"source": "other"}),
    ("/revert", {"commit": "$newest"}, {"commit": "$newest", "resolve": "ours"}),
    ("/cherry-pick", {"commit": "$other"}, {"commit": "$other", "resolve": "theirs"}),
    ("/tags", {"name": "v1"}, {"name": "v2"}),
    ("/tags", {"name": "v3", "commit": "$newest"}, {"name": "v3", "move": True}),
]


def test_a_key_runs_merges_and_tags_once_and_refuses_another_body(
    graph: Graph, ana: Client
) -> None:
    """The repeated ones come later: after the branch is gone, and from another server."""
    for name in ("side", "other"):
        graph.branches.create(name)
        graph.mutate(ADD, params={"name": name}, branch=name)
    names = {"$newest": graph.commits()[0].commit_id, "$other": graph.commits("other")[0].commit_id}

    def sent(body: dict[str, Any]) -> dict[str, Any]:
        return {key: names.get(str(value), value) for key, value in body.items()}

    def answer(client: Client, number: int, body: dict[str, Any]) -> Any:
        headers = {"Idempotency-Key": f"merge-{number}"}
        return client.post(MERGES[number][0], sent(body), headers=headers)

    first = []
    for number, (_, body, _) in enumerate(MERGES):
        first.append(answer(ana, number, body))
        first[-1].ok()
        names["$newest"] = graph.commits()[0].commit_id if number == 0 else names["$newest"]
    assert first[0].json["branch_deleted"] is True
    assert first[2].json["outcome"] == "merged"
    commits = [commit.commit_id for commit in graph.commits()]
    graph.mutate(ADD, params={"name": "later"})
    with (
        Graph.open(graph.uri, local_files=False) as same,
        serving({"g": same}, tokens={"tok-ana": "ana"}) as server,
    ):
        for client in (ana, server.client("tok-ana", "g")):
            for number, (path, body, other) in enumerate(MERGES):
                again = answer(client, number, body)
                assert again.ok() == first[number].json, path
                header = "omnigraph-commit"
                assert again.headers.get(header) == first[number].headers.get(header)
                refused = answer(client, number, other).fails(409)
                assert refused["reason"] == "idempotency_reused", path
    assert [commit.commit_id for commit in graph.commits()][1:] == commits
    with pytest.raises(IdempotencyKeyReused):
        graph.merge("other", idempotency_key="ana/merge-1")


def test_a_condition_that_would_be_ignored_is_refused(ana: Client) -> None:
    name = "omnigraph-if-graph-commit"
    for path, body in (
        ("/branches/merge", {"source": "side"}),
        ("/revert", {"commit": "01A"}),
        ("/cherry-pick", {"commit": "01A"}),
        ("/tags", {"name": "v1"}),
    ):
        refused = ana.post(path, body, headers={name: "x"}).fails(400, "does not take the header")
        assert refused["reason"] == "condition_not_supported"


# -- policies ------------------------------------------------------------------------------------

BUNDLE = """
version: 2
groups: {all: [ana, bo], leads: [bo]}
rules:
  - {id: r, allow: {actors: {group: all}, actions: [read, change, branch_create, branch_merge,
      branch_delete, export]}}
  - {id: h, allow: {actors: {group: leads}, actions: [read_history, admin]}}
rows:
  - {id: people, actors: {group: all}, types: [Person], where: "age < 37"}
  - {id: rest, actors: {group: all}, types: [City, Knows, LivesIn]}
"""


@pytest.fixture
def hidden(tmp_path: Path) -> Iterator[tuple[Graph, Server]]:
    """Grace is hidden from everybody who asks the server."""
    open_served(tmp_path / "g.omni").close()
    policy = Policy.parse(BUNDLE)
    with (
        Graph.open(tmp_path / "g.omni", local_files=False, policy=policy) as graph,
        serving({"g": graph}, tokens=TOKENS, access=PolicyAccess(policy)) as server,
    ):
        yield graph, server


def test_hidden_rows_stay_hidden_on_every_new_surface(hidden: tuple[Graph, Server]) -> None:
    graph, server = hidden
    ana, bo = server.client("t-ana", "g"), server.client("t-bo", "g")
    cursor = now(ana)
    with Graph.open(graph.uri) as owner:
        before = owner.snapshot().commit_id
        set_age(owner, "Grace", 70)
        set_age(owner, "Ada", 20)
    absent = ana.get("/entity?type=Person&id=Nobody").fails(404)
    secret = ana.get("/entity?type=Person&id=Grace").fails(404)
    assert secret["error"].replace("Grace", "Nobody") == absent["error"]
    assert ana.get("/neighbours?type=Person&id=Ada").ok()["neighbours"] == []
    ana.get("/neighbours?type=Person&id=Grace").fails(404)
    diff = ana.post("/diff", {"from": {"commit": before}, "to": "main"}).ok()
    assert diff["stats"]["updates"] == 1
    assert [change["id"] for change in diff["changes"]] == ["Ada"]
    page = ana.get(f"/changes?cursor={cursor}").ok()
    assert [c["id"] for b in page["blocks"] for c in b["changes"]] == ["Ada"]
    # Who wrote it, and who changed a row, are for those who may read the history.
    assert ana.get("/blame?type=Person&id=Ada").status == 403
    assert bo.get("/blame?type=Person&id=Ada").ok()["op"] == "write"
    bo.get("/blame?type=Person&id=Grace").fails(404)
    plan = ana.post("/explain", {"query": PEOPLE}).ok()
    assert "expected" not in plan["plan"]
    assert "expected" in bo.post("/explain", {"query": PEOPLE}).ok()["plan"]
    profile = {"query": PEOPLE, "profile": True}
    assert "profile" not in ana.post("/explain", profile).ok()["plan"]
    assert "profile" in bo.post("/explain", profile).ok()["plan"]
    # What would change or show hidden rows needs the whole view.
    for path, body in (
        ("/revert", {"commit": page["blocks"][0]["cause"]["graph_commit_id"]}),
        ("/revert", {"commit": page["blocks"][0]["cause"]["graph_commit_id"], "dry_run": True}),
        ("/cherry-pick", {"commit": page["blocks"][0]["cause"]["graph_commit_id"]}),
    ):
        ana.post(path, body).fails(403)
    assert b"Grace" not in ana.post("/changes/baseline", {}).body


def test_names_that_an_actor_may_not_know_look_absent(graph: Graph, server: Server) -> None:
    ana = server.client("t-ana", "g")
    graph.branches.create("secret")
    commit = graph.mutate(ADD, params={"name": "S"}, branch="secret").commit_id
    graph.tags.create("hush", commit)
    access = server.access
    access.hidden_branches = {"secret", "none"}
    access.denied = {("read", None), ("read", "secret"), ("read", "none"), ("change", "secret")}
    access.denied |= {("read_history", "secret"), ("export", "secret"), ("export", "none")}

    def same(one: Any, other: Any, *names: tuple[str, str]) -> None:
        texts = [answer.json["error"] for answer in (one, other)]
        for name, absent in names:
            texts[0] = texts[0].replace(name, absent)
        assert (one.status, texts[0]) == (404, texts[1]), (one.body, other.body)

    for path in ("/changes?branch=", "/entity?type=Person&id=S&branch="):
        same(ana.get(f"{path}secret"), ana.get(f"{path}none"), ("secret", "none"))
    for make in (
        lambda name: ("/diff", {"from": {"branch": name}, "to": {"branch": "main"}}),
        lambda name: ("/diff", {"from": "main", "to": name}),
        lambda name: ("/changes/baseline", {"branch": name}),
    ):
        access.denied -= {("read", "main")}
        same(ana.post(*make("secret")), ana.post(*make("none")), ("secret", "none"))
    names = (str(commit), "01NO")
    same(ana.get(f"/commits/{commit}/changes"), ana.get("/commits/01NO/changes"), names)
    same(
        ana.get(f"/entity?type=Person&id=S&snapshot={commit}"),
        ana.get("/entity?type=Person&id=S&snapshot=01NO"),
        names,
    )
    for path in ("/revert", "/cherry-pick"):
        same(ana.post(path, {"commit": commit}), ana.post(path, {"commit": "01NO"}), names)
    same(
        ana.post("/tags", {"name": "mine", "commit": commit}),
        ana.post("/tags", {"name": "mine", "commit": "01NO"}),
        names,
    )
    diff = {"to": {"branch": "main"}}
    same(
        ana.post("/diff", {"from": {"tag": "hush"}, **diff}),
        ana.post("/diff", {"from": {"tag": "gone"}, **diff}),
        ("hush", "gone"),
    )


def test_denials_are_typed_in_the_client(server: Server, remote: RemoteGraph) -> None:
    server.access.denied = {"change", "branch_create", "read_history"}
    for call in (
        lambda: remote.revert("01A"),
        lambda: remote.tags.create("v1"),
        lambda: remote.changes.blame("Person", "Ada"),
    ):
        with pytest.raises(PolicyDenied):
            call()
