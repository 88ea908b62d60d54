"""Put the values of the parameters into a plan.

A compiled plan is kept and used again; binding it is all that a repeated call pays before
execution. The bound plan has no parameters left, and its constants have the types of the columns
they are compared with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from omnigraph.errors import ParameterError
from omnigraph.lang.query import typed
from omnigraph.plan.align import align
from omnigraph.plan.nodes import MutationPlan, ReadPlan

P = TypeVar("P", ReadPlan, MutationPlan)


def bind(plan: P, values: Mapping[str, typed.Value]) -> P:
    """The plan with every parameter replaced by its value (see ``convert_params``)."""
    return plan.map_exprs(lambda expr: bind_expr(expr, values))


def bind_expr(expr: typed.TypedExpr, values: Mapping[str, typed.Value]) -> typed.TypedExpr:
    """One expression with its parameters replaced and its constants aligned.

    >>> age = typed.Parameter("age", typed.INT)
    >>> bind_expr(age, {"age": 41}).value
    41
    """
    if isinstance(expr, typed.Parameter):
        if expr.name not in values:
            raise ParameterError(
                f"parameter '{expr.name}' not provided", details={"parameter": expr.name}
            )
        return typed.Constant(values[expr.name], expr.type)
    expr = typed.rebuild(expr, lambda part: bind_expr(part, values))
    if isinstance(expr, typed.ListOf):
        atoms: list[typed.Atom] = []
        for item in expr.items:
            assert isinstance(item, typed.Constant)
            assert not isinstance(item.value, tuple)
            atoms.append(item.value)
        return typed.Constant(tuple(atoms), expr.type)
    return align(expr)
