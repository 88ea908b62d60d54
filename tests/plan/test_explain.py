"""What ``explain`` prints: texts for people, JSON for programs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from omnigraph.lang.query import typed
from omnigraph.lang.types import PropType, Scalar
from omnigraph.plan import compile_query
from omnigraph.plan.explain import explain_json, explain_text, show, show_value
from omnigraph.plan.nodes import PlanStep, ReadPlan
from tests.lang.query.world import CATALOG, body, check_read, condition, read, tree_text

FULL = """
query full($name: String, $ages: [I32]?, $near: Vector(3)) {
    match {
        $p: Person { name: $name, tags: "x" }
        $p $w:knows $f
        $f knows{1,3} $g
        $g <knows> $h
        $c: Company
        $f worksAt $c
        $f wrote $d
        $h wrote $d
        $w.since > -1
        $f.age in $ages or $f.age is null and not ($f.active)
        search($d.title, "a \\"b\\"")
        $p.seen < now()
        $g.age = $f.age
        not { $f knows $p  not { $p worksAt $_ } }
    }
    return distinct { $p.name as who  $f.age  nearest($d.embedding, $near) as far }
    order { who desc, $f.age } limit 10 offset 5
}
"""

FULL_TEXT = """\
read full($name: String, $ages: [I32]?, $near: Vector(3))
  scan $p: Person
    where $p.name = $name
    where "x" in $p.tags
    where $p.seen < now()
  expand $p -[$w: Knows]-> $f: Person
    where $f.age in $ages or ($f.age is null and not ($f.active))
    where $w.since > -1
  expand $f -[Knows 1..3]-> $g: Person
  filter $g.age = $f.age
  expand $g -[Knows]- $h: Person
  expand $f -[WorksAt]-> $c: Company
  expand $f -[Wrote]-> $d: Doc
    where search($d.title, "a \\"b\\"")
  connect $h -[Wrote]-> $d
  without (from $f, $p)
    connect $f -[Knows]-> $p
    without (from $p)
      expand $p -[WorksAt]-> $_~1: Company
  return distinct who = $p.name, f.age = $f.age, far = nearest($d.embedding, $near)
  order who desc, f.age asc
  limit 10 offset 5
  reads $d: embedding, title
  reads $f: active, age
  reads $g: age
  reads $p: name, seen, tags
  reads $w: since"""

GROUPS = """
query groups() {
    match { $c: Company  $p worksAt $c }
    return { $c.name  count(distinct $p) as people  avg($p.age) as age }
    order { people desc }
}
"""

GROUPS_TEXT = """\
read groups()
  scan $c: Company
  expand $c <-[WorksAt]- $p: Person
  return c.name = $c.name, people = count(distinct $p), age = avg($p.age)
  order people desc
  reads $c: name
  reads $p: age"""

SEARCH = """
query ranked($q: String) {
    match { $d: Doc  fuzzy($d.body, $q, 1)  match_text($d.title, $q) = false }
    return { $d.slug  bm25($d.title, $q) as score }
    order { rrf(nearest($d.embedding, $q), bm25($d.title, $q), 30) } limit 3
}
"""

SEARCH_TEXT = """\
read ranked($q: String)
  scan $d: Doc
    where fuzzy($d.body, $q, 1)
    where not (match_text($d.title, $q))
  return d.slug = $d.slug, score = bm25($d.title, $q)
  order rrf(nearest($d.embedding, $q), bm25($d.title, $q), 30) best first
  limit 3
  reads $d: body, embedding, slug, title"""

WRITE = """
query write($n: String, $since: I32?) {
    insert Person { name: $n  born: date("2024-02-29")  seen: now()  tags: ["a", "b"]  age: null }
    insert WorksAt { from: $n  to: "acme"  role: "boss" }
    update Knows set { since: $since } where from = $n and (to != "x" or note is not null)
}
"""

WRITE_TEXT = """\
mutation write($n: String, $since: I32?)
  insert node Person
    name = $n
    born = date("2024-02-29")
    seen = now()
    tags = ["a", "b"]
    age = null
  insert edge WorksAt
    from = $n
    to = "acme"
    role = "boss"
  update edge Knows
    since = $since
    where src = $n and (dst != "x" or note is not null)"""

DELETE = (
    'query drop() { delete Person where seen < datetime("2024-01-01T00:00:00.5Z") or not (active) }'
)

DELETE_TEXT = """\
mutation drop()
  delete node Person
    where seen < datetime("2024-01-01T00:00:00.500Z") or not (active)"""


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (FULL, FULL_TEXT),
        (GROUPS, GROUPS_TEXT),
        (SEARCH, SEARCH_TEXT),
        (WRITE, WRITE_TEXT),
        (DELETE, DELETE_TEXT),
    ],
    ids=["full", "groups", "search", "write", "delete"],
)
def test_text(query: str, expected: str) -> None:
    assert explain_text(compile_query(CATALOG, query)) == expected


def test_json_of_a_read() -> None:
    query = """
    query q($n: String, $k: I32?) {
        match { $p: Person { name: $n } $p $w:knows $f $f knows $p $w.since = $k $f.age < $p.age
                not { $f worksAt $_ } }
        return { $f.name as who count($p) as n } order { n desc } limit 2
    }"""
    expected: dict[str, Any] = {
        "kind": "read",
        "name": "q",
        "params": [
            {"name": "n", "type": "String", "nullable": False},
            {"name": "k", "type": "I32", "nullable": True},
        ],
        "pipeline": [
            {
                "op": "node_scan",
                "variable": "p",
                "type": "Person",
                "filters": ["$p.name = $n"],
            },
            {
                "op": "expand",
                "src": "p",
                "dst": "f",
                "edge": "Knows",
                "direction": "out",
                "min_hops": 1,
                "max_hops": 1,
                "edge_variable": "w",
                "edge_filters": ["$w.since = $k"],
                "dst_type": "Person",
                "dst_filters": [],
            },
            {"op": "filter", "condition": "$f.age < $p.age"},
            {
                "op": "connect",
                "src": "f",
                "dst": "p",
                "edge": "Knows",
                "direction": "out",
                "min_hops": 1,
                "max_hops": 1,
                "edge_variable": None,
                "edge_filters": [],
            },
            {
                "op": "anti_join",
                "outer": ["f"],
                "inner": [
                    {
                        "op": "expand",
                        "src": "f",
                        "dst": "_~1",
                        "edge": "WorksAt",
                        "direction": "out",
                        "min_hops": 1,
                        "max_hops": 1,
                        "edge_variable": None,
                        "edge_filters": [],
                        "dst_type": "Company",
                        "dst_filters": [],
                    }
                ],
            },
        ],
        "columns": [
            {"name": "who", "expr": "$f.name", "type": "String"},
            {"name": "n", "expr": "count($p)", "type": "I64"},
        ],
        "distinct": False,
        "order": [{"expr": "n", "desc": True}],
        "limit": 2,
        "offset": None,
        "reads": {"f": ["age", "name"], "p": ["age", "name"], "w": ["since"]},
    }
    actual = explain_json(compile_query(CATALOG, query))
    assert actual == expected
    assert list(actual) == list(expected)
    assert json.loads(json.dumps(actual)) == actual


def test_json_of_a_mutation() -> None:
    actual = explain_json(compile_query(CATALOG, WRITE))
    assert json.loads(json.dumps(actual)) == actual
    assert actual == {
        "kind": "mutation",
        "name": "write",
        "params": [
            {"name": "n", "type": "String", "nullable": False},
            {"name": "since", "type": "I32", "nullable": True},
        ],
        "statements": [
            {
                "op": "insert",
                "entity": "node",
                "type": "Person",
                "assign": {
                    "name": "$n",
                    "born": 'date("2024-02-29")',
                    "seen": "now()",
                    "tags": '["a", "b"]',
                    "age": "null",
                },
                "where": None,
            },
            {
                "op": "insert",
                "entity": "edge",
                "type": "WorksAt",
                "assign": {"from": "$n", "to": '"acme"', "role": '"boss"'},
                "where": None,
            },
            {
                "op": "update",
                "entity": "edge",
                "type": "Knows",
                "assign": {"since": "$since"},
                "where": 'src = $n and (dst != "x" or note is not null)',
            },
        ],
    }


class Stranger(PlanStep):
    """A step of a new kind."""

    def introduced(self) -> tuple[str, ...]:
        return ()


def test_a_step_that_explain_does_not_know_is_an_error() -> None:
    plan = ReadPlan("q", {}, (Stranger(),), ())
    for explain in (explain_text, explain_json):
        with pytest.raises(TypeError, match="explain does not know Stranger"):
            explain(plan)


def test_a_step_must_say_what_every_rule_asks_of_it() -> None:
    class Silent(PlanStep):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Silent()  # type: ignore[abstract]


# -- expressions read like the language -------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "$p.age = 1",
        "($p.age = 1) = $p.active",
        "($p.age in [1, 2]) is null",
        "($p.age = 1) in [true, null]",
        "not ($p.active and $p.age > -3)",
        "$p.active and ($p.age = 1 or $p.age = 2)",
        "$p.active or ($p.age = 1 and $p.age = 2)",
        '$p.name contains "a\\nb"',
        '$p.name starts_with "\\""',
        "$p.weight < -2.5",
        '$p.born = date("2024-01-01")',
        "$p.age is not null",
        "search($p.name, $q) = $p.active",
        'fuzzy($p.name, "x", 2)',
        "$p.age in [$a, 1]",
    ],
)
def test_a_shown_condition_is_what_was_written(text: str) -> None:
    (actual,) = check_read(f"$p: Person {text}", params="$q: String, $a: I32").pattern.conditions
    assert show(actual) == text
    assert tree_text(condition(show(actual))) == tree_text(condition(text))


@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [
        (None, typed.NULL, "null"),
        (True, typed.BOOL, "true"),
        (-5, typed.INT, "-5"),
        (2.5, typed.FLOAT, "2.5"),
        ('a"b', typed.STRING, '"a\\"b"'),
        ((1, None), PropType(Scalar.I64, is_list=True), "[1, null]"),
        ((), PropType(Scalar.I64, is_list=True), "[]"),
    ],
)
def test_values_are_shown_as_literals(value: Any, type_: PropType, expected: str) -> None:
    assert show_value(value) == expected
    assert show(typed.Constant(value, type_)) == expected
    assert body("$p: P", f"{expected} as v").projections[0].alias == "v"


def test_reads_names_only_what_is_needed() -> None:
    plan = compile_query(CATALOG, read("$p: Person $p knows $f", "$f.name count($p) as n"))
    assert explain_json(plan)["reads"] == {"f": ["name"]}
