"""The catalog of a schema, and the Arrow schemas of its tables."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa

from omnigraph.lang.fnv import fnv1a_64
from omnigraph.lang.schema.ast import Cardinality
from omnigraph.lang.schema.catalog import Embed, catalog_from_ir
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.lang.schema.ir import SchemaIR
from omnigraph.lang.types import PropType, Scalar
from omnigraph.lang.values.arrow import arrow_type

FIXTURE = """
interface Named { name: String }
node Person implements Named { name: String @key  age: I32?  email: String? @unique }
node Company { name: String @key  city: String  founded: Date?
  @unique(name, city)  @index(city, founded) }
node Note { text: String  vec: Vector(4)? @embed(text, model="m")  raw: Vector(4)? @embed(text) }
edge Knows: Person -> Person { since: Date? }
edge WorksAt: Person -> Company @card(0..1)
"""


def test_b48_the_catalog_holds_every_type() -> None:
    catalog = compile_schema(FIXTURE)
    assert list(catalog.node_types) == ["Company", "Note", "Person"]
    assert list(catalog.edge_types) == ["Knows", "WorksAt"]
    assert [edge.table_key for edge in catalog.edge_types.values()] == [
        "edge:Knows",
        "edge:WorksAt",
    ]


def test_b49_edge_lookup_ignores_case() -> None:
    catalog = compile_schema(FIXTURE)
    actual = [catalog.edge(word) for word in ("Knows", "knows", "KNOWS", "worksAt", "works_at")]
    assert [edge.name if edge else None for edge in actual] == [
        "Knows", "Knows", "Knows", "WorksAt", None,
    ]  # fmt: skip
    assert catalog.node("person") is None


def test_b49_edge_lookup_folds_letters_outside_ascii() -> None:
    ir = compile_schema("node A { } edge Knows: A -> A").ir
    stored = ir.compact().replace('"Knows"', '"ÄrgerÉ"')
    catalog = catalog_from_ir(SchemaIR.parse(stored))
    edge = catalog.edge("ärgeré")
    assert edge is not None
    assert edge.name == "ÄrgerÉ"


def test_b50_tables_start_with_text_id_columns() -> None:
    catalog = compile_schema(FIXTURE)
    person = catalog.node_types["Person"].arrow_schema()
    assert person.names == ["id", "age", "email", "name"]
    knows = catalog.edge_types["Knows"].arrow_schema()
    assert knows.names == ["id", "src", "dst", "since"]
    assert [knows.field(name).type for name in ("id", "src", "dst")] == [pa.utf8()] * 3
    assert not any(knows.field(name).nullable for name in ("id", "src", "dst"))


def test_required_properties_are_not_nullable_columns() -> None:
    schema = compile_schema(FIXTURE).node_types["Person"].arrow_schema()
    assert (schema.field("name").nullable, schema.field("age").nullable) == (False, True)


def test_an_arrow_schema_is_built_once() -> None:
    person = compile_schema(FIXTURE).node_types["Person"]
    assert person.arrow_schema() is person.arrow_schema()


def test_b54_the_key_property_is_the_first_key_column() -> None:
    catalog = compile_schema("node A { b: String a: I32 @key(b, a) } node B { b: String }")
    assert catalog.node_types["A"].key == ("a", "b")
    assert catalog.node_types["A"].key_property == "a"
    assert (catalog.node_types["B"].key, catalog.node_types["B"].key_property) == ((), None)


def test_b55_composite_groups_stay_groups() -> None:
    company = compile_schema(FIXTURE).node_types["Company"]
    assert company.unique == (("city", "name"),)
    assert ("city", "founded") in company.indexes


def test_b56_cardinality_reaches_the_catalog() -> None:
    assert compile_schema(FIXTURE).edge_types["WorksAt"].cardinality == Cardinality(0, 1)


def test_b57_interfaces_stay_and_nodes_remember_them() -> None:
    catalog = compile_schema(FIXTURE)
    assert list(catalog.interfaces["Named"].properties) == ["name"]
    assert catalog.node_types["Person"].implements == ("Named",)


def test_b58_a_key_implies_an_index() -> None:
    assert compile_schema(FIXTURE).node_types["Person"].indexes == (("name",),)
    both = compile_schema("node A { a: String @key @index }").node_types["A"]
    assert both.indexes == (("a",),)


def test_b59_the_embed_model_reaches_the_catalog() -> None:
    embeds = compile_schema(FIXTURE).node_types["Note"].embeds
    assert embeds == {"raw": Embed("text", None), "vec": Embed("text", "m")}


def test_b60_order_does_not_change_the_hash() -> None:
    first = compile_schema("node A { a: I32 b: I32 @index(a, b) } node B { }")
    second = compile_schema("// x\nnode B { }\nnode A { @index(b, a) b: I32 a: I32 }")
    assert first.schema_hash == second.schema_hash
    assert first.schema_hash.startswith("sha256:")


def test_b61_a_catalog_from_the_stored_form_is_the_same() -> None:
    catalog = compile_schema(FIXTURE)
    assert catalog_from_ir(SchemaIR.parse(catalog.ir.pretty())) == catalog


def test_b62_every_type_has_its_arrow_type() -> None:
    text = """node A { a: Bool b: I32 c: I64 d: U32 e: U64 f: F32 g: F64 h: Date i: DateTime
      j: Vector(3) k: Blob l: [DateTime]? m: enum(x, y)? n: String }"""
    schema = compile_schema(text).node_types["A"].arrow_schema()
    assert schema.types[1:] == [
        pa.bool_(), pa.int32(), pa.int64(), pa.uint32(), pa.uint64(), pa.float32(), pa.float64(),
        pa.date32(), pa.date64(), pa.list_(pa.field("item", pa.float32()), 3), pa.large_binary(),
        pa.list_(pa.field("item", pa.date64())), pa.utf8(), pa.utf8(),
    ]  # fmt: skip
    assert arrow_type(PropType(Scalar.VECTOR, dimension=3)).value_field.nullable
    assert schema.field("l").type.value_field.nullable


def test_table_directory_hashes_are_those_of_the_format() -> None:
    names = ("Person", "Company", "Knows", "WorksAt")
    assert [f"{fnv1a_64(name):016x}" for name in names] == [
        "40d76f1f51639ec0", "7cb4e55c59663b1c", "602a25a3bd0b455b", "844eefbe5068b644",
    ]  # fmt: skip


def test_compiling_a_schema_does_not_load_pyarrow() -> None:
    program = (
        "import sys; from omnigraph.lang.schema.compile import compile_schema;"
        "compile_schema('node A { v: Vector(3) }'); print('pyarrow' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": "src"},
    )
    assert done.stdout.strip() == "False"
