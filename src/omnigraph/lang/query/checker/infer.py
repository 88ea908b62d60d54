"""Infers the type of every expression.

``Inference.expr`` looks up the class of a node in one table; a new kind of expression is a new
function with its entry. A function returns the typed expression, or reports an error and raises
``Invalid``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from omnigraph.lang.closest import suggest
from omnigraph.lang.diagnostics import Span
from omnigraph.lang.query import ast, typed
from omnigraph.lang.query.checker.context import Context, Invalid, VariableScope, properties_of
from omnigraph.lang.query.checker.literals import constant, is_null, list_constant
from omnigraph.lang.types import PropType, comparable
from omnigraph.records import dataclass


@dataclass(slots=True)
class Inference:
    """The context of an expression: its variables, and whether aggregates are allowed.

    ``row`` has the properties that a bare word may refer to, in the predicate of a mutation.
    """

    context: Context
    scope: VariableScope
    aggregates: bool = False
    row: dict[str, PropType] | None = None
    row_variable: str = ""
    row_label: str = ""

    def expr(self, node: ast.Expr) -> typed.TypedExpr | None:
        """The typed form of an expression, or ``None`` if it is invalid."""
        try:
            return _RULES[type(node)](self, node)
        except Invalid:
            return None

    def exprs(self, *nodes: ast.Expr) -> list[typed.TypedExpr]:
        """The typed forms of expressions; all are checked before an invalid one raises."""
        return _valid([self.expr(node) for node in nodes])

    def condition(self, node: ast.Expr) -> typed.TypedExpr | None:
        """An expression that must be a truth value."""
        expr = self.expr(node)
        if expr is None:
            return None
        if is_null(expr):
            return typed.Constant(None, typed.BOOL.as_nullable())
        if expr.type.scalar is typed.BOOL.scalar and not expr.type.is_list:
            return expr
        message = f"a condition must be a truth value, got {describe(expr)}"
        hint = "compare it with something, or test it with `is null`"
        self.context.error("T30", message, node.span, hint)
        return None

    def conditions(self, nodes: Iterable[ast.Expr]) -> tuple[typed.TypedExpr, ...]:
        """Expressions that must be truth values; all are checked before an invalid one raises."""
        return tuple(_valid([self.condition(node) for node in nodes]))

    def refuse(self, code: str, message: str, span: Span, hint: str | None = None) -> Invalid:
        return self.context.refuse(code, message, span, hint)


def _valid(exprs: Sequence[typed.TypedExpr | None]) -> list[typed.TypedExpr]:
    valid = [expr for expr in exprs if expr is not None]
    if len(valid) < len(exprs):
        raise Invalid
    return valid


def describe(expr: typed.TypedExpr) -> str:
    """The type of an expression in words."""
    if isinstance(expr, typed.Entity):
        return f"{expr.kind} {expr.type_name}"
    return "null" if is_null(expr) else str(expr.type)


Rule = Callable[[Inference, Any], typed.TypedExpr]
_RULES: dict[type[ast.Expr], Rule] = {}


def rule(node: type[ast.Expr]) -> Callable[[Rule], Rule]:
    """Register the typing rule of a kind of expression."""

    def register(function: Rule) -> Rule:
        _RULES[node] = function
        return function

    return register


# -- leaves -----------------------------------------------------------------------------------


@rule(ast.LiteralExpr)
def _literal(at: Inference, node: ast.LiteralExpr) -> typed.TypedExpr:
    return constant(at.context, node)


@rule(ast.ListExpr)
def _list(at: Inference, node: ast.ListExpr) -> typed.TypedExpr:
    items: list[typed.TypedExpr] = []
    for item in node.items:
        is_value = isinstance(item, ast.LiteralExpr | ast.VariableExpr | ast.ListExpr)
        expr = at.exprs(item)[0] if is_value else None
        if expr is None or isinstance(expr, typed.Entity):
            raise at.refuse("T27", "a list holds literals and parameters", item.span)
        items.append(expr)
    return list_constant(at.context, node, items)


@rule(ast.VariableExpr)
def _variable(at: Inference, node: ast.VariableExpr) -> typed.TypedExpr:
    type_ = at.context.param(node.name)
    if type_ is not None:
        return typed.Parameter(node.name, type_)
    bound = at.scope.get(node.name)
    if bound is not None:
        return typed.Entity(node.name, bound.kind, bound.type_name)
    if at.scope.is_broken(node.name):
        raise Invalid
    if at.row is not None:
        message = f"mutation variable `${node.name}` must be a declared query parameter"
        hint = suggest(node.name, at.context.params, "${}")
        raise at.refuse("T14", message, node.span, hint)
    names = [*at.scope.names(), *at.context.params]
    message = f"variable `${node.name}` is not bound"
    raise at.refuse("T25", message, node.span, suggest(node.name, names, "${}"))


@rule(ast.PropertyExpr)
def _property(at: Inference, node: ast.PropertyExpr) -> typed.TypedExpr:
    return property_column(at, node, "T6")


def property_column(at: Inference, node: ast.PropertyExpr, code: str) -> typed.Column:
    """``$v.p`` as a column; ``code`` is the error code of the caller."""
    if at.row is not None:
        message = "a mutation predicate names properties without a variable"
        raise at.refuse("T11", message, node.span, f"write `{node.name}`")
    bound = at.scope.get(node.variable)
    if bound is None and at.scope.is_broken(node.variable):
        raise Invalid
    if bound is None:
        message = f"variable `${node.variable}` is not bound"
        hint = suggest(node.variable, at.scope.names(), "${}")
        raise at.refuse(code, message, node.span, hint)
    properties = properties_of(at.context.catalog, bound)
    prop = properties.get(node.name)
    if prop is None:
        hint = suggest(node.name, properties)
        if node.name == typed.ID_COLUMN:
            hint = f"return `${node.variable}` to get its id"
        message = f"type `{bound.type_name}` has no property `{node.name}`"
        raise at.refuse(code, message, node.span, hint)
    return typed.Column(node.variable, node.name, prop.type)


@rule(ast.NameExpr)
def _name(at: Inference, node: ast.NameExpr) -> typed.TypedExpr:
    if at.row is None:
        hint = 'variables start with `$`, texts are quoted: "…"'
        raise at.refuse("T35", f"`{node.name}` means nothing here", node.span, hint)
    type_ = at.row.get(node.name)
    if type_ is None:
        message = f"type `{at.row_label}` has no property `{node.name}`"
        raise at.refuse("T11", message, node.span, suggest(node.name, at.row))
    if type_.is_blob:
        message = f"Blob property `{node.name}` cannot be used in `where`"
        raise at.refuse("T11", message, node.span)
    return typed.Column(at.row_variable, node.name, type_)


# -- conditions -------------------------------------------------------------------------------


@rule(ast.CompareExpr)
def _compare(at: Inference, node: ast.CompareExpr) -> typed.TypedExpr:
    left, right = at.exprs(_property_named_as_literal(at, node.left), node.right)
    if isinstance(left, typed.Entity) or isinstance(right, typed.Entity):
        message = f"cannot compare {describe(left)} with {describe(right)}"
        hint = "compare properties, as in `$a.name = $b.name`"
        raise at.refuse("T7", message, node.span, hint)
    if node.op is ast.CompareOp.CONTAINS:
        return _contains(at, node, left, right)
    if node.op is ast.CompareOp.STARTS_WITH:
        _check_texts(at, node, left, right)
        return typed.StartsWith(left, right)
    _check_plain(at, node, left, right)
    if not (is_null(left) or is_null(right) or comparable(left.type, right.type)):
        message = f"cannot compare {describe(left)} with {describe(right)}"
        code = _mismatch_code(at, left, right)
        raise at.refuse(code, message, node.span, _compare_hint(left, right))
    _warn_pointless(at, node, left, right)
    return typed.Compare(typed.Relation(node.op.value), left, right)


def _property_named_as_literal(at: Inference, node: ast.Expr) -> ast.Expr:
    """The property called `true` or `null` on the left side of a comparison in a mutation."""
    if at.row is None or not isinstance(node, ast.LiteralExpr):
        return node
    if node.kind not in (ast.LiteralKind.BOOL, ast.LiteralKind.NULL):
        return node
    word = "null" if node.value is None else str(node.value).lower()
    return ast.NameExpr(word, span=node.span) if word in at.row else node


def _mismatch_code(at: Inference, left: typed.TypedExpr, right: typed.TypedExpr) -> str:
    """The error code of a mismatch: T3 for a literal in the predicate of a mutation."""
    constants = isinstance(left, typed.Constant) or isinstance(right, typed.Constant)
    return "T3" if at.row is not None and constants else "T7"


def _compare_hint(left: typed.TypedExpr, right: typed.TypedExpr) -> str | None:
    for one, other in ((left, right), (right, left)):
        is_text = isinstance(other, typed.Constant) and isinstance(other.value, str)
        if is_text and str(one.type.scalar) in ("Date", "DateTime"):
            return f'write {str(one.type.scalar).lower()}("…")'
        if not isinstance(other, typed.Parameter) or not isinstance(one, typed.Column):
            continue
        # `now()` and the attributes of an actor are not declared by the query.
        if other.name.isidentifier() and other.name != typed.NOW_PARAMETER:
            return f"declare `${other.name}: {one.type.scalar}`"
    return None


def _check_plain(
    at: Inference, node: ast.CompareExpr, left: typed.TypedExpr, right: typed.TypedExpr
) -> None:
    for side in (left, right):
        if side.type.is_plain:
            continue
        if side.type.is_list:
            message, hint = "lists cannot be compared", "use `contains` for list membership"
        elif side.type.is_vector:
            message, hint = "vectors cannot be compared", "use `nearest` to rank by distance"
        else:
            message, hint = "Blobs cannot be compared", None
        raise at.refuse("T7", message, node.span, hint)


def _contains(
    at: Inference, node: ast.CompareExpr, left: typed.TypedExpr, right: typed.TypedExpr
) -> typed.TypedExpr:
    if not left.type.is_list:
        _check_texts(at, node, left, right)
        return typed.Substring(left, right)
    if not right.type.is_plain:
        message = f"`contains` needs a single value on the right, got {describe(right)}"
        raise at.refuse("T7", message, node.span)
    return _member(at, right, left, node.span)


def _check_texts(
    at: Inference, node: ast.CompareExpr, left: typed.TypedExpr, right: typed.TypedExpr
) -> None:
    for side in (left, right):
        is_enum = side.type.enum_values is not None and not side.type.is_list
        if not (is_null(side) or side.type.as_nullable(False) == typed.STRING or is_enum):
            wanted = "two Strings"
            if node.op is ast.CompareOp.CONTAINS:
                wanted = "a list and a value, or two Strings"
            message = f"`{node.op}` needs {wanted}, got {describe(left)} and {describe(right)}"
            raise at.refuse("T7", message, node.span)


def _member(
    at: Inference, item: typed.TypedExpr, options: typed.TypedExpr, span: Span
) -> typed.TypedExpr:
    if item.type.is_blob or options.type.is_blob:
        raise at.refuse("T7", "Blobs cannot be compared", span)
    options = _with_expected_type(item, options)
    if not (is_null(item) or is_null(options) or comparable(item.type, options.type.element)):
        message = f"cannot look for {describe(item)} in {describe(options)}"
        raise at.refuse(_mismatch_code(at, item, options), message, span)
    return typed.Membership(item, options)


def _with_expected_type(item: typed.TypedExpr, options: typed.TypedExpr) -> typed.TypedExpr:
    """Give a list literal without values, ``[]`` or ``[null]``, the expected type."""
    if not isinstance(options, typed.Constant) or not isinstance(options.value, tuple):
        return options
    if is_null(item) or any(value is not None for value in options.value):
        return options
    type_ = PropType(item.type.scalar, nullable=options.type.nullable, is_list=True)
    return typed.Constant(options.value, type_)


@rule(ast.InExpr)
def _in(at: Inference, node: ast.InExpr) -> typed.TypedExpr:
    item, options = at.exprs(node.item, node.options)
    for side in (item, options):
        if isinstance(side, typed.Entity):
            raise at.refuse("T7", f"`in` compares values, got {describe(side)}", node.span)
    if not (is_null(options) or options.type.is_list):
        message = f"`in` needs a list on the right, got {describe(options)}"
        hint = "write `in [1, 2]` or pass a list"
        raise at.refuse("T7", message, node.options.span, hint)
    if not (is_null(item) or item.type.is_plain):
        message = f"`in` needs a single value on the left, got {describe(item)}"
        raise at.refuse("T7", message, node.item.span)
    return _member(at, item, options, node.span)


@rule(ast.IsNullExpr)
def _is_null(at: Inference, node: ast.IsNullExpr) -> typed.TypedExpr:
    (operand,) = at.exprs(node.operand)
    if isinstance(operand, typed.Entity):
        raise at.refuse("T7", f"`is null` tests values, got {describe(operand)}", node.span)
    if operand.type.is_blob:
        raise at.refuse("T24", "a Blob cannot be tested with `is null`", node.span)
    if isinstance(operand, typed.Column) and not operand.type.nullable:
        never = "always" if node.negated else "never"
        at.context.warn("L204", f"`{operand.name}` is required: this {never} holds", node.span)
    return typed.IsNull(operand, node.negated)


@rule(ast.NotExpr)
def _not(at: Inference, node: ast.NotExpr) -> typed.TypedExpr:
    return typed.Not(*at.conditions([node.operand]))


@rule(ast.AndExpr)
def _and(at: Inference, node: ast.AndExpr) -> typed.TypedExpr:
    return typed.And(at.conditions(node.operands))


@rule(ast.OrExpr)
def _or(at: Inference, node: ast.OrExpr) -> typed.TypedExpr:
    return typed.Or(at.conditions(node.operands))


def _warn_pointless(
    at: Inference, node: ast.CompareExpr, left: typed.TypedExpr, right: typed.TypedExpr
) -> None:
    """Warn about comparisons with null, and with values that an enum does not have."""
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
            message = f"'{value.value}' is not a value of the enum ({', '.join(allowed)})"
            at.context.warn("L204", message, node.span, suggest(str(value.value), allowed))


# -- calls ------------------------------------------------------------------------------------


@rule(ast.AggregateExpr)
def _aggregate(at: Inference, node: ast.AggregateExpr) -> typed.TypedExpr:
    if not at.aggregates:
        message = f"`{node.function}` is only allowed at the top of a projection"
        raise at.refuse("T9", message, node.span)
    (arg,) = Inference(at.context, at.scope).exprs(node.arg)
    function = typed.AggregateFunction(node.function)
    if node.distinct and function is not typed.AggregateFunction.COUNT:
        message = f"`distinct` works with `count` only, not with `{function}`"
        raise at.refuse("T8", message, node.span)
    if function is typed.AggregateFunction.COUNT:
        if arg.type.is_blob:
            raise at.refuse("T24", "a Blob cannot be read as a value", node.span)
        return typed.Aggregate(function, arg, node.distinct)
    type_ = arg.type
    is_value = not isinstance(arg, typed.Entity) and type_.is_plain
    if function in (typed.AggregateFunction.SUM, typed.AggregateFunction.AVG):
        ok, wanted = is_value and type_.scalar.is_numeric, "a number"
    else:
        ok = is_value and type_.scalar is not typed.BOOL.scalar
        wanted = "a number, String, Date or DateTime"
    if not ok:
        raise at.refuse("T8", f"`{function}` needs {wanted}, got {describe(arg)}", node.span)
    return typed.Aggregate(function, arg)


CallRule = Callable[[Inference, ast.CallExpr], typed.TypedExpr]
CALLS: dict[str, CallRule] = {}


@rule(ast.CallExpr)
def _call(at: Inference, node: ast.CallExpr) -> typed.TypedExpr:
    return CALLS[node.function](at, node)


CALLS["now"] = lambda at, node: typed.Parameter(typed.NOW_PARAMETER, typed.DATETIME)
