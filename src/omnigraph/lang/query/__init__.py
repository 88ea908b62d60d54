"""The query language: text to syntax tree, checked query, lint report and formatted text."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Its module has the same name: loaded later, that would take the place of the function.
from omnigraph.lang.query.describe import Descriptor, describe

if TYPE_CHECKING:
    from omnigraph.lang.query.checked import CheckedMutation, CheckedQuery, CheckedRead
    from omnigraph.lang.query.checker import check_query, examine_query
    from omnigraph.lang.query.lint import LintReport, lint_queries
    from omnigraph.lang.query.params import JsonMode, convert_params
    from omnigraph.lang.query.parser import parse_queries
    from omnigraph.lang.query.select import read_queries, select_query

__all__ = [
    "CheckedMutation",
    "CheckedQuery",
    "CheckedRead",
    "JsonMode",
    "LintReport",
    "Descriptor",
    "check_query",
    "convert_params",
    "describe",
    "examine_query",
    "lint_queries",
    "parse_queries",
    "read_queries",
    "select_query",
]

_HOMES = {
    "CheckedMutation": "omnigraph.lang.query.checked",
    "CheckedQuery": "omnigraph.lang.query.checked",
    "CheckedRead": "omnigraph.lang.query.checked",
    "check_query": "omnigraph.lang.query.checker",
    "examine_query": "omnigraph.lang.query.checker",
    "LintReport": "omnigraph.lang.query.lint",
    "lint_queries": "omnigraph.lang.query.lint",
    "JsonMode": "omnigraph.lang.query.params",
    "convert_params": "omnigraph.lang.query.params",
    "parse_queries": "omnigraph.lang.query.parser",
    "read_queries": "omnigraph.lang.query.select",
    "select_query": "omnigraph.lang.query.select",
}


def __getattr__(name: str) -> Any:
    """A name is loaded when it is first used: few callers need all of the language."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'omnigraph.lang.query' has no attribute {name!r}")
    return getattr(import_module(home), name)
