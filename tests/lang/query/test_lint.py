"""Linting a query file: its findings, the form of the report, and warnings."""

from __future__ import annotations

import json

import pytest

from omnigraph.lang.diagnostics import Source
from omnigraph.lang.query.codes import LINT
from omnigraph.lang.query.lint import NO_PARAMS, lint_queries
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.lang.schema.json_form import to_json

CATALOG = compile_schema(
    """
    node Person { name: String @key  age: I32?  city: String?  bio: String?
                  vec: Vector(4)? @embed("bio")  status: enum(open, closed)? }
    node Company { name: String @key  size: I32? }
    edge Knows: Person -> Person { since: Date? }
    edge WorksAt: Person -> Company
    """
)
SCHEMA = {"kind": "file", "path": "schema.pg"}
READ = "query r() { match { $p: Person } return { $p.name } }"


def lint(*queries):
    return lint_queries(CATALOG, Source("file.gq", "\n".join(queries)), SCHEMA)


def test_k212_a_file_that_does_not_parse_is_one_finding_and_no_result():
    report = lint("query a( {", "query b( {")
    assert [finding.code for finding in report.findings] == ["Q000"]
    assert (report.status, report.errors, report.results) == ("error", 1, ())
    assert [d.source.position(d.span.start)[0] for d in report.diagnostics] == [1, 2]


def test_k213_valid_and_invalid_queries_are_reported_side_by_side():
    bad = "query bad() { match { $p: Persn $q: Compny } return { $p.name } }"
    report = lint(READ, bad)
    assert [result.status for result in report.results] == ["ok", "error"]
    assert report.results[1].error == "type error: T1: unknown node type `Persn` (+1 more)"
    assert (report.status, report.errors) == ("error", 1)


@pytest.mark.parametrize(
    ("query", "warned"),
    [
        ('query m() { insert Person { name: "x" } }', True),
        ("query m($n: String) { insert Person { name: $n } }", False),
        (READ, False),
    ],
)
def test_k214_only_a_mutation_without_parameters_is_called_hard_coded(query, warned):
    (result,) = lint(query).results
    assert (NO_PARAMS in result.warnings) is warned


def test_k215_an_uncovered_property_is_named_with_the_update_queries():
    report = lint(
        "query b($n: String) { update Person set { age: 1 } where name = $n }",
        "query a($n: String) { update Person set { city: $n, status: null } where name = $n }",
    )
    (finding,) = report.findings
    assert to_json(finding) == {
        "severity": "warning",
        "code": "L201",
        "message": "Person.bio exists in schema but no update query sets it",
        "type_name": "Person",
        "property": "bio",
        "query_names": ["a", "b"],
    }


@pytest.mark.parametrize(
    "query",
    [
        "query i($n: String) { insert Company { name: $n } }",
        "query u($n: String) { update Company set { sise: 1 } where name = $n }",
        "query u($n: String) { update Company set { size: 1 } where name = $n }",
        "query u($d: Date) { update Knows set { since: $d } where since is null }",
    ],
    ids=["an insert", "an invalid update", "an update of the rest", "an edge update"],
)
def test_k216_coverage_needs_a_valid_update_and_leaves_keys_out(query):
    assert lint(query).findings == ()


def test_an_uncovered_property_is_shown_at_the_first_update_query():
    report = lint(READ, "query u($n: String) { update Company set { name: $n } where size = 1 }")
    assert report.findings == ()
    report = lint(READ, "query u($n: I32) { update Person set { age: $n } where age is null }")
    assert {d.code for d in report.diagnostics} == {"L201"}
    assert {d.source.position(d.span.start) for d in report.diagnostics} == {(2, 7)}


def test_k217_findings_and_query_names_are_sorted():
    report = lint(
        "query z($n: String) { update Person set { age: 1 } where name = $n }",
        "query a($n: String) { update Company set { name: $n } where size = 1 }",
        "query y($n: String) { update Person set { age: 2 } where name = $n }",
        "query b($n: I32) { delete Company where size = $n }",
    )
    assert [(f.type_name, f.property_name, f.query_names) for f in report.findings] == [
        ("Person", "bio", ("y", "z")),
        ("Person", "city", ("y", "z")),
        ("Person", "status", ("y", "z")),
    ]


def test_two_queries_of_one_name_are_an_error():
    report = lint(READ, READ)
    assert [(f.severity, f.code) for f in report.findings] == [("error", "Q001")]
    assert report.findings[0].message == "query `r` is already declared in line 1"
    assert (report.status, len(report.results)) == ("error", 2)


def test_the_report_is_json_in_the_order_scripts_expect():
    report = lint(READ, 'query m() { delete Person where name = "x" }')
    shape = json.loads(json.dumps(report.to_json()))
    assert list(shape) == [
        "status",
        "schema_source",
        "query_path",
        "queries_processed",
        "errors",
        "warnings",
        "infos",
        "results",
        "findings",
        "diagnostics",
    ]
    assert shape["schema_source"] == SCHEMA
    assert (shape["queries_processed"], shape["errors"], shape["warnings"]) == (2, 0, 1)
    assert list(shape["results"][1]) == ["name", "kind", "status", "warnings", "operation"]


def test_an_empty_file_is_fine():
    assert lint("// nothing here").to_json()["status"] == "ok"


WARNINGS = {
    "L101": 'query m() { insert Person { name: "x" } }',
    "L102": "query m($n: String) { insert Person { name: $n } delete Person where name = $n }",
    "L202": "query q() { match { $p: Person } return { $p.name, $p.age as p, $p as p } }",
    "L203": "query q($n: String) { match { $p: Person } return { $p.name } }",
    "L204": "query q() { match { $p: Person $p.age = null } return { $p.name } }",
    "L205": "query q() { match { $p: Person $c: Company } return { $p.name, $c.name } }",
}
SILENT = {
    "L102": "query m($n: String) { delete Knows where from = $n delete Person where name = $n }",
    "L202": "query q() { match { $p: Person } return { $p.name, $p.age, $p } }",
    "L203": "query q($n: String) { match { $p: Person { name: $n } } return { $p.name } }",
    "L204": "query q() { match { $p: Person $p.age is null } return { $p.name } }",
    "L205": "query q() { match { $p: Person $c: Company $p.name = $c.name } return { $p.name } }",
}


@pytest.mark.parametrize(("code", "query"), WARNINGS.items(), ids=list(WARNINGS))
def test_each_warning_is_given(code, query):
    report = lint(query)
    assert [d.code for d in report.diagnostics] == [code]
    assert report.results[0].warnings == (report.diagnostics[0].message,)
    assert report.status == "ok"


@pytest.mark.parametrize(("code", "query"), SILENT.items(), ids=list(SILENT))
def test_what_is_right_is_not_warned_about(code, query):
    assert lint(query).diagnostics == ()


@pytest.mark.parametrize(
    "query",
    [
        'query q() { match { $p: Person $p.status = "opne" } return { $p.name } }',
        "query q() { match { $p: Person $p.name is null } return { $p.name } }",
        "query q() { match { $p: Person $p.age != null } return { $p.name } }",
    ],
)
def test_a_comparison_that_never_holds_is_warned_about(query):
    assert [d.code for d in lint(query).diagnostics] == ["L204"]


def test_every_lint_code_has_a_test():
    assert {*WARNINGS, "L201"} == set(LINT)
