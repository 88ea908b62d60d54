"""The condition of a row rule: what it may say, and the type of each attribute of the actor."""

from __future__ import annotations

import pytest

from omnigraph.errors import QueryError
from omnigraph.lang.diagnostics import Source
from omnigraph.lang.query import typed
from omnigraph.lang.query.checked import VIEW_VARIABLE
from omnigraph.lang.query.conditions import check_condition, parse_condition
from omnigraph.lang.schema.compile import compile_schema

CATALOG = compile_schema(
    """
node Person {
    name: String @key
    tenant: String
    level: I32?
    score: F32?
    tags: [String]?
    marks: [I32]?
    born: Date?
    seen: DateTime?
    state: enum(open, shut)?
    active: Bool
    photo: Blob?
    place: Vector(2)?
}
edge Knows: Person -> Person { since: Date? }
"""
)

# A condition, and the types of the attributes that follow from it.
ACCEPTED = [
    ("true", {}),
    ("active", {}),
    ('tenant = "t1"', {}),
    ("level is null or level > 3", {}),
    ("tenant in $actor.tenants and level <= $actor.level", {"tenants": "[String]", "level": "I64"}),
    ("$actor.level >= level", {"level": "I64"}),
    ("score < $actor.score", {"score": "F64"}),
    ("born >= $actor.start", {"start": "Date"}),
    ("seen < $actor.until", {"until": "DateTime"}),
    ("state = $actor.state", {"state": "String"}),
    ("active = $actor.staff", {"staff": "Bool"}),
    ("$actor.staff", {"staff": "Bool"}),
    ("not $actor.blocked", {"blocked": "Bool"}),
    ("tags contains $actor.tag", {"tag": "String"}),
    ("marks contains $actor.mark", {"mark": "I64"}),
    ("name contains $actor.part", {"part": "String"}),
    ("name starts_with $actor.prefix", {"prefix": "String"}),
    ("$actor.prefix starts_with name", {"prefix": "String"}),
    ("$actor.tenants contains tenant", {"tenants": "[String]"}),
    ("$actor.tag in tags", {"tag": "String"}),
    ('$actor.role in ["lead", "chief"]', {"role": "String"}),
    ("$actor.level > 3", {"level": "I64"}),
    ("name = $actor.id", {"id": "String"}),
    ("tenant in $actor.groups", {"groups": "[String]"}),
    ("$actor.name = $actor.id", {"name": "String", "id": "String"}),
    ("level < $actor.a and level > $actor.a", {"a": "I64"}),
]


@pytest.mark.parametrize(("text", "attributes"), ACCEPTED)
def test_the_type_of_an_attribute_follows_from_what_it_is_compared_with(text, attributes):
    checked = check_condition(CATALOG, "Person", Source("rule", text))
    assert {name: str(type_) for name, type_ in checked.attributes.items()} == attributes
    assert checked.expr.type.scalar is typed.BOOL.scalar
    assert typed.variables(checked.expr) <= {VIEW_VARIABLE}
    parameters = {p.name for p in typed.walk(checked.expr) if isinstance(p, typed.Parameter)}
    assert parameters == {f"actor.{name}" for name in attributes}


REFUSED = [
    ("nme = 1", "T11", "type `Person` has no property `nme`", "did you mean `name`?"),
    ("level", "T30", "a condition must be a truth value, got I32?", None),
    ('level = "x"', "T3", "cannot compare I32? with String", None),
    ("level = $actor.id", "T7", "cannot compare I32? with String", None),
    ("level in $actor.groups", "T7", "cannot look for I32? in [String]", None),
    ("level = $actor.a and name = $actor.a", "T37", "cannot be I64 and String", None),
    ("$actor.a = $actor.b", "T37", "the type of `$actor.a` cannot be told here", None),
    ("$actor.a is null", "T36", "`$actor.a` is never null in a row rule", None),
    ("name in [$actor.a]", "T36", "`$actor.a` must be one side of a comparison", None),
    ("$p.name = name", "T36", "names properties without a variable", "write `name`"),
    ("name = $x", "T36", "a row rule has no variable `$x`", None),
    ("name = $actor", "T36", "`$actor` is not a value", "name an attribute: `$actor.name`"),
    ("now() > seen", "T36", "`now` cannot be used in a row rule", None),
    ("seen < now()", "T36", "`now` cannot be used in a row rule", None),
    ("count(name) > 1", "T36", "`count` cannot be used in a row rule", None),
    ('search($p.name, "x")', "T36", "`search` cannot be used in a row rule", None),
    ("photo = $actor.a", "T11", "Blob property `photo` cannot be used", None),
    ("tags = $actor.a", "T7", "lists cannot be compared", None),
    ("place = $actor.a", "T7", "vectors cannot be compared", None),
    ("", "P010", "expected a value or a variable here", None),
    ("name =", "P010", "expected a value or a variable after `=`", None),
    ('name = "a" tenant = "b"', "P010", "expected the end of the condition", None),
    ("name == 1", "P010", "", "equality is written `=`"),
    ("(" * 100 + "true" + ")" * 100, "P006", "nested more than", None),
]


@pytest.mark.parametrize(("text", "code", "message", "hint"), REFUSED)
def test_a_condition_is_refused_with_a_position(text, code, message, hint):
    with pytest.raises(QueryError) as refusal:
        check_condition(CATALOG, "Person", Source("rule", text))
    finding = refusal.value.diagnostics[0]
    assert finding.code == code
    assert message in finding.message
    assert finding.location.startswith("rule:1:")
    assert hint is None or finding.hint == hint


def test_every_error_of_a_condition_is_reported():
    with pytest.raises(QueryError) as refusal:
        check_condition(CATALOG, "Person", Source("rule", "nme = 1 or tenent = 2"))
    assert [finding.code for finding in refusal.value.diagnostics] == ["T11", "T11"]


def test_the_ends_of_an_edge_are_its_stored_columns():
    checked = check_condition(CATALOG, "Knows", Source("rule", "from = $actor.id or to = from"))
    columns = {part.name for part in typed.walk(checked.expr) if isinstance(part, typed.Column)}
    assert columns == {"src", "dst"}


def test_an_unknown_type_is_refused_with_a_suggestion():
    with pytest.raises(QueryError, match="unknown node or edge type `Persn`") as refusal:
        check_condition(CATALOG, "Persn", Source("rule", "true"))
    assert refusal.value.diagnostics[0].hint == "did you mean `Person`?"


def test_without_an_actor_attributes_are_refused():
    with pytest.raises(QueryError, match="there is no actor here"):
        check_condition(CATALOG, "Person", Source("rule", "name = $actor.id"), allow_actor=False)


def test_syntax_is_checked_without_a_schema():
    parse_condition(Source("rule", "anything = $actor.x"))
    with pytest.raises(QueryError):
        parse_condition(Source("rule", "anything ="))
