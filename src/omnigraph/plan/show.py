"""Expressions as short texts, for people who read a plan."""

from __future__ import annotations

from datetime import date, datetime

from omnigraph.lang.lexer import quote_string
from omnigraph.lang.query import typed
from omnigraph.lang.query.checked import ROW


def show(expr: typed.TypedExpr) -> str:
    """An expression in the words of the query language.

    >>> show(typed.Compare(typed.Relation.GT, typed.Column("p", "age", typed.INT),
    ...                    typed.Constant(30, typed.INT)))
    '$p.age > 30'
    """
    return _Show().visit(expr)


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


class _Show(typed.Visitor[str]):
    def visit_Constant(self, expr: typed.Constant) -> str:  # noqa: N802
        return show_value(expr.value)

    def visit_Parameter(self, expr: typed.Parameter) -> str:  # noqa: N802
        return "now()" if expr.name == typed.NOW_PARAMETER else f"${expr.name}"

    def visit_Column(self, expr: typed.Column) -> str:  # noqa: N802
        return expr.name if expr.variable == ROW else f"${expr.variable}.{expr.name}"

    def visit_Entity(self, expr: typed.Entity) -> str:  # noqa: N802
        return f"${expr.variable}"

    def visit_Output(self, expr: typed.Output) -> str:  # noqa: N802
        return expr.name

    def visit_ListOf(self, expr: typed.ListOf) -> str:  # noqa: N802
        return f"[{', '.join(map(self.visit, expr.items))}]"

    def visit_Compare(self, expr: typed.Compare) -> str:  # noqa: N802
        return f"{self._operand(expr.left)} {expr.op} {self._operand(expr.right)}"

    def visit_Membership(self, expr: typed.Membership) -> str:  # noqa: N802
        return f"{self._operand(expr.item)} in {self.visit(expr.options)}"

    def visit_Substring(self, expr: typed.Substring) -> str:  # noqa: N802
        return f"{self.visit(expr.text)} contains {self.visit(expr.part)}"

    def visit_StartsWith(self, expr: typed.StartsWith) -> str:  # noqa: N802
        return f"{self.visit(expr.text)} starts_with {self.visit(expr.prefix)}"

    def visit_IsNull(self, expr: typed.IsNull) -> str:  # noqa: N802
        return f"{self._operand(expr.operand)} is {'not ' if expr.negated else ''}null"

    def visit_Not(self, expr: typed.Not) -> str:  # noqa: N802
        return f"not ({self.visit(expr.operand)})"

    def visit_And(self, expr: typed.And) -> str:  # noqa: N802
        return " and ".join(map(self._grouped, expr.operands))

    def visit_Or(self, expr: typed.Or) -> str:  # noqa: N802
        return " or ".join(map(self._grouped, expr.operands))

    def _operand(self, expr: typed.TypedExpr) -> str:
        text = self.visit(expr)
        is_call = isinstance(expr, typed.TextMatch)
        return f"({text})" if isinstance(expr, typed.Condition) and not is_call else text

    def _grouped(self, expr: typed.TypedExpr) -> str:
        text = self.visit(expr)
        return f"({text})" if isinstance(expr, typed.And | typed.Or) else text

    def visit_TextMatch(self, expr: typed.TextMatch) -> str:  # noqa: N802
        return self._call(str(expr.function), expr.field, expr.query, expr.max_edits)

    def visit_Nearest(self, expr: typed.Nearest) -> str:  # noqa: N802
        return self._call("nearest", expr.field, expr.query)

    def visit_Bm25(self, expr: typed.Bm25) -> str:  # noqa: N802
        return self._call("bm25", expr.field, expr.query)

    def visit_Rrf(self, expr: typed.Rrf) -> str:  # noqa: N802
        return self._call("rrf", expr.primary, expr.secondary, expr.k)

    def visit_Aggregate(self, expr: typed.Aggregate) -> str:  # noqa: N802
        return f"{expr.function}({'distinct ' if expr.distinct else ''}{self.visit(expr.arg)})"

    def _call(self, name: str, *args: typed.TypedExpr | None) -> str:
        return f"{name}({', '.join(self.visit(arg) for arg in args if arg is not None)})"
