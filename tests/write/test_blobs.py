"""Blobs: what stands for their bytes on the way in, and reading them in pieces."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.errors import EntityNotFound, InputError, LoadError, ValueConversionError
from omnigraph.spark.load.run import split_reader
from omnigraph.storage.executor import ThreadExecutor
from omnigraph.write.blobs import LocalFiles, blob_bytes, blob_size
from omnigraph.write.load.job import LoadDestination, LoadJob, LoadMode
from omnigraph.write.load.run import load_into

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
    graph.load([doc("a", form(data))])
    assert graph.snapshot().read_blob("Doc", "a", "body") == data


@pytest.mark.parametrize("name", ["plain.bin", "with space.bin", "100%.bin", "#?.bin", "ü☃.bin"])
def test_the_content_of_a_file(graph, tmp_path, name):
    """By its path or by its address; what is stored is the content, not the link."""
    path = tmp_path / name
    path.write_bytes(BYTES)
    address = path.as_uri()
    graph.load(
        [
            doc("path", path),
            doc("uri", address),
            doc("host", address.replace("//", "//localhost", 1)),
            doc("case", address.replace("file", "FiLE", 1)),
        ],
        allow_local_files=True,
    )
    path.unlink()
    for slug in ("path", "uri", "host", "case"):
        assert graph.snapshot().read_blob("Doc", slug, "body") == BYTES


def test_nulls(graph):
    """Where they are allowed."""
    graph.load([doc("a", None), {"type": "Doc", "data": {"slug": "b"}}])
    assert graph.snapshot().read_blob("Doc", "a", "body") is None
    assert graph.snapshot().read_blob("Doc", "b", "body") is None
    with pytest.raises(LoadError, match="is required"):
        graph.load([doc("a", None, "Must")])


def test_arrow_tables_and_edges(graph):
    table = pa.table({"slug": ["a", "b"], "body": pa.array([b"x", None], pa.binary())})
    graph.load({"Doc": table})
    graph.load([{"edge": "Cites", "from": "a", "to": "b", "data": {"id": "e", "scan": text(b"s")}}])
    assert graph.snapshot().read_blob("Doc", "a", "body") == b"x"
    assert graph.snapshot().read_blob("Cites", "e", "scan") == b"s"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_mutations_take_bytes_and_paths(graph, tmp_path, kind):
    (tmp_path / "ä b").write_bytes(BYTES)
    query = """query q($b: Blob, $c: Blob) { insert Doc { slug: "a", body: $b, cover: $c } }"""
    params = {"b": kind(b"hi"), "c": tmp_path / "ä b"}
    graph.mutate(query, None, params, allow_local_files=True)
    assert graph.snapshot().read_blob("Doc", "a", "body") == b"hi"
    assert graph.snapshot().read_blob("Doc", "a", "cover") == BYTES


def test_tables_take_bytes_and_base64(graph):
    graph.load({"Doc": pa.table({"slug": ["a", "b"], "body": [text(b"hi"), None]})})
    graph.load({"Doc": pa.table({"slug": ["c"], "body": [b"raw"]})})
    assert graph.snapshot().read_blob("Doc", "a", "body") == b"hi"
    assert graph.snapshot().read_blob("Doc", "b", "body") is None
    assert graph.snapshot().read_blob("Doc", "c", "body") == b"raw"
    files = pa.table({"slug": ["d"], "body": ["file:///etc/hosts"]})
    with pytest.raises(InputError, match=r"String. do not fit Blob"):
        graph.load({"Doc": files})


def test_mutations_take_base64_and_files(graph, tmp_path):
    (tmp_path / "x").write_bytes(BYTES)
    query = """query q($b: Blob, $c: Blob) { insert Doc { slug: "a", body: $b, cover: $c } }"""
    params = {"b": text(b"hi"), "c": (tmp_path / "x").as_uri()}
    graph.mutate(query, None, params, allow_local_files=True)
    assert graph.snapshot().read_blob("Doc", "a", "body") == b"hi"
    assert graph.snapshot().read_blob("Doc", "a", "cover") == BYTES


def test_an_update_of_something_else_leaves_a_blob(graph):
    graph.load([doc("a", b"hi")])
    graph.mutate('query q() { update Doc set { title: "t" } where slug = "a" }')
    assert graph.snapshot().read_blob("Doc", "a", "body") == b"hi"


def test_a_merge_replaces_a_blob(graph):
    graph.load([doc("a", b"one"), doc("b", b"two")])
    graph.load([doc("a", None)])
    assert graph.snapshot().read_blob("Doc", "a", "body") is None
    assert graph.snapshot().read_blob("Doc", "b", "body") == b"two"


ADDRESSES = [
    "hi",
    "",
    "base64:?",
    "base64:aGk",
    "BASE64:aGk=",
    "/etc/passwd",
    "./passwd",
    "../../etc/passwd",
    "~/x",
    "http://x",
    "https://example.org/x",
    "s3://bucket/x",
    "file:/etc/passwd",
    "file:etc/passwd",
    "file:%2F%2F/etc/passwd",
    "file%3A///etc/passwd",
    " file:///etc/passwd",
    "jar:file:///etc/passwd",
    7,
    ["a"],
    {},
]
"""What is refused whatever the call allows."""
FILES = ["file:///no/such", "file://host/x", "file://", "FILE:///etc/passwd", "file:///%00"]


@pytest.mark.parametrize("files", LocalFiles)
@pytest.mark.parametrize("value", ADDRESSES)
def test_what_stands_for_no_bytes(value, files):
    with pytest.raises(ValueConversionError) as caught:
        blob_bytes(value, files)
    assert "allow_local_files" not in (caught.value.hint or "")


@pytest.mark.parametrize("value", [*FILES[:3], FILES[4]])
def test_files_that_cannot_be_read(value):
    with pytest.raises(ValueConversionError, match="cannot be read"):
        blob_bytes(value, LocalFiles.READ)


@pytest.mark.parametrize("value", [*FILES, Path("/etc/passwd"), Path("relative")])
def test_no_file_is_read_unless_the_call_allows_it(value):
    for files, names_the_flag in ((LocalFiles.NEVER, False), (LocalFiles.REFUSED, True)):
        with pytest.raises(ValueConversionError, match="names a local file") as caught:
            blob_bytes(value, files)
        assert ("allow_local_files=True" in (caught.value.hint or "")) is names_the_flag
        assert blob_size(value, files) == 0


def test_only_files_are_read(tmp_path):
    """A pipe or a device might never end; files of the kernel are no content."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    odd = (Path("/dev/zero"), Path("/proc/self/environ"), Path("/proc/kcore"), Path("/dev/stdin"))
    odd += (Path("/sys/kernel/notes"),)
    for path in (tmp_path / "pipe", tmp_path / "link", tmp_path, *odd):
        with pytest.raises(ValueConversionError, match="cannot be read"):
            blob_bytes(path, LocalFiles.READ)


def test_a_link_is_what_it_leads_to(tmp_path):
    (tmp_path / "x").write_bytes(BYTES)
    (tmp_path / "link").symlink_to("x")
    assert blob_bytes((tmp_path / "link").as_uri(), LocalFiles.READ) == BYTES


def test_sizes_are_known_without_reading(tmp_path):
    (tmp_path / "x").write_bytes(BYTES)
    assert blob_size((tmp_path / "x").as_uri(), LocalFiles.READ) == len(BYTES)
    assert blob_size(tmp_path / "x", LocalFiles.READ) == len(BYTES)
    assert blob_size(BYTES) == len(BYTES)
    for value in (None, 7, "file:///no/such", "file://h/x"):
        assert blob_size(value, LocalFiles.READ) == 0


HINT = "pass allow_local_files=True to store the content of files that the data names"


def by_record(graph, location, value, **how):
    graph.load([doc("a", value)], **how)


def by_file(graph, location, value, **how):
    (location / "x.ndjson").write_text(json.dumps(doc("a", value)))
    graph.load(location / "x.ndjson", **how)


def by_csv(graph, location, value, **how):
    (location / "Doc.csv").write_text(f"slug,body\na,{value}\n")
    graph.load(location / "Doc.csv", **how)


def by_splits(graph, location, value, **how):
    """As a load on Spark does it."""
    (location / "x.ndjson").write_text(json.dumps(doc("a", value)))
    reader = split_reader(ThreadExecutor(1))
    job = LoadJob([str(location / "x.ndjson")], LoadMode.MERGE, **how)
    load_into(graph._handle.store, graph.catalog, job, LoadDestination("main"), reader)


def by_shared_csv(graph, location, value, **how):
    (location / "Doc.csv").write_text(f"slug,body\na,{value}\n")
    reader = split_reader(ThreadExecutor(1))
    job = LoadJob([str(location / "Doc.csv")], LoadMode.MERGE, **how)
    load_into(graph._handle.store, graph.catalog, job, LoadDestination("main"), reader)


def by_parameter(graph, location, value, **how):
    query = """query q($b: Blob) { insert Doc { slug: "a", body: $b } }"""
    graph.mutate(query, None, {"b": value}, **how)


def by_literal(graph, location, value, **how):
    query = f"""query q() {{ insert Doc {{ slug: "a", body: "{value}" }} }}"""
    graph.mutate(query, **how)


WAYS = [by_record, by_file, by_csv, by_splits, by_shared_csv, by_parameter, by_literal]


@pytest.mark.parametrize("way", WAYS)
def test_every_way_in_reads_a_local_file_only_by_its_flag(graph, tmp_path, way):
    secret = tmp_path / "secret"
    secret.write_bytes(BYTES)
    for value in (secret.as_uri(), f"FILE://{secret}"):
        with pytest.raises(InputError, match="a Blob that names a local file") as caught:
            way(graph, tmp_path, value)
        assert caught.value.hint == HINT
        assert graph.snapshot().count("Doc") == 0
    way(graph, tmp_path, secret.as_uri(), allow_local_files=True)
    assert graph.snapshot().read_blob("Doc", "a", "body") == BYTES


def test_a_record_that_names_a_file_can_be_set_aside(graph, tmp_path):
    """With max_rejects it is a bad record like others."""
    data = [doc("a", "file:///etc/hosts"), doc("b", b"hi")]
    receipt = graph.load(data, rejects=tmp_path / "rejects.ndjson")
    assert (receipt.rejected, receipt.affected_nodes) == (1, 1)
    assert "names a local file" in (tmp_path / "rejects.ndjson").read_text()


def test_a_choice_in_a_merge_names_no_file(graph):
    """Nor does anything else that takes a value: no flag is offered there."""
    graph.load([doc("a", b"one")])
    graph.branches.create("side")
    graph.load([doc("a", b"two")], branch="side")
    graph.load([doc("a", b"three")])
    (conflict,) = graph.merge("side", dry_run=True).conflicts
    choice = {conflict.conflict_id: {"body": "file:///etc/hosts"}}
    with pytest.raises(InputError, match="names a local file") as caught:
        graph.merge("side", resolve=choice)
    assert caught.value.hint is None


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
    assert stored.snapshot().read_blob("Doc", "a", "body", offset, length) == expected


def test_without_a_length_a_read_is_bounded(graph):
    """4 MiB at once, so that nobody holds a blob of any size by accident."""
    data = os.urandom(5 << 20)
    graph.load([doc("a", data)])
    assert graph.snapshot().read_blob("Doc", "a", "body") == data[: 4 << 20]
    assert graph.snapshot().read_blob("Doc", "a", "body", 4 << 20) == data[4 << 20 :]
    assert graph.snapshot().read_blob("Doc", "a", "body", 0, len(data)) == data


@pytest.mark.parametrize("size", [64 << 10, 1 << 20, 12 << 20])
def test_large_blobs(graph, size):
    """Lance keeps them in the row, beside it or in a file of their own."""
    data = os.urandom(size)
    graph.load([doc("a", data), doc("b", data[::-1])])
    assert graph.snapshot().read_blob("Doc", "a", "body", size - 10, 10) == data[-10:]
    assert graph.snapshot().read_blob("Doc", "b", "body", 0, size) == data[::-1]


def test_many_blobs_of_a_load_arrive_each_in_its_row(graph):
    """More than one batch of them."""
    size = 300 << 10
    graph.load([doc(f"d{n}", bytes([n]) * size) for n in range(80)])
    for n in (0, 26, 27, 28, 79):
        assert graph.snapshot().read_blob("Doc", f"d{n}", "body", 0, size) == bytes([n]) * size


def test_an_earlier_state_has_its_blob(stored):
    before = stored.snapshot()
    stored.load([doc("a", b"new")])
    assert before.read_blob("Doc", "a", "body") == BYTES
    assert stored.snapshot().read_blob("Doc", "a", "body") == b"new"


def test_a_branch_has_its_blob(stored):
    stored.load([doc("a", b"new")], branch="review", from_branch="main")
    assert stored.snapshot("review").read_blob("Doc", "a", "body") == b"new"
    assert stored.snapshot().read_blob("Doc", "a", "body") == BYTES


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (("Robot", "a", "body"), InputError, "no type 'Robot'"),
        (("Doc", "a", "title"), InputError, "Doc.title is not a Blob"),
        (("Doc", "a", "nope"), InputError, "Doc.nope is not a Blob"),
        (("Doc", "z", "body"), EntityNotFound, "no Doc 'z'"),
        (("Doc", "a", "body", -1), InputError, "at least 0"),
        (("Doc", "a", "body", 0, -1), InputError, "at least 0"),
    ],
    ids=["type", "property", "no property", "row", "offset", "length"],
)
def test_what_cannot_be_read(stored, given, error, says):
    """Engine 10: unknown type, no Blob, missing id."""
    with pytest.raises(error, match=says):
        stored.snapshot().read_blob(*given)
