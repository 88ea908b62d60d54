"""The type of every expression.

``infer`` looks the node's class up in one table; a new kind of expression is a new function with
its entry. A function reports what is wrong and gives ``None``, or gives the typed expression.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from omnigraph.lang.closest import suggest
from omnigraph.lang.diagnostics import Span
from omnigraph.lang.query import ast, typed
from omnigraph.lang.query.checker.context import Context, VariableScope, properties_of
from omnigraph.lang.query.checker.literals import constant, is_null, list_constant
from omnigraph.lang.types import PropType, comparable


@dataclass(slots=True)
class Inference:
    """The context of an expression: what it may refer to and what may appear in it.

    ``row`` holds the properties a bare word may name, in the predicate of a mutation.
    """

    context: Context
    scope: VariableScope
    aggregates: bool = False
    row: dict[str, PropType] | None = None
    row_variable: str = ""
    row_label: str = ""

    def expr(self, node: ast.Expr) -> typed.TypedExpr | None:
        """The typed form of an expression, or ``None`` when it is invalid."""
        return _RULES[type(node)](self, node)

    def condition(self, node: ast.Expr) -> typed.TypedExpr | None:
        """An expression that must be a truth value."""
        expr = self.expr(node)
        if expr is None:
            return None
        if is_null(expr):
            return typed.Constant(None, typed.BOOL.as_nullable())
        if expr.type.scalar is typed.BOOL.scalar and not expr.type.is_list:
            return expr
        self.context.error(
            "T30",
            f"a condition must be a truth value, got {describe(expr)}",
            node.span,
            "compare it with something, or test it with `is null`",
        )
        return None

    def error(self, code: str, message: str, span: Span, hint: str | None = None) -> None:
        self.context.error(code, message, span, hint)


def describe(expr: typed.TypedExpr) -> str:
    """The type of an expression in words."""
    if isinstance(expr, typed.Entity):
        return f"{expr.kind} {expr.type_name}"
    return "null" if is_null(expr) else str(expr.type)


Rule = Callable[[Inference, Any], typed.TypedExpr | None]
_RULES: dict[type[ast.Expr], Rule] = {}


def rule(node: type[ast.Expr]) -> Callable[[Rule], Rule]:
    """Register the typing rule of a kind of expression."""

    def register(function: Rule) -> Rule:
        _RULES[node] = function
        return function

    return register


# -- leaves -----------------------------------------------------------------------------------


@rule(ast.LiteralExpr)
def _literal(at: Inference, node: ast.LiteralExpr) -> typed.TypedExpr | None:
    return constant(at.context, node)


@rule(ast.ListExpr)
def _list(at: Inference, node: ast.ListExpr) -> typed.TypedExpr | None:
    items: list[typed.TypedExpr] = []
    for item in node.items:
        if not isinstance(item, ast.LiteralExpr | ast.VariableExpr | ast.ListExpr):
            at.error("T27", "a list holds literals and parameters", item.span)
            return None
        expr = at.expr(item)
        if expr is None:
            return None
        if isinstance(expr, typed.Entity):
            at.error("T27", "a list holds literals and parameters", item.span)
            return None
        items.append(expr)
    return list_constant(at.context, node, items)


@rule(ast.VariableExpr)
def _variable(at: Inference, node: ast.VariableExpr) -> typed.TypedExpr | None:
    type_ = at.context.param(node.name)
    if type_ is not None:
        return typed.Parameter(node.name, type_)
    bound = at.scope.get(node.name)
    if bound is not None:
        return typed.Entity(node.name, bound.kind, bound.type_name)
    if at.scope.is_broken(node.name):
        return None
    if at.row is not None:
        message = f"mutation variable `${node.name}` must be a declared query parameter"
        at.error("T14", message, node.span, suggest(node.name, at.context.params, "${}"))
        return None
    names = [*at.scope.names(), *at.context.params]
    message = f"variable `${node.name}` is not bound"
    at.error("T25", message, node.span, suggest(node.name, names, "${}"))
    return None


@rule(ast.PropertyExpr)
def _property(at: Inference, node: ast.PropertyExpr) -> typed.TypedExpr | None:
    return property_column(at, node, "T6")


def property_column(at: Inference, node: ast.PropertyExpr, code: str) -> typed.Column | None:
    """``$v.p`` as a column; ``code`` is what the caller reports with."""
    if at.row is not None:
        at.error(
            "T11",
            "a mutation predicate names properties without a variable",
            node.span,
            f"write `{node.name}`",
        )
        return None
    bound = at.scope.get(node.variable)
    if bound is None and at.scope.is_broken(node.variable):
        return None
    if bound is None:
        message = f"variable `${node.variable}` is not bound"
        at.error(code, message, node.span, suggest(node.variable, at.scope.names(), "${}"))
        return None
    properties = properties_of(at.context.catalog, bound)
    prop = properties.get(node.name)
    if prop is None:
        message = f"type `{bound.type_name}` has no property `{node.name}`"
        at.error(code, message, node.span, _property_hint(node, properties))
        return None
    return typed.Column(node.variable, node.name, prop.type)


def _property_hint(node: ast.PropertyExpr, properties: Iterable[str]) -> str | None:
    if node.name == typed.ID_COLUMN:
        return f"return `${node.variable}` to get its id"
    return suggest(node.name, properties)


@rule(ast.NameExpr)
def _name(at: Inference, node: ast.NameExpr) -> typed.TypedExpr | None:
    if at.row is None:
        at.error(
            "T35",
            f"`{node.name}` means nothing here",
            node.span,
            'variables start with `$`, texts are quoted: "…"',
        )
        return None
    type_ = at.row.get(node.name)
    if type_ is None:
        message = f"type `{at.row_label}` has no property `{node.name}`"
        at.error("T11", message, node.span, suggest(node.name, at.row))
        return None
    if type_.is_blob:
        at.error("T11", f"Blob property `{node.name}` cannot be used in `where`", node.span)
        return None
    return typed.Column(at.row_variable, node.name, type_)


# -- conditions -------------------------------------------------------------------------------


@rule(ast.CompareExpr)
def _compare(at: Inference, node: ast.CompareExpr) -> typed.TypedExpr | None:
    left, right = at.expr(_named_like_a_literal(at, node.left)), at.expr(node.right)
    if left is None or right is None:
        return None
    if isinstance(left, typed.Entity) or isinstance(right, typed.Entity):
        message = f"cannot compare {describe(left)} with {describe(right)}"
        at.error("T7", message, node.span, "compare properties, as in `$a.name = $b.name`")
        return None
    if node.op is ast.CompareOp.CONTAINS:
        return _contains(at, node, left, right)
    if node.op is ast.CompareOp.STARTS_WITH:
        if _texts(at, node, left, right):
            return typed.StartsWith(left, right)
        return None
    if not _plain(at, node, left, right):
        return None
    if not (is_null(left) or is_null(right) or comparable(left.type, right.type)):
        message = f"cannot compare {describe(left)} with {describe(right)}"
        at.error(_mismatch_code(at, left, right), message, node.span, _compare_hint(left, right))
        return None
    _warn_never(at, node, left, right)
    return typed.Compare(typed.Relation(node.op.value), left, right)


def _named_like_a_literal(at: Inference, node: ast.Expr) -> ast.Expr:
    """The left side of a comparison in a mutation is a property, even `true` or `null`."""
    if at.row is None or not isinstance(node, ast.LiteralExpr):
        return node
    if node.kind not in (ast.LiteralKind.BOOL, ast.LiteralKind.NULL):
        return node
    word = "null" if node.value is None else str(node.value).lower()
    return ast.NameExpr(word, span=node.span) if word in at.row else node


def _mismatch_code(at: Inference, left: typed.TypedExpr, right: typed.TypedExpr) -> str:
    """In a mutation predicate a literal that does not fit its property is T3."""
    constants = isinstance(left, typed.Constant) or isinstance(right, typed.Constant)
    return "T3" if at.row is not None and constants else "T7"


def _compare_hint(left: typed.TypedExpr, right: typed.TypedExpr) -> str | None:
    for one, other in ((left, right), (right, left)):
        is_text = isinstance(other, typed.Constant) and isinstance(other.value, str)
        if is_text and str(one.type.scalar) in ("Date", "DateTime"):
            return f'write {str(one.type.scalar).lower()}("…")'
        declared = isinstance(other, typed.Parameter) and other.name != typed.NOW_PARAMETER
        if declared and isinstance(one, typed.Column):
            assert isinstance(other, typed.Parameter)
            return f"declare `${other.name}: {one.type.scalar}`"
    return None


def _plain(
    at: Inference, node: ast.CompareExpr, left: typed.TypedExpr, right: typed.TypedExpr
) -> bool:
    for side in (left, right):
        if side.type.is_plain:
            continue
        if side.type.is_list:
            message, hint = "lists cannot be compared", "use `contains` for list membership"
        elif side.type.is_vector:
            message, hint = "vectors cannot be compared", "use `nearest` to rank by distance"
        else:
            message, hint = "Blobs cannot be compared", None
        at.error("T7", message, node.span, hint)
        return False
    return True


def _contains(
    at: Inference, node: ast.CompareExpr, left: typed.TypedExpr, right: typed.TypedExpr
) -> typed.TypedExpr | None:
    if not left.type.is_list:
        return typed.Substring(left, right) if _texts(at, node, left, right) else None
    if not right.type.is_plain:
        message = f"`contains` needs a single value on the right, got {describe(right)}"
        at.error("T7", message, node.span)
        return None
    return _member(at, right, left, node.span)


def _texts(
    at: Inference, node: ast.CompareExpr, left: typed.TypedExpr, right: typed.TypedExpr
) -> bool:
    for side in (left, right):
        if not (is_null(side) or side.type.as_nullable(False) == typed.STRING or _enum(side)):
            wanted = "two Strings"
            if node.op is ast.CompareOp.CONTAINS:
                wanted = "a list and a value, or two Strings"
            message = f"`{node.op}` needs {wanted}, got {describe(left)} and {describe(right)}"
            at.error("T7", message, node.span)
            return False
    return True


def _enum(expr: typed.TypedExpr) -> bool:
    return expr.type.enum_values is not None and not expr.type.is_list


def _member(
    at: Inference, item: typed.TypedExpr, options: typed.TypedExpr, span: Span
) -> typed.TypedExpr | None:
    if item.type.is_blob or options.type.is_blob:
        at.error("T7", "Blobs cannot be compared", span)
        return None
    options = _of_any_type(item, options)
    if not (is_null(item) or is_null(options) or comparable(item.type, options.type.element)):
        message = f"cannot look for {describe(item)} in {describe(options)}"
        at.error(_mismatch_code(at, item, options), message, span)
        return None
    return typed.Membership(item, options)


def _of_any_type(item: typed.TypedExpr, options: typed.TypedExpr) -> typed.TypedExpr:
    """A list literal without values, ``[]`` or ``[null]``, takes the expected type."""
    if not isinstance(options, typed.Constant) or not isinstance(options.value, tuple):
        return options
    if is_null(item) or any(value is not None for value in options.value):
        return options
    type_ = PropType(item.type.scalar, nullable=options.type.nullable, is_list=True)
    return typed.Constant(options.value, type_)


@rule(ast.InExpr)
def _in(at: Inference, node: ast.InExpr) -> typed.TypedExpr | None:
    item, options = at.expr(node.item), at.expr(node.options)
    if item is None or options is None:
        return None
    for side in (item, options):
        if isinstance(side, typed.Entity):
            at.error("T7", f"`in` compares values, got {describe(side)}", node.span)
            return None
    if not (is_null(options) or options.type.is_list):
        message = f"`in` needs a list on the right, got {describe(options)}"
        at.error("T7", message, node.options.span, "write `in [1, 2]` or pass a list")
        return None
    if not (is_null(item) or item.type.is_plain):
        message = f"`in` needs a single value on the left, got {describe(item)}"
        at.error("T7", message, node.item.span)
        return None
    return _member(at, item, options, node.span)


@rule(ast.IsNullExpr)
def _is_null(at: Inference, node: ast.IsNullExpr) -> typed.TypedExpr | None:
    operand = at.expr(node.operand)
    if operand is None:
        return None
    if isinstance(operand, typed.Entity):
        at.error("T7", f"`is null` tests values, got {describe(operand)}", node.span)
        return None
    if operand.type.is_blob:
        at.error("T24", "a Blob cannot be tested with `is null`", node.span)
        return None
    if isinstance(operand, typed.Column) and not operand.type.nullable:
        never = "always" if node.negated else "never"
        at.context.warn("L204", f"`{operand.name}` is required: this {never} holds", node.span)
    return typed.IsNull(operand, node.negated)


@rule(ast.NotExpr)
def _not(at: Inference, node: ast.NotExpr) -> typed.TypedExpr | None:
    operand = at.condition(node.operand)
    return None if operand is None else typed.Not(operand)


@rule(ast.AndExpr)
def _and(at: Inference, node: ast.AndExpr) -> typed.TypedExpr | None:
    operands = [at.condition(operand) for operand in node.operands]
    kept = tuple(operand for operand in operands if operand is not None)
    return typed.And(kept) if len(kept) == len(operands) else None


@rule(ast.OrExpr)
def _or(at: Inference, node: ast.OrExpr) -> typed.TypedExpr | None:
    operands = [at.condition(operand) for operand in node.operands]
    kept = tuple(operand for operand in operands if operand is not None)
    return typed.Or(kept) if len(kept) == len(operands) else None


def _warn_never(
    at: Inference, node: ast.CompareExpr, left: typed.TypedExpr, right: typed.TypedExpr
) -> None:
    """Comparisons that are legal and pointless."""
    if is_null(left) or is_null(right):
        hint = "write `is null`" if node.op is ast.CompareOp.EQ else "write `is not null`"
        message = "a comparison with null is never true"
        at.context.warn("L204", message, node.span, hint)
        return
    for column, value in ((left, right), (right, left)):
        allowed = column.type.enum_values
        if allowed is None or not isinstance(value, typed.Constant):
            continue
        if value.value not in allowed:
            message = f"'{value.value}' is none of the values of the enum ({', '.join(allowed)})"
            at.context.warn("L204", message, node.span, suggest(str(value.value), allowed))


# -- calls ------------------------------------------------------------------------------------


@rule(ast.AggregateExpr)
def _aggregate(at: Inference, node: ast.AggregateExpr) -> typed.TypedExpr | None:
    if not at.aggregates:
        message = f"`{node.function}` is only allowed at the top of a projection"
        at.error("T9", message, node.span)
        return None
    inner = Inference(at.context, at.scope)
    arg = inner.expr(node.arg)
    if arg is None:
        return None
    function = typed.AggregateFunction(node.function)
    if node.distinct and function is not typed.AggregateFunction.COUNT:
        message = f"`distinct` works with `count` only, not with `{function}`"
        at.error("T8", message, node.span)
        return None
    if function is typed.AggregateFunction.COUNT:
        if arg.type.is_blob:
            at.error("T24", "a Blob cannot be read as a value", node.span)
            return None
        return typed.Aggregate(function, arg, node.distinct)
    type_ = arg.type
    is_value = not isinstance(arg, typed.Entity) and type_.is_plain
    if function in (typed.AggregateFunction.SUM, typed.AggregateFunction.AVG):
        ok, wanted = is_value and type_.scalar.is_numeric, "a number"
    else:
        ok = is_value and type_.scalar is not typed.BOOL.scalar
        wanted = "a number, String, Date or DateTime"
    if not ok:
        at.error("T8", f"`{function}` needs {wanted}, got {describe(arg)}", node.span)
        return None
    return typed.Aggregate(function, arg)


CallRule = Callable[[Inference, ast.CallExpr], typed.TypedExpr | None]
CALLS: dict[str, CallRule] = {}


@rule(ast.CallExpr)
def _call(at: Inference, node: ast.CallExpr) -> typed.TypedExpr | None:
    return CALLS[node.function](at, node)


def _now(at: Inference, node: ast.CallExpr) -> typed.TypedExpr | None:
    return typed.Parameter(typed.NOW_PARAMETER, typed.DATETIME)


CALLS["now"] = _now
