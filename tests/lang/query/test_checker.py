"""The checker: types, bindings and directions of a query, and the code of every error."""

from __future__ import annotations

import pytest

from omnigraph.lang.query import typed
from omnigraph.lang.query.checked import CheckedMutation, CheckedRead, Direction, Hop, StatementKind
from omnigraph.lang.query.codes import TYPES
from omnigraph.lang.types import PropType, Scalar
from omnigraph.plan.explain import show
from tests.lang.query.world import check, check_read, codes_of, errors_of, examine, read

NEAR = "nearest($d.embedding, $q)"
BM25 = "bm25($d.title, $s)"
VECTOR = "$q: Vector(3), $s: String"


def mutation(statement: str, params: str = "") -> str:
    return f"query m({params}) {{\n{statement}\n}}"


def doc(
    result: str = "$d.slug", tail: str = "", params: str = VECTOR, match: str = "$d: Doc"
) -> str:
    return read(match, result, params, tail)


# -- every code: text, line and column of the error, a part of the message ---------------------

Case = tuple[str, str, int, int, str]

WRONG: list[Case] = [
    ("T1", read("$p: Nobody"), 2, 5, "unknown node type `Nobody`"),
    ("T1", read("$p: Knows"), 2, 5, "`Knows` is an edge type"),
    ("T1", read("$p: Named"), 2, 5, "`Named` is an interface"),
    ("T2", read("$p: Person { agee: 1 }"), 2, 14, "type `Person` has no property `agee`"),
    ("T2", read('$p: Person { id: "x" }'), 2, 14, "no property `id`"),
    ("T3", read('$p: Person { age: "x" }'), 2, 19, "`Person.age` is I32?, got String"),
    ("T3", read("$p: Person { name: 1 }"), 2, 20, "`Person.name` is String, got I64"),
    ("T3", read('$p: Person { kind: "enemy" }'), 2, 20, "invalid enum value 'enemy'"),
    ("T3", read('$p: Person { tags: ["a"] }'), 2, 20, "list equality is not supported"),
    ("T3", read('$p: Person { picture: "a" }'), 2, 14, "Blob property"),
    ("T3", read("$p: Doc { other: [1.0, 2.0] }", "$p.slug"), 2, 11, "Vector property"),
    ("T3", read("$p: Person { name: null }"), 2, 20, "never null"),
    ("T3", read('$p: Person { born: "2024-01-01" }'), 2, 20, "got String"),
    ("T3", mutation('insert Person { name: "a" age: 3000000000 }'), 2, 32, "out of range"),
    ("T3", mutation('insert Person { name: "a" age: 1.5 }'), 2, 32, "has a fraction"),
    (
        "T3",
        mutation('insert Person { name: "a" age: 9007199254740993.0 }'),
        2,
        32,
        "may be rounded",
    ),
    ("T3", mutation('insert Person { name: "a" visits: -1 }'), 2, 35, "out of range"),
    ("T3", mutation('insert Person { name: "a" kind: "foe" }'), 2, 33, "invalid enum value"),
    ("T3", mutation('insert Person { name: "a" tags: ["x", null] }'), 2, 33, "cannot be null"),
    ("T3", mutation("insert Person { name: null }"), 2, 23, "never null"),
    ("T3", mutation('insert Doc { slug: "a" title: "t" embedding: [1.0] }'), 2, 46, "list of 1"),
    ("T3", mutation('delete Person where age = "x"'), 2, 21, "cannot compare"),
    ("T4", read("$p: Person $p likes $q"), 2, 15, "unknown edge type `likes`"),
    ("T5", read("$c: Company $c knows $p"), 2, 13, "`$c` is a `Company`"),
    ("T5", read("$p: Person $c: Company $p knows $c"), 2, 24, "`Knows` expects `Person`"),
    ("T5", read("$d: Doc $x worksAt $d", "$d.slug"), 2, 9, "`$d` is a `Doc`"),
    ("T6", read("$p: Person $p.agee = 1"), 2, 12, "no property `agee`"),
    ("T6", read("$p: Person $x.age = 1"), 2, 12, "variable `$x` is not bound"),
    ("T6", read("$p: Person", "$p.id"), 3, 12, "no property `id`"),
    ("T6", read("$p $w:knows $q", "$w.src"), 3, 12, "no property `src`"),
    ("T7", read('$p: Person $p.age = "x"'), 2, 12, "cannot compare I32? with String"),
    ("T7", read("$p: Person $p.age = $a", params="$a: String"), 2, 12, "cannot compare"),
    ("T7", read("$p: Person { age: $a }", params="$a: String"), 2, 19, "cannot compare"),
    ("T7", read("$p: Person $p = 1"), 2, 12, "cannot compare node Person with I64"),
    ("T7", read("$p: Person $q: Person $p = $q"), 2, 23, "cannot compare node Person"),
    ("T7", read('$p: Person $p.tags = "x"'), 2, 12, "lists cannot be compared"),
    ("T7", read("$p: Doc $p.other = $p.other", "$p.slug"), 2, 9, "vectors cannot be compared"),
    ("T7", read('$p: Person $p.picture = "x"'), 2, 12, "Blobs cannot be compared"),
    ("T7", read("$p: Person $p.age contains 1"), 2, 12, "`contains` needs a list"),
    ("T7", read('$p: Person $p.tags contains ["a"]'), 2, 12, "single value on the right"),
    ("T7", read("$p: Person $p.tags contains 1"), 2, 12, "cannot look for I64"),
    ("T7", read("$p: Person $p.age starts_with 1"), 2, 12, "needs two Strings"),
    ("T7", read("$p: Person $p.born = now()"), 2, 12, "cannot compare Date? with DateTime"),
    ("T7", read("$p: Person $p.age in 3"), 2, 22, "`in` needs a list"),
    ("T7", read('$p: Person $p.age in ["a"]'), 2, 12, "cannot look for I32?"),
    ("T7", read('$p: Person $p.tags in ["a"]'), 2, 12, "single value on the left"),
    ("T7", read("$p: Person $p is null"), 2, 12, "`is null` tests values"),
    ("T7", mutation("update Person set { born: now() } where age = 1"), 2, 27, "cannot assign"),
    ("T8", read("$p: Person", "sum($p.name) as s"), 3, 12, "`sum` needs a number, got String"),
    ("T8", read("$p: Person", "avg($p.marks) as s"), 3, 12, "`avg` needs a number"),
    ("T8", read("$p: Person", "max($p.tags) as s"), 3, 12, "`max` needs"),
    ("T8", read("$p: Person", "min($p) as s"), 3, 12, "got node Person"),
    ("T8", read("$p: Person", "sum(distinct $p.age) as s"), 3, 12, "`distinct` works with `count`"),
    ("T9", read("$p: Person", "count($p) as n 1 as one"), 3, 27, "beside an aggregate"),
    ("T9", read("$p: Person", "count(count($p)) as n"), 3, 18, "top of a projection"),
    ("T9", read("$p: Person count($p) > 1"), 2, 12, "top of a projection"),
    ("T9", read("$p: Person not { $x: Person }"), 2, 12, "bound outside it"),
    ("T9", read("$p: Person not { not { $p knows $_ } }"), 2, 12, "bound outside it"),
    ("T10", mutation("insert Nothing { a: 1 }"), 2, 8, "unknown node or edge type `Nothing`"),
    ("T10", mutation("delete Named where name = 1"), 2, 8, "unknown node or edge type"),
    ("T11", mutation('insert Person { name: "a" zip: 1 }'), 2, 27, "no property `zip`"),
    ("T11", mutation("delete Person where zip = 1"), 2, 21, "no property `zip`"),
    ("T11", mutation('delete Person where picture = "a"'), 2, 21, "Blob property `picture`"),
    ("T11", mutation("delete Person where $p.age = 1"), 2, 21, "without a variable"),
    ("T11", mutation('delete Doc where search(title, "x")'), 2, 18, "cannot be used in a mutation"),
    ("T11", mutation('delete Person where from = "a"'), 2, 21, "no property `from`"),
    ("T12", mutation("insert Person { age: 1 }"), 2, 8, "needs `name`"),
    ("T12", mutation('insert WorksAt { from: "a" role: "b" }'), 2, 8, "needs `to`"),
    ("T12", mutation('insert WorksAt { from: "a" to: "b" }'), 2, 8, "needs `role`"),
    ("T13", mutation('insert Person { name: "a" name: "b" }'), 2, 27, "assigned twice"),
    ("T14", mutation("insert Person { name: $n }"), 2, 23, "must be a declared query parameter"),
    ("T14", mutation("delete Person where name = $n"), 2, 28, "must be a declared query parameter"),
    ("T15", read("$p: Person $p knows{0,2} $q"), 2, 12, "at least 1"),
    ("T15", read("$p: Person $p knows{3,1} $q"), 2, 12, "invalid hop bounds {3,1}"),
    ("T15", read("$p: Person $p knows{1,} $q"), 2, 12, "unbounded traversal is disabled"),
    ("T15", doc("nearest($x.embedding, $q) as n"), 3, 20, "`$x` is not bound"),
    ("T15", doc("nearest($d.nothing, $q) as n"), 3, 20, "no property `nothing`"),
    ("T15", doc("nearest($d.title, $q) as n"), 3, 20, "needs a Vector property"),
    ("T15", doc("nearest($d.other, $q) as n"), 3, 30, "dimension mismatch"),
    ("T15", doc("nearest($d.embedding, [1.0]) as n"), 3, 34, "dimension mismatch"),
    ("T15", doc("nearest($d.embedding, 3) as n"), 3, 34, "3 numbers or a String"),
    ("T15", doc("nearest($d.embedding, null) as n"), 3, 34, "3 numbers or a String"),
    ("T16", mutation('update Knows set { from: "a" } where since = 1'), 2, 20, "cannot be updated"),
    ("T16", mutation('update Knows set { to: "a" } where since = 1'), 2, 20, "cannot be updated"),
    ("T17", doc(tail=f"order {{ {NEAR} }}"), 3, 30, "needs a `limit`"),
    (
        "T18",
        doc("$d.slug as s", tail=f"order {{ {NEAR}, s }} limit 3"),
        3,
        35,
        "cannot be combined",
    ),
    (
        "T18",
        doc("$d.slug as s", tail=f"order {{ s, {NEAR} }} limit 3"),
        3,
        38,
        "cannot be combined",
    ),
    ("T19", doc(match="$d: Doc search($d.embedding, $s)"), 2, 16, "searches a String property"),
    ("T19", doc(match="$d: Doc search($d.title, 3)"), 2, 26, "must be a String"),
    ("T19", doc(match="$d: Doc search($s, $s)"), 2, 16, "searches a String property"),
    ("T19", doc(match="$d: Doc fuzzy($d.title, $s, 1.5)"), 2, 29, "must be an integer"),
    ("T19", doc(match="$d: Doc fuzzy($d.title, $s, -1)"), 2, 29, "cannot be negative"),
    ("T15", doc("nearest($d.embedding, $d.embedding) as n"), 3, 34, "a literal or a parameter"),
    ("T19", doc(match="$d: Doc search($d.title, $d.slug)"), 2, 26, "a literal or a parameter"),
    ("T20", doc("bm25($d.title, $d.slug) as b"), 3, 27, "a literal or a parameter"),
    (
        "T21",
        doc(f"rrf({NEAR}, bm25($e.title, $s)) as r", match="$d: Doc $e: Doc"),
        3,
        43,
        "about one variable",
    ),
    ("T20", doc(match="$d: Doc match_text($d.embedding, $s)"), 2, 20, "searches a String"),
    ("T20", doc("bm25($d.title, 1) as b"), 3, 27, "must be a String"),
    ("T21", doc(f"rrf({NEAR}, {BM25}, 0) as r"), 3, 63, "greater than zero"),
    ("T21", doc(f"rrf({NEAR}, {BM25}, 1.5) as r"), 3, 63, "must be an integer"),
    ("T21", doc(tail=f"order {{ rrf({NEAR}, {BM25}) }}"), 3, 30, "needs a `limit`"),
    ("T21", doc(f"rrf({NEAR}, {BM25}) as r", tail="order { r }"), 3, 78, "needs a `limit`"),
    ("T21", doc(match=f"$d: Doc rrf({NEAR}, {BM25}) > 1"), 2, 9, "cannot be part of a condition"),
    ("T22", read("$p: Person $p <worksAt> $c"), 2, 16, "between nodes of one type"),
    ("T23", read("$p: Person $p $w:knows{1,2} $q"), 2, 12, "must have one hop"),
    ("T23", read("$p: Person $p $_:knows $q"), 2, 12, "needs a name"),
    ("T23", read("$p: Person $p $p:knows $q"), 2, 12, "cannot bind an edge"),
    ("T23", read("$p: Person $p $w:knows $q $p $w:knows $q"), 2, 27, "cannot bind an edge"),
    ("T23", read("$p: Person $p $w:knows $q $w knows $p"), 2, 27, "end of a traversal"),
    ("T24", read("$p: Person", "$p.picture"), 3, 12, "a Blob cannot be read"),
    ("T24", read("$p: Person", "count($p.picture) as n"), 3, 12, "a Blob cannot be read"),
    ("T24", read("$p: Person $p.picture is null"), 2, 12, "cannot be tested"),
    ("T25", read("$p: Person { name: $n }"), 2, 20, "`$n` is not a declared parameter"),
    ("T25", read("$p: Person $q: Person { name: $p }"), 2, 31, "`$p` is not a declared parameter"),
    ("T25", read("$p: Person $p.name = $n"), 2, 22, "variable `$n` is not bound"),
    ("T25", read("$p: Person", "$x"), 3, 12, "variable `$x` is not bound"),
    ("T26", read("$p: Person $p: Company"), 2, 16, "already bound to type `Person`"),
    ("T27", read("$p: Person $p.age in [[1]]"), 2, 22, "cannot be nested"),
    ("T27", read('$p: Person $p.age in [1, "a"]'), 2, 22, "one type, got I64 and String"),
    ("T27", read("$p: Person $p.age in [$p.age]"), 2, 23, "literals and parameters"),
    ("T28", read("$p: Person", params="$__nanograph_now: DateTime"), 1, 9, "is reserved"),
    ("T29", read("$p: Person", tail="order { nothing }"), 3, 30, "`nothing` is not a column"),
    ("T29", read("$p: Person", tail="order { 1 }"), 3, 30, "unsupported ordering expression"),
    ("T29", read("$p: Person", tail="order { $p }"), 3, 30, "unsupported ordering expression"),
    ("T29", read("$p: Person", tail="order { $p.tags }"), 3, 30, "cannot order by [String]?"),
    ("T29", read("$p: Person", "$p.tags as t", tail="order { t }"), 3, 35, "cannot order by"),
    ("T29", doc(tail=f"order {{ $d.slug, {NEAR} }} limit 3"), 3, 39, "must be the first entry"),
    ("T30", read("$p: Person $p.age"), 2, 12, "must be a truth value, got I32?"),
    ("T30", read("$p: Person $p.active and $p.name"), 2, 26, "must be a truth value, got String"),
    ("T30", read("$p: Person not 1"), 2, 16, "must be a truth value, got I64"),
    (
        "T31",
        read("$p: Person", "$p.name count($p) as n", tail="order { $p.age }"),
        3,
        45,
        "returned",
    ),
    ("T32", read("$p: Person", "$p.age = 1"), 3, 12, "needs a name"),
    ("T33", mutation('update Person set { name: "b" } where age = 1'), 2, 21, "@key property"),
    ("T34", read('$p: Person $p.born = date("2024-02-30")'), 2, 22, "invalid Date literal"),
    ("T34", read('$p: Person $p.born = date("2024-1-1")'), 2, 22, "invalid Date literal"),
    ("T34", read('$p: Person $p.seen = datetime("later")'), 2, 22, "invalid DateTime literal"),
    (
        "T34",
        read('$p: Person $p.seen = datetime("2024-01-01T00:00:00.0005Z")'),
        2,
        22,
        "'2024-01-01T00:00:00.0005Z' is finer than a millisecond",
    ),
    ("T35", read("$p: Person $p.name = bob"), 2, 22, "`bob` means nothing here"),
]


@pytest.mark.parametrize(
    ("code", "text", "line", "column", "message"),
    WRONG,
    ids=[f"{case[0]}-{number}" for number, case in enumerate(WRONG)],
)
def test_one_mistake_gives_one_error_at_its_place(
    code: str, text: str, line: int, column: int, message: str
) -> None:
    errors = errors_of(text)
    assert [error.code for error in errors] == [code]
    (error,) = errors
    assert message in error.message
    assert error.text.startswith(f"type error: {code}: ")
    assert error.source.position(error.span.start) == (line, column)
    shown = error.render().split("\n")
    assert shown[0].startswith(f"q.gq:{line}:{column}: ")
    assert shown[1] == f" {line} | {text.splitlines()[line - 1]}"
    assert shown[2].startswith(f"   | {' ' * (column - 1)}^")


def test_every_type_code_is_produced_by_a_test() -> None:
    """Those of the conditions of row rules in the tests of conditions."""
    assert {case[0] for case in WRONG} == set(TYPES) - {"T36", "T37"}


# The nearest right thing for each code.
RIGHT: list[tuple[str, str]] = [
    ("T1", read("$p: Person")),
    ("T2", read("$p: Person { age: 1 }")),
    ("T3", read('$p: Person { kind: "co-worker", age: 2.5, big: 1, ratio: 1, active: true }')),
    ("T3", read('$p: Person { born: date("2024-01-01"), tags: "x", age: null }')),
    ("T3", read("$p: Person { age: 99999999999 }")),
    ("T3", mutation('insert Person { name: "a" age: 2.0 weight: 1 tags: [] marks: [1] }')),
    ("T3", mutation('insert Doc { slug: "a" title: "t" embedding: [1, 2.5, -3] }')),
    ("T3", mutation('insert Person { name: "a" picture: "base64:AA==" }')),
    ("T4", read("$p: Person $p KNOWS $q".replace("KNOWS", "kNOWS"))),
    ("T5", read("$p: Person $p worksAt $c", "$c.name")),
    ("T6", read("$p $w:worksAt $c", "$w.role")),
    ("T7", read("$p: Person $p.age < $p.weight $p.big = 2.5 $p.visits >= $p.ratio")),
    ("T7", read('$p: Person $p.kind = $k $p.kind = "friend"', params="$k: String")),
    ("T7", read("$p: Person $p.seen > now() now() > $p.seen")),
    ("T7", read('$p: Person $p.tags contains "x" $p.name contains "x" $p.kind starts_with "f"')),
    (
        "T7",
        read("$p: Person $p.age in [1, 2.5, null] $p.age in [] $p.age in $l", params="$l: [F64]"),
    ),
    ("T7", read("$p: Person $p.name in $p.tags $p.age = null null = null")),
    ("T7", read("$p: Person $p.age in [null] $p.seen in [null, null] 1 in [null] null in [null]")),
    ("T8", read("$p: Person", "sum($p.age) as a avg($p.ratio) as b min($p.name) as c")),
    ("T8", read("$p: Person", "max($p.born) as d max($p.seen) as e min($p.kind) as f")),
    ("T8", read("$p: Person", "count($p.tags) as a count(distinct $p.kind) as b count(1) as c")),
    ("T9", read("$p: Person", "$p $p.name count($p) as n")),
    ("T9", read("$p: Person not { $p knows $_ }")),
    ("T9", read("$p: Person not { $x: Person $x.age = $p.age }")),
    ("T9", read("$p: Person not { $p: Person { age: 1 } }")),
    ("T10", mutation('insert Knows { from: "a" to: "b" }')),
    ("T11", mutation('delete Person where age = 1 or tags contains "a" and not (active)')),
    ("T12", mutation('insert Doc { slug: "a" title: "t" }')),
    ("T13", mutation('insert Person { name: "a" age: 1 } insert Person { name: "a" age: 2 }')),
    ("T14", mutation("insert Person { name: $n }", "$n: String")),
    ("T15", read("$p: Person $p knows{2,2} $q")),
    ("T15", doc('nearest($d.embedding, "text") as a nearest($d.embedding, [1, 2, 3]) as b')),
    ("T15", doc("nearest($d.embedding, $q) as a", params="$q: Vector(3)?")),
    ("T16", mutation('update Knows set { since: 1 } where from = "a" and to != "b"')),
    ("T17", doc(tail=f"order {{ {NEAR} }} limit 3")),
    ("T18", doc(tail=f"order {{ {NEAR}, $d.slug desc }} limit 3")),
    (
        "T19",
        doc(
            match="$d: Doc search($d.title, $s) fuzzy($d.body, $s, 1) fuzzy($d.body, $s, $n)",
            params="$s: String, $n: I32",
        ),
    ),
    ("T20", doc(match="$d: Doc match_text($d.title, $s)", tail=f"order {{ {BM25} }}")),
    ("T21", doc(tail=f"order {{ rrf({NEAR}, {BM25}, 1) }} limit 3")),
    ("T22", read("$p: Person $p <knows> $q")),
    ("T23", read("$p $w:<knows> $q", "$w $w.since")),
    ("T24", read("$p: Person", "$p")),
    ("T25", read("$p: Person { name: $n }", params="$n: String")),
    ("T26", read("$p: Person { age: 1 } $p: Person { active: true }")),
    ("T27", read("$p: Person $p.age in [$a, 1, 2.5]", params="$a: I64")),
    ("T29", read("$p: Person", "$p.name as n $p", tail="order { n, p desc, $p.age }")),
    ("T30", read("$p: Person $p.active not $p.active $b null", params="$b: Bool")),
    ("T31", read("$p: Person", "$p.name count($p) as n", tail="order { $p.name, n }")),
    ("T32", read("$p: Person", "$p.age = 1 as one $p.age 1 now()")),
    ("T33", mutation("update Person set { age: 1 } where name = 'a'".replace("'", '"'))),
    ("T34", read('$p: Person $p.seen = datetime("2024-01-01T00:00:00+02:00")')),
]


@pytest.mark.parametrize(
    ("code", "text"), RIGHT, ids=[f"{c}-{i}" for i, (c, _) in enumerate(RIGHT)]
)
def test_what_is_right_is_accepted(code: str, text: str) -> None:
    check(text)


# -- one rule each ----------------------------------------------------------------------------


def _only_filter(checked: CheckedRead) -> typed.TypedExpr:
    (node,) = checked.pattern.nodes
    (condition,) = node.filters
    return condition


@pytest.mark.parametrize(
    ("value", "params"), [('"x"', ""), ("$t", "$t: String"), ("$t", "$t: String?")]
)
def test_i179_a_scalar_against_a_list_property_means_membership(value: str, params: str) -> None:
    condition = _only_filter(check_read(f"$p: Person {{ tags: {value} }}", params=params))
    assert isinstance(condition, typed.Membership)
    assert condition.options == typed.Column(
        "p", "tags", PropType(Scalar.STRING, nullable=True, is_list=True)
    )


def test_i180_lists_against_list_properties_are_refused() -> None:
    assert codes_of(read('$p: Person { tags: ["x"] }')) == ["T3"]
    assert codes_of(read("$p: Person { tags: $l }", params="$l: [String]")) == ["T7"]


@pytest.mark.parametrize(
    ("clause", "codes"),
    [
        ('$p.tags contains "a"', []),
        ("$p.tags contains $s", []),
        ("$p.marks contains 2.0", []),
        ('$p.name contains "a"', []),
        ("$p.age contains 1", ["T7"]),
        ("$p.tags contains $l", ["T7"]),
        ("$p.tags contains 3", ["T7"]),
        ("$p.tags contains $p.tags", ["T7"]),
    ],
)
def test_i181_contains(clause: str, codes: list[str]) -> None:
    assert codes_of(read(f"$p: Person {clause}", params="$s: String, $l: [String]")) == codes


@pytest.mark.parametrize("nullable", ["", "?"])
def test_i182_list_parameters_may_be_projected(nullable: str) -> None:
    (column,) = check_read("$p: Person", "$l", params=f"$l: [I32]{nullable}").columns
    assert column.name == "l"
    assert column.expr == typed.Parameter("l", PropType(Scalar.I32, bool(nullable), is_list=True))


def test_i186_rrf_beside_other_orders() -> None:
    rank = f"rrf({NEAR}, {BM25})"
    check(doc(f"$d.slug as s {rank} as r", tail="order { r desc, s } limit 3"))
    check(doc(f"{rank} as r", tail="order { r } limit 1"))
    check(doc(tail=f'order {{ rrf(nearest($d.embedding, "text"), {BM25}), $d.slug }} limit 3'))


def test_i191_bounds_are_kept() -> None:
    (hop,) = check_read("$p: Person $p knows{1,3} $q").pattern.hops
    assert (hop.min_hops, hop.max_hops) == (1, 3)


def test_i194_embedded_vectors_need_their_source() -> None:
    (error,) = errors_of(mutation('insert Doc { slug: "a" }'))
    assert error.code == "T12"
    assert "`embedding` (or its source `title`)" in error.message


def test_i195_every_statement_is_checked() -> None:
    text = mutation(
        "update Person set { zip: 1 } where age = 1\nupdate Persn set { a: 1 } where a = 1\n"
        'insert Person { name: "a" }\ndelete Person where zip = 1'
    )
    errors = errors_of(text)
    assert [(e.code, e.source.position(e.span.start)[0]) for e in errors] == [
        ("T11", 2),
        ("T10", 3),
        ("T11", 5),
    ]


def test_i196_edges_in_mutations() -> None:
    (error,) = errors_of(mutation("insert Knows { since: 1 }"))
    assert (error.code, error.message) == ("T12", "insert of `Knows` needs `from`, `to`")
    checked = check(mutation('delete Knows where from = "a" or to = "b"'))
    assert isinstance(checked, CheckedMutation)
    (statement,) = checked.statements
    assert (statement.kind, statement.entity) == (StatementKind.DELETE, typed.EntityKind.EDGE)
    assert statement.where is not None
    assert show(statement.where) == 'src = "a" or dst = "b"'


def test_i197_now_is_a_datetime() -> None:
    (column,) = check_read("$p: Person", "now()").columns
    assert (column.name, column.expr.type) == ("__nanograph_now", typed.DATETIME)
    assert codes_of(mutation("insert Person { name: $n born: now() }", "$n: String")) == ["T7"]
    check(mutation("insert Person { name: $n seen: now() }", "$n: String"))


# -- direction --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clauses", "direction", "src", "dst"),
    [
        # left bound as the source, as the target, right bound as either, none, a self edge
        ("$a: Person $a worksAt $b", "out", "Person", "Company"),
        ("$a: Company $a worksAt $b", "in", "Company", "Person"),
        ("$b: Company $a worksAt $b", "out", "Person", "Company"),
        ("$b: Person $a worksAt $b", "in", "Company", "Person"),
        ("$a worksAt $b", "out", "Person", "Company"),
        ("$a worksAt $b $a: Company", "in", "Company", "Person"),
        ("$a: Person $b: Company $a worksAt $b", "out", "Person", "Company"),
        ("$a: Company $b: Person $a worksAt $b", "in", "Company", "Person"),
        ("$a: Person $a knows $b", "out", "Person", "Person"),
        ("$b: Person $a knows $b", "out", "Person", "Person"),
        ("$a: Person $a <knows> $b", "both", "Person", "Person"),
        ("$a <knows> $b", "both", "Person", "Person"),
    ],
)
def test_i190_direction_follows_from_what_is_bound(
    clauses: str, direction: str, src: str, dst: str
) -> None:
    (hop,) = check_read(clauses, "$a").pattern.hops
    assert (hop.src, hop.dst) == ("a", "b")
    assert (hop.direction, hop.src_type, hop.dst_type) == (Direction(direction), src, dst)


def test_types_flow_along_traversals_in_written_order() -> None:
    # nothing is bound before the first traversal, so its left side is a Person
    assert codes_of(read("$c worksAt $p $p knows $q", "$q.age")) == ["T5"]
    hops = check_read("$a worksAt $b $a knows $c $d wrote $e $e cites $f", "$f.title").pattern.hops
    assert [(hop.src_type, hop.dst_type) for hop in hops] == [
        ("Person", "Company"),
        ("Person", "Person"),
        ("Person", "Doc"),
        ("Doc", "Doc"),
    ]
    assert codes_of(read("$p: Person $c worksAt $p $c knows $q")) == ["T5"]


def test_edge_words_ignore_case_but_types_do_not() -> None:
    for word in ("worksAt", "worksat", "works_at"):
        expected = ["T4"] if "_" in word else []
        assert codes_of(read(f"$p: Person $p {word} $c")) == expected
    (error,) = errors_of(mutation('insert Worksat { from: "a" to: "b" role: "x" }'))
    assert error.code == "T10"
    assert error.hint == "did you mean `WorksAt`?"


def test_anonymous_ends_are_all_different() -> None:
    hops = check_read("$p: Person $p knows $_ $_ worksAt $_").pattern.hops
    names = [name for hop in hops for name in (hop.src, hop.dst)]
    assert len(set(names)) == 4
    assert codes_of(read("$p: Person $p knows $_", "$_.name")) == ["T6"]


def test_anonymous_names_are_never_suggested() -> None:
    (error,) = errors_of(read("$p: Person $p knows $_ $_1.age = 1"))
    assert "~" not in (error.hint or "")


# -- order of clauses does not matter (a deliberate difference) -------------------------------


def test_filters_and_negations_may_stand_before_what_they_use() -> None:
    late = check_read("$p.age > 1 not { $p knows $q } $p knows $f $p: Person")
    early = check_read("$p: Person $p knows $f $p.age > 1 not { $p knows $q }")
    assert late.pattern.conditions == early.pattern.conditions
    assert [a.outer for a in late.pattern.absent] == [("p",)]

    def shape(hop: Hop) -> tuple[object, ...]:
        return hop.src, hop.dst, hop.direction

    assert list(map(shape, late.pattern.hops)) == list(map(shape, early.pattern.hops))


def test_variables_of_a_negation_stay_inside() -> None:
    assert codes_of(read("$p: Person not { $p knows $x }", "$x.name")) == ["T6"]
    assert codes_of(read("$p: Person not { $p knows $x } not { $p knows $x $x.age = 1 }")) == []


def test_a_variable_bound_twice_collects_both_conditions() -> None:
    (node,) = check_read("$p: Person { age: 1 } $p: Person { active: true }").pattern.nodes
    assert [show(f) for f in node.filters] == ["$p.age = 1", "$p.active = true"]


def test_a_parameter_hides_a_variable_of_its_name() -> None:
    checked = check_read("$p: Person $p.name = $p", "$p", params="$p: String")
    assert checked.columns[0].expr == typed.Parameter("p", typed.STRING)
    assert show(checked.pattern.conditions[0]) == "$p.name = $p"
    assert isinstance(checked.pattern.conditions[0], typed.Compare)
    assert isinstance(checked.pattern.conditions[0].right, typed.Parameter)


# -- names and types of columns (sections 4 and 8) --------------------------------------------


@pytest.mark.parametrize(
    ("projection", "name", "type_"),
    [
        ("$p.age", "p.age", "I32?"),
        ("$p.age as x", "x", "I32?"),
        ("$p", "p", "String"),
        ("$n", "n", "I64"),
        ("1", "literal", "I64"),
        ("[1, 2.5]", "literal", "[F64]"),
        ("now()", "__nanograph_now", "DateTime"),
        ("count($f)", "f", "I64"),
        ("count($p.age)", "p.age", "I64"),
        ("sum($p.age) as s", "s", "F64?"),
        ("avg($p.age)", "p.age", "F64?"),
        ("min($p.name) as s", "s", "String?"),
        ("max($p.born) as s", "s", "Date?"),
        ("$p.age = 1 as t", "t", "Bool?"),
        ('$p.name = "a" as t', "t", "Bool"),
        ("$p.age is null as t", "t", "Bool"),
        ("($p.age = 1 or true) as t", "t", "Bool?"),
        ('search($p.name, "x")', "search", "Bool"),
        ('bm25($p.name, "x")', "bm25", "F64?"),
    ],
)
def test_columns(projection: str, name: str, type_: str) -> None:
    checked = check_read("$p: Person $p knows $f", projection, params="$n: I64")
    (column,) = checked.columns
    assert (column.name, str(column.expr.type)) == (name, type_)


# -- what is easy to miss ---------------------------------------------------------------------


def test_an_undeclared_variable_in_a_match_is_an_error_wherever_it_stands() -> None:
    assert codes_of(read("$p: Person { name: $typo }")) == ["T25"]
    assert codes_of(read("$p: Person $p knows $f $f: Person { name: $typo }")) == ["T25"]
    assert codes_of(read("$p: Person not { $p knows $f $f: Person { name: $typo } }")) == ["T25"]
    assert codes_of(read("$p: Person $p.name = $typo")) == ["T25"]
    (error,) = errors_of(read("$p: Person { name: $nme }", params="$name: String"))
    assert error.hint == "did you mean `$name`?"


def test_now_works_in_reads() -> None:
    checked = check_read("$p: Person { seen: now() } $p.seen < now()", "now() as t")
    now = typed.Parameter(typed.NOW_PARAMETER, typed.DATETIME)
    assert show(_only_filter(checked)) == "$p.seen = now()"
    assert checked.columns[0].expr == now


def test_null_and_negative_literals_type_check() -> None:
    checked = check_read("$p: Person $p.age > -5 $p.age = null $p.weight < -0.5")
    assert [show(c) for c in checked.pattern.conditions] == [
        "$p.age > -5",
        "$p.age = null",
        "$p.weight < -0.5",
    ]


@pytest.mark.parametrize(
    "condition", ["null", "not (null)", "null or $p.active", "$p.active and null"]
)
def test_a_bare_null_condition_is_an_unknown_truth_value(condition: str) -> None:
    (actual,) = check_read(f"$p: Person {condition}").pattern.conditions
    nulls = [e for e in typed.walk(actual) if isinstance(e, typed.Constant)]
    assert nulls == [typed.Constant(None, PropType(Scalar.BOOL, nullable=True))]


def test_search_calls_may_stand_in_return() -> None:
    checked = check(doc(f"search($d.title, $s) as hit {NEAR} as far {BM25} as score"))
    assert isinstance(checked, CheckedRead)
    assert [type(c.expr) for c in checked.columns] == [typed.TextMatch, typed.Nearest, typed.Bm25]


# -- numbers in lists -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "type_"),
    [
        ("[1, 2]", "[I64]"),
        ("[1, 2.5]", "[F64]"),
        ("[2.5, 1]", "[F64]"),
        ("[1, null]", "[I64]?"),
        ("[]", "[String]"),
        ("[$i, $l]", "[I64]"),
        ("[$i, $f]", "[F64]"),
        ("[$i]", "[I32]"),
        ("[$u, $i]", "[I64]"),
    ],
)
def test_lists_take_a_type_that_holds_all_items(items: str, type_: str) -> None:
    params = "$i: I32, $l: I64, $f: F32, $u: U32"
    (column,) = check_read("$p: Person", f"{items} as l", params=params).columns
    assert str(column.expr.type) == type_


# -- several errors, and no noise -------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        # a variable whose clause is wrong is not complained about again
        (read("$p: Persn $p.age = 1 $p.nme = 2"), ["T1"]),
        (read("$p: Person $p knws $q $q.age = 1 $q.nme = 2", "$q.xyz"), ["T4"]),
        (read("$p: Person $c: Company $p knows $c $c.name = 1"), ["T5", "T7"]),
        (read("$p: Person { name: $x } $p.age = 1"), ["T25"]),
        (read("$p: Person $p.agee = $x"), ["T6", "T25"]),
        (read("$p: Person", "sum($p.name) as s $p.name", tail="order { s }"), ["T8"]),
        (read("$p: Person", "$p.nme as s", tail="order { s }"), ["T6"]),
        (read("$p: Person not { $x: Persn $x.age = $p.age }"), ["T1"]),
        (read("$p: Person not { $x knws $y }"), ["T4"]),
        (mutation('insert Person { nam: "a" }'), ["T12", "T11"]),
        (mutation("insert Person { name: $x }"), ["T14"]),
        (mutation("update Persn set { a: $x } where b = $y"), ["T10"]),
        (read("$p: Person $p $w:knows{1,2} $q $w.since = 1"), ["T23"]),
        (doc(f"{NEAR.replace('embedding', 'nothing')} as n", tail="order { n } limit 1"), ["T15"]),
        # and independent mistakes are all reported, in source order
        (
            read("$p: Person { agee: 1 } $p.age = true $x.name = 1", "$p.zip", tail="order { u }"),
            ["T2", "T7", "T6", "T6"],
        ),
    ],
)
def test_one_mistake_is_reported_once(text: str, codes: list[str]) -> None:
    assert codes_of(text) == codes


def test_errors_come_in_source_order_with_hints() -> None:
    errors = errors_of(read("$p: Persn\n$q: Person { agee: 1 }\n$q knws $r", "$q.nme"))
    locations = [e.source.position(e.span.start) for e in errors]
    assert locations == sorted(locations)
    assert [e.hint for e in errors] == [
        "did you mean `Person`?",
        "did you mean `age`?",
        "did you mean `knows`?",
        "did you mean `name`?",
    ]


def test_a_query_with_errors_has_no_checked_form() -> None:
    checked, errors = examine(read("$p: Nobody"))
    assert checked is None
    assert errors


def test_words_of_the_language_are_properties() -> None:
    words = "match return order limit not and or in is null contains asc desc as true from to now"
    for word in words.split():
        check_read(
            f"$p: Trap $p.{word} is null", f"$p.{word} as {word}", tail=f"order {{ {word} }}"
        )
        check(mutation(f'update Trap set {{ {word}: null }} where type = "x"'))
    check_read("$a: Trap $a match $b", "$b.type")
    check_read("$a: Doc $a contains $b", "$b.slug")
