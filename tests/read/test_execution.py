"""What queries return: values, conditions, columns, groups, order, limits."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.errors import InputError, ParameterError, QueryError, QueryNotFound
from omnigraph.write import conform
from tests.read.conftest import ask, column

SCHEMA = """\
node Person { name: String @key  age: I32? }
node Company { name: String @key }
edge Knows: Person -> Person { since: Date? }
edge WorksAt: Person -> Company

node Thing {
  slug: String @key
  small: F32?
  wide: F64?
  count: I64?
  big: U64?
  done: Bool?
  day: Date?
  moment: DateTime?
  tags: [String]?
  numbers: [I64]?
  displayName: String?
  kind: enum(green, red)?
  data: Blob?
}
node Empty { slug: String @key  number: I32?  word: String? }
edge Leads: Empty -> Empty
"""
NAN, INF = float("nan"), float("inf")
NOON = datetime(2024, 2, 29, 12, 0, 0, 1000)
EARLY = datetime(1969, 12, 31, 23, 59, 59, 999000)
THINGS = {
    "slug": ["a", "b", "c", "d", "e"],
    "small": pa.array([0.1, 0.5, -1.5, None, 1.5], pa.float32()),
    "wide": [0.1, 7.5, -0.0, None, 1e300],
    "count": [1, 2**53 + 1, -3, None, 2**63 - 1],
    "big": pa.array([1, 2**63 - 1, 2**64 - 1, None, 0], pa.uint64()),
    "done": [True, False, False, None, True],
    "day": [date(2024, 2, 29), date(1969, 12, 31), date(9999, 12, 31), None, date(2024, 1, 1)],
    "moment": pa.array([NOON, EARLY, datetime(9999, 12, 31), None, NOON], pa.timestamp("ms")),
    "tags": [["x", "y"], ["y"], [], None, ["X", 'it\'s "so"']],
    "numbers": [[1, 2], [2**53 + 1], [], None, [-1]],
    "displayName": ["Anna O'Neill", "b", "B", None, "é"],
    "kind": ["red", "green", "red", None, "green"],
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """A small graph of people, a type with every kind of value, and an empty one."""
    location = tmp_path_factory.mktemp("execution")
    with Graph.init(location / "g.omni", SCHEMA, durability="os") as graph:
        graph.load(
            {
                "Person": pa.table(
                    {
                        "name": ["Alice", "Bob", "Charlie", "Diana"],
                        "age": pa.array([30, 25, 35, 28], pa.int32()),
                    }
                ),
                "Company": pa.table({"name": ["Acme", "Globex"]}),
                "Knows": pa.table(
                    {"from": ["Alice", "Alice", "Bob"], "to": ["Bob", "Charlie", "Diana"]}
                ),
                "WorksAt": pa.table({"from": ["Alice", "Bob"], "to": ["Acme", "Globex"]}),
                "Thing": pa.table(THINGS),
            }
        )
        yield graph


def things(graph, condition, params=None):
    """The things that a condition keeps."""
    actual = column(graph, f"match {{ $t: Thing {condition} }} return {{ $t.slug }}", params)
    return "".join(actual)


# -- lookups and conditions -----------------------------------------------------------------------


def test_a_lookup_by_key_gives_one_row_or_none(graph):
    by_name = "match { $p: Person { name: $name } } return { $p.name, $p.age }"
    assert ask(graph, by_name, {"name": ("String", "Alice")}) == [{"p.name": "Alice", "p.age": 30}]
    assert ask(graph, by_name, {"name": ("String", "Nobody")}) == []


def test_a_quote_in_a_value_is_only_a_quote(graph):
    by_name = "match { $p: Person { name: $name } } return { $p.name }"
    for value in ("x' OR '1'='1", "Alice' --", 'Alice" or "" = "', "Alice\\", "%", "A_ice"):
        assert ask(graph, by_name, {"name": ("String", value)}) == []
    anna = {"name": ("String", "Anna O'Neill")}
    assert things(graph, "$t.displayName = $name", anna) == "a"
    assert things(graph, '$t.tags contains "it\'s \\"so\\""') == "e"


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        ("$p.age < 28", ["Bob"]),
        ("$p.age <= 28", ["Bob", "Diana"]),
        ("$p.age > 30", ["Charlie"]),
        ("$p.age >= 30", ["Alice", "Charlie"]),
        ("$p.age != 30", ["Bob", "Charlie", "Diana"]),
        ("$p.age = 30", ["Alice"]),
        ("30 > $p.age", ["Bob", "Diana"]),
        ("$p.age = 30.0", ["Alice"]),
        ("$p.age = 30.5", []),
        ("$p.age != 30.5", ["Alice", "Bob", "Charlie", "Diana"]),
        ("$p.age < 28.5", ["Bob", "Diana"]),
        ("$p.age = 3000000000", []),
        ("$p.age < 3000000000", ["Alice", "Bob", "Charlie", "Diana"]),
        ("$p.age > -3000000000", ["Alice", "Bob", "Charlie", "Diana"]),
        ("$p.age in [25, 35, 99]", ["Bob", "Charlie"]),
        ("$p.age in []", []),
        ('$p.name starts_with "A" or $p.age = 35', ["Alice", "Charlie"]),
        ('$p.name contains "li"', ["Alice", "Charlie"]),
        ('not ($p.name = "Alice")', ["Bob", "Charlie", "Diana"]),
        ("$p.age > 25 and ($p.age < 30 or $p.age = 35)", ["Charlie", "Diana"]),
        ("$p.age = null", []),
        ("true", ["Alice", "Bob", "Charlie", "Diana"]),
        ("false", []),
    ],
)
def test_conditions_select_rows(graph, condition, names):
    assert column(graph, f"match {{ $p: Person {condition} }} return {{ $p.name }}") == names


@pytest.mark.parametrize(
    ("inline", "standalone", "slugs"),
    [
        ("small: 0.1", "$t.small = 0.1", "a"),
        ("small: 1.5", "$t.small = 1.5", "e"),
        ("wide: 0.1", "$t.wide = 0.1", "a"),
        ("wide: 0.0", "$t.wide = 0.0", "c"),
        ("count: -3", "$t.count = -3", "c"),
        ("count: 9007199254740993", "$t.count = 9007199254740993", "b"),
        ("count: 9223372036854775807", "$t.count = 9223372036854775807", "e"),
        ("done: true", "$t.done = true", "ae"),
        ("done: false", "$t.done = false", "bc"),
        ('day: date("2024-02-29")', '$t.day = date("2024-02-29")', "a"),
        ('day: date("1969-12-31")', '$t.day = date("1969-12-31")', "b"),
        (
            'moment: datetime("2024-02-29T12:00:00.001Z")',
            '$t.moment = datetime("2024-02-29T13:00:00.001+01:00")',
            "ae",
        ),
        (
            'moment: datetime("1969-12-31T23:59:59.999")',
            '$t.moment = datetime("1969-12-31T23:59:59.999Z")',
            "b",
        ),
        ('tags: "y"', '$t.tags contains "y"', "ab"),
        ('tags: "X"', '$t.tags contains "X"', "e"),
        ("numbers: 9007199254740993", "$t.numbers contains 9007199254740993", "b"),
        ('displayName: "b"', '$t.displayName = "b"', "b"),
        ('kind: "red"', '$t.kind = "red"', "ac"),
    ],
)
def test_literals_of_every_type_select_inline_and_standalone(graph, inline, standalone, slugs):
    rows = column(graph, f"match {{ $t: Thing {{ {inline} }} }} return {{ $t.slug }}")
    assert "".join(rows) == slugs
    assert things(graph, standalone) == slugs


@pytest.mark.parametrize(
    ("condition", "slugs"),
    [
        ('$t.day < date("1970-01-01")', "b"),
        ('$t.day >= date("2024-02-29")', "ac"),
        ('$t.moment < datetime("1970-01-01T00:00:00Z")', "b"),
        ('$t.moment > datetime("2024-02-29T12:00:00Z")', "ace"),
        ('$t.moment <= datetime("2024-02-29T12:00:00Z")', "b"),
        ('$t.displayName < "b"', "ac"),
        ('$t.displayName > "b"', "e"),
        ('$t.displayName >= "B"', "bce"),
        ("$t.done", "ae"),
        ("not ($t.done)", "bc"),
        ("$t.done != true", "bc"),
        ("$t.big > 1", "bc"),
        ("$t.big > 9223372036854775807", "c"),
        ("$t.big > -1", "abce"),
        ("$t.count > $t.big", "e"),
        ("$t.count = $t.big", "a"),
        ("$t.count < $t.wide", "ce"),
        ("$t.small = $t.wide", ""),
        ("$t.wide > 1", "be"),
        ("$t.day is null", "d"),
        ("$t.tags is not null", "abce"),
        ('$t.kind in ["red", "blue"]', "ac"),
    ],
)
def test_comparisons_keep_types_exact(graph, condition, slugs):
    """Bytes for texts, days before 1970, whole 64 bits, signed beside unsigned numbers."""
    assert things(graph, condition) == slugs


@pytest.mark.parametrize(
    "condition",
    [
        "$t.small < 1000000",
        "$t.count != 1",
        'not ($t.displayName = "b")',
        '$t.tags contains "x" or $t.done',
        "$t.count in [1, 2]",
        'not ($t.tags contains "x")',
        "$t.big >= 0",
        '$t.displayName starts_with ""',
    ],
)
def test_a_null_satisfies_no_condition(graph, condition):
    assert "d" not in things(graph, condition)
    assert "d" not in things(graph, f"not ({condition})")
    assert "d" in things(graph, f"({condition}) is null")


SINGLE = [name for name in THINGS if name not in ("tags", "numbers")]
NULLS = ["[null]", "[null, null]", "[$x]", "[$x, null]", "$y"]


@pytest.mark.parametrize("options", NULLS)
@pytest.mark.parametrize("name", SINGLE)
def test_membership_in_a_list_of_nulls_is_unknown(graph, name, options):
    """Of a value of any type, whether the nulls are written or come as parameters."""
    scalar = graph.catalog.node_types["Thing"].properties[name].type.scalar
    params = {"x": (f"{scalar}?", None), "y": (f"[{scalar}]?", None)}
    condition = f"$t.{name} in {options}"
    assert things(graph, condition, params) == ""
    assert things(graph, f"not ({condition})", params) == ""
    assert things(graph, f"({condition}) is null", params) == "abcde"


@pytest.mark.parametrize("item", ["null", "1", "1.5", '"a"', "true", 'date("2024-02-29")'])
def test_membership_of_a_literal_in_a_list_of_nulls_is_unknown(graph, item):
    assert things(graph, f"({item} in [null]) is null") == "abcde"
    assert things(graph, f"({item} in []) is null") == ""


def test_a_null_in_a_list_makes_only_the_misses_unknown(graph):
    assert things(graph, "$t.count in [1, null]") == "a"
    assert things(graph, "not ($t.count in [1, null])") == ""
    assert things(graph, "($t.count in [1, null]) is null") == "bcde"


@pytest.mark.parametrize("count", [9_999, 10_000, 10_001, 30_000])
def test_a_list_of_any_length_selects_rows(graph, count):
    """Storage is asked with short ones only."""
    params = {"x": ("[I64]", [-3, *range(10, 9 + count)])}
    assert things(graph, "$t.count in $x", params) == "c"
    assert things(graph, "not ($t.count in $x)", params) == "abe"
    assert (
        things(graph, "$t.slug in $x", {"x": ("[String]", ["a", *map(str, range(count))])}) == "a"
    )


def test_a_wrong_date_is_an_error(graph):
    with pytest.raises(QueryError):
        things(graph, '$t.day = date("2023-02-29")')


# -- parameters -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "condition", "slugs"),
    [
        ("String", "b", "$t.displayName = $x", "b"),
        ("F32", 0.1, "$t.small = $x", "a"),
        ("F64", 0.1, "$t.wide = $x", "a"),
        ("F64", 1, "$t.count = $x", "a"),
        ("I64", 2**53 + 1, "$t.count = $x", "b"),
        ("I64", "9007199254740993", "$t.count = $x", "b"),
        ("I32", 1, "$t.count = $x", "a"),
        ("U64", 2**63 - 1, "$t.big = $x", "b"),
        ("Bool", False, "$t.done = $x", "bc"),
        ("Date", "2024-02-29", "$t.day = $x", "a"),
        ("DateTime", "2024-02-29T12:00:00.001Z", "$t.moment = $x", "ae"),
        ("[String]", ["a", "e", "zz"], "$t.slug in $x", "ae"),
        ("[I64]", [], "$t.count in $x", ""),
        ("String", "y", "$t.tags contains $x", "ab"),
        ("String", "green", "$t.kind = $x", "be"),
    ],
)
def test_parameters_of_every_type(graph, kind, value, condition, slugs):
    assert things(graph, condition, {"x": (kind, value)}) == slugs


@pytest.mark.parametrize("params", [{}, {"x": None}])
@pytest.mark.parametrize(
    "condition",
    ["$t.count = $x", "$t.count != $x", "not ($t.count = $x)", "$t.numbers contains $x"],
)
def test_a_null_parameter_matches_nothing(graph, condition, params):
    text = f"query q($x: I64?) {{ match {{ $t: Thing {condition} }} return {{ $t.slug }} }}"
    assert graph.query(text, None, params).rows() == []
    inline = "query q($x: I64?) { match { $t: Thing { count: $x } } return { $t.slug } }"
    assert graph.query(inline, None, params).rows() == []


@pytest.mark.parametrize(
    "text",
    [
        "match { $p: Person { name: $x } } return { $p }",
        "match { $p: Person $p.name = $x } return { $p }",
        "match { $a: Person $a knows $b $b: Person { name: $x } } return { $b }",
        "match { $p: Person not { $p knows $b $b.name = $x } } return { $p }",
        "match { $p: Person } return { $x }",
    ],
)
def test_a_missing_parameter_is_an_error(graph, text):
    query = f"query q($x: String) {{ {text} }}"
    with pytest.raises(ParameterError, match="parameter 'x' not provided"):
        graph.query(query)
    with pytest.raises(ParameterError):
        graph.query(query, None, {"x": None})
    with pytest.raises(ParameterError):
        graph.query(query, None, {"x": 12})


def test_a_parameter_hides_a_variable_of_its_name(graph):
    text = "match { $p: Person } return { $p } limit 1"
    assert ask(graph, text, {"p": ("String", "given")}) == [{"p": "given"}]


# -- what is returned -----------------------------------------------------------------------------


def test_columns_are_named_by_alias_property_variable_or_literal(graph):
    result = graph.query(
        """query q($x: String, $list: [I64]) {
            match { $p: Person { name: "Alice" } $p knows $f }
            return { $p, $p.name, $f.age as years, $x, $list, 1, "text" as words,
                     $p.age > 18 as adult }
            order { $f.age }
        }""",
        None,
        {"x": "given", "list": [1, 2]},
    )
    assert result.columns == ["p", "p.name", "years", "x", "list", "literal", "words", "adult"]
    assert list(result.rows()[0].values()) == [
        "Alice", "Alice", 25, "given", [1, 2], 1, "text", True
    ]  # fmt: skip


def test_an_aggregate_is_called_like_its_argument(graph):
    rows = ask(graph, "match { $p: Person } return { count($p), max($p.age) }")
    assert rows == [{"p": 4, "p.age": 35}]


def test_values_come_back_exactly(graph):
    rows = ask(
        graph,
        """match { $t: Thing }
        return { $t.small as f, $t.wide as w, $t.count as i, $t.big as u, $t.done as b, $t.day as d,
                 $t.moment as m, $t.tags as l, $t.numbers as n, $t.displayName as s, $t.kind as k }
        order { $t.slug }""",
    )
    assert rows[2] == {
        "f": -1.5, "w": 0.0, "i": -3, "u": 2**64 - 1, "b": False, "d": date(9999, 12, 31),
        "m": datetime(9999, 12, 31), "l": [], "n": [], "s": "B", "k": "red",
    }  # fmt: skip
    assert set(rows[3].values()) == {None}
    assert [row["i"] for row in rows] == [1, 2**53 + 1, -3, None, 2**63 - 1]
    assert [row["m"] for row in rows[:2]] == [NOON, EARLY]
    assert [row["w"] for row in rows] == [0.1, 7.5, 0.0, None, 1e300]
    assert rows[4]["l"] == ["X", 'it\'s "so"']


def test_truth_values_are_columns_and_know_null(graph):
    rows = ask(
        graph,
        """match { $t: Thing }
        return { $t.count > 1 as more, $t.done = true or $t.count = 1 as either,
                 $t.done is null as no }
        order { $t.slug }""",
    )
    assert [tuple(row.values()) for row in rows] == [
        (False, True, False),
        (True, False, False),
        (False, False, False),
        (None, None, True),
        (True, True, False),
    ]


def test_a_blob_is_not_a_value(graph):
    with pytest.raises(QueryError, match="T24"):
        ask(graph, "match { $t: Thing } return { $t.data }")


def test_now_is_one_moment_that_a_caller_may_set(graph):
    before = datetime.now(UTC).replace(tzinfo=None) - timedelta(milliseconds=1)
    rows = ask(graph, "match { $p: Person } return { now() }")
    after = datetime.now(UTC).replace(tzinfo=None)
    (moment,) = {row["__nanograph_now"] for row in rows}
    assert before <= moment <= after
    assert things(graph, "$t.moment < now()") == "abe"
    text = "query q() { match { $t: Thing $t.moment <= now() } return { $t.slug } }"
    actual = graph.query(text, None, {"__nanograph_now": "1970-01-01T00:00:00Z"}).rows()
    assert actual == [{"t.slug": "b"}]


def test_distinct_rows(graph):
    text = "match { $t: Thing } return distinct { $t.done, $t.kind } order { $t.kind, $t.done }"
    assert [tuple(row.values()) for row in ask(graph, text)] == [
        (None, None), (False, "green"), (True, "green"), (False, "red"), (True, "red")
    ]  # fmt: skip
    repeated = "match { $a: Thing $b: Thing } return distinct { $a.wide }"
    assert len(ask(graph, repeated)) == 5
    assert len(ask(graph, "match { $a: Thing $b: Thing } return distinct { $a.tags }")) == 5
    assert len(ask(graph, "match { $a: Thing $b: Thing } return { $a.tags }")) == 25


def test_a_list_of_floats_does_not_hold_an_integer_that_is_none(tmp_path):
    """2^53 + 1 would be rounded to 2^53."""
    schema = "node N { k: String @key  x: [F64]? }"
    with Graph.init(tmp_path / "floats.omni", schema, durability="os") as graph:
        graph.load([{"type": "N", "data": {"k": "a", "x": [9007199254740992.0, 1.0]}}])
        for number, count in ((2**53, 1), (2**53 + 1, 0), (1, 1)):
            text = f"match {{ $n: N $n.x contains {number} }} return {{ $n.k }}"
            assert len(ask(graph, text)) == count
            text = f"match {{ $n: N not ($n.x contains {number}) }} return {{ $n.k }}"
            assert len(ask(graph, text)) == 1 - count


def test_a_list_of_unconnected_bindings_is_their_product(graph):
    rows = ask(graph, "match { $p: Person $c: Company } return { $p.name, $c.name }")
    assert len({tuple(row.values()) for row in rows}) == len(rows) == 8


def test_one_variable_bound_twice_has_both_conditions(graph):
    text = 'match { $p: Person { age: 30 } $p: Person { name: "Alice" } } return { $p.name }'
    assert ask(graph, text) == [{"p.name": "Alice"}]
    assert ask(graph, text.replace("30", "25")) == []


# -- aggregates -----------------------------------------------------------------------------------


def test_groups_and_their_counts(graph):
    friends = "match { $p: Person $p knows $f } return { $p.name, count($f) as friends }"
    assert ask(graph, f"{friends} order {{ friends desc }}") == [
        {"p.name": "Alice", "friends": 2},
        {"p.name": "Bob", "friends": 1},
    ]
    assert ask(graph, f"{friends} order {{ friends desc }} limit 1") == [
        {"p.name": "Alice", "friends": 2}
    ]


def test_aggregates_over_everything(graph):
    rows = ask(
        graph,
        """match { $p: Person }
        return { count($p) as n, avg($p.age) as mean, sum($p.age) as total, min($p.age) as low,
                 max($p.age) as high, min($p.name) as first, max($p.name) as last }""",
    )
    assert list(rows[0].values()) == [4, 29.5, 118.0, 25, 35, "Alice", "Diana"]
    assert isinstance(rows[0]["total"], float)
    assert isinstance(rows[0]["low"], int)


def test_aggregates_per_company(graph):
    rows = ask(
        graph,
        """match { $p: Person $p worksAt $c }
        return { $c.name, avg($p.age) as mean, min($p.age) as low, max($p.age) as high }
        order { $c.name }""",
    )
    assert [tuple(row.values()) for row in rows] == [
        ("Acme", 30.0, 30, 30), ("Globex", 25.0, 25, 25)
    ]  # fmt: skip


def test_friends_of_friends_are_counted(graph):
    text = """match { $p: Person { name: "Alice" } $p knows $f $f knows $g }
              return { count($g) as n }"""
    assert ask(graph, text) == [{"n": 1}]


def test_nulls_are_not_counted_but_their_rows_are(graph):
    text = """match { $t: Thing }
              return { count($t) as rows, count($t.done) as given,
                       count(distinct $t.done) as kinds }"""
    assert ask(graph, text) == [{"rows": 5, "given": 4, "kinds": 2}]


def test_nulls_are_a_group_of_their_own(graph):
    text = (
        "match { $t: Thing } return { $t.kind, count($t) as n, sum($t.count) as s } order { n, s }"
    )
    assert [tuple(row.values()) for row in ask(graph, text)] == [
        (None, 1, None), ("red", 2, -2.0), ("green", 2, float(2**53 + 1 + 2**63 - 1))
    ]  # fmt: skip


def test_extremes_of_every_ordered_type(graph):
    rows = ask(
        graph,
        """match { $t: Thing $t.slug != "b" }
        return { min($t.day) as d, max($t.moment) as m, max($t.big) as u, min($t.small) as f,
                 max($t.displayName) as s, min($t.count) as i }""",
    )
    assert list(rows[0].values()) == [
        date(2024, 1, 1), datetime(9999, 12, 31), 2**64 - 1, -1.5, "é", -3
    ]  # fmt: skip


def test_nothing_to_aggregate(graph):
    """Without groups there is one row, with groups none."""
    aggregates = """count($e) as n, count($e.word) as w, sum($e.number) as s, avg($e.number) as a,
                    min($e.word) as low, max($e.number) as high"""
    rows = ask(graph, f"match {{ $e: Empty }} return {{ {aggregates} }}")
    assert list(rows[0].values()) == [0, 0, None, None, None, None]
    assert len(rows) == 1
    grouped = f"match {{ $e: Empty }} return {{ $e.word, {aggregates} }}"
    assert ask(graph, grouped) == []
    nobody = 'match { $p: Person { name: "Nobody" } $p knows $f } return { count($f) as n }'
    assert ask(graph, nobody) == [{"n": 0}]
    gone = "match { $p: Person not { $q: Person $q.age >= $p.age } } return { max($p.age) as m }"
    assert ask(graph, gone) == [{"m": None}]


def test_no_values_among_rows(graph):
    text = """match { $t: Thing { slug: "d" } }
              return { count($t) as n, count($t.count) as c, sum($t.count) as s,
                       min($t.slug) as m }"""
    assert list(ask(graph, text)[0].values()) == [1, 0, None, "d"]


def test_groups_come_in_the_order_of_their_first_rows(graph):
    plain = ask(graph, "match { $t: Thing } return { $t.kind }")
    grouped = ask(graph, "match { $t: Thing } return { $t.kind, count($t) as n }")
    assert [row["t.kind"] for row in grouped] == list(dict.fromkeys(r["t.kind"] for r in plain))


def test_a_type_without_rows(graph):
    assert ask(graph, "match { $e: Empty } return { $e.slug }") == []
    assert ask(graph, "match { $e: Empty $e leads $f } return { $f }") == []
    assert ask(graph, "match { $p: Person $e: Empty } return { $p }") == []
    left = "match { $p: Person not { $e: Empty $e.slug = $p.name } } return { count($p) as n }"
    assert ask(graph, left) == [{"n": 4}]


@pytest.fixture(scope="module")
def layers(tmp_path_factory):
    """Three layers of 20 nodes, everybody joined to all of the next: 8,000 paths."""
    schema = "node N { k: String @key  layer: I32  n: I64 }\nedge E: N -> N"
    location = tmp_path_factory.mktemp("layers")
    with Graph.init(location / "g.omni", schema, durability="os") as graph:
        names = [[f"{layer}-{n:02}" for n in range(20)] for layer in range(3)]
        pairs = [(a, b) for low in (0, 1) for a in names[low] for b in names[low + 1]]
        graph.load(
            {
                "N": pa.table(
                    {
                        "k": [name for layer in names for name in layer],
                        "layer": pa.array(
                            [layer for layer in range(3) for _ in range(20)], pa.int32()
                        ),
                        "n": [n for _ in range(3) for n in range(20)],
                    }
                ),
                "E": pa.table({"from": [a for a, _ in pairs], "to": [b for _, b in pairs]}),
            }
        )
        yield graph


PATHS = "match { $a: N { layer: 0 } $a e $b $b e $c }"


@pytest.mark.parametrize(
    ("returned", "value"),
    [
        ("count($a)", 8_000),
        ("count($c)", 8_000),
        ("count($c.n)", 8_000),
        ("count(distinct $c)", 20),
        ("count(distinct $b.n)", 20),
        ("sum($c.n)", 76_000.0),
        ("sum($a.n)", 76_000.0),
        ("avg($c.n)", 9.5),
        ("min($c.k)", "2-00"),
        ("max($b.n)", 19),
    ],
)
def test_every_path_counts_where_rows_are_counted(layers, returned, value):
    """Rows that have become equal are merged on the way; the numbers must not tell."""
    assert ask(layers, f"{PATHS} return {{ {returned} as x }}") == [{"x": value}]


def test_every_path_counts_in_groups_rows_and_limits(layers):
    rows = ask(
        layers, f"{PATHS} return {{ $c.k, count($a) as n, sum($a.n) as s }} order {{ $c.k }}"
    )
    assert [tuple(row.values()) for row in rows] == [(f"2-{n:02}", 400, 3800.0) for n in range(20)]
    assert len(ask(layers, f"{PATHS} return {{ $c.k }}")) == 8_000
    assert len(ask(layers, f"{PATHS} return distinct {{ $c.k }}")) == 20
    assert len(ask(layers, f"{PATHS} return {{ $c.k }} limit 500 offset 7800")) == 200
    pages = [
        ask(layers, f"{PATHS} return {{ $c.k }} limit 3000 offset {n}") for n in (0, 3000, 6000)
    ]
    assert [len(page) for page in pages] == [3_000, 3_000, 2_000]
    everything = sorted(row["c.k"] for page in pages for row in page)
    assert everything == sorted(row["c.k"] for row in ask(layers, f"{PATHS} return {{ $c.k }}"))


def test_paths_are_ordered_by_all_their_variables(layers):
    rows = ask(layers, f"{PATHS} return {{ $a.k, $b.k, $c.k }} order {{ $c.n desc }} limit 401")
    assert rows[0] == {"a.k": "0-00", "b.k": "1-00", "c.k": "2-19"}
    assert rows[1] == {"a.k": "0-00", "b.k": "1-01", "c.k": "2-19"}
    assert rows[399] == {"a.k": "0-19", "b.k": "1-19", "c.k": "2-19"}
    assert rows[400] == {"a.k": "0-00", "b.k": "1-00", "c.k": "2-18"}


# -- order and limit ------------------------------------------------------------------------------


def order_of(graph, keys, tail=""):
    text = f"match {{ $t: Thing }} return {{ $t.slug as s }} order {{ {keys} }} {tail}"
    return "".join(row["s"] for row in ask(graph, text))


@pytest.mark.parametrize(
    ("keys", "slugs"),
    [
        ("$t.slug", "abcde"),
        ("$t.slug desc", "edcba"),
        ("s desc", "edcba"),
        ("$t.count", "dcabe"),
        ("$t.count desc", "ebacd"),
        ("$t.big", "deabc"),
        ("$t.small asc", "dcabe"),
        ("$t.wide", "dcabe"),
        ("$t.wide desc", "ebacd"),
        ("$t.displayName", "dacbe"),
        ("$t.day", "dbeac"),
        # Ties by the id, ascending whatever the direction of the key.
        ("$t.moment", "dbaec"),
        ("$t.moment desc", "caebd"),
        ("$t.done", "dbcae"),
        ("$t.done desc", "aebcd"),
        ("$t.kind, $t.count desc", "debac"),
        ("$t.kind desc, $t.slug desc", "caebd"),
    ],
)
def test_order(graph, keys, slugs):
    assert order_of(graph, keys) == slugs
    for limit in range(6):
        assert order_of(graph, keys, f"limit {limit}") == slugs[:limit]
        assert order_of(graph, keys, f"limit 2 offset {limit}") == slugs[limit : limit + 2]


def test_order_with_a_condition(graph):
    text = "match { $p: Person $p.age > $age } return { $p.name } order { $p.age desc }"
    assert ask(graph, text, {"age": ("I32", 30)}) == [{"p.name": "Charlie"}]
    top = "match { $p: Person } return { $p.name } order { $p.age desc } limit 2"
    assert [row["p.name"] for row in ask(graph, top)] == ["Charlie", "Alice"]


def test_order_by_a_column_that_is_computed(graph):
    text = """match { $p: Person } return { $p.name, $p.age > 28 as old }
              order { old desc, $p.name desc }"""
    assert [row["p.name"] for row in ask(graph, text)] == ["Charlie", "Alice", "Diana", "Bob"]


def test_order_by_the_id_of_a_returned_variable(graph):
    text = "match { $p: Person } return { $p as who } order { who desc } limit 2"
    assert ask(graph, text) == [{"who": "Diana"}, {"who": "Charlie"}]


def test_groups_are_ordered_by_what_is_returned(graph):
    text = """match { $t: Thing } return { $t.kind as k, max($t.small) as m, count($t) as n }
              order { n desc, m desc }"""
    assert [row["k"] for row in ask(graph, text)] == ["green", "red", None]
    with pytest.raises(QueryError, match="T31"):
        ask(graph, "match { $t: Thing } return { count($t) as n } order { $t.slug }")


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """Numbers that are not finite: they are refused here, but other programs may write them."""
    numbers = {"a": NAN, "b": None, "c": INF, "d": -INF, "e": 0.0, "f": -0.0, "g": NAN, "h": 1.0}
    schema = "node N { k: String @key  x: F64? }"
    location = tmp_path_factory.mktemp("odd")
    with (
        pytest.MonkeyPatch.context() as patch,
        Graph.init(location / "g.omni", schema, durability="os") as graph,
    ):
        patch.setattr(conform, "flaw", lambda *_: None)
        graph.append({"N": pa.table({"k": [*numbers], "x": [*numbers.values()]})})
        yield graph


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("$n.x", "bdefhcag"),
        ("$n.x desc", "agchefdb"),
        ("$n.x desc, $n.k desc", "gachfedb"),
    ],
)
def test_null_is_the_smallest_and_nan_the_greatest(odd, keys, expected):
    text = f"match {{ $n: N }} return {{ $n.k }} order {{ {keys} }}"
    assert "".join(row["n.k"] for row in ask(odd, text)) == expected
    for limit in (1, 2, 3):
        rows = ask(odd, f"{text} limit {limit}")
        assert "".join(row["n.k"] for row in rows) == expected[:limit]


def test_nan_is_equal_to_nan_in_groups_and_zeros_are_one(odd):
    text = "match { $n: N } return { $n.x, count($n) as n } order { $n.x }"
    assert [row["n"] for row in ask(odd, text)] == [1, 1, 2, 1, 1, 2]
    assert len(ask(odd, "match { $n: N } return distinct { $n.x }")) == 6
    assert ask(odd, "match { $n: N } return { count(distinct $n.x) as n }") == [{"n": 5}]
    (row,) = ask(odd, "match { $n: N } return { min($n.x) as low, max($n.x) as high }")
    assert row["low"] == -INF
    assert math.isnan(row["high"])


def test_many_rows_in_order_with_a_small_limit(layers):
    text = (
        "match { $a: N $b: N } return { $a.n, $b.n, $a.k, $b.k } order { $a.n desc, $b.n } limit 5"
    )
    rows = [tuple(row.values()) for row in ask(layers, text)]
    assert rows == [(19, 0, f"{a}-19", f"{b}-00") for a in range(3) for b in range(3)][:5]


@pytest.mark.parametrize("tail", ["", "order { $p.name }"])
def test_limits_at_the_edges(graph, tail):
    text = f"match {{ $p: Person }} return {{ $p.name }} {tail}"
    assert ask(graph, f"{text} limit 0") == []
    assert len(ask(graph, f"{text} limit 4")) == 4
    assert len(ask(graph, f"{text} limit 99")) == 4
    assert ask(graph, f"{text} limit 1 offset 4") == []
    assert ask(graph, f"{text} limit 0 offset 2") == []
    assert graph.query(f"query q() {{ {text} limit 0 }}").columns == ["p.name"]


def test_a_limit_on_groups(graph):
    text = "match { $p: Person } return { count($p) as n } limit 0"
    assert ask(graph, text) == []
    assert ask(graph, text.replace("limit 0", "limit 1 offset 1")) == []


# -- which query ----------------------------------------------------------------------------------

TWO = """
query names() { match { $p: Person } return { $p.name } order { $p.name } }
query count() { match { $p: Person } return { count($p) as n } }
"""


def test_a_query_is_chosen_by_name(graph, tmp_path):
    path = tmp_path / "two.gq"
    path.write_text(TWO, "utf-8")
    for source in (TWO, path):
        assert graph.query(source, "count").rows() == [{"n": 4}]
        assert graph.query(source, name="names").query_name == "names"
        with pytest.raises((QueryNotFound, InputError), match="multiple queries"):
            graph.query(source)
        with pytest.raises(QueryNotFound, match="'nothing' not found"):
            graph.query(source, "nothing")


def test_a_mutation_is_not_read(graph):
    before = graph.commits()[0].commit_id
    with pytest.raises((QueryError, InputError), match="mutation"):
        graph.query('query q() { insert Person { name: "Eve" } }')
    assert graph.commits()[0].commit_id == before
    assert things(graph, "") == "abcde"


def test_the_same_text_is_compiled_once_and_asked_again(graph):
    text = "query q($age: I32) { match { $p: Person $p.age > $age } return { count($p) as n } }"
    assert [graph.query(text, None, {"age": age}).rows()[0]["n"] for age in (0, 29, 99)] == [
        4,
        2,
        0,
    ]
