"""Random chains of compatible changes against a dict: every row survives them, and the past too."""

from __future__ import annotations

import copy
import tempfile
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph import Graph

WIDER = {"I32": "I64", "U32": "U64", "F32": "F64"}
SCALARS = ["I32", "U32", "F32", "String", "Bool"]
VALUES: dict[str, Any] = {
    "I32": -7,
    "I64": 2**40,
    "U32": 7,
    "U64": 2**40,
    "F32": 0.5,
    "F64": 0.1,
    "String": "text",
    "Bool": True,
}


@dataclass
class Prop:
    scalar: str
    nullable: bool
    was: str | None = None


@dataclass
class Type:
    props: dict[str, Prop] = field(default_factory=dict)
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    was: str | None = None


class Model:
    """A schema with its rows, and the same as a graph."""

    def __init__(self, folder: str) -> None:
        self.types = {"T0": Type()}
        self.count = 0
        self.graph = Graph.init(f"{folder}/g.omni", self.text(), durability="os")
        self.past: list[tuple[int, dict[str, Type]]] = []

    def text(self) -> str:
        return "\n".join(self._type(name, kind) for name, kind in self.types.items())

    def _type(self, name: str, kind: Type) -> str:
        was = f'@rename_from("{kind.was}") ' if kind.was else ""
        lines = []
        for prop, what in kind.props.items():
            old = f' @rename_from("{what.was}")' if what.was else ""
            lines.append(f"  {prop}: {what.scalar}{'?' if what.nullable else ''}{old}")
        body = "\n".join(["  key: String @key", *lines])
        return f"node {name} {was}{{\n{body}\n}}"

    def new(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    # -- what happens --------------------------------------------------------------------

    def step(self, draw: st.DataObject) -> None:
        name = draw.draw(st.sampled_from(sorted(self.types)))
        kind = self.types[name]
        values: dict[str, Any] = {}
        hard = False
        acts = ["insert", "insert", "add type", "rename type", "add property"]
        acts += ["rename property", "drop property", "change property"] if kind.props else []
        acts += ["drop type"] if len(self.types) > 1 else []
        act = draw.draw(st.sampled_from(acts))
        if act == "insert":
            self.insert(name, draw)
            return
        if act == "add type":
            # Sometimes a name that was there before.
            self.types[draw.draw(st.sampled_from(self.unused("T")))] = Type()
        elif act == "drop type":
            hard = draw.draw(st.booleans())
            del self.types[name]
        elif act == "rename type":
            del self.types[name]
            kind.was = name
            self.types[draw.draw(st.sampled_from(self.unused("T")))] = kind
        elif act == "add property":
            prop = draw.draw(st.sampled_from(self.free(kind)))
            scalar = draw.draw(st.sampled_from(SCALARS))
            given = draw.draw(st.booleans())
            kind.props[prop] = Prop(scalar, nullable=not given)
            for row in kind.rows.values():
                row[prop] = VALUES[scalar] if given else None
            if given:
                values[f"{name}.{prop}"] = VALUES[scalar]
        else:
            prop = draw.draw(st.sampled_from(sorted(kind.props)))
            if act == "rename property":
                new = draw.draw(st.sampled_from(self.free(kind)))
                kind.props[new] = kind.props.pop(prop)
                kind.props[new].was = prop
                for row in kind.rows.values():
                    row[new] = row.pop(prop)
            elif act == "drop property":
                hard = draw.draw(st.booleans())
                del kind.props[prop]
                for row in kind.rows.values():
                    del row[prop]
            else:
                values |= self.change(name, prop, draw)
        self.apply(values, hard)

    def unused(self, letter: str) -> list[str]:
        return [n for n in (f"{letter}{number}" for number in range(6)) if n not in self.types]

    def free(self, kind: Type) -> list[str]:
        return [n for n in (f"p{number}" for number in range(8)) if n not in kind.props]

    def change(self, name: str, prop: str, draw: st.DataObject) -> dict[str, Any]:
        kind = self.types[name]
        what = kind.props[prop]
        if what.scalar in WIDER and draw.draw(st.booleans()):
            what.scalar = WIDER[what.scalar]
        if not draw.draw(st.booleans()):
            return {}
        what.nullable = not what.nullable
        if what.nullable:
            return {}
        for row in kind.rows.values():
            if row[prop] is None:
                row[prop] = VALUES[what.scalar]
        return {f"{name}.{prop}": VALUES[what.scalar]}

    def insert(self, name: str, draw: st.DataObject) -> None:
        kind = self.types[name]
        row = {
            prop: None if what.nullable and draw.draw(st.booleans()) else VALUES[what.scalar]
            for prop, what in kind.props.items()
        }
        key = self.new("k")
        kind.rows[key] = row
        self.graph.load([{"type": name, "data": {"key": key, **row}}])
        self.check()

    def apply(self, values: dict[str, Any], hard: bool) -> None:
        done = self.graph.schema.apply(self.text(), values=values, allow_data_loss=hard)
        for kind in self.types.values():
            kind.was = None
            for what in kind.props.values():
                what.was = None
        if hard and done.cleared:
            self.past.clear()
        self.check()

    # -- what is there -------------------------------------------------------------------

    def check(self) -> None:
        snapshot = self.graph.snapshot()
        self.past.append((snapshot.version, copy.deepcopy(self.types)))
        assert self.shown(snapshot.version) == content(self.types)

    def shown(self, version: int) -> dict[str, dict[str, dict[str, Any]]]:
        snapshot = self.graph.snapshot(version=version)
        matches = {}
        for key in snapshot.tables:
            name = key.removeprefix("node:")
            rows = snapshot.read(name).to_pylist()
            assert len(rows) == snapshot.count(name)
            matches[name] = {row.pop("id"): row for row in rows}
            for row_id, row in matches[name].items():
                assert row.pop("key") == row_id
        return matches

    def check_past(self) -> None:
        for version, types in self.past:
            assert self.shown(version) == content(types)


def content(types: dict[str, Type]) -> dict[str, dict[str, dict[str, Any]]]:
    return {name: kind.rows for name, kind in types.items()}


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_chain_of_changes_keeps_every_row(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = Model(folder)
        with model.graph:
            for _ in range(data.draw(st.integers(4, 12))):
                model.step(data)
            model.check_past()
            with Graph.open(model.graph.uri, "r") as fresh:
                model.graph = fresh
                model.check_past()
