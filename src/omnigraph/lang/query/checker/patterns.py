"""Checks the clauses of a match block.

Bindings give variables their types first. Then traversals with a known end determine the type of
their other end; only if no end is known, the first one is assumed to run from source to target.
Conditions and negations are checked last. So the order of clauses decides whether a query is valid
only if a direction has to be assumed.
"""

from __future__ import annotations

from omnigraph.lang.closest import suggest
from omnigraph.lang.diagnostics import Span
from omnigraph.lang.query import ast, typed
from omnigraph.lang.query.checked import Absent, BoundNode, Direction, Hop, Pattern
from omnigraph.lang.query.checker.context import BoundVariable, Context, Invalid, VariableScope
from omnigraph.lang.query.checker.infer import Inference
from omnigraph.lang.query.checker.literals import check_fits, is_null
from omnigraph.lang.query.connections import sweep_order
from omnigraph.lang.query.expressions import edge_word
from omnigraph.lang.schema.catalog import EdgeType
from omnigraph.lang.types import PropType, comparable

_NODE = typed.EntityKind.NODE
_EDGE = typed.EntityKind.EDGE


def check_pattern(
    context: Context, scope: VariableScope, clauses: tuple[ast.Clause, ...]
) -> Pattern:
    """Check one block; its variables are added to ``scope``."""
    bindings = [clause for clause in clauses if isinstance(clause, ast.BindingClause)]
    for binding in bindings:
        _bind_type(context, scope, binding)
    named_blank = scope.get(ast.ANONYMOUS) is not None
    hops = _hops(context, scope, clauses, named_blank)
    nodes = _nodes(context, scope, bindings)
    at = Inference(context, scope)
    conditions = [
        at.condition(clause.condition) for clause in clauses if isinstance(clause, ast.FilterClause)
    ]
    _refuse_fused_rank(context, clauses, conditions)
    absent = [
        _negation(context, scope, clause)
        for clause in clauses
        if isinstance(clause, ast.NegationClause)
    ]
    return Pattern(
        tuple(nodes),
        tuple(hops),
        tuple(condition for condition in conditions if condition is not None),
        tuple(absent),
    )


# -- bindings ---------------------------------------------------------------------------------


def _bind_type(context: Context, scope: VariableScope, binding: ast.BindingClause) -> None:
    name = binding.type_name
    if context.catalog.node(name) is None:
        message = f"unknown node type `{name}`"
        hint = suggest(name, context.catalog.node_types)
        if name in context.catalog.interfaces:
            message = f"`{name}` is an interface; only node types can be bound"
            hint = None
        elif context.catalog.edge(name) is not None:
            message = f"`{name}` is an edge type; only node types can be bound"
            hint = f"write it between two variables: `$a {edge_word(name)} $b`"
        context.error("T1", message, binding.type_span, hint)
        scope.broken.add(binding.variable)
        return
    bound = scope.get(binding.variable)
    if bound is None:
        scope.bound[binding.variable] = BoundVariable(_NODE, name, binding.span)
    elif bound.kind is not _NODE or bound.type_name != name:
        message = f"variable `${binding.variable}` already bound to type `{bound.type_name}`"
        context.error("T26", f"{message}, cannot rebind to `{name}`", binding.type_span)


def _nodes(
    context: Context, scope: VariableScope, bindings: list[ast.BindingClause]
) -> list[BoundNode]:
    """One node per variable; a variable bound twice has the conditions of both bindings."""
    filters: dict[str, list[typed.TypedExpr]] = {}
    for binding in bindings:
        if context.catalog.node(binding.type_name) is None:
            continue
        conditions = filters.setdefault(binding.variable, [])
        for match in binding.matches:
            condition = context.attempt(_match, context, binding, match)
            if condition is not None:
                conditions.append(condition)
    nodes: list[BoundNode] = []
    for variable, conditions in filters.items():
        bound = scope.get(variable)
        if bound is not None and bound.kind is _NODE:
            nodes.append(BoundNode(variable, bound.type_name, tuple(conditions)))
    return nodes


def _match(
    context: Context, binding: ast.BindingClause, match: ast.PropertyMatch
) -> typed.TypedExpr:
    node_type = context.catalog.node_types[binding.type_name]
    prop = node_type.properties.get(match.name)
    label = f"`{binding.type_name}.{match.name}`"
    if prop is None:
        message = f"type `{binding.type_name}` has no property `{match.name}`"
        hint = suggest(match.name, node_type.properties)
        raise context.refuse("T2", message, match.span, hint)
    type_ = prop.type
    if type_.is_blob or type_.is_vector:
        kind = "Blob" if type_.is_blob else "Vector"
        raise context.refuse("T3", f"{kind} property {label} cannot be matched", match.span)
    if isinstance(match.value, ast.VariableExpr) and match.value.name not in context.params:
        message = f"`${match.value.name}` is not a declared parameter"
        hint = suggest(match.value.name, context.params, "${}")
        raise context.refuse("T25", message, match.value.span, hint)
    (value,) = Inference(context, VariableScope()).exprs(match.value)
    _check_value(context, value, type_, label, match.value.span)
    column = typed.Column(binding.variable, match.name, type_)
    if type_.is_list:
        return typed.Membership(value, column)
    return typed.Compare(typed.Relation.EQ, column, value)


def _check_value(
    context: Context, value: typed.TypedExpr, type_: PropType, label: str, span: Span
) -> None:
    """Check that a literal fits (T3), or that a parameter or ``now()`` is comparable (T7)."""
    is_literal = isinstance(value, typed.Constant)
    if type_.is_list and value.type.is_list and not is_null(value):
        message = f"list equality is not supported for property {label}"
        hint = f"use a scalar {'value' if is_literal else 'parameter'} to match list membership"
        raise context.refuse("T3" if is_literal else "T7", message, span, hint)
    if isinstance(value, typed.Constant):
        check_fits(context, value, type_.element, label, span)
    elif not comparable(value.type, type_.element):
        message = f"cannot compare {value.type} with {type_} for property {label}"
        raise context.refuse("T7", message, span)


# -- traversals -------------------------------------------------------------------------------


def _hops(
    context: Context, scope: VariableScope, clauses: tuple[ast.Clause, ...], named_blank: bool
) -> list[Hop]:
    """The traversals of a block, in source order."""
    written = [clause for clause in clauses if isinstance(clause, ast.TraversalClause)]

    def end(name: str) -> str:
        return context.anonymous() if name == ast.ANONYMOUS and not named_blank else name

    ends = [(end(clause.src), end(clause.dst)) for clause in written]
    bound = [name for pair in ends for name in pair if scope.get(name) is not None]
    hops: dict[int, Hop] = {}
    for position in sweep_order(ends, bound):
        clause = written[position]
        hop = context.attempt(_hop, context, scope, clause, *ends[position])
        if hop is not None:
            hops[position] = hop
        else:
            scope.broken.update((clause.src, clause.dst, clause.edge_variable or clause.src))
    return [hops[position] for position in sorted(hops)]


def _hop(
    context: Context, scope: VariableScope, clause: ast.TraversalClause, src: str, dst: str
) -> Hop:
    _check_hops(context, clause)
    edge = _edge_type(context, clause)
    if clause.undirected and edge.from_type != edge.to_type:
        message = f"`<{clause.edge}>` needs an edge between nodes of one type"
        message += f", `{edge.name}: {edge.from_type} -> {edge.to_type}` is not"
        raise context.refuse("T22", message, clause.edge_span, "leave `<` and `>` out")
    direction = _orient(context, scope, clause, edge, src, dst)
    if clause.undirected:
        direction = Direction.BOTH
    src_type, dst_type = edge.from_type, edge.to_type
    if direction is Direction.IN:
        src_type, dst_type = dst_type, src_type
    _bind_edge(context, scope, clause, edge)
    return Hop(
        src,
        dst,
        src_type,
        dst_type,
        edge.name,
        direction,
        clause.hops.min,
        clause.hops.max or clause.hops.min,
        clause.edge_variable,
        clause.span,
    )


def _edge_type(context: Context, clause: ast.TraversalClause) -> EdgeType:
    edge = context.catalog.edge(clause.edge)
    if edge is None:
        words = [edge_word(name) for name in context.catalog.edge_types]
        hint = suggest(clause.edge, words)
        if clause.edge in ("in", "contains", "starts_with"):
            hint = f"to compare, write a property on the left: `${clause.src}.property …`"
        raise context.refuse("T4", f"unknown edge type `{clause.edge}`", clause.edge_span, hint)
    return edge


def _check_hops(context: Context, clause: ast.TraversalClause) -> None:
    least, most = clause.hops.min, clause.hops.max
    if least < 1:
        context.error("T15", "the fewest hops must be at least 1", clause.span)
    if most is None:
        message = "unbounded traversal is disabled"
        context.error("T15", message, clause.span, "give the most hops too: `{1,3}`")
    elif most < least:
        message = f"invalid hop bounds {{{least},{most}}}: the most must be at least the fewest"
        context.error("T15", message, clause.span)


def _orient(
    context: Context,
    scope: VariableScope,
    clause: ast.TraversalClause,
    edge: EdgeType,
    src: str,
    dst: str,
) -> Direction:
    """The direction, from the known types, left side first."""
    left, right = scope.get(src), scope.get(dst)
    for name, bound in ((src, left), (dst, right)):
        if bound is not None and bound.kind is _EDGE:
            message = f"`${name}` is bound to an edge and cannot be the end of a traversal"
            raise context.refuse("T23", message, clause.span)
    if left is not None:
        if left.type_name == edge.from_type:
            direction = Direction.OUT
        elif left.type_name == edge.to_type:
            direction = Direction.IN
        else:
            raise _not_an_endpoint(context, clause, src, left, edge)
    elif right is not None and right.type_name != edge.to_type:
        if right.type_name != edge.from_type:
            raise _not_an_endpoint(context, clause, dst, right, edge)
        direction = Direction.IN
    else:
        direction = Direction.OUT
    ends = (edge.from_type, edge.to_type)
    left_type, right_type = ends if direction is Direction.OUT else ends[::-1]
    before = context.error_count
    for name, type_name in ((src, left_type), (dst, right_type)):
        _bind_end(context, scope, clause, edge, name, type_name)
    if context.error_count > before:
        raise Invalid
    return direction


def _not_an_endpoint(
    context: Context, clause: ast.TraversalClause, name: str, bound: BoundVariable, edge: EdgeType
) -> Invalid:
    shape = f"`{edge.name}: {edge.from_type} -> {edge.to_type}`"
    message = f"variable `${name}` is a `{bound.type_name}`, which is not an end of {shape}"
    return context.refuse("T5", message, clause.span)


def _bind_end(
    context: Context,
    scope: VariableScope,
    clause: ast.TraversalClause,
    edge: EdgeType,
    name: str,
    type_name: str,
) -> None:
    bound = scope.get(name)
    if bound is None:
        scope.bound[name] = BoundVariable(_NODE, type_name, clause.span)
    elif bound.type_name != type_name:
        message = f"variable `${name}` is a `{bound.type_name}`, but `{edge.name}` expects"
        context.error("T5", f"{message} `{type_name}` there", clause.span)


def _bind_edge(
    context: Context, scope: VariableScope, clause: ast.TraversalClause, edge: EdgeType
) -> None:
    variable = clause.edge_variable
    if variable is None:
        return
    if variable == ast.ANONYMOUS:
        message, hint = "an edge binding needs a name", "leave the binding out: `$a edge $b`"
        raise context.refuse("T23", message, clause.span, hint)
    if (clause.hops.min, clause.hops.max) != (1, 1):
        message = f"`${variable}` binds one edge, so the traversal must have one hop"
        raise context.refuse("T23", message, clause.span)
    bound = scope.get(variable)
    if bound is not None:
        message = f"variable `${variable}` is already bound to `{bound.type_name}`"
        raise context.refuse("T23", f"{message} and cannot bind an edge", clause.span)
    scope.bound[variable] = BoundVariable(_EDGE, edge.name, clause.span)


# -- conditions and negation ------------------------------------------------------------------


def _refuse_fused_rank(
    context: Context, clauses: tuple[ast.Clause, ...], conditions: list[typed.TypedExpr | None]
) -> None:
    filters = [clause for clause in clauses if isinstance(clause, ast.FilterClause)]
    for clause, condition in zip(filters, conditions, strict=True):
        if condition is None:
            continue
        if any(isinstance(part, typed.Rrf) for part in typed.walk(condition)):
            message = "`rrf` ranks the whole result and cannot be part of a condition"
            context.error("T21", message, clause.span, "use it in `return` and `order`")


def _negation(context: Context, scope: VariableScope, clause: ast.NegationClause) -> Absent:
    inner = VariableScope(parent=scope)
    before = context.error_count
    pattern = check_pattern(context, inner, clause.clauses)
    outer = tuple(name for name in _mentioned(clause.clauses) if scope.get(name) is not None)
    if not outer and context.error_count == before:
        message = "a negation must itself mention a variable that is bound outside it"
        context.error("T9", message, clause.span)
    return Absent(pattern, outer)


def _mentioned(clauses: tuple[ast.Clause, ...]) -> list[str]:
    """The distinct variables named in clauses, in source order, without nested blocks."""
    names: list[str] = []
    for clause in clauses:
        if isinstance(clause, ast.TraversalClause):
            names += [clause.src, clause.dst]
        elif isinstance(clause, ast.BindingClause):
            names.append(clause.variable)
        elif isinstance(clause, ast.FilterClause):
            for part in ast.walk(clause.condition):
                if isinstance(part, ast.VariableExpr):
                    names.append(part.name)
                elif isinstance(part, ast.PropertyExpr):
                    names.append(part.variable)
    return list(dict.fromkeys(names))
