"""The typed plan of a query: lowering, optimizer rules and explain output. No I/O."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from omnigraph.argument_checks import public
from omnigraph.errors import InputError
from omnigraph.lang.diagnostics import Source
from omnigraph.lang.parsing import SourceText, as_source
from omnigraph.lang.query import ast
from omnigraph.lang.query.checker import check_query
from omnigraph.lang.query.parser import read_queries, select_query
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.plan.lower import lower
from omnigraph.plan.nodes import MutationPlan, Plan, ReadPlan
from omnigraph.plan.rules import optimize
from omnigraph.plan.rules.restrict import restrict

__all__ = [
    "Expect",
    "MutationPlan",
    "Plan",
    "ReadPlan",
    "compile_query",
    "lower",
    "optimize",
    "plan_query",
]


class Expect(StrEnum):
    """The kinds of queries that a caller accepts."""

    ANY = "any"
    READ = "read"
    MUTATION = "mutation"


@public
def compile_query(
    catalog: Catalog,
    source: SourceText,
    name: str | None = None,
    *,
    expect: Expect | Literal["any", "read", "mutation"] = Expect.ANY,
) -> Plan:
    """Compile a text to an optimised plan; every error in the text is a ``LanguageError``.

    >>> from omnigraph.lang.schema.compile import compile_schema
    >>> catalog = compile_schema("node Person { name: String @key }")
    >>> plan = compile_query(catalog, "query all() { match { $p: Person } return { $p.name } }")
    >>> [column.name for column in plan.columns]
    ['p.name']
    """
    return compile_restricted(catalog, as_source(source, "<query>"), name, Expect(expect))


def compile_restricted(
    catalog: Catalog,
    source: Source,
    name: str | None,
    expect: Expect,
    restricted: frozenset[str] = frozenset(),
) -> Plan:
    """``compile_query`` for an actor who sees only a part of some tables, by table key."""
    query = select_query(read_queries(source), name)
    if expect == Expect.READ and query.is_mutation:
        raise InputError(
            "mutation query cannot be typechecked with read-query API",
            hint=f"`{query.name}` writes; run it as a mutation",
        )
    if expect == Expect.MUTATION and not query.is_mutation:
        raise InputError(
            "mutation execution called on a read query; use query instead",
            hint=f"`{query.name}` only reads",
        )
    return plan_query(catalog, source, query, restricted)


def plan_query(
    catalog: Catalog,
    source: Source,
    query: ast.Query,
    restricted: frozenset[str] = frozenset(),
) -> Plan:
    """The optimised plan of one query of a parsed text."""
    return optimize(restrict(lower(check_query(catalog, source, query), source), restricted))
