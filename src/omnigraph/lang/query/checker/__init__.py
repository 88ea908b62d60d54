"""Checks a query against a catalog: syntax tree in, typed query or all errors out."""

from __future__ import annotations

from omnigraph.errors import QueryError
from omnigraph.lang.diagnostics import Diagnostic, Severity, Source, first_in_source
from omnigraph.lang.query import ast
from omnigraph.lang.query.checked import CheckedQuery
from omnigraph.lang.query.checker.context import Context
from omnigraph.lang.query.checker.infer import CALLS
from omnigraph.lang.query.checker.mutations import check_mutation
from omnigraph.lang.query.checker.reads import check_read
from omnigraph.lang.query.checker.search import SEARCH_CALLS
from omnigraph.lang.query.typed import NOW_PARAMETER
from omnigraph.lang.schema.catalog import Catalog

__all__ = ["check_query", "examine_query"]

# Not in `infer`, which the search rules import.
CALLS.update(SEARCH_CALLS)


def examine_query(
    catalog: Catalog, source: Source, query: ast.Query
) -> tuple[CheckedQuery | None, list[Diagnostic]]:
    """The checked query and warnings about it, or ``None`` and its errors."""
    context = Context(catalog, source, {param.name: param.type for param in query.params})
    for param in query.params:
        if param.name == NOW_PARAMETER:
            message = f"parameter name `${NOW_PARAMETER}` is reserved"
            context.error("T28", message, param.span, "use `now()`")
    body = query.body
    checked: CheckedQuery
    if isinstance(body, ast.ReadBody):
        checked = check_read(context, query, body)
    else:
        assert isinstance(body, ast.MutationBody)
        checked = check_mutation(context, query, body)
    if context.error_count:
        errors = (d for d in context.diagnostics if d.severity is Severity.ERROR)
        return None, first_in_source(errors)
    for param in query.params:
        if param.name not in context.used_params:
            context.warn("L203", f"parameter `${param.name}` is never used", param.span)
    return checked, first_in_source(context.diagnostics)


def check_query(catalog: Catalog, source: Source, query: ast.Query) -> CheckedQuery:
    """The checked query; raises ``QueryError`` with every error in it."""
    checked, findings = examine_query(catalog, source, query)
    if checked is None:
        raise QueryError(findings)
    return checked
