"""Ids that survive renames."""

from __future__ import annotations

from itertools import pairwise

import pytest

from omnigraph.errors import InputError, InternalError
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.lang.schema.identity import (
    SchemaIdentity,
    TypeIdentity,
    evolve_identity,
    initial_identity,
)
from omnigraph.lang.schema.migrate import plan_migration


def follow(*texts: str) -> list[SchemaIdentity]:
    """The identities of a graph that goes through these schemas."""
    catalogs = [compile_schema(text) for text in texts]
    actual = [initial_identity(catalogs[0])]
    for old, new in pairwise(catalogs):
        plan = plan_migration(old, new)
        assert plan.supported, plan.describe()
        actual.append(evolve_identity(actual[-1], plan.steps, new))
    return actual


def of(identity: SchemaIdentity, name: str, kind: str = "node") -> TypeIdentity:
    actual = identity.type(kind, name)
    assert actual is not None
    return actual


def test_the_first_identity_numbers_types_and_properties_in_order() -> None:
    (identity,) = follow("edge E: A -> A node A { b: I32 a: I32 } interface I { x: I32 }")
    assert [entry.id for entry in identity.types.values()] == [3, 1, 2]
    assert of(identity, "A").properties == {"a": 2, "b": 3}
    assert (identity.next_type, identity.next_property) == (4, 4)


def test_a_rename_keeps_the_ids_of_type_and_properties() -> None:
    before, after = follow(
        "node A { x: I32 }", 'node B @rename_from("A") { y: I32 @rename_from("x") }'
    )
    assert of(after, "B").id == of(before, "A").id
    assert of(after, "B").properties["y"] == of(before, "A").properties["x"]
    assert after.type("node", "A") is None


def test_a_dropped_name_that_comes_back_is_another_type() -> None:
    first, _, third = follow(
        "node A { x: I32 } node B { }", "node B { }", "node A { x: I32 } node B { }"
    )
    old, new = of(first, "A"), of(third, "A")
    assert new.id != old.id
    assert (old.incarnation, new.incarnation) == (1, 2)
    assert set(old.properties.values()).isdisjoint(new.properties.values())


def test_a_name_left_by_a_rename_starts_a_new_life() -> None:
    texts = ("node A { }", 'node B @rename_from("A") { }', "node A { } node B { }")
    first, _, third = follow(*texts)
    assert of(third, "B").id == of(first, "A").id
    assert of(third, "A").id != of(first, "A").id
    assert of(third, "A").incarnation == 2


def test_a_dropped_property_that_comes_back_has_a_new_id() -> None:
    texts = ("node A { x: I32? y: I32? }", "node A { y: I32? }", "node A { x: I32? y: I32? }")
    first, _, third = follow(*texts)
    assert of(third, "A").properties["x"] > of(first, "A").properties["x"]
    assert of(third, "A").properties["y"] == of(first, "A").properties["y"]


def test_interfaces_and_edges_have_identities_too() -> None:
    first, second = follow(
        "interface I { x: I32? } node A { } edge E: A -> A { w: I32? }",
        'interface I { y: I32? @rename_from("x") } node A { }'
        ' edge F: A -> A @rename_from("E") { w: I32? }',
    )
    assert of(second, "F", "edge") == of(first, "E", "edge")
    assert of(second, "I", "interface").properties == {
        "y": of(first, "I", "interface").properties["x"]
    }


def test_an_identity_survives_json() -> None:
    *_, identity = follow("node A { x: I32? }", "node B { }", "node A { } node B { }")
    assert SchemaIdentity.from_json(identity.to_json()) == identity


def test_steps_that_do_not_lead_to_the_schema_are_a_bug() -> None:
    old, new = compile_schema("node A { }"), compile_schema("node B { }")
    with pytest.raises(InternalError):
        evolve_identity(initial_identity(old), (), new)


def test_data_that_is_no_identity_is_refused() -> None:
    with pytest.raises(InputError):
        SchemaIdentity.from_json({"types": {"node:A": {}}})
