"""Records of newer releases of the reference, which have the id beside ``data``."""

from __future__ import annotations

import json

import pytest

from omnigraph.errors import LoadError
from tests.write.load.test_modes import is_refused
from tests.write.load.world import edge, node, rows, write


def notes(graph):
    return {given for (given,) in rows(graph, "Note", "id")}


def beside(given, record):
    """The record with its id beside its data."""
    return {**record, "id": given}


NEWER = [
    beside("Dan", node("Person", name="Dan", age=4)),
    beside('["7","B"]', node("Seat", row="B", number=7)),
    beside("9", node("Code", value=9)),
    beside("m1", node("Note", text="hi")),
    beside("e1", edge("Knows", "Dan", "Ada", weight=2.5)),
]
OLDER = [
    node("Person", name="Dan", age=4),
    node("Seat", row="B", number=7),
    node("Code", value=9),
    node("Note", id="m1", text="hi"),
    edge("Knows", "Dan", "Ada", id="e1", weight=2.5),
]


@pytest.mark.parametrize("form", ["records", "file", "pretty"])
@pytest.mark.parametrize("mode", ["merge", "append"])
def test_they_load_as_the_older_form_does(filled, tmp_path, form, mode):
    """Both may stand in one file, and a repeat under one key is the same load in either form."""
    path = write(tmp_path / "newer.ndjson", NEWER)
    if form == "pretty":
        path.write_text("\n".join(json.dumps(record, indent=1) for record in NEWER))
    first = filled.load(NEWER if form == "records" else path, mode, idempotency_key="once")
    assert (first.affected_nodes, first.affected_edges, first.ignored) == (4, 1, {})
    assert ("Dan", 4) in rows(filled, "Person", "id", "age")
    assert ('["7","B"]',) in rows(filled, "Seat", "id")
    assert ("9",) in rows(filled, "Code", "id")
    assert ("m1", "hi") in rows(filled, "Note", "id", "text")
    assert ("e1", "Dan", "Ada", 2.5) in rows(filled, "Knows", "id", "src", "dst", "weight")
    assert filled.load(OLDER, mode, idempotency_key="once") == first


def test_both_forms_may_stand_in_one_file(filled, tmp_path):
    mixed = [
        beside("a", node("Note", text="one")),
        node("Note", id="b", text="two"),
        node("Note", text="three"),
        beside("c", {"edge": "Knows", "from": "Ada", "to": "Bob"}),
        {"edge": "Knows", "from": "Bob", "to": "Ada"},
    ]
    filled.load(write(tmp_path / "mixed.ndjson", mixed))
    actual = rows(filled, "Note", "id", "text")
    assert ("a", "one") in actual
    assert ("b", "two") in actual
    assert len({given for given, text in actual if text == "three"} - {"a", "b"}) == 1
    assert ("c", "Ada", "Bob") in rows(filled, "Knows", "id", "src", "dst")


def test_a_merge_replaces_by_the_id_beside_data(filled):
    """Nodes without a key and edges by their ids, nodes with one by the key, which it repeats."""
    filled.load(NEWER)
    filled.load(
        [
            beside("m1", node("Note", text="new")),
            beside("e1", edge("Knows", "Ada", "Dan")),
            beside('["7","B"]', node("Seat", row="B", number=7, label="x")),
        ]
    )
    assert ("m1", "new") in rows(filled, "Note", "id", "text")
    assert ("e1", "Ada", "Dan", None) in rows(filled, "Knows", "id", "src", "dst", "weight")
    assert ('["7","B"]', "x") in rows(filled, "Seat", "id", "label")


@pytest.mark.parametrize("inner", ["other", None, 7])
def test_an_id_in_the_data_is_then_an_unknown_property(filled, tmp_path, inner):
    records = [beside("m1", node("Note", text="hi", id=inner)) for _ in range(2)]
    records[1]["id"] = "m2"
    for data in (records, write(tmp_path / "x.ndjson", records)):
        receipt = filled.load(data)
        assert receipt.ignored == {"Note.id": 2}
        assert {"m1", "m2"} <= notes(filled)
        assert "other" not in notes(filled)
        message = is_refused(filled, LoadError, data, strict_properties=True)
        assert "Note has no property 'id'" in message


def test_other_names_beside_data_are_ignored_still(filled):
    receipt = filled.load([{**beside("m1", node("Note", text="hi")), "stars": 3}])
    assert receipt.ignored == {"Note.stars beside data": 1}
    filled.load([beside("m2", node("Note", text="hi"))], strict_properties=True)
    assert {"m1", "m2"} <= notes(filled)


@pytest.mark.parametrize("given", [None, 7, 7.5, True, [], {}])
@pytest.mark.parametrize("record", [node("Note", text="hi"), edge("Knows", "Ada", "Bob")])
def test_an_id_beside_data_is_a_text(filled, tmp_path, given, record):
    path = write(tmp_path / "x.ndjson", [node("Note", text="good"), beside(given, record)])
    message = is_refused(filled, LoadError, path)
    assert message == f"{path}:2: record 2: 'id' beside 'data' is not a text"
    rejects = tmp_path / "rejects.ndjson"
    receipt = filled.load(path, rejects=rejects)
    assert (receipt.rejected, receipt.affected_nodes) == (1, 1)
    (said,) = map(json.loads, rejects.read_text().splitlines())
    assert (said["line"], said["field"]) == (2, "id")


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (beside("Eve", node("Person", name="Dan")), "differs from the key name"),
        (beside("", node("Person", name="Dan")), "differs from the key name"),
        (beside("07", node("Code", value=7)), "differs from the key value"),
        (beside("7,B", node("Seat", row="B", number=7)), "differs from the key"),
        (beside("", node("Note", text="hi")), "the id of a row is empty"),
        (beside("", edge("Knows", "Ada", "Bob")), "the id of a row is empty"),
    ],
)
def test_an_id_that_cannot_be_that_of_its_row_is_refused(filled, tmp_path, record, said):
    path = write(tmp_path / "x.ndjson", [node("Note", text="good"), record])
    message = is_refused(filled, Exception, path)
    assert message.startswith(f"{path}:2: ")
    assert said in message


def test_an_id_that_comes_twice(filled, tmp_path):
    """In one record it is no JSON of ours; in two an append refuses it, and a merge takes one."""
    line = '{"type": "Note", "id": "a", "id": "a", "data": {"text": "x"}}\n'
    (tmp_path / "x.ndjson").write_text(line)
    assert "the name 'id' appears twice" in is_refused(filled, LoadError, tmp_path / "x.ndjson")
    twice = [beside("a", node("Note", text="one")), node("Note", id="a", text="two")]
    is_refused(filled, Exception, twice, "append")
    filled.load(twice)
    assert ("a", "two") in rows(filled, "Note", "id", "text")
