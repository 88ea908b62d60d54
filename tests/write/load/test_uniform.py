"""Blocks of lines that are alike give what the plain reader gives, or are left to it."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.lang.schema.compile import compile_schema
from omnigraph.write.load import ndjson
from omnigraph.write.load.uniform import UniformDecoder
from tests.write.load.lines import good_value, odd_values, quoted
from tests.write.load.test_decoders import ALL, taken

CATALOG = compile_schema(
    """
node Person {
  name: String @key
  age: I32?
  big: U64?
  score: F64?
  small: F32?
  is: Bool?
  born: Date?
  seen: DateTime?
  kind: enum(a, b)?
  @range(age, 0..200)
}
node Place { title: String }
edge Knows: Person -> Person { weight: F64?  since: Date? }
edge Near: Place -> Place
"""
)
TYPES = {**CATALOG.node_types, **CATALOG.edge_types}
raw_texts = st.text("abé☃ :,{}[]1", max_size=4).map(lambda text: f'"{text}"')


@st.composite
def alike(draw):
    """Lines of one type with the same names in the same order, some with an odd value."""
    name = draw(st.sampled_from(sorted(TYPES)))
    entity_type = TYPES[name]
    is_edge = name in CATALOG.edge_types
    wanted = [
        p for p in entity_type.properties.values() if not p.type.nullable or draw(st.booleans())
    ]
    wanted = draw(st.permutations(wanted))
    colon, comma = draw(st.sampled_from([(":", ","), (": ", ", ")]))
    has_id = draw(st.sampled_from([None, None, "data", "top"]))
    is_spoiled = draw(st.booleans())

    def value(type_):
        if is_spoiled and draw(st.integers(0, 9)) == 0:
            return draw(odd_values)
        if str(type_) == "String" and draw(st.booleans()):
            return draw(raw_texts)
        return draw(good_value(type_))

    def record():
        data = [(prop.name, value(prop.type)) for prop in wanted]
        head = [("edge" if is_edge else "type", quoted(name))]
        if is_edge:
            head += [("from", draw(raw_texts)), ("to", draw(raw_texts))]
        ids = data if has_id == "data" else head
        if has_id:
            ids.append(("id", draw(raw_texts)))
        if data:
            head.append(("data", written(data)))
        return written(head)

    def written(pairs):
        return "{" + comma.join(f'"{key}"{colon}{text}' for key, text in pairs) + "}"

    lines = [record() for _ in range(draw(st.integers(1, 6)))]
    end = draw(st.sampled_from(["", "\n"]))
    return ("\n".join(lines) + end).encode("utf-8", "surrogatepass")


@given(alike(), st.sampled_from([ALL, 0]), st.booleans())
def test_lines_that_are_alike_give_the_same_by_both_ways(data, allowed, strict):
    plain = taken(CATALOG, data, decoded=False, allowed=allowed, strict=strict)
    assert taken(CATALOG, data, allowed=allowed, strict=strict) == plain


def lines(*records):
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()


def person(**data):
    return {"type": "Person", "data": data}


DECODED = {
    "texts of one length": lines(person(name="abc"), person(name="def")),
    "texts of several lengths": lines(person(name=""), person(name="d"), person(name="é☃")),
    "numbers": lines(*(person(name="a", age=n, score=n / 7, small=0.5) for n in range(-3, 120))),
    "literals and nulls": lines(person(name="a", **{"is": True}), person(name="b", **{"is": None})),
    "days and moments": lines(
        *(person(name=n, born="2001-02-03", seen="2001-02-03T04:05:06Z") for n in "ab")
    ),
    "edges": lines(*({"edge": "Knows", "from": a, "to": "b"} for a in ("", "a", "bb"))),
    "a literal at the end": lines(
        *({"edge": "Knows", "from": "a", "to": "b", "data": {"weight": w}} for w in (0.5, 12.25))
    ),
    "ids": lines(*({"type": "Place", "id": n, "data": {"title": "x"}} for n in "ab")),
    "one line without an end": lines(person(name="a")).rstrip(),
}


@pytest.mark.parametrize("data", DECODED.values(), ids=list(DECODED))
def test_lines_that_are_alike_are_decoded_as_columns(data):
    actual = UniformDecoder(CATALOG).decode(data)
    assert actual is not None
    assert actual.rows == len(data.splitlines())
    assert all(isinstance(column, pa.Array) for column in actual.columns.values())
    for column in actual.columns.values():
        if pa.types.is_string(column.type):
            column.validate(full=True)
    assert taken(CATALOG, data) == taken(CATALOG, data, decoded=False)


LEFT = {
    "another order": lines(person(name="a", age=1), person(age=1, name="a")),
    "an escape": b'{"type":"Person","data":{"name":"a\\n"}}\n',
    "a control character": b'{"type":"Person","data":{"name":"a\tb"}}\n',
    "no UTF-8": b'{"type":"Person","data":{"name":"\xff"}}\n',
    "no UTF-8 in a name": b'{"type":"Person","data":{"\xff":"a"}}\n',
    "another type": lines(person(name="a"), {"type": "Pxrson", "data": {"name": "b"}}),
    "an unknown type": lines({"type": "Robot", "data": {"name": "b"}}),
    "an unknown name": lines(person(name="a", odd="b")),
    "a name twice": b'{"type":"Person","data":{"name":"a","name":"b"}}\n',
    "an id twice": b'{"type":"Place","id":"a","data":{"title":"x","id":"b"}}\n',
    "a missing name": lines(person(age=1)),
    "a missing end": lines({"edge": "Knows", "from": "a"}),
    "an empty line": lines(person(name="a")) + b"\n" + lines(person(name="b")),
    "two on a line": lines(person(name="a")).rstrip() + lines(person(name="b")),
    "one on two lines": b'{"type":"Person",\n"data":{"name":"a"}}\n',
    "a number with a leading zero": b'{"type":"Person","data":{"name":"a","age":01}}\n',
    "a hexadecimal number": b'{"type":"Person","data":{"name":"a","age":0x1}}\n',
    "a number beyond its type": b'{"type":"Person","data":{"name":"a","age":3000000000}}\n',
    "minus zero as an integer": b'{"type":"Person","data":{"name":"a","score":-0}}\n',
    "an integer that no float is": lines(person(name="a", score=9007199254740993)),
    "infinity": b'{"type":"Person","data":{"name":"a","score":1e999}}\n',
    "null where a value is required": b'{"type":"Person","data":{"name":null}}\n',
    "a list": b'{"type":"Person","data":{"name":["a"]}}\n',
    "an object in the data": b'{"type":"Person","data":{"name":{"a":"b"}}}\n',
    "no data": b'{"type":"Person"}\n',
    "a number as an end": b'{"edge":"Knows","from":1,"to":"b"}\n',
}


@pytest.mark.parametrize("data", LEFT.values(), ids=list(LEFT))
def test_all_others_are_left_to_the_other_readers(data):
    assert UniformDecoder(CATALOG).decode(data) is None
    assert taken(CATALOG, data) == taken(CATALOG, data, decoded=False)


def test_uniform_blocks_follow_others_in_the_order_of_the_lines(monkeypatch):
    """Rows of a type keep their order, whichever way their blocks were read."""
    monkeypatch.setattr(ndjson, "_BLOCK", 200)
    many = [person(name=f"p{n}", **({"age": n} if n % 7 else {})) for n in range(200)]
    data = lines(*many)
    rows = taken(CATALOG, data)["rows"]["node:Person"]
    assert [row["name"] for row in rows] == [record["data"]["name"] for record in many]
    assert taken(CATALOG, data) == taken(CATALOG, data, decoded=False)
