"""One schema for all query tests, and short ways to parse, check and look at the result."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any

from omnigraph.lang.diagnostics import Diagnostic, Severity, Source, Span
from omnigraph.lang.query import ast
from omnigraph.lang.query.checked import CheckedQuery, CheckedRead
from omnigraph.lang.query.checker import examine_query
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.schema.compile import compile_schema

SCHEMA = """
interface Named { name: String }

node Person {
    name: String @key
    age: I32?
    active: Bool?
    tags: [String]?
    marks: [I64]?
    born: Date?
    seen: DateTime?
    big: I64?
    visits: U64?
    ratio: F32?
    weight: F64?
    kind: enum(friend, co-worker)?
    picture: Blob?
}

node Company { name: String @key  founded: Date? }

node Doc {
    slug: String @key
    title: String
    body: String?
    embedding: Vector(3) @embed("title")
    other: Vector(4)?
}

// every property here is a word of the language
node Trap {
    type: String @key
    match: String?  return: String?  order: I32?  limit: I32?  offset: I32?
    query: String?  not: Bool?  and: Bool?  or: Bool?  in: String?  is: String?  null: String?
    contains: String?  starts_with: String?  asc: I32?  desc: I32?  as: String?  distinct: I32?
    set: String?  where: String?  insert: String?  update: String?  delete: String?
    from: String?  to: String?  now: String?  date: Date?  datetime: String?  count: I64?
    search: String?  nearest: String?  true: Bool?  false: Bool?  kind: String?  when: DateTime?
    until: Date?  since: Date?  blob: String?  source: String?  branch: String?  path: String?
    primary: Bool?  current: Bool?  timestamp: DateTime?
}

edge Knows: Person -> Person { since: I32?  note: String? }
edge WorksAt: Person -> Company { role: String }
edge Wrote: Person -> Doc
edge Cites: Doc -> Doc
edge Contains: Doc -> Doc
edge Match: Trap -> Trap
"""

CATALOG = compile_schema(SCHEMA)


def parse(text: str) -> tuple[tuple[ast.Query, ...], list[Diagnostic]]:
    file, problems = parse_queries(Source("q.gq", text))
    return file.queries, problems


def parse_one(text: str) -> ast.Query:
    """The only query of a text that must be right."""
    queries, problems = parse(text)
    assert not problems, problems[0].render()
    (query,) = queries
    return query


def read(match: str, result: str = "$p.name", params: str = "", tail: str = "") -> str:
    """A read query on one line; the match block starts at column 1 of line 2."""
    return f"query q({params}) {{ match {{\n{match}\n}} return {{ {result} }} {tail} }}"


def body(match: str, result: str = "$p.name", params: str = "", tail: str = "") -> ast.ReadBody:
    actual = parse_one(read(match, result, params, tail)).body
    assert isinstance(actual, ast.ReadBody)
    return actual


def clause(text: str) -> ast.Clause:
    (actual,) = body(text).clauses
    return actual


def condition(text: str) -> ast.Expr:
    actual = clause(text)
    assert isinstance(actual, ast.FilterClause)
    return actual.condition


def examine(text: str) -> tuple[CheckedQuery | None, list[Diagnostic]]:
    """The checked query and its errors; warnings are left to lint."""
    query = parse_one(text)
    checked, actual = examine_query(CATALOG, Source("q.gq", text), query)
    return checked, [d for d in actual if d.severity is Severity.ERROR]


def check(text: str) -> CheckedQuery:
    checked, errors = examine(text)
    assert checked is not None, "\n".join(d.render() for d in errors)
    return checked


def check_read(
    match: str, result: str = "$p.name", params: str = "", tail: str = ""
) -> CheckedRead:
    checked = check(read(match, result, params, tail))
    assert isinstance(checked, CheckedRead)
    return checked


def errors_of(text: str) -> list[Diagnostic]:
    checked, errors = examine(text)
    assert (checked is None) == bool(errors)
    return errors


def codes_of(text: str) -> list[str]:
    return [d.code for d in errors_of(text)]


def tree_text(node: Any) -> str:
    """A tree as one short text: class names and values, places and defaults left out."""
    if isinstance(node, tuple):
        return "[" + ", ".join(map(tree_text, node)) + "]"
    if isinstance(node, Enum) or not is_dataclass(node):
        return str(node) if isinstance(node, Enum) else repr(node)
    parts = []
    for field in fields(node):
        value = getattr(node, field.name)
        if isinstance(value, Span) or value == field.default:
            continue
        label = "" if field.default is MISSING else f"{field.name}="
        parts.append(label + tree_text(value))
    return f"{type(node).__name__}({', '.join(parts)})"
