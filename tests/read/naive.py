"""Read queries answered in plain Python over lists of dicts: the oracle of the read tests.

It works by nested loops on the checked query. It knows no plan, no Arrow and no index, and it is
only meant to be obviously right; the rules it follows are those of
``docs/queries.md``.
"""

from __future__ import annotations

import functools
import math
import operator
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omnigraph.lang.query import typed
from omnigraph.lang.query.checked import Absent, CheckedRead, Direction, Hop, Pattern
from omnigraph.lang.types import PropType, Scalar
from tests.plan.evaluator import all_of, any_of, meeting

Row = dict[str, Any]
Env = Mapping[str, Row]
Params = Mapping[str, Any]
Truth = bool | None


@dataclass(frozen=True)
class Data:
    """A graph: rows by type. Nodes have an ``id``, edges also ``src`` and ``dst``."""

    nodes: dict[str, list[Row]] = field(default_factory=dict)
    edges: dict[str, list[Row]] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """Every row before ``limit`` and ``offset``, sorted if the query asks for it.

    ``total`` says that the order is the only right one; otherwise rows with equal ``keys`` may
    stand in any order.
    """

    rows: list[tuple[Any, ...]]
    keys: list[tuple[Any, ...]]
    ordered: bool
    total: bool
    limit: int | None
    offset: int

    @property
    def window(self) -> slice:
        return slice(self.offset, None if self.limit is None else self.offset + self.limit)

    def cut(self) -> list[tuple[Any, ...]]:
        """The rows that are returned, where the order is total or nothing is cut off."""
        return self.rows[self.window]


def answer(query: CheckedRead, data: Data, params: Params | None = None) -> Answer:
    """The answer to a checked query; ``params`` are converted values, ``now()`` among them."""
    return _Evaluation(data, params or {}).answer(query)


def holds(condition: typed.TypedExpr, variable: str, row: Row) -> bool:
    """Whether a condition on one variable is true for a row."""
    return _Evaluation(Data(), {})._value(condition, {variable: row}) is True


class _Evaluation:
    def __init__(self, data: Data, params: Params) -> None:
        self._data = data
        self._params = params
        self._reached: dict[tuple[str, Direction, str, int, int, bool], frozenset[str]] = {}

    def answer(self, query: CheckedRead) -> Answer:
        envs = list(self._matches(query.pattern, {}))
        exprs = [column.expr for column in query.columns]
        grouped = any(isinstance(expr, typed.Aggregate) for expr in exprs)
        if grouped:
            rows = self._groups(exprs, envs)
        else:
            rows = [tuple(self._value(expr, env) for expr in exprs) for env in envs]
        if grouped or query.distinct:
            actual = [(row, {}) for row in (_distinct(rows) if query.distinct else rows)]
        else:
            actual = list(zip(rows, envs, strict=True))

        def key(pair: tuple[tuple[Any, ...], Env]) -> tuple[Any, ...]:
            row, env = pair
            return tuple(
                row[sort.expr.position]
                if isinstance(sort.expr, typed.Output)
                else self._value(sort.expr, env)
                for sort in query.order
            )

        if query.order:
            actual.sort(key=lambda pair: _ids(pair[1]))
            # Python's sort is stable, descending too: the last key first.
            for position, sort in reversed(list(enumerate(query.order))):
                actual.sort(
                    key=lambda pair, at=position: rank(key(pair)[at]),  # type: ignore[misc]
                    reverse=sort.descending,
                )
        return Answer(
            [row for row, _ in actual],
            [key(pair) for pair in actual],
            bool(query.order),
            bool(query.order) and not grouped and not query.distinct,
            query.limit,
            query.offset or 0,
        )

    # -- the pattern ---------------------------------------------------------------------

    def _matches(self, pattern: Pattern, outer: Env) -> Iterator[Env]:
        """Every way to give the variables of a block a value so that all of it holds."""
        types = {node.variable: node.type_name for node in pattern.nodes}
        for hop in pattern.hops:
            types |= {hop.src: hop.src_type, hop.dst: hop.dst_type}
        free = [name for name in types if name not in outer]
        for env in self._assign(free, types, pattern, dict(outer)):
            for bound in self._bind_edges(list(pattern.hops), env):
                if self._holds(pattern, bound):
                    yield bound

    def _assign(
        self, free: list[str], types: Mapping[str, str], pattern: Pattern, env: dict[str, Row]
    ) -> Iterator[dict[str, Row]]:
        for hop in pattern.hops:
            if hop.src in env and hop.dst in env and not self._joined(hop, env):
                return
        for node in pattern.nodes:
            if node.variable in env and not self._all(node.filters, env):
                return
        if not free:
            yield env
            return
        for row in self._data.nodes.get(types[free[0]], []):
            yield from self._assign(free[1:], types, pattern, {**env, free[0]: row})

    def _bind_edges(self, hops: list[Hop], env: dict[str, Row]) -> Iterator[dict[str, Row]]:
        """One way for each edge where an edge is bound; otherwise that there is one is enough."""
        if not hops:
            yield env
            return
        first, rest = hops[0], hops[1:]
        if first.edge_variable is None:
            yield from self._bind_edges(rest, env)
            return
        ends = env[first.src]["id"], env[first.dst]["id"]
        for row in self._data.edges.get(first.edge_type, []):
            if _leads(row, ends, first.direction):
                yield from self._bind_edges(rest, {**env, first.edge_variable: row})

    def _holds(self, pattern: Pattern, env: Env) -> bool:
        return self._all(pattern.conditions, env) and not any(
            self._exists(absent, env) for absent in pattern.absent
        )

    def _exists(self, absent: Absent, env: Env) -> bool:
        return any(True for _ in self._matches(absent.pattern, env))

    def _all(self, conditions: Iterable[typed.TypedExpr], env: Env) -> bool:
        return all(self._value(condition, env) is True for condition in conditions)

    # -- traversal -----------------------------------------------------------------------

    def _joined(self, hop: Hop, env: Env) -> bool:
        return env[hop.dst]["id"] in self._reach(hop, env[hop.src]["id"])

    def _reach(self, hop: Hop, start: str) -> frozenset[str]:
        """The nodes that a walk from one node reaches, each at its shortest distance."""
        same = hop.src_type == hop.dst_type
        existing = (hop.edge_type, hop.direction, start, hop.min_hops, hop.max_hops, same)
        if existing not in self._reached:
            self._reached[existing] = frozenset(self._walk(hop, start, same))
        return self._reached[existing]

    def _walk(self, hop: Hop, start: str, same: bool) -> Iterator[str]:
        if not same:
            # Between two types there is no second hop.
            if hop.min_hops == 1:
                yield from self._neighbours(hop, start)
            return
        if hop.min_hops == 1 and start in self._neighbours(hop, start):
            yield start
        visited = {start}
        waiting = deque([(start, 0)])
        while waiting:
            location, distance = waiting.popleft()
            if distance == hop.max_hops:
                continue
            for following in self._neighbours(hop, location):
                if following in visited:
                    continue
                visited.add(following)
                if distance + 1 >= hop.min_hops:
                    yield following
                waiting.append((following, distance + 1))

    def _neighbours(self, hop: Hop, location: str) -> list[str]:
        matches = []
        for row in self._data.edges.get(hop.edge_type, []):
            if row["src"] == location and hop.direction is not Direction.IN:
                matches.append(row["dst"])
            if row["dst"] == location and hop.direction is not Direction.OUT:
                matches.append(row["src"])
        return matches

    # -- values --------------------------------------------------------------------------

    def _value(self, expr: typed.TypedExpr, env: Env) -> Any:
        match self._resolved(expr):
            case typed.Constant(value=value, type=type_):
                narrow = type_.scalar is Scalar.F32 and isinstance(value, float)
                return _narrow(value) if narrow else value
            case typed.Column(variable=variable, name=name):
                return env[variable][name]
            case typed.Entity(variable=variable):
                return env[variable]["id"]
            case typed.Compare(op=op, left=left, right=right):
                return self._compare(op, left, right, env)
            case typed.Membership(item=item, options=options):
                return self._member(item, options, env)
            case typed.Substring(text=text, part=part):
                return _existing(operator.contains, self._value(text, env), self._value(part, env))
            case typed.StartsWith(text=text, prefix=prefix):
                return _existing(str.startswith, self._value(text, env), self._value(prefix, env))
            case typed.IsNull(operand=operand, negated=negated):
                return (self._value(operand, env) is None) is not negated
            case typed.Not(operand=operand):
                return _existing(operator.not_, self._value(operand, env))
            case typed.And(operands=operands):
                return all_of(self._value(operand, env) for operand in operands)
            case typed.Or(operands=operands):
                return any_of(self._value(operand, env) for operand in operands)
            case _:
                raise AssertionError(f"no rule for {type(expr).__name__}")

    def _resolved(self, expr: typed.TypedExpr) -> typed.TypedExpr:
        """A parameter, or a list with parameters in it, as a constant."""
        if isinstance(expr, typed.Parameter):
            return typed.Constant(self._params[expr.name], expr.type)
        if isinstance(expr, typed.ListOf):
            return typed.Constant(tuple(self._value(item, {}) for item in expr.items), expr.type)
        return expr

    def _operand(self, expr: typed.TypedExpr, env: Env) -> tuple[typed.TypedExpr, Any]:
        resolved = self._resolved(expr)
        if isinstance(resolved, typed.Constant):
            return resolved, resolved.value
        return resolved, self._value(resolved, env)

    def _compare(
        self, op: typed.Relation, left: typed.TypedExpr, right: typed.TypedExpr, env: Env
    ) -> Truth:
        (a, a_value), (b, b_value) = self._operand(left, env), self._operand(right, env)
        return _existing(_RELATIONS[op], meeting(a, a_value, b.type), meeting(b, b_value, a.type))

    def _member(self, item: typed.TypedExpr, options: typed.TypedExpr, env: Env) -> Truth:
        (one, value), (many, members) = self._operand(item, env), self._operand(options, env)
        if members is None:
            return None
        return any_of(
            _existing(
                operator.eq,
                meeting(one, value, _member_type(many, member)),
                meeting(many, member, one.type),
            )
            for member in members
        )

    # -- groups --------------------------------------------------------------------------

    def _groups(self, exprs: list[typed.TypedExpr], envs: list[Env]) -> list[tuple[Any, ...]]:
        keys = [expr for expr in exprs if not isinstance(expr, typed.Aggregate)]
        groups: dict[tuple[Any, ...], list[Env]] = {} if keys else {(): []}
        for env in envs:
            values = tuple(self._value(expr, env) for expr in keys)
            groups.setdefault(tuple(map(same, values)), []).append(env)
        return [
            tuple(
                self._aggregate(expr, members)
                if isinstance(expr, typed.Aggregate)
                else self._value(expr, members[0])
                for expr in exprs
            )
            for members in groups.values()
        ]

    def _aggregate(self, expr: typed.Aggregate, envs: list[Env]) -> Any:
        values = [self._value(expr.arg, env) for env in envs]
        values = [value for value in values if value is not None]
        match expr.function:
            case typed.AggregateFunction.COUNT:
                return len(_distinct([(v,) for v in values])) if expr.distinct else len(values)
            case typed.AggregateFunction.SUM:
                return _sum(values)
            case typed.AggregateFunction.AVG:
                total = _sum(values)
                return None if total is None else total / len(values)
            case typed.AggregateFunction.MIN:
                return min(values, key=rank, default=None)
            case typed.AggregateFunction.MAX:
                return max(values, key=rank, default=None)


_RELATIONS: dict[typed.Relation, Callable[[Any, Any], bool]] = {
    typed.Relation.EQ: operator.eq,
    typed.Relation.NE: operator.ne,
    typed.Relation.LT: operator.lt,
    typed.Relation.LE: operator.le,
    typed.Relation.GT: operator.gt,
    typed.Relation.GE: operator.ge,
}


def _member_type(options: typed.TypedExpr, member: Any) -> PropType:
    """The type of one member: an integer written among floats is still exactly that integer."""
    exact = isinstance(options, typed.Constant) and type(member) is int
    return typed.INT if exact else options.type.element


def _leads(row: Row, ends: tuple[str, str], direction: Direction) -> bool:
    forward = (row["src"], row["dst"]) == ends and direction is not Direction.IN
    return forward or ((row["dst"], row["src"]) == ends and direction is not Direction.OUT)


def _existing(function: Callable[..., bool], *values: Any) -> Truth:
    return None if any(value is None for value in values) else function(*values)


def _narrow(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def _sum(values: Sequence[Any]) -> float | None:
    return functools.reduce(operator.add, map(float, values)) if values else None


def _ids(env: Env) -> list[str]:
    """What breaks ties: the ids of the variables that were written, by their names."""
    return [env[name]["id"] for name in sorted(env) if not typed.is_hidden(name)]


def rank(value: Any) -> tuple[Any, ...]:
    """A place in the order: null is the smallest value, NaN the greatest."""
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    return (1, value)


def same(value: Any) -> Any:
    """What is the same in groups and distinct rows: null is null, NaN is NaN, 0.0 is -0.0."""
    if isinstance(value, tuple | list):
        return tuple(map(same, value))
    if isinstance(value, float) and math.isnan(value):
        return "NaN", None
    # Python takes True for 1; a truth value and a number are never in one column.
    return value


def _distinct(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return list({tuple(map(same, row)): row for row in reversed(rows)}.values())[::-1]
