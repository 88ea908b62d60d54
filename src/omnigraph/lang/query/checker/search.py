"""Typing rules of the search functions: ``nearest``, ``search``, ``fuzzy``, ``match_text``,
``bm25`` and ``rrf``."""

from __future__ import annotations

from omnigraph.lang.query import ast, typed
from omnigraph.lang.query.checker.context import Invalid
from omnigraph.lang.query.checker.infer import CallRule, Inference, describe, property_column
from omnigraph.lang.query.checker.literals import is_null, numeric_items

_CODES = {"search": "T19", "fuzzy": "T19", "match_text": "T20", "bm25": "T20"}


def _refuse_in_mutation(at: Inference, node: ast.CallExpr) -> None:
    if at.row is not None:
        message = f"`{node.function}` cannot be used in a mutation predicate"
        raise at.refuse("T11", message, node.span)


def _text_field(at: Inference, node: ast.CallExpr) -> typed.Column:
    code = _CODES[node.function]
    field = node.args[0]
    if not isinstance(field, ast.PropertyExpr):
        message = f"`{node.function}` searches a String property"
        hint = f"write `{node.function}($v.property, query)`"
        raise at.refuse(code, message, field.span, hint)
    column = property_column(at, field, "T6")
    if not _is_text(column):
        message = f"`{node.function}` searches a String property, `{field.name}` is {column.type}"
        raise at.refuse(code, message, field.span)
    return column


def _text_query(at: Inference, node: ast.CallExpr) -> typed.TypedExpr:
    (query,) = at.exprs(node.args[1])
    if not _is_text(query) or is_null(query):
        message = f"the query of `{node.function}` must be a String, got {describe(query)}"
        raise at.refuse(_CODES[node.function], message, node.args[1].span)
    _check_given(at, node, query, _CODES[node.function])
    return query


def _check_given(at: Inference, node: ast.CallExpr, query: typed.TypedExpr, code: str) -> None:
    """Check that the query of a search is the same for all rows."""
    if typed.variables(query):
        message = f"the query of `{node.function}` must be a literal or a parameter"
        raise at.refuse(code, message, node.args[1].span)


def _is_text(expr: typed.TypedExpr) -> bool:
    if isinstance(expr, typed.Entity):
        return False
    return expr.type.scalar is typed.STRING.scalar and not expr.type.is_list


def _integer(at: Inference, node: ast.CallExpr, code: str, what: str) -> typed.TypedExpr | None:
    """The optional third argument."""
    if len(node.args) < 3:
        return None
    (expr,) = at.exprs(node.args[2])
    ok = expr.type.scalar.is_integer and expr.type.is_plain
    if not ok or not isinstance(expr, typed.Constant | typed.Parameter):
        message = f"{what} must be an integer, got {describe(expr)}"
        raise at.refuse(code, message, node.args[2].span)
    return expr


def _text_match(at: Inference, node: ast.CallExpr) -> typed.TypedExpr:
    _refuse_in_mutation(at, node)
    attempt = at.context.attempt
    field, query = attempt(_text_field, at, node), attempt(_text_query, at, node)
    edits = _integer(at, node, "T19", "the edit distance of `fuzzy`")
    if isinstance(edits, typed.Constant) and int(edits.value) < 0:  # type: ignore[arg-type]
        message = "the edit distance of `fuzzy` cannot be negative"
        raise at.refuse("T19", message, node.args[2].span)
    if field is None or query is None:
        raise Invalid
    return typed.TextMatch(typed.TextFunction(node.function), field, query, edits)


def _bm25(at: Inference, node: ast.CallExpr) -> typed.Bm25:
    _refuse_in_mutation(at, node)
    attempt = at.context.attempt
    field, query = attempt(_text_field, at, node), attempt(_text_query, at, node)
    if field is None or query is None:
        raise Invalid
    return typed.Bm25(field, query)


def _nearest(at: Inference, node: ast.CallExpr) -> typed.Nearest:
    _refuse_in_mutation(at, node)
    target = node.args[0]
    assert isinstance(target, ast.PropertyExpr)
    field = at.context.attempt(property_column, at, target, "T15")
    query = at.expr(node.args[1])
    if field is None or query is None:
        raise Invalid
    if not field.type.is_vector:
        message = f"`nearest` needs a Vector property, `{target.name}` is {field.type}"
        raise at.refuse("T15", message, target.span)
    _check_given(at, node, query, "T15")
    size = field.type.dimension
    given = numeric_items(query)
    span = node.args[1].span
    if given is not None and given != size:
        message = f"vector dimension mismatch: `{target.name}` is {field.type}, got {given} numbers"
        raise at.refuse("T15", message, span)
    if given is None and not is_null(query) and query.type.is_vector:
        if query.type.dimension != size:
            message = f"vector dimension mismatch: `{target.name}` is {field.type}"
            raise at.refuse("T15", f"{message}, the query is {query.type}", span)
    elif given is None and (not _is_text(query) or is_null(query)):
        message = f"the query of `nearest` must be {field.type.as_nullable(False)}"
        message = f"{message}, {size} numbers or a String, got {describe(query)}"
        raise at.refuse("T15", message, span)
    return typed.Nearest(field, query)


def _rrf(at: Inference, node: ast.CallExpr) -> typed.TypedExpr:
    _refuse_in_mutation(at, node)
    primary, secondary = (at.context.attempt(_rank, at, rank) for rank in node.args[:2])
    k = _integer(at, node, "T21", "the constant k of `rrf`")
    if isinstance(k, typed.Constant) and int(k.value) <= 0:  # type: ignore[arg-type]
        message = "the constant k of `rrf` must be greater than zero"
        raise at.refuse("T21", message, node.args[2].span)
    if primary is None or secondary is None:
        raise Invalid
    if primary.field.variable != secondary.field.variable:
        message = "both rankings of `rrf` must be about one variable"
        raise at.refuse("T21", message, node.args[1].span)
    return typed.Rrf(primary, secondary, k)


def _rank(at: Inference, node: ast.Expr) -> typed.Nearest | typed.Bm25:
    assert isinstance(node, ast.CallExpr)
    return _nearest(at, node) if node.function == "nearest" else _bm25(at, node)


SEARCH_CALLS: dict[str, CallRule] = {
    "search": _text_match,
    "match_text": _text_match,
    "fuzzy": _text_match,
    "bm25": _bm25,
    "nearest": _nearest,
    "rrf": _rrf,
}
