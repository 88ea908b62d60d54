"""Every step that a migration can have, on a schema with rows that Python keeps beside the graph.

A property is known by a handle that no rename changes, so that any two steps can be put together.
A step that makes no sense after another raises ``Impossible``.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

Row = dict[str, Any]
HELLO = "base64:aGVsbG8="


class Impossible(Exception):
    """The step has nothing to change."""


@dataclass
class Prop:
    """A property; ``scalar`` is its type without the question mark."""

    scalar: str
    name: str
    nullable: bool = True
    marks: list[str] = field(default_factory=list)
    was: str | None = None

    def text(self) -> str:
        old = [f'@rename_from("{self.was}")'] if self.was else []
        return " ".join([f"{self.name}: {self.type}", *self.marks, *old])

    @property
    def type(self) -> str:
        return f"{self.scalar}{'?' if self.nullable else ''}"


@dataclass
class Kind:
    """A node or edge type with its rows by id; what follows a brace in ``rules`` are handles."""

    head: str
    name: str
    props: dict[str, Prop]
    key: tuple[str, ...] = ()
    rules: list[str] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)
    ends: tuple[str, str] | None = None
    card: str = ""
    was: str | None = None
    rows: dict[str, Row] = field(default_factory=dict)

    @property
    def is_node(self) -> bool:
        return self.head == "node"

    def prop(self, handle: str) -> Prop:
        if handle not in self.props:
            raise Impossible(handle)
        return self.props[handle]

    def given(self, row: Row) -> Row:
        """A row under the names that properties have now."""
        return {self.props[handle].name: value for handle, value in row.items()}


@dataclass
class World:
    """All types of a schema, and what an apply to it is called with."""

    kinds: dict[str, Kind]
    subject: str
    hard: bool = False
    values: dict[tuple[str, str], Any] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        """The type that the steps are about."""
        return self.kinds[self.subject]

    def text(self) -> str:
        return "\n".join(self._type(kind) for kind in self.kinds.values())

    def _type(self, kind: Kind) -> str:
        ends = ""
        if kind.ends is not None:
            source, target = (self.kinds[end].name for end in kind.ends)
            ends = f": {source} -> {target}{kind.card}"
        old = [f'@rename_from("{kind.was}")'] if kind.was else []
        names = {handle: prop.name for handle, prop in kind.props.items()}
        key = [f"@key({', '.join(names[handle] for handle in kind.key)})"] if kind.key else []
        rules = [rule.format(**names) for rule in kind.rules]
        body = "\n".join([*(f"  {p.text()}" for p in kind.props.values()), *key, *rules])
        return f"{' '.join([f'{kind.head} {kind.name}{ends}', *kind.marks, *old])} {{\n{body}\n}}"

    def given_values(self) -> dict[str, Any]:
        return {
            f"{self.kinds[kind].name}.{self.kinds[kind].props[handle].name}": value
            for (kind, handle), value in self.values.items()
        }

    def recovered(self) -> World:
        """The same after its apply: no rename and no value is left to be said."""
        after = copy.deepcopy(self)
        after.hard, after.values = False, {}
        for kind in after.kinds.values():
            kind.was = None
            for prop in kind.props.values():
                prop.was = None
        return after


@dataclass(frozen=True)
class Step:
    name: str
    act: Callable[[World], None]

    def __str__(self) -> str:
        return self.name


def after(world: World, steps: tuple[Step, ...]) -> World:
    """What steps make of a world, in whatever order they can be taken."""
    for order in permutations(steps):
        changed = copy.deepcopy(world)
        try:
            for step in order:
                step.act(changed)
        except Impossible:
            continue
        if changed.text() != world.text():
            return changed
    raise Impossible(", ".join(map(str, steps)))


def is_possible(world: World, steps: tuple[Step, ...]) -> bool:
    """Whether steps can be taken in one apply."""
    try:
        after(world, steps)
    except Impossible:
        return False
    return True


# -- values ---------------------------------------------------------------------------------------


def value(scalar: str, number: int) -> Any:
    """A value of a type, another for every number."""
    if scalar.startswith("["):
        return [value(scalar[1:-1], number), value(scalar[1:-1], number + 1)]
    if scalar.startswith("enum"):
        return "ab"[number % 2]
    if scalar.startswith("F"):
        return number + 0.5
    if scalar.startswith("Vector"):
        return [1.0, float(number)]
    if scalar == "String":
        return f"word{number}"
    if scalar == "Blob":
        return HELLO
    return number


def new_row(kind: Kind, number: int) -> Row:
    """A row with a value in every property."""
    return {handle: value(prop.scalar, number) for handle, prop in kind.props.items()}


# -- the steps ------------------------------------------------------------------------------------


def add(handle: str, scalar: str, *marks: str, nullable: bool = True, filled: bool = False) -> Step:
    def act(world: World) -> None:
        kind = world.kind
        existing = f"new_{handle}"
        if existing in kind.props:
            raise Impossible(handle)
        kind.props[existing] = Prop(scalar, handle, nullable, list(marks))
        begins = value(scalar, 7) if filled else None
        if filled:
            world.values[world.subject, existing] = begins
        for row in kind.rows.values():
            row[existing] = begins

    what = f"{scalar}{'?' if nullable else ''}{' filled' if filled else ''}"
    return Step(f"add {handle} {what}", act)


def widen(handle: str, scalar: str) -> Step:
    def act(world: World) -> None:
        prop = world.kind.prop(handle)
        if prop.scalar.strip("[]") not in ("I32", "U32", "F32"):
            raise Impossible(handle)
        prop.scalar = scalar

    return Step(f"widen {handle} to {scalar}", act)


def rename(handle: str, name: str) -> Step:
    def act(world: World) -> None:
        prop = world.kind.prop(handle)
        if prop.was:
            raise Impossible(handle)
        prop.name, prop.was = name, prop.name

    return Step(f"rename {handle}", act)


def rename_type(name: str) -> Step:
    def act(world: World) -> None:
        world.kind.name, world.kind.was = name, world.kind.name

    return Step("rename the type", act)


def drop(handle: str, *, hard: bool = False) -> Step:
    def act(world: World) -> None:
        kind = world.kind
        kind.prop(handle)
        if any(f"{{{handle}}}" in rule for rule in kind.rules):
            raise Impossible(handle)
        del kind.props[handle]
        world.hard |= hard
        world.values.pop((world.subject, handle), None)
        for row in kind.rows.values():
            del row[handle]

    return Step(f"drop {handle} {'hard' if hard else 'soft'}", act)


def optional(handle: str) -> Step:
    def act(world: World) -> None:
        prop = world.kind.prop(handle)
        if prop.nullable:
            raise Impossible(handle)
        prop.nullable = True

    return Step(f"make {handle} optional", act)


def required(handle: str, *, filled: bool) -> Step:
    def act(world: World) -> None:
        prop = world.kind.prop(handle)
        if not prop.nullable:
            raise Impossible(handle)
        prop.nullable = False
        if filled:
            begins = world.values[world.subject, handle] = value(prop.scalar, 9)
            for row in world.kind.rows.values():
                row[handle] = begins if row[handle] is None else row[handle]

    return Step(f"make {handle} required{' with a value' if filled else ''}", act)


def mark(handle: str, text: str) -> Step:
    def act(world: World) -> None:
        marks = world.kind.prop(handle).marks
        if any(existing.partition("(")[0] == text.partition("(")[0] for existing in marks):
            raise Impossible(handle)
        marks.append(text)

    return Step(f"mark {handle} {text}", act)


def unmark(handle: str, text: str) -> Step:
    def act(world: World) -> None:
        marks = world.kind.prop(handle).marks
        if text not in marks:
            raise Impossible(handle)
        marks.remove(text)

    return Step(f"unmark {handle} {text}", act)


def enum(handle: str, scalar: str) -> Step:
    def act(world: World) -> None:
        prop = world.kind.prop(handle)
        if prop.scalar != "enum(a, b, c)":
            raise Impossible(handle)
        prop.scalar = scalar

    return Step(f"{handle} becomes {scalar}", act)


def rule(text: str) -> Step:
    def act(world: World) -> None:
        for handle in re.findall(r"\{(\w+)\}", text):
            world.kind.prop(handle)
        world.kind.rules.append(text)

    return Step(f"add {text}", act)


def no_rule(text: str) -> Step:
    def act(world: World) -> None:
        if text not in world.kind.rules:
            raise Impossible(text)
        world.kind.rules.remove(text)

    return Step(f"drop {text}", act)


def describe(text: str) -> Step:
    return Step(f"type {text}", lambda world: world.kind.marks.append(text))


def card(text: str) -> Step:
    def act(world: World) -> None:
        world.kind.card = text

    return Step(f"cardinality{text}", act)


def no_key(world: World) -> None:
    if not world.kind.key:
        raise Impossible("key")
    world.kind.key = ()


def add_type(world: World) -> None:
    world.kinds["New"] = Kind("node", "New", {"n": Prop("I32", "n", nullable=False)}, key=("n",))


def drop_type(*, hard: bool) -> Step:
    def act(world: World) -> None:
        if "Z" not in world.kinds:
            raise Impossible("Z")
        del world.kinds["Z"]
        world.hard |= hard

    return Step(f"drop another type {'hard' if hard else 'soft'}", act)


RANGE = "@range({f}, 0.0..100.0)"
TAGGED = '@description("x")'

_ANYWHERE = [
    add("a1", "String"),
    add("a2", "I64", filled=True),
    add("a3", "I32", "@index", nullable=False, filled=True),
    widen("i", "I64"),
    widen("i", "F64"),
    widen("f", "F64"),
    rename("i", "i2"),
    rename("s", "s2"),
    drop("i"),
    drop("i", hard=True),
    drop("s"),
    optional("j"),
    required("i", filled=True),
    required("s", filled=True),
    required("e", filled=True),
    required("w", filled=False),
    mark("j", "@index"),
    unmark("i", "@index"),
    mark("j", "@unique"),
    mark("s", TAGGED),
    describe(TAGGED),
    enum("e", "enum(a, b, c, d)"),
    enum("e", "enum(a, b)"),
    Step("add a type", add_type),
    drop_type(hard=False),
    drop_type(hard=True),
]

NODE_STEPS = [
    *_ANYWHERE,
    rename_type("T2"),
    add("a4", "[I32]", nullable=False, filled=True),
    add("a5", "enum(a, b)", nullable=False, filled=True),
    add("a6", "Vector(2)", "@index"),
    add("a7", "Blob"),
    widen("u", "U64"),
    widen("u", "I64"),
    widen("u", "F64"),
    widen("l", "[I64]"),
    widen("l", "[F64]"),
    rename("key", "key2"),
    rename("v", "v2"),
    rename("b", "b2"),
    drop("b"),
    drop("b", hard=True),
    drop("v"),
    required("l", filled=True),
    required("v", filled=True),
    mark("v", '@vector("l2")'),
    unmark("u", "@unique"),
    rule("@range({j}, 0..1000)"),
    rule('@check({s}, "^word")'),
    rule("@unique({j}, {s})"),
    rule("@index({j}, {s})"),
    no_rule(RANGE),
    Step("drop the key", no_key),
]

EDGE_STEPS = [
    *_ANYWHERE,
    rename_type("Likes"),
    card(" @card(0..3)"),
    rule("@unique(src, dst, {j})"),
    rule("@index(src, {j})"),
]

KEYED_STEPS = [
    add("a1", "String"),
    add("a3", "I32", "@index", nullable=False, filled=True),
    add("a7", "Blob"),
    widen("a", "I64"),
    rename("a", "aa"),
    rename("b", "bb"),
    rename_type("C2"),
    optional("j"),
    widen("i", "I64"),
    required("i", filled=True),
    drop("i"),
    drop("i", hard=True),
    mark("a", "@index"),
    mark("b", TAGGED),
    Step("drop the key", no_key),
]


# -- the graph to begin with ----------------------------------------------------------------------


def _shared(handles: str = "ijfswe") -> dict[str, Prop]:
    props = {
        "i": Prop("I32", "i", marks=["@index"]),
        "j": Prop("I32", "j", nullable=False),
        "f": Prop("F32", "f"),
        "s": Prop("String", "s", marks=["@index"]),
        "w": Prop("I32", "w"),
        "e": Prop("enum(a, b, c)", "e"),
    }
    return {handle: props[handle] for handle in handles}


def first_world(subject: str) -> World:
    """Two node types, one by a composite key, an edge type, and a type that nobody needs."""
    node = {
        "key": Prop("String", "key", nullable=False),
        **_shared(),
        "u": Prop("U32", "u", marks=["@unique"]),
        "l": Prop("[I32]", "l"),
        "v": Prop("Vector(2)", "v", marks=["@index"]),
        "b": Prop("Blob", "b"),
    }
    keyed = {
        "a": Prop("I32", "a", nullable=False),
        "b": Prop("String", "b", nullable=False),
        **_shared("ij"),
    }
    other = {"key": Prop("String", "key", nullable=False)}
    return World(
        {
            "T": Kind("node", "T", node, key=("key",), rules=[RANGE]),
            "C": Kind("node", "C", keyed, key=("a", "b")),
            "Z": Kind("node", "Z", other, key=("key",)),
            "E": Kind("edge", "Knows", _shared(), ends=("T", "T")),
        },
        subject,
    )
