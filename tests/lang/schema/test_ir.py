"""The canonical form, byte for byte."""

from __future__ import annotations

import hashlib
import json

import pytest

from omnigraph.errors import InputError
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.lang.schema.ir import SchemaIR, build_ir, property_id, type_id
from omnigraph.lang.schema.ir_json import debug_float, json_float
from omnigraph.lang.schema.json_form import to_json

EVERYTHING = """
// nothing of this order survives
edge Wrote: Author -> Book @card(1..2) @note(5) { year: I32? @index  @unique(src, dst) }
edge Knows: Author -> Author
node Book @description("a \\"book\\"\\nÄ") { isbn: String @key @rename_from("code") }
node Author implements Named, Aged, Named {
  vec: Vector(8)? @embed(bio, model="m1")
  bio: String?  @check(bio, "^é")
  kind: enum(novel, essay)? @index
  score: F64?
  tags: [Date]
  @range(score, 0.5..10.0)  @range(age, -1..)  @index(kind)  @unique(kind, bio)
}
interface Named { name: String @key @description("who") }
interface Aged { age: I64? @index }
"""


def _id(text: str) -> int:
    value = 2166136261
    for byte in text.encode():
        value = (value ^ byte) * 16777619 % 2**32
    return value


def _prop(owner: str, name: str, scalar: str, *, null: str = "false", rest: str = "") -> str:
    body = rest or f'{{"scalar":{scalar},"nullable":{null},"list":false,"enum_values":null}}'
    return f'{{"name":"{name}","prop_id":{_id(f"{owner}:{name}")},"prop_type":{body},"annotations":'


# Written down from the rules of the format, not from the program's output.
EXPECTED = (
    '{"ir_version":1,"interfaces":['
    f'{{"name":"Aged","type_id":{_id("interface:Aged")},"properties":['
    + _prop("interface:Aged", "age", '"I64"', null="true")
    + '[{"name":"index","value":null}]}]},'
    f'{{"name":"Named","type_id":{_id("interface:Named")},"properties":['
    + _prop("interface:Named", "name", '"String"')
    + '[{"name":"description","value":"who"},{"name":"key","value":null}]}]}],"nodes":['
    f'{{"name":"Author","type_id":{_id("node:Author")},"annotations":[],'
    '"implements":["Aged","Named"],"properties":['
    + _prop("node:Author", "age", '"I64"', null="true")
    + '[{"name":"index","value":null}]},'
    + _prop("node:Author", "bio", '"String"', null="true")
    + "[]},"
    + _prop(
        "node:Author",
        "kind",
        "",
        rest='{"scalar":"String","nullable":true,"list":false,"enum_values":["essay","novel"]}',
    )
    + '[{"name":"index","value":null}]},'
    + _prop("node:Author", "name", '"String"')
    + '[{"name":"description","value":"who"},{"name":"key","value":null}]},'
    + _prop("node:Author", "score", '"F64"', null="true")
    + "[]},"
    + _prop(
        "node:Author",
        "tags",
        "",
        rest='{"scalar":"Date","nullable":false,"list":true,"enum_values":null}',
    )
    + "[]},"
    + _prop("node:Author", "vec", '{"Vector":8}', null="true")
    + '[{"name":"embed","value":"bio","kwargs":{"model":"m1"}}]}],"constraints":['
    '{"Check":{"property":"bio","pattern":"^é"}},'
    '{"Index":["age"]},{"Index":["kind"]},{"Index":["kind"]},{"Key":["name"]},'
    '{"Range":{"property":"age","min":{"Integer":-1},"max":null}},'
    '{"Range":{"property":"score","min":{"Float":0.5},"max":{"Float":10.0}}},'
    '{"Unique":["bio","kind"]}]},'
    f'{{"name":"Book","type_id":{_id("node:Book")},'
    '"annotations":[{"name":"description","value":"a \\"book\\"\\nÄ"}],'
    '"implements":[],"properties":['
    + _prop("node:Book", "isbn", '"String"')
    + '[{"name":"key","value":null},{"name":"rename_from","value":"code"}]}],'
    '"constraints":[{"Key":["isbn"]}]}],"edges":['
    f'{{"name":"Knows","type_id":{_id("edge:Knows")},"from_type":"Author","to_type":"Author",'
    '"cardinality":{"min":0,"max":null},"annotations":[],"properties":[],"constraints":[]},'
    f'{{"name":"Wrote","type_id":{_id("edge:Wrote")},"from_type":"Author","to_type":"Book",'
    '"cardinality":{"min":1,"max":2},"annotations":[{"name":"note","value":"5"}],"properties":['
    + _prop("edge:Wrote", "year", '"I32"', null="true")
    + '[{"name":"index","value":null}]}],'
    '"constraints":[{"Index":["year"]},{"Unique":["dst","src"]}]}]}'
)


def test_the_compact_form_is_exact() -> None:
    assert compile_schema(EVERYTHING).ir.compact() == EXPECTED


def test_the_hash_is_of_the_compact_form() -> None:
    digest = hashlib.sha256(EXPECTED.encode()).hexdigest()
    assert compile_schema(EVERYTHING).schema_hash == f"sha256:{digest}"


def test_the_pretty_form_indents_by_two_and_keeps_empty_lists_on_their_line() -> None:
    ir = compile_schema("node A { }").ir
    assert ir.pretty() == (
        '{\n  "ir_version": 1,\n  "interfaces": [],\n  "nodes": [\n    {\n      "name": "A",\n'
        f'      "type_id": {_id("node:A")},\n      "annotations": [],\n      "implements": [],\n'
        '      "properties": [],\n      "constraints": []\n    }\n  ],\n  "edges": []\n}'
    )


def test_the_pretty_form_is_the_standard_one() -> None:
    ir = compile_schema(EVERYTHING).ir
    assert ir.pretty() == json.dumps(to_json(ir), indent=2, ensure_ascii=False)


@pytest.mark.parametrize(
    ("value", "stored", "sorted_as"),
    [
        (10.0, "10.0", "10.0"),
        (-0.0, "-0.0", "-0.0"),
        (0.1, "0.1", "0.1"),
        (1e15, "1000000000000000.0", "1000000000000000.0"),
        (1e16, "1e16", "1e16"),
        (1.25e-7, "1.25e-7", "1.25e-7"),
        (1e-5, "0.00001", "1e-5"),
        (0.0001, "0.0001", "0.0001"),
        (1e-6, "1e-6", "1e-6"),
        (1.7976931348623157e308, "1.7976931348623157e308", "1.7976931348623157e308"),
        (123456789012345680.0, "1.2345678901234568e17", "1.2345678901234568e17"),
    ],
)
def test_floats_are_written_as_the_reference_does(
    value: float, stored: str, sorted_as: str
) -> None:
    assert (json_float(value), debug_float(value)) == (stored, sorted_as)
    assert float(stored) == value


def test_control_characters_are_escaped_in_lower_case() -> None:
    schema = compile_schema('node A @x("\x01\x1f\b\f\\t ü / ☃") { }')
    assert '"\\u0001\\u001f\\b\\f\\t ü / ☃"' in schema.ir.compact()


def test_annotations_are_sorted_by_name_then_value_with_none_first() -> None:
    ir = compile_schema('node A @b("z") @b @a(2) @b("a") { }').ir
    assert [to_json(a)["value"] for a in ir.nodes[0].annotations] == [
        "2", None, "a", "z",
    ]  # fmt: skip


def test_how_an_argument_was_written_does_not_matter() -> None:
    bare = compile_schema("node A { t: String v: Vector(2) @embed(t) }")
    quoted = compile_schema('node A { t: String v: Vector(2) @embed("t") }')
    assert bare == quoted


def test_an_id_of_zero_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.lang.schema.ir.fnv1a_32", lambda text: 0)
    assert (type_id("node", "A"), property_id("node", "A", "p")) == (1, 1)


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", '{"ir_version":1}',
        '{"ir_version":2,"interfaces":[],"nodes":[],"edges":[]}',
        '{"ir_version":1,"interfaces":[],"nodes":[{"name":5}],"edges":[]}',
        '{"ir_version":1e999,"interfaces":[],"nodes":[],"edges":[]}',
    ],
)  # fmt: skip
def test_a_stored_form_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        SchemaIR.parse(text)


def test_building_does_not_depend_on_anything_but_the_tree() -> None:
    from omnigraph.lang.diagnostics import Source
    from omnigraph.lang.schema.parser import parse_schema

    file, _ = parse_schema(Source("s.pg", EVERYTHING))
    assert build_ir(file) == build_ir(file) == compile_schema(EVERYTHING).ir


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        ('"scalar":{"Vector":8}', '"scalar":{"Vector":"q"}'),
        ('"enum_values":["a","b"]', '"enum_values":"ab"'),
        ('{"Key":["k"]}', '{"Key":"k"}'),
        ('"max":3', '"max":"many"'),
    ],
)
def test_a_stored_form_with_a_wrong_part_is_refused(part: str, wrong: str) -> None:
    text = """node A { k: String @key  e: enum(a, b)  v: Vector(8)? }
    edge E: A -> A @card(0..3)"""
    stored = compile_schema(text).ir.compact()
    assert part in stored
    with pytest.raises(InputError):
        SchemaIR.parse(stored.replace(part, wrong))
