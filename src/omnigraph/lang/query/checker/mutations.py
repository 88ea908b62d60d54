"""Checks mutations: inserted and set properties and predicates, against the type."""

from __future__ import annotations

from omnigraph.lang.closest import suggest
from omnigraph.lang.query import ast, typed
from omnigraph.lang.query.checked import ROW, CheckedMutation, CheckedStatement, StatementKind
from omnigraph.lang.query.checker.context import Context, VariableScope
from omnigraph.lang.query.checker.infer import Inference
from omnigraph.lang.query.checker.literals import check_assignable
from omnigraph.lang.schema.catalog import EdgeType, NodeType
from omnigraph.lang.types import PropType, comparable

ENDPOINTS = ("from", "to")
_STORED = {"from": "src", "to": "dst"}


def check_mutation(context: Context, query: ast.Query, body: ast.MutationBody) -> CheckedMutation:
    """Check every statement, even after an invalid one."""
    statements = [context.attempt(_statement, context, node) for node in body.statements]
    return CheckedMutation(
        query.name,
        context.params,
        tuple(statement for statement in statements if statement is not None),
    )


def _statement(context: Context, node: ast.Statement) -> CheckedStatement:
    target = _target(context, node)
    match node:
        case ast.InsertStatement():
            values = _assignments(context, node.assignments, target)
            _required(context, node, target)
            return _checked(StatementKind.INSERT, target, values, None, node)
        case ast.UpdateStatement():
            values = _assignments(context, node.assignments, target)
            _unchangeable(context, node, target)
            where = row_condition(context, node.where, target)
            return _checked(StatementKind.UPDATE, target, values, where, node)
        case ast.DeleteStatement():
            where = row_condition(context, node.where, target)
            return _checked(StatementKind.DELETE, target, (), where, node)
        case _:
            raise TypeError(f"the checker does not know {type(node).__name__}")


def _target(context: Context, node: ast.Statement) -> NodeType | EdgeType:
    """The type of a statement; its name must be exactly as declared."""
    catalog = context.catalog
    target = catalog.node_types.get(node.type_name) or catalog.edge_types.get(node.type_name)
    if target is None:
        names = [*catalog.node_types, *catalog.edge_types]
        message = f"unknown node or edge type `{node.type_name}`"
        raise context.refuse("T10", message, node.type_span, suggest(node.type_name, names))
    return target


def _checked(
    kind: StatementKind,
    target: NodeType | EdgeType,
    values: tuple[tuple[str, typed.TypedExpr], ...],
    where: typed.TypedExpr | None,
    node: ast.Statement,
) -> CheckedStatement:
    entity = typed.EntityKind.EDGE if isinstance(target, EdgeType) else typed.EntityKind.NODE
    return CheckedStatement(kind, entity, target.name, values, where, node.span)


def writable(target: NodeType | EdgeType) -> dict[str, PropType]:
    """The properties that a statement may set; endpoints hide properties of the same name."""
    properties = {name: prop.type for name, prop in target.properties.items()}
    if isinstance(target, EdgeType):
        properties.update(dict.fromkeys(ENDPOINTS, typed.STRING))
    return properties


# -- assignments ------------------------------------------------------------------------------


def _assignments(
    context: Context, nodes: tuple[ast.Assignment, ...], target: NodeType | EdgeType
) -> tuple[tuple[str, typed.TypedExpr], ...]:
    properties = writable(target)
    values: dict[str, typed.TypedExpr] = {}
    seen: set[str] = set()
    for node in nodes:
        if node.name in seen:
            context.error("T13", f"`{node.name}` is assigned twice", node.span)
            continue
        seen.add(node.name)
        type_ = properties.get(node.name)
        if type_ is None:
            message = f"type `{target.name}` has no property `{node.name}`"
            context.error("T11", message, node.span, suggest(node.name, properties))
            continue
        value = context.attempt(_value, context, node, type_, target.name)
        if value is not None:
            values[node.name] = value
    return tuple(values.items())


def _value(context: Context, node: ast.Assignment, type_: PropType, owner: str) -> typed.TypedExpr:
    (value,) = Inference(context, VariableScope(), row={}).exprs(node.value)
    label = f"`{owner}.{node.name}`"
    span = node.value.span
    if isinstance(value, typed.Constant):
        check_assignable(context, value, type_, label, span)
        return value
    if isinstance(value, typed.ListOf) and any(item.type.nullable for item in value.items):
        raise context.refuse("T7", f"the items of {label} cannot be null", span)
    text_into_blob = type_.is_blob and value.type.as_nullable(False) == typed.STRING
    if text_into_blob or comparable(value.type, type_):
        return value
    raise context.refuse("T7", f"cannot assign {value.type} to {label}, which is {type_}", span)


def _required(context: Context, node: ast.InsertStatement, target: NodeType | EdgeType) -> None:
    """Check that an insert sets every required property (T12)."""
    given = {assignment.name for assignment in node.assignments}
    ends = ENDPOINTS if isinstance(target, EdgeType) else ()
    embeds = target.embeds if isinstance(target, NodeType) else {}
    missing = [f"`{end}`" for end in ends if end not in given]
    for name, prop in target.properties.items():
        if not prop.type.nullable and name in ends:
            message = f"required property `{name}` of `{target.name}` cannot be given a value"
            hint = f"`{name}:` names an end of the edge; make the property nullable or rename it"
            context.error("T12", message, node.type_span, hint)
        if prop.type.nullable or name in given or name in ends:
            continue
        embed = embeds.get(name)
        if embed is None:
            missing.append(f"`{name}`")
        elif embed.source not in given:
            missing.append(f"`{name}` (or its source `{embed.source}`)")
    if missing:
        wanted = ", ".join(missing)
        context.error("T12", f"insert of `{target.name}` needs {wanted}", node.type_span)


def _unchangeable(context: Context, node: ast.UpdateStatement, target: NodeType | EdgeType) -> None:
    for assignment in node.assignments:
        if isinstance(target, EdgeType):
            if assignment.name in ENDPOINTS:
                message = f"the ends of edge `{target.name}` cannot be updated"
                hint = "delete the edge and insert another"
                context.error("T16", message, assignment.span, hint)
        elif assignment.name in target.key:
            message = f"cannot update @key property `{target.name}.{assignment.name}`"
            context.error("T33", message, assignment.span, "delete and re-insert instead")


# -- predicates -------------------------------------------------------------------------------


def row_condition(
    context: Context, node: ast.Expr, target: NodeType | EdgeType, variable: str = ROW
) -> typed.TypedExpr | None:
    """A condition about one row of a type; ``None`` if it is invalid."""
    at = Inference(
        context, VariableScope(), row=writable(target), row_variable=variable, row_label=target.name
    )
    condition = at.condition(node)
    return None if condition is None else _stored_ends(condition, isinstance(target, EdgeType))


def _stored_ends(expr: typed.TypedExpr, is_edge: bool) -> typed.TypedExpr:
    """``from`` and ``to`` of an edge are the columns ``src`` and ``dst``."""
    if isinstance(expr, typed.Column):
        stored = _STORED.get(expr.name) if is_edge else None
        return typed.Column(expr.variable, stored, expr.type) if stored else expr
    return typed.rebuild(expr, lambda part: _stored_ends(part, is_edge))
