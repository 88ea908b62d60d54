"""A graph as plain dicts: what every write should do, without any of the program under test."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from itertools import count

from omnigraph.errors import (
    CardinalityViolation,
    KeyConflict,
    LoadError,
    OrphanEdge,
    UniqueViolation,
    ValueViolation,
)

SCHEMA = """\
node Person { name: String @key  age: I32?  mail: String? @unique  @range(age, 0..100) }
node Note { n: I32? }
edge Knows: Person -> Person @card(0..2) { w: I32? }
edge About: Note -> Person @card(1..2)
"""
COLUMNS = {
    "Person": ("age", "mail"),
    "Note": ("n",),
    "Knows": ("src", "dst", "w"),
    "About": ("src", "dst"),
}
ENDS = {"Knows": ("Person", "Person"), "About": ("Note", "Person")}
MOST = {"Knows": 2, "About": 2}


def empty():
    """No rows: type by type, id by id, column by column."""
    return {kind: {} for kind in COLUMNS}


class Outcome:
    """The state after a write, how many rows each statement met, or which errors may be raised."""

    def __init__(self, state, met=(), errors=(), commits=True):
        self.state = state
        self.met = Counter(dict(met))
        self.errors = tuple(errors)
        self.commits = commits

    @property
    def affected(self):
        nodes = sum(n for kind, n in self.met.items() if kind not in ENDS)
        return nodes, sum(self.met.values()) - nodes


# -- conditions -------------------------------------------------------------------------------


def selected(condition, row_id, row):
    """Whether a condition keeps a row; a null keeps none but where null is asked for."""
    column, operator, value = condition
    actual = row_id if column == "id" else row[column]
    if operator == "is null":
        return actual is None
    if actual is None or value is None:
        return False
    return actual == value if operator == "=" else actual < value


def spelled(kind, condition):
    column, operator, value = condition
    name = {"id": "name", "src": "from", "dst": "to"}.get(column, column)
    return f"{name} is null" if operator == "is null" else f"{name} {operator} {literal(value)}"


def literal(value):
    if value is None:
        return "null"
    return f'"{value}"' if isinstance(value, str) else str(value)


# -- mutations --------------------------------------------------------------------------------


def query(statements):
    """Statements as text."""
    return f"query q() {{ {' '.join(map(_statement, statements))} }}"


def _statement(statement):
    word, kind, *rest = statement
    if word == "insert":
        row_id, row = rest
        values = {"name": row_id} if kind == "Person" else {}
        values |= {{"src": "from", "dst": "to"}.get(name, name): v for name, v in row.items()}
        pairs = ", ".join(f"{name}: {literal(value)}" for name, value in values.items())
        return f"insert {kind} {{ {pairs} }}"
    where = spelled(kind, rest[0])
    if word == "delete":
        return f"delete {kind} where {where}"
    column, value = rest[1]
    return f"update {kind} set {{ {column}: {literal(value)} }} where {where}"


def mutate(state, statements):
    after, met = deepcopy(state), Counter()
    new = (f"new {number}" for number in count())
    for word, kind, *rest in statements:
        if word == "insert":
            row_id, row = rest
            after[kind][row_id or next(new)] = dict(row)
            met[kind] += 1
        elif word == "update":
            condition, (column, value) = rest
            for row_id, row in after[kind].items():
                if selected(condition, row_id, row):
                    row[column] = value
                    met[kind] += 1
        else:
            gone = [i for i, row in after[kind].items() if selected(rest[0], i, row)]
            _delete(after, kind, gone, met)
    if not sum(met.values()):
        return Outcome(state, commits=False)
    errors = broken(state, after)
    return Outcome(state, errors=errors) if errors else Outcome(after, met)


def _delete(state, kind, gone, met):
    for row_id in gone:
        del state[kind][row_id]
    met[kind] += len(gone)
    for edge, ends in ENDS.items():
        lost = [
            row_id
            for row_id, row in state[edge].items()
            if (ends[0] == kind and row["src"] in gone) or (ends[1] == kind and row["dst"] in gone)
        ]
        if lost:
            _delete(state, edge, lost, met)


# -- loads ------------------------------------------------------------------------------------


def records(rows):
    """Rows as they stand in a file."""
    matches = []
    for kind, row_id, row in rows:
        data = {name: value for name, value in row.items() if name not in ("src", "dst")}
        if row_id is not None:
            data["name" if kind == "Person" else "id"] = row_id
        if kind in ENDS:
            matches.append({"edge": kind, "from": row["src"], "to": row["dst"], "data": data})
        else:
            matches.append({"type": kind, "data": data})
    return matches


def load(state, mode, rows):
    if not rows:
        return Outcome(state, commits=False)
    after, errors = deepcopy(state), set()
    new = (f"new {number}" for number in count())
    given = [(kind, row_id) for kind, row_id, _ in rows if row_id is not None]
    repeated = {kind for (kind, _), times in Counter(given).items() if times > 1}
    if repeated - ({"Note", "Knows", "About"} if mode == "merge" else set()):
        errors.add(UniqueViolation)
    if mode == "append" and any(row_id in state[kind] for kind, row_id in given):
        errors.add(KeyConflict)
    if mode == "overwrite":
        for kind in {kind for kind, _, _ in rows}:
            after[kind] = {}
    for kind, row_id, row in rows:
        after[kind][row_id or next(new)] = dict(row)
    errors |= set(broken(state, after))
    if any(_is_wrong(row) for kind, _, row in rows if kind == "Person"):
        errors.add(LoadError)
    return Outcome(state, errors=errors) if errors else Outcome(after)


# -- rules ------------------------------------------------------------------------------------


def broken(before, after):
    """The kinds of rules that a new state breaks; the old one broke none."""
    matches = []
    people = after["Person"].values()
    if any(map(_is_wrong, people)):
        matches.append(ValueViolation)
    mails = Counter(row["mail"] for row in people if row["mail"] is not None)
    if max(mails.values(), default=0) > 1:
        matches.append(UniqueViolation)
    for edge, (source, target) in ENDS.items():
        rows = after[edge].values()
        if any(r["src"] not in after[source] or r["dst"] not in after[target] for r in rows):
            matches.append(OrphanEdge)
        now = Counter(row["src"] for row in rows)
        had = {row["src"] for row in before[edge].values()}
        too_few = edge == "About" and any(s in after[source] and not now[s] for s in had)
        if too_few or max(now.values(), default=0) > MOST[edge]:
            matches.append(CardinalityViolation)
    return matches


def _is_wrong(person):
    return person["age"] is not None and not 0 <= person["age"] <= 100


def with_ids(model, real):
    """The model with its placeholders replaced by the ids that rows really got.

    Rows that differ in nothing but a placeholder are alike, so any assignment is right.
    """
    matches = {}
    for kind, rows in model.items():
        existing = {row_id: row for row_id, row in rows.items() if not row_id.startswith("new ")}
        fresh = [i for i in real[kind] if i not in existing]
        fresh.sort(key=lambda row_id, there=real[kind]: _order(there[row_id]))
        waiting = [row for row_id, row in rows.items() if row_id.startswith("new ")]
        matches[kind] = existing | dict(zip(fresh, sorted(waiting, key=_order), strict=True))
    return matches


def _order(row):
    return repr(sorted(row.items()))
