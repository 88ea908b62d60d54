"""Checks the condition of a row rule against a schema.

A condition is an expression of the query language about one row, with bare names for its
properties, as in ``delete X where …``. ``$actor.name`` stands for an attribute of whoever reads;
its type follows from what it is compared with. A condition depends on the row and the actor only:
no time, no search, no other variables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from omnigraph.errors import QueryError
from omnigraph.lang.closest import suggest
from omnigraph.lang.diagnostics import Severity, Source, first_in_source
from omnigraph.lang.lexer import Kind
from omnigraph.lang.parsing import ParseFailure
from omnigraph.lang.query import ast, typed
from omnigraph.lang.query.checked import VIEW_VARIABLE
from omnigraph.lang.query.checker.context import Context, VariableScope
from omnigraph.lang.query.checker.infer import Inference
from omnigraph.lang.query.checker.mutations import row_condition, writable
from omnigraph.lang.query.expressions import ExpressionParser
from omnigraph.lang.schema.catalog import Catalog, EntityType
from omnigraph.lang.types import PropType, Scalar
from omnigraph.records import dataclass

ACTOR = "actor"
"""The variable whose properties are the attributes of the actor."""
ACTOR_ID = "id"
ACTOR_GROUPS = "groups"
BUILT_IN_ATTRIBUTES: dict[str, PropType] = {
    ACTOR_ID: typed.STRING,
    ACTOR_GROUPS: PropType(Scalar.STRING, is_list=True),
}
"""What every actor has: its id and its groups."""


@dataclass(frozen=True, slots=True)
class CheckedCondition:
    """A condition over ``VIEW_VARIABLE``, and the type of each attribute that it uses."""

    expr: typed.TypedExpr
    attributes: Mapping[str, PropType]


def attribute_parameter(name: str) -> str:
    """The name of the parameter that stands for an attribute; no query can declare it.

    >>> attribute_parameter("level")
    'actor.level'
    """
    return f"{ACTOR}.{name}"


def check_condition(
    catalog: Catalog, type_name: str, source: Source, *, allow_actor: bool = True
) -> CheckedCondition:
    """The condition of a row rule for one type; raises ``QueryError`` with every error in it.

    >>> from omnigraph.lang.schema.compile import compile_schema
    >>> catalog = compile_schema("node Note { slug: String @key  level: I32 }")
    >>> source = Source("staff.yaml", "level <= $actor.level")
    >>> str(check_condition(catalog, "Note", source).attributes["level"])
    'I64'
    """
    condition = parse_condition(source)
    context = Context(catalog, source, {})
    target = catalog.node_types.get(type_name) or catalog.edge_types.get(type_name)
    if target is None:
        names = [*catalog.node_types, *catalog.edge_types]
        context.error(
            "T10",
            f"unknown node or edge type `{type_name}`",
            condition.span,
            suggest(type_name, names),
        )
        raise QueryError(first_in_source(context.diagnostics))
    attributes = _Attributes(context, target, allow_actor)
    resolved = attributes.condition(condition)
    context.params = {attribute_parameter(name): t for name, t in attributes.types.items()}
    expr: typed.TypedExpr | None = None
    if not context.error_count:
        expr = row_condition(context, resolved, target, VIEW_VARIABLE)
    if expr is None or context.error_count:
        errors = (d for d in context.diagnostics if d.severity is Severity.ERROR)
        raise QueryError(first_in_source(errors))
    return CheckedCondition(expr, attributes.types)


def parse_condition(source: Source) -> ast.Expr:
    """The syntax tree of a condition; raises ``QueryError``."""
    parser = ExpressionParser(source)
    condition: ast.Expr | None = None
    try:
        condition = parser.expression()
        if not parser.at_kind(Kind.EOF):
            parser.unexpected("the end of the condition", "after it")
    except ParseFailure:
        pass
    if condition is None or parser.diagnostics:
        raise QueryError(first_in_source(parser.diagnostics))
    return condition


@dataclass(slots=True)
class _Attributes:
    """Finds the type of each attribute and writes it as a parameter."""

    context: Context
    target: EntityType
    allowed: bool
    types: dict[str, PropType] = field(default_factory=dict)

    def condition(self, node: ast.Expr) -> ast.Expr:
        """A condition with its attributes as parameters; an attribute alone is a truth value."""
        match node:
            case ast.PropertyExpr(variable="actor"):
                return self._typed(node, typed.BOOL)
            case ast.AndExpr(operands=operands) | ast.OrExpr(operands=operands):
                return replace(node, operands=tuple(map(self.condition, operands)))
            case ast.NotExpr(operand=operand):
                return replace(node, operand=self.condition(operand))
            case ast.CompareExpr(left=left, right=right):
                return replace(
                    node,
                    left=self._operand(left, right, _left_wanted, node),
                    right=self._operand(right, left, _right_wanted, node),
                )
            case ast.InExpr(item=item, options=options):
                return replace(
                    node,
                    item=self._operand(item, options, _item_wanted, node),
                    options=self._operand(options, item, _options_wanted, node),
                )
            case ast.IsNullExpr(operand=ast.PropertyExpr(variable="actor") as operand):
                message = f"`$actor.{operand.name}` is never null in a row rule"
                hint = "a rule that uses a missing attribute shows nothing"
                self.context.error("T36", message, node.span, hint)
                return node
        self._refuse_foreign(node)
        return node

    def _operand(self, node: ast.Expr, other: ast.Expr, wanted: Any, parent: ast.Expr) -> ast.Expr:
        if isinstance(node, ast.PropertyExpr) and node.variable == ACTOR:
            built_in = BUILT_IN_ATTRIBUTES.get(node.name)
            if built_in is not None:
                return self._typed(node, built_in)
            type_ = self._type_of(other)
            if type_ is None:
                if not self._is_attribute(other):
                    return node  # the other side is invalid and reported when it is checked
                message = f"the type of `$actor.{node.name}` cannot be told here"
                self.context.error("T37", message, node.span, "compare it with a property")
                return node
            return self._typed(node, wanted(parent, type_))
        self._refuse_foreign(node)
        return node

    def _type_of(self, node: ast.Expr) -> PropType | None:
        """The type of the other side of a comparison; ``None`` if it has none of its own."""
        if self._is_attribute(node):
            assert isinstance(node, ast.PropertyExpr)
            return BUILT_IN_ATTRIBUTES.get(node.name)
        if any(not _is_plain(part) for part in ast.walk(node)):
            return None
        trial = Context(self.context.catalog, self.context.source, {})
        expr = Inference(trial, VariableScope(), row=writable(self.target)).expr(node)
        return typed.STRING if expr is None else expr.type

    def _typed(self, node: ast.PropertyExpr, wanted: PropType) -> ast.Expr:
        if not self.allowed:
            self.context.error("T36", "there is no actor here", node.span)
            return node
        type_ = BUILT_IN_ATTRIBUTES.get(node.name, wanted)
        earlier = self.types.setdefault(node.name, type_)
        if earlier != type_:
            message = f"`$actor.{node.name}` cannot be {earlier} and {type_}"
            self.context.error("T37", message, node.span, "use two attributes")
        return ast.VariableExpr(attribute_parameter(node.name), span=node.span)

    def _is_attribute(self, node: ast.Expr) -> bool:
        return isinstance(node, ast.PropertyExpr) and node.variable == ACTOR

    def _refuse_foreign(self, node: ast.Expr) -> None:
        """Report whatever an expression has besides properties, attributes and literals."""
        for part in ast.walk(node):
            message = hint = None
            match part:
                case ast.PropertyExpr(variable="actor"):
                    message = f"`$actor.{part.name}` must be one side of a comparison"
                case ast.PropertyExpr():
                    message = "a row rule names properties without a variable"
                    hint = f"write `{part.name}`"
                case ast.VariableExpr(name="actor"):
                    message, hint = "`$actor` is not a value", "name an attribute: `$actor.name`"
                case ast.VariableExpr():
                    message = f"a row rule has no variable `${part.name}`"
                    hint = "attributes of the actor are written `$actor.name`"
                case ast.CallExpr() | ast.AggregateExpr():
                    message = f"`{part.function}` cannot be used in a row rule"
            if message is not None:
                self.context.error("T36", message, part.span, hint)
                return


def _is_plain(node: ast.Expr) -> bool:
    foreign = ast.PropertyExpr | ast.VariableExpr | ast.CallExpr | ast.AggregateExpr
    return not isinstance(node, foreign)


# -- the type of an attribute, from the type of the other side -------------------------------


def _element(type_: PropType) -> PropType:
    """The type of one value, as a literal would have it."""
    scalar = type_.scalar
    if scalar.is_integer:
        return typed.INT
    if scalar.is_float:
        return typed.FLOAT
    return typed.STRING if scalar in (Scalar.BLOB, Scalar.VECTOR) else PropType(scalar)


def _list_of(type_: PropType) -> PropType:
    return replace(_element(type_), is_list=True)


def _left_wanted(node: ast.CompareExpr, right: PropType) -> PropType:
    if node.op is ast.CompareOp.CONTAINS:
        return _list_of(right)
    return typed.STRING if node.op is ast.CompareOp.STARTS_WITH else _element(right)


def _right_wanted(node: ast.CompareExpr, left: PropType) -> PropType:
    if node.op is ast.CompareOp.STARTS_WITH:
        return typed.STRING
    return _element(left)


def _item_wanted(node: ast.InExpr, options: PropType) -> PropType:
    return _element(options)


def _options_wanted(node: ast.InExpr, item: PropType) -> PropType:
    return _list_of(item)
