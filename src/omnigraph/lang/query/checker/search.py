"""Typing rules of the search functions: ``nearest``, ``search``, ``fuzzy``, ``match_text``,
``bm25`` and ``rrf``."""

from __future__ import annotations

from omnigraph.lang.query import ast, typed
from omnigraph.lang.query.checker.infer import CallRule, Inference, describe, property_column
from omnigraph.lang.query.checker.literals import is_null, numeric_items

_CODES = {"search": "T19", "fuzzy": "T19", "match_text": "T20", "bm25": "T20"}


def _refuse_in_mutation(at: Inference, node: ast.CallExpr) -> bool:
    if at.row is None:
        return False
    at.error("T11", f"`{node.function}` cannot be used in a mutation predicate", node.span)
    return True


def _text_field(at: Inference, node: ast.CallExpr) -> typed.Column | None:
    code = _CODES[node.function]
    field = node.args[0]
    if not isinstance(field, ast.PropertyExpr):
        message = f"`{node.function}` searches a String property"
        at.error(code, message, field.span, f"write `{node.function}($v.property, query)`")
        return None
    column = property_column(at, field, "T6")
    if column is None:
        return None
    if not _is_text(column):
        message = f"`{node.function}` searches a String property, `{field.name}` is {column.type}"
        at.error(code, message, field.span)
        return None
    return column


def _text_query(at: Inference, node: ast.CallExpr) -> typed.TypedExpr | None:
    query = at.expr(node.args[1])
    if query is None:
        return None
    if not _is_text(query) or is_null(query):
        message = f"the query of `{node.function}` must be a String, got {describe(query)}"
        at.error(_CODES[node.function], message, node.args[1].span)
        return None
    return query if _is_given(at, node, query, _CODES[node.function]) else None


def _is_given(at: Inference, node: ast.CallExpr, query: typed.TypedExpr, code: str) -> bool:
    """A search asks one thing of all rows; what differs from row to row cannot be asked."""
    if not typed.variables(query):
        return True
    message = f"the query of `{node.function}` must be a literal or a parameter"
    at.error(code, message, node.args[1].span)
    return False


def _is_text(expr: typed.TypedExpr) -> bool:
    if isinstance(expr, typed.Entity):
        return False
    return expr.type.scalar is typed.STRING.scalar and not expr.type.is_list


def _integer(
    at: Inference, node: ast.Expr, code: str, what: str
) -> tuple[bool, typed.TypedExpr | None]:
    expr = at.expr(node)
    if expr is None:
        return False, None
    ok = expr.type.scalar.is_integer and expr.type.is_plain
    if not ok or not isinstance(expr, typed.Constant | typed.Parameter):
        at.error(code, f"{what} must be an integer, got {describe(expr)}", node.span)
        return False, None
    return True, expr


def _text_match(at: Inference, node: ast.CallExpr) -> typed.TypedExpr | None:
    if _refuse_in_mutation(at, node):
        return None
    field, query = _text_field(at, node), _text_query(at, node)
    edits: typed.TypedExpr | None = None
    if len(node.args) == 3:
        ok, edits = _integer(at, node.args[2], "T19", "the edit distance of `fuzzy`")
        if not ok:
            return None
        if isinstance(edits, typed.Constant) and int(edits.value) < 0:  # type: ignore[arg-type]
            message = "the edit distance of `fuzzy` cannot be negative"
            at.error("T19", message, node.args[2].span)
            return None
    if field is None or query is None:
        return None
    return typed.TextMatch(typed.TextFunction(node.function), field, query, edits)


def _bm25(at: Inference, node: ast.CallExpr) -> typed.Bm25 | None:
    if _refuse_in_mutation(at, node):
        return None
    field, query = _text_field(at, node), _text_query(at, node)
    return None if field is None or query is None else typed.Bm25(field, query)


def _nearest(at: Inference, node: ast.CallExpr) -> typed.Nearest | None:
    if _refuse_in_mutation(at, node):
        return None
    target = node.args[0]
    assert isinstance(target, ast.PropertyExpr)
    field = property_column(at, target, "T15")
    query = at.expr(node.args[1])
    if field is None or query is None:
        return None
    if not field.type.is_vector:
        message = f"`nearest` needs a Vector property, `{target.name}` is {field.type}"
        at.error("T15", message, target.span)
        return None
    if not _is_given(at, node, query, "T15"):
        return None
    size = field.type.dimension
    given = numeric_items(query)
    span = node.args[1].span
    if given is not None and given != size:
        message = f"vector dimension mismatch: `{target.name}` is {field.type}, got {given} numbers"
        at.error("T15", message, span)
        return None
    if given is None and not is_null(query) and query.type.is_vector:
        if query.type.dimension != size:
            message = f"vector dimension mismatch: `{target.name}` is {field.type}"
            at.error("T15", f"{message}, the query is {query.type}", span)
            return None
    elif given is None and (not _is_text(query) or is_null(query)):
        message = f"the query of `nearest` must be {field.type.as_nullable(False)}"
        at.error("T15", f"{message}, {size} numbers or a String, got {describe(query)}", span)
        return None
    return typed.Nearest(field, query)


def _rrf(at: Inference, node: ast.CallExpr) -> typed.TypedExpr | None:
    if _refuse_in_mutation(at, node):
        return None
    primary, secondary = _rank(at, node.args[0]), _rank(at, node.args[1])
    k: typed.TypedExpr | None = None
    if len(node.args) == 3:
        ok, k = _integer(at, node.args[2], "T21", "the constant k of `rrf`")
        if not ok:
            return None
        if isinstance(k, typed.Constant) and int(k.value) <= 0:  # type: ignore[arg-type]
            message = "the constant k of `rrf` must be greater than zero"
            at.error("T21", message, node.args[2].span)
            return None
    if primary is None or secondary is None:
        return None
    if primary.field.variable != secondary.field.variable:
        message = "both rankings of `rrf` must be about one variable"
        at.error("T21", message, node.args[1].span)
        return None
    return typed.Rrf(primary, secondary, k)


def _rank(at: Inference, node: ast.Expr) -> typed.Nearest | typed.Bm25 | None:
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
