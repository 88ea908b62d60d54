"""Corners of the checker that were wrong once, and one query for each of its rules."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.lang.diagnostics import Source
from omnigraph.lang.query import typed
from omnigraph.lang.query.checker import examine_query
from omnigraph.lang.query.connections import DisjointSets, sweep_order
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.plan import compile_query
from omnigraph.plan.explain import explain_text

CATALOG = compile_schema(
    """
    node Person { name: String @key  age: I32?  ratio: F32?  born: Date?  tags: [String]?
                  bio: String?  vec: Vector(4)? @embed("bio")  true: Bool?  null: String? }
    node Company { name: String @key }
    node Doc { title: String @key  text: String  vec: Vector(2) @embed("text") }
    edge Knows: Person -> Person { since: Date? }
    edge WorksAt: Person -> Company
    edge Odd: Person -> Person { from: String }
    """
)


def codes(body: str, params: str = "") -> list[str]:
    source = Source("q.gq", f"query q({params}) {{ {body} }}")
    file, problems = parse_queries(source)
    assert problems == []
    _, actual = examine_query(CATALOG, source, file.queries[0])
    return [finding.code for finding in actual if not finding.code.startswith("L")]


def read(match: str, result: str = "$p.name", rest: str = "") -> str:
    return f"match {{ {match} }} return {{ {result} }} {rest}"


# -- one rule each --------------------------------------------------------------------------------

RULES = [
    ("unknown node type", read("$p: Persn"), "", ["T1"]),
    ("unknown inline property", read("$p: Person { nme: 1 }"), "", ["T2"]),
    ("wrong literal type", read('$p: Person { age: "x" }'), "", ["T3"]),
    ("unknown edge", read("$p: Person $p likes $q"), "", ["T4"]),
    ("endpoint mismatch", read("$p: Company $p knows $q"), "", ["T5"]),
    ("unknown property", read("$p: Person $p.nme = 1"), "", ["T6"]),
    ("incompatible comparison", read('$p: Person $p.age = "x"'), "", ["T7"]),
    ("node with scalar", read("$p: Person $p = 1"), "", ["T7"]),
    (
        "nearest needs limit",
        read("$p: Person", rest="order { nearest($p.vec, $v) }"),
        "$v: Vector(4)",
        ["T17"],
    ),
    (
        "equal dimensions",
        read("$p: Person", rest="order { nearest($p.vec, $v) } limit 1"),
        "$v: Vector(3)",
        ["T15"],
    ),
    (
        "vector query",
        read("$p: Person", rest="order { nearest($p.vec, $v) } limit 1"),
        "$v: Vector(4)",
        [],
    ),
    (
        "text query",
        read("$p: Person", rest="order { nearest($p.vec, $v) } limit 1"),
        "$v: String",
        [],
    ),
    (
        "text params",
        read(
            "$p: Person search($p.bio, $q) fuzzy($p.bio, $q) match_text($p.bio, $q)",
            rest="order { bm25($p.bio, $q) }",
        ),
        "$q: String",
        [],
    ),
    ("search of a number", read("$p: Person search($p.age, $q)"), "$q: String", ["T19"]),
    (
        "bm25 of a number",
        read("$p: Person", rest="order { bm25($p.age, $q) }"),
        "$q: String",
        ["T20"],
    ),
    (
        "nearest with alias",
        read("$p: Person", "$p.name as n", "order { nearest($p.vec, $v), n } limit 1"),
        "$v: Vector(4)",
        ["T18"],
    ),
    (
        "rrf k of zero",
        read("$p: Person", rest='order { rrf(bm25($p.bio, "a"), bm25($p.name, "b"), 0) } limit 1'),
        "",
        ["T21"],
    ),
    ("sum of a String", read("$p: Person", "sum($p.name) as s"), "", ["T8"]),
    ("negation with an outer variable", read("$p: Person not { $p worksAt $_ }"), "", []),
    ("insert with all", 'insert Person { name: "x" }', "", []),
    ("insert without the key", "insert Person { age: 1 }", "", ["T12"]),
]


@pytest.mark.parametrize(
    ("body", "params", "expected"),
    [case[1:] for case in RULES],
    ids=[case[0] for case in RULES],
)
def test_a_rule_has_its_code(body, params, expected):
    assert codes(body, params) == expected


# -- corners --------------------------------------------------------------------------------------

CORNERS = [
    ("a required property behind an endpoint", 'insert Odd { from: "a", to: "b" }', "", ["T12"]),
    (
        "distinct rows have no single distance",
        "match { $p: Person } return distinct { $p.age } order { nearest($p.vec, $v) } limit 3",
        "$v: Vector(4)",
        ["T31"],
    ),
    (
        "a returned distance orders distinct rows",
        "match { $p: Person } return distinct { nearest($p.vec, $v) as d } "
        "order { nearest($p.vec, $v) } limit 3",
        "$v: Vector(4)",
        [],
    ),
    (
        "a literal too large for F32",
        f'insert Person {{ name: "x", ratio: 1{"0" * 40}.0 }}',
        "",
        ["T3"],
    ),
    (
        "a vector item too large for F32",
        f'insert Person {{ name: "x", vec: [1{"0" * 40}.0, 0, 0, 0] }}',
        "",
        ["T3"],
    ),
    (
        "a nullable item of a list",
        'insert Person { name: "x", tags: ["a", $t] }',
        "$t: String?",
        ["T7"],
    ),
    ("a required item of a list", 'insert Person { name: "x", tags: ["a", $t] }', "$t: String", []),
    (
        "a date-time needs a T",
        read('$p: Person now() > datetime("2024-05-01x12:00:00")'),
        "",
        ["T34"],
    ),
    (
        "order of traversals 1",
        "match { $p worksAt $b $c worksAt $b $c: Company } return { $p }",
        "",
        [],
    ),
    (
        "order of traversals 2",
        "match { $c worksAt $b $p worksAt $b $c: Company } return { $p }",
        "",
        [],
    ),
    ("known ends first", "match { $p worksAt $b $b knows $c } return { $p }", "", ["T5"]),
    (
        "a chain read from its known end",
        "match { $c worksAt $p $p knows $q $q: Person } return { $p }",
        "",
        [],
    ),
]


@pytest.mark.parametrize(
    ("body", "params", "expected"),
    [case[1:] for case in CORNERS],
    ids=[case[0] for case in CORNERS],
)
def test_corner(body, params, expected):
    assert codes(body, params) == expected


@pytest.mark.parametrize(
    ("predicate", "shown"),
    [
        ("true = true", "where true"),
        ('null = "x"', 'where null = "x"'),
        ("name = null", "where name = null"),
        ("age = 1 and true = false", "where age = 1 and not (true)"),
    ],
)
def test_left_of_a_predicate_stands_a_property_even_one_called_true(predicate, shown):
    plan = compile_query(CATALOG, f"query q() {{ delete Person where {predicate} }}")
    assert shown in explain_text(plan)
    (statement,) = plan.statements
    assert statement.where is not None
    assert len(typed.variables(statement.where)) == 1


def test_a_hint_never_asks_to_declare_now():
    source = Source("q.gq", "query q() { match { $p: Person now() > $p.born } return { $p } }")
    _, (actual,) = examine_query(CATALOG, source, parse_queries(source)[0].queries[0])
    assert (actual.code, actual.hint) == ("T7", None)


def test_ordering_by_a_property_finds_its_own_column_among_equal_names():
    text = "query q() { match { $p: Person } return distinct { $p.name as a, $p.age as a } "
    plan = compile_query(CATALOG, text + "order { $p.age } }")
    (key,) = plan.order
    assert isinstance(key.expr, typed.Output)
    assert key.expr.position == 1


def test_unknown_is_in_the_type_of_membership_and_search():
    text = """query q($a: I32?, $b: I32) { match { $d: Doc $p: Person }
    return { 3 in [$a, 4] as x, $b in [3, 4] as y, search($d.text, "q") as z,
             search($p.bio, "q") as w } }"""
    plan = compile_query(CATALOG, text)
    assert [column.expr.type.nullable for column in plan.columns] == [True, False, False, True]


def test_a_long_text_takes_little_more_than_its_own_memory():
    text = read(f'$p: Person $p.name = "{"x" * (1 << 20)}"')
    tracemalloc.start()
    assert codes(text) == []
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 16 << 20


def test_many_mistakes_are_capped_and_quick():
    body = " ".join(f"$v{n}: Person $w{n}.name = 1" for n in range(2000))
    assert len(codes(read(body))) == 50


# -- orders and groups ----------------------------------------------------------------------------

NAMES = st.sampled_from("abcdef")
ENDS = st.lists(st.tuples(NAMES, NAMES), max_size=12)


def sweeps(ends, existing):
    """The same as ``sweep_order``, by really sweeping."""
    bound, left, order = set(existing), list(range(len(ends))), []
    while left:
        waiting = []
        for position in left:
            if bound.isdisjoint(ends[position]):
                waiting.append(position)
            else:
                order.append(position)
                bound.update(ends[position])
        if len(waiting) == len(left):
            bound.update(ends[waiting[0]])
            order.append(waiting.pop(0))
        left = waiting
    return order


@given(ENDS, st.sets(NAMES, min_size=1))
def test_the_order_of_a_connected_list_is_that_of_sweeps(ends, existing):
    reachable = DisjointSets()
    for pair in ends:
        reachable.union(pair)
    reachable.union(existing)
    connected = [p for p in ends if reachable.find(p[0]) == reachable.find(min(existing))]
    assert sweep_order(connected, existing) == sweeps(connected, existing)


@given(ENDS, st.sets(NAMES))
def test_every_traversal_is_taken_once_and_late_only_if_it_must(ends, existing):
    order = sweep_order(ends, existing)
    assert sorted(order) == list(range(len(ends)))
    bound = set(existing)
    for step, position in enumerate(order):
        if bound.isdisjoint(ends[position]):
            left = order[step:]
            assert all(bound.isdisjoint(ends[other]) for other in left)
            assert position == min(left)
        bound.update(ends[position])


@given(ENDS)
def test_groups_are_what_can_be_reached(ends):
    groups = DisjointSets()
    for pair in ends:
        groups.union(pair)
    for name in "abcdef":
        reached = {name}
        for _ in ends:
            reached |= {n for pair in ends if not reached.isdisjoint(pair) for n in pair}
        same = {other for other in "abcdef" if groups.find(other) == groups.find(name)}
        assert same == reached


def test_the_hint_for_an_unknown_column_can_be_written_as_it_stands() -> None:
    source = Source("q.gq", f"query q() {{ {read('$p: Person', rest='order { name }')} }}")
    _, (actual,) = examine_query(CATALOG, source, parse_queries(source)[0].queries[0])
    assert (actual.code, actual.hint) == ("T29", "did you mean `$p.name`?")
