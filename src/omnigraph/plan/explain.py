"""A plan as text for people and as JSON for programs."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from omnigraph.escaping import escape
from omnigraph.lang.lexer import quote_string
from omnigraph.lang.query import typed
from omnigraph.lang.query.checked import ROW, Direction, SortKey
from omnigraph.plan.nodes import (
    AntiJoin,
    Connect,
    Expand,
    Intersect,
    Leg,
    MutationPlan,
    NodeScan,
    Plan,
    PlanStep,
    ReadPlan,
    RowFilter,
    Term,
    Total,
    Weigh,
)

_INDENT = "  "


def explain_text(plan: Plan) -> str:
    """The plan, one step per line, in the order of execution.

    >>> from omnigraph.lang.schema.compile import compile_schema
    >>> from omnigraph.plan import compile_query
    >>> catalog = compile_schema("node Person { name: String @key age: I32? }")
    >>> text = "query old() { match { $p: Person $p.age > 60 } return { $p.name } limit 3 }"
    >>> print(explain_text(compile_query(catalog, text)))
    read old()
      scan $p: Person
        where $p.age > 60
      return p.name = $p.name
      limit 3
      reads $p: age, name
    """
    if isinstance(plan, MutationPlan):
        return "\n".join(map(escape, _mutation_lines(plan)))
    return "\n".join(map(escape, _read_lines(plan)))


def _signature(plan: Plan) -> str:
    params = ", ".join(f"${name}: {type_}" for name, type_ in plan.params.items())
    return f"{plan.name}({params})"


def _read_lines(plan: ReadPlan) -> list[str]:
    lines = [f"read {_signature(plan)}"]
    for step in plan.pipeline:
        lines += _step_lines(step, 1)
    columns = ", ".join(f"{column.name} = {show(column.expr)}" for column in plan.columns)
    lines.append(f"{_INDENT}return {'distinct ' if plan.distinct else ''}{columns}")
    if plan.order:
        lines.append(f"{_INDENT}order {', '.join(map(_key_text, plan.order))}")
    if plan.limit is not None:
        offset = "" if plan.offset is None else f" offset {plan.offset}"
        lines.append(f"{_INDENT}limit {plan.limit}{offset}")
    for variable, names in needed_columns(plan).items():
        lines.append(f"{_INDENT}reads ${variable}: {', '.join(names)}")
    return lines


def _key_text(key: SortKey) -> str:
    """A sort key as text. A search always sorts its best row first, whatever the direction."""
    if isinstance(key.expr, typed.Score):
        return f"{show(key.expr)} best first"
    return f"{show(key.expr)} {'desc' if key.descending else 'asc'}"


def _step_lines(step: PlanStep, depth: int) -> list[str]:
    pad = _INDENT * depth
    inner = _INDENT * (depth + 1)
    match step:
        case NodeScan():
            lines = [f"{pad}scan {_seen(step.visible)}${step.variable}: {step.type_name}"]
            return lines + [f"{inner}where {show(condition)}" for condition in step.filters]
        case Expand():
            target = f"${step.dst}: {step.dst_type}"
            lines = [f"{pad}expand {_seen(step.through)}${step.src} {_arrow(step)} {target}"]
            conditions = (*step.dst_filters, *step.edge_filters)
            return lines + [f"{inner}where {show(condition)}" for condition in conditions]
        case Connect():
            lines = [f"{pad}connect {_seen(step.through)}${step.src} {_arrow(step)} ${step.dst}"]
            return lines + [f"{inner}where {show(condition)}" for condition in step.edge_filters]
        case RowFilter():
            return [f"{pad}filter {show(step.condition)}"]
        case AntiJoin():
            lines = [f"{pad}without (from {', '.join(f'${name}' for name in step.outer)})"]
            for nested in step.inner:
                lines += _step_lines(nested, depth + 1)
            return lines
        case Total():
            lines = [f"{pad}total"]
            for term in step.terms:
                lines.append(f"{inner}{step_name(term)}")
                for nested in term.inner:
                    lines += _step_lines(nested, depth + 2)
            return lines
        case Weigh():
            lines = [f"{pad}count for ${step.variable}"]
            for nested in step.inner:
                lines += _step_lines(nested, depth + 1)
            return lines
        case Intersect():
            legs = ", ".join(
                f"{_seen(leg.through)}${leg.src} {_leg_arrow(leg)}" for leg in step.legs
            )
            lines = [f"{pad}intersect {legs} ${step.dst}: {step.dst_type}"]
            return lines + [f"{inner}where {show(condition)}" for condition in step.dst_filters]
        case _:
            raise TypeError(f"explain does not know {type(step).__name__}")


def _seen(mark: typed.Visible | None) -> str:
    return "" if mark is None else "visible "


def _arrow(step: Expand | Connect) -> str:
    hops = "" if step.max_hops == 1 else f" {step.min_hops}..{step.max_hops}"
    variable = "" if step.edge_variable is None else f"${step.edge_variable}: "
    label = f"[{variable}{step.edge_type}{hops}]"
    if step.direction is Direction.IN:
        return f"<-{label}-"
    return f"-{label}->" if step.direction is Direction.OUT else f"-{label}-"


def _leg_arrow(leg: Leg) -> str:
    if leg.direction is Direction.IN:
        return f"<-[{leg.edge_type}]-"
    return f"-[{leg.edge_type}]->" if leg.direction is Direction.OUT else f"-[{leg.edge_type}]-"


def _mutation_lines(plan: MutationPlan) -> list[str]:
    lines = [f"mutation {_signature(plan)}"]
    for statement in plan.statements:
        lines.append(f"{_INDENT}{statement.kind} {statement.entity} {statement.type_name}")
        for name, value in statement.assignments:
            lines.append(f"{_INDENT * 2}{name} = {show(value)}")
        if statement.where is not None:
            lines.append(f"{_INDENT * 2}where {show(statement.where)}")
    return lines


def step_name(step: PlanStep) -> str:
    """A step in a few words."""
    match step:
        case NodeScan():
            return f"scan ${step.variable}"
        case Expand() | Connect():
            return f"{type(step).__name__.lower()} ${step.src} to ${step.dst}"
        case Intersect():
            return f"intersect ${step.dst}"
        case RowFilter():
            return "filter"
        case AntiJoin():
            return "without"
        case Weigh():
            return f"count for ${step.variable}"
        case Total():
            return "total"
        case Term():
            return "plus" if step.sign > 0 else "minus"
        case _:
            raise TypeError(f"explain does not know {type(step).__name__}")


# -- JSON -------------------------------------------------------------------------------------


def explain_json(plan: Plan) -> dict[str, Any]:
    """The plan as plain data, keys in a fixed order."""
    head: dict[str, Any] = {
        "kind": "mutation" if isinstance(plan, MutationPlan) else "read",
        "name": plan.name,
        "params": [
            {"name": name, "type": str(type_.as_nullable(False)), "nullable": type_.nullable}
            for name, type_ in plan.params.items()
        ],
    }
    if isinstance(plan, MutationPlan):
        head["statements"] = [
            {
                "op": str(statement.kind),
                "entity": str(statement.entity),
                "type": statement.type_name,
                "assign": {name: show(value) for name, value in statement.assignments},
                "where": None if statement.where is None else show(statement.where),
            }
            for statement in plan.statements
        ]
        return head
    head["pipeline"] = [_step_json(step) for step in plan.pipeline]
    head["columns"] = [
        {"name": column.name, "expr": show(column.expr), "type": str(column.expr.type)}
        for column in plan.columns
    ]
    head["distinct"] = plan.distinct
    head["order"] = [{"expr": show(key.expr), "desc": key.descending} for key in plan.order]
    head["limit"] = plan.limit
    head["offset"] = plan.offset
    head["reads"] = {name: list(columns) for name, columns in needed_columns(plan).items()}
    return head


def _step_json(step: PlanStep) -> dict[str, Any]:
    match step:
        case NodeScan():
            return {
                "op": "node_scan",
                "variable": step.variable,
                "type": step.type_name,
                "filters": [show(condition) for condition in step.filters],
                **_restricted(step.visible),
            }
        case Expand():
            return {
                "op": "expand",
                **_edge_json(step),
                "dst_type": step.dst_type,
                "dst_filters": [show(condition) for condition in step.dst_filters],
            }
        case Connect():
            return {"op": "connect", **_edge_json(step)}
        case RowFilter():
            return {"op": "filter", "condition": show(step.condition)}
        case AntiJoin():
            return {
                "op": "anti_join",
                "outer": list(step.outer),
                "inner": [_step_json(nested) for nested in step.inner],
            }
        case Total():
            return {
                "op": "total",
                "terms": [
                    {"sign": term.sign, "pipeline": [_step_json(nested) for nested in term.inner]}
                    for term in step.terms
                ],
            }
        case Weigh():
            return {
                "op": "weigh",
                "variable": step.variable,
                "inner": [_step_json(nested) for nested in step.inner],
            }
        case Intersect():
            return {
                "op": "intersect",
                "legs": [
                    {
                        "src": leg.src,
                        "edge": leg.edge_type,
                        "direction": str(leg.direction),
                        **_restricted(leg.through),
                    }
                    for leg in step.legs
                ],
                "dst": step.dst,
                "dst_type": step.dst_type,
                "dst_filters": [show(condition) for condition in step.dst_filters],
            }
        case _:
            raise TypeError(f"explain does not know {type(step).__name__}")


def _edge_json(step: Expand | Connect) -> dict[str, Any]:
    return {
        "src": step.src,
        "dst": step.dst,
        "edge": step.edge_type,
        "direction": str(step.direction),
        "min_hops": step.min_hops,
        "max_hops": step.max_hops,
        "edge_variable": step.edge_variable,
        "edge_filters": [show(condition) for condition in step.edge_filters],
        **_restricted(step.through),
    }


def _restricted(mark: typed.Visible | None) -> dict[str, bool]:
    return {} if mark is None else {"visible": True}


# -- expressions ------------------------------------------------------------------------------


def show_value(value: typed.Value) -> str:
    """A constant as a literal of the language."""
    if isinstance(value, tuple):
        return f"[{', '.join(show_value(item) for item in value)}]"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quote_string(value)
    if isinstance(value, datetime):
        return f'datetime("{value.isoformat(timespec="milliseconds")}Z")'
    if isinstance(value, date):
        return f'date("{value.isoformat()}")'
    return repr(value)


def show(expr: typed.TypedExpr) -> str:
    """An expression in the syntax of the query language.

    >>> show(typed.Compare(typed.Relation.GT, typed.Column("p", "age", typed.INT),
    ...                    typed.Constant(30, typed.INT)))
    '$p.age > 30'
    """
    match expr:
        case typed.Constant():
            return show_value(expr.value)
        case typed.Parameter():
            return "now()" if expr.name == typed.NOW_PARAMETER else f"${expr.name}"
        case typed.Column():
            return expr.name if expr.variable == ROW else f"${expr.variable}.{expr.name}"
        case typed.Entity():
            return f"${expr.variable}"
        case typed.Output():
            return expr.name
        case typed.ListOf():
            return f"[{', '.join(map(show, expr.items))}]"
        case typed.Visible():
            return "visible"
        case typed.Compare():
            return f"{_operand(expr.left)} {expr.op} {_operand(expr.right)}"
        case typed.Membership():
            return f"{_operand(expr.item)} in {show(expr.options)}"
        case typed.Substring():
            return f"{show(expr.text)} contains {show(expr.part)}"
        case typed.StartsWith():
            return f"{show(expr.text)} starts_with {show(expr.prefix)}"
        case typed.IsNull():
            return f"{_operand(expr.operand)} is {'not ' if expr.negated else ''}null"
        case typed.Not():
            return f"not ({show(expr.operand)})"
        case typed.And() | typed.Or():
            return f" {type(expr).__name__.lower()} ".join(map(_grouped, expr.operands))
        case typed.TextMatch() | typed.Nearest() | typed.Bm25() | typed.Rrf():
            name = expr.function if isinstance(expr, typed.TextMatch) else type(expr).__name__
            return f"{name.lower()}({', '.join(map(show, typed.children(expr)))})"
        case typed.Aggregate():
            return f"{expr.function}({'distinct ' if expr.distinct else ''}{show(expr.arg)})"
        case _:
            raise TypeError(f"explain does not know {type(expr).__name__}")


def _operand(expr: typed.TypedExpr) -> str:
    is_condition = isinstance(expr, typed.Condition) and not isinstance(expr, typed.TextMatch)
    return f"({show(expr)})" if is_condition else show(expr)


def _grouped(expr: typed.TypedExpr) -> str:
    return f"({show(expr)})" if isinstance(expr, typed.And | typed.Or) else show(expr)


def needed_columns(plan: ReadPlan) -> dict[str, tuple[str, ...]]:
    """The properties read of each variable, in alphabetical order, without ids."""
    needed: dict[str, set[str]] = {}
    for expr in plan.exprs():
        for part in typed.walk(expr):
            if isinstance(part, typed.Column) and part.name != typed.ID_COLUMN:
                needed.setdefault(part.variable, set()).add(part.name)
    return {variable: tuple(sorted(names)) for variable, names in sorted(needed.items())}
