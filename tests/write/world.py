"""A graph with every kind of rule, and looks at it that owe nothing to the program under test."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import lance
import pytest

from omnigraph.write.mutation import Mutation

SCHEMA = """\
node Person {
  name: String @key
  age: I32?
  email: String? @unique
  status: enum(active, away)?
  nickNames: [String]?
  joined: DateTime?
  score: F64?
  @range(age, 0..150)
  @check(email, "@")
}
node Company { name: String @key  founded: Date? }
node Note { text: String  stars: I32? }
node Doc { slug: String @key  body: Blob?  cover: Blob?  title: String? }
edge Knows: Person -> Person { since: Date?  strength: F64?  tone: enum(warm, cold)? }
edge WorksAt: Person -> Company @card(0..2) { title: String? }
edge Likes: Person -> Company
edge Owns: Company -> Person
edge Cites: Doc -> Doc { scan: Blob?  page: I32? }
"""

PEOPLE = """
query people() {
  insert Person { name: "Ada", age: 36, email: "ada@x", status: "active", score: 1.5 }
  insert Person { name: "Bob", age: 20, status: "away", nickNames: ["bo", "bobby"] }
  insert Person { name: "Cyd", nickNames: [] }
  insert Person { name: "Dan", age: 50, email: "dan@x", score: 0.5 }
  insert Company { name: "Acme", founded: date("1999-12-31") }
  insert Company { name: "Brim" }
}
"""
EDGES = """
query edges() {
  insert Knows { from: "Ada", to: "Bob", strength: 0.5, since: date("2020-01-01") }
  insert Knows { from: "Bob", to: "Cyd", strength: 0.9 }
  insert Knows { from: "Cyd", to: "Ada" }
  insert Knows { from: "Dan", to: "Dan", strength: 0.1, tone: "cold" }
  insert WorksAt { from: "Ada", to: "Acme", title: "chief" }
  insert WorksAt { from: "Bob", to: "Acme" }
  insert Likes { from: "Ada", to: "Brim" }
  insert Owns { from: "Acme", to: "Ada" }
  insert Owns { from: "Brim", to: "Dan" }
}
"""


def run(graph, statements, _params=None, *, declare="", **how):
    """Run statements as one query; ``declare`` are the types of the parameters."""
    return graph.mutate(f"query q({declare}) {{ {statements} }}", None, _params, **how)


def rows(graph, type_name, *columns, branch="main", **at):
    """The values of some columns, sorted; those of one column bare."""
    actual = graph.snapshot(branch, **at).read(type_name, list(columns)).to_pylist()
    values = [tuple(row[name] for name in columns) for row in actual]
    return sorted((v[0] if len(columns) == 1 else v for v in values), key=repr)


def names(graph, branch="main"):
    return rows(graph, "Person", "name", branch=branch)


def ends(graph, type_name, branch="main"):
    return rows(graph, type_name, "src", "dst", branch=branch)


def values(graph, name, *columns):
    """Some values of one person."""
    (actual,) = [row for row in rows(graph, "Person", "name", *columns) if row[0] == name]
    return actual[1] if len(columns) == 1 else actual[1:]


def versions(graph, branch="main"):
    """The version of every table that a branch shows."""
    return {key: table["version"] for key, table in graph.snapshot(branch).tables.items()}


def heads(graph):
    """The newest version of every dataset of a graph, as plain Lance opens them."""
    locations = [path.parent for path in Path(graph.uri).rglob("_versions")]
    return {
        str(path.relative_to(graph.uri)): lance.dataset(str(path)).version for path in locations
    }


def files(graph):
    """Every file below a graph, with what shows that it was written."""
    matches = {}
    for path in sorted(Path(graph.uri).rglob("*")):
        stat = path.stat()
        matches[str(path.relative_to(graph.uri))] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    return matches


@contextmanager
def meanwhile(action):
    """Run something once a mutation is prepared, before it has the leases of its tables."""
    waiting = [action]
    prepare = Mutation.prepare

    def prepared(self, view):
        actual = prepare(self, view)
        if waiting:
            waiting.pop()()
        return actual

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Mutation, "prepare", prepared)
        yield
