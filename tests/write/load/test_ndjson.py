"""JSON records in every form that a stream of them may have."""

from __future__ import annotations

import gzip
import io
import json
import os
import threading

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omnigraph.write.load import ndjson
from tests.write.load.world import names, node, people, rows, write

ADA = '{"type": "Person", "data": {"name": "Ada"}}'
BOB = '{"type": "Person", "data": {"name": "Bob"}}'
PRETTY = json.dumps(json.loads(BOB), indent=2)

FORMS = {
    "a line each": f"{ADA}\n{BOB}\n",
    "no line end at the end": f"{ADA}\n{BOB}",
    "line ends of Windows": f"{ADA}\r\n{BOB}\r\n",
    "empty lines": f"\n\n{ADA}\n   \n\t\n{BOB}\n\n",
    "both on one line": f"{ADA} {BOB}\n",
    "nothing between": f"{ADA}{BOB}",
    "pretty": f"{PRETTY}\n{ADA}\n",
    "pretty, one after the other": f"{PRETTY}{ADA}",
    "pretty without indents": f"{PRETTY}\n{ADA}".replace("\n ", "\n").replace("\n ", "\n"),
    "an object on a line of its own": '{"type": "Person", "data":\n{"name": "Ada"}\n}\n' + BOB,
    "one begins where another ends": f'{ADA} {{"type": "Person",\n"data": {{"name": "Bob"}}}}',
    "brackets in texts": ADA + '\n{"type": "Person",\n "data": {"name": "Bob", "x": "}]{["}}',
    "escaped quotes": ADA + '\n{"type": "Person",\n "data": {"name": "Bob", "x": "\\"}"}}',
    "a byte order mark": f"\ufeff{ADA}\n{BOB}\n",
    "a mark before pretty text": f"\ufeff{PRETTY}\n{ADA}",
    "names in another order": '{"data": {"name": "Ada"}, "type": "Person"}\n' + BOB,
    "names that mean nothing": '{"type": "Person", "v": [1], "data": {"name": "Ada"}}\n' + BOB,
    "escapes": '{"type": "Person", "data": {"name": "\\u0041da"}}\n' + BOB,
}


@pytest.mark.parametrize("text", FORMS.values(), ids=list(FORMS))
def test_forms_of_a_stream(empty, tmp_path, text):
    """Records may be pretty-printed, and several of them on a line."""
    path = tmp_path / "people.ndjson"
    path.write_text(text, encoding="utf-8", newline="")
    empty.load(path)
    assert names(empty) == ["Ada", "Bob"]


@pytest.mark.parametrize("size", [1, 7, 64, 1 << 18])
def test_the_size_of_a_block_does_not_matter(empty, monkeypatch, size):
    """Records, characters and line ends may lie across two of them."""
    monkeypatch.setattr(ndjson, "_BLOCK", size)
    text = "\n".join([ADA, PRETTY.replace("Bob", "Bøb☃𝄞"), f"{BOB} {PRETTY.replace('Bob', 'C')}"])
    empty.load(io.BytesIO(text.encode()))
    assert names(empty) == ["Ada", "Bob", "Bøb☃𝄞", "C"]


def test_lines_that_look_like_one_array_are_not(empty, tmp_path):
    """Lines are parsed together; broken ones must not make each other whole."""
    broken = '{"type": "Person", "data": {"name": "A"}, "x": [{}\n{}]}\n{},{}\n'
    path = tmp_path / "a.ndjson"
    path.write_text(broken)
    receipt = empty.load(path, max_rejects=9)
    assert (receipt.commit_id, receipt.rejected) == (None, 5)


def test_after_a_record_that_cannot_be_read_the_next_one_counts(empty, tmp_path):
    """A line that is cut does not swallow those after it, pretty text not what comes behind."""
    path = tmp_path / "a.ndjson"
    cut = '{"type": "Person", "data": {"name": "X"'
    wrong = PRETTY.replace('"Bob"', "oops")
    path.write_text("\n".join([ADA, cut, BOB, wrong, ADA.replace("Ada", "Cyd"), "}", cut]))
    rejects = tmp_path / "rejects.ndjson"
    receipt = empty.load(path, rejects=rejects)
    assert names(empty) == ["Ada", "Bob", "Cyd"]
    assert receipt.rejected == 4
    lines = [json.loads(line)["line"] for line in rejects.read_text().splitlines()]
    assert lines == [2, 7, 11, 12]


def test_the_line_of_a_record_is_the_one_it_begins_on(empty, tmp_path):
    path = tmp_path / "a.ndjson"
    path.write_text(f'{PRETTY}\n\n{ADA} {{"type": "Robot"}}\n')
    receipt = empty.load(path, rejects=tmp_path / "rejects")
    assert receipt.rejected == 1
    reject = json.loads((tmp_path / "rejects").read_text())
    assert (reject["line"], reject["reason"]) == (8, "record 3: unknown node type 'Robot'")


# -- streams ----------------------------------------------------------------------------------


def test_an_open_binary_file(empty, tmp_path):
    path = write(tmp_path / "people.ndjson", people("Ada"))
    with path.open("rb") as stream:
        empty.load(stream)
        assert not stream.closed
    assert names(empty) == ["Ada"]


def test_a_pipe(empty):
    """Standard input is an open binary file; it comes in pieces of any size."""
    reader, writer = os.pipe()

    def feed():
        with os.fdopen(writer, "wb", buffering=0) as pipe:
            for piece in (ADA[:10], ADA[10:] + "\n" + BOB[:3], BOB[3:]):
                pipe.write(piece.encode())

    feeder = threading.Thread(target=feed)
    feeder.start()
    with os.fdopen(reader, "rb") as stream:
        empty.load(stream)
    feeder.join()
    assert names(empty) == ["Ada", "Bob"]


class Pieces:
    """Something with a ``read`` that gives a few bytes at a time."""

    def __init__(self, data):
        self._data = data

    def read(self, size):
        piece, self._data = self._data[:5], self._data[5:]
        return piece


@pytest.mark.parametrize(
    "stream",
    [
        lambda text: io.BytesIO(text.encode()),
        io.StringIO,
        lambda text: Pieces(text.encode()),
        Pieces,
        lambda text: gzip.GzipFile(fileobj=io.BytesIO(gzip.compress(text.encode()))),
        lambda text: pa.BufferReader(text.encode()),
    ],
    ids=["bytes", "text", "pieces", "pieces of text", "gzip", "arrow"],
)
def test_whatever_can_be_read(empty, stream):
    empty.load(stream(f"{ADA}\n{PRETTY}"))
    assert names(empty) == ["Ada", "Bob"]


# -- files ------------------------------------------------------------------------------------


def _zstd(data):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as out:
        out.write(data)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("ending", "compress"), [(".gz", gzip.compress), (".zst", _zstd), (".GZ", gzip.compress)]
)
def test_compressed_files(empty, tmp_path, ending, compress):
    """Also of several parts, one compressed after the other."""
    path = tmp_path / f"people.ndjson{ending}"
    path.write_bytes(compress(f"{ADA}\n".encode()) + compress(BOB.encode()))
    empty.load(path)
    assert names(empty) == ["Ada", "Bob"]


def test_several_files(empty, tmp_path):
    """In one commit, whatever their forms; an edge may come in an earlier file than its ends."""
    one = tmp_path / "Knows.csv"
    one.write_text("from,to\nAda,Bob\n")
    two = write(tmp_path / "people.jsonl", people("Ada", "Bob"))
    receipt = empty.load([one, str(two), io.BytesIO(ADA.replace("Ada", "Cyd").encode())])
    assert (receipt.version, receipt.records) == (2, 4)
    assert rows(empty, "Knows", "src", "dst") == [("Ada", "Bob")]


def test_records_as_python_values(empty):
    empty.load(iter([node("Person", name="Ada"), node("Person", name="Bob")]))
    assert names(empty) == ["Ada", "Bob"]


# -- any stream -------------------------------------------------------------------------------

texts = st.text(st.characters(codec="utf-8"), max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
spaces = st.text(" \t\r\n", min_size=1, max_size=3)
layouts = st.lists(st.tuples(values, st.sampled_from([None, 0, 1, 2]), spaces), max_size=6)


class _Taken:
    """What the reader hands on, instead of gatherers."""

    decoders = None

    def __init__(self):
        self.files = []
        self.values = []
        self.rejected = []

    def open_file(self, name):
        self.files.append(name)
        return 0

    def count_bytes(self, size):
        pass

    def check_length(self, file, line, size):
        pass

    def reject(self, file, line, reason, **more):
        self.rejected.append((line, reason))


@example([(None, 0, " "), ([{}], 0, " ")], 3)
@given(layouts, st.sampled_from([3, 40, 1 << 18]))
def test_any_layout_of_objects_is_read_as_it_was_written(layout, block):
    """Objects of any content, on lines of any kind, in blocks of any size."""
    intake, text, expected = _Taken(), "", []
    for value, indent, space in layout:
        start = text.count("\n") + 1
        expected.append(({"v": value}, start))
        text += json.dumps({"v": value}, indent=indent, ensure_ascii=False) + space
    reader = ndjson._NdjsonReader(intake, "x")
    reader._records.take = lambda value, line: intake.values.append((value, line))
    old, ndjson._BLOCK = ndjson._BLOCK, block
    try:
        reader.run(io.BytesIO(text.encode()))
    finally:
        ndjson._BLOCK = old
    assert intake.rejected == []
    assert intake.values == expected


@given(st.binary(max_size=60) | st.text('{}[]",: \n01nulltruefalse', max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused_like_a_strict_reader_does(data):
    """Nothing but JSON is taken, and each value as a plain parser would take it."""
    intake = _Taken()
    reader = ndjson._NdjsonReader(intake, "x")
    reader._records.take = lambda value, line: intake.values.append((value, line))
    reader.run(io.BytesIO(data))
    assert (
        intake.values or intake.rejected or not data.removeprefix(b"\xef\xbb\xbf").strip(b" \t\r\n")
    )
    if not intake.rejected:
        actual = [value for value, _ in intake.values]
        assert actual == list(_strictly(data.removeprefix(b"\xef\xbb\xbf").decode()))


def _strictly(text):
    decoder, position = json.JSONDecoder(), 0
    while text[position:].strip(" \t\r\n"):
        while text[position] in " \t\r\n":
            position += 1
        value, position = decoder.raw_decode(text, position)
        yield value
