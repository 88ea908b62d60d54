"""Derived files: they save work, and are never trusted further than they go."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.storage.objects.derived import FOLDER, DerivedFiles
from omnigraph.storage.tables.table import Table
from omnigraph.topology import measures, persisted
from omnigraph.topology.adjacency import Adjacency
from tests.topology.conftest import add, join

TEXT = """query q() { match { $a: Person $a knows $b } return { $a.name, $b.name } }"""


@pytest.fixture(autouse=True)
def worth_it(monkeypatch):
    """A graph of a few nodes is large."""
    monkeypatch.setattr(persisted, "_WORTH_IT", 1)


@pytest.fixture
def people(graph):
    add(graph, "a", "b", "c")
    join(graph, ("a", "b"), ("b", "c"), ("a", "c"))
    return graph


def pairs(graph):
    return sorted((row["a.name"], row["b.name"]) for row in graph.query(TEXT).rows())


def traversed(graph):
    """Twice, because a table that is asked for again is held."""
    pairs(graph)
    return pairs(graph)


def files(graph):
    return sorted(path.name for path in Path(graph.uri, FOLDER).glob("*"))


@pytest.fixture
def read(monkeypatch):
    """The columns that were read to be numbered."""
    seen = []
    real = Table.read_fragments

    def counted(self, numbers, columns):
        seen.extend(columns)
        return real(self, numbers, columns)

    monkeypatch.setattr(Table, "read_fragments", counted)
    return seen


EXPECTED = [("a", "b"), ("a", "c"), ("b", "c")]


def test_a_new_process_numbers_nothing_again(people, read):
    assert traversed(people) == EXPECTED
    kinds = {name.split("-")[0] for name in files(people)}
    assert kinds == {"edges", "ids", "nodes"}
    assert {"src", "dst", "id"} <= set(read)
    read.clear()
    with Graph.open(people.uri) as other:
        assert traversed(other) == EXPECTED
    assert {"src", "dst", "id"}.isdisjoint(read)


def test_a_handle_that_only_reads_writes_no_file(people):
    with Graph.open(people.uri, "r") as other:
        assert traversed(other) == EXPECTED
    assert files(people) == []


def test_files_of_an_earlier_version_still_serve(people, read):
    traversed(people)
    join(people, ("c", "a"))
    read.clear()
    with Graph.open(people.uri) as other:
        assert traversed(other) == sorted([*EXPECTED, ("c", "a")])


def test_a_stored_table_is_read_once(people, monkeypatch):
    """Whether it is still worth something is known without reading it again."""
    traversed(people)
    seen = []
    real = DerivedFiles.read

    def counted(self, name):
        seen.append(name.split("-")[0])
        return real(self, name)

    monkeypatch.setattr(DerivedFiles, "read", counted)
    with Graph.open(people.uri) as other:
        assert traversed(other) == EXPECTED
        assert sorted(seen) == ["edges", "ids", "nodes"]
        seen.clear()
        join(other, ("c", "a"))
        assert traversed(other) == sorted([*EXPECTED, ("c", "a")])
        assert "edges" not in seen


def cut(path):
    path.write_bytes(path.read_bytes()[:-40])


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0xFF
    path.write_bytes(bytes(data))


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut, flip, empty])
def test_a_damaged_file_is_as_none(people, damage):
    traversed(people)
    for path in Path(people.uri, FOLDER).glob("*"):
        damage(path)
    with Graph.open(people.uri) as other:
        assert traversed(other) == EXPECTED


def test_every_single_bit_may_flip(people):
    """Whatever a file says, the answer comes from the tables."""
    traversed(people)
    for path in sorted(Path(people.uri, FOLDER).glob("edges-*")):
        whole = path.read_bytes()
        for location in range(0, len(whole), 97):
            data = bytearray(whole)
            data[location] ^= 1 << (location % 8)
            path.write_bytes(bytes(data))
            with Graph.open(people.uri, "r") as other:
                assert traversed(other) == EXPECTED


HOLDER = """
import os, sys
from pathlib import Path

from omnigraph import Graph
from omnigraph.storage.objects.derived import FOLDER

with Graph.open(sys.argv[1], "r") as graph:
    def pairs():
        return sorted(tuple(row.values()) for row in graph.query(sys.argv[2]).rows())

    before = pairs()
    assert pairs() == before
    for path in Path(sys.argv[1], FOLDER).glob("*"):
        os.truncate(path, 0)
    assert pairs() == before
    print(len(before))
"""


def test_a_file_that_is_cut_short_under_a_process_that_uses_it_does_not_kill_it(graph):
    """A page of a mapped file that is gone would."""
    names = [f"p{n:05}" for n in range(5_000)]
    add(graph, *names)
    join(graph, *pairwise(names))
    assert len(traversed(graph)) == 4_999
    sizes = [path.stat().st_size for path in Path(graph.uri, FOLDER).glob("*")]
    assert len(sizes) == 3
    assert min(sizes) > 4 * 4_096
    done = subprocess.run(
        [sys.executable, "-c", HOLDER, graph.uri, TEXT], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "4999\n"), done.stderr


def test_files_of_another_numbering_are_left_alone(people, tmp_path):
    """Two processes may have numbered the same ids differently."""
    traversed(people)
    ids = next(Path(people.uri, FOLDER).glob("ids-*"))
    ids.unlink()
    with Graph.open(people.uri) as other:
        other.append({"Person": pa.table({"name": ["0"]})})
        other.query("""query q() { match { $p: Person { name: "0" } } return { $p } }""").rows()
        assert traversed(other) == EXPECTED


def test_files_that_rely_on_a_numbering_that_is_gone_are_written_anew(people, read):
    """Else every later process would compute again."""
    people.mutate('query q() { delete Person where name = "c" }')
    traversed(people)
    for path in Path(people.uri, FOLDER).glob("ids-*"):
        path.unlink()
    for _ in range(2):
        read.clear()
        with Graph.open(people.uri) as other:
            other.query('query q() { match { $p: Person { name: "b" } } return { $p } }').rows()
            assert traversed(other) == [("a", "b")]
    assert {"src", "dst"}.isdisjoint(read)


def test_older_files_of_a_table_go(people):
    traversed(people)
    for number in range(3):
        add(people, *(f"n{number}{k}" for k in range(20)))
        traversed(people)
    assert len([name for name in files(people) if name.startswith("nodes-")]) == 1
    assert len([name for name in files(people) if name.startswith("ids-")]) == 1


def test_a_branch_uses_the_files_of_main(people, read):
    traversed(people)
    people.branches.create("b")
    join(people, ("c", "b"), branch="b")
    read.clear()
    with Graph.open(people.uri) as other:
        rows = [other.query(TEXT, branch="b").rows() for _ in range(2)][1]
    assert sorted((r["a.name"], r["b.name"]) for r in rows) == sorted([*EXPECTED, ("c", "b")])


EITHER = """query q() { match { $a: Person { name: "b" } $a <knows> $b } return { $b.name } }"""


def neighbours(graph):
    for _ in range(2):
        rows = graph.query(EITHER).rows()
    return sorted(row["b.name"] for row in rows)


@pytest.fixture
def merged(monkeypatch):
    """Filled whenever both directions are merged."""
    seen = []
    real = Adjacency.in_either_direction

    def counted(along, against):
        seen.append(len(along.targets))
        return real(along, against)

    monkeypatch.setattr(Adjacency, "in_either_direction", counted)
    return seen


def stored_types(graph):
    return {name.split("-")[0] for name in files(graph)}


def test_either_direction_is_stored_when_it_is_used_and_read_by_a_new_process(people, merged):
    traversed(people)
    assert "either" not in stored_types(people)
    assert neighbours(people) == ["a", "c"]
    assert merged == [3]
    assert "either" in stored_types(people)
    with Graph.open(people.uri, "r") as other:
        assert neighbours(other) == ["a", "c"]
    assert merged == [3]


def test_either_direction_is_extended_by_a_commit_and_stored_again(people, merged):
    traversed(people)
    neighbours(people)
    add(people, "d")
    join(people, ("d", "b"))
    assert neighbours(people) == ["a", "c", "d"]
    with Graph.open(people.uri, "r") as other:
        assert neighbours(other) == ["a", "c", "d"]
    assert merged == [3]
    assert len([name for name in files(people) if name.startswith("either-")]) == 1


def test_either_direction_of_an_older_version_or_damaged_is_merged_again(people, merged):
    traversed(people)
    neighbours(people)
    with Graph.open(people.uri, "rw") as other:
        add(other, "d")
        join(other, ("d", "b"))
    with Graph.open(people.uri, "r") as other:
        assert neighbours(other) == ["a", "c", "d"]
    for path in Path(people.uri, FOLDER).glob("either-*"):
        flip(path)
    with Graph.open(people.uri, "r") as other:
        assert neighbours(other) == ["a", "c", "d"]


# -- facts ------------------------------------------------------------------------------------


def facts(graph, key):
    pin = graph._handle.store.manifest(None).current().pins[key]
    return graph._handle.topology.facts(pin.location)


def test_the_first_plan_of_a_new_process_knows_what_an_earlier_one_measured(people):
    traversed(people)
    ages = "query q() { match { $a: Person  $a.age > 3  $a knows $b } return { $b.name } }"
    for _ in range(2):
        people.query(ages).rows()
    measured = {key: facts(people, key) for key in ("edge:Knows", "node:Person")}
    assert measured["edge:Knows"].degrees is not None
    assert "age" in measured["node:Person"].columns
    people.close()
    for mode in ("r", "rw"):
        with Graph.open(people.uri, mode=mode) as again:
            assert {key: facts(again, key) for key in measured} == measured
            plan = again.snapshot().explain(ages).to_json()
            assert {"Knows", "Person"} <= plan["statistics"].keys()


def test_facts_are_not_measured_again_until_the_table_has_changed(people, monkeypatch):
    traversed(people)
    people.close()
    calls = []
    real = measures.measured_degrees
    monkeypatch.setattr(
        measures, "measured_degrees", lambda *a, **k: calls.append(1) or real(*a, **k)
    )
    with Graph.open(people.uri) as again:
        traversed(again)
        assert calls == []
        join(again, ("c", "a"))
        traversed(again)
        assert calls == [1]


def test_damaged_or_foreign_facts_are_as_none(people):
    traversed(people)
    people.close()
    derived = DerivedFiles(people._handle.store.objects)
    for about in ({}, {"facts": {"columns": {"age": {"odd": 1}}, "degrees": None}, "rows": {}}):
        for name in files(people):
            if name.startswith("facts-"):
                derived.write(name, {}, about)
        with Graph.open(people.uri, mode="r") as again:
            assert facts(again, "edge:Knows").degrees is None
            assert pairs(again) == [("a", "b"), ("a", "c"), ("b", "c")]
