"""A mutation that fails, at whatever statement and for whatever reason, has not been."""

from __future__ import annotations

import pytest

from omnigraph import Graph
from omnigraph.errors import (
    CardinalityViolation,
    OrphanEdge,
    StorageUnavailable,
    UniqueViolation,
    ValueConversionError,
    ValueViolation,
)
from omnigraph.storage.tables.store import TableStore
from omnigraph.storage.tables.table import Table
from tests.write.world import ends, files, heads, names, rows, run, values

pytestmark = pytest.mark.rotates(2)

GOOD = (
    'insert Person { name: "Eve", email: "eve@x" }',
    'update Person set { age: 41 } where name = "Ada"',
    'insert Knows { from: "Eve", to: "Ada" }',
    'update Knows set { strength: 0.3 } where from = "Eve"',
    'insert Doc { slug: "d", body: "base64:aGk=" }',
)
DELETES = (
    'delete Likes where from = "Ada"',
    'delete Person where name = "Cyd"',
    'delete Knows where from = "Bob"',
)
BAD = {
    "a value that does not fit": ('insert Person { name: "X", age: $big }', ValueConversionError),
    "the same in an update": (
        'update Person set { age: $big } where name = "Bob"',
        ValueConversionError,
    ),
    "the same in an update of nothing": (
        'update Person set { age: $big } where name = "Zoe"',
        ValueConversionError,
    ),
    "null that is required": ("insert Note { text: $none }", ValueConversionError),
    "a null end": ('insert Knows { from: "Ada", to: $none }', ValueConversionError),
    "text that is no Blob": ('insert Doc { slug: "x", cover: "nothing" }', ValueConversionError),
    "a range": ('insert Person { name: "X", age: 151 }', ValueViolation),
    "a pattern": ('update Person set { email: "none" } where name = "Dan"', ValueViolation),
    "an enum": ('insert Knows { from: "Ada", to: "Ada", tone: $word }', ValueViolation),
    "a value that is taken": ('insert Person { name: "X", email: "ada@x" }', UniqueViolation),
    "a value that is taken here": ('insert Person { name: "X", email: "eve@x" }', UniqueViolation),
    "no source": ('insert Likes { from: "X", to: "Acme" }', OrphanEdge),
    "no target": ('insert Owns { from: "Acme", to: "X" }', OrphanEdge),
    "too many edges": (
        """insert WorksAt { from: "Ada", to: "Brim" }
           insert WorksAt { from: "Ada", to: "Acme" }""",
        CardinalityViolation,
    ),
}
PARAMS = {"big": 2**40, "word": "lost"}
TYPES = "$big: I64, $none: String?, $word: String"


def works(graph, branch="main"):
    """The whole of it is done by the next call."""
    run(graph, " ".join(GOOD), branch=branch)
    assert "Eve" in names(graph, branch)
    assert ("Eve", "Ada") in ends(graph, "Knows", branch)
    assert dict(rows(graph, "Person", "name", "age", branch=branch))["Ada"] == 41


@pytest.mark.parametrize(("bad", "error"), BAD.values(), ids=list(BAD))
def test_a_failed_statement_leaves_every_file_as_it_was(people, bad, error):
    """No file of the graph is written, at whatever position it stands."""
    before = files(people)
    for position in range(len(GOOD) + 1):
        statements = [*GOOD[:position], bad, *GOOD[position:]]
        with pytest.raises(error):
            run(people, " ".join(statements), PARAMS, declare=TYPES)
        assert files(people) == before
    works(people)


def test_on_a_branch_it_leaves_no_fork_either(people):
    people.branches.create("b")
    before = heads(people)
    for bad, error in BAD.values():
        with pytest.raises(error):
            run(people, f"{' '.join(GOOD)} {bad}", PARAMS, declare=TYPES, branch="b")
        assert heads(people) == before
    works(people, "b")
    assert "Eve" not in names(people)


class Fault:
    """Raises at the n-th call of some functions."""

    def __init__(self, patch, owner, functions, error):
        self.at = 0
        self._error = error
        self._calls = 0
        for name in functions:
            patch.setattr(owner, name, self._faulty(getattr(owner, name)))

    def _faulty(self, real):
        def call(*args, **how):
            self._calls += 1
            if self._calls == self.at:
                raise self._error
            return real(*args, **how)

        return call

    def arm(self, position):
        self.at, self._calls = position, 0


READS = (Table, ["read", "scan"])
STAGES = (TableStore, ["stage_append", "stage_upsert", "stage_update", "stage_delete_keys"])


@pytest.mark.parametrize(("owner", "functions"), [READS, STAGES], ids=["reading", "staging"])
@pytest.mark.parametrize("error", [StorageUnavailable("gone"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("statements", [GOOD, DELETES], ids=["inserts", "deletes"])
def test_a_fault_below_any_statement_moves_nothing(
    people, monkeypatch, owner, functions, error, statements
):
    """The storage fails, or somebody presses Ctrl-C, at every call in turn."""
    fault = Fault(monkeypatch, owner, functions, error)
    before = heads(people)
    position = 0
    while True:
        position += 1
        fault.arm(position)
        try:
            run(people, " ".join(statements))
            break
        except type(error):
            assert heads(people) == before
    fault.arm(0)
    assert position > len(statements) // 2
    after = heads(people)
    moved = {key for key in after if after[key] != before[key]}
    assert after["__manifest"] == before["__manifest"] + 1
    assert all(after[key] == before[key] + 1 for key in moved)
    if statements is GOOD:
        assert values(people, "Ada", "age") == 41
    else:
        assert ends(people, "Knows") == [("Ada", "Bob"), ("Dan", "Dan")]


def test_a_delete_that_breaks_a_rule_deletes_nothing(tmp_path):
    """Wherever it stands among the others."""
    schema = "node A { k: String @key }\nedge Needs: A -> A @card(1..)\nedge Has: A -> A"
    with Graph.init(tmp_path / "g.omni", schema, durability="os") as graph:
        run(graph, 'insert A { k: "a" } insert A { k: "b" } insert A { k: "c" }')
        run(graph, 'insert Needs { from: "a", to: "b" } insert Has { from: "a", to: "a" }')
        before = files(graph)
        good = ['delete A where k = "c"', 'delete Has where from = "a"']
        for bad in ('delete Needs where from = "a"', 'delete A where k = "b"'):
            for position in range(3):
                statements = [*good[:position], bad, *good[position:]]
                with pytest.raises(CardinalityViolation):
                    run(graph, " ".join(statements))
                assert files(graph) == before
        run(graph, " ".join(good))
        assert rows(graph, "A", "k") == ["a", "b"]
