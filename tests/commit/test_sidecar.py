"""Sidecars: their text, what is refused, and the folder they lie in."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.commit.sidecar import (
    Registration,
    Sidecar,
    SidecarPin,
    SidecarStore,
    Tombstone,
    WriterKind,
)
from omnigraph.commit.ulid import new_ulid
from omnigraph.errors import FormatRefused, StorageCorrupt, StorageError
from omnigraph.storage.durable import Durability
from omnigraph.storage.objects.paths import parse_root
from omnigraph.storage.objects.store import ObjectStore

OPERATION = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
PIN = SidecarPin("node:Person", "/g/nodes/40d7", 5, 6)
PLAIN = Sidecar(OPERATION, "1700000000000000", None, None, WriterKind.MUTATION, (PIN,))
FULL = Sidecar(
    OPERATION,
    "1700000000000000",
    "review/x",
    "anä",
    WriterKind.BRANCH_MERGE,
    (SidecarPin("node:Person", "s3://b/g/nodes/40d7", 5, 6, 8, "review/x", ("t1", "t2", "t3")),),
    "01SOURCE",
    (Registration("node:Tag", "nodes/1"), Registration("edge:Has", "edges/2", "review/x")),
    (Tombstone("node:Old", 4),),
    leased=True,
    intent={"commit_id": "01C", "receipt": {"rows": 3}},
)

PLAIN_TEXT = """{
  "schema_version": 2,
  "operation_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV",
  "started_at": "1700000000000000",
  "branch": null,
  "actor_id": null,
  "writer_kind": "Mutation",
  "tables": [
    {
      "table_key": "node:Person",
      "table_path": "/g/nodes/40d7",
      "expected_version": 5,
      "post_commit_pin": 6
    }
  ]
}"""

FULL_TEXT = """{
  "schema_version": 2,
  "operation_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV",
  "started_at": "1700000000000000",
  "branch": "review/x",
  "actor_id": "anä",
  "writer_kind": "BranchMerge",
  "tables": [
    {
      "table_key": "node:Person",
      "table_path": "s3://b/g/nodes/40d7",
      "expected_version": 5,
      "post_commit_pin": 6,
      "confirmed_version": 8,
      "table_branch": "review/x",
      "transactions": [
        "t1",
        "t2",
        "t3"
      ]
    }
  ],
  "merge_source_commit_id": "01SOURCE",
  "additional_registrations": [
    {
      "table_key": "node:Tag",
      "table_path": "nodes/1"
    },
    {
      "table_key": "edge:Has",
      "table_path": "edges/2",
      "table_branch": "review/x"
    }
  ],
  "tombstones": [
    {
      "table_key": "node:Old",
      "tombstone_version": 4
    }
  ],
  "leased": true,
  "intent": {
    "commit_id": "01C",
    "receipt": {
      "rows": 3
    }
  }
}"""


ONE = json.loads(PLAIN_TEXT)["tables"][0]


def read(text: str) -> Sidecar:
    return Sidecar.from_json(text, "/g/__recovery/x.json")


def changed(**keys: object) -> str:
    """The text of a plain sidecar with some keys set; ``...`` takes one out."""
    content = {**json.loads(PLAIN_TEXT), **keys}
    return json.dumps({key: value for key, value in content.items() if value is not ...})


# -- text -------------------------------------------------------------------------------------


def test_the_kinds_are_those_of_the_format():
    assert [kind.value for kind in WriterKind] == [
        "Mutation",
        "Load",
        "SchemaApply",
        "BranchMerge",
        "EnsureIndices",
        "Optimize",
    ]


@pytest.mark.parametrize(("sidecar", "text"), [(PLAIN, PLAIN_TEXT), (FULL, FULL_TEXT)])
def test_the_text_is_that_of_the_format(sidecar, text):
    assert sidecar.to_json() == text
    assert read(text) == sidecar


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
MAYBE = st.none() | TEXTS
NAMES = st.text("abcXYZ019_-", min_size=1, max_size=8)
BRANCHES = st.none() | st.lists(NAMES, min_size=1, max_size=3).map("/".join)
LOCATIONS = st.builds("{}/{}".format, st.sampled_from(["nodes", "edges"]), NAMES)
VERSIONS = st.integers(0, (1 << 64) - 1)
PINS = st.builds(
    SidecarPin,
    TEXTS,
    TEXTS,
    VERSIONS,
    VERSIONS,
    st.none() | VERSIONS,
    BRANCHES,
    st.lists(TEXTS, max_size=3).map(tuple),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
SIDECARS = st.builds(
    Sidecar,
    TEXTS,
    TEXTS,
    BRANCHES,
    MAYBE,
    st.sampled_from(WriterKind),
    st.lists(PINS, max_size=3).map(tuple),
    MAYBE,
    st.lists(st.builds(Registration, TEXTS, LOCATIONS, BRANCHES), max_size=2).map(tuple),
    st.lists(st.builds(Tombstone, TEXTS, VERSIONS), max_size=2).map(tuple),
    st.integers(0, 2),
    st.booleans(),
    st.dictionaries(TEXTS, VALUES, max_size=2),
)


@given(SIDECARS.filter(lambda one: not _infinite(one.intent)))
def test_a_sidecar_comes_back_as_it_was_written(sidecar):
    assert read(sidecar.to_json()) == sidecar


def _infinite(value: object) -> bool:
    return "Infinity" in json.dumps(value)


@pytest.mark.parametrize("key", ["branch", "actor_id", "merge_source_commit_id"])
def test_a_key_that_may_be_null_may_be_missing(key):
    """A writer always names its branch and its actor, but a reader takes their absence as null."""
    assert read(changed(**{key: None})) == read(changed(**{key: ...})) == PLAIN


@pytest.mark.parametrize("key", ["confirmed_version", "table_branch"])
def test_a_key_of_a_table_that_may_be_null_may_be_missing(key):
    assert read(changed(tables=[{**ONE, key: None}])) == PLAIN
    assert key not in PLAIN.to_json()


def test_the_branch_of_a_registration_may_be_null_or_missing():
    table = {"table_key": "node:Tag", "table_path": "nodes/1"}
    expected = (Registration("node:Tag", "nodes/1"),)
    for entry in (table, {**table, "table_branch": None}):
        assert read(changed(additional_registrations=[entry])).additional_registrations == expected


REQUIRED = [
    *("schema_version", "operation_id", "started_at", "writer_kind", "tables"),
    *("table_key", "table_path", "expected_version", "post_commit_pin"),
]


@pytest.mark.parametrize("value", [..., None], ids=["missing", "null"])
@pytest.mark.parametrize("key", REQUIRED)
def test_a_key_that_may_not_be_null_is_required(key, value):
    if key in ONE:
        table = {name: part for name, part in {**ONE, key: value}.items() if part is not ...}
        text = changed(tables=[table])
    else:
        text = changed(**{key: value})
    with pytest.raises(StorageCorrupt, match=f"'{key}'"):
        read(text)


def test_keys_that_are_not_known_are_ignored():
    pin = {**json.loads(PLAIN_TEXT)["tables"][0], "more": [1]}
    assert read(changed(tables=[pin], more={"x": 1})) == PLAIN


@pytest.mark.parametrize("version", [0, 1, 2])
def test_older_versions_are_accepted(version):
    assert read(changed(schema_version=version)) == replace(PLAIN, schema_version=version)


@pytest.mark.parametrize(
    "text",
    [changed(schema_version=3), '{"schema_version": 9, "writer_kind": "New", "plan": []}'],
    ids=["same shape", "other shape"],
)
def test_a_newer_version_is_refused_and_says_what_to_do(text):
    with pytest.raises(FormatRefused, match=r"'/g/__recovery/x\.json' has version") as caught:
        read(text)
    assert "upgrade" in (caught.value.hint or "")
    assert caught.value.details["supported"] == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        (PLAIN_TEXT[:-10], "not valid JSON"),
        ("[" * 200_000, "not valid JSON"),
        ('{"schema_version": ' + "9" * 5_000 + "}", "not valid JSON"),
        ("[]", "it is not an object"),
        ("null", "it is not an object"),
        ("{}", "it has no 'schema_version'"),
        (changed(schema_version="2"), "'schema_version' that is not a whole number"),
        (changed(schema_version=True), "'schema_version' that is not a whole number"),
        (changed(schema_version=-1), "'schema_version' that is not a version number"),
        (changed(operation_id=...), "it has no 'operation_id'"),
        (changed(operation_id=None), "'operation_id' that is not a text"),
        (changed(started_at=17), "'started_at' that is not a text"),
        (changed(branch=1), "'branch' that is not a text"),
        (changed(writer_kind="Guess"), "unknown writer kind 'Guess'"),
        (changed(tables=...), "it has no 'tables'"),
        (changed(tables={}), "'tables' that is not a list"),
        (changed(tables=[ONE, 3]), "'tables' entry 2 is not an object"),
        (changed(tables=[{**ONE, "expected_version": 5.0}]), "'tables' entry 1 has a"),
        (changed(tables=[{**ONE, "expected_version": 1 << 64}]), "not a version number"),
        (changed(tables=[{**ONE, "confirmed_version": "6"}]), "not a whole number"),
        (changed(tables=[{**ONE, "transactions": "t"}]), "not a list of texts"),
        (changed(tables=[{**ONE, "transactions": [1]}]), "not a list of texts"),
        (changed(additional_registrations=None), "not a list"),
        (changed(additional_registrations=[{"table_key": "k"}]), "has no 'table_path'"),
        (changed(tombstones=[{"table_key": "k"}]), "has no 'tombstone_version'"),
        (changed(leased=1), "not true or false"),
        (changed(intent=[]), "not an object"),
    ],
)
def test_what_is_no_sidecar_is_refused_by_name(text, reason):
    with pytest.raises(StorageCorrupt, match=r"/g/__recovery/x\.json") as caught:
        read(text)
    assert reason in caught.value.message
    assert caught.value.hint


# -- the folder -------------------------------------------------------------------------------


@pytest.fixture(params=list(Durability))
def objects(tmp_path, request):
    return ObjectStore(parse_root(str(tmp_path / "g.omni")), request.param)


@pytest.fixture
def store(objects):
    return SidecarStore(objects)


def test_a_graph_without_sidecars_has_none_and_no_folder(store, objects, tmp_path):
    assert store.list() == []
    assert store.load_all() == []
    assert store.read(OPERATION) is None
    assert store.exists(OPERATION) is False
    store.delete(OPERATION)
    assert not (tmp_path / "g.omni" / "__recovery").exists()


def test_a_sidecar_lies_in_a_file_named_by_its_operation(store, objects):
    store.write(FULL)
    assert objects.read(f"__recovery/{OPERATION}.json") == FULL_TEXT
    assert store.exists(OPERATION)
    assert store.read(OPERATION) == FULL


def test_writing_again_replaces_and_deleting_removes(store):
    store.write(PLAIN)
    confirmed = replace(PLAIN, tables=(replace(PIN, confirmed_version=6),))
    store.write(confirmed)
    assert store.load_all() == [confirmed]
    store.delete(OPERATION)
    assert (store.list(), store.exists(OPERATION)) == ([], False)


def test_sidecars_come_oldest_first_and_other_files_do_not_count(store, objects):
    made = [new_ulid() for _ in range(4)]
    for operation in reversed(made):
        store.write(replace(PLAIN, operation_id=operation))
    for other in ("a.lease", f"{made[0]}.staging", "notes.json.txt", "deeper/x.json"):
        objects.write(f"__recovery/{other}", "not a sidecar")
    assert store.list() == made
    assert [sidecar.operation_id for sidecar in store.load_all()] == made


def test_a_sidecar_that_vanishes_while_they_are_read_is_left_out(objects):
    class Vanishing(SidecarStore):
        """Another process finishes an operation right after the listing."""

        def list(self) -> list[str]:
            actual = super().list()
            self.delete(OPERATION)
            return actual

    store = Vanishing(objects)
    kept = replace(PLAIN, operation_id=new_ulid())
    store.write(PLAIN)
    store.write(kept)
    assert store.load_all() == [kept]


@pytest.mark.parametrize(
    ("text", "error"),
    [("{", StorageCorrupt), (changed(schema_version=3), FormatRefused)],
    ids=["broken", "newer"],
)
def test_a_refused_file_stays_and_is_named(store, objects, text, error):
    objects.write(f"__recovery/{OPERATION}.json", text)
    for attempt in (store.load_all, lambda: store.read(OPERATION)):
        with pytest.raises(error, match=rf"g\.omni/__recovery/{OPERATION}\.json"):
            attempt()
    assert store.list() == [OPERATION]
    assert objects.read(f"__recovery/{OPERATION}.json") == text


def test_a_file_that_is_not_text_is_refused_by_name(store, tmp_path):
    folder = tmp_path / "g.omni" / "__recovery"
    folder.mkdir()
    (folder / "x.json").write_bytes(b"\xff\xfe")
    with pytest.raises(StorageCorrupt, match=r"__recovery/x\.json.*UTF-8") as caught:
        store.load_all()
    assert caught.value.hint


def test_a_file_about_another_operation_is_refused(store, objects):
    objects.write("__recovery/x.json", PLAIN_TEXT)
    with pytest.raises(StorageCorrupt, match=f"about operation '{OPERATION}'"):
        store.load_all()


def test_a_write_that_fails_is_a_typed_error(store, tmp_path):
    (tmp_path / "g.omni" / "__recovery").write_text("a file where the folder should be")
    with pytest.raises(StorageError):
        store.write(PLAIN)
