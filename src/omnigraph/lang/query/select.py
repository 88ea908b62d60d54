"""Picking one query out of a file."""

from __future__ import annotations

from omnigraph.errors import InputError, QueryError, QueryNotFound
from omnigraph.lang.diagnostics import Diagnostic, Phase, Source
from omnigraph.lang.query import ast
from omnigraph.lang.query.checker.context import suggest
from omnigraph.lang.query.parser import parse_queries


def duplicate_names(source: Source, file: ast.QueryFile) -> list[Diagnostic]:
    """A finding for every query whose name was already taken in the file (Q001)."""
    first: dict[str, ast.Query] = {}
    findings: list[Diagnostic] = []
    for query in file.queries:
        earlier = first.setdefault(query.name, query)
        if earlier is not query:
            line, _ = source.position(earlier.span.start)
            message = f"query `{query.name}` is already declared in line {line}"
            findings.append(Diagnostic(Phase.PARSE, "Q001", message, source, query.name_span))
    return findings


def read_queries(source: Source) -> ast.QueryFile:
    """The queries of a text; raises ``QueryError`` when it does not parse."""
    file, problems = parse_queries(source)
    problems = problems or duplicate_names(source, file)
    if problems:
        raise QueryError(problems)
    return file


def select_query(file: ast.QueryFile, name: str | None = None) -> ast.Query:
    """The query of that name; without a name, the only one there is."""
    if not file.queries:
        hint = "write `query name() { … }`, or pass the path of a .gq file"
        raise InputError("the text holds no query", hint=hint)
    if name is None:
        if len(file.queries) == 1:
            return file.queries[0]
        names = ", ".join(query.name for query in file.queries[:8])
        more = ", …" if len(file.queries) > 8 else ""
        message = "query file contains multiple queries; name one of them"
        raise InputError(message, hint=f"it has {names}{more}")
    for query in file.queries:
        if query.name == name:
            return query
    existing = [query.name for query in file.queries]
    raise QueryNotFound(f"query '{name}' not found", hint=suggest(name, existing))
