"""The query parser: every form of the language, and its error messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.lang.query import ast
from omnigraph.lang.query.codes import SYNTAX
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.types import PropType, Scalar
from tests.lang.query.world import body, clause, condition, parse, parse_one, read, tree_text

FIXTURES = Path(__file__).parents[2] / "fixtures" / "parser"


# -- golden files -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.gqt")), ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    text, _, expected = path.read_text("utf-8").partition("\n---\n")
    queries, problems = parse(text)
    actual = [tree_text(query) for query in queries] + [problem.render() for problem in problems]
    assert "\n".join(actual) == expected.rstrip("\n")


def test_there_are_golden_files() -> None:
    assert len(list(FIXTURES.glob("*.gqt"))) >= 5


# -- the language -----------------------------------------------------------------------------


def test_h163_basic_read_with_and_without_parameters() -> None:
    query = parse_one(read("$p: Person { name: $n }", params="$n: String, $k: I32?"))
    assert [(p.name, p.type) for p in query.params] == [
        ("n", PropType(Scalar.STRING)),
        ("k", PropType(Scalar.I32, nullable=True)),
    ]
    assert not query.is_mutation
    assert parse_one(read("$p: Person")).params == ()


def test_h164_annotations_are_kept_in_either_order() -> None:
    text = (
        'query q() @deprecated("use r") @instruction("how") @description("what") '
        "{ match { $p: P } return { $p } }"
    )
    query = parse_one(text)
    assert (query.description, query.instruction, query.deprecated) == ("what", "how", "use r")


@pytest.mark.parametrize("name", ["description", "instruction", "deprecated"])
def test_h164_a_repeated_annotation_is_refused(name: str) -> None:
    text = f'query q() @{name}("a") @{name}("b") {{ match {{ $p: P }} return {{ $p }} }}'
    _, (problem,) = parse(text)
    assert problem.code == "P024"
    assert problem.message == f"query `q` cannot include duplicate @{name} annotations"


@pytest.mark.parametrize(
    ("written", "hops"),
    [("knows", (1, 1)), ("knows{1,3}", (1, 3)), ("knows {2, 5}", (2, 5)), ("knows{1,}", (1, None))],
)
def test_h165_hops(written: str, hops: tuple[int, int | None]) -> None:
    actual = clause(f"$a {written} $b")
    assert isinstance(actual, ast.TraversalClause)
    assert (actual.hops.min, actual.hops.max) == hops


def test_h166_negation_with_the_anonymous_variable() -> None:
    actual = clause("not { $p knows $_ }")
    assert actual == ast.NegationClause((ast.TraversalClause("p", "knows", "_"),))


@pytest.mark.parametrize("comma", ["", ",", " , "])
def test_h167_aggregates_aliases_order_and_limit(comma: str) -> None:
    actual = body(
        "$p: Person",
        f"$p.name{comma} count($f) as n{comma} avg($f.age) as mean{comma}",
        tail="order { n desc, $p.name asc, mean } limit 10",
    )
    assert [p.alias for p in actual.projections] == [None, "n", "mean"]
    assert [tree_text(o) for o in actual.order] == [
        "Ordering(NameExpr('n'), descending=True)",
        "Ordering(PropertyExpr('p', 'name'))",
        "Ordering(NameExpr('mean'))",
    ]
    assert (actual.limit, actual.offset) == (10, None)


def test_h168_several_queries_and_none() -> None:
    queries, problems = parse(f"{read('$a: A', '$a')} // between\n{read('$b: B', '$b')}")
    assert len(queries) == 2
    assert not problems
    assert parse("  // nothing\n /* at all */ ") == ((), [])


@pytest.mark.parametrize("op", ["=", "!=", "<", "<=", ">", ">=", "contains", "starts_with"])
def test_h169_comparators_in_filters_and_predicates(op: str) -> None:
    expected = ast.LiteralExpr(ast.LiteralKind.INT, 1)
    actual = condition(f"$p.x {op} 1")
    assert actual == ast.CompareExpr(ast.CompareOp(op), ast.PropertyExpr("p", "x"), expected)
    # `contains` in a mutation predicate is refused by the reference and allowed here.
    mutation = parse_one(f"query d() {{ delete P where x {op} 1 }}").body
    assert mutation == ast.MutationBody(
        (ast.DeleteStatement("P", ast.CompareExpr(ast.CompareOp(op), ast.NameExpr("x"), expected)),)
    )


def test_h170_escapes_are_decoded() -> None:
    text = r'$p.x = "a\"b\\c\nd\te\rf/*no*/ //no"'
    actual = condition(text)
    assert isinstance(actual, ast.CompareExpr)
    assert actual.right == ast.LiteralExpr(ast.LiteralKind.STRING, 'a"b\\c\nd\te\rf/*no*/ //no')


@pytest.mark.parametrize("escape", [r"\u0041", r"\x", r"\0", r"\'"])
def test_h170_unknown_escapes_are_refused(escape: str) -> None:
    _, (problem,) = parse(read(f'$p.x = "ab{escape}"'))
    assert problem.code == "P004"
    assert problem.source.position(problem.span.start) == (2, 11)
    assert problem.message == f"unsupported escape sequence: {escape[:2]}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", "LiteralExpr(bool, True)"),
        ("false", "LiteralExpr(bool, False)"),
        ("null", "LiteralExpr(null, None)"),
        ("0", "LiteralExpr(int, 0)"),
        ("-7", "LiteralExpr(int, -7)"),
        ("9223372036854775807", "LiteralExpr(int, 9223372036854775807)"),
        ("-9223372036854775808", "LiteralExpr(int, -9223372036854775808)"),
        ("1.50", "LiteralExpr(float, 1.5)"),
        ("-0.25", "LiteralExpr(float, -0.25)"),
        ('date("2024-01-31")', "LiteralExpr(date, '2024-01-31')"),
        ('datetime( "2024-01-31T00:00:00Z" )', "LiteralExpr(datetime, '2024-01-31T00:00:00Z')"),
        ("[]", "ListExpr([])"),
        ("[1, -2]", "ListExpr([LiteralExpr(int, 1), LiteralExpr(int, -2)])"),
        ('["a", null]', "ListExpr([LiteralExpr(string, 'a'), LiteralExpr(null, None)])"),
        ("[[1]]", "ListExpr([ListExpr([LiteralExpr(int, 1)])])"),
        ("now()", "CallExpr('now', [])"),
        ("now ( )", "CallExpr('now', [])"),
        ("$x", "VariableExpr('x')"),
    ],
)
def test_h171_values_in_every_place(text: str, expected: str) -> None:
    matched = clause(f"$p: P {{ x: {text} }}")
    assert isinstance(matched, ast.BindingClause)
    compared = condition(f"$p.x = {text}")
    assert isinstance(compared, ast.CompareExpr)
    projected = body("$p: P", f"{text} as v").projections[0]
    assigned = parse_one(f"query m() {{ insert P {{ x: {text} }} }}").body
    predicate = parse_one(f"query m() {{ delete P where x = {text} }}").body
    actual = [
        tree_text(matched.matches[0].value),
        tree_text(compared.right),
        tree_text(projected.expr),
    ]
    assert actual == [expected] * 3
    assert (
        tree_text(assigned)
        == f"MutationBody([InsertStatement('P', [Assignment('x', {expected})])])"
    )
    assert (
        tree_text(predicate)
        == f"MutationBody([DeleteStatement('P', CompareExpr(=, NameExpr('x'), {expected}))])"
    )


def test_h172_statements_one_or_several_of_any_kind() -> None:
    actual = parse_one(
        'query m($n: String) { insert P { a: 1 b: $n, c: "x", } '
        "update P set { a: 2, } where b = $n delete E where from = $n }"
    ).body
    assert isinstance(actual, ast.MutationBody)
    assert [type(s) for s in actual.statements] == [
        ast.InsertStatement,
        ast.UpdateStatement,
        ast.DeleteStatement,
    ]
    assert [a.name for a in actual.statements[0].assignments] == ["a", "b", "c"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        *((name, PropType(Scalar(name))) for name in map(str, Scalar) if name != "Vector"),
        ("String?", PropType(Scalar.STRING, nullable=True)),
        ("[ I32 ]", PropType(Scalar.I32, is_list=True)),
        ("[ Date ] ?", PropType(Scalar.DATE, nullable=True, is_list=True)),
        ("Vector( 3 )", PropType(Scalar.VECTOR, dimension=3)),
        ("Vector (3072) ?", PropType(Scalar.VECTOR, nullable=True, dimension=3072)),
    ],
)
def test_h173_parameter_types(written: str, expected: PropType) -> None:
    (param,) = parse_one(read("$p: P", params=f"$x : {written}")).params
    assert param.type == expected


def test_h174_nearest_orders_and_projects() -> None:
    actual = body(
        "$d: Doc",
        "nearest($d.v, $q) as far",
        tail='order { nearest($d.v, "text"), $d.x desc } limit 3',
    )
    call = "CallExpr('nearest', [PropertyExpr('d', 'v'), {}])"
    assert tree_text(actual.projections[0].expr) == call.format("VariableExpr('q')")
    assert tree_text(actual.order[0].expr) == call.format("LiteralExpr(string, 'text')")


@pytest.mark.parametrize("direction", ["asc", "desc"])
def test_h174_a_direction_after_nearest_is_refused(direction: str) -> None:
    _, (problem,) = parse(read("$d: D", tail=f"order {{ nearest($d.v, $q) {direction} }} limit 3"))
    assert problem.code == "P027"
    assert problem.source.text[problem.span.start : problem.span.end] == direction


@pytest.mark.parametrize(
    "call",
    ["search($d.t, $q)", 'match_text($d.t, "x y")', "fuzzy($d.t, $q)", "fuzzy($d.t, $q, 2)"],
)
def test_h175_text_calls_stand_alone_as_clauses(call: str) -> None:
    actual = condition(call)
    assert isinstance(actual, ast.CallExpr)
    assert len(actual.args) == call.count(",") + 1
    explicit = condition(f"{call} = true")
    assert explicit == ast.CompareExpr(
        ast.CompareOp.EQ, actual, ast.LiteralExpr(ast.LiteralKind.BOOL, True)
    )


@pytest.mark.parametrize(
    ("call", "ok"),
    [
        ("rrf(nearest($d.v, $q), bm25($d.t, $s))", True),
        ("rrf(bm25($d.t, $s), bm25($d.u, $s), 30)", True),
        ("rrf(bm25($d.t, $s), search($d.u, $s))", False),
        ("rrf($d.t, bm25($d.t, $s))", False),
        ("rrf(rrf(bm25($d.t, $s), bm25($d.t, $s)), bm25($d.t, $s))", False),
        ("rrf(1, 2)", False),
    ],
)
def test_h176_rrf_fuses_only_rankings(call: str, ok: bool) -> None:
    _, problems = parse(read("$d: D", f"{call} as s"))
    assert [problem.code for problem in problems] == ([] if ok else ["P016"])


def test_h177_parse_errors_carry_a_span_in_bytes() -> None:
    text = 'query q() { match { $p.n = "é→" $$ } return { $p } }'
    _, (problem,) = parse(text)
    data = problem.to_json()
    encoded = text.encode()
    assert encoded[data["span"]["start"] : data["span"]["end"]] == b"$$"[: data["span"]["end"]]
    assert (data["line"], data["column"]) == (1, text.index("$$") + 1)


# -- beyond the reference ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$p.a and $p.b or $p.c", "OrExpr([AndExpr([a, b]), c])"),
        ("$p.a or $p.b and $p.c", "OrExpr([a, AndExpr([b, c])])"),
        ("($p.a or $p.b) and $p.c", "AndExpr([OrExpr([a, b]), c])"),
        ("not $p.a and $p.b", "AndExpr([NotExpr(a), b])"),
        ("not ($p.a and $p.b)", "NotExpr(AndExpr([a, b]))"),
        ("not not $p.a", "NotExpr(NotExpr(a))"),
        ("not $p.a = $p.b", "NotExpr(CompareExpr(=, a, b))"),
        ("$p.a and $p.b and $p.c", "AndExpr([a, b, c])"),
        ("$p.a and ($p.b and $p.c)", "AndExpr([a, AndExpr([b, c])])"),
        ("$p.a is null", "IsNullExpr(a, False)"),
        ("$p.a is not null or $p.b", "OrExpr([IsNullExpr(a, True), b])"),
        ("$p.a in [1]", "InExpr(a, ListExpr([LiteralExpr(int, 1)]))"),
        ("$p.a in $xs", "InExpr(a, VariableExpr('xs'))"),
        ("not $p.a in $xs", "NotExpr(InExpr(a, VariableExpr('xs')))"),
        ("$p.a starts_with $p.b", "CompareExpr(starts_with, a, b)"),
        ("$p.a contains $p.b", "CompareExpr(contains, a, b)"),
        ("($p.a = 1) = $p.b", "CompareExpr(=, CompareExpr(=, a, LiteralExpr(int, 1)), b)"),
        ("((($p.a)))", "a"),
        ("1 = $p.a", "CompareExpr(=, LiteralExpr(int, 1), a)"),
    ],
)
def test_boolean_expressions(text: str, expected: str) -> None:
    for name in "abc":
        expected = expected.replace(f"({name},", f"(PropertyExpr('p', '{name}'),")
        expected = expected.replace(f"[{name},", f"[PropertyExpr('p', '{name}'),")
        expected = expected.replace(f" {name})", f" PropertyExpr('p', '{name}'))")
        expected = expected.replace(f" {name}]", f" PropertyExpr('p', '{name}')]")
        expected = expected.replace(f" {name},", f" PropertyExpr('p', '{name}'),")
        expected = expected.replace(f"({name})", f"(PropertyExpr('p', '{name}'))")
    if expected == "a":
        expected = "PropertyExpr('p', 'a')"
    assert tree_text(condition(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$a knows $b", "TraversalClause('a', 'knows', 'b')"),
        ("$a <knows> $b", "TraversalClause('a', 'knows', 'b', undirected=True)"),
        (
            "$a < knows > {1,2} $b",
            "TraversalClause('a', 'knows', 'b', hops=Hops(1, 2), undirected=True)",
        ),
        ("$a $w:knows $b", "TraversalClause('a', 'knows', 'b', edge_variable='w')"),
        (
            "$a $w : <knows> $b",
            "TraversalClause('a', 'knows', 'b', undirected=True, edge_variable='w')",
        ),
        # with two bare variables these words are edges, as in the reference
        ("$a contains $b", "TraversalClause('a', 'contains', 'b')"),
        ("$a starts_with $b", "TraversalClause('a', 'starts_with', 'b')"),
        ("$a in $b", "TraversalClause('a', 'in', 'b')"),
        ("$_ knows $_", "TraversalClause('_', 'knows', '_')"),
        ("$a _x9 $b", "TraversalClause('a', '_x9', 'b')"),
    ],
)
def test_traversals(text: str, expected: str) -> None:
    assert tree_text(clause(text)) == expected


def test_clauses_follow_one_another_without_separators() -> None:
    actual = body(
        "$p: P $p knows $q $p.a > 1 not { $p knows $_ } $p.b in [1] $p.c is null $p.d "
        "search($p.t, $s) not ($p.e) $q: P { a: 1 } true"
    )
    assert [type(c).__name__ for c in actual.clauses] == [
        "BindingClause",
        "TraversalClause",
        "FilterClause",
        "NegationClause",
        "FilterClause",
        "FilterClause",
        "FilterClause",
        "FilterClause",
        "FilterClause",
        "BindingClause",
        "FilterClause",
    ]


@pytest.mark.parametrize(
    ("tail", "expected"),
    [("", (None, None)), ("limit 0", (0, None)), ("limit 5 offset 0", (5, 0))],
)
def test_limit_and_offset(tail: str, expected: tuple[int | None, int | None]) -> None:
    actual = body("$p: P", tail=tail)
    assert (actual.limit, actual.offset) == expected


def test_distinct_rows_and_distinct_counts() -> None:
    text = "query q() { match { $p: P } return distinct { $p.a count(distinct $p) as n } }"
    actual = parse_one(text).body
    assert isinstance(actual, ast.ReadBody)
    assert actual.distinct
    assert actual.projections[1].expr == ast.AggregateExpr("count", ast.VariableExpr("p"), True)
    assert not body("$p: P", "count($p) as distinct").distinct


def test_empty_braces_of_a_binding_are_allowed() -> None:
    assert clause("$p: P { }") == ast.BindingClause("p", "P")


# -- words are names everywhere (real projects, trap 7) ---------------------------------------

WORDS = [
    "type",
    "kind",
    "when",
    "until",
    "since",
    "date",
    "blob",
    "source",
    "branch",
    "path",
    "primary",
    "current",
    "timestamp",
    "match",
    "return",
    "order",
    "limit",
    "offset",
    "query",
    "not",
    "and",
    "or",
    "in",
    "is",
    "null",
    "contains",
    "starts_with",
    "asc",
    "desc",
    "as",
    "distinct",
    "set",
    "where",
    "insert",
    "update",
    "delete",
    "from",
    "to",
    "now",
    "datetime",
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "search",
    "fuzzy",
    "nearest",
    "bm25",
    "rrf",
    "match_text",
    "true",
    "false",
    "node",
    "edge",
    "description",
    "instruction",
    "deprecated",
]


@pytest.mark.parametrize("word", WORDS)
def test_words_are_names_of_properties_parameters_variables_and_queries(word: str) -> None:
    text = (
        f"query {word}(${word}: String) {{ match {{ ${word}: P {{ {word}: ${word}, {word}: 1 }} "
        f"${word}.{word} = ${word} ${word}.{word} is not null or ${word}.{word} in [1] }} "
        f"return {{ ${word}.{word} as {word} ${word} }} order {{ {word} desc, ${word}.{word} }} }}"
    )
    query = parse_one(text)
    assert query.name == word
    assert query.params[0].name == word
    assert isinstance(query.body, ast.ReadBody)
    binding, first, second = query.body.clauses
    assert isinstance(binding, ast.BindingClause)
    assert [m.name for m in binding.matches] == [word, word]
    own = f"PropertyExpr({word!r}, {word!r})"
    assert tree_text(first) == f"FilterClause(CompareExpr(=, {own}, VariableExpr({word!r})))"
    assert tree_text(second).startswith(
        f"FilterClause(OrExpr([IsNullExpr({own}, True), InExpr({own}, "
    )
    assert query.body.projections[0].alias == word
    assert tree_text(query.body.order[0]) == f"Ordering(NameExpr({word!r}), descending=True)"


@pytest.mark.parametrize("word", WORDS)
def test_words_are_names_in_mutations(word: str) -> None:
    values = f"{{ {word}: ${word} {word}: 2 }}"
    query = parse_one(
        f"query m(${word}: String) {{ insert P {values} update P set {values} where a = 1 }}"
    )
    assert isinstance(query.body, ast.MutationBody)
    for statement in query.body.statements:
        assert isinstance(statement, ast.InsertStatement | ast.UpdateStatement)
        assert [a.name for a in statement.assignments] == [word, word]


@pytest.mark.parametrize("word", [w for w in WORDS if w not in ("not", "null", "true", "false")])
def test_words_are_properties_in_predicates(word: str) -> None:
    query = parse_one(
        f"query m() {{ delete P where {word} = 1 and {word} is null or {word} in [1] }}"
    )
    names = tree_text(query).count(f"NameExpr({word!r})")
    assert names == 3


@pytest.mark.parametrize("word", [w for w in WORDS if w != "not"])
def test_words_are_edges(word: str) -> None:
    assert clause(f"$a {word} $b") == ast.TraversalClause("a", word, "b")
    assert clause(f"$a {word}{{1,2}} $b") == ast.TraversalClause("a", word, "b", ast.Hops(1, 2))
    assert clause(f"$a <{word}> $b") == ast.TraversalClause("a", word, "b", undirected=True)
    assert clause(f"$a $w:{word} $b") == ast.TraversalClause("a", word, "b", edge_variable="w")


# -- errors -----------------------------------------------------------------------------------

# code, text, line, column, marked text, message, hint (part of)
ERRORS: list[tuple[str, str, int, int, str, str, str | None]] = [
    ("P001", read("$p: P ;"), 2, 7, ";", "unexpected character `;`", "no separator"),
    ("P001", read("$p.a = 'x'"), 2, 8, "'x'", "unexpected character `'`", "double quotes"),
    ("P001", read("$P: Person"), 2, 1, "$", "`$` must be followed by", "lower-case"),
    ("P001", read("$p.a + 1 = 2"), 2, 6, "+", "unexpected character `+`", "no arithmetic"),
    ("P002", read('$p.a = "x'), 2, 8, '"x', "this string is not closed", 'close it with `"`'),
    ("P003", read("$p: P /* x"), 2, 7, "/", "this block comment is not closed", "`*/`"),
    ("P004", read(r'$p.a = "\q"'), 2, 9, r"\q", r"unsupported escape sequence: \q", "escapes are"),
    ("P005", read("$p.a = 9223372036854775808"), 2, 8, "9223372036854775808", "out of range", None),
    (
        "P005",
        read("$p.a = -9223372036854775809"),
        2,
        9,
        "9223372036854775809",
        "out of range",
        None,
    ),
    ("P006", read("(" * 70 + "true" + ")" * 70), 2, 65, "(", "nested more than 64 levels", "split"),
    (
        "P007",
        "query q() {\nmatch { $p: P return { $p } }",
        2,
        7,
        "{",
        "the `{` of `match`",
        "missing",
    ),
    ("P008", read("$p.a = 1" + "\nor $p.a = 1" * 1001), 1003, 1, "or", "more than 1000", "in"),
    ("P010", read("$p: person"), 2, 5, "person", "expected a type name", "upper-case"),
    ("P010", read("$p: P { a }"), 2, 11, "}", "expected `:` after `a`, found `}`", None),
    ("P010", read("$p: P { a: $q.b }"), 2, 12, "$q", "expected a value for `a`", "parameters"),
    ("P010", read("$p: P { a: b }"), 2, 12, "b", "expected a value for `a`", "quotes"),
    ("P010", read("$p: P { a: (1) }"), 2, 12, "(", "expected a value for `a`", "only literals"),
    ("P010", read("$p.a is 1"), 2, 9, "1", "expected `null` after `is`", None),
    (
        "P010",
        read("$p.a = Person"),
        2,
        8,
        "Person",
        "expected a value or a variable after `=`",
        "quotes",
    ),
    ("P010", read("$p.a = - $x"), 2, 10, "$x", "expected a number after `-`", "negative"),
    ("P010", read("$a knows{1} $b"), 2, 11, "}", "expected `,` between", None),
    (
        "P010",
        read("$p: P", tail="order by $p.a"),
        3,
        28,
        "by",
        "expected `{` after `order`",
        "order {",
    ),
    (
        "P010",
        read("$p: P", tail="limit $n"),
        3,
        28,
        "$n",
        "expected a whole number",
        "only a number",
    ),
    ("P010", "query q() { insert P { } }", 1, 24, "}", "expected a property name", None),
    ("P010", "query q() { delete P }", 1, 22, "}", "expected `where` in `delete P`", "which rows"),
    ("P010", "query q() { update P { a: 1 } where a = 1 }", 1, 22, "{", "expected `set`", None),
    ("P010", "query q() { }", 1, 13, "}", "expected `match`, `insert`, `update` or", None),
    ("P010", "query q() { match { $p: P } }", 1, 29, "}", "expected `return`", None),
    ("P010", "qery q() { }", 1, 1, "qery", "expected `query` at the start", "query name()"),
    ("P010", "query q { }", 1, 9, "{", "expected `(` after the query name `q`", "query q()"),
    ("P010", "query q() { upsert P { a: 1 } }", 1, 13, "upsert", "expected `insert`", "insert"),
    ("P012", read("$p.a < 1 < 2"), 2, 10, "<", "comparisons cannot be chained", "`and`"),
    ("P013", read("lower($p.a) = 1"), 2, 1, "lower", "unknown function `lower`", None),
    ("P013", read("serch($p.a, $q)"), 2, 1, "serch", "unknown function", "did you mean `search`?"),
    ("P014", read("search($p.a)"), 2, 1, "search($p.a)", "takes 2 arguments, got 1", None),
    ("P014", read("$p.a = now(1)"), 2, 8, "now(1)", "`now` takes 0 arguments, got 1", None),
    ("P015", read("nearest($p, $q) < 1"), 2, 9, "$p", "first argument of `nearest`", "$v.property"),
    ("P016", read("$p: P", "rrf($p.a, $q)"), 3, 16, "$p.a", "`rrf` fuses two rankings", None),
    ("P020", read("$p: P", params="$x: I32, $x: I64"), 1, 18, "$x", "declared twice", None),
    ("P021", read("$p: P", params="$x: Vector(0)"), 1, 20, "0", "greater than zero", None),
    ("P022", read("$p: P", params="$x: Strng"), 1, 13, "Strng", "unknown parameter type", "String"),
    (
        "P022",
        read("$p: P", params="$x: enum(a)"),
        1,
        13,
        "enum",
        "unknown parameter type",
        "String",
    ),
    (
        "P023",
        'query q() @note("x") { match { $p: P } return { $p } }',
        1,
        11,
        "@note",
        "`@note`",
        "takes",
    ),
    (
        "P024",
        'query q() @description("x") @description("y") { insert P { a: 1 } }',
        1,
        29,
        "@description",
        "duplicate @description",
        None,
    ),
    ("P025", "query q() { match { } return { 1 } }", 1, 19, "{", "at least one clause", None),
    ("P025", read("not { }"), 2, 5, "{", "a negation needs at least one clause", None),
    (
        "P026",
        "query q() { match { $p: P } return { } }",
        1,
        36,
        "{",
        "at least one projection",
        None,
    ),
    ("P027", read("$p: P", tail="order { nearest($p.v, $q) asc }"), 3, 48, "asc", "no `asc`", None),
    (
        "P028",
        read("$p: P", tail="offset 3"),
        3,
        22,
        "offset",
        "needs a `limit`",
        "limit N offset M",
    ),
    ("P029", read("$a <not> $b"), 2, 5, "not", "cannot be called `not`", None),
    ("P030", read("$a knows $b.name"), 2, 10, "$b.name", "not in a property", "`$a.property"),
    (
        "P031",
        "query q() { insert P { a: 1 } match { $p: P } }",
        1,
        31,
        "match",
        "reads or writes",
        "two",
    ),
    ("P032", read("$p.a -5 = 1"), 2, 6, "-", "cannot start with a negative number", "comma"),
    (
        "P033",
        read("$p: P", tail="limit 3 order { $p.a }"),
        3,
        30,
        "order",
        "before `limit`",
        None,
    ),
    ("P034", read("p: Person"), 2, 1, "p", "variables start with `$`", "write `$p`"),
    ("P034", read("p.age = 1"), 2, 1, "p", "variables start with `$`", "write `$p`"),
    ("P034", read("$p: P", "p.name"), 3, 12, "p", "variables start with `$`", "write `$p`"),
    ("P035", read("$p Knows $q"), 2, 4, "Knows", "lower-case first letter", "write `knows`"),
    ("P036", read('$p.name like "x"'), 2, 9, "like", "no operator `like`", "contains"),
    ("P036", read("$p.age between 1 and 2"), 2, 8, "between", "no operator", ">="),
]


@pytest.mark.parametrize(
    ("code", "text", "line", "column", "marked", "message", "hint"),
    ERRORS,
    ids=[f"{e[0]}-{i}" for i, e in enumerate(ERRORS)],
)
def test_errors(
    code: str, text: str, line: int, column: int, marked: str, message: str, hint: str | None
) -> None:
    _, problems = parse(text)
    assert problems, "nothing was reported"
    first = problems[0]
    assert first.code == code
    assert message in first.message
    assert first.source.position(first.span.start) == (line, column)
    assert first.source.text[first.span.start : first.span.end] == marked
    assert (hint is None) == (first.hint is None)
    assert hint is None or hint in str(first.hint)
    shown = first.render().split("\n")
    assert shown[0] == f"q.gq:{line}:{column}: parse error: {code}: {first.message}"
    assert shown[1] == f" {line} | {text.splitlines()[line - 1]}"
    gutter = " " * len(str(line))
    assert shown[2] == f" {gutter} | {' ' * (column - 1)}{'^' * len(marked)}"


def test_every_syntax_code_is_produced_by_a_test() -> None:
    assert {error[0] for error in ERRORS} == set(SYNTAX)


def test_the_end_of_the_file_is_named() -> None:
    _, problems = parse("query q(")
    assert problems[0].message.endswith("found the end of the file")


def test_several_errors_are_reported_in_one_run() -> None:
    text = read("$p: person\n$p.a = = 1\n$p.b > 2\n$p: P { x }", "$p.a ++", tail="limit x")
    _, problems = parse(text)
    locations = [problem.source.position(problem.span.start) for problem in problems]
    assert sorted({line for line, _ in locations}) == [2, 3, 5, 6]
    assert [d.message for d in problems if d.source.position(d.span.start)[0] == 5] == [
        "expected `:` after `x`, found `}`"
    ]
    assert "after `limit`" in problems[-1].message


@pytest.mark.parametrize(
    "broken",
    [
        "query bad( { match { $p: P } return { $p } }",
        "query bad() { match { $p: P  return { $p }",
        "query bad() { match { $p: } return { $p } }",
        "query bad() { insert P { a 1 } }",
        "query bad() { match { not { $p knows } return { $p } }",
        "nonsense (",
        'query bad() { match { $p.a = "unclosed\n} return { $p } }',
    ],
)
def test_the_query_after_a_broken_one_is_still_read(broken: str) -> None:
    text = f"{broken}\nquery good() {{ match {{ $p: P }} return {{ $p }} }}"
    queries, problems = parse(text)
    assert problems
    assert queries[-1].name == "good"
    assert (
        tree_text(queries[-1].body)
        == "ReadBody([BindingClause('p', 'P')], [Projection(VariableExpr('p'))])"
    )
    last_line = text.count("\n") + 1
    assert all(p.source.position(p.span.start)[0] < last_line for p in problems)


def test_a_broken_clause_leaves_the_others() -> None:
    queries, problems = parse(read("$p: P\n$p.a = )\n$p.b = 1"))
    assert len(problems) == 1
    assert isinstance(queries[0].body, ast.ReadBody)
    assert (
        tree_text(queries[0].body.clauses[-1])
        == "FilterClause(CompareExpr(=, PropertyExpr('p', 'b'), LiteralExpr(int, 1)))"
    )


def test_a_flood_of_errors_is_cut() -> None:
    _, problems = parse("\n".join(["query q( {"] * 500))
    assert 1 <= len(problems) <= 50


def test_comments_may_hold_anything() -> None:
    text = (
        "// @unique(src,dst) { \" → ┌─┐ don't\nquery q() { /* } */ match { $p: P } return { $p } }"
    )
    assert parse_one(text).name == "q"


@pytest.mark.parametrize(
    "text", ["", "query", "query q() {", "{", "}", '"', "$", "query q() { match {"]
)
def test_fragments_never_raise(text: str) -> None:
    parse_queries(text)


@pytest.mark.parametrize("result", ["$p.name as0x", "$p.name asx0", "$p.name as x0"])
def test_what_is_glued_to_a_keyword_must_be_a_name_of_its_own(result: str) -> None:
    queries, problems = parse(read("$p: P", result))
    assert problems == []
    actual = queries[0].body
    assert isinstance(actual, ast.ReadBody)
    aliases = [projection.alias for projection in actual.projections]
    assert aliases == ([None, None] if "0x" in result else ["x0"])


def test_an_empty_block_is_reported_after_other_mistakes_too() -> None:
    wrong = "query a() { match { $p: person } return { $p } }"
    empty = "query b() { match { } return { } }"
    _, problems = parse(f"{wrong}\n{empty}\nquery c() {{ }}")
    actual = [
        (problem.code, problem.source.position(problem.span.start)[0]) for problem in problems
    ]
    assert actual == [("P010", 1), ("P025", 2), ("P026", 2), ("P010", 3)]
