"""Overwrite, append and merge; branches that a load makes; what its receipt says."""

from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.errors import (
    BranchNotFound,
    CardinalityViolation,
    InputError,
    IntegrityError,
    KeyConflict,
    LoadError,
    OmniGraphError,
    OrphanEdge,
    PreconditionFailed,
    UniqueViolation,
    ValueViolation,
)
from tests.write.load.world import edge, listing, names, node, people, rows, write

pytestmark = pytest.mark.rotates(2)

MODES = ("merge", "append", "overwrite")
MIXED = [
    edge("Knows", "Eve", "Fay", since="2020-02-29", weight=0.25),
    *people("Eve", "Fay"),
    node("Note", text="hi", stars=5),
    node("Seat", row="A", number=1),
    node("Seat", row="A1", number=11),
]


def is_refused(graph, error, data, mode="merge", **options):
    """The load fails with that error and leaves every file as it was; gives the message."""
    before = listing(graph)
    with pytest.raises(error) as caught:
        graph.load(data, mode, **options)
    assert listing(graph) == before
    return caught.value.message


# -- what every mode does ---------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_load_fills_all_types_whatever_their_order(empty, mode):
    """Ids of keyed nodes are their keys, ends of edges are ids of nodes."""
    receipt = empty.load(MIXED, mode)
    assert rows(empty, "Person", "id", "name") == [("Eve", "Eve"), ("Fay", "Fay")]
    assert rows(empty, "Seat", "id") == [('["1","A"]',), ('["11","A1"]',)]
    assert [(s, d) for s, d in rows(empty, "Knows", "src", "dst")] == [("Eve", "Fay")]
    assert (receipt.affected_nodes, receipt.affected_edges, receipt.records) == (5, 1, 6)
    assert receipt.version == empty.snapshot().version == 2
    assert receipt.commit_id == empty.snapshot().commit_id


def test_ids_of_edges_are_new_and_not_empty(empty):
    empty.load([*people("A", "B"), *[edge("Knows", "A", "B") for _ in range(50)]])
    actual = [row_id for (row_id,) in rows(empty, "Knows", "id")]
    assert len(set(actual)) == 50
    assert all(actual)


def test_values_come_back_with_their_types(empty):
    data = {"slug": "a", "ok": True, "i64": -(2**63), "u64": 2**64 - 1, "vector": None}
    empty.load([node("Thing", **data), node("Thing", slug="b", vector=[1, 0.5, 2])])
    actual = rows(empty, "Thing", "slug", "ok", "i64", "u64", "text", "vector")
    assert actual == [
        ("a", True, -(2**63), 2**64 - 1, None, None),
        ("b", None, None, None, None, [1.0, 0.5, 2.0]),
    ]


def test_a_file_loads(filled, tmp_path):
    filled.load(write(tmp_path / "more.ndjson", people("Dan")))
    assert names(filled) == ["Ada", "Bob", "Cyd", "Dan"]


@pytest.mark.parametrize("mode", MODES)
def test_unknown_types_are_refused(filled, mode):
    assert "unknown node type 'Robot'" in is_refused(filled, LoadError, [node("Robot")], mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_key_twice_in_one_load_is_refused(filled, mode):
    """In every mode, and nothing of it is stored."""
    message = is_refused(filled, UniqueViolation, people("X", "Y", "X"), mode)
    assert message.startswith("<records>:3: @unique violation on Person.name")


@pytest.mark.parametrize("mode", MODES)
def test_an_empty_load_makes_no_commit(filled, tmp_path, mode):
    """Decision: nothing changed, so there is nothing to commit."""
    before = listing(filled)
    empty_file = tmp_path / "nothing.ndjson"
    empty_file.write_text("\n  \n\n")
    header = tmp_path / "Person.csv"
    header.write_text("name,age\n")
    for data in ([], empty_file, header, tmp_path / "Company.csv"):
        if data == tmp_path / "Company.csv":
            data.write_text("")
        receipt = filled.load(data, mode)
        assert (receipt.commit_id, receipt.tables, receipt.records) == (None, {}, 0)
    assert listing(filled) == before


def test_composite_keys_and_values_that_must_be_unique_together(empty):
    """The error names both columns; what only looks alike when joined stays apart."""
    separate = [node("Code", value=1, first="a,b", second="c"), node("Code", value=2, first="a")]
    empty.load([*separate, node("Code", value=3, first="a", second="b,c")])
    assert empty.snapshot().count("Code") == 3
    again = [node("Code", value=4, first="a", second="b,c")]
    message = is_refused(empty, UniqueViolation, again)
    assert "Code.(first, second)" in message


@pytest.mark.parametrize(
    ("bad", "error", "says"),
    [
        (edge("Knows", "Nobody", "Ada"), OrphanEdge, "src 'Nobody' not found in Person"),
        (edge("Knows", "Ada", "Nobody"), OrphanEdge, "dst 'Nobody' not found in Person"),
        (node("Person", name="X", age=151), ValueViolation, "@range violation on Person.age"),
        (node("Person", name="X", email="x"), ValueViolation, "@check violation on Person.email"),
        (node("Person", name="X", status="gone"), ValueViolation, "invalid enum value 'gone'"),
        (edge("WorksAt", "Ada", "Brim"), CardinalityViolation, "has 2 edges (max 1)"),
    ],
    ids=["src", "dst", "range", "check", "enum", "cardinality"],
)
@pytest.mark.parametrize("mode", ["merge", "append"])
def test_rules_are_kept(filled, mode, bad, error, says):
    """The error says which record; nothing moves, the next load works."""
    message = is_refused(filled, error, [*people("Fine"), bad], mode)
    assert message.startswith("<records>:2: ")
    assert says in message
    filled.load(people("Next"), mode)
    assert names(filled) == ["Ada", "Bob", "Cyd", "Next"]


def test_five_hundred_rows(empty):
    empty.load([node("Person", name=f"p{n:03}", age=n % 100) for n in range(500)])
    assert empty.snapshot().count("Person") == 500
    assert len([age for (age,) in rows(empty, "Person", "age") if age == 7]) == 5


# -- overwrite --------------------------------------------------------------------------------


def test_overwrite_replaces_the_tables_of_the_input_and_no_other(filled):
    receipt = filled.load([node("Note", text="new")], "overwrite")
    assert rows(filled, "Note", "text") == [("new",)]
    assert names(filled) == ["Ada", "Bob", "Cyd"]
    assert receipt.to_json()["tables"] == {
        "node:Note": {"inserted": 1, "updated": 0, "deleted": 1},
    }


def test_overwrite_judges_edges_by_the_new_nodes(filled):
    """An edge of the same load may end at a node of it, and not at one that goes."""
    data = [*people("Eve"), edge("Knows", "Eve", "Eve")]
    is_refused(filled, OrphanEdge, [*people("Eve"), edge("Knows", "Eve", "Ada")], "overwrite")
    filled.load([*data, *people("Ada"), edge("WorksAt", "Ada", "Acme")], "overwrite")
    assert names(filled) == ["Ada", "Eve"]
    assert rows(filled, "Knows", "src", "dst") == [("Eve", "Eve")]


def test_overwrite_of_nodes_that_edges_still_need_is_refused(filled):
    """Ada knows Bob, and the edge stays."""
    message = is_refused(filled, OrphanEdge, people("Ada", "Cyd"), "overwrite")
    assert "dst 'Bob' not found in Person" in message


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_load_that_failed_leaves_the_way_free(filled, mode):
    is_refused(filled, IntegrityError, [edge("Knows", "Ada", "Nobody")], mode)
    is_refused(
        filled,
        CardinalityViolation,
        [edge("WorksAt", "Bob", "Acme"), edge("WorksAt", "Bob", "Brim")],
        mode,
    )
    filled.load([edge("Knows", "Bob", "Ada")], mode)
    assert filled.snapshot().count("Knows") == (2 if mode == "append" else 1)


# -- append -----------------------------------------------------------------------------------


def test_append_adds_rows(filled):
    """The graph counts all of them."""
    receipt = filled.load(people("Dan", "Eve"), "append")
    assert filled.snapshot().count("Person") == 5
    assert receipt.tables["node:Person"].inserted == 2


@pytest.mark.parametrize(
    "row", [node("Person", name="Ada"), node("Note", id="n1", text="again")], ids=["key", "id"]
)
def test_append_of_an_id_that_is_there_is_a_conflict(filled, row):
    message = is_refused(filled, KeyConflict, [row], "append")
    assert message.startswith("<records>:1: ")


def test_append_of_a_unique_value_that_is_there_is_refused(filled):
    """Texts and days alike."""
    taken = node("Person", name="X", email="cyd@x")
    assert "Person.email" in is_refused(filled, UniqueViolation, [taken], "append")
    taken = node("Person", name="X", born="1990-01-01")
    assert "Person.born" in is_refused(filled, UniqueViolation, [taken], "append")
    filled.load([node("Person", name="X", email="x@x", born="1990-01-02")], "append")
    assert filled.snapshot().count("Person") == 4


# -- merge ------------------------------------------------------------------------------------


def test_merge_replaces_whole_rows_adds_new_ones_and_leaves_the_rest(filled):
    """A property that is not given is null from now on."""
    receipt = filled.load([node("Person", name="Cyd", age=31), node("Person", name="Dan")])
    assert rows(filled, "Person", "name", "age", "email") == [
        ("Ada", None, None),
        ("Bob", None, None),
        ("Cyd", 31, None),
        ("Dan", None, None),
    ]
    counts = receipt.tables["node:Person"]
    assert (counts.inserted, counts.updated) == (1, 1)


@pytest.mark.parametrize("form", ["records", "csv", "table"])
def test_a_property_that_a_merge_leaves_out_is_null_afterwards(filled, tmp_path, form):
    """A row is replaced whole, whatever its new version comes as; edges too, by their ids."""
    filled.load([node("Person", name="Zed", age=3), edge("Knows", "Zed", "Zed", id="k", weight=1)])
    (tmp_path / "Person.csv").write_text("name\nZed\n")
    (tmp_path / "Knows.csv").write_text("id,from,to\nk,Zed,Zed\n")
    data = {
        "records": [node("Person", name="Zed"), edge("Knows", "Zed", "Zed", id="k")],
        "csv": [tmp_path / "Person.csv", tmp_path / "Knows.csv"],
        "table": {
            "Person": pa.table({"name": ["Zed"]}),
            "Knows": pa.table({"id": ["k"], "from": ["Zed"], "to": ["Zed"]}),
        },
    }
    filled.load(data[form])
    assert ("Zed", None) in rows(filled, "Person", "id", "age")
    assert ("k", None) in rows(filled, "Knows", "id", "weight")


def test_merges_repeat_also_over_indexes(filled):
    """No branch and no other trace is left by a load."""
    for age in (1, 2):
        filled.load([node("Person", name="Ada", age=age), node("Person", name=f"N{age}")])
    filled.indexes.ensure()
    for age in (3, 4):
        filled.load([node("Person", name="Ada", age=age), node("Person", name=f"N{age}")])
    assert [age for name, age in rows(filled, "Person", "name", "age") if name == "Ada"] == [4]
    assert filled.snapshot().count("Person") == 7
    assert filled.branches.list() == ["main"]
    assert not [path for path in listing(filled) if path.startswith("__recovery/")]


def test_merge_of_a_row_with_its_own_unique_value_is_fine(filled):
    filled.load([node("Person", name="Cyd", email="cyd@x", age=32)])
    assert ("Cyd", 32) in rows(filled, "Person", "name", "age")


def test_a_unique_value_may_move_within_one_merge(filled):
    """The row that held it is replaced by the same load."""
    filled.load([node("Person", name="Cyd"), node("Person", name="Ada", email="cyd@x")])
    assert ("Ada", "cyd@x") in rows(filled, "Person", "name", "email")


def test_of_an_edge_that_is_listed_twice_the_last_counts(filled):
    """Once, at its last place."""
    filled.load(
        [
            edge("WorksAt", "Bob", "Acme", id="w2", title="first"),
            edge("WorksAt", "Bob", "Brim", id="w2", title="last"),
            edge("WorksAt", "Ada", "Brim", id="w1", title="moved"),
        ]
    )
    assert rows(filled, "WorksAt", "id", "src", "dst", "title") == [
        ("w1", "Ada", "Brim", "moved"),
        ("w2", "Bob", "Brim", "last"),
    ]


def test_a_source_that_an_edge_leaves_is_judged_again(filled):
    """Signs needs at least one edge of everybody who has one."""
    filled.load([edge("Signs", "Ada", "n1", id="s1"), edge("Signs", "Bob", "n1", id="s2")])
    message = is_refused(filled, CardinalityViolation, [edge("Signs", "Bob", "n1", id="s1")])
    assert "source 'Ada' has 0 edges (min 1)" in message


def test_nodes_without_a_key_merge_by_a_given_id(filled):
    """They get a new one where none is given."""
    filled.load([node("Note", id="n1", text="changed"), node("Note", text="new")])
    actual = rows(filled, "Note", "id", "text")
    assert ("n1", "changed") in actual
    assert len(actual) == 2


# -- ids and properties -----------------------------------------------------------------------


def test_an_id_that_equals_the_key_is_accepted(filled):
    """Decision: as text, or as the number that the key is."""
    filled.load([node("Person", id="Dan", name="Dan"), node("Code", id=7, value=7)])
    filled.load([node("Code", id="8", value=8), node("Seat", id='["1","A"]', row="A", number=1)])
    assert rows(filled, "Code", "id") == [("7",), ("8",)]


def test_values_beside_data_are_ignored_and_counted(filled):
    """They look like properties, and are read by nobody."""
    records = [
        {"edge": "Knows", "from": "Ada", "to": "Bob", "weight": 1.5},
        {"type": "Note", "stars": 5, "data": {"text": "a"}},
        {"type": "Note", "stars": 4, "data": {"text": "b"}},
    ]
    receipt = filled.load(records)
    assert receipt.ignored == {
        "Knows.weight beside data": 1,
        "Note.stars beside data": 2,
    }
    assert len(receipt.warnings) == 2
    assert receipt.affected_nodes == 2


@pytest.mark.parametrize(
    ("record", "field"),
    [
        ({"edge": "Knows", "from": "Ada", "to": "Bob", "weight": 1.5}, "weight"),
        ({"type": "Person", "age": 5, "data": {"name": "Dan"}}, "age"),
        ({"type": "Person", "from": "Ada", "data": {"name": "Dan"}}, "from"),
    ],
)
def test_strict_properties_refuse_values_beside_data(filled, record, field):
    message = is_refused(filled, LoadError, [record], strict_properties=True)
    assert f"unknown field '{field}' beside 'data'" in message
    assert message.endswith("move it into 'data'")


def test_unknown_properties_are_ignored_and_counted(filled):
    """Decision: per property, with a warning for the caller."""
    receipt = filled.load(
        [
            node("Person", name="Dan", nick="d", shoe=43),
            node("Person", name="Eve", nick=None),
            edge("Knows", "Dan", "Eve", how="well"),
        ]
    )
    assert receipt.ignored == {"Person.nick": 2, "Person.shoe": 1, "Knows.how": 1}
    assert receipt.warnings == (
        "Knows.how is not in the schema: ignored in 1 record",
        "Person.nick is not in the schema: ignored in 2 records",
        "Person.shoe is not in the schema: ignored in 1 record",
    )
    assert names(filled) == ["Ada", "Bob", "Cyd", "Dan", "Eve"]


def test_unknown_properties_can_be_refused(filled):
    data = [*people("Dan"), node("Person", name="Eve", nick="e")]
    message = is_refused(filled, LoadError, data, strict_properties=True)
    assert message == "<records>:2: Person has no property 'nick'"


# -- branches ---------------------------------------------------------------------------------


def test_a_missing_branch_is_made_from_a_base(filled):
    """Once; later loads name the base and merge into what is there."""
    first = filled.load(people("Dan"), branch="review", from_branch="main")
    assert (first.branch, first.base_branch, first.branch_created) == ("review", "main", True)
    second = filled.load(people("Eve"), branch="review", from_branch="main")
    assert (second.base_branch, second.branch_created) == ("main", False)
    assert names(filled, branch="review") == ["Ada", "Bob", "Cyd", "Dan", "Eve"]
    assert names(filled) == ["Ada", "Bob", "Cyd"]
    assert list(second.to_json()["tables"]) == sorted(second.tables)


def test_a_load_onto_a_missing_branch_without_a_base_fails(filled, tmp_path):
    """Before anything is read, and creates nothing."""
    is_refused(filled, BranchNotFound, tmp_path / "not there", branch="review")
    assert filled.branches.list() == ["main"]


@pytest.mark.parametrize(
    "data",
    [
        [edge("Knows", "Ada", "Nobody")],
        [node("Person", name="X", age=-1)],
        [node("Person")],
        people("X", "X"),
        [node("Person", name="X", email="cyd@x")],
        "not there.ndjson",
    ],
    ids=["orphan", "range", "required", "key", "unique", "file"],
)
def test_a_refused_load_makes_no_branch(filled, data):
    """The branch is made once the data is found good."""
    is_refused(filled, OmniGraphError, data, branch="review", from_branch="main")
    assert filled.branches.list() == ["main"]


def test_a_load_whose_condition_fails_makes_no_branch(filled):
    stale = filled.snapshot().commit_id
    filled.load(people("Dan"))
    is_refused(
        filled, PreconditionFailed, people("E"), branch="r", from_branch="main", if_commit=stale
    )
    newest = filled.snapshot().commit_id
    filled.load(people("E"), branch="r", from_branch="main", if_commit=newest)
    assert filled.branches.list() == ["main", "r"]


@pytest.mark.parametrize("data", [[], [node("Robot")]], ids=["no record", "no good one"])
def test_an_empty_load_makes_no_branch(filled, data):
    receipt = filled.load(data, branch="review", from_branch="main", max_rejects=1)
    assert (receipt.commit_id, receipt.branch_created) == (None, False)
    assert filled.branches.list() == ["main"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
@pytest.mark.parametrize("phase", ["reading", "checking", "writing"])
def test_a_load_that_is_stopped_leaves_no_branch(filled, phase, error):
    def stop(at):
        if at.phase == phase:
            raise error

    before = filled.branches.list()
    with pytest.raises(error):
        filled.load(people("Dan"), branch="review", from_branch="main", on_progress=stop)
    assert filled.branches.list() == before
    assert filled.load(people("Dan"), branch="review", from_branch="main").branch_created


def test_a_load_that_is_stopped_leaves_a_branch_that_was_there(filled):
    def stop(at):
        if at.phase == "writing":
            raise KeyboardInterrupt

    filled.branches.create("review")
    with pytest.raises(KeyboardInterrupt):
        filled.load(people("Dan"), branch="review", from_branch="main", on_progress=stop)
    assert filled.branches.list() == ["main", "review"]


def test_the_actor_lands_on_the_commit(filled):
    filled.load(people("Dan"), branch="review", from_branch="main", actor="ann")
    assert filled.commits("review")[0].actor == "ann"


def test_a_load_with_a_key_happens_once(filled):
    """A repeat is told what the first call was told."""
    first = filled.load(people("Dan"), idempotency_key="k")
    again = filled.load(people("Dan"), idempotency_key="k")
    assert (again.commit_id, again.version) == (first.commit_id, first.version)
    assert filled.snapshot().version == first.version


# -- dry runs, progress, receipts -------------------------------------------------------------


def test_a_dry_run_writes_nothing(filled):
    before = listing(filled)
    receipt = filled.load([*people("Dan"), edge("Knows", "Dan", "Ada", how="well")], dry_run=True)
    assert receipt.dry_run
    assert (receipt.commit_id, receipt.tables, receipt.records) == (None, {}, 2)
    assert (receipt.affected_nodes, receipt.affected_edges) == (1, 1)
    assert receipt.ignored == {"Knows.how": 1}
    receipt = filled.load(people("Dan"), branch="new", from_branch="main", dry_run=True)
    assert (receipt.branch, receipt.branch_created) == ("new", False)
    assert listing(filled) == before
    assert filled.branches.list() == ["main"]


def test_a_dry_run_of_a_branch_that_cannot_be_is_refused(filled):
    filled.branches.create("review")
    before = listing(filled)
    for branch in ("review/x", "a b"):
        with pytest.raises(OmniGraphError):
            filled.load(people("X"), branch=branch, from_branch="main", dry_run=True)
    with pytest.raises(BranchNotFound):
        filled.load(people("X"), branch="other", dry_run=True)
    assert listing(filled) == before


def test_progress_is_told(empty):
    """Once for every batch, then before the rows are checked and written."""
    reported = []
    empty.load(people(*(f"p{n}" for n in range(40_000))), on_progress=reported.append)
    assert [p.phase for p in reported] == ["reading", "reading", "reading", "checking", "writing"]
    assert [p.done for p in reported] == [16_384, 32_768, 40_000, 40_000, 40_000]
    assert {p.detail["rejected"] for p in reported} == {0}


ADD = 'query q() { insert Person { name: "Eve" } }'
WRITES = {
    "the same table": lambda graph: graph.mutate(ADD),
    "another load": lambda graph: graph.load(people("Eve")),
    "rows": lambda graph: graph.append({"Person": pa.table({"name": ["Eve"]})}),
    "a branch": lambda graph: graph.branches.create("review"),
    "a tag": lambda graph: graph.tags.create("v1"),
    "indexes": lambda graph: graph.indexes.ensure(),
}


@pytest.mark.parametrize(
    ("phase", "write"),
    [("reading", one) for one in WRITES]
    + [("checking", "the same table"), ("writing", "the same table")],
)
def test_who_is_told_cannot_write_to_the_graph_that_is_loaded(filled, phase, write):
    """It would wait for itself."""
    before = listing(filled)

    def meddle(at):
        if at.phase == phase:
            with Graph.open(filled.uri) as another:
                assert another.snapshot().count("Person")
                WRITES[write](another)

    with pytest.raises(InputError, match="a progress callback cannot write") as caught:
        filled.load(people("Dan"), on_progress=meddle)
    assert "after the call has returned" in caught.value.hint
    assert listing(filled) == before
    assert filled.load(people("Dan"), on_progress=lambda at: None).commit_id is not None


def test_who_is_told_may_write_to_another_graph(filled, tmp_path):
    with Graph.init(tmp_path / "log.omni", "node Step { name: String @key }") as log:
        filled.load(
            people("Dan"),
            on_progress=lambda at: log.load([{"type": "Step", "data": {"name": at.phase}}]),
        )
        assert log.snapshot().count("Step") == 3


def test_the_receipt_as_data(filled):
    receipt = filled.load(people("Dan"), branch="review", from_branch="main", actor="ann")
    assert receipt.to_json() == {
        "commit_id": receipt.commit_id,
        "version": receipt.version,
        "branch": "review",
        "actor": "ann",
        "affected_nodes": 1,
        "affected_edges": 0,
        "tables": {"node:Person": {"inserted": 1, "updated": 0, "deleted": 0}},
        "met": {"node:Person": 1},
        "base_branch": "main",
        "branch_created": True,
        "records": 1,
        "rejected": 0,
        "ignored": {},
        "warnings": [],
        "dry_run": False,
    }
