"""Formatting keeps the meaning and the comments, and formats the same way the next time."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from omnigraph.errors import QueryError
from omnigraph.lang.diagnostics import Source
from omnigraph.lang.lexer import lex
from omnigraph.lang.parsing import MAX_NESTING
from omnigraph.lang.query import ast
from omnigraph.lang.query.format import format_expression, format_queries, format_query_file
from omnigraph.lang.query.parser import parse_queries
from tests.lang.query.strategies import clauses, laid_out_texts, query_files

# Whole files are large examples.
fewer = settings(max_examples=settings().max_examples // 3)


def read(text: str) -> ast.QueryFile:
    file, diagnostics = parse_queries(Source("q.gq", text))
    assert diagnostics == [], text
    return file


def formatted(text: str) -> str:
    return format_queries(Source("q.gq", text))


def comments(text: str) -> list[str]:
    """The comments of a text; white space at the end of their lines does not count."""
    actual = lex(Source("q.gq", text)).comments
    return ["\n".join(line.rstrip() for line in c.text.split("\n")) for c in actual]


def file_of(*matched: ast.Clause) -> ast.QueryFile:
    body = ast.ReadBody(matched, (ast.Projection(ast.VariableExpr("p")),))
    return ast.QueryFile((ast.Query("q", (), body),))


# -- what holds for every query ------------------------------------------------------------------


@fewer
@given(query_files)
def test_a_printed_tree_reads_back_as_the_same_tree(file: ast.QueryFile) -> None:
    assert read(format_query_file(file)) == file


@fewer
@given(st.lists(clauses, min_size=1, max_size=6))
def test_clauses_side_by_side_stay_apart(matched: list[ast.Clause]) -> None:
    file = file_of(*matched)
    assert read(format_query_file(file)) == file


@fewer
@given(query_files)
def test_a_printed_tree_is_in_standard_layout(file: ast.QueryFile) -> None:
    text = format_query_file(file)
    assert formatted(text) == text


@fewer
@given(laid_out_texts())
def test_formatting_keeps_the_tree_and_every_comment_and_is_idempotent(text: str) -> None:
    once = formatted(text)
    assert read(once) == read(text)
    assert comments(once) == comments(text)
    assert formatted(once) == once


@fewer
@given(laid_out_texts())
def test_blank_lines_are_single_and_separate_queries(text: str) -> None:
    once = formatted(text)
    assert "\n\n\n" not in once
    assert once == once.strip("\n") + "\n" * bool(once)
    assert once.count("\n}\n\n") + once.count("\n} ") >= len(read(once).queries) - 1


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(-0.0)
@example(5e-324)
@example(1.7976931348623157e308)
@example(1e16)
@example(0.1 + 0.2)
def test_a_float_survives_exactly(number: float) -> None:
    text = format_expression(ast.LiteralExpr(ast.LiteralKind.FLOAT, number))
    assert "e" not in text
    body = read(f"query q() {{ insert T {{ a: {text} }} }}").queries[0].body
    assert isinstance(body, ast.MutationBody)
    (insert,) = body.statements
    assert isinstance(insert, ast.InsertStatement)
    value = insert.assignments[0].value
    assert isinstance(value, ast.LiteralExpr)
    assert isinstance(value.value, float)
    assert (value.value, math.copysign(1, value.value)) == (number, math.copysign(1, number))


# -- words that would be read as something else ---------------------------------------------------


def in_match(lines: str) -> str:
    inner = "".join(f"    {line}\n" for line in lines.split("\n"))
    return f"query q() {{\n  match {{\n{inner}  }}\n  return {{ $p }}\n}}\n"


@pytest.mark.parametrize(
    ("given_lines", "expected"),
    [
        ("($a) contains $b", "($a) contains $b"),
        ("($a) in $b", "($a) in $b"),
        ("($a and $b.x = 1)", "($a) and $b.x = 1"),
        ("(($a) and $b)", "($a) and $b"),
        ("$a in [1, 2]", "$a in [1, 2]"),
        ('$a contains "x"', '$a contains "x"'),
        ("$a is null", "$a is null"),
        ("$a in $b", "$a in $b"),
        ("($on)\n$p: Person", "($on)\n$p: Person"),
        ("((-5) < $p.age)", "(-5) < $p.age"),
        ("(-0.5) is null", "(-0.5) is null"),
        ("$p.age > -5", "$p.age > -5"),
        (
            "$p.x = (total)\n(1 = 2 or 3 = 4) and 5 = 6",
            "$p.x = (total)\n(1 = 2 or 3 = 4) and 5 = 6",
        ),
        ("$p.x = (total) $p.y = 1", "$p.x = total\n$p.y = 1"),
        ("$p.x = true\n(1 = 2) or 5 = 6", "$p.x = true\n1 = 2 or 5 = 6"),
        ("$p.x = null\n(1 = 2 or 3 = 4) and 5 = 6", "$p.x = null\n(1 = 2 or 3 = 4) and 5 = 6"),
        ("$p.x is null\n(1 = 2 or 3 = 4) and 5 = 6", "$p.x is null\n(1 = 2 or 3 = 4) and 5 = 6"),
        ("(not) in [1]", "(not) in [1]"),
        ("not = 5", "(not) = 5"),
        ("$p.x = 1 (in) = 5", "$p.x = 1\n(in) = 5"),
        ("(limit) 5 = $p.x", "(limit)\n5 = $p.x"),
        ("not not $p.x", "not (not ($p.x))"),
        ("not $p.x = 1", "not ($p.x = 1)"),
        ("(not ($p.x)) = true", "(not ($p.x)) = true"),
        ("1 = 1 and (2 = 2 and 3 = 3)", "1 = 1 and (2 = 2 and 3 = 3)"),
        ("(1 = 1 and 2 = 2) or 3 = 3", "1 = 1 and 2 = 2 or 3 = 3"),
        ("1 = 1 and (2 = 2 or 3 = 3)", "1 = 1 and (2 = 2 or 3 = 3)"),
        ("(((1 = 1)))", "1 = 1"),
        ("$a $w:<knows>{1, 2} $_", "$a $w:<knows>{1,2} $_"),
        ("$a knows{1,} $b", "$a knows{1,} $b"),
        ("$a knows{1,1} $b", "$a knows $b"),
        ("$a limit $b\n$a contains $b", "$a limit $b\n$a contains $b"),
        ("$p: Person {}", "$p: Person"),
        ("count((distinct) = 1) = 2", "count((distinct) = 1) = 2"),
        ("count(distinct distinct) = 2", "count(distinct (distinct)) = 2"),
    ],
)
def test_conditions_are_printed_so_that_they_read_back(given_lines: str, expected: str) -> None:
    assert formatted(in_match(given_lines)) == in_match(expected)
    assert read(in_match(expected)) == read(in_match(given_lines))


@pytest.mark.parametrize(
    ("projection", "order"),
    [
        ("1 as null", "null"),
        ("1 as null", "null desc"),
        ("1 as null", "(null)"),
        ("1 as not", "not"),
        ("1 as true", "true, (true)"),
        ("count($p) as count", "count desc, count($p)"),
        ("$p.a as date", 'date("2020-01-01") desc, date'),
        ("$p.a as x", "x = 1, x"),
        ("$p.a", "(not) desc"),
        ("$p.a as desc", "desc desc"),
    ],
)
def test_an_order_by_an_awkward_alias_survives(projection: str, order: str) -> None:
    text = (
        f"query q() {{\n  match {{\n    $p: P\n  }}\n"
        f"  return {{ {projection} }}\n  order {{ {order} }}\n}}\n"
    )
    assert formatted(text) == text
    assert read(format_query_file(read(text))) == read(text)


def test_formatting_never_nests_deeper_than_the_text_it_was_given() -> None:
    for depth in range(1, MAX_NESTING + 2):
        for opening, inner, closing in (("not ", "$p.x", ""), ("(1 = ", "(not) in [1]", ")")):
            text = in_match(opening * depth + inner + closing * depth)
            if not parse_queries(Source("q", text))[1]:
                assert read(formatted(text)) == read(text)


# -- layout ---------------------------------------------------------------------------------------

LAYOUTS = {
    "everything on one line": (
        'query q($a:String,$b:[I32]?)@description("d"){match{$p:P{a:$a,b:1.50}not{$p e $_}}'
        "return distinct{$p.a as x $p.b}order{x desc,$p.b asc}limit 10 offset 5}",
        """\
query q($a: String, $b: [I32]?)
  @description("d")
{
  match {
    $p: P { a: $a, b: 1.5 }
    not {
      $p e $_
    }
  }
  return distinct { $p.a as x, $p.b }
  order { x desc, $p.b }
  limit 10 offset 5
}
""",
    ),
    "long lists are broken up": (
        "query q($first_parameter: String, $second_parameter: String, $third_parameter: String,"
        " $fourth: Vector(3)) { insert Thing { first_property: $first_parameter, second_property:"
        " $second_parameter, third: $third_parameter }"
        " update Thing set { a: 1 } where first_property = $first_parameter and second_property ="
        " $second_parameter or third = 1"
        " delete Thing where first_property_of_the_thing = $first_parameter and"
        " second_property_of_the_thing = $second_parameter }",
        """\
query q(
  $first_parameter: String, $second_parameter: String, $third_parameter: String, $fourth: Vector(3)
) {
  insert Thing {
    first_property: $first_parameter,
    second_property: $second_parameter,
    third: $third_parameter
  }
  update Thing set { a: 1 }
    where first_property = $first_parameter and second_property = $second_parameter or third = 1
  delete Thing
    where first_property_of_the_thing = $first_parameter
      and second_property_of_the_thing = $second_parameter
}
""",
    ),
    "a long condition is broken before its operators": (
        in_match(
            '$p.name = "a rather long name" and $p.name != "another rather long name"'
            " and ($p.age > 10 or $p.age is null)"
        ),
        in_match(
            '$p.name = "a rather long name"\n  and $p.name != "another rather long name"\n'
            "  and ($p.age > 10 or $p.age is null)"
        ),
    ),
    "an update with a comment in its list": (
        "query q() { update T set { a: 1, // one\n b: 2 } where a = 2 }",
        """\
query q() {
  update T set {
    a: 1, // one
    b: 2
  } where a = 2
}
""",
    ),
    "comments stay where they belong": (
        """\
// file

/* about q */ query q( // takes
  $a: String, // who
  $b: I32 /* how many */
) // gives
@description("d") // note
{ // body
  match { $p: P // all
    // the old ones
    $p.age > 60


    $p.age < /* not too old */ 90
    // nothing more
  }
  return { $p.name // their name
  }
  // at most
  limit 10 } // end of q
// about r
query r() { delete T where a = 1 }
// end
""",
        """\
// file

/* about q */
query q( // takes
  $a: String, // who
  $b: I32 /* how many */
) // gives
  @description("d") // note
{ // body
  match {
    $p: P // all
    // the old ones
    $p.age > 60

    // not too old
    $p.age < 90
    // nothing more
  }
  return {
    $p.name // their name
  }
  // at most
  limit 10
} // end of q

// about r
query r() {
  delete T where a = 1
}
// end
""".replace("// not too old", "/* not too old */"),
    ),
    "annotations keep their order": (
        'query q() @instruction("i")\n@description("d") { delete T where a = 1 }',
        'query q()\n  @instruction("i")\n  @description("d")\n{\n  delete T where a = 1\n}\n',
    ),
    "queries are one blank line apart": (
        "query a() { delete T where x = 1 } query b() { delete T where x = 1 }\n\n\n\n"
        "query c() { delete T where x = 1 }",
        "\n".join(f"query {name}() {{\n  delete T where x = 1\n}}\n" for name in "abc"),
    ),
    "line ends become plain": (
        "query a() {\r\n  delete T where x = 1 // one\r\n\r\n\r\n  delete T where x = 2\r\n}\r\n",
        "query a() {\n  delete T where x = 1 // one\n\n  delete T where x = 2\n}\n",
    ),
    "only comments": ("  // a\n\n\n/* b */", "// a\n\n/* b */\n"),
    "nothing": (" \n\n ", ""),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout(name: str) -> None:
    text, expected = LAYOUTS[name]
    assert formatted(text) == expected
    assert formatted(expected) == expected


def test_a_text_that_does_not_parse_is_refused_with_every_place() -> None:
    with pytest.raises(QueryError) as caught:
        formatted("query a() { match { $p Person } return { $p } }\nquery b( { delete T }")
    assert [d.source.position(d.span.start)[0] for d in caught.value.diagnostics] == [1, 2]
    assert all(d.render() for d in caught.value.diagnostics)


def test_words_that_look_like_the_head_of_a_query_are_read_back() -> None:
    text = 'query q() { match { query contains (in) $p.x = "query q(" } return { $p.x } }'
    file, problems = parse_queries(text)
    assert problems == []
    printed = format_query_file(file)
    assert parse_queries(printed) == (file, [])
