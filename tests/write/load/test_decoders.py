"""Blocks that are decoded at once give what the plain reader gives, or are left to it."""

from __future__ import annotations

import io
import json
import math
from contextlib import contextmanager

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from omnigraph.lang.schema.compile import compile_schema
from omnigraph.write.load import decoders, gather, ndjson
from omnigraph.write.load.decoders import Decoders, has_names, records_by_look
from omnigraph.write.load.digest import Digest
from omnigraph.write.load.intake import Intake
from omnigraph.write.load.rejects import CollectedRejects, TooManyRejects
from tests.write.load.lines import catalogs, is_new_id, streams
from tests.write.load.world import SCHEMA, edge, node

ALL = 1_000


class Rows:
    """A sink that keeps what it gets."""

    def __init__(self, kind):
        self.kind = kind
        self.batches = []

    def add(self, batch):
        self.batches.append(batch)

    def plain(self):
        rows = [row for batch in self.batches for row in batch.to_pylist()]
        return [
            {**row, "id": "new"} if is_new_id(row["id"]) else row for row in map(_comparable, rows)
        ]


def _comparable(row):
    """Floats by their texts: so zero differs from minus zero."""
    return {
        name: repr(value) if isinstance(value, float | list) else value
        for name, value in row.items()
    }


def taken(catalog, data, *, decoded=True, allowed=ALL, strict=False):
    """Everything that there is to know about a file that was read."""
    sinks = {}

    def sink(kind):
        return sinks.setdefault(kind.table_key, Rows(kind))

    rejects = CollectedRejects(allowed)
    intake = Intake(catalog, sink, rejects, strict_properties=strict, allow_local_files=True)
    intake.digest = Digest()
    if not decoded:
        intake.decoders = None
    matches = {}
    try:
        matches["extent"] = ndjson.read_records(io.BytesIO(data), intake, "x")
        intake.flush()
    except TooManyRejects:
        matches.clear()
    else:
        matches["rows"] = {key: sinks[key].plain() for key in sorted(sinks)}
        matches["ignored"], matches["records"] = intake.ignored, intake.records
        matches["digest"], matches["given"] = intake.digest.text(), intake.given_ids
    matches["rejects"] = [(reject.to_json(), _error(reject)) for reject in rejects.collected]
    return matches


def _error(reject):
    error = reject.error()
    return type(error), error.message, json.dumps(_without_id(error.details), sort_keys=True)


def _without_id(details):
    row_id = details.get("id")
    return {**details, "id": "new"} if isinstance(row_id, str) and is_new_id(row_id) else details


@contextmanager
def pieces_of(block, lines, rows):
    """Small pieces of everything, so that little data meets all their edges."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ndjson, "_BLOCK", block)
        patch.setattr(decoders, "_LINES_PER_UNUSUAL", lines)
        patch.setattr(gather, "_ROWS", rows)
        yield


sizes = st.tuples(
    st.sampled_from([50, 300, 1 << 18]), st.sampled_from([0, 2, 64]), st.integers(1, 9)
)


@given(st.data(), catalogs(), st.booleans())
def test_any_stream_gives_the_same_by_both_ways(data, catalog, strict):
    """Random schemas, random lines: rows, rejects, messages, counts and digest."""
    stream = data.draw(streams(catalog))
    allowed = data.draw(st.sampled_from([ALL, ALL, 0, 1, 2]))
    with pieces_of(*data.draw(sizes)):
        plain = taken(catalog, stream, decoded=False, allowed=allowed, strict=strict)
        assert taken(catalog, stream, allowed=allowed, strict=strict) == plain


@given(st.data(), catalogs())
def test_how_much_is_looked_at_together_does_not_matter(data, catalog):
    """Verdicts, too, are the same whenever rows are judged."""
    stream = data.draw(streams(catalog))
    allowed = data.draw(st.sampled_from([0, 1, 2, ALL]))
    whole = taken(catalog, stream, allowed=allowed)
    with pieces_of(*data.draw(sizes)):
        assert taken(catalog, stream, allowed=allowed) == whole


# -- what is decoded at once ------------------------------------------------------------------

CATALOG = compile_schema(SCHEMA)
ADA = '{"type": "Person", "data": {"name": "Ada"}}'
KNOWS = '{"edge": "Knows", "from": "Ada", "to": "Bob"}'
USUAL = {
    "all properties": json.dumps(
        node("Thing", slug="a", i32=1, i64=-(2**63), u32=1, u64=2**64 - 1, f32=0.5, f64=1,
             ok=True, text="t", day="2024-05-01", moment="2024-05-01T10:00:00Z", kind="note",
             words=["a"], numbers=[1], bigs=[1], floats=[0.5, 1], flags=[True],
             days=["2024-05-01"], moments=[5], vector=[1, 0.5, 0], body="base64:aGk="),
    ),
    "few properties": ADA,
    "nulls": '{"type": "Person", "data": {"name": "Ada", "age": null, "email": null}}',
    "some here, some there": ADA + '\n{"type": "Person", "data": {"name": "B", "age": 1}}',
    "several types": f"{ADA}\n{KNOWS}\n{ADA}",
    "no data": f'{KNOWS}\n{{"edge": "Knows", "from": "A", "to": "B", "data": {{"weight": 1}}}}',
    "no data among others": f"{KNOWS}\n{ADA}",
    "ids": json.dumps(node("Note", id="n1", text="t")) + "\n" + json.dumps(node("Note", text="t")),
    "ids beside data": f'{json.dumps({**node("Note", text="t"), "id": "n1"})}\n'
    f'{json.dumps(node("Note", id="n2", text="t"))}\n{json.dumps(node("Note", text="t"))}',
    "the id of an edge beside data": KNOWS.replace('"from"', '"id": "k", "from"'),
    "ends first": '{"from": "A", "to": "B", "data": {}, "edge": "Knows"}',
    "line ends of Windows": f"{ADA}\r\n{ADA}\r\n",
    "no space": ADA.replace(" ", ""),
    "much space": ADA.replace(":", "  :  ").replace("{", "{  "),
    "escapes": ADA.replace("Ada", "\\u0041\\n\\\\\\\"\\/"),
    "names in texts": ADA.replace("Ada", '{\\"a\\":1, \\"b\\": 2} : \\\\'),
    "a text that begins with a colon": ADA.replace("Ada", ":smile:"),
    "an escaped name": ADA.replace("name", "n\\u0061me"),
    "letters of all kinds": ADA.replace("Ada", "é☃𝄞"),
    "out of range": '{"type": "Person", "data": {"name": "Ada", "age": 999999999999}}',
}  # fmt: skip


@pytest.mark.parametrize("text", USUAL.values(), ids=list(USUAL))
def test_usual_lines_are_decoded_at_once(text):
    parts = Decoders(CATALOG).decode(text.encode())
    assert parts is not None
    assert sum(len(part.lines) for part in parts) == text.count("\n") + (not text.endswith("\n"))
    assert taken(CATALOG, text.encode()) == taken(CATALOG, text.encode(), decoded=False)


UNUSUAL = {
    "nothing": "",
    "a name twice": '{"type": "Person", "data": {"name": "Ada", "name": "Ada"}}',
    "a name twice, spelled differently": ADA.replace('"name"', '"name": "", "n\\u0061me"'),
    "a name twice, and a text like one": ADA.replace('"Ada"', '"\\":", "name": "B"'),
    "a name twice beside data": ADA.replace('"type"', '"type": "Person", "type"'),
    "an id beside data and in it": json.dumps({**node("Note", id="a", text="t"), "id": "b"}),
    "an id beside data and null in it": json.dumps({**node("Note", id=None, text="t"), "id": "b"}),
    "null as an id beside data": json.dumps({**node("Note", text="t"), "id": None}),
    "a number as an id beside data": json.dumps({**node("Note", text="t"), "id": 7}),
    "data twice": ADA.replace('"data"', '"data": {"name": "X"}, "data"'),
    "a name that is not known": ADA.replace("name", "nick"),
    "a name beside data": ADA.replace('"type"', '"x": 1, "type"'),
    "a type that is not known": ADA.replace("Person", "Robot"),
    "neither type nor edge": '{"data": {}}',
    "both": KNOWS.replace("{", '{"type": "Person", ', 1),
    "a node with ends": ADA.replace('"type"', '"from": "A", "type"'),
    "an edge without an end": KNOWS.replace('"to"', '"data": {}, "x"'),
    "null as an end": KNOWS.replace('"Bob"', "null"),
    "null as data": '{"edge": "Knows", "from": "A", "to": "B", "data": null}',
    "null where something is required": ADA.replace('"Ada"', "null"),
    "no required property": '{"type": "Person", "data": {}}',
    "no data where something is required": '{"type": "Person"}',
    "the same among others": f'{KNOWS}\n{{"type": "Person"}}',
    "a text for a number": '{"type": "Person", "data": {"name": "Ada", "age": "1"}}',
    "a float for an integer": '{"type": "Person", "data": {"name": "Ada", "age": 1.0}}',
    "a float among integers": '{"type": "Thing", "data": {"slug": "a", "numbers": [1, 2.0]}}',
    "a truth for a number": '{"type": "Person", "data": {"name": "Ada", "age": true}}',
    "null in a list": '{"type": "Thing", "data": {"slug": "a", "words": [null]}}',
    "an object": '{"type": "Thing", "data": {"slug": {}}}',
    "too great a float": '{"type": "Thing", "data": {"slug": "a", "f64": 1e999}}',
    "no number": '{"type": "Thing", "data": {"slug": "a", "f64": NaN}}',
    "half a pair": ADA.replace("Ada", "\\ud800"),
    "a control character": ADA.replace("Ada", "\t"),
    "two on a line": f"{ADA}{ADA}",
    "two on a line, and one on two": f'{ADA} {ADA}\n{{"type": "Person",\n"data": {{"name": "A"}}}}',
    "two on a line, and an empty line": f"{ADA} {ADA}\n\n",
    "an empty line": f"{ADA}\n\n{ADA}",
    "space at the beginning": f"{ADA}\n {ADA}",
    "space at the end": f"{ADA} \n{ADA}",
    "a mark": f"\ufeff{ADA}",
    "a comma": f"{ADA},\n{ADA}",
    "no end": ADA[:-1],
    "no object": "[]",
}


@pytest.mark.parametrize("text", UNUSUAL.values(), ids=list(UNUSUAL))
def test_unusual_lines_are_left_to_the_plain_reader(text):
    assert Decoders(CATALOG).decode(text.encode()) is None
    assert taken(CATALOG, text.encode()) == taken(CATALOG, text.encode(), decoded=False)


def test_text_that_is_not_utf_8_is_left_to_the_plain_reader():
    for text in (b"\xff", b"\xed\xa0\x80", b"\xc0\x80"):
        assert Decoders(CATALOG).decode(ADA.encode().replace(b"Ada", text)) is None


@pytest.fixture
def read_plainly(monkeypatch):
    """The lines that the decoders left to the plain reader."""
    lines = []
    plain = ndjson._NdjsonReader._take_lines

    def take(self, block):
        lines.extend(block.removesuffix(b"\n").split(b"\n"))
        plain(self, block)

    monkeypatch.setattr(ndjson._NdjsonReader, "_take_lines", take)
    return lines


@pytest.mark.parametrize(
    "locations", [[0], [1_500, 1_501], [0, 2_999], [2_999], range(0, 3_000, 100)]
)
@pytest.mark.parametrize("end", ["", "\n"])
def test_a_bad_line_does_not_spoil_those_around_it(read_plainly, locations, end):
    lines = [ADA.replace("Ada", f"n{n}") for n in range(3_000)]
    for location in locations:
        lines[location] = ADA.replace("Person", f"Robot{location}")
    data = ("\n".join(lines) + end).encode()
    actual = taken(CATALOG, data)
    assert read_plainly == [lines[location].encode() for location in locations]
    assert [reject["line"] for reject, _ in actual["rejects"]] == [
        location + 1 for location in locations
    ]
    assert actual == taken(CATALOG, data, decoded=False)


def test_where_nothing_is_usual_little_is_tried(read_plainly, monkeypatch):
    """And what is usual again is found again."""
    monkeypatch.setattr(ndjson, "_BLOCK", 1_000)
    tried = []
    decode = Decoders.decode
    monkeypatch.setattr(
        Decoders, "decode", lambda self, block: tried.append(block) or decode(self, block)
    )
    bad = [ADA.replace("name", "nick")] * 4_000
    actual = taken(CATALOG, "\n".join(bad).encode())
    assert (len(actual["rejects"]), len(tried) < 20) == (ALL + 1, True)
    good = [ADA.replace("Ada", f"n{n}") for n in range(4_000)]
    read_plainly.clear()
    taken(CATALOG, "\n".join([*bad[:900], *good]).encode())
    assert 900 < len(read_plainly) < 2_500


def test_a_blob_that_is_a_large_file_is_not_held_with_others(tmp_path, monkeypatch):
    """What is looked at together ends where the files become too large."""
    monkeypatch.setattr(gather, "_BYTES", 100)
    (tmp_path / "file").write_bytes(b"x" * 60)
    body = (tmp_path / "file").as_uri()
    text = "\n".join(json.dumps(node("Thing", slug=f"s{n}", body=body)) for n in range(7))
    assert Decoders(CATALOG).decode(text.encode()) is not None
    sizes = []
    add = Rows.add
    monkeypatch.setattr(
        Rows, "add", lambda self, batch: sizes.append(len(batch)) or add(self, batch)
    )
    taken(CATALOG, text.encode())
    assert sizes == [2, 2, 2, 1]
    assert taken(CATALOG, text.encode()) == taken(CATALOG, text.encode(), decoded=False)


# -- what decoding stands on ------------------------------------------------------------------

_SHAPE = r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][-+]?[0-9]{1,3})?"
NUMBER = st.from_regex(_SHAPE, fullmatch=True)


@given(NUMBER | st.floats(allow_nan=False, allow_infinity=False).map(repr))
def test_numbers_are_decoded_as_the_standard_library_does(text):
    expected = json.loads(text)
    assume(not (isinstance(expected, float) and math.isinf(expected)))
    actual = msgspec.json.decode(text.encode(), type=int | float)
    assert (type(actual), repr(actual)) == (type(expected), repr(expected))


@given(st.binary(max_size=12) | st.text('"\\ud8dc0041nx', max_size=12).map(str.encode))
def test_a_text_is_decoded_as_the_standard_library_does_or_refused(inside):
    literal = b'"' + inside + b'"'
    try:
        actual = msgspec.json.decode(literal, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    assert actual == json.loads(literal.decode("utf-8"))


objects = st.recursive(
    st.none() | st.text('":\\ ab{}', max_size=4),
    lambda inner: st.dictionaries(st.text('":\\ ab', max_size=3), inner, max_size=3),
    max_leaves=8,
)


def _names(value):
    if not isinstance(value, dict):
        return 0
    return len(value) + sum(map(_names, value.values()))


@given(objects, st.sampled_from([":", ": ", " :", "\t\n:"]))
def test_names_are_counted_exactly(value, mark):
    text = json.dumps(value, separators=(",", mark)).encode()
    count = _names(value)
    assert has_names(text, count)
    assert not has_names(text, count - 1)


@given(
    st.lists(st.sampled_from(["{}", '{"a":{}}', '{"a":\n{}}', "\n", "\r\n", " ", ""]), max_size=9)
)
def test_lines_that_look_like_records_are_records(pieces):
    text = "".join(pieces)
    count = records_by_look(text.encode())
    values = msgspec.json.Decoder().decode_lines(text.encode())
    if count is not None and count == len(values):
        lines = text.removesuffix("\n").split("\n")
        assert [json.loads(line) for line in lines] == values


def test_many_of_one_type_and_of_several_are_decoded():
    """Also where a block holds thousands of records."""
    people = [node("Person", name=f"n{n}", age=n % 90) for n in range(3_000)]
    knows = [edge("Knows", f"n{n}", f"n{n + 1}", weight=n / 3) for n in range(3_000)]
    mixed = [record for pair in zip(people, knows, strict=True) for record in pair]
    for records in (people, knows, [*people, *knows], mixed):
        data = "\n".join(map(json.dumps, records)).encode()
        actual = taken(CATALOG, data)
        assert sum(map(len, actual["rows"].values())) == len(records)
        assert actual == taken(CATALOG, data, decoded=False)


TEXTS = ["Ada", 'a "quoted": name', ": ", '":', "id"]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("ids", ["none", "beside", "inside", "both", "some"])
def test_ids_are_read_the_same_with_decoders(ids, text):
    """Also where a string looks like a name, so that names cannot be counted at a glance."""
    lines = []
    for number in range(6):
        record = {"type": "Person", "data": {"name": f"{text}{number}"}}
        if ids in ("beside", "both") or (ids == "some" and number == 3):
            record["id"] = f"{text}{number}"
        if ids in ("inside", "both"):
            record["data"]["id"] = f"{text}{number}"
        lines.append(json.dumps(record, separators=(",", ":")))
    block = "\n".join(lines).encode()
    assert taken(CATALOG, block) == taken(CATALOG, block, decoded=False)


def test_records_without_ids_are_not_searched_for_them(monkeypatch):
    """The number of names shows that there are none."""
    monkeypatch.setattr(decoders._Batch, "read_ids", lambda batch: pytest.fail("searched"))
    assert Decoders(CATALOG).decode(f"{ADA}\n{ADA}\n".encode()) is not None
