"""Records that are set aside: how many may be, where they are written, what they pull along."""

from __future__ import annotations

import json

import pytest

from omnigraph.errors import CardinalityViolation, InputError, LoadError, OrphanEdge
from tests.write.load.world import edge, listing, names, node, people, rows, write

BAD = [
    node("Person", name="X1", age=-1),
    node("Person", name="X2", age="old"),
    node("Robot"),
    edge("Knows", "Ada", "Nobody"),
    node("Person", name="Ada2", email="a@x"),
    node("Person", name="Ada3", email="a@x"),
]
GOOD = people("Ada", "Bob")


def read(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_load_is_strict_unless_told_otherwise(empty):
    with pytest.raises(LoadError):
        empty.load([*GOOD, BAD[1]])
    assert empty.snapshot().version == 1


def test_bad_records_are_set_aside_and_the_others_loaded(empty, tmp_path):
    """One JSON object a line: file, line, field, value and reason."""
    path = write(tmp_path / "a.ndjson", [*GOOD, *BAD])
    receipt = empty.load(path, rejects=tmp_path / "rejects.ndjson")
    assert names(empty) == ["Ada", "Ada2", "Bob"]
    assert (receipt.rejected, receipt.records) == (5, 7)
    actual = sorted(read(tmp_path / "rejects.ndjson"), key=lambda reject: reject["line"])
    assert [list(reject) for reject in actual] == [["file", "line", "field", "value", "reason"]] * 5
    assert {reject["file"] for reject in actual} == {str(path)}
    assert [(r["line"], r["field"], r["value"]) for r in actual] == [
        (3, "age", "-1"),
        (4, "age", "old"),
        (5, "type", "Robot"),
        (6, "to", "Nobody"),
        (8, "email", "a@x"),
    ]
    assert actual[1]["reason"] == "Person.age: old is not an I32"


def test_values_of_any_characters_are_written(empty, tmp_path):
    path = tmp_path / "a.ndjson"
    path.write_text('{"type": "Person", "data": {"name": "\\ud800"}}\n{"type": "Zoë☃"}')
    empty.load(path, rejects=tmp_path / "rejects")
    assert [r["value"] for r in read(tmp_path / "rejects")] == ["\\ud800", "Zoë☃"]


@pytest.mark.parametrize("allowed", range(5))
def test_one_too_many_refuses_the_load(empty, tmp_path, allowed):
    before = listing(empty)
    path = write(tmp_path / "a.ndjson", [*GOOD, *BAD])
    with pytest.raises(Exception, match=r"a\.ndjson:\d+: "):
        empty.load(path, max_rejects=allowed, rejects=tmp_path / "rejects")
    assert listing(empty) == before
    assert len(read(tmp_path / "rejects")) == allowed


def test_exactly_as_many_as_allowed(empty):
    assert empty.load([*GOOD, *BAD], max_rejects=5).rejected == 5


def test_the_error_is_that_of_the_rule(empty):
    """As without rejects: programs tell an orphan from a number that does not fit."""
    with pytest.raises(OrphanEdge) as caught:
        empty.load([*GOOD, edge("Knows", "Ada", "X"), edge("Knows", "Ada", "Y")], max_rejects=1)
    assert caught.value.message.startswith("<records>:4: ")
    assert caught.value.details["value"] == "Y"


# -- what they pull along ---------------------------------------------------------------------


def test_a_node_that_is_set_aside_takes_its_edges_along(empty):
    """Its edges, and what those were needed for, until nothing is wrong any more."""
    data = [
        *people("Ada"),
        node("Person", name="Bob", age=999),
        edge("Knows", "Ada", "Bob"),
        edge("Knows", "Bob", "Ada"),
        edge("Knows", "Ada", "Ada", weight=1.0),
    ]
    receipt = empty.load(data, max_rejects=9)
    assert receipt.rejected == 3
    assert rows(empty, "Knows", "src", "dst") == [("Ada", "Ada")]


def test_a_long_chain_of_consequences_ends(empty):
    """Each edge too many is set aside, one after the other."""
    companies = [node("Company", name=f"c{n}") for n in range(80)]
    jobs = [edge("WorksAt", "Ada", f"c{n}", title=str(n)) for n in range(80)]
    receipt = empty.load([*people("Ada"), *companies, *jobs], max_rejects=100)
    assert receipt.rejected == 79
    assert rows(empty, "WorksAt", "title") == [("0",)]


def test_of_rows_with_one_key_the_first_stays(empty):
    data = [node("Person", name="Ada", age=age) for age in (1, 2, 3)]
    assert empty.load(data, max_rejects=9).rejected == 2
    assert rows(empty, "Person", "age") == [(1,)]


def test_what_breaks_a_row_that_is_there_cannot_be_set_aside(filled):
    """Overwriting people without Bob would leave Ada's edge to him."""
    with pytest.raises(OrphanEdge):
        filled.load(people("Ada", "Cyd"), "overwrite", max_rejects=99)
    filled.load([edge("Signs", "Ada", "n1", id="s1")])
    with pytest.raises(CardinalityViolation):
        filled.load([edge("Signs", "Bob", "n1", id="s1")], max_rejects=0)


def test_nothing_left_makes_no_commit(empty):
    receipt = empty.load([node("Person"), node("Robot")], max_rejects=9)
    assert (receipt.commit_id, receipt.rejected) == (None, 2)


def test_overwrite_with_nothing_left_of_a_type_is_refused(filled):
    """A mistake in every record must not look like the wish to delete every row."""
    before = filled.snapshot().count("Note")
    with pytest.raises(InputError, match="every record of Note was set aside"):
        filled.load([node("Note", text=None)], "overwrite", max_rejects=9)
    assert filled.snapshot().count("Note") == before


# -- beside other options ---------------------------------------------------------------------


def test_a_dry_run_reports_the_same_rejects(empty, tmp_path):
    before = listing(empty)
    dry = empty.load([*GOOD, *BAD], rejects=tmp_path / "dry", dry_run=True)
    assert listing(empty) == before
    wet = empty.load([*GOOD, *BAD], rejects=tmp_path / "wet")
    assert (dry.rejected, dry.records) == (wet.rejected, wet.records)
    assert read(tmp_path / "dry") == read(tmp_path / "wet")


def test_unknown_properties_can_be_set_aside(empty):
    receipt = empty.load(
        [node("Person", name="Ada", nick="a"), *people("Bob")],
        strict_properties=True,
        max_rejects=1,
    )
    assert (names(empty), receipt.rejected, receipt.ignored) == (["Bob"], 1, {})


def test_progress_counts_them(empty):
    reported = []
    empty.load([*GOOD, *BAD], max_rejects=9, on_progress=reported.append)
    assert reported[-1].detail == {"rejected": 5}


def test_a_file_that_cannot_be_written_is_known_first(empty, tmp_path):
    with pytest.raises(InputError, match="cannot write"):
        empty.load(GOOD, rejects=tmp_path / "no" / "rejects")
    assert empty.snapshot().version == 1


# -- the file itself --------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / "a.ndjson", [*GOOD, BAD[0]])


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("several", [False, True])
def test_a_file_that_is_loaded_is_never_written_over(empty, source, tmp_path, dry_run, several):
    """By its name, by another spelling of it, by a link, or as one of several."""
    before = source.read_bytes()
    other = write(tmp_path / "b.ndjson", people("Eve"))
    (tmp_path / "soft").symlink_to(source)
    (tmp_path / "hard").hardlink_to(source)
    spelled = tmp_path / "." / ".." / tmp_path.name / "a.ndjson"
    data = [other, source] if several else source
    for path in (source, str(source), spelled, tmp_path / "soft", tmp_path / "hard"):
        with pytest.raises(InputError, match="which is loaded") as caught:
            empty.load(data, rejects=path, dry_run=dry_run)
        assert caught.value.hint == "name another file for them"
    assert source.read_bytes() == before
    assert empty.snapshot().version == 1


def test_nor_one_that_comes_late_or_open(empty, source, tmp_path):
    before = source.read_bytes()
    first = write(tmp_path / "b.ndjson", [BAD[1]])
    with pytest.raises(InputError, match="which is loaded"):
        empty.load(iter([first, source]), rejects=source)
    with source.open("rb") as file, pytest.raises(InputError, match="which is loaded"):
        empty.load(file, rejects=source)
    assert source.read_bytes() == before


@pytest.mark.parametrize("location", ["nodes/Person.parquet", "nodes/new.ndjson", "rejects"])
def test_nor_anything_in_a_directory_that_is_loaded(filled, tmp_path, location):
    filled.snapshot().export(tmp_path / "out", format="parquet")
    actual = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    with pytest.raises(InputError, match="which is loaded"):
        filled.load(tmp_path / "out", rejects=tmp_path / "out" / location)
    after = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert after == actual


def test_a_missing_file_is_not_made_by_naming_it_twice(empty, tmp_path):
    with pytest.raises(InputError, match="which is loaded"):
        empty.load(tmp_path / "none.ndjson", rejects=tmp_path / "none.ndjson")
    assert not (tmp_path / "none.ndjson").exists()


def test_what_an_older_load_rejected_is_replaced(empty, tmp_path):
    (tmp_path / "rejects").write_text("old\n")
    empty.load(GOOD, rejects=tmp_path / "rejects")
    assert (tmp_path / "rejects").read_text() == ""
