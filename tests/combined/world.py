"""A graph and a model of plain dicts that go through the same random history of everything.

Nodes with a composite key, Blobs, vectors and indexed text; edges with ids and Blobs. A step is a
write, a branch, a merge, a schema apply, a tag, maintenance, a backup with its restore, a clone,
an export, or a new handle. After each of them every branch shows what the model says.
"""

from __future__ import annotations

import base64
import copy
import itertools
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from omnigraph import Graph, backup_points, clone, restore
from omnigraph.errors import MergeConflicts, SchemaChangeRefused
from omnigraph.maintain.verify.report import ProblemCode
from tests.merge.history_model import merged_row

WIDER = {"I32": "I64", "U32": "U64", "F32": "F64"}
SAMPLES: dict[str, list[Any]] = {
    "String": ["", "plain", "zwölf", "a b\tc"],
    "Bool": [True, False],
    "I32": [0, -(2**31), 7],
    "U32": [0, 2**32 - 1],
    "I64": [2**40, -7],
    "U64": [2**40],
    "F32": [0.5, -2.0],
    "F64": [0.1, 1e300],
    "Date": ["2024-02-29", "1969-12-31"],
    "Vector(4)": [[1.0, 0.0, 0.0, 0.5], [0.0, 1.0, 0.25, 0.0]],
    "[I32]": [[], [1, 2]],
    "Blob": [b"", b"\x00bytes", b"long" * 20_000],
}

Row = dict[str, Any]
Rows = dict[str, Row]
State = dict[str, Rows]
"""Rows by the first name of their type and by id."""


@dataclass
class Property:
    scalar: str
    nullable: bool = True
    rules: str = ""
    renamed_from: str | None = None

    def text(self, name: str) -> str:
        old = f' @rename_from("{self.renamed_from}")' if self.renamed_from else ""
        return f"  {name}: {self.scalar}{'?' if self.nullable else ''}{self.rules}{old}"


@dataclass
class Type:
    name: str
    keys: list[str]
    properties: dict[str, Property]
    ends: tuple[str, str] | None = None
    renamed_from: str | None = None

    @property
    def kind(self) -> str:
        return "node" if self.ends is None else "edge"


@dataclass
class Branch:
    """What a branch holds, and what it had in common with main when it was made."""

    state: State
    base: State


@dataclass
class Moment:
    """A state of the whole graph: to be read again, or restored."""

    types: dict[str, Type]
    branches: dict[str, Branch]
    tags: dict[str, Moment] = field(default_factory=dict)


def first_types() -> dict[str, Type]:
    seat = {
        "hall": Property("String", nullable=False),
        "number": Property("I32", nullable=False),
        "note": Property("String", rules=" @index"),
        "picture": Property("Blob"),
        "vec": Property("Vector(4)"),
        "price": Property("I32"),
    }
    label = {
        "name": Property("String", nullable=False, rules=" @key"),
        "text": Property("String", rules=" @index"),
        "weight": Property("F32"),
    }
    marks = {"w": Property("I32"), "proof": Property("Blob")}
    return {
        "Seat": Type("Seat", ["hall", "number"], seat),
        "Label": Type("Label", ["name"], label),
        "Marks": Type("Marks", [], marks, ("Label", "Seat")),
    }


def schema_text(types: dict[str, Type]) -> str:
    texts = []
    for item in types.values():
        old = f' @rename_from("{item.renamed_from}")' if item.renamed_from else ""
        lines = [prop.text(name) for name, prop in item.properties.items()]
        if len(item.keys) > 1:
            lines.append(f"  @key({', '.join(item.keys)})")
        ends = ""
        if item.ends is not None:
            ends = f": {types[item.ends[0]].name} -> {types[item.ends[1]].name}"
        body = "\n".join(lines)
        texts.append(f"{item.kind} {item.name}{ends}{old} {{\n{body}\n}}")
    return "\n".join(texts)


class World:
    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = Random(seed)
        self.numbers = itertools.count(1)
        self.types = first_types()
        self.branches = {"main": Branch({name: {} for name in self.types}, {})}
        self.tags: dict[str, Moment] = {}
        self.points: dict[str, Moment] = {}
        self.backup_folder = folder / "backup"
        self.graph = Graph.init(folder / "g.omni", schema_text(self.types), durability="os")
        self.log: list[str] = []

    # -- steps ---------------------------------------------------------------------------

    def step(self) -> None:
        acts = [self.write] * 8 + [self.fork, self.merge, self.merge, self.merge]
        acts += [self.change_schema] * 5 + [self.maintain, self.maintain, self.tag, self.back_up]
        acts += [self.restore, self.clone, self.export, self.reopen, self.revert]
        act = self.random.choice(acts)
        self.log.append(act.__name__)
        act()
        self.check()

    def write(self) -> None:
        name = self.random.choice(sorted(self.branches))
        self._write(name)

    def _write(self, branch: str) -> None:
        state = self.branches[branch].state
        match self.random.randrange(10):
            case 0 | 1 | 2 | 3:
                self._load(branch, self.random.choice(["Seat", "Label"]))
            case 4 | 5:
                self._load_edge(branch)
            case 6 | 7:
                self._update(branch)
            case _:
                type_id = self.random.choice(["Seat", "Label", "Marks"])
                if state[type_id]:
                    self._delete(branch, type_id, self.random.choice(sorted(state[type_id])))

    def fork(self) -> None:
        if len(self.branches) > 3:
            return
        name = f"b{next(self.numbers)}"
        self.graph.branches.create(name)
        state = copy.deepcopy(self.branches["main"].state)
        self.branches[name] = Branch(state, copy.deepcopy(state))

    def merge(self) -> None:
        others = sorted(set(self.branches) - {"main"})
        if not others:
            return
        name = self.random.choice(others)
        branch, main = self.branches[name], self.branches["main"]
        side = self.random.choice(["ours", "theirs"])
        merged: State = {type_id: {} for type_id in self.types}
        for type_id in self.types:
            sides = (branch.base[type_id], main.state[type_id], branch.state[type_id])
            for row_id in {row_id for rows in sides for row_id in rows}:
                row, _ = merged_row(*(rows.get(row_id) for rows in sides), side)
                if row is not None:
                    merged[type_id][row_id] = row
        if self._has_orphans(merged):
            try:
                self.graph.merge(name, resolve=side)
            except MergeConflicts:
                self._delete_branch(name)
                return
            raise AssertionError("a merge left edges without their nodes")
        self.graph.merge(name, resolve=side)
        main.state = copy.deepcopy(merged)
        self._delete_branch(name)

    def _delete_branch(self, name: str) -> None:
        self.graph.branches.delete(name)
        del self.branches[name]

    def _has_orphans(self, state: State) -> bool:
        return any(
            row["src"] not in state["Label"] or row["dst"] not in state["Seat"]
            for row in state["Marks"].values()
        )

    def change_schema(self) -> None:
        types = copy.deepcopy(self.types)
        state = copy.deepcopy(self.branches["main"].state)
        values: dict[str, Any] = {}
        hard = False
        for type_id in self.random.sample(sorted(types), self.random.randint(1, 2)):
            for _ in range(self.random.randint(1, 3)):
                hard |= self._change_type(types[type_id], state[type_id], values)
        text = schema_text(types)
        if len(self.branches) > 1:
            try:
                self.graph.schema.apply(text, values=values, allow_data_loss=hard)
            except SchemaChangeRefused:
                return
            raise AssertionError("a schema was applied beside branches")
        self.log.append(f"apply {values} hard={hard}\n{text}")
        self.graph.schema.apply(text, values=values, allow_data_loss=hard)
        for item in types.values():
            item.renamed_from = None
            for prop in item.properties.values():
                prop.renamed_from = None
        self.types = types
        self.branches["main"].state = state
        if hard:
            # States with what was dropped for good are gone.
            self.tags.clear()

    def _change_type(self, one: Type, rows: Rows, values: dict[str, Any]) -> bool:
        """One change of a type; says whether it loses data for good."""
        free = sorted(set(map("p{}".format, range(9))) - set(one.properties) - self._existing(one))
        plain = [
            name
            for name, prop in one.properties.items()
            if name not in one.keys and prop.renamed_from is None and not prop.rules
        ]
        name = self.random.choice(plain) if plain else None
        match self.random.randrange(8):
            case 0 | 1:
                new, scalar = self.random.choice(free), self.random.choice(sorted(SAMPLES))
                one.properties[new] = Property(scalar)
                value = None
                if self.random.random() < 0.4 and scalar != "Blob":
                    one.properties[new].nullable = False
                    value = self.random.choice(SAMPLES[scalar])
                    values[f"{one.name}.{new}"] = value
                for row in rows.values():
                    row[new] = value
            case 2 if name and f"{one.name}.{name}" not in values:
                old = one.properties[name]
                # What is new in this apply has no name before.
                if name in self._existing(one):
                    new = self.random.choice(free)
                    one.properties[new] = Property(old.scalar, old.nullable, "", name)
                    del one.properties[name]
                    for row in rows.values():
                        row[new] = row.pop(name)
            case 3 if name:
                one.properties[name].scalar = WIDER.get(
                    one.properties[name].scalar, one.properties[name].scalar
                )
            case 4 if name and f"{one.name}.{name}" not in values and name in self._existing(one):
                del one.properties[name]
                for row in rows.values():
                    del row[name]
                return self.random.random() < 0.3
            case 5 if name and one.properties[name].scalar != "Blob":
                prop = one.properties[name]
                if not prop.nullable and f"{one.name}.{name}" not in values:
                    prop.nullable = True
                elif prop.nullable:
                    prop.nullable = False
                    value = self.random.choice(SAMPLES[prop.scalar])
                    values[f"{one.name}.{name}"] = value
                    for row in rows.values():
                        row[name] = value if row[name] is None else row[name]
            case 6 if one.renamed_from is None and not any(
                key.startswith(f"{one.name}.") for key in values
            ):
                one.renamed_from, one.name = one.name, f"T{next(self.numbers)}"
        return False

    def _existing(self, one: Type) -> set[str]:
        """The properties that the type has before the apply."""
        old = one.renamed_from or one.name
        return next(set(t.properties) for t in self.types.values() if t.name == old)

    def tag(self) -> None:
        name = f"v{next(self.numbers)}"
        self.graph.tags.create(name)
        self.tags[name] = Moment(copy.deepcopy(self.types), copy.deepcopy(self.branches))

    def maintain(self) -> None:
        maintenance = self.graph.maintenance
        match self.random.randrange(4):
            case 0:
                maintenance.cleanup(self.random.randint(1, 3), min_age=0)
            case 1:
                branch = self.random.choice(sorted(self.branches))
                maintenance.optimize(branch, engine="local")
            case 2:
                self.graph.indexes.ensure()
            case 3:
                self.verify()

    def revert(self) -> None:
        before = copy.deepcopy(self.branches["main"].state)
        head = self.graph.snapshot().commit_id
        self._write("main")
        after = self.graph.snapshot().commit_id
        if after != head:
            assert after is not None
            self.graph.revert(after)
            self.branches["main"].state = before

    # -- copies --------------------------------------------------------------------------

    def back_up(self) -> None:
        report = self.graph.maintenance.backup(self.backup_folder)
        self.points[report.point] = self._moment()

    def restore(self) -> None:
        if not self.points:
            return
        point = self.random.choice(sorted(self.points))
        assert point in [backup_point.point for backup_point in backup_points(self.backup_folder)]
        location = self.folder / f"r{next(self.numbers)}.omni"
        restore(self.backup_folder, location, point=point, durability="os")
        self._compare_copy(location, self.points[point])

    def clone(self) -> None:
        location = self.folder / f"c{next(self.numbers)}.omni"
        clone(self.graph.uri, location, durability="os")
        self._compare_copy(location, self._moment())

    def _compare_copy(self, location: Path, moment: Moment) -> None:
        """Look at a copy; sometimes go on with it, which has to be as good as the original."""
        kept = self.graph, self._moment(), self.points, self.backup_folder
        self.graph = Graph.open(location, durability="os")
        self._become(moment)
        self.check()
        self.verify()
        if self.random.random() < 0.5:
            kept[0].close()
            self.points, self.backup_folder = {}, self.folder / f"backup{next(self.numbers)}"
            return
        self.graph.close()
        self.graph, self.points, self.backup_folder = kept[0], kept[2], kept[3]
        self._become(kept[1])

    def _moment(self) -> Moment:
        return copy.deepcopy(Moment(self.types, self.branches, self.tags))

    def _become(self, moment: Moment) -> None:
        again = copy.deepcopy(moment)
        self.types, self.branches, self.tags = again.types, again.branches, again.tags

    def export(self) -> None:
        branch = self.random.choice(sorted(self.branches))
        number = next(self.numbers)
        lines = self.folder / f"e{number}.jsonl"
        self.graph.snapshot(branch).export(lines)
        text = schema_text(self.types)
        with Graph.init(self.folder / f"e{number}.omni", text, durability="os") as fresh:
            fresh.load(lines, mode="overwrite")
            assert self._read(fresh, "main", self.types) == self.branches[branch].state

    def reopen(self) -> None:
        uri = self.graph.uri
        self.graph.close()
        self.graph = Graph.open(uri, durability="os")

    # -- writes --------------------------------------------------------------------------

    def _load(self, branch: str, type_id: str) -> None:
        item = self.types[type_id]
        key: Row = {"name": f"l{self.random.randrange(4)}"}
        row_id = key["name"] if type_id == "Label" else ""
        if type_id == "Seat":
            key = {"hall": self.random.choice(["A", '"', "Ä,"]), "number": self.random.randrange(3)}
            row_id = next(
                (
                    i
                    for i, row in self.branches[branch].state["Seat"].items()
                    if key.items() <= row.items()
                ),
                "",
            )
        row = key | self._values(item)
        self.graph.load([{"type": item.name, "data": _data(row)}], branch=branch, mode="merge")
        if not row_id:
            rows = self._read(self.graph, branch, {type_id: item})[type_id]
            (row_id,) = [i for i, actual in rows.items() if key.items() <= actual.items()]
        self.branches[branch].state[type_id][row_id] = row

    def _load_edge(self, branch: str) -> None:
        state = self.branches[branch].state
        if not state["Label"] or not state["Seat"]:
            return
        row_id = f"m{self.random.randrange(5)}"
        existing = state["Marks"].get(row_id)
        source = existing["src"] if existing else self.random.choice(sorted(state["Label"]))
        target = existing["dst"] if existing else self.random.choice(sorted(state["Seat"]))
        item = self.types["Marks"]
        row = self._values(item)
        data = _data(row) | {"id": row_id}
        record = {"edge": item.name, "from": source, "to": target, "data": data}
        self.graph.load([record], branch=branch, mode="merge")
        state["Marks"][row_id] = {"src": source, "dst": target, **row}

    def _values(self, one: Type) -> Row:
        return {
            name: None
            if prop.nullable and self.random.random() < 0.4
            else self.random.choice(SAMPLES[prop.scalar])
            for name, prop in one.properties.items()
            if name not in one.keys
        }

    def _update(self, branch: str) -> None:
        state = self.branches[branch].state
        type_id = self.random.choice(["Seat", "Label"])
        item = self.types[type_id]
        choices = [name for name in item.properties if name not in item.keys]
        if not state[type_id] or not choices:
            return
        row = state[type_id][self.random.choice(sorted(state[type_id]))]
        name = self.random.choice(choices)
        prop = item.properties[name]
        value = self._values(item)[name]
        where, given = self._condition(item, row)
        declared = ", ".join(
            [f"${key}: {item.properties[key].scalar}" for key in given]
            + [f"$value: {prop.scalar}{'?' if prop.nullable else ''}"]
        )
        text = (
            f"query q({declared}) {{ update {item.name} set {{ {name}: $value }} where {where} }}"
        )
        self.graph.mutate(text, params={**given, "value": _plain(value)}, branch=branch)
        row[name] = value

    def _delete(self, branch: str, type_id: str, row_id: str) -> None:
        item, state = self.types[type_id], self.branches[branch].state
        if type_id == "Marks":
            self._delete_edges(branch, state["Marks"][row_id].get("w"))
            return
        where, given = self._condition(item, state[type_id][row_id])
        declared = ", ".join(f"${key}: {item.properties[key].scalar}" for key in given)
        text = f"query q({declared}) {{ delete {item.name} where {where} }}"
        self.graph.mutate(text, params=given, branch=branch)
        del state[type_id][row_id]
        end = "src" if type_id == "Label" else "dst"
        self._drop_edges(branch, end, row_id)

    def _delete_edges(self, branch: str, weight: int | None) -> None:
        if weight is None:
            return
        name = self.types["Marks"].name
        self.graph.mutate(f"query q() {{ delete {name} where w = {weight} }}", branch=branch)
        self._drop_edges(branch, "w", weight)

    def _drop_edges(self, branch: str, column: str, value: Any) -> None:
        edges = self.branches[branch].state["Marks"]
        for edge_id in [i for i, row in edges.items() if row[column] == value]:
            del edges[edge_id]

    def _condition(self, one: Type, row: Row) -> tuple[str, dict[str, Any]]:
        given = {key: row[key] for key in one.keys}
        return " and ".join(f"{key} = ${key}" for key in given), given

    # -- what is there -------------------------------------------------------------------

    def check(self) -> None:
        assert sorted(self.graph.branches.list()) == sorted(self.branches)
        for name, branch in self.branches.items():
            assert self._read(self.graph, name, self.types) == branch.state, name
        for name, moment in self.tags.items():
            shown = self._read(self.graph, None, moment.types, tag=name)
            assert shown == moment.branches["main"].state, name

    def _read(
        self, graph: Graph, branch: str | None, types: dict[str, Type], tag: str | None = None
    ) -> State:
        snapshot = graph.snapshot(tag=tag) if tag else graph.snapshot(branch or "main")
        actual: State = {}
        for type_id, item in types.items():
            blobs = [n for n, prop in item.properties.items() if prop.scalar == "Blob"]
            ends = ["src", "dst"] if item.ends else []
            names = ["id", *ends, *(n for n in item.properties if n not in blobs)]
            rows = {row.pop("id"): row for row in snapshot.read(item.name, names).to_pylist()}
            for row_id, row in rows.items():
                for name in blobs:
                    row[name] = snapshot.read_blob(item.name, row_id, name)
                for name, prop in item.properties.items():
                    if prop.scalar == "Date" and row[name] is not None:
                        row[name] = row[name].isoformat()
            actual[type_id] = rows
        return actual

    def verify(self) -> None:
        """Nothing is wrong; tags may name what was dropped for good."""
        report = self.graph.maintenance.verify()
        assert report.is_sound, report.problems
        assert {problem.code for problem in report.problems} <= {ProblemCode.TAG_UNREADABLE}


def _plain(value: Any) -> Any:
    """A value as it stands in a record: bytes as text."""
    if isinstance(value, bytes):
        return f"base64:{base64.b64encode(value).decode()}"
    return value


def _data(row: Row) -> Row:
    return {name: _plain(value) for name, value in row.items() if value is not None}
