"""Checking a read query: its pattern, its columns, its order."""

from __future__ import annotations

from omnigraph.lang.closest import suggest
from omnigraph.lang.query import ast, typed
from omnigraph.lang.query.checked import CheckedRead, OutputColumn, SortKey
from omnigraph.lang.query.checker.context import Context, VariableScope
from omnigraph.lang.query.checker.infer import Inference
from omnigraph.lang.query.checker.patterns import check_pattern

_LIMIT = "add `limit 10` after the order block"


def check_read(context: Context, query: ast.Query, body: ast.ReadBody) -> CheckedRead:
    """Check a read; the result is only of use when no error was reported."""
    scope = VariableScope()
    pattern = check_pattern(context, scope, body.clauses)
    columns = _columns(context, scope, body)
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


def _columns(
    context: Context, scope: VariableScope, body: ast.ReadBody
) -> list[OutputColumn | None]:
    grouped = any(isinstance(p.expr, ast.AggregateExpr) for p in body.projections)
    return [_column(context, scope, projection, grouped) for projection in body.projections]


def _column(
    context: Context, scope: VariableScope, projection: ast.Projection, grouped: bool
) -> OutputColumn | None:
    node = projection.expr
    at = Inference(context, scope, aggregates=isinstance(node, ast.AggregateExpr))
    expr = at.expr(node)
    if expr is None:
        return None
    if expr.type.is_blob:
        context.error("T24", "a Blob cannot be read as a value", projection.span)
        return None
    if grouped and not isinstance(node, ast.AggregateExpr | ast.PropertyExpr | ast.VariableExpr):
        context.error(
            "T9",
            "beside an aggregate only properties and variables can be returned",
            projection.span,
        )
        return None
    name = projection.alias or _default_name(expr)
    if name is None:
        message = "this projection needs a name"
        context.error("T32", message, projection.span, "add `as name`")
        return None
    return OutputColumn(name, expr)


def _default_name(expr: typed.TypedExpr) -> str | None:
    """The name a column gets when no alias is written."""
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
    grouped = any(isinstance(p.expr, ast.AggregateExpr) for p in body.projections)
    by_column = any(isinstance(entry.expr, ast.NameExpr) for entry in body.order)
    keys: list[tuple[SortKey, ast.Ordering]] = []
    for position, entry in enumerate(body.order):
        key = _sort_key(context, scope, entry, valid, complete)
        if key is None:
            continue
        if isinstance(key.expr, typed.Score):
            # Beside a column, `nearest` is always refused (T18).
            refused = isinstance(key.expr, typed.Nearest) and by_column
            if not refused and not _leads(context, entry, position, grouped):
                continue
            if body.distinct and not _returned(context, entry, key.expr, valid, complete):
                continue
        elif not isinstance(key.expr, typed.Output) and (grouped or body.distinct):
            output = _returned(context, entry, key.expr, valid, complete)
            if output is None:
                continue
            key = SortKey(output, entry.descending)
        keys.append((key, entry))
    _check_search_order(context, body, keys, valid, by_column)
    return tuple(key for key, _ in keys)


def _sort_key(
    context: Context,
    scope: VariableScope,
    entry: ast.Ordering,
    columns: list[OutputColumn],
    complete: bool,
) -> SortKey | None:
    node = entry.expr
    if isinstance(node, ast.NameExpr):
        for position, column in enumerate(columns):
            if column.name == node.name:
                return _by_column(context, entry, column, position)
        if complete:
            names = [f"${c.name}" if "." in c.name else c.name for c in columns]
            message = f"`{node.name}` is not a column of the result"
            context.error("T29", message, node.span, suggest(node.name, names))
        return None
    is_rank = isinstance(node, ast.CallExpr) and node.function in ("nearest", "bm25", "rrf")
    if not isinstance(node, ast.PropertyExpr) and not is_rank:
        context.error(
            "T29",
            "unsupported ordering expression",
            entry.span,
            "order by a property, a column of the result or a search",
        )
        return None
    expr = Inference(context, scope).expr(node)
    if expr is None:
        return None
    if not isinstance(expr, typed.Score) and not expr.type.is_plain:
        context.error("T29", f"cannot order by {expr.type}", node.span)
        return None
    return SortKey(expr, entry.descending)


def _by_column(
    context: Context, entry: ast.Ordering, column: OutputColumn, position: int
) -> SortKey | None:
    if not column.expr.type.is_plain:
        context.error("T29", f"cannot order by {column.expr.type}", entry.span)
        return None
    output = typed.Output(column.name, position, column.expr.type)
    return SortKey(output, entry.descending)


def _leads(context: Context, entry: ast.Ordering, position: int, grouped: bool) -> bool:
    if position:
        message = "a search must be the first entry of `order`"
        context.error("T29", message, entry.span)
        return False
    if grouped:
        message = "a search cannot order groups"
        context.error("T29", message, entry.span, "return the score and order by its column")
        return False
    return True


def _returned(
    context: Context,
    entry: ast.Ordering,
    expr: typed.TypedExpr,
    columns: list[OutputColumn],
    complete: bool,
) -> typed.Output | None:
    """Groups and distinct rows can only be ordered by what is returned."""
    for position, column in enumerate(columns):
        if column.expr == expr:
            return typed.Output(column.name, position, expr.type)
    if complete:
        message = "groups and distinct rows can only be ordered by returned columns"
        context.error("T31", message, entry.span, "return this property too")
    return None


def _check_search_order(
    context: Context,
    body: ast.ReadBody,
    keys: list[tuple[SortKey, ast.Ordering]],
    columns: list[OutputColumn],
    by_column: bool,
) -> None:
    """What ordering by a search asks of the rest of the query (T17, T18, T21)."""
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
