"""Pages over HTTP: one state, signed cursors, several workers, restarts, keys that change."""

from __future__ import annotations

import base64
import errno
import json
import os
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph
from omnigraph import Graph, Policy
from omnigraph.api.cursor_keys import PATH, StoredCursorKeys
from omnigraph.errors import (
    ForeignCursor,
    HistoryGone,
    InvalidCursor,
    RowLimitExceeded,
    ViewChanged,
)
from omnigraph.result.wire import ARROW_STREAM
from omnigraph.server.access import Access, RunState
from omnigraph.server.calls import NDJSON
from omnigraph.server.config import QueryLimits
from omnigraph.server.state import CurrentGate
from omnigraph.storage.objects.local import LocalObjects
from tests.server.processes import ServerUnderTest
from tests.server.serving import ADD, QUERIES, SCHEMA, Client, ListedAccess, Server, serving
from tests.server.test_serve import serve

pytestmark = [pytest.mark.rotates(2), pytest.mark.xdist_group("served graph")]

TOKENS = {"token-a": "ana", "token-b": "bo"}
NAMES = "query names() { match { $p: Person } return { $p.name } }"
PAIRS = """query pairs($age: I32) {
    match { $b: Person  $b knows $a  $a.age >= $age }
    return { $a.name as a, $b.name as b }
}"""
COUNT = 60


def rows() -> Iterator[dict[str, Any]]:
    for n in range(COUNT):
        yield {"type": "Person", "data": {"name": f"p{n * 37 % COUNT:03}", "age": n % 9}}
    for n in range(2 * COUNT):
        yield {"edge": "Knows", "from": f"p{n % COUNT:03}", "to": f"p{n * n % COUNT:03}"}


def make_graph(path: Path) -> Path:
    with Graph.init(path, SCHEMA, durability="os") as graph:
        graph.load(list(rows()))
    return path


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Graph]:
    with Graph.open(make_graph(tmp_path / "g.omni"), local_files=False) as graph:
        yield graph


@pytest.fixture
def server(local: Graph) -> Iterator[Server]:
    queries = {**QUERIES, "names": NAMES}
    with serving({"g": local}, queries=queries, tokens=TOKENS) as server:
        yield server


@pytest.fixture
def ana(server: Server) -> Client:
    return server.client("token-a", "g")


def read(client: Client, path: str = "/query", size: int = 7, **body: Any) -> list[Any]:
    """The documents of all pages."""
    documents = [client.post(path, {**body, "page_size": size}).ok()]
    while "cursor" in documents[-1]:
        given = {**body, "page_size": size, "cursor": documents[-1]["cursor"]}
        documents.append(client.post(path, given).ok())
    return documents


def all_rows(documents: list[Any]) -> list[Any]:
    return [row for document in documents for row in document["rows"]]


# -- pages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/query", {"query": NAMES}),
        ("/query", {"query": PAIRS, "params": {"age": 3}}),
        ("/query", {"query": NAMES, "branch": "main"}),
        ("/queries/names", {}),
        ("/queries/adults", {"params": {"age": 2}}),
    ],
)
def test_the_pages_are_the_rows_of_the_query(ana, path, body):
    one = ana.post(path, body).ok()
    documents = read(ana, path, **body)
    key = json.dumps
    assert sorted(map(key, all_rows(documents))) == sorted(map(key, one["rows"]))
    assert [document["row_count"] for document in documents[:-1]] == [7] * (len(documents) - 1)
    assert {document["graph_commit_id"] for document in documents} == {one["graph_commit_id"]}
    assert all(document["target"] == one["target"] for document in documents)
    assert all(document["columns"] == one["columns"] for document in documents)


def test_a_page_has_its_cursor_in_a_header_where_rows_have_no_place_for_it(ana):
    document = ana.post("/query", {"query": NAMES, "page_size": 4}).ok()
    body: dict[str, Any] = {"query": NAMES, "page_size": 4}
    lines = ana.post("/query", body, headers={"Accept": NDJSON})
    assert [json.loads(line) for line in lines.body.splitlines()] == document["rows"]
    body["cursor"] = lines.headers["omnigraph-cursor"]
    arrow = ana.post("/query", body, headers={"Accept": ARROW_STREAM})
    body["cursor"] = document["cursor"]
    second = ana.post("/query", body).ok()
    assert pa.ipc.open_stream(arrow.body).read_all().to_pylist() == second["rows"]
    last = ana.post("/query", {"query": NAMES, "page_size": 100}, headers={"Accept": NDJSON})
    assert "omnigraph-cursor" not in last.headers


def test_sizes_have_bounds(ana, server):
    for size in (0, -1, 10_001, "7", 1.5):
        refused = ana.post("/query", {"query": NAMES, "page_size": size}).fails(422)
        assert refused["reason"] == "body_shape"
        ana.post("/queries/names", {"page_size": size}).fails(400)
    first = ana.post("/query", {"query": NAMES, "page_size": 5}).ok()
    rest = ana.post("/query", {"query": NAMES, "cursor": first["cursor"]}).ok()
    assert (rest["row_count"], "cursor" in rest) == (COUNT - 5, False)
    ana.post("/queries/add_person", {"page_size": 5, "params": {"name": "x"}}).fails(400, "pages")


def test_a_page_is_never_larger_than_the_cap(local):
    with serving({"g": local}, limits=QueryLimits(max_rows=10)) as server:
        client = server.client(graph="g")
        documents = read(client, size=50, query=NAMES)
        assert [document["row_count"] for document in documents] == [10] * 6


def test_pages_equal_one_state_while_8_writers_commit(server, local):
    before = sorted(json.dumps(row) for row in local.query(PAIRS, params={"age": 0}).json_rows())
    stop, committed = threading.Event(), [0] * 8

    def write(number: int) -> None:
        client = server.client("token-a", "g")
        while not stop.is_set():
            name = f"new-{number}-{committed[number]}"
            answer = client.post("/mutate", {"query": ADD, "params": {"name": name, "age": 50}})
            assert answer.status in (200, 409, 429, 503), answer.body
            update = f'query u() {{ update Person set {{ age: 99 }} where name = "p{number:03}" }}'
            client.post("/mutate", {"query": update})
            committed[number] += answer.status == 200

    reader = server.client("token-b", "g")
    body = {"query": PAIRS, "params": {"age": 0}}
    first = reader.post("/query", {**body, "page_size": 9}).ok()
    with ThreadPoolExecutor(8) as pool:
        writers = [pool.submit(write, number) for number in range(8)]
        documents = [first]
        try:
            while "cursor" in documents[-1]:
                given = {**body, "page_size": 9, "cursor": documents[-1]["cursor"]}
                documents.append(reader.post("/query", given).ok())
                # Not before somebody has committed since the page before.
                seen = sum(committed)
                while sum(committed) == seen and not any(w.done() for w in writers):
                    reader.get("/schema").ok()
        finally:
            stop.set()
        for writer in writers:
            writer.result()
    assert sum(committed) >= len(documents) - 1
    assert sorted(json.dumps(row) for row in all_rows(documents)) == before
    assert {document["graph_commit_id"] for document in documents} == {first["graph_commit_id"]}
    assert local.commits()[0].commit_id != first["graph_commit_id"]


# -- what a cursor is bound to -------------------------------------------------------------------


@pytest.fixture
def cursor(ana: Client) -> str:
    return str(ana.post("/query", {"query": NAMES, "page_size": 5}).ok()["cursor"])


@pytest.mark.parametrize(
    "change",
    [
        {"query": NAMES + " "},
        {"name": "names"},
        {"params": {"unknown": 1}},
        {"branch": "review"},
        {"snapshot": "HEAD"},
    ],
)
def test_a_cursor_is_for_its_query_parameters_and_state_only(ana, local, cursor, change):
    local.branches.create("review")
    if change == {"snapshot": "HEAD"}:
        change = {"snapshot": local.commits()[0].commit_id}
    body = {"query": NAMES, "page_size": 5, "cursor": cursor, **change}
    assert ana.post("/query", body).fails(400, "another query")["reason"] == "bad_cursor"


def test_a_cursor_of_a_text_is_not_one_of_a_stored_query(ana, cursor):
    ana.post("/queries/names", {"page_size": 5, "cursor": cursor}).fails(400)


def test_a_cursor_is_not_for_another_actor(ana, server, cursor):
    body = {"query": NAMES, "page_size": 5, "cursor": cursor}
    assert ana.post("/query", body).status == 200
    refused = server.client("token-b", "g").post("/query", body).fails(403)
    assert refused["reason"] == "foreign_cursor"


def test_a_cursor_needs_the_right_to_read_at_every_page(ana, server, cursor):
    server.swap(access=ListedAccess({("ana", "read")}))
    body = {"query": NAMES, "page_size": 5, "cursor": cursor}
    assert ana.post("/query", body).fails(403)["reason"] == "policy_denied"


def test_no_part_of_a_cursor_can_be_changed(ana, cursor):
    raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    # The version, the key, the commit, the offset, the digests, the signature.
    for position in (0, 1, 8, 12, 30, 45, 60, len(raw) // 2, len(raw) - 33, len(raw) - 1):
        forged = bytearray(raw)
        forged[position] ^= 1
        text = base64.urlsafe_b64encode(forged).decode().rstrip("=")
        body = {"query": NAMES, "page_size": 5, "cursor": text}
        assert ana.post("/query", body).fails(400)["reason"] == "bad_cursor", position
    for text in ("", "x", cursor[:-1], cursor + "A", cursor + "=", "ü", "A" * 5_000):
        body = {"query": NAMES, "page_size": 5, "cursor": text}
        assert ana.post("/query", body).fails(400)["reason"] == "bad_cursor"


def test_an_unsigned_cursor_of_the_library_is_not_one_of_a_server(ana, local):
    page = next(local.pages(NAMES, page_size=5))
    body = {"query": NAMES, "page_size": 5, "cursor": page.cursor}
    assert ana.post("/query", body).fails(400)["reason"] == "bad_cursor"


def test_a_cleaned_state_is_gone(ana, local, cursor):
    for number in range(3):
        local.mutate(ADD, params={"name": f"late-{number}"})
    local.maintenance.optimize()
    local.refresh()
    local.maintenance.cleanup(1, min_age=0, feed_retention=0)
    body = {"query": NAMES, "page_size": 5, "cursor": cursor}
    refused = ana.post("/query", body).fails(410)
    assert refused["reason"] == "history_gone"
    assert "change_feed_gap" not in refused


def test_the_state_of_a_deleted_branch_is_gone(ana, local):
    local.branches.create("review")
    local.mutate(ADD, params={"name": "x"}, branch="review")
    body = {"query": NAMES, "page_size": 5, "branch": "review"}
    first = ana.post("/query", body).ok()
    local.branches.delete("review")
    ana.post("/query", {**body, "cursor": first["cursor"]}).fails(410)


GRANTED = """
version: 2
groups: {{ staff: [ana, bo], root: [root] }}
rules:
  - {{ id: r, allow: {{ actors: {{ group: staff }}, actions: [{actions}], branch_scope: any }} }}
  - {{ id: i, allow: {{ actors: {{ group: staff }}, actions: [invoke_query] }} }}
  - id: all
    allow: {{ actors: {{ group: root }}, actions: [read, schema_apply, admin, change] }}
rows:
  - {{ id: young, actors: {{ group: staff }}, types: ["*"], where: "age < {most}" }}
  - {{ id: every, actors: {{ group: root }}, types: ["*"] }}
"""


class Governed:
    """A served graph under a policy that can be replaced, as by a reload."""

    def __init__(self, graph: Graph, server: Server, current: list[Access]) -> None:
        self.graph = graph
        self.client = server.client("token-a", "g")
        self.server = server
        self._current = current

    def reload(self, text: str) -> None:
        self._current[0] = Access(RunState.POLICY, {"g": Policy.parse(text)})
        self.server.swap(access=self._current[0])

    def page(self, cursor: str | None = None, path: str = "/query", size: int = 2) -> Any:
        body = {"page_size": size} | ({} if cursor is None else {"cursor": cursor})
        return self.client.post(path, body | ({"query": NAMES} if path == "/query" else {}))


@pytest.fixture
def governed(tmp_path: Path) -> Iterator[Governed]:
    schema = "node Person { name: String @key  age: I64? }"
    people = [{"type": "Person", "data": {"name": f"p{n}", "age": n}} for n in range(9)]
    with Graph.init(tmp_path / "g.omni", schema) as made:
        made.load(people)
    access = Access(
        RunState.POLICY, {"g": Policy.parse(GRANTED.format(actions="read, change", most=5))}
    )
    current = [access]
    gate = CurrentGate("g", lambda: current[0])
    with (
        Graph.open(tmp_path / "g.omni", local_files=False, policy=gate) as graph,
        serving(
            {"g": graph},
            queries={"names": NAMES},
            tokens=TOKENS,
            access=access,
            limits=QueryLimits(max_rows=3),
        ) as server,
    ):
        yield Governed(graph.for_actor("root"), server, current)


def names(document: Any) -> list[str]:
    return [row["p.name"] for row in document["rows"]]


def test_a_policy_that_shows_other_rows_ends_a_reading(governed):
    first = governed.page().ok()
    assert names(first) == ["p0", "p1"]
    governed.reload(GRANTED.format(actions="read, change", most=6))
    refused = governed.page(first["cursor"]).fails(410)
    assert refused["reason"] == "view_changed"
    assert "change_feed_gap" not in refused
    with (
        omnigraph.connect(governed.server.url, graph="g", token="token-a") as remote,
        pytest.raises(ViewChanged),
    ):
        remote.pages(NAMES, page_size=2, cursor=first["cursor"])


@pytest.mark.parametrize(
    ("actions", "status", "reason"),
    [
        ("read, change", 200, None),
        # It sees the same rows as before; a right was taken, or given.
        ("read", 410, "view_changed"),
        ("read, change, export", 410, "view_changed"),
        # The right to read is asked for before the cursor is looked at.
        ("change", 403, "policy_denied"),
    ],
)
def test_a_cursor_is_for_the_policy_it_was_issued_under(governed, actions, status, reason):
    first = governed.page().ok()
    governed.reload(GRANTED.format(actions=actions, most=5))
    answer = governed.page(first["cursor"])
    assert (answer.status, answer.json.get("reason")) == (status, reason)
    if status == 410:
        assert names(governed.page(governed.page().ok()["cursor"]).ok())[0] == "p2"


def test_a_cursor_of_a_removed_policy_is_not_one_without(governed):
    first = governed.page().ok()
    governed._current[0] = Access(RunState.DEFAULT_DENY)
    governed.server.swap(access=governed._current[0])
    assert governed.page(first["cursor"]).fails(410)["reason"] == "view_changed"


def test_a_schema_change_between_pages_changes_nothing_of_them(governed):
    first = governed.page().ok()
    governed.graph.schema.apply(
        'node Being @rename_from("Person") { label: String @key @rename_from("name")  age: I64? }'
    )
    assert names(governed.page(first["cursor"]).ok()) == ["p2"]
    # A new reading is one of the new schema.
    governed.page().fails(400, "Person")


def test_compaction_between_pages_changes_nothing_and_cleanup_only_what_it_removes(governed):
    first = governed.page().ok()
    maintenance = governed.graph.maintenance
    maintenance.optimize()
    governed.graph.mutate('query q() { delete Person where name = "p2" }')
    maintenance.cleanup(10, min_age=0)
    governed.graph.refresh()
    assert names(governed.page(first["cursor"]).ok()) == ["p2"]
    maintenance.cleanup(1, min_age=0, feed_retention=0)
    governed.graph.refresh()
    assert governed.page(first["cursor"]).fails(410)["reason"] == "history_gone"


# -- more rows than the cap -----------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/query", "/queries/names"])
def test_pages_have_more_rows_than_the_cap_for_those_who_may_export(governed, path):
    governed.reload(GRANTED.format(actions="read", most=9))
    first = governed.page(path=path).ok()
    # Together the pages have the 3 rows that one result may have.
    last = governed.page(first["cursor"], path).ok()
    assert [names(first), names(last)] == [["p0", "p1"], ["p2"]]
    refused = governed.page(last["cursor"], path).fails(413, "more than 3 rows")
    assert refused["reason"] == "row_limit_exceeded"
    with (
        omnigraph.connect(governed.server.url, graph="g", token="token-a") as remote,
        pytest.raises(RowLimitExceeded),
    ):
        list(remote.pages(NAMES, page_size=2))
    governed.reload(GRANTED.format(actions="read, export", most=9))
    body = {"query": NAMES} if path == "/query" else {}
    assert len(all_rows(read(governed.client, path, 2, **body))) == 9


def test_as_many_rows_as_the_cap_are_whole(governed):
    governed.reload(GRANTED.format(actions="read", most=3))
    documents = read(governed.client, size=2, query=NAMES)
    assert [names(document) for document in documents] == [["p0", "p1"], ["p2"]]


# -- clients -------------------------------------------------------------------------------------


def test_the_client_iterates_and_continues(server, local):
    expected = [row["p.name"] for page in local.pages(NAMES) for row in page.result.rows()]
    with omnigraph.connect(server.url, graph="g", token="token-a") as graph:
        pages = list(graph.pages(NAMES, page_size=11))
        assert [row["p.name"] for page in pages for row in page.result.rows()] == expected
        assert {page.commit_id for page in pages} == {local.commits()[0].commit_id}
        rest = list(graph.pages(NAMES, page_size=11, cursor=pages[2].cursor))
        assert [len(page.result) for page in rest] == [11, 11, 5]
        assert len(list(graph.queries.pages("names", page_size=30))) == 2
        state = graph.snapshot()
        local.mutate(ADD, params={"name": "later"})
        fixed = list(graph.pages(NAMES, snapshot=state, page_size=50))
        assert [len(page.result) for page in fixed] == [50, 10]
        assert fixed[1].result.target == {"branch": "main"}
        with pytest.raises(InvalidCursor):
            graph.pages(PAIRS, params={"age": 1}, cursor=pages[0].cursor)
    with (
        omnigraph.connect(server.url, graph="g", token="token-b") as graph,
        pytest.raises(ForeignCursor),
    ):
        graph.pages(NAMES, page_size=11, cursor=pages[0].cursor)
    assert issubclass(HistoryGone, omnigraph.OmniGraphError)


# -- workers and keys ----------------------------------------------------------------------------


def page(server: ServerUnderTest, cursor: str | None = None, size: int = 2) -> Any:
    """One page, on a connection of its own: any worker may answer."""
    body = {"query": NAMES, "page_size": size} | ({} if cursor is None else {"cursor": cursor})
    answer = server.ask("POST", "/graphs/g/query", body)
    assert answer.status == 200, answer.body
    return answer.json


def test_a_replica_that_may_not_write_signs_with_the_key_of_others(local, ana, monkeypatch):
    """Without one it refuses pages, with a reason; everything else it answers."""
    body = {"query": NAMES, "page_size": 2}
    with monkeypatch.context() as disk:

        def refuse(*_: Any, **__: Any) -> None:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

        disk.setattr(LocalObjects, "create", refuse)
        disk.setattr(LocalObjects, "put", refuse)
        refused = ana.post("/query", body).fails(503, "may not write one")
        assert (refused["reason"], "page_size" in refused["hint"]) == ("no_cursor_key", True)
        assert ana.post("/query", {"query": NAMES}).ok()["row_count"] == COUNT
        # A page that is the last needs no cursor.
        assert "cursor" not in ana.post("/query", {**body, "page_size": COUNT}).ok()
    StoredCursorKeys(local._handle.store.objects).signing()
    with monkeypatch.context() as disk:
        disk.setattr(LocalObjects, "create", refuse)
        disk.setattr(LocalObjects, "put", refuse)
        assert len(all_rows(read(ana, query=NAMES))) == COUNT


def test_keys_that_are_no_text_are_replaced(local, ana):
    objects = local._handle.store.objects
    objects.write_bytes(PATH, b"\xff\xfe")
    assert len(all_rows(read(ana, query=NAMES))) == COUNT
    assert json.loads(objects.read(PATH))["keys"]


def test_workers_replicas_and_restarted_servers_accept_each_others_cursors(tmp_path):
    root = make_graph(tmp_path / "g.omni")
    ring = root / PATH
    alone, several = (("--workers", count, "--unauthenticated") for count in ("1", "2"))
    with serve(root, tmp_path / "log", *alone).await_listening() as replica:
        with serve(root, tmp_path / "log2", *several).await_listening() as server:
            documents = [page(server)]
            while len(documents) < 20:
                documents.append(page(server, documents[-1]["cursor"]))
            documents.append(page(replica, documents[-1]["cursor"]))
            documents.append(page(server, documents[-1]["cursor"]))
        assert stat.S_IMODE(ring.stat().st_mode) == 0o600
        stored = json.loads(ring.read_text())
        secret = stored["keys"][0]["secret"]
        # A day later: the key is replaced, and its cursors are accepted.
        stored["keys"][0]["created"] -= 86_400
        ring.write_text(json.dumps(stored))
        before = documents[-1]["cursor"]
        with serve(root, tmp_path / "log3", *several).await_listening() as server:
            documents.append(page(server, before))
            assert len(json.loads(ring.read_text())["keys"]) == 2
            # Nobody has told the replica about the new key: it reads it when it meets it.
            documents.append(page(replica, documents[-1]["cursor"]))
            assert page(replica, before)["rows"] == documents[-2]["rows"]
            while "cursor" in documents[-1]:
                documents.append(page(server, documents[-1]["cursor"]))
    expected = sorted(f"p{n:03}" for n in range(COUNT))
    assert [row["p.name"] for row in all_rows(documents)] == expected
    logs = "".join(path.read_text() for path in tmp_path.glob("log*"))
    assert secret not in logs
    assert documents[0]["cursor"] not in logs
