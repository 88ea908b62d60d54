"""Random schemas, graphs and queries for the read tests.

Everything is made from a ``Random``: a seeded one gives a fixed graph, and the one that Hypothesis
hands out makes the choices shrink. Choices are written so that the first one, and zero, is the
simplest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime
from random import Random
from typing import Any

from hypothesis import strategies as st

from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.lang.types import PropType, Scalar
from tests.plan.conditions import POOLS
from tests.read.naive import Data, Row

ENUM = ("alpha", "b-2")
IDS = ("a", "b", "c", "d", "e", "Zoë", "😀", "o'neil", 'say "x"', "B")
# What can be stored is finite; few values, so that comparisons often meet.
STORED = {
    scalar: [value for value in pool if not isinstance(value, float) or abs(value) < float("inf")]
    for scalar, pool in POOLS.items()
}
NUMBERS: list[int | float] = [0, 1, 2, 30, -1, 2.5, 0.1, -0.5, 2**53 + 1, 2**63 - 1, -(2**63)]


def chance(random: Random, probability: float) -> bool:
    """Whether something happens; it does not for the simplest choice."""
    return random.random() >= 1 - probability


# -- schemas and graphs ---------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    schema: str
    data: Data

    @property
    def catalog(self) -> Catalog:
        return compile_schema(self.schema)


def make_schema(random: Random) -> str:
    nodes = ["Aa", "Bb", "Cc"][: random.randint(1, 3)]
    lines = [f"node {name} {{ name: String @key {_properties(random, 2, 5)} }}" for name in nodes]
    lines.append(f"edge Likes: Aa -> Aa {{ {_properties(random, 0, 2)} }}")
    for number in range(random.randint(0, 3)):
        ends = random.choice(nodes), random.choice(nodes)
        lines.append(f"edge E{number}: {ends[0]} -> {ends[1]} {{ {_properties(random, 0, 2)} }}")
    return "\n".join(lines)


def _properties(random: Random, least: int, most: int) -> str:
    return "  ".join(
        f"p{number}: {_property(random)}" for number in range(random.randint(least, most))
    )


def _property(random: Random) -> str:
    word = str(random.choice(list(STORED)))
    if chance(random, 0.1):
        word = f"enum({', '.join(ENUM)})"
    elif chance(random, 0.2):
        return f"[{word}]?"
    nullable = "" if chance(random, 0.25) else "?"
    return word + nullable + (" @index" if chance(random, 0.4) else "")


def make_world(random: Random, most_nodes: int = 6, most_edges: int = 10) -> World:
    schema = make_schema(random)
    catalog = compile_schema(schema)
    nodes = {
        kind.name: [
            {"id": id_, **_values(random, kind), "name": id_}
            for id_ in sorted(random.sample(IDS, _size(random, most_nodes)))
        ]
        for kind in catalog.node_types.values()
    }
    edges = {
        kind.name: _edges(random, kind, nodes, most_edges) for kind in catalog.edge_types.values()
    }
    return World(schema, Data(nodes, edges))


def _edges(random: Random, kind: EdgeType, nodes: dict[str, list[Row]], most: int) -> list[Row]:
    sources, targets = nodes[kind.from_type], nodes[kind.to_type]
    if not sources or not targets:
        return []
    return [
        {
            "id": f"{kind.name}-{number}",
            "src": random.choice(sources)["id"],
            "dst": random.choice(targets)["id"],
            **_values(random, kind),
        }
        for number in range(_size(random, most))
    ]


def _size(random: Random, most: int) -> int:
    """Mostly some rows; sometimes none at all."""
    return 0 if chance(random, 0.1) else random.randint(2, most)


def _values(random: Random, kind: NodeType | EdgeType) -> Row:
    return {name: make_value(random, prop.type) for name, prop in kind.properties.items()}


def make_value(random: Random, type_: PropType) -> Any:
    if type_.nullable and chance(random, 0.3):
        return None
    pool = ENUM if type_.enum_values else STORED[type_.scalar]
    if type_.is_list:
        return tuple(random.choice(pool) for _ in range(random.randint(0, 3)))
    return random.choice(pool)


# -- queries --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """A query text with the values of its parameters."""

    text: str
    params: dict[str, Any]


@dataclass(frozen=True)
class Partition:
    """A pattern and a condition over it; the count of the one is that of its three parts."""

    declared: str
    match: str
    condition: str
    params: dict[str, Any]

    def question(self, more: str = "") -> Question:
        counted = f"match {{ {self.match} {more} }} return {{ count($v0) as n }}"
        return Question(f"query q({self.declared}) {{ {counted} }}", self.params)

    def parts(self) -> list[Question]:
        forms = self.condition, f"not ({self.condition})", f"({self.condition}) is null"
        return [self.question(form) for form in forms]


def make_question(random: Random, catalog: Catalog) -> Question:
    return _Writer(random, catalog).question()


def make_chain(random: Random, catalog: Catalog) -> Question:
    """A question that asks for the ends of a chain of hops, not for what lies between."""
    return _Writer(random, catalog).chain()


def make_partition(random: Random, catalog: Catalog) -> Partition:
    writer = _Writer(random, catalog)
    scope: list[_Variable] = []
    match = " ".join(writer.pattern(scope))
    condition = writer.condition(scope, 2)
    return Partition(writer.declared(), match, condition, writer.params)


@dataclass(frozen=True)
class _Variable:
    name: str
    kind: NodeType | EdgeType

    @property
    def is_node(self) -> bool:
        return isinstance(self.kind, NodeType)

    def columns(self) -> list[_Column]:
        return [_Column(f"${self.name}.{p.name}", p.type) for p in self.kind.properties.values()]


@dataclass(frozen=True)
class _Column:
    text: str
    type: PropType

    @property
    def orderable(self) -> bool:
        return self.type.is_plain


@dataclass
class _Writer:
    random: Random
    catalog: Catalog
    params: dict[str, Any] = field(default_factory=dict)
    _types: dict[str, str] = field(default_factory=dict)
    _made: int = 0

    def question(self) -> Question:
        scope: list[_Variable] = []
        clauses = self.pattern(scope)
        clauses += [self.condition(scope, 2) for _ in range(self._few(0.5, 0.2))]
        clauses += [self._negation(scope, 2) for _ in range(self._few(0.3, 0.3))]
        if chance(self.random, 0.3):
            self.random.shuffle(clauses)
        if chance(self.random, 0.1) and len(clauses) > 1 and clauses[0].endswith("Aa"):
            del clauses[0]
        tail = self._tail(scope)
        body = "\n    ".join(clauses)
        text = f"query q({self.declared()}) {{\n  match {{\n    {body}\n  }}\n  {tail}\n}}"
        return Question(text, self.params)

    def chain(self) -> Question:
        edges = list(self.catalog.edge_types.values())
        kind = self.catalog.node_types[self.random.choice(edges).from_type]
        first = last = _Variable(self._fresh("v"), kind)
        clauses = [f"${first.name}: {kind.name}"]
        for _ in range(self.random.randint(1, 4)):
            edge = self.random.choice([e for e in edges if kind.name in (e.from_type, e.to_type)])
            is_same = edge.from_type == edge.to_type
            kind = self.catalog.node_types[
                edge.to_type if edge.from_type == kind.name else edge.from_type
            ]
            word = edge.name[0].lower() + edge.name[1:]
            if is_same and chance(self.random, 0.3):
                word = f"<{word}>"
            reached = _Variable(self._fresh("v"), kind)
            ends = [f"${last.name}", f"${reached.name}"]
            if kind.name == edge.from_type and (not is_same or chance(self.random, 0.4)):
                ends.reverse()
            last = reached
            clauses.append(f"{ends[0]} {word} {ends[1]}")
            if chance(self.random, 0.2):
                clauses.append(self.condition([last], 1))
        if chance(self.random, 0.7):
            clauses.append(self.condition([first], 1))
        value = self.random.choice(last.columns()).text
        returned = self.random.choice(
            [
                f"{{ {value} as k, count(${first.name}) as n }}",
                f"{{ count(distinct ${last.name}) as n }}",
                f"{{ {value} as k, ${last.name}.name as l, count(${first.name}) as n }}",
                f"{{ count({value}) as m, count(${first.name}) as n }}",
                f"{{ max(${last.name}.name) as m, count(${first.name}) as n }}",
                f"distinct {{ ${last.name}.name as l }}",
            ]
        )
        match = " ".join(clauses)
        text = f"query q({self.declared()}) {{ match {{ {match} }} return {returned} }}"
        return Question(text, self.params)

    def declared(self) -> str:
        return ", ".join(f"${name}: {type_}" for name, type_ in self._types.items())

    def pattern(self, scope: list[_Variable]) -> list[str]:
        """Bindings and traversals of one to four variables."""
        clauses = [self._binding(scope)]
        for _ in range(self.random.randint(0, 3)):
            if chance(self.random, 0.12):
                clauses.append(self._binding(scope))
                continue
            step = self._traversal(scope, [v for v in scope if v.is_node])
            if step is not None:
                clauses.append(step)
        return clauses

    # -- clauses -------------------------------------------------------------------------

    def _binding(self, scope: list[_Variable]) -> str:
        again = [v for v in scope if v.is_node]
        if again and chance(self.random, 0.3):
            variable = self.random.choice(again)
        else:
            kind = self.random.choice(list(self.catalog.node_types.values()))
            variable = _Variable(self._fresh("v"), kind)
            scope.append(variable)
        matches = [
            f"{column.text.partition('.')[2]}: {self._inline(column)}"
            for column in variable.columns()
            if chance(self.random, 0.04)
        ]
        braces = f" {{ {', '.join(matches)} }}" if matches else ""
        return f"${variable.name}: {variable.kind.name}{braces}"

    def _inline(self, column: _Column) -> str:
        if column.type.enum_values:
            return f'"{self.random.choice(ENUM)}"'
        return self._operand(column.type.element)

    def _traversal(self, scope: list[_Variable], starts: list[_Variable]) -> str | None:
        """A step from a known variable; new variables are added to the scope."""
        start = self.random.choice(starts)
        edges = [
            edge
            for edge in self.catalog.edge_types.values()
            if start.kind.name in (edge.from_type, edge.to_type)
        ]
        if not edges:
            return None
        edge = self.random.choice(edges)
        other = edge.to_type if edge.from_type == start.kind.name else edge.from_type
        same = edge.from_type == edge.to_type
        word = edge.name[0].lower() + edge.name[1:]
        if same and chance(self.random, 0.2):
            word = f"<{word}>"
        bound = ""
        if chance(self.random, 0.25):
            least = self.random.randint(1, 2)
            word += f"{{{least},{least + self.random.randint(0, 2)}}}"
        elif chance(self.random, 0.3):
            variable = _Variable(self._fresh("k"), edge)
            scope.append(variable)
            bound = f"${variable.name}:"
        ends = [f"${start.name}", self._end(scope, other)]
        if chance(self.random, 0.4):
            ends.reverse()
        return f"{ends[0]} {bound}{word} {ends[1]}"

    def _end(self, scope: list[_Variable], type_name: str) -> str:
        if chance(self.random, 0.15):
            return "$_"
        existing = [v for v in scope if v.is_node and v.kind.name == type_name]
        if existing and chance(self.random, 0.2):
            return f"${self.random.choice(existing).name}"
        variable = _Variable(self._fresh("v"), self.catalog.node_types[type_name])
        scope.append(variable)
        return f"${variable.name}"

    def _negation(self, outer: list[_Variable], depth: int) -> str:
        """A block whose first clause mentions a variable from around it.

        Its own variables often have the names of those in another block, for any type.
        """
        scope, made = list(outer), self._made
        nodes = [v for v in outer if v.is_node]
        first = self._traversal(scope, nodes) if not chance(self.random, 0.2) else None
        clauses = [first or self._about(self.random.choice(nodes), scope)]
        if chance(self.random, 0.25):
            step = self._traversal(scope, [v for v in scope if v.is_node])
            clauses += [step] if step else []
        if chance(self.random, 0.15):
            clauses.append(self._binding(scope))
        if chance(self.random, 0.5):
            clauses.append(self.condition(scope, 1))
        if depth > 1 and chance(self.random, 0.3):
            clauses.append(self._negation(scope, depth - 1))
        if chance(self.random, 0.7):
            self._made = made
        return f"not {{ {' '.join(clauses)} }}"

    def _about(self, variable: _Variable, scope: list[_Variable]) -> str:
        """A condition that mentions one variable for sure."""
        return f"{self.random.choice(variable.columns()).text} is not null"

    # -- conditions ----------------------------------------------------------------------

    def condition(self, scope: list[_Variable], depth: int) -> str:
        if depth and chance(self.random, 0.4):
            inner = self.condition(scope, depth - 1)
            match self.random.choice(["not", "and", "or", "is null"]):
                case "not":
                    return f"not ({inner})"
                case "is null":
                    return f"({inner}) is {self.random.choice(['null', 'not null'])}"
                case word:
                    return f"({inner}) {word} ({self.condition(scope, depth - 1)})"
        columns = [column for variable in scope for column in variable.columns()]
        column = self.random.choice(columns)
        return self.random.choice(self._tests(column))(column, columns)

    def _tests(self, column: _Column) -> list[Callable[[_Column, list[_Column]], str]]:
        if column.type.is_list:
            return [self._contains, self._null_test]
        tests = [self._compare, self._compare, self._in, self._null_test]
        if column.type.scalar is Scalar.STRING:
            tests.append(self._text_test)
        if column.type.scalar is Scalar.BOOL:
            tests.append(lambda column, _: column.text)
        return tests

    def _compare(self, column: _Column, columns: list[_Column]) -> str:
        relation = self.random.choice(["=", "!=", "<", "<=", ">", ">="])
        sides = [column.text, self._other(column.type, columns)]
        if chance(self.random, 0.2):
            sides.reverse()
        return f"{sides[0]} {relation} {sides[1]}"

    def _in(self, column: _Column, columns: list[_Column]) -> str:
        scalar = column.type.scalar
        if chance(self.random, 0.3):
            pool = [value for value in STORED[scalar] if _fits_parameter(value)]
            values = [self.random.choice(pool) for _ in range(self.random.randint(0, 3))]
            return f"{column.text} in {self._parameter(f'[{scalar}]', values)}"
        items = [self._literal(scalar) for _ in range(self.random.randint(0, 3))]
        items += ["null"] if chance(self.random, 0.15) else []
        return f"{column.text} in [{', '.join(items)}]"

    def _contains(self, column: _Column, columns: list[_Column]) -> str:
        return f"{column.text} contains {self._other(column.type.element, columns)}"

    def _null_test(self, column: _Column, columns: list[_Column]) -> str:
        return f"{column.text} is {self.random.choice(['null', 'not null'])}"

    def _text_test(self, column: _Column, columns: list[_Column]) -> str:
        word = self.random.choice(["contains", "starts_with"])
        return f"{column.text} {word} {self._other(column.type, columns)}"

    def _other(self, type_: PropType, columns: list[_Column]) -> str:
        """Something that a value of a type can be compared with."""
        if chance(self.random, 0.3):
            similar = [
                column.text
                for column in columns
                if column.type.is_plain
                and (
                    column.type.scalar is type_.scalar
                    or (column.type.scalar.is_numeric and type_.scalar.is_numeric)
                )
            ]
            if similar:
                return self.random.choice(similar)
        return self._operand(type_)

    def _operand(self, type_: PropType) -> str:
        """A literal, or a parameter with its value."""
        scalar = type_.scalar
        if scalar is Scalar.DATETIME and chance(self.random, 0.15):
            return "now()"
        if not chance(self.random, 0.35):
            return self._literal(scalar)
        if chance(self.random, 0.1):
            return self._parameter(f"{scalar}?", None)
        pool = [value for value in STORED[scalar] if _fits_parameter(value)]
        return self._parameter(str(scalar), self.random.choice(pool))

    def _parameter(self, type_: str, value: Any) -> str:
        name = f"x{len(self._types)}"
        self._types[name] = type_
        self.params[name] = value
        return f"${name}"

    def _literal(self, scalar: Scalar) -> str:
        pool = NUMBERS if scalar.is_numeric else STORED[scalar]
        return literal(self.random.choice(pool))

    # -- what is returned ----------------------------------------------------------------

    def _tail(self, scope: list[_Variable]) -> str:
        columns = [column for variable in scope for column in variable.columns()]
        mode = self.random.choice(["plain", "plain", "grouped", "distinct"])
        returned = [self._projection(scope, columns) for _ in range(self.random.randint(1, 3))]
        if mode == "grouped":
            returned = [p for p in returned if p.text.startswith("$") and " " not in p.text]
            returned = returned[: self.random.randint(0, 2)]
            returned += [self._aggregate(scope, columns) for _ in range(self.random.randint(1, 3))]
        names = [f"c{number}" for number in range(len(returned))]
        shown = ", ".join(f"{p.text} as {n}" for p, n in zip(returned, names, strict=True))
        keys = [name for name, p in zip(names, returned, strict=True) if p.orderable]
        if mode == "plain":
            keys += [column.text for column in columns if column.orderable]
        distinct = "distinct " if mode == "distinct" else ""
        return f"return {distinct}{{ {shown} }}{self._order(keys)}{self._limit()}"

    def _projection(self, scope: list[_Variable], columns: list[_Column]) -> _Column:
        variable = self.random.choice(scope)
        if chance(self.random, 0.12):
            return _Column(f"({self.condition(scope, 1)})", PropType(Scalar.BOOL))
        if chance(self.random, 0.06):
            scalar = self.random.choice(list(STORED))
            return _Column(self._operand(PropType(scalar)), PropType(scalar))
        if chance(self.random, 0.5):
            return _Column(f"${variable.name}", PropType(Scalar.VECTOR, dimension=1))
        return self.random.choice(columns)

    def _aggregate(self, scope: list[_Variable], columns: list[_Column]) -> _Column:
        plain = [column for column in columns if column.type.is_plain]
        numbers = [column for column in plain if column.type.scalar.is_numeric]
        ends = [column for column in plain if column.type.scalar is not Scalar.BOOL]
        number = PropType(Scalar.I64)
        match self.random.choice(["rows", "count", "distinct", "sum", "avg", "min", "max"]):
            case "sum" | "avg" as word if numbers:
                return _Column(f"{word}({self.random.choice(numbers).text})", number)
            case "min" | "max" as word if ends:
                return _Column(f"{word}({self.random.choice(ends).text})", number)
            case "count":
                return _Column(f"count({self.random.choice(columns).text})", number)
            case "distinct":
                counted = self.random.choice([f"${v.name}" for v in scope])
                if chance(self.random, 0.5):
                    counted = self.random.choice(columns).text
                return _Column(f"count(distinct {counted})", number)
            case _:
                return _Column(f"count(${self.random.choice(scope).name})", number)

    def _order(self, keys: list[str]) -> str:
        if not keys or not chance(self.random, 0.5):
            return ""
        chosen = [self.random.choice(keys) for _ in range(self.random.randint(1, 2))]
        entries = [key + self.random.choice(["", " asc", " desc"]) for key in chosen]
        return f"\n  order {{ {', '.join(entries)} }}"

    def _limit(self) -> str:
        if not chance(self.random, 0.3):
            return ""
        offset = f" offset {self.random.randint(0, 3)}" if chance(self.random, 0.4) else ""
        return f"\n  limit {self.random.randint(0, 6)}{offset}"

    def _few(self, one: float, two: float) -> int:
        return (2 if chance(self.random, two) else 1) if chance(self.random, one) else 0

    def _fresh(self, start: str) -> str:
        self._made += 1
        return f"{start if chance(self.random, 0.9) else 'v'}{self._made - 1}"


def _fits_parameter(value: Any) -> bool:
    return not isinstance(value, int) or value <= 2**63 - 1


def literal(value: Any) -> str:
    """A value as the language writes it.

    >>> literal('say "x"'), literal(-0.5), literal(date(2024, 2, 29))
    ('"say \\\\"x\\\\""', '-0.5', 'date("2024-02-29")')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return f'datetime("{value.isoformat(timespec="milliseconds")}Z")'
    if isinstance(value, date):
        return f'date("{value.isoformat()}")'
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return repr(value)


# -- for Hypothesis -------------------------------------------------------------------------------


class _Drawn(Random):
    """A ``Random`` whose choices Hypothesis makes, and therefore shrinks."""

    def __init__(self, draw: st.DrawFn) -> None:
        super().__init__(0)
        self._draw = draw

    def random(self) -> float:
        return self._draw(st.integers(0, 99)) / 100

    def randint(self, a: int, b: int) -> int:
        return self._draw(st.integers(a, b))

    def choice(self, seq: Any) -> Any:
        return seq[self.randint(0, len(seq) - 1)]

    def sample(self, population: Any, k: int) -> Any:  # type: ignore[override]
        return self._draw(st.permutations(population))[:k]

    def shuffle(self, x: Any) -> None:
        x[:] = self._draw(st.permutations(x))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    return make_world(_Drawn(draw))


@st.composite
def questions(draw: st.DrawFn, catalog: Catalog) -> Question:
    return make_question(_Drawn(draw), catalog)


@st.composite
def partitions(draw: st.DrawFn, catalog: Catalog) -> Partition:
    return make_partition(_Drawn(draw), catalog)
