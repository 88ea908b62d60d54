"""Planning a migration: each change of a schema has its step, or is refused."""

from __future__ import annotations

import pytest

from omnigraph.errors import InputError
from omnigraph.lang.diagnostics import Severity
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.lang.schema.lint_codes import LINT_CODES, Tier, lint_code
from omnigraph.lang.schema.migrate import MigrationPlan, plan_migration
from omnigraph.lang.schema.steps import step_from_json

Case = tuple[str, str, list[str]]
REF = 'node A @rename_from("Old") { x: I32? }'

SUPPORTED: dict[str, Case] = {
    "nothing": ("node A { x: I32 }", "node A { x: I32 } // more", []),
    "add_type": (
        "node A { }",
        "node A { } node B { } edge E: A -> B",
        ["add node type 'B'", "add edge type 'E'"],
    ),
    "c63_nullable_property_and_index": (
        "node A { x: I32? }",
        "node A { x: I32? @index y: String? }",
        ["add property 'A.y' (String?) on node 'A'", "add constraint @index(x) on node 'A'"],
    ),
    "c64_rename_type_and_property": (
        "node Old { a: I32 }",
        'node New @rename_from("Old") { b: I32 @rename_from("a") }',
        ["rename node type 'Old' -> 'New'", "rename property 'New.a' -> 'New.b' on node 'New'"],
    ),
    "c65_drop_property": (
        "node A { x: I32? y: I32 }",
        "node A { y: I32 }",
        ["drop property 'A.x' of node 'A' (soft mode)"],
    ),
    "c66_drop_types": (
        "node A { } node B { } edge E: A -> B",
        "node A { }",
        ["drop node type 'B' (soft mode)", "drop edge type 'E' (soft mode)"],
    ),
    "c68_description": (
        'node A @description("a") { }',
        'node A @description("b \\"x\\"") { }',
        ['update metadata on node \'A\' (@description("b \\"x\\""))'],
    ),
    "instruction_on_an_edge": (
        "node A { } edge E: A -> A",
        'node A { } edge E: A -> A @instruction("i") @description("d")',
        ['update metadata on edge \'E\' (@description("d"), @instruction("i"))'],
    ),
    "description_removed": (
        'node A @description("a") { }',
        "node A { }",
        ["update metadata on node 'A' (removed)"],
    ),
    "property_description": (
        "node A { x: I32 }",
        'node A { x: I32 @description("n") }',
        ["update metadata on property 'A.x' of node 'A' (@description(\"n\"))"],
    ),
    "c72_enum_extension": (
        "node A { s: enum(a, b)? }",
        "node A { s: enum(d, c, b, a)? }",
        ["extend enum 'A.s' on node 'A' with (c, d)"],
    ),
    "rename_left_in_place": (
        "node New { x: I32? }",
        'node New @rename_from("Old") { x: I32? @rename_from("y") }',
        [],
    ),
    "rename_type_carries_edges": (
        "node A { } edge E: A -> A",
        'node B @rename_from("A") { } edge E: B -> B',
        ["rename node type 'A' -> 'B'"],
    ),
    "rename_property_carries_constraints": (
        "node A { a: I32 b: I32 @unique(a, b) @range(a, 0..1) }",
        'node A { z: I32 @rename_from("a") b: I32 @unique(b, z) @range(z, 0..1) }',
        ["rename property 'A.a' -> 'A.z' on node 'A'"],
    ),
    "rename_property_carries_embed": (
        "node A { t: String v: Vector(2) @embed(t) }",
        'node A { u: String @rename_from("t") v: Vector(2) @embed(u) }',
        ["rename property 'A.t' -> 'A.u' on node 'A'"],
    ),
    "add_vector_and_enum": (
        "node A { }",
        "node A { v: Vector(3)? s: enum(b, a)? d: [Date]? }",
        [
            "add property 'A.d' ([Date]?) on node 'A'",
            "add property 'A.s' (Enum(a|b)?) on node 'A'",
            "add property 'A.v' (Vector(3)?) on node 'A'",
        ],
    ),
    "interface_added": (
        "node A { }",
        "interface I { x: I32 } node A { }",
        ["add interface type 'I'"],
    ),
    "interface_property": (
        "interface I { x: I32? } node A implements I { }",
        "interface I { x: I32? y: I32? } node A implements I { }",
        ["add property 'I.y' (I32?) on interface 'I'", "add property 'A.y' (I32?) on node 'A'"],
    ),
    "interface_required_property_that_nodes_have": (
        "interface I { } node A implements I { y: I32 }",
        "interface I { y: I32 } node A implements I { y: I32 }",
        ["add property 'I.y' (I32) on interface 'I'"],
    ),
    "interface_rename_and_drop": (
        "interface I { x: I32? z: I32? } node A implements I { }",
        'interface I { y: I32? @rename_from("x") } node A implements I { }',
        [
            "rename property 'I.x' -> 'I.y' on interface 'I'",
            "drop property 'I.z' of interface 'I' (soft mode)",
            "rename property 'A.x' -> 'A.y' on node 'A'",
            "drop property 'A.z' of node 'A' (soft mode)",
        ],
    ),
    "swapping_names_does_nothing": (
        "node A { x: I32? } node B { x: I32? }",
        'node A @rename_from("B") { x: I32? } node B @rename_from("A") { x: I32? }',
        [],
    ),
    "order_of_steps": (
        "node B { } node D { x: I32? } edge F: D -> D",
        "interface I { } node A { } node D { y: I32? } edge E: A -> D edge F: D -> D",
        [
            "add interface type 'I'",
            "add node type 'A'",
            "add property 'D.y' (I32?) on node 'D'",
            "drop property 'D.x' of node 'D' (soft mode)",
            "drop node type 'B' (soft mode)",
            "add edge type 'E'",
        ],
    ),
    "widening_numbers": (
        "node A { a: I32 b: U32? c: F32 d: [I32] }",
        "node A { a: I64 b: F64? c: F64 d: [F64] }",
        [
            "widen property 'A.a' of node 'A' from I32 to I64",
            "widen property 'A.b' of node 'A' from U32? to F64?",
            "widen property 'A.c' of node 'A' from F32 to F64",
            "widen property 'A.d' of node 'A' from [I32] to [F64]",
        ],
    ),
    "relaxing": (
        "node A { x: I32 }",
        "node A { x: I32? }",
        ["make property 'A.x' of node 'A' optional"],
    ),
    "tightening": (
        "node A { x: I32? }",
        "node A { x: I32 }",
        ["make property 'A.x' of node 'A' required"],
    ),
    "widening_and_tightening": (
        "node A { x: I32? }",
        "node A { x: I64 }",
        [
            "widen property 'A.x' of node 'A' from I32? to I64?",
            "make property 'A.x' of node 'A' required",
        ],
    ),
    "enum_narrowing": (
        "node A { s: enum(a, b) }",
        "node A { s: enum(a) }",
        ["narrow enum 'A.s' on node 'A' by (b)"],
    ),
    "enum_change_with_nullability": (
        "node A { s: enum(a, b) }",
        "node A { s: enum(a, c)? }",
        [
            "extend enum 'A.s' on node 'A' with (c)",
            "narrow enum 'A.s' on node 'A' by (b)",
            "make property 'A.s' of node 'A' optional",
        ],
    ),
    "cardinality": (
        "node A { } edge E: A -> A",
        "node A { } edge E: A -> A @card(0..1)",
        ["change cardinality of edge 'E' from 0.. to 0..1"],
    ),
    "constraints_added_and_dropped": (
        "node A { x: I32 @index  y: String @unique }",
        'node A { x: I32 @key  y: String @range(x, 0..2) @check(y, "a") }',
        [
            "add constraint @check(y, \"a\") on node 'A'",
            "add constraint @key(x) on node 'A'",
            "add constraint @range(x, 0..2) on node 'A'",
            "drop constraint @index(x) of node 'A'",
            "drop constraint @unique(y) of node 'A'",
        ],
    ),
    "dropped_property_of_a_constraint": (
        "node A { x: I32? @index }",
        "node A { }",
        [
            "drop property 'A.x' of node 'A' (soft mode)",
            "drop constraint @index(x) of node 'A'",
        ],
    ),
    "bounds_of_another_kind": (
        "node A { x: F64?  @range(x, 0..10) }",
        "node A { x: F64?  @range(x, 0.0..10.0) }",
        [
            "add constraint @range(x, 0.0..10.0) on node 'A'",
            "drop constraint @range(x, 0..10) of node 'A'",
        ],
    ),
    "repeated_index_is_no_change": (
        "node A { x: I32 @index }",
        "node A { x: I32 @index @index(x) }",
        [],
    ),
}

REFUSED: dict[str, tuple[str, str, str, str | None]] = {
    "c67_required_property": ("node A { }", "node A { x: I32 }", "node:A.x", "OG-MF-103"),
    "key_to_float": ("node A { x: I32 @key }", "node A { x: F64 @key }", "node:A.x", "OG-MF-106"),
    "inexact_widening": ("node A { x: I64 }", "node A { x: F64 }", "node:A.x", "OG-MF-106"),
    "c71_narrowing": ("node A { x: I64 }", "node A { x: I32 }", "node:A.x", "OG-MF-106"),
    "c72_enum_to_string": (
        "node A { s: enum(a, b) }",
        "node A { s: String }",
        "node:A.s",
        "OG-MF-106",
    ),
    "c72_string_to_enum": (
        "node A { s: String }",
        "node A { s: enum(a, b) }",
        "node:A.s",
        "OG-MF-106",
    ),
    "vector_dimension": (
        "node A { v: Vector(2) }",
        "node A { v: Vector(3) }",
        "node:A.v",
        "OG-MF-106",
    ),
    "interface_removed": ("interface I { }", "", "interface:I", None),
    "implements": (
        "interface I { } node A { }",
        "interface I { } node A implements I { }",
        "node:A",
        None,
    ),
    "rename_from_nothing": ("node B { }", REF + " node B { }", "node:A", None),
    "rename_property_from_nothing": (
        "node A { }",
        'node A { x: I32? @rename_from("y") }',
        "node:A.x",
        None,
    ),
    "rename_edge_from_nothing": (
        "node A { }",
        'node A { } edge E: A -> A @rename_from("F")',
        "edge:E",
        None,
    ),
    "rename_of_what_stays": ("node Old { }", "node Old { } " + REF, "node:A", None),
    "rename_taken_twice": (
        "node Old { x: I32? }",
        REF + ' node B @rename_from("Old") { x: I32? }',
        "node:B",
        None,
    ),
    "endpoints": (
        "node A { } node B { } edge E: A -> A",
        "node A { } node B { } edge E: A -> B",
        "edge:E",
        None,
    ),
    "annotation": ("node A @x(1) { }", "node A @x(2) { }", "node:A", None),
    "embed_model": (
        "node A { t: String v: Vector(2) @embed(t) }",
        'node A { t: String v: Vector(2) @embed(t, model="m") }',
        "node:A.v",
        None,
    ),
}


def assert_stored_exactly(plan: MigrationPlan) -> None:
    assert [step_from_json(step) for step in plan.to_json()["steps"]] == list(plan.steps)


@pytest.mark.parametrize("case", SUPPORTED.values(), ids=SUPPORTED)
def test_supported_changes(case: Case) -> None:
    old, new, expected = case
    plan = plan_migration(compile_schema(old), compile_schema(new))
    assert plan.describe() == expected
    assert plan.supported
    assert_stored_exactly(plan)


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_unsupported_changes(case: tuple[str, str, str, str | None]) -> None:
    old, new, entity, code = case
    plan = plan_migration(compile_schema(old), compile_schema(new), allow_data_loss=True)
    assert not plan.supported
    assert [(step.entity, step.code) for step in plan.refusals] == [(entity, code)]
    assert_stored_exactly(plan)


def test_c69_drops_are_soft_unless_data_loss_is_allowed() -> None:
    old, new = compile_schema("node A { x: I32? } node B { }"), compile_schema("node A { }")
    for allowed, mode in ((False, "soft"), (True, "hard")):
        plan = plan_migration(old, new, allow_data_loss=allowed)
        assert [step.to_json()["mode"] for step in plan.steps] == [mode, mode]
        assert_stored_exactly(plan)


def test_the_json_of_steps_has_its_order() -> None:
    old = compile_schema("node Old { a: I32? s: enum(a) } edge E: Old -> Old { g: I32? }")
    new = compile_schema(
        'node A @rename_from("Old") @description("d") { b: I32? @rename_from("a") s: enum(a, b)'
        " c: Vector(2)? @index } edge E: A -> A { r: I32 } node Z { }"
    )
    assert plan_migration(old, new).to_json() == {
        "supported": False,
        "steps": [
            {"kind": "rename_type", "type_kind": "node", "from": "Old", "to": "A"},
            {"kind": "update_type_metadata", "type_kind": "node", "name": "A",
             "annotations": [{"name": "description", "value": "d"}]},
            {"kind": "rename_property", "type_kind": "node", "type_name": "A", "from": "a",
             "to": "b"},
            {"kind": "add_property", "type_kind": "node", "type_name": "A", "property_name": "c",
             "property_type": {"scalar": {"Vector": 2}, "nullable": True, "list": False,
                               "enum_values": None}},
            {"kind": "extend_enum", "type_kind": "node", "type_name": "A", "property_name": "s",
             "added_values": ["b"]},
            {"kind": "add_constraint", "type_kind": "node", "type_name": "A",
             "constraint": {"Index": ["c"]}},
            {"kind": "add_type", "type_kind": "node", "name": "Z"},
            {"kind": "unsupported_change", "entity": "edge:E.r",
             "reason": "adding required property 'E.r' to an existing type is not supported; "
                       "make it nullable", "code": "OG-MF-103"},
            {"kind": "drop_property", "type_kind": "edge", "type_name": "E", "property_name": "g",
             "mode": "soft"},
        ],
    }  # fmt: skip


def test_a_refusal_names_its_code_and_tier() -> None:
    old, new = compile_schema("node A { x: I32 }"), compile_schema("node A { x: String }")
    (step,) = plan_migration(old, new).refusals
    reason = "changing the type of 'A.x' from I32 to String is not supported"
    message = f"unsupported change on node:A.x [OG-MF-106, destructive]: {reason}"
    assert (step.describe(), step.message) == (message, f"[OG-MF-106] {reason}")


def test_a_name_that_was_dropped_can_be_added_again() -> None:
    with_a, without = compile_schema("node A { } node B { }"), compile_schema("node B { }")
    assert plan_migration(with_a, without).supported
    assert plan_migration(without, with_a).describe() == ["add node type 'A'"]


@pytest.mark.parametrize("value", [{}, {"kind": "x", "type_kind": "node"}, {"kind": "add_type"}])
def test_data_that_is_no_step_is_refused(value: dict[str, str]) -> None:
    with pytest.raises(InputError):
        step_from_json(value)


def test_c70_lint_codes_are_well_formed() -> None:
    codes = [entry.code for entry in LINT_CODES]
    assert len(set(codes)) == len(codes)
    for entry in LINT_CODES:
        prefix, family, number = entry.code.split("-")
        assert prefix == "OG"
        assert family in ("DS", "MF", "NM", "VE", "ED")
        assert (len(number), number.isdigit()) == (3, True)
        if entry.tier is Tier.DESTRUCTIVE:
            assert entry.severity is Severity.ERROR
        assert lint_code(entry.code) is entry
    assert lint_code("OG-XX-999") is None


def test_a_required_property_can_be_added_with_a_value_for_the_rows_that_are_there() -> None:
    old, new = compile_schema("node A { }"), compile_schema("node A { x: I32 }")
    plan = plan_migration(old, new, given={"A.x"})
    assert plan.supported
    assert plan.describe() == ["add property 'A.x' (I32) on node 'A'"]
