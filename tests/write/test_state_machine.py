"""Every kind of write, on several branches, in any order, beside a model of plain dicts.

After each step the rows are read back by plain Lance from what the manifest says on disk, and by
a handle that did not write. At the end every earlier commit still shows what it showed then, and
so does a graph that is opened afresh.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import lance
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from omnigraph import Graph
from omnigraph.errors import PreconditionFailed
from tests.commit.world import manifest_rows
from tests.write import model

pytestmark = pytest.mark.rotates(3)

# -- what may be asked ------------------------------------------------------------------------

people = st.sampled_from("abcd")
notes = st.sampled_from(["n1", "n2", "n3"])
numbers = st.sampled_from([None, 0, 1, 2, 3, 50, 60, 100, 101])
mails = st.sampled_from([None, None, None, "x", "y", "z"])
small = st.none() | st.integers(0, 3)

ROWS = {
    "Person": st.fixed_dictionaries({"age": numbers, "mail": mails}),
    "Note": st.fixed_dictionaries({"n": small}),
    "Knows": st.fixed_dictionaries({"src": people, "dst": people, "w": small}),
    "About": st.fixed_dictionaries({"src": notes, "dst": people}),
}
CONDITIONS = {
    "Person": st.tuples(st.just("id"), st.just("="), people)
    | st.tuples(st.just("age"), st.sampled_from(["=", "<", "is null"]), st.integers(0, 60))
    | st.tuples(st.just("mail"), st.sampled_from(["=", "is null"]), st.sampled_from("xyz")),
    "Note": st.tuples(st.just("n"), st.sampled_from(["=", "<", "is null"]), st.integers(0, 4)),
    "Knows": st.tuples(st.sampled_from(["src", "dst"]), st.just("="), people)
    | st.tuples(st.just("w"), st.sampled_from(["=", "<", "is null"]), st.integers(0, 4)),
    "About": st.tuples(st.just("src"), st.just("="), notes)
    | st.tuples(st.just("dst"), st.just("="), people),
}
CHANGES = {
    "Person": st.tuples(st.just("age"), numbers) | st.tuples(st.just("mail"), mails),
    "Note": st.tuples(st.just("n"), small),
    "Knows": st.tuples(st.just("w"), small),
}


def inserts(kind):
    ids = people if kind == "Person" else st.none()
    return st.tuples(st.just("insert"), st.just(kind), ids, ROWS[kind])


def updates(kind):
    return st.tuples(st.just("update"), st.just(kind), CONDITIONS[kind], CHANGES[kind])


def deletes(kind):
    return st.tuples(st.just("delete"), st.just(kind), CONDITIONS[kind])


constructive = st.lists(
    st.one_of(*map(inserts, ROWS), inserts("Person"), *map(updates, CHANGES)),
    min_size=1,
    max_size=4,
)
destructive = st.lists(st.one_of(*map(deletes, CONDITIONS)), min_size=1, max_size=2)
IDS = {
    "Person": people,
    "Note": st.none() | notes,
    "Knows": st.none() | st.sampled_from(["k1", "k2", "k3"]),
    "About": st.none() | st.sampled_from(["a1", "a2"]),
}
loads = st.lists(
    st.one_of(*(st.tuples(st.just(kind), IDS[kind], ROWS[kind]) for kind in ROWS)), max_size=3
)
START = [
    *(("Person", name, {"age": 50, "mail": None}) for name in "abcd"),
    *(("Note", name, {"n": 1}) for name in ("n1", "n2", "n3")),
    ("Knows", "k1", {"src": "a", "dst": "b", "w": 1}),
    ("About", "a1", {"src": "n1", "dst": "a"}),
]
handles = st.sampled_from(["graph", "other"])


# -- the machine ------------------------------------------------------------------------------


class Writes(RuleBasedStateMachine):
    """Two handles of one graph, and the model of each of its branches."""

    branches = Bundle("branches")
    template: Path

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="omnigraph-machine-")
        self.path = Path(self.folder.name, "g.omni")
        shutil.copytree(self.template, self.path)
        self.graph = Graph.open(self.path, durability="os")
        self.other = Graph.open(self.path, durability="os")
        self.states = {"main": model.load(model.empty(), "append", START).state}
        self.touched = {"main"}
        self.history = {}
        self.keys = 0
        self.remember("main")

    @initialize(target=branches)
    def begin(self):
        return "main"

    # -- writing -------------------------------------------------------------------------

    @rule(branch=branches, statements=constructive, handle=handles, again=st.booleans())
    def insert_and_update(self, branch, statements, handle, again):
        self.mutate(branch, statements, handle, again)

    @rule(branch=branches, statements=destructive, handle=handles, again=st.booleans())
    def delete(self, branch, statements, handle, again):
        self.mutate(branch, statements, handle, again)

    def mutate(self, branch, statements, handle, again):
        text = model.query(statements)
        expected = model.mutate(self.states[branch], statements)
        receipt = self.write(branch, expected, handle, again, "mutate", text)
        if receipt is not None:
            assert (receipt.affected_nodes, receipt.affected_edges) == expected.affected

    @rule(
        branch=branches,
        mode=st.sampled_from(["merge", "append", "overwrite"]),
        rows=loads,
        handle=handles,
        again=st.booleans(),
    )
    def load(self, branch, mode, rows, handle, again):
        expected = model.load(self.states[branch], mode, rows)
        data = model.records(rows)
        self.write(branch, expected, handle, again, "load", data, mode)

    def write(self, branch, expected, handle, again, verb, *given):
        """Do it, and see that the outcome is the expected one; a repeat is told the same."""
        head = self.graph.snapshot(branch).commit_id
        self.keys += 1
        how = {"branch": branch, "if_commit": head, "idempotency_key": f"key {self.keys}"}
        if not again:
            how = {"branch": branch}
        self.touched.add(branch)
        if expected.errors:
            with pytest.raises(expected.errors):
                getattr(getattr(self, handle), verb)(*given, **how)
            assert self.graph.snapshot(branch).commit_id == head
            return None
        receipt = getattr(getattr(self, handle), verb)(*given, **how)
        assert (receipt.commit_id is not None) is expected.commits
        assert (self.graph.snapshot(branch).commit_id != head) is expected.commits
        self.states[branch] = model.with_ids(expected.state, raw(self.path, branch))
        self.remember(branch)
        if again and expected.commits:
            second = self.other if handle == "graph" else self.graph
            repeated = getattr(second, verb)(*given, **how)
            assert (repeated.commit_id, repeated.version) == (receipt.commit_id, receipt.version)
            assert repeated.tables == receipt.tables
        return receipt

    @rule(branch=branches, row=ROWS["Note"])
    def write_on_top_of_an_older_commit(self, branch, row):
        commits = self.graph.commits(branch)
        if len(commits) > 1:
            text = model.query([("insert", "Note", None, row)])
            with pytest.raises(PreconditionFailed):
                self.graph.mutate(text, branch=branch, if_commit=commits[1].commit_id)

    # -- everything else -----------------------------------------------------------------

    @rule(branch=branches)
    def build_indexes(self, branch):
        self.graph.indexes.ensure(branch)
        self.touched.add(branch)
        self.remember(branch)

    @precondition(lambda self: len(self.states) < 3)
    @rule(target=branches, source=branches)
    def create_branch(self, source):
        name = f"b{len(self.states)}"
        self.graph.branches.create(name, source)
        self.states[name] = self.states[source]
        self.touched.add(name)
        return name

    @rule(handle=handles)
    def reopen(self, handle):
        getattr(self, handle).close()
        setattr(self, handle, Graph.open(self.path, durability="os"))

    def remember(self, branch):
        commit = self.graph.snapshot(branch).commit_id
        self.history[commit] = self.states[branch]

    # -- reading back --------------------------------------------------------------------

    @invariant()
    def every_reader_sees_the_model(self):
        for branch in sorted(self.touched):
            assert raw(self.path, branch) == self.states[branch]
            for handle in (self.graph, self.other):
                assert shown(handle.snapshot(branch)) == self.states[branch]
        self.touched.clear()

    def teardown(self):
        try:
            with Graph.open(self.path, "r") as fresh:
                assert fresh.recovered == ()
                for branch, state in self.states.items():
                    assert raw(self.path, branch) == state
                    assert shown(fresh.snapshot(branch)) == state
                for commit, state in self.history.items():
                    assert shown(fresh.snapshot(commit=commit)) == state
            assert self.graph._handle.store.sidecars.list() == []
        finally:
            self.graph.close()
            self.other.close()
            self.folder.cleanup()


def shown(snapshot):
    """What a snapshot shows, as the model has it."""
    return {
        kind: _by_id(snapshot.read(kind, ["id", *columns]), columns)
        for kind, columns in model.COLUMNS.items()
    }


def raw(path, branch):
    """What the newest manifest of a branch names, read by plain Lance."""
    pins, locations = {}, {}
    for row in manifest_rows(path, None if branch == "main" else branch).values():
        key = row["table_key"]
        if row["object_type"] == "table":
            locations[key] = row["location"]
        elif row["object_type"] == "table_version":
            existing = pins.get(key)
            if existing is None or row["table_version"] > existing["table_version"]:
                pins[key] = row
    matches = {}
    for kind, columns in model.COLUMNS.items():
        key = f"edge:{kind}" if kind in model.ENDS else f"node:{kind}"
        pin = pins[key]
        tree = ("tree", pin["table_branch"]) if pin["table_branch"] else ()
        table = lance.dataset(str(Path(path, locations[key], *tree)), version=pin["table_version"])
        rows = table.to_table(columns=["id", *columns])
        assert rows.num_rows == pin["row_count"]
        matches[kind] = _by_id(rows, columns)
    return matches


def _by_id(rows, columns):
    actual = {row["id"]: {name: row[name] for name in columns} for row in rows.to_pylist()}
    assert len(actual) == rows.num_rows
    return actual


@pytest.mark.property
def test_every_reader_agrees_with_the_model(tmp_path):
    """Inserts, upserts, updates, deletes, loads, index builds, on several branches."""
    with Graph.init(tmp_path / "template.omni", model.SCHEMA, durability="os") as graph:
        graph.load(model.records(START))
    Writes.template = tmp_path / "template.omni"
    many = settings().max_examples > 1_000
    run_state_machine_as_test(
        Writes,
        settings=settings(
            max_examples=150 if many else 6,
            stateful_step_count=50 if many else 25,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
