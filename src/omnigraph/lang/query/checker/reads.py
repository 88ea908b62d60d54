"""Checks a read query: its pattern, its columns, its order."""

from __future__ import annotations

from omnigraph.lang.closest import suggest
from omnigraph.lang.query import ast, typed
from omnigraph.lang.query.checked import CheckedRead, OutputColumn, SortKey
from omnigraph.lang.query.checker.context import Context, Invalid, VariableScope
from omnigraph.lang.query.checker.infer import Inference
from omnigraph.lang.query.checker.patterns import check_pattern

_LIMIT = "add `limit 10` after the order block"


def check_read(context: Context, query: ast.Query, body: ast.ReadBody) -> CheckedRead:
    """Check a read; the result is usable only if no error was reported."""
    scope = VariableScope()
    pattern = check_pattern(context, scope, body.clauses)
    grouped = any(isinstance(p.expr, ast.AggregateExpr) for p in body.projections)
    columns = [
        context.attempt(_column, context, scope, projection, grouped)
        for projection in body.projections
    ]
    order = _order(context, scope, body, columns)
    _warn_same_names(context, body, columns)
    return CheckedRead(
        query.name,
        context.params,
        pattern,
        tuple(column for column in columns if column is not None),
        body.distinct,
        order,
        body.limit,
        body.offset,
    )


# -- columns ----------------------------------------------------------------------------------


def _column(
    context: Context, scope: VariableScope, projection: ast.Projection, grouped: bool
) -> OutputColumn:
    node, span = projection.expr, projection.span
    at = Inference(context, scope, aggregates=isinstance(node, ast.AggregateExpr))
    (expr,) = at.exprs(node)
    if expr.type.is_blob:
        raise context.refuse("T24", "a Blob cannot be read as a value", span)
    if grouped and not isinstance(node, ast.AggregateExpr | ast.PropertyExpr | ast.VariableExpr):
        message = "beside an aggregate only properties and variables can be returned"
        raise context.refuse("T9", message, span)
    name = projection.alias or _default_name(expr)
    if name is None:
        raise context.refuse("T32", "this projection needs a name", span, "add `as name`")
    return OutputColumn(name, expr)


def _default_name(expr: typed.TypedExpr) -> str | None:
    """The name of a column without an alias."""
    match expr:
        case typed.Column(variable=variable, name=name):
            return f"{variable}.{name}"
        case typed.Entity(variable=variable):
            return variable
        case typed.Parameter(name=name):
            return name
        case typed.Constant() | typed.ListOf():
            return "literal"
        case typed.Aggregate(arg=arg):
            return _default_name(arg)
        case typed.TextMatch(function=function):
            return str(function)
        case typed.Nearest() | typed.Bm25() | typed.Rrf():
            return type(expr).__name__.lower()
        case _:
            return None


def _warn_same_names(
    context: Context, body: ast.ReadBody, columns: list[OutputColumn | None]
) -> None:
    seen: set[str] = set()
    for projection, column in zip(body.projections, columns, strict=True):
        if column is None:
            continue
        if column.name in seen:
            message = f"two result columns are called `{column.name}`"
            context.warn("L202", message, projection.span, "give one a name with `as`")
        seen.add(column.name)


# -- order ------------------------------------------------------------------------------------


def _order(
    context: Context, scope: VariableScope, body: ast.ReadBody, columns: list[OutputColumn | None]
) -> tuple[SortKey, ...]:
    valid = [column for column in columns if column is not None]
    complete = len(valid) == len(columns)
    by_column = any(isinstance(entry.expr, ast.NameExpr) for entry in body.order)
    keys: list[tuple[SortKey, ast.Ordering]] = []
    for entry in body.order:
        expr = context.attempt(_sort_expr, context, scope, body, entry, valid, complete)
        if expr is not None:
            keys.append((SortKey(expr, entry.descending), entry))
    _check_search_order(context, body, keys, valid, by_column)
    return tuple(key for key, _ in keys)


def _sort_expr(
    context: Context,
    scope: VariableScope,
    body: ast.ReadBody,
    entry: ast.Ordering,
    columns: list[OutputColumn],
    complete: bool,
) -> typed.TypedExpr:
    if isinstance(entry.expr, ast.NameExpr):
        return _column_named(context, entry, entry.expr, columns, complete)
    expr = _property_or_search(context, scope, entry)
    grouped = any(isinstance(p.expr, ast.AggregateExpr) for p in body.projections)
    if isinstance(expr, typed.Score):
        # Together with a column, `nearest` is always refused (T18).
        by_column = any(isinstance(other.expr, ast.NameExpr) for other in body.order)
        if not (isinstance(expr, typed.Nearest) and by_column):
            _check_leading(context, entry, is_first=entry is body.order[0], grouped=grouped)
        if body.distinct:
            _returned(context, entry, expr, columns, complete)
    elif grouped or body.distinct:
        return _returned(context, entry, expr, columns, complete)
    return expr


def _column_named(
    context: Context,
    entry: ast.Ordering,
    node: ast.NameExpr,
    columns: list[OutputColumn],
    complete: bool,
) -> typed.Output:
    for position, column in enumerate(columns):
        if column.name == node.name:
            if not column.expr.type.is_plain:
                raise context.refuse("T29", f"cannot order by {column.expr.type}", entry.span)
            return typed.Output(column.name, position, column.expr.type)
    if not complete:
        raise Invalid
    names = [f"${c.name}" if "." in c.name else c.name for c in columns]
    message = f"`{node.name}` is not a column of the result"
    raise context.refuse("T29", message, node.span, suggest(node.name, names))


def _property_or_search(
    context: Context, scope: VariableScope, entry: ast.Ordering
) -> typed.TypedExpr:
    node = entry.expr
    is_rank = isinstance(node, ast.CallExpr) and node.function in ("nearest", "bm25", "rrf")
    if not isinstance(node, ast.PropertyExpr) and not is_rank:
        message = "unsupported ordering expression"
        hint = "order by a property, a column of the result or a search"
        raise context.refuse("T29", message, entry.span, hint)
    (expr,) = Inference(context, scope).exprs(node)
    if not isinstance(expr, typed.Score) and not expr.type.is_plain:
        raise context.refuse("T29", f"cannot order by {expr.type}", node.span)
    return expr


def _check_leading(context: Context, entry: ast.Ordering, *, is_first: bool, grouped: bool) -> None:
    if not is_first:
        message = "a search must be the first entry of `order`"
        raise context.refuse("T29", message, entry.span)
    if grouped:
        message = "a search cannot order groups"
        hint = "return the score and order by its column"
        raise context.refuse("T29", message, entry.span, hint)


def _returned(
    context: Context,
    entry: ast.Ordering,
    expr: typed.TypedExpr,
    columns: list[OutputColumn],
    complete: bool,
) -> typed.Output:
    """The result column to sort by: groups and distinct rows have no other sort keys."""
    for position, column in enumerate(columns):
        if column.expr == expr:
            return typed.Output(column.name, position, expr.type)
    if not complete:
        raise Invalid
    message = "groups and distinct rows can only be ordered by returned columns"
    raise context.refuse("T31", message, entry.span, "return this property too")


def _check_search_order(
    context: Context,
    body: ast.ReadBody,
    keys: list[tuple[SortKey, ast.Ordering]],
    columns: list[OutputColumn],
    by_column: bool,
) -> None:
    """Check the requirements of a search in ``order`` on the rest of the query (T17, T18, T21)."""
    by_name = {column.name: column.expr for column in columns}
    for key, entry in keys:
        expr = key.expr
        aliased = by_name.get(expr.name) if isinstance(expr, typed.Output) else None
        if body.limit is None:
            if isinstance(expr, typed.Nearest):
                context.error("T17", "ordering by `nearest` needs a `limit`", entry.span, _LIMIT)
            if isinstance(expr, typed.Rrf) or isinstance(aliased, typed.Rrf):
                context.error("T21", "ordering by `rrf` needs a `limit`", entry.span, _LIMIT)
    nearest = [entry for key, entry in keys if isinstance(key.expr, typed.Nearest)]
    if nearest and by_column:
        message = "ordering by `nearest` cannot be combined with a column of the result"
        context.error("T18", message, nearest[0].span)
