"""The oracle itself, on reads and traversals whose rows are written down here."""

from __future__ import annotations

from datetime import date, datetime
from random import Random
from typing import Any

import pytest

from omnigraph import QueryError
from omnigraph.lang.schema.compile import compile_schema
from tests.read.generate import make_question, make_world
from tests.read.naive import Data
from tests.read.world import ask

CATALOG = compile_schema("""
node Person {
    name: String @key
    age: I32?
    ratio: F32?
    weight: F64?
    active: Bool?
    born: Date?
    seen: DateTime?
    tags: [String]?
    nickName: String?
}
node Company { name: String @key  size: I64? }
edge Knows: Person -> Person { since: I32? }
edge WorksAt: Person -> Company { role: String? }
""")

EMPTY = dict.fromkeys(CATALOG.node_types["Person"].properties)


def person(name: str, **given: Any) -> dict[str, Any]:
    return {**EMPTY, "id": name, "name": name, **given}


def knows(*pairs: str, since: int | None = None) -> list[dict[str, Any]]:
    return [
        {"id": f"k{at}", "src": pair[0], "dst": pair[1], "since": since}
        for at, pair in enumerate(pairs)
    ]


PEOPLE = Data(
    {
        "Person": [
            person("Alice", age=30, tags=("a", "b"), nickName="O'Al"),
            person("Bob", age=25, tags=()),
            person("Charlie", age=35, tags=("b", None)),
            person("Diana", age=28),
        ],
        "Company": [
            {"id": "Acme", "name": "Acme", "size": 10},
            {"id": "Globex", "name": "Globex", "size": None},
        ],
    },
    {
        "Knows": [
            {"id": "k1", "src": "Alice", "dst": "Bob", "since": 2020},
            {"id": "k2", "src": "Alice", "dst": "Charlie", "since": None},
            {"id": "k3", "src": "Bob", "dst": "Diana", "since": 2021},
        ],
        "WorksAt": [
            {"id": "w1", "src": "Alice", "dst": "Acme", "role": "chief"},
            {"id": "w2", "src": "Bob", "dst": "Globex", "role": None},
        ],
    },
)


def letters(*edges: str, more: str = "") -> Data:
    names = sorted({*"".join(edges), *more})
    return Data({"Person": [person(name) for name in names]}, {"Knows": knows(*edges)})


def rows(data: Data, match: str, returned: str, rest: str = "", **params: Any) -> list[Any]:
    """The rows of a query; bare values where there is one column."""
    declared = ", ".join(f"${name}: {_type(value)}" for name, value in params.items())
    text = f"query q({declared}) {{ match {{ {match} }} return {returned} {rest} }}"
    actual = ask(CATALOG, data, text, params).cut()
    return [row[0] for row in actual] if actual and len(actual[0]) == 1 else actual


def _type(value: Any) -> str:
    if value is None:
        return "I32?"
    return {int: "I64", str: "String", float: "F64", list: "[String]"}[type(value)]


def names(data: Data, match: str, returned: str = "$b", **params: Any) -> list[Any]:
    return sorted(rows(data, match, f"{{ {returned} }}", **params))


# -- execution ------------------------------------------------------------------------------------


def test_a_lookup_by_key_gives_one_row_and_an_unknown_key_none():
    actual = "$p: Person { name: $name }"
    assert rows(PEOPLE, actual, "{ $p.name, $p.age }", name="Bob") == [("Bob", 25)]
    assert rows(PEOPLE, actual, "{ $p.name }", name="Nobody") == []


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("$p.age > 30", ["Charlie"]),
        ("$p.age < 28", ["Bob"]),
        ("$p.age >= 30", ["Alice", "Charlie"]),
        ("$p.age <= 28", ["Bob", "Diana"]),
        ("$p.age != 30", ["Bob", "Charlie", "Diana"]),
        ("$p.age = 30.5", []),
        ("$p.age > 29.5", ["Alice", "Charlie"]),
        ('$p.nickName = "O\'Al"', ["Alice"]),
        ('$p.tags contains "b"', ["Alice", "Charlie"]),
        ('not ($p.tags contains "b")', ["Bob"]),
        ('not ($p.tags contains "z")', ["Alice", "Bob"]),
        ("$p.tags is null", ["Diana"]),
        ("$p.age in [25, 28]", ["Bob", "Diana"]),
        ("not ($p.age in [25, null])", []),
        ("$p.age in [null]", []),
        ("not ($p.age in [null])", []),
        ("($p.age in [null]) is null", ["Alice", "Bob", "Charlie", "Diana"]),
        ("$p.nickName in []", []),
        ("not ($p.nickName in [])", ["Alice", "Bob", "Charlie", "Diana"]),
        ('$p.name starts_with "Al" or $p.age = 25', ["Alice", "Bob"]),
        ('$p.name contains "li"', ["Alice", "Charlie"]),
    ],
)
def test_a_condition_keeps_the_rows_for_which_it_is_true(condition, expected):
    assert names(PEOPLE, f"$p: Person {condition}", "$p") == expected


def test_a_null_never_satisfies_a_comparison_and_is_returned_as_null():
    data = Data({"Person": [person("a", age=1), person("b")]})
    for condition in ("$p.age = 1", "$p.age >= 0"):
        assert names(data, f"$p: Person {condition}", "$p") == ["a"]
    assert names(data, "$p: Person $p.age != 1", "$p") == []
    assert names(data, "$p: Person not ($p.age = 1)", "$p") == []
    assert names(data, "$p: Person { age: $x }", "$p", x=None) == []
    assert rows(data, '$p: Person { name: "b" }', "{ $p.age }") == [None]


@pytest.mark.parametrize(
    ("name", "value", "literal"),
    [
        ("weight", 0.1, "0.1"),
        ("ratio", 0.10000000149011612, "0.1"),
        ("age", 7, "7"),
        ("active", True, "true"),
        ("born", date(2024, 5, 1), 'date("2024-05-01")'),
        ("seen", datetime(2024, 5, 1, 12, 30), 'datetime("2024-05-01T12:30:00Z")'),
    ],
)
def test_every_kind_of_literal_filters_inline_and_alone(name, value, literal):
    data = Data({"Person": [person("a", **{name: value}), person("b")]})
    assert names(data, f"$p: Person {{ {name}: {literal} }}", "$p") == ["a"]
    assert names(data, f"$p: Person $p.{name} = {literal}", "$p") == ["a"]


def test_an_integer_in_a_list_with_floats_is_still_exact():
    big = [{"id": n, "name": n, "size": 2**53 + at} for at, n in enumerate("ab")]
    actual = rows(Data({"Company": big}), f"$c: Company $c.size in [0.5, {2**53 + 1}]", "{ $c }")
    assert actual == ["b"]


def test_an_inline_match_on_a_list_is_membership():
    assert names(PEOPLE, '$p: Person { tags: "b" }', "$p") == ["Alice", "Charlie"]


def test_order_has_nulls_first_and_last_and_breaks_ties_by_id():
    data = Data({"Person": [person("c", age=1), person("a"), person("b", age=1), person("d")]})
    assert rows(data, "$p: Person", "{ $p }", "order { $p.age }") == ["a", "d", "b", "c"]
    assert rows(data, "$p: Person", "{ $p }", "order { $p.age desc }") == ["b", "c", "a", "d"]
    assert rows(data, "$p: Person", "{ $p }", "order { $p.age desc, $p.name desc }") == [*"cbda"]


def test_ties_are_broken_by_every_variable_in_the_order_of_their_names():
    data = letters("xa", "xb", "ya", "yb")
    actual = rows(data, "$z knows $a", "{ $z, $a }", "order { $a.age }")
    assert actual == [("x", "a"), ("y", "a"), ("x", "b"), ("y", "b")]


def test_limit_and_offset_come_last():
    actual = "{ $p.name }", "order { $p.age desc } limit 2"
    assert rows(PEOPLE, "$p: Person", *actual) == ["Charlie", "Alice"]
    assert rows(PEOPLE, "$p: Person", actual[0], actual[1] + " offset 3") == ["Bob"]
    assert rows(PEOPLE, "$p: Person", "{ $p }", "limit 0") == []


def test_distinct_leaves_repeated_rows_out_nulls_too():
    data = Data({"Person": [person("a", age=1), person("b", age=1), person("c"), person("d")]})
    actual = rows(data, "$p: Person", "distinct { $p.age }", "order { $p.age }")
    assert actual == [None, 1]


def test_aggregates_group_by_everything_else():
    actual = rows(PEOPLE, "$a knows $b", "{ $a.name, count($b) as n }", "order { n desc }")
    assert actual == [("Alice", 2), ("Bob", 1)]
    assert rows(PEOPLE, "$p: Person", "{ count($p) }") == [4]
    assert rows(PEOPLE, "$p worksAt $c", "{ $c.name, avg($p.age), min($p.name), max($p.age) }") == [
        ("Acme", 30.0, "Alice", 30),
        ("Globex", 25.0, "Bob", 25),
    ]


def test_count_counts_values_and_distinct_ones():
    data = Data({"Person": [person("a", age=1), person("b", age=1), person("c")]})
    assert rows(data, "$p: Person", "{ count($p), count($p.age), count(distinct $p.age) }") == [
        (3, 2, 1)
    ]


def test_an_aggregate_without_groups_has_one_row_and_one_with_groups_none():
    nothing = '$p: Person { name: "Nobody" }'
    aggregates = "count($p), sum($p.age), avg($p.age), min($p.name), max($p.age)"
    assert rows(PEOPLE, nothing, f"{{ {aggregates} }}") == [(0, None, None, None, None)]
    assert rows(PEOPLE, nothing, "{ $p.age, count($p) }") == []
    data = Data({"Person": [person("a"), person("b")]})
    assert rows(data, "$p: Person", "{ $p.age, count($p), sum($p.age) }") == [(None, 2, None)]


# -- traversal ------------------------------------------------------------------------------------


def test_friends_employees_and_friends_of_friends():
    start = '$a: Person { name: "Alice" }'
    assert names(PEOPLE, f"{start} $a knows $b") == ["Bob", "Charlie"]
    assert names(PEOPLE, '$c: Company { name: "Acme" } $b worksAt $c') == ["Alice"]
    assert names(PEOPLE, '$c: Company { name: "Acme" } $c worksAt $b') == ["Alice"]
    assert names(PEOPLE, f"{start} $a knows $m $m knows $b") == ["Diana"]


def test_without_edges_a_traversal_is_empty_and_a_negation_everyone():
    data = letters(more="ab")
    assert names(data, "$a: Person $a knows $b") == []
    assert names(data, "$a: Person not { $a knows $_ }", "$a") == ["a", "b"]


@pytest.mark.parametrize(
    ("bounds", "expected"), [("{1,3}", "bcd"), ("{2,3}", "cd"), ("{2,2}", "c")]
)
def test_bounds_count_hops(bounds, expected):
    data = letters("ab", "bc", "cd", "de")
    assert names(data, f'$a: Person {{ name: "a" }} $a knows{bounds} $b') == [*expected]


def test_a_node_is_reached_at_its_shortest_distance_only():
    data = letters("ab", "bc", "ac", "cd")
    assert names(data, '$a: Person { name: "a" } $a knows{2,3} $b') == ["d"]


def test_cycles_end_and_never_give_the_source():
    data = letters("ab", "bc", "ca")
    assert names(data, '$a: Person { name: "a" } $a knows{1,9} $b') == ["b", "c"]
    assert rows(data, "$a: Person $a knows{1,9} $a", "{ $a }") == []


def test_a_self_loop_counts_once_and_at_the_first_hop():
    data = letters("aa", "ab", "ba")
    start = '$a: Person { name: "a" }'
    assert names(data, f"{start} $a knows $b") == ["a", "b"]
    assert names(data, f"{start} $a knows{{1,3}} $b") == ["a", "b"]
    assert names(data, f"{start} $a knows{{2,3}} $b") == []
    assert names(data, f"{start} $a <knows> $b") == ["a", "b"]
    assert rows(data, "$a: Person $a knows $a", "{ $a }") == ["a"]


def test_parallel_edges_count_once_unless_the_edge_is_bound():
    data = letters("ab", "ab", "ba")
    start = '$a: Person { name: "a" }'
    assert names(data, f"{start} $a knows $b") == ["b"]
    assert names(data, f"{start} $a $k:knows $b", "$k") == ["k0", "k1"]
    assert names(data, f"{start} $a <knows> $b") == ["b"]
    assert rows(data, f'{start} $b: Person {{ name: "b" }} $a $k:<knows> $b', "{ count($k) }") == [
        3
    ]


def test_a_bound_self_loop_is_one_row_in_any_direction():
    data = letters("aa")
    assert names(data, "$a $k:knows $b", "$k") == ["k0"]
    assert names(data, "$a $k:<knows> $b", "$k") == ["k0"]


def test_edge_properties_filter_and_are_returned():
    assert names(PEOPLE, "$a $k:knows $b $k.since > 2020") == ["Diana"]
    actual = rows(PEOPLE, "$a $k:knows $b", "{ $k.since, $b.name }", "order { $k.since }")
    assert actual == [(None, "Charlie"), (2020, "Bob"), (2021, "Diana")]


def test_between_two_types_there_is_one_hop_even_if_ids_coincide():
    data = Data(
        {
            "Person": [person("x"), person("y")],
            "Company": [{"id": "y", "name": "y", "size": 1}, {"id": "x", "name": "x", "size": 2}],
        },
        {
            "WorksAt": [
                {"id": "1", "src": "x", "dst": "y", "role": None},
                {"id": "2", "src": "y", "dst": "x", "role": None},
            ]
        },
    )
    start = '$a: Person { name: "x" }'
    assert names(data, f"{start} $a worksAt{{1,2}} $b") == ["y"]
    assert names(data, f"{start} $a worksAt{{2,3}} $b") == []


def test_filters_of_the_destination_and_of_what_is_between_apply():
    assert names(PEOPLE, "$a knows $b $b: Person { name: $n }", "$a", n="Diana") == ["Bob"]
    assert names(PEOPLE, "$a knows $b $b: Person { name: $n }", "$a", n="Nobody") == []
    between = '$m: Person { name: "Bob" } $a knows $m $m knows $b'
    assert rows(PEOPLE, between, "{ $a, $m, $b }") == [("Alice", "Bob", "Diana")]


def test_fan_out_is_a_product_and_unconnected_bindings_too():
    actual = rows(PEOPLE, "$a knows $b $a worksAt $c", "{ $a, $b, $c }")
    assert sorted(actual) == [
        ("Alice", "Bob", "Acme"),
        ("Alice", "Charlie", "Acme"),
        ("Bob", "Diana", "Globex"),
    ]
    assert rows(PEOPLE, "$a: Person $c: Company", "{ count($a) }") == [8]


def test_an_anonymous_end_multiplies_rows():
    assert names(PEOPLE, "$a: Person $a knows $_", "$a") == ["Alice", "Alice", "Bob"]
    counted = rows(PEOPLE, "$a: Person $a knows $_ $a knows $_", "{ $a, count($a) as n }")
    assert sorted(counted) == [("Alice", 4), ("Bob", 1)]


def test_two_bound_ends_are_a_membership_test():
    data = letters("ab", "ba", "bc", "ac")
    assert sorted(rows(data, "$a knows $b $b knows $a", "{ $a, $b }")) == [("a", "b"), ("b", "a")]
    triangle = "$a knows $b $b knows $c $a knows $c"
    actual = rows(data, triangle, "{ $a, $b, $c }")
    assert sorted(actual) == [("a", "b", "c"), ("b", "a", "c")]


def test_people_without_an_employer():
    assert names(PEOPLE, "$p: Person not { $p worksAt $_ }", "$p") == ["Charlie", "Diana"]
    assert names(PEOPLE, "$p: Person not { $c: Company $p worksAt $c }", "$p") == [
        "Charlie",
        "Diana",
    ]


@pytest.mark.parametrize(
    ("absent", "expected"),
    [
        ('$p worksAt $c $c.name = "Acme"', ["Bob", "Charlie", "Diana"]),
        ('$p worksAt $c $c: Company { name: "Acme" }', ["Bob", "Charlie", "Diana"]),
        ("$p knows $f $f.age > $p.age", ["Charlie", "Diana"]),
        ("$p knows $f not { $f worksAt $_ }", ["Charlie", "Diana"]),
        ("$p knows{1,2} $f $f worksAt $_", ["Bob", "Charlie", "Diana"]),
        ("$p.age > 26", ["Bob"]),
        ("$c worksAt $p", ["Charlie", "Diana"]),
        ("$x knows $p", ["Alice"]),
        ('$p: Person { name: "Bob" }', ["Alice", "Charlie", "Diana"]),
        ('$p.nickName = "O\'Al"', ["Bob", "Charlie", "Diana"]),
    ],
)
def test_negation_correlates_in_every_direction_and_nests(absent, expected):
    assert names(PEOPLE, f"$p: Person not {{ {absent} }}", "$p") == expected


def test_a_negation_over_two_outer_variables():
    data = letters("ab", "ac", "bc")
    actual = rows(data, "$x knows $m $m knows $y not { $x knows $y }", "{ $x, $y }")
    assert actual == []
    actual = rows(letters("ab", "bc"), "$x knows $m $m knows $y not { $x knows $y }", "{ $x, $y }")
    assert actual == [("a", "c")]


@pytest.mark.parametrize("condition", ["$p.age > 27", '$p.tags contains "a"', '$p.nickName = "x"'])
def test_a_condition_its_negation_and_its_unknown_partition_the_nodes(condition):
    parts = [
        names(PEOPLE, f"$p: Person {item}", "$p")
        for item in (condition, f"not ({condition})", f"({condition}) is null")
    ]
    assert sorted(item for part in parts for item in part) == ["Alice", "Bob", "Charlie", "Diana"]


# -- what is generated ----------------------------------------------------------------------------


def test_generated_queries_are_mostly_right_and_mostly_find_something():
    right = actual = 0
    for seed in range(40):
        random = Random(seed)
        world = make_world(random)
        catalog = world.catalog
        for _ in range(10):
            question = make_question(random, catalog)
            try:
                answered = ask(catalog, world.data, question.text, question.params)
            except QueryError:
                continue
            right += 1
            actual += bool(answered.cut())
    assert right > 360
    assert actual > 140
