"""Warnings about legal schemas, and the ids made from key values."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from omnigraph.errors import ValueConversionError
from omnigraph.lang.diagnostics import Severity, Source
from omnigraph.lang.schema.compile import analyze_schema
from omnigraph.lang.schema.lint import lint_schema
from omnigraph.lang.schema.lint_codes import lint_code
from omnigraph.lang.values.spelling import KeyValue, key_id

EAST = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("node A { x: I32 @range(x, 0..1) }", []),
        ("node A { x: I32 @range(x, 2..1) }", ["OG-MF-202"]),
        ("node A { x: [I32] @range(x, 0..1) }", ["OG-MF-203"]),
        ('node A { x: String @check(x, "a(") }', ["OG-MF-201"]),
        ('node A { x: String @check(x, "^a+$") }', []),
        ('node A { x: String @check(x, "(?=a)b") }', ["OG-MF-201"]),
        (r'node A { x: String @check(x, "(a)\\1") }', ["OG-MF-201"]),
        ('node A { x: String @check(x, "a{1001}") }', ["OG-MF-201"]),
        (r'node A { x: String @check(x, "^\\p{Lu}[[:alpha:]]\\z") }', []),
        ("node A { x: I32 @index @index(x) }", ["OG-NM-101"]),
        ("node A { x: I32 y: I32 @unique(x, y) @unique(y, x) }", ["OG-NM-101"]),
        ('node A { } node B @rename_from("A") { }', ["OG-NM-102"]),
        ('node A { x: I32 y: I32 @rename_from("x") }', ["OG-NM-102"]),
        ('node B @rename_from("A") { y: I32 @rename_from("x") }', []),
        ("node A { t: String v: Vector(2) @embed(t) }", ["OG-VE-101"]),
        ("node A { t: String v: Vector(2) @embed(t) @index }", []),
        ("node A { } edge E: A -> A { from: I32 to: I32 }", ["OG-ED-101", "OG-ED-101"]),
        ("node A { from: I32 }", []),
    ],
)
def test_footguns_are_warned_about(text: str, codes: list[str]) -> None:
    source = Source("s.pg", text)
    file, errors = analyze_schema(source)
    assert errors == []
    actual = lint_schema(file, source)
    assert [d.code for d in actual] == codes
    for diagnostic in actual:
        assert diagnostic.severity is Severity.WARNING
        assert lint_code(diagnostic.code) is not None


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["a b"], "a b"),
        ([7], "7"),
        ([True], "true"),
        ([-0.0], "0.0"),
        ([1e16], "1e16"),
        ([date(2024, 5, 1)], "2024-05-01"),
        ([datetime(2024, 5, 1, 10)], "2024-05-01T10:00:00.000Z"),
        ([datetime(2024, 5, 1, 12, tzinfo=EAST)], "2024-05-01T10:00:00.000Z"),
        ([datetime(2024, 5, 1, 1, 2, 3, 4000, tzinfo=UTC)], "2024-05-01T01:02:03.004Z"),
        (["a", 1], '["a","1"]'),
        (["ä\"", date(2024, 5, 1)], '["ä\\"","2024-05-01"]'),
    ],
)  # fmt: skip
def test_key_values_have_one_spelling(values: list[KeyValue], expected: str) -> None:
    assert key_id(values) == expected


def test_different_tuples_have_different_ids() -> None:
    tuples = [["a,b", "c"], ["a", "b,c"], ['a","b', "c"], ["a", 'b","c'], ["", ""], ["[]", ""]]
    assert len({key_id(values) for values in tuples}) == len(tuples)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, b"x", [1]])
def test_other_values_cannot_be_keys(value: KeyValue) -> None:
    with pytest.raises(ValueConversionError):
        key_id([value])


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("node A { name: String @keys }", "@key"),
        ("node A { name: String @indx }", "@index"),
        ('node A @descripton("x") { name: String }', "@description"),
        ("interface I { name: String @uniqe } node A implements I { }", "@unique"),
    ],
)
def test_an_annotation_that_looks_misspelt_is_warned_about(text, meant):
    source = Source("s.pg", text)
    (actual,) = lint_schema(analyze_schema(source)[0], source)
    assert (actual.code, actual.hint) == ("OG-NM-103", f"did you mean `{meant}`?")


def test_an_annotation_of_ones_own_is_no_mistake():
    source = Source("s.pg", 'node A @team("x") { v: Vector(2) @vector("cosine") @index }')
    assert lint_schema(analyze_schema(source)[0], source) == []
