"""Blobs: what stands for their bytes on the way in, and reading them in pieces."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.errors import EntityNotFound, InputError, LoadError, ValueConversionError
from omnigraph.write.blobs import blob_bytes, blob_size

SCHEMA = """\
node Doc { slug: String @key  body: Blob?  cover: Blob?  title: String? }
node Must { slug: String @key  body: Blob }
edge Cites: Doc -> Doc { scan: Blob? }
"""
BYTES = bytes(range(256)) * 3


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        yield graph


def doc(slug, body, kind="Doc"):
    return {"type": kind, "data": {"slug": slug, "body": body}}


def text(data):
    return "base64:" + base64.b64encode(data).decode()


# -- on the way in ----------------------------------------------------------------------------

FORMS = {
    "bytes": bytes,
    "a bytearray": bytearray,
    "a memoryview": memoryview,
    "base64": text,
}


@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
@pytest.mark.parametrize("data", [b"", b"hi", BYTES], ids=["empty", "short", "all bytes"])
def test_what_stands_for_bytes(graph, form, data):
    """160"""
    graph.load([doc("a", form(data))])
    assert graph.read_blob("Doc", "a", "body") == data


@pytest.mark.parametrize("name", ["plain.bin", "with space.bin", "100%.bin", "#?.bin", "ü☃.bin"])
def test_the_content_of_a_file(graph, tmp_path, name):
    """160: by its path or by its address; what is stored is the content, not the link."""
    path = tmp_path / name
    path.write_bytes(BYTES)
    address = path.as_uri()
    graph.load(
        [
            doc("path", path),
            doc("uri", address),
            doc("host", address.replace("//", "//localhost", 1)),
        ]
    )
    path.unlink()
    for slug in ("path", "uri", "host"):
        assert graph.read_blob("Doc", slug, "body") == BYTES


def test_nulls(graph):
    """160: where they are allowed."""
    graph.load([doc("a", None), {"type": "Doc", "data": {"slug": "b"}}])
    assert graph.read_blob("Doc", "a", "body") is None
    assert graph.read_blob("Doc", "b", "body") is None
    with pytest.raises(LoadError, match="is required"):
        graph.load([doc("a", None, "Must")])


def test_arrow_tables_and_edges(graph):
    table = pa.table({"slug": ["a", "b"], "body": pa.array([b"x", None], pa.binary())})
    graph.load({"Doc": table})
    graph.load([{"edge": "Cites", "from": "a", "to": "b", "data": {"id": "e", "scan": text(b"s")}}])
    assert graph.read_blob("Doc", "a", "body") == b"x"
    assert graph.read_blob("Cites", "e", "scan") == b"s"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_mutations_take_bytes_and_paths(graph, tmp_path, kind):
    (tmp_path / "ä b").write_bytes(BYTES)
    query = """query q($b: Blob, $c: Blob) { insert Doc { slug: "a", body: $b, cover: $c } }"""
    graph.mutate(query, None, {"b": kind(b"hi"), "c": tmp_path / "ä b"})
    assert graph.read_blob("Doc", "a", "body") == b"hi"
    assert graph.read_blob("Doc", "a", "cover") == BYTES


def test_tables_take_bytes_and_base64(graph):
    graph.load({"Doc": pa.table({"slug": ["a", "b"], "body": [text(b"hi"), None]})})
    graph.load({"Doc": pa.table({"slug": ["c"], "body": [b"raw"]})})
    assert graph.read_blob("Doc", "a", "body") == b"hi"
    assert graph.read_blob("Doc", "b", "body") is None
    assert graph.read_blob("Doc", "c", "body") == b"raw"
    files = pa.table({"slug": ["d"], "body": ["file:///etc/hosts"]})
    with pytest.raises(InputError, match=r"String. do not fit Blob"):
        graph.load({"Doc": files})


def test_mutations_take_base64_and_files(graph, tmp_path):
    (tmp_path / "x").write_bytes(BYTES)
    query = """query q($b: Blob, $c: Blob) { insert Doc { slug: "a", body: $b, cover: $c } }"""
    graph.mutate(query, None, {"b": text(b"hi"), "c": (tmp_path / "x").as_uri()})
    assert graph.read_blob("Doc", "a", "body") == b"hi"
    assert graph.read_blob("Doc", "a", "cover") == BYTES


def test_an_update_of_something_else_leaves_a_blob(graph):
    graph.load([doc("a", b"hi")])
    graph.mutate('query q() { update Doc set { title: "t" } where slug = "a" }')
    assert graph.read_blob("Doc", "a", "body") == b"hi"


def test_a_merge_replaces_a_blob(graph):
    graph.load([doc("a", b"one"), doc("b", b"two")])
    graph.load([doc("a", None)])
    assert graph.read_blob("Doc", "a", "body") is None
    assert graph.read_blob("Doc", "b", "body") == b"two"


@pytest.mark.parametrize(
    "value",
    ["hi", "base64:?", "base64:aGk", "file:///no/such", "file://host/x", "http://x", 7, ["a"], {}],
)
def test_what_stands_for_no_bytes(value):
    with pytest.raises(ValueConversionError):
        blob_bytes(value)


def test_only_files_are_read(tmp_path):
    """A pipe or a device might never end."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(ValueConversionError, match="cannot be read"):
            blob_bytes(path)


def test_sizes_are_known_without_reading(tmp_path):
    (tmp_path / "x").write_bytes(BYTES)
    assert blob_size((tmp_path / "x").as_uri()) == len(BYTES)
    assert blob_size(tmp_path / "x") == len(BYTES)
    assert blob_size(BYTES) == len(BYTES)
    assert [blob_size(value) for value in (None, 7, "file:///no/such", "file://h/x")] == [0] * 4


# -- reading ----------------------------------------------------------------------------------


@pytest.fixture
def stored(graph):
    graph.load([doc("a", BYTES), doc("b", None)])
    return graph


@pytest.mark.parametrize(
    ("offset", "length", "expected"),
    [
        (0, None, BYTES),
        (0, 5, BYTES[:5]),
        (250, 10, BYTES[250:260]),
        (700, None, BYTES[700:]),
        (760, 100, BYTES[760:]),
        (len(BYTES), 1, b""),
        (10**12, 5, b""),
        (3, 0, b""),
    ],
)
def test_a_piece_of_a_blob(stored, offset, length, expected):
    """Like a slice: what lies behind the end is not there."""
    assert stored.read_blob("Doc", "a", "body", offset, length) == expected


def test_without_a_length_a_read_is_bounded(graph):
    """4 MiB at once, so that nobody holds a blob of any size by accident."""
    data = os.urandom(5 << 20)
    graph.load([doc("a", data)])
    assert graph.read_blob("Doc", "a", "body") == data[: 4 << 20]
    assert graph.read_blob("Doc", "a", "body", 4 << 20) == data[4 << 20 :]
    assert graph.read_blob("Doc", "a", "body", 0, len(data)) == data


@pytest.mark.parametrize("size", [64 << 10, 1 << 20, 12 << 20])
def test_large_blobs(graph, size):
    """Lance keeps them in the row, beside it or in a file of their own."""
    data = os.urandom(size)
    graph.load([doc("a", data), doc("b", data[::-1])])
    assert graph.read_blob("Doc", "a", "body", size - 10, 10) == data[-10:]
    assert graph.read_blob("Doc", "b", "body", 0, size) == data[::-1]


def test_many_blobs_of_a_load_arrive_each_in_its_row(graph):
    """More than one batch of them."""
    size = 300 << 10
    graph.load([doc(f"d{n}", bytes([n]) * size) for n in range(80)])
    for n in (0, 26, 27, 28, 79):
        assert graph.read_blob("Doc", f"d{n}", "body", 0, size) == bytes([n]) * size


def test_an_earlier_state_has_its_blob(stored):
    before = stored.snapshot()
    stored.load([doc("a", b"new")])
    assert before.read_blob("Doc", "a", "body") == BYTES
    assert stored.read_blob("Doc", "a", "body") == b"new"


def test_a_branch_has_its_blob(stored):
    stored.load([doc("a", b"new")], branch="review", from_branch="main")
    assert stored.read_blob("Doc", "a", "body", branch="review") == b"new"
    assert stored.read_blob("Doc", "a", "body") == BYTES


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (("Robot", "a", "body"), InputError, "no type 'Robot'"),
        (("Doc", "a", "title"), InputError, "Doc.title is not a Blob"),
        (("Doc", "a", "nope"), InputError, "Doc.nope is not a Blob"),
        (("Doc", "z", "body"), EntityNotFound, "no Doc 'z'"),
        (("Doc", "a", "body", -1), InputError, "negative"),
        (("Doc", "a", "body", 0, -1), InputError, "negative"),
    ],
    ids=["type", "property", "no property", "row", "offset", "length"],
)
def test_what_cannot_be_read(stored, given, error, says):
    """Engine 10: unknown type, no Blob, missing id."""
    with pytest.raises(error, match=says):
        stored.read_blob(*given)
