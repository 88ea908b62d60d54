"""Views for the read tests: conditions on one row from texts, and the gate that hands views out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from omnigraph import Graph, Identity, Source
from omnigraph.lang.query import typed
from omnigraph.lang.query.checked import CheckedMutation
from omnigraph.lang.query.checker import check_query
from omnigraph.lang.query.parser import read_queries, select_query
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.plan.bind import bind_expr
from omnigraph.plan.view import ALL, HIDDEN, VIEW_VARIABLE, RowRule, View


def condition(catalog: Catalog, type_name: str, where: str) -> typed.TypedExpr:
    """The condition of a row rule, in the language of ``delete … where``."""
    source = Source("<where>", f"query q() {{ delete {type_name} where {where} }}")
    checked = check_query(catalog, source, select_query(read_queries(source), None))
    assert isinstance(checked, CheckedMutation)
    where_expr = checked.statements[0].where
    assert where_expr is not None

    def renamed(expr: typed.TypedExpr) -> typed.TypedExpr:
        if isinstance(expr, typed.Column):
            return typed.Column(VIEW_VARIABLE, expr.name, expr.type)
        return typed.rebuild(expr, renamed)

    return bind_expr(renamed(where_expr), {})


def make_view(catalog: Catalog, rules: Mapping[str, str | bool]) -> View:
    """A view by type name: a condition, or whether all is visible; other types are visible."""
    every: dict[str, RowRule] = {}
    for table_type in (*catalog.node_types.values(), *catalog.edge_types.values()):
        rule = rules.get(table_type.name, True)
        if isinstance(rule, bool):
            every[table_type.table_key] = ALL if rule else HIDDEN
        else:
            every[table_type.table_key] = condition(catalog, table_type.name, rule)
    return View.of(catalog, every)


class FixedViews:
    """A gate that allows every write, and shows what a function says."""

    def __init__(self, view: Callable[[Identity | None, str, Catalog], View]) -> None:
        self._view = view

    def check(self, actor: object, action: str, *branches: object, query: object = None) -> None:
        return None

    def view(self, actor: Identity | None, branch: str, catalog: Catalog) -> View:
        return self._view(actor, branch, catalog)


def viewed(graph: Graph, view: View | Callable[[str, Catalog], View]) -> Graph:
    """An open graph as somebody with this view sees it; it shares the caches of the graph."""
    seen = graph.for_actor("viewer")

    def make(actor: Identity | None, branch: str, catalog: Catalog) -> View:
        return view if isinstance(view, View) else view(branch, catalog)

    seen._handle._views = FixedViews(make)
    return seen
