"""The query language: text to syntax tree, checked query, lint report and formatted text."""

from __future__ import annotations

from omnigraph.lang.query.checked import CheckedMutation, CheckedQuery, CheckedRead
from omnigraph.lang.query.checker import check_query, examine_query
from omnigraph.lang.query.describe import Descriptor, describe
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
