"""Random histories of a graph: rows that come, change and go, branches, and every kind of apply."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from random import Random
from typing import Any

from omnigraph import Graph

WIDER = {
    "I32": ("I64", "F64"),
    "U32": ("U64", "I64", "F64"),
    "F32": ("F64",),
    "[I32]": ("[I64]",),
}
SCALARS = (
    "I32",
    "U32",
    "F32",
    "I64",
    "String",
    "Bool",
    "Date",
    "DateTime",
    "[I32]",
    "[Date]",
    "Vector(2)",
    "Blob",
    "enum(red, green, blue)",
)
TYPE_NAMES = ("A", "B", "C", "D")
EDGE_NAMES = ("Ea", "Eb", "Ec")
NAMES = ("p", "q", "r", "s", "t")


@dataclass
class Prop:
    scalar: str
    nullable: bool = True
    was: str | None = None
    rule: int = 0

    def text(self, name: str) -> str:
        renamed = f' @rename_from("{self.was}")' if self.was else ""
        said = f' @description("{self.rule}")' if self.rule else ""
        return f"{name}: {self.scalar}{'?' if self.nullable else ''}{renamed}{said}"


@dataclass
class Type:
    key: tuple[str, ...] = ()
    ends: tuple[str, str] | None = None
    props: dict[str, Prop] = field(default_factory=dict)
    was: str | None = None
    key_was: dict[str, str] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)
    """The rows of a type that others can name; of one with a key these are its keys."""

    @property
    def handle(self) -> str:
        """The property by which a query finds a row."""
        return self.key[0] if self.key else "tag"

    def text(self, name: str) -> str:
        renamed = f'@rename_from("{self.was}") ' if self.was else ""
        ends = f": {self.ends[0]} -> {self.ends[1]}" if self.ends else ""
        key = [f"@key({', '.join(self.key)})"] if len(self.key) > 1 else []
        keyed = [self._key_text(item, "" if key else " @key") for item in self.key]
        keyed += [] if self.key else ["tag: String?"]
        body = [*keyed, *(prop.text(item) for item, prop in self.props.items()), *key]
        return f"{'edge' if self.ends else 'node'} {name}{ends} {renamed}{{\n  " + (
            "\n  ".join(body) + "\n}"
        )

    def _key_text(self, name: str, mark: str) -> str:
        renamed = f' @rename_from("{self.key_was[name]}")' if name in self.key_was else ""
        return f"{name}: String{mark}{renamed}"


class RandomHistory:
    """A graph to which something happens at every step; the same for the same seed."""

    def __init__(self, folder: str, seed: int, *, keeps_history: bool = False) -> None:
        self.random = Random(seed)
        self.keeps_history = keeps_history
        self.types: dict[str, Type] = {
            "A": Type(("k",), props={"p": Prop("I32"), "q": Prop("Date")}),
            "B": Type(props={"p": Prop("String"), "q": Prop("F32")}),
            "Ea": Type(ends=("A", "B"), props={"p": Prop("I32")}),
        }
        if self.random.random() < 0.5:
            self.types["C"] = Type(("k", "l"), props={"p": Prop("U32")})
        self.count = 0
        self.branches = 0
        self.lost_data = False
        """Whether the last step removed earlier states for good."""
        self.graph = Graph.init(f"{folder}/g.omni", self.text(), durability="os")

    def text(self) -> str:
        return "\n".join(kind.text(name) for name, kind in sorted(self.types.items()))

    def step(self) -> str:
        """Something happens; says what."""
        self.lost_data = False
        acts = [self.load] * 3 + [self.delete, self.update, self.merge, self.revert]
        acts += [self.apply] * 6 + [self.swap_properties, self.swap_types, self.optimize]
        act = self.random.choice(acts)
        act()
        return act.__name__

    # -- rows ----------------------------------------------------------------------------

    def load(self, branch: str = "main") -> None:
        nodes = [(name, kind) for name, kind in self.types.items() if not kind.ends]
        again = [self.row(name, kind, again=True) for name, kind in nodes if kind.ids]
        rows = [self.row(name, kind) for name, kind in nodes]
        edges = [self.edge(n, k) for n, k in self.types.items() if k.ends and self.can_join(k)]
        self.graph.load([*rows, *again, *edges], mode="merge", branch=branch)

    def can_join(self, kind: Type) -> bool:
        return kind.ends is not None and all(self.types[end].ids for end in kind.ends)

    def row(self, name: str, kind: Type, again: bool = False) -> dict[str, Any]:
        row_id = self.random.choice(kind.ids) if again else self.new_id()
        data = self.values(kind)
        for location, column in enumerate(kind.key):
            data[column] = row_id if not location else "l"
        if not kind.key:
            data |= {"id": row_id, "tag": row_id}
        if not again:
            kind.ids.append(row_id)
        return {"type": name, "data": data}

    def edge(self, name: str, kind: Type) -> dict[str, Any]:
        assert kind.ends is not None
        ends = [self.end(self.types[end]) for end in kind.ends]
        again = kind.ids and self.random.random() < 0.3
        row_id = self.random.choice(kind.ids) if again else self.new_id()
        if row_id not in kind.ids:
            kind.ids.append(row_id)
        data = {"id": row_id, "tag": row_id, **self.values(kind)}
        return {"edge": name, "from": ends[0], "to": ends[1], "data": data}

    def end(self, kind: Type) -> str:
        row_id = self.random.choice(kind.ids)
        return f'["{row_id}","l"]' if len(kind.key) > 1 else row_id

    def new_id(self) -> str:
        self.count += 1
        return f"r{self.count}"

    def values(self, kind: Type) -> dict[str, Any]:
        return {
            name: None if prop.nullable and self.random.random() < 0.3 else self.value(prop.scalar)
            for name, prop in kind.props.items()
        }

    def value(self, scalar: str) -> Any:
        number = self.random.randrange(1, 60)
        if scalar.startswith("["):
            return [self.value(scalar[1:-1]) for _ in range(number % 3)]
        if scalar.startswith("enum"):
            return self.random.choice(("red", "green", "blue"))
        return {
            "I32": -number,
            "U32": number,
            "I64": number << 34,
            "U64": number << 34,
            "F32": number / 4,
            "F64": number / 10,
            "String": f"text {number}",
            "Bool": number % 2 == 0,
            "Date": f"2024-02-{number % 28 + 1:02}",
            "DateTime": f"2024-02-01T10:{number:02}:00Z",
            "Vector(2)": [float(number), 0.5],
            "Blob": "base64:" + base64.b64encode(bytes([number])).decode(),
        }[scalar]

    def delete(self) -> None:
        name, kind = self.random.choice([(n, k) for n, k in self.types.items() if not k.ends])
        if kind.ids:
            row_id = kind.ids.pop(self.random.randrange(len(kind.ids)))
            where = f'{kind.handle} = "{row_id}"'
            self.graph.mutate(f"query q() {{ delete {name} where {where} }}")
            # Edges go with their nodes.
            for other, edge in self.types.items():
                if edge.ends:
                    edge.ids = self.graph.snapshot().read(other, ["id"])["id"].to_pylist()

    def update(self) -> None:
        name, kind = self.random.choice(list(self.types.items()))
        plain = [n for n, prop in kind.props.items() if prop.scalar in ("I32", "String", "Bool")]
        if kind.ids and plain:
            prop = self.random.choice(plain)
            value = self.value(kind.props[prop].scalar)
            shown = f'"{value}"' if isinstance(value, str) else str(value).lower()
            row_id = self.random.choice(kind.ids)
            where = f'{kind.handle} = "{row_id}"'
            self.graph.mutate(
                f"query q() {{ update {name} set {{ {prop}: {shown} }} where {where} }}"
            )

    def merge(self) -> None:
        """A branch with rows of its own, beside others on main."""
        self.branches += 1
        branch = f"b{self.branches}"
        self.graph.branches.create(branch)
        self.load(branch)
        if self.random.random() < 0.5:
            fresh = [self.row(n, k) for n, k in self.types.items() if not k.ends]
            self.graph.load(fresh, mode="append")
        self.graph.merge(branch)
        self.graph.branches.delete(branch)

    def revert(self) -> None:
        """Take back a load that nothing has built on."""
        fresh = [self.row(n, k) for n, k in self.types.items() if not k.ends]
        done = self.graph.load(fresh, mode="append")
        for record in fresh:
            self.types[record["type"]].ids.pop()
        self.graph.revert(done.commit_id)

    def optimize(self) -> None:
        self.graph.maintenance.optimize()

    # -- the schema ----------------------------------------------------------------------

    def apply(self) -> None:
        """Some changes of the schema, in one apply."""
        values: dict[str, Any] = {}
        touched: set[str] = set()
        for _ in range(self.random.choice((1, 1, 2, 3))):
            edit = self.random.choice(
                [self.add_type, self.drop_type, self.rename_type, self.add_edge, self.describe]
                + [self.add_property] * 3
                + [self.drop_property, self.rename_property] * 2
                + [self.widen, self.tighten, self.loosen, self.rename_key]
            )
            edit(values, touched)
        self.send(values, hard=not self.keeps_history and self.random.random() < 0.3)

    def send(self, values: dict[str, Any] | None = None, hard: bool = False) -> None:
        done = self.graph.schema.apply(self.text(), values=values or {}, allow_data_loss=hard)
        self.lost_data = bool(done.cleared)
        for kind in self.types.values():
            kind.was = None
            kind.key_was = {}
            for prop in kind.props.values():
                prop.was = None

    def pick(self, touched: set[str], *, ends: bool | None = None) -> str | None:
        """A type that this apply has not changed yet."""
        some = [
            name
            for name, kind in self.types.items()
            if name not in touched and ends in (None, kind.ends is not None)
        ]
        actual = self.random.choice(some) if some else None
        touched.update([actual] if actual else [])
        return actual

    def free(self, names: tuple[str, ...], touched: set[str]) -> str | None:
        """A name that nobody has, neither before nor after this apply."""
        some = [name for name in names if name not in self.types and name not in touched]
        actual = self.random.choice(some) if some else None
        touched.update([actual] if actual else [])
        return actual

    def add_type(self, values: dict[str, Any], touched: set[str]) -> None:
        name = self.free(TYPE_NAMES, touched)
        if name:
            key = self.random.choice(((), ("k",), ("k", "l")))
            self.types[name] = Type(key, props={"p": Prop(self.random.choice(SCALARS))})

    def add_edge(self, values: dict[str, Any], touched: set[str]) -> None:
        name = self.free(EDGE_NAMES, touched)
        nodes = [item for item, kind in self.types.items() if not kind.ends]
        if name:
            ends = self.random.choice(nodes), self.random.choice(nodes)
            self.types[name] = Type(ends=ends, props={"p": Prop("I32")})

    def drop_type(self, values: dict[str, Any], touched: set[str]) -> None:
        nodes = [item for item, kind in self.types.items() if not kind.ends]
        name = self.pick(touched)
        if name is None or (name in nodes and len(nodes) < 2):
            return
        joined = [n for n, kind in self.types.items() if kind.ends and name in kind.ends]
        if touched.isdisjoint(joined):
            for gone in (name, *joined):
                del self.types[gone]
            touched.update(joined)

    def rename_type(self, values: dict[str, Any], touched: set[str]) -> None:
        name = self.pick(touched)
        if name is None:
            return
        kind = self.types[name]
        new = self.free(EDGE_NAMES if kind.ends else TYPE_NAMES, touched)
        if new:
            self.renamed_type(name, new)

    def renamed_type(self, name: str, new: str) -> None:
        kind = self.types[new] = self.types.pop(name)
        kind.was = name
        for other in self.types.values():
            if other.ends:
                first, second = (new if end == name else end for end in other.ends)
                other.ends = first, second

    def add_property(self, values: dict[str, Any], touched: set[str]) -> None:
        name = self.pick(touched)
        free = [item for item in NAMES if name and item not in self.types[name].props]
        if name is None or not free:
            return
        prop, scalar = self.random.choice(free), self.random.choice(SCALARS)
        filled = scalar != "Blob" and self.random.random() < 0.5
        self.types[name].props[prop] = Prop(scalar, not filled or self.random.random() < 0.3)
        if filled:
            values[f"{name}.{prop}"] = self.value(scalar)

    def drop_property(self, values: dict[str, Any], touched: set[str]) -> None:
        name = self.pick(touched)
        if name and self.types[name].props:
            del self.types[name].props[self.random.choice(list(self.types[name].props))]

    def rename_property(self, values: dict[str, Any], touched: set[str]) -> None:
        name = self.pick(touched)
        free = [item for item in NAMES if name and item not in self.types[name].props]
        if name and free and self.types[name].props:
            props = self.types[name].props
            old = self.random.choice(list(props))
            new = self.random.choice(free)
            props[new] = props.pop(old)
            props[new].was = old

    def rename_key(self, values: dict[str, Any], touched: set[str]) -> None:
        name = self.pick(touched, ends=False)
        if name and self.types[name].key:
            kind = self.types[name]
            new = "j" if kind.key[0] == "k" else "k"
            kind.key_was = {new: kind.key[0]}
            kind.key = (new, *kind.key[1:])

    def widen(self, values: dict[str, Any], touched: set[str]) -> None:
        name = self.pick(touched)
        for prop in self.types[name].props.values() if name else ():
            if prop.scalar in WIDER:
                prop.scalar = self.random.choice(WIDER[prop.scalar])

    def tighten(self, values: dict[str, Any], touched: set[str]) -> None:
        name = self.pick(touched)
        for item, prop in self.types[name].props.items() if name else ():
            if prop.nullable and prop.scalar != "Blob":
                prop.nullable = False
                values[f"{name}.{item}"] = self.value(prop.scalar)

    def loosen(self, values: dict[str, Any], touched: set[str]) -> None:
        name = self.pick(touched)
        for prop in self.types[name].props.values() if name else ():
            prop.nullable = True

    def describe(self, values: dict[str, Any], touched: set[str]) -> None:
        name = self.pick(touched)
        for prop in self.types[name].props.values() if name else ():
            prop.rule += 1

    def swap_properties(self) -> None:
        """Two properties exchange their names, in three applies."""
        kind = self.random.choice(list(self.types.values()))
        if len(kind.props) >= 2:
            one, other = self.random.sample(list(kind.props), 2)
            for old, new in ((one, "spare"), (other, one), ("spare", other)):
                kind.props[new] = kind.props.pop(old)
                kind.props[new].was = old
                self.send()

    def swap_types(self) -> None:
        nodes = [item for item, kind in self.types.items() if not kind.ends]
        if len(nodes) >= 2:
            one, other = self.random.sample(nodes, 2)
            for old, new in ((one, "Spare"), (other, one), ("Spare", other)):
                self.renamed_type(old, new)
                self.send()
