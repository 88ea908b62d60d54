"""Blobs over HTTP: ranges, tags and conditions as RFC 9110 says, writes, restricted actors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

import omnigraph
from omnigraph import Graph, Policy, connect, connect_async
from omnigraph.api import snapshot_rows
from omnigraph.api.blob_info import BlobInfo
from omnigraph.errors import (
    EntityNotFound,
    InputError,
    NotServed,
    PolicyDenied,
    PreconditionFailed,
)
from omnigraph.plan.view import View
from omnigraph.storage.tables.table import Table
from tests.server.serving import Client, ListedAccess, Response, Server, serving

pytestmark = pytest.mark.rotates(2)

SCHEMA = """
node Doc { slug: String @key  scan: Blob?  must: Blob?  pages: I32?  secret: Bool? }
edge Cites: Doc -> Doc { proof: Blob? }
"""
BODY = bytes(range(256)) * 20
BUNDLE = """
version: 2
groups: {all: [ana, bo]}
rules: [{id: r, allow: {actors: {group: all}, actions: [read, change, export]}}]
rows:
  - {id: a, actors: {group: all}, types: [Cites]}
  - {id: b, actors: {group: all}, types: [Doc], where: "secret != true"}
"""


def blob(id: str = "a", property: str = "scan", type: str = "Doc", **more: str) -> str:
    query = {"entity": "node", "type": type, "id": id, "property": property, **more}
    return f"/blob?{urlencode(query)}"


def rows() -> list[dict[str, Any]]:
    docs = [
        {"slug": "a", "scan": BODY, "secret": False},
        {"slug": "empty", "scan": b"", "secret": False},
        {"slug": "null", "secret": False},
        {"slug": "hidden", "scan": b"hush", "secret": True},
        {"slug": "odd/?&", "scan": b"odd", "secret": False},
    ]
    made = [{"type": "Doc", "data": doc} for doc in docs]
    return [*made, {"edge": "Cites", "from": "a", "to": "null", "data": {"proof": b"p"}}]


@pytest.fixture(scope="module")
def access() -> ListedAccess:
    return ListedAccess()


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    path = tmp_path_factory.mktemp("blobs") / "g.omni"
    with Graph.init(path, SCHEMA) as made:
        made.load(rows())
    with Graph.open(path, local_files=False, auto_compact=True) as graph:
        yield graph


@pytest.fixture(scope="module")
def server(graph: Graph, access: ListedAccess) -> Iterator[Server]:
    with serving({"g": graph}, tokens={"tok-ana": "ana", "tok-bo": "bo"}, access=access) as server:
        yield server


@pytest.fixture
def ana(server: Server, access: ListedAccess) -> Iterator[Client]:
    access.denied = set()
    yield server.client("tok-ana", "g")
    access.denied = set()


@pytest.fixture
def fresh(ana: Client) -> Iterator[str]:
    """The address of a Blob that is null, and null again afterwards."""
    yield blob("null")
    ana.delete(blob("null"))


def tag_of(answer: Response) -> str:
    return answer.headers["etag"]


# -- reading: the table of RFC 9110 ------------------------------------------------------------

SIZE = len(BODY)
GETS = [
    # (id, headers, status, body, content-range)
    ("a", {}, 200, BODY, None),
    ("a", {"Range": "bytes=0-0"}, 206, BODY[:1], f"bytes 0-0/{SIZE}"),
    ("a", {"Range": "bytes=10-19"}, 206, BODY[10:20], f"bytes 10-19/{SIZE}"),
    ("a", {"Range": "BYTES=10-19"}, 206, BODY[10:20], f"bytes 10-19/{SIZE}"),
    ("a", {"Range": "bytes=5000-"}, 206, BODY[5000:], f"bytes 5000-{SIZE - 1}/{SIZE}"),
    ("a", {"Range": "bytes=-7"}, 206, BODY[-7:], f"bytes {SIZE - 7}-{SIZE - 1}/{SIZE}"),
    ("a", {"Range": "bytes=-99999"}, 206, BODY, f"bytes 0-{SIZE - 1}/{SIZE}"),
    ("a", {"Range": "bytes=100-99999"}, 206, BODY[100:], f"bytes 100-{SIZE - 1}/{SIZE}"),
    ("a", {"Range": f"bytes={SIZE}-"}, 416, None, f"bytes */{SIZE}"),
    ("a", {"Range": f"bytes={'9' * 40}-"}, 416, None, f"bytes */{SIZE}"),
    ("a", {"Range": "bytes=-0"}, 416, None, f"bytes */{SIZE}"),
    # What a server may ignore, it ignores.
    ("a", {"Range": "bytes=0-1,4-5"}, 200, BODY, None),
    ("a", {"Range": "lines=0-1"}, 200, BODY, None),
    ("a", {"Range": "bytes=9-3"}, 200, BODY, None),
    ("a", {"Range": "bytes=-"}, 200, BODY, None),
    ("a", {"Range": "bytes=x-y"}, 200, BODY, None),
    ("empty", {}, 200, b"", None),
    ("empty", {"Range": "bytes=0-"}, 416, None, "bytes */0"),
    ("empty", {"Range": "bytes=-5"}, 200, b"", None),
    # TAG stands for the tag of the Blob.
    ("a", {"If-Match": "TAG"}, 200, BODY, None),
    ("a", {"If-Match": '"x", TAG'}, 200, BODY, None),
    ("a", {"If-Match": "*"}, 200, BODY, None),
    ("a", {"If-Match": '"x"'}, 412, None, None),
    ("a", {"If-Match": "W/TAG"}, 412, None, None),
    ("a", {"If-None-Match": "TAG"}, 304, b"", None),
    ("a", {"If-None-Match": "W/TAG"}, 304, b"", None),
    ("a", {"If-None-Match": "*"}, 304, b"", None),
    ("a", {"If-None-Match": '"x", "y"'}, 200, BODY, None),
    # If-Match comes first, a range last.
    ("a", {"If-Match": '"x"', "If-None-Match": "TAG"}, 412, None, None),
    ("a", {"If-None-Match": "TAG", "Range": "bytes=0-1"}, 304, b"", None),
    ("a", {"If-Match": "TAG", "Range": "bytes=0-1"}, 206, BODY[:2], f"bytes 0-1/{SIZE}"),
    ("a", {"If-Range": "TAG", "Range": "bytes=0-1"}, 206, BODY[:2], f"bytes 0-1/{SIZE}"),
    ("a", {"If-Range": '"x"', "Range": "bytes=0-1"}, 200, BODY, None),
    ("a", {"If-Range": "W/TAG", "Range": "bytes=0-1"}, 200, BODY, None),
    ("a", {"If-Range": "Tue, 15 Nov 1994 08:12:31 GMT", "Range": "bytes=0-1"}, 200, BODY, None),
    ("a", {"If-Range": '"x"', "Range": f"bytes={SIZE}-"}, 200, BODY, None),
    ("a", {"If-Match": "TAG; nonsense"}, 400, None, None),
    ("a", {"If-None-Match": ","}, 400, None, None),
    ("odd/?&", {}, 200, b"odd", None),
]


@pytest.mark.parametrize(("id", "headers", "status", "body", "part"), GETS)
def test_a_get_responses_as_the_rfc_says(
    ana: Client, id: str, headers: dict[str, str], status: int, body: bytes | None, part: str | None
) -> None:
    tag = tag_of(ana.get(blob(id)))
    sent = {name: value.replace("TAG", tag) for name, value in headers.items()}
    answer = ana.get(blob(id), headers=sent)
    assert answer.status == status, answer.body
    assert answer.headers.get("content-range") == part
    if body is not None:
        assert answer.body == body
    if status in (200, 206):
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["accept-ranges"] == "bytes"
        assert answer.headers["content-length"] == str(len(answer.body))
    if status in (200, 206, 304):
        assert tag_of(answer) == tag
        assert not tag.startswith("W/")
    if status == 304:
        assert "content-length" not in answer.headers
        assert "content-type" not in answer.headers
    if status == 416:
        assert answer.json["reason"] == "range_not_satisfiable"


@pytest.mark.parametrize(
    "headers", [{}, {"If-Match": '"x"'}, {"If-None-Match": "*"}, {"If-Match": "*"}]
)
@pytest.mark.parametrize("id", ["a", "empty", "null", "absent"])
def test_head_has_the_headers_of_get(ana: Client, id: str, headers: dict[str, str]) -> None:
    sent = {**headers, "Omnigraph-Request-Id": "same"}
    get, head = (ana.request(name, blob(id), headers=sent) for name in ("GET", "HEAD"))
    assert head.status == get.status
    assert head.body == b""
    varies = {"date"}
    shown = [{k: v for k, v in a.headers.items() if k not in varies} for a in (get, head)]
    assert shown[0] == shown[1]


def test_head_ignores_a_range(ana: Client) -> None:
    answer = ana.request("HEAD", blob(), headers={"Range": "bytes=0-1"})
    assert (answer.status, answer.headers["content-length"]) == (200, str(SIZE))


def test_the_tag_changes_with_the_bytes_and_with_nothing_else(
    ana: Client, graph: Graph, fresh: str
) -> None:
    before = tag_of(ana.get(blob()))
    set_pages = 'query q() { update Doc set { pages: 5 } where slug = "a" }'
    ana.post("/mutate", {"query": set_pages}).ok()
    graph.maintenance.optimize()
    assert tag_of(ana.get(blob())) == before
    ana.post("/branches", {"name": "tags"}).ok()
    assert tag_of(ana.get(blob(branch="tags"))) == before
    first = tag_of(ana.request("PUT", fresh, raw=b"one"))
    assert tag_of(ana.get(fresh)) == first
    second = tag_of(ana.request("PUT", fresh, raw=b"two"))
    assert second != first
    assert tag_of(ana.request("PUT", fresh, raw=b"one")) == first


def test_states_branches_and_kinds(ana: Client, fresh: str) -> None:
    put = ana.request("PUT", fresh, raw=b"v1")
    first = put.headers["omnigraph-commit"]
    ana.request("PUT", fresh, raw=b"v2")
    assert ana.get(f"{fresh}&snapshot={first}").body == b"v1"
    assert ana.get(fresh).body == b"v2"
    ana.get(f"{fresh}&snapshot={first}&branch=main").fails(400, "not both")
    ana.get(f"{fresh}&snapshot=01NO").fails(404, "commit")
    ana.get(f"{fresh}&branch=no").fails(404, "branch 'no'")
    without_kind = f"/blob?{urlencode({'type': 'Doc', 'id': 'a', 'property': 'scan'})}"
    assert ana.get(without_kind).body == BODY
    ana.get("/blob?type=Doc&id=a").fails(400, "property")
    ana.get(blob(type="No")).fails(400, "No")
    ana.get(blob(property="slug")).fails(400, "is not a Blob")
    ana.get(f"{without_kind}&entity=thing").fails(400)
    assert ana.get(blob("absent")).fails(404)["reason"] == "entity_not_found"
    assert ana.get(blob("null", "must")).fails(404)["reason"] == "blob_is_null"


def test_a_large_blob_is_streamed(ana: Client, monkeypatch: pytest.MonkeyPatch, fresh: str) -> None:
    content = bytes(range(256)) * (20 << 10)
    assert ana.request("PUT", fresh, raw=content).status == 201
    sizes: list[int] = []
    read = Table.read_blob

    def noted(self: Table, column: str, row: int, offset: int, length: int) -> bytes | None:
        sizes.append(length)
        return read(self, column, row, offset, length)

    monkeypatch.setattr(Table, "read_blob", noted)
    assert ana.get(fresh).body == content
    assert max(sizes) <= 4 << 20
    sizes.clear()
    # The tag is known: only the range is read.
    assert ana.get(fresh, headers={"Range": "bytes=-10"}).body == content[-10:]
    assert sizes == [10]


# -- writing -----------------------------------------------------------------------------------


def test_a_put_is_a_commit_with_a_receipt(ana: Client, fresh: str) -> None:
    created = ana.request("PUT", fresh, raw=b"new")
    assert created.status == 201
    body = created.json
    assert body["size"] == 3
    assert body["etag"] == tag_of(created)
    assert body["receipt"]["tables"] == {"node:Doc": {"inserted": 0, "updated": 1, "deleted": 0}}
    assert body["commit"]["graph_commit_id"] == created.headers["omnigraph-commit"]
    assert body["actor_id"] == body["commit"]["actor_id"] == "ana"
    replaced = ana.request("PUT", fresh, raw=b"")
    assert (replaced.status, replaced.json["size"]) == (200, 0)
    assert ana.get(fresh).body == b""
    removed = ana.delete(fresh).ok()
    assert (removed["size"], removed["etag"]) == (None, None)
    assert removed["commit"] is not None
    assert ana.delete(fresh).ok()["commit"] is None
    ana.get(fresh).fails(404, "is null")


PUTS = [
    # (content before, method, headers, status)
    (None, "PUT", {"If-None-Match": "*"}, 201),
    (b"x", "PUT", {"If-None-Match": "*"}, 412),
    (b"x", "PUT", {"If-Match": "*"}, 200),
    (None, "PUT", {"If-Match": "*"}, 412),
    (b"x", "PUT", {"If-Match": "TAG"}, 200),
    (b"x", "PUT", {"If-Match": '"y", TAG'}, 200),
    (b"x", "PUT", {"If-Match": '"y"'}, 412),
    (b"x", "PUT", {"If-Match": "W/TAG"}, 412),
    (None, "PUT", {"If-Match": '"y"'}, 412),
    (b"x", "PUT", {"If-None-Match": "TAG"}, 412),
    (b"x", "PUT", {"If-None-Match": '"y"'}, 200),
    (b"x", "PUT", {"If-Match": "*", "If-None-Match": "*"}, 412),
    (None, "PUT", {"If-Match": "*", "If-None-Match": "*"}, 412),
    (b"x", "PUT", {"If-Match": "nonsense"}, 400),
    (b"x", "PUT", {"Content-Range": "bytes 0-1/2"}, 400),
    (b"x", "DELETE", {"If-Match": "TAG"}, 200),
    (b"x", "DELETE", {"If-Match": '"y"'}, 412),
    (None, "DELETE", {"If-Match": "*"}, 412),
]


@pytest.mark.parametrize(("before", "method", "headers", "status"), PUTS)
def test_a_write_is_conditional(
    ana: Client,
    fresh: str,
    before: bytes | None,
    method: str,
    headers: dict[str, str],
    status: int,
) -> None:
    tag = "" if before is None else tag_of(ana.request("PUT", fresh, raw=before))
    sent = {name: value.replace("TAG", tag) for name, value in headers.items()}
    answer = ana.request(method, fresh, headers=sent, raw=b"after" if method == "PUT" else None)
    assert answer.status == status, answer.body
    now = ana.get(fresh)
    if status < 300:
        assert now.body == b"after" if method == "PUT" else now.status == 404
    else:
        assert now.status == 404 if before is None else now.body == before
    if status == 412:
        assert answer.json["reason"] == "precondition_failed"


def test_a_writer_who_may_not_read_learns_no_digest(
    ana: Client, fresh: str, access: ListedAccess
) -> None:
    tag = tag_of(ana.request("PUT", fresh, raw=b"secret")).strip('"')
    conditions = [{"If-Match": '"y"'}, {"If-None-Match": "*"}, {"If-None-Match": f'"{tag}"'}]
    for method, headers in [("PUT", sent) for sent in conditions] + [("DELETE", conditions[0])]:
        body = b"after" if method == "PUT" else None
        access.denied = set()
        answer = ana.request(method, fresh, headers=headers, raw=body)
        access.denied = {"read"}
        unread = ana.request(method, fresh, headers=headers, raw=body)
        assert (answer.status, unread.status) == (412, 412)
        # A condition that needs no digest computes none.
        assert answer.json["details"]["digest"] in (tag, "unknown")
        assert tag not in f"{unread.body!r} {unread.headers}"
        assert unread.json["reason"] == "precondition_failed"


def test_of_two_writers_with_one_tag_one_wins(ana: Client, server: Server, fresh: str) -> None:
    for _ in range(3):
        tag = tag_of(ana.request("PUT", fresh, raw=b"start"))

        def write(content: bytes, tag: str = tag) -> Response:
            return server.client("tok-ana", "g").request(
                "PUT", fresh, raw=content, headers={"If-Match": tag}
            )

        with ThreadPoolExecutor(2) as pool:
            responses = list(pool.map(write, (b"one", b"two")))
        statuses = sorted(answer.status for answer in responses)
        assert statuses[0] == 200
        assert statuses[1] in (409, 412)
        winner = next(i for i, answer in enumerate(responses) if answer.status == 200)
        assert ana.get(fresh).body == (b"one", b"two")[winner]


def test_an_idempotency_key_runs_a_write_once(ana: Client, server: Server, fresh: str) -> None:
    key = {"Idempotency-Key": "blob-1"}
    first = ana.request("PUT", fresh, raw=b"once", headers=key)
    ana.request("PUT", fresh, raw=b"later")
    again = ana.request("PUT", fresh, raw=b"once", headers=key)
    assert again.json["receipt"] == first.json["receipt"]
    assert ana.get(fresh).body == b"later"
    assert ana.request("PUT", fresh, raw=b"other", headers=key).status == 409
    # The key of another actor is another key.
    other = server.client("tok-bo", "g").request("PUT", fresh, raw=b"bo", headers=key)
    assert other.status == 200


def test_refused_writes(ana: Client, access: ListedAccess) -> None:
    assert ana.request("PUT", blob("absent"), raw=b"x").fails(404)["reason"] == "entity_not_found"
    ana.request("PUT", blob(property="slug"), raw=b"x").fails(400, "is not a Blob")
    ana.request("PUT", blob(branch="no"), raw=b"x").fails(404)
    too_large = ana.request("PUT", blob(), raw=bytes((32 << 20) + 1))
    assert too_large.fails(413)["reason"] == "body_too_large"
    stale = {"Omnigraph-If-Graph-Commit": "01J00000000000000000000000"}
    ana.request("PUT", blob(), raw=b"x", headers=stale).fails(412)
    access.denied = {"change"}
    ana.request("PUT", blob(), raw=b"x").fails(403)
    ana.delete(blob()).fails(403)
    assert ana.get(blob()).status == 200
    access.denied = {"read"}
    ana.get(blob()).fails(403)


def test_the_bytes_are_never_those_of_a_file(ana: Client, fresh: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"of the server")
    link = f"file://{secret}".encode()
    ana.request("PUT", fresh, raw=link)
    assert ana.get(fresh).body == link


# -- Blobs that are stored elsewhere ------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "status"),
    [
        ("https://files.example.org/a.pdf", 302),
        ("http://files.example.org/a.pdf", 302),
        ("https://user:secret@files.example.org/a.pdf", 424),
        ("file:///etc/passwd", 424),
        ("/etc/passwd", 424),
        ("s3://bucket/a.pdf", 424),
        ("https:///a", 424),
        ("https://files.example.org/a\r\nx: y", 424),
    ],
)
def test_a_link_is_passed_on_only_if_it_is_safe(
    ana: Client, server: Server, monkeypatch: pytest.MonkeyPatch, uri: str, status: int
) -> None:
    """Other programs may store links; ours never does."""
    monkeypatch.setattr(snapshot_rows, "BlobInfo", lambda size, _: BlobInfo(size, uri))
    answer = ana.get(blob())
    assert answer.status == status
    assert answer.headers.get("location") == (uri if status == 302 else None)
    assert status == 302 or uri.encode() not in answer.body
    with connect(server.url, graph="g", token="tok-ana") as remote:
        snapshot = remote.snapshot()
        if status == 302:
            assert snapshot.blob_info("Doc", "a", "scan") == BlobInfo(SIZE, uri)
            with pytest.raises(NotServed, match="outside of the graph"):
                snapshot.read_blob("Doc", "a", "scan")
        else:
            with pytest.raises(omnigraph.OmniGraphError):
                snapshot.read_blob("Doc", "a", "scan")


# -- restricted actors --------------------------------------------------------------------------


class RowAccess(ListedAccess):
    """The rows of a real bundle, and everything else allowed."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = Policy.parse(BUNDLE)

    def view(self, graph_id: str, actor: Any, branch: str, catalog: Any) -> View:
        return self.policy.view(actor, branch, catalog)


def test_a_hidden_row_responses_as_an_absent_one(tmp_path: Path) -> None:
    with Graph.init(tmp_path / "g.omni", SCHEMA) as made:
        made.load(rows())
    policy = Policy.parse(BUNDLE)
    with (
        Graph.open(tmp_path / "g.omni", local_files=False, policy=policy) as graph,
        serving({"g": graph}, tokens={"tok-ana": "ana"}, access=RowAccess()) as server,
    ):
        ana = server.client("tok-ana", "g")
        assert ana.get(blob()).body == BODY
        for method, raw in (("GET", None), ("HEAD", None), ("PUT", b"x"), ("DELETE", None)):
            for headers in ({}, {"If-Match": "*"}, {"If-None-Match": "*"}, {"Range": "bytes=9-"}):
                sent = {**headers, "Omnigraph-Request-Id": "same"}
                hidden, absent = (
                    ana.request(method, blob(id), headers=sent, raw=raw)
                    for id in ("hidden", "absentee")
                )
                assert hidden.status == absent.status == 404, hidden.body
                assert hidden.body.replace(b"hidden", b"absentee") == absent.body
        remote = connect(server.url, graph="g", token="tok-ana")
        with pytest.raises(EntityNotFound):
            remote.snapshot().read_blob("Doc", "hidden", "scan")
        with pytest.raises(EntityNotFound):
            remote.blobs.put("Doc", "hidden", "scan", b"x")
        remote.close()
    with Graph.open(tmp_path / "g.omni") as whole:
        assert whole.snapshot().read_blob("Doc", "hidden", "scan") == b"hush"


# -- the library and the client -----------------------------------------------------------------


def test_the_client_reads_and_writes_as_the_library_does(
    server: Server, graph: Graph, fresh: str, access: ListedAccess
) -> None:
    with connect(server.url, graph="g", token="tok-ana") as remote:
        for made in (graph, remote):
            snapshot: Any = made.snapshot()
            assert snapshot.read_blob("Doc", "a", "scan") == BODY
            assert snapshot.read_blob("node:Doc", "a", "scan", 3, 4) == BODY[3:7]
            assert snapshot.read_blob("Doc", "a", "scan", SIZE) == b""
            assert snapshot.read_blob("Doc", "a", "scan", 2, 0) == b""
            assert snapshot.read_blob("Doc", "empty", "scan") == b""
            assert snapshot.read_blob("Doc", "null", "scan") is None
            assert snapshot.blob_info("Doc", "a", "scan") == BlobInfo(SIZE)
            assert snapshot.blob_info("Doc", "empty", "scan") == BlobInfo(0)
            assert snapshot.blob_info("Doc", "null", "scan") is None
            with pytest.raises(EntityNotFound):
                snapshot.read_blob("Doc", "absent", "scan")
            with pytest.raises(InputError, match="is not a Blob"):
                snapshot.blob_info("Doc", "a", "slug")
            digest = snapshot.blob_digest("Doc", "a", "scan")
            assert digest == graph.snapshot().blob_digest("Doc", "a", "scan")
            receipt = made.blobs.put("Doc", "null", "scan", b"one", if_null=True)
            assert receipt.affected_nodes == 1
            with pytest.raises(PreconditionFailed):
                made.blobs.put("Doc", "null", "scan", b"two", if_null=True)
            with pytest.raises(PreconditionFailed):
                made.blobs.delete("Doc", "null", "scan", if_digest="0" * 32)
            with pytest.raises(InputError, match="only one of"):
                made.blobs.put("Doc", "null", "scan", b"", if_null=True, if_digest="x")
            # The snapshot is older than the write.
            assert snapshot.read_blob("Doc", "null", "scan") is None
            now = made.snapshot().blob_digest("Doc", "null", "scan")
            made.blobs.delete("Doc", "null", "scan", if_digest=now)
            assert made.blobs.delete("Doc", "null", "scan").commit_id is None
        access.denied = {"change"}
        with pytest.raises(PolicyDenied):
            remote.blobs.put("Doc", "null", "scan", b"x")
        access.denied = set()


def test_the_async_client_reads_and_writes_blobs(server: Server, fresh: str) -> None:
    async def session() -> None:
        async with await connect_async(server.url, graph="g", token="tok-ana") as remote:
            receipt = await remote.blobs.put("Doc", "null", "scan", b"async", if_null=True)
            assert receipt.commit_id is not None
            snapshot = await remote.snapshot()
            assert await snapshot.read_blob("Doc", "null", "scan", 1, 3) == b"syn"
            assert await snapshot.read_blob("Doc", "null", "scan", 99) == b""
            assert await snapshot.blob_info("Doc", "null", "scan") == BlobInfo(5)
            digest = await snapshot.blob_digest("Doc", "null", "scan")
            with pytest.raises(EntityNotFound):
                await snapshot.blob_info("Doc", "absent", "scan")
            await remote.blobs.delete("Doc", "null", "scan", if_digest=digest)
            assert await (await remote.snapshot()).read_blob("Doc", "null", "scan") is None

    asyncio.run(session())


def test_blobs_of_edges_and_required_ones(tmp_path: Path) -> None:
    schema = "node Doc { slug: String @key  must: Blob }\nedge Cites: Doc -> Doc { proof: Blob? }"
    with Graph.init(tmp_path / "g.omni", schema) as graph:
        graph.load([{"type": "Doc", "data": {"slug": "a", "must": b"m"}}])
        graph.load([{"edge": "Cites", "from": "a", "to": "a", "data": {}}])
        edge = graph.snapshot().read("Cites", ["id"])["id"][0].as_py()
        assert graph.blobs.put("edge:Cites", edge, "proof", b"p").affected_edges == 1
        assert graph.snapshot().read_blob("Cites", edge, "proof") == b"p"
        with pytest.raises(InputError, match="required"):
            graph.blobs.delete("Doc", "a", "must")
        graph.branches.create("side")
        graph.blobs.put("Doc", "a", "must", b"s", "side")
        assert graph.snapshot("side").read_blob("Doc", "a", "must") == b"s"
        assert graph.snapshot().read_blob("Doc", "a", "must") == b"m"
