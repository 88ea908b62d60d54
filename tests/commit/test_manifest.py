"""The manifest: what lies on disk byte for byte, and how a reader stays warm over it."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from obstore.store import LocalStore

from omnigraph import Graph
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.manifests import Manifests
from omnigraph.commit.publisher import CommitIntent, Publication
from omnigraph.commit.rows import TombstoneRow, VersionRow, VoidRow
from omnigraph.commit.ulid import new_ulid, now_micros
from omnigraph.errors import (
    FormatRefused,
    HistoryGone,
    InputError,
    OutcomePending,
    StorageCorrupt,
)
from omnigraph.storage.tables.ledger_reader import LedgerReader
from tests.commit.world import (
    COMPANY,
    KNOWS,
    PERSON,
    SCHEMA,
    STAMP,
    WORKS_AT,
    at,
    foreign_upsert,
    fresh_state,
    knows,
    manifest_of,
    manifest_rows,
    names,
    people,
    restamp,
    state_of,
    store_at,
)

pytestmark = pytest.mark.rotates(3)

LOCATIONS = {
    "node:Person": PERSON,
    "node:Company": COMPANY,
    "edge:Knows": KNOWS,
    "edge:WorksAt": WORKS_AT,
}


# -- the format on disk -----------------------------------------------------------------------


def test_the_root_holds_exactly_what_the_format_names(graph, path):
    """Tables by the hash of their names, and no dataset for commits."""
    graph.append(people(ann=1, bo=2))
    graph.append(knows(("ann", "bo")))
    top = {entry.name for entry in path.iterdir()}
    assert top - {"__recovery", "__checksums", "__history"} == {
        "_schema.pg",
        "_schema.ir.json",
        "__schema_state.json",
        "__manifest",
        "nodes",
        "edges",
    }
    assert {f"nodes/{entry.name}" for entry in (path / "nodes").iterdir()} == {PERSON, COMPANY}
    assert {f"edges/{entry.name}" for entry in (path / "edges").iterdir()} == {KNOWS, WORKS_AT}
    assert not list(path.rglob("_graph_*"))
    assert not list(path.rglob("*.lease"))


def test_the_columns_of_the_manifest_are_those_of_the_format(graph, path):
    """Names, types and nullability, and the key that makes conflicts visible."""
    schema = manifest_of(path).schema
    assert [(field.name, str(field.type), field.nullable) for field in schema] == [
        ("object_id", "string", False),
        ("object_type", "string", False),
        ("location", "string", True),
        ("metadata", "string", True),
        ("base_objects", "list<item: string>", True),
        ("table_key", "string", False),
        ("table_version", "uint64", True),
        ("table_branch", "string", True),
        ("row_count", "uint64", True),
    ]
    assert schema.field("object_id").metadata == {b"lance-schema:unenforced-primary-key": b"true"}
    assert manifest_of(path).has_stable_row_ids
    assert schema.metadata == {STAMP.encode(): b"4"}


def test_init_writes_one_table_and_one_version_row_for_each_type(graph, path):
    """A genesis commit without parent and actor, and the head of main."""
    rows = manifest_rows(path)
    kinds = {}
    for row in rows.values():
        kinds.setdefault(row["object_type"], []).append(row["object_id"])
    assert sorted(kinds["table"]) == sorted(LOCATIONS)
    assert sorted(kinds["table_version"]) == sorted(f"{key}${1:020d}" for key in LOCATIONS)
    (genesis,) = kinds["graph_commit"]
    assert len(genesis) == 26
    assert kinds["graph_head"] == ["graph_head:main"]
    assert set(kinds) == {"table", "table_version", "graph_commit", "graph_head", "graph_schema"}
    assert {key: rows[key]["location"] for key in LOCATIONS} == LOCATIONS
    commit = rows[genesis]
    assert (commit["table_key"], commit["table_version"], commit["table_branch"]) == ("", 1, None)
    assert set(json.loads(commit["metadata"])) == {"created_at"}
    assert json.loads(rows["graph_head:main"]["metadata"]) == {"head_commit_id": genesis}


def test_every_table_is_created_with_stable_row_ids_and_no_cleanup(graph, path):
    for location in LOCATIONS.values():
        dataset = lance.dataset(str(path / location))
        assert dataset.has_stable_row_ids
        assert dataset.config() == {}
    assert manifest_of(path).config() == {}


def test_a_commit_row_says_who_when_and_after_what(graph, path):
    """The actor, the parent, the microsecond and the manifest version it made."""
    genesis = graph.snapshot().commit_id
    before = now_micros()
    receipt = graph.append(people(ann=1), actor="ann@example.org")
    rows = manifest_rows(path)
    commit = rows[receipt.commit_id]
    said = json.loads(commit["metadata"])
    assert before <= said.pop("created_at") <= now_micros()
    assert said == {
        "parent_commit_id": genesis,
        "actor_id": "ann@example.org",
        "writer": "Load",
    }
    assert (commit["object_type"], commit["table_version"]) == ("graph_commit", receipt.version)
    assert commit["table_branch"] is None
    assert json.loads(rows["graph_head:main"]["metadata"]) == {
        "head_commit_id": receipt.commit_id,
        "parent_commit_id": genesis,
    }
    assert manifest_of(path).version == receipt.version


def test_a_commit_on_a_branch_names_the_branch_and_moves_its_own_head(graph, path):
    graph.branches.create("review/x")
    receipt = graph.append(people(ann=1), branch="review/x")
    rows = manifest_rows(path, "review/x")
    assert rows[receipt.commit_id]["table_branch"] == "review/x"
    assert json.loads(rows["graph_head:review/x"]["metadata"])["head_commit_id"] == (
        receipt.commit_id
    )
    pin = rows[f"node:Person${2:020d}"]
    assert (pin["table_branch"], pin["row_count"]) == ("review/x", 1)
    assert receipt.commit_id not in manifest_rows(path)
    assert (path / PERSON / "tree" / "review" / "x").is_dir()
    assert [entry.name for entry in (path / PERSON / "_refs" / "branches").iterdir()] == [
        "review%2Fx.json"
    ]


@pytest.mark.parametrize("branch", [None, "b"])
def test_a_pin_describes_the_file_of_its_version(graph, path, branch):
    """The four keys of the version metadata, true to the file as the store sees it."""
    if branch:
        graph.branches.create(branch)
    graph.append(people(ann=1), branch=branch or "main")
    rows = manifest_rows(path, branch)
    pin = json.loads(rows[f"node:Person${2:020d}"]["metadata"])
    below = f"{PERSON}/tree/{branch}" if branch else PERSON
    file = path / below / "_versions" / f"{2**64 - 1 - 2:020d}.manifest"
    seen = LocalStore("/").head(str(file))
    assert pin == {
        "manifest_path": str(file).lstrip("/"),
        "manifest_size": file.stat().st_size,
        "e_tag": seen["e_tag"].strip('"'),
        "naming_scheme": "V2",
    }


def test_the_schema_files_are_the_text_its_canonical_form_and_its_hash(graph, path):
    """Byte for byte what was given; the state in the order of the format."""
    assert (path / "_schema.pg").read_bytes() == SCHEMA.encode()
    state = json.loads((path / "__schema_state.json").read_text())
    assert list(state.items()) == [
        ("format_version", 1),
        ("schema_ir_hash", graph.catalog.schema_hash),
        ("schema_identity_version", 1),
    ]
    assert json.loads((path / "_schema.ir.json").read_text())["ir_version"] == 1


# -- what other programs leave in it ----------------------------------------------------------


def test_rows_of_unknown_kinds_are_left_alone(graph, other, path):
    """They are ignored by reads, kept by writes, and survive a compaction."""
    other.snapshot()
    foreign_upsert(path, {"object_id": "x:1", "object_type": "x", "metadata": "no json"})
    for number in range(20):
        graph.append(people(**{f"p{number}": number}))
    assert other.snapshot().count("Person") == 20
    assert manifest_rows(path)["x:1"]["metadata"] == "no json"
    assert Graph.open(path, "r").snapshot().count("Person") == 20


def test_a_pin_without_a_place_is_damage(graph, path):
    """A version row whose table row is missing cannot be shown."""
    foreign_upsert(
        path,
        {
            "object_id": f"node:Ghost${1:020d}",
            "object_type": "table_version",
            "table_key": "node:Ghost",
            "table_version": 1,
            "row_count": 0,
            "metadata": "{}",
        },
    )
    with pytest.raises(StorageCorrupt, match="node:Ghost"):
        graph.snapshot()


def test_a_known_row_that_cannot_be_read_is_damage_that_is_named(graph, path):
    foreign_upsert(
        path,
        {"object_id": "01X", "object_type": "graph_commit", "metadata": "{", "table_version": 9},
    )
    with pytest.raises(StorageCorrupt, match="01X") as caught:
        graph.snapshot()
    assert caught.value.hint


def test_a_tombstone_hides_every_version_up_to_its_own(store):
    """A later version of the same table shows again."""
    manifest = store.manifest(None)
    publish = store.publisher.publish
    publish(
        manifest, Publication({"node:Company": 1}, tombstones=[TombstoneRow("node:Company", 4)])
    )
    assert "node:Company" not in manifest.current().pins
    publish(manifest, Publication({}, [VersionRow("node:Company", 4, None, 0)]))
    assert "node:Company" not in manifest.current().pins
    publish(manifest, Publication({}, [VersionRow("node:Company", 5, None, 7)]))
    assert manifest.current().pins["node:Company"].row_count == 7
    assert list(manifest.current().pins) == sorted(manifest.current().pins)


# -- versions that were damaged and replaced --------------------------------------------------


def replace_newest(store, path, reason="its data file is empty"):
    """The newest version of the manifest is put aside for the one before; gives its number."""
    void = manifest_of(path).version
    lance.dataset(str(path / "__manifest"), version=void - 1).restore()
    manifest = Manifests(store.datasets).of(None)
    row = VoidRow(None, void, now_micros(), reason)
    store.publisher.publish(manifest, Publication({}, others=[row]))
    return void


def test_a_version_that_was_replaced_was_never_acknowledged(graph, store, path):
    graph.append(people(ann=1))
    void = replace_newest(store, path)
    with pytest.raises(HistoryGone, match="never acknowledged") as caught:
        graph.snapshot(version=void)
    assert caught.value.details == {"version": void, "reason": "its data file is empty"}
    assert names(graph, version=void - 1) == []


def test_a_warm_reader_forgets_what_a_replaced_version_showed(graph, other, store, path):
    """Its rows were added one by one, and the version before has fewer."""
    graph.append(people(ann=1))
    lost = other.commits()[0].commit_id
    assert names(other) == ["ann"]
    replace_newest(store, path)
    assert names(other) == []
    assert state_of(other._handle.store.manifest(None)) == fresh_state(store)
    assert lost not in {commit.commit_id for commit in other.commits()}


def test_a_commit_is_looked_up_past_a_version_that_was_replaced(graph, path):
    """A commit says where it meant to land; it may lie a little further on."""
    store = graph._handle.store
    meant = CommitIntent(new_ulid(), None, now_micros())
    store.publisher.publish(store.manifest(None), Publication({}, commit=meant))
    recorded = store.manifest(None).current().manifest_version
    foreign_upsert(path, {"object_id": "x:1", "object_type": "x"})
    void = VoidRow(None, recorded, now_micros(), "it was cut off")
    store.publisher.publish(store.manifest(None), Publication({}, others=[void]))
    assert graph.snapshot(commit=meant.commit_id).version == recorded + 1


# -- the stamp --------------------------------------------------------------------------------

STAMPS = {
    "older": ("3", "omnigraph export"),
    "missing": (None, "omnigraph export"),
    "newer": ("5", "upgrade omnigraph before opening this graph"),
    "far newer": ("40", "upgrade omnigraph before opening this graph"),
    "no number": ("four", "omnigraph export"),
}


def said(caught):
    return f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize("mode", ["rw", "r"])
@pytest.mark.parametrize(("stamp", "advice"), STAMPS.values(), ids=list(STAMPS))
def test_another_format_is_refused_in_both_modes(graph, path, mode, stamp, advice):
    restamp(path, stamp)
    with pytest.raises(FormatRefused) as caught:
        Graph.open(path, mode)
    assert advice in said(caught)
    assert caught.value.details == {"found": stamp or "1", "supported": 4}
    assert not caught.value.retryable


@pytest.mark.parametrize(("stamp", "advice"), STAMPS.values(), ids=list(STAMPS))
def test_another_format_is_refused_by_a_warm_handle_and_on_publish(graph, path, stamp, advice):
    """Every time, not only the first, and nothing is written."""
    graph.append(people(ann=1))
    restamp(path, stamp)
    version = manifest_of(path).version
    for _ in range(2):
        for call in (graph.snapshot, lambda: graph.append(people(bo=2)), graph.commits):
            with pytest.raises(FormatRefused) as caught:
                call()
            assert advice in said(caught)
    assert manifest_of(path).version == version
    assert lance.dataset(str(path / PERSON)).version == 2


@pytest.mark.parametrize(("stamp", "advice"), STAMPS.values(), ids=list(STAMPS))
def test_the_stamp_of_a_branch_is_checked_when_the_branch_is_used(graph, path, stamp, advice):
    """A branch inherits the stamp; one with another is refused, main stays usable."""
    graph.branches.create("b")
    assert manifest_of(path, "b").schema.metadata == {STAMP.encode(): b"4"}
    graph.snapshot("b")
    restamp(path, stamp, "b")
    for handle in (graph, Graph.open(path), Graph.open(path, "r")):
        with pytest.raises(FormatRefused) as caught:
            handle.snapshot("b")
        assert advice in said(caught)
    with pytest.raises(FormatRefused):
        graph.append(people(ann=1), branch="b")
    with pytest.raises(FormatRefused):
        graph.branches.create("c", from_branch="b")
    assert graph.append(people(ann=1)).version == 2


def test_a_stamp_that_changes_under_a_publish_stops_it(graph, path):
    """Nothing is published, and what was written cannot be taken back until the stamp fits."""
    with (
        at(Failpoint.WRITE_AFTER_TABLES, lambda: restamp(path, "5")),
        pytest.raises(OutcomePending) as caught,
    ):
        graph.append(people(ann=1))
    assert isinstance(caught.value.__cause__, FormatRefused)
    assert caught.value.details["commit_id"] not in manifest_rows(path)
    restamp(path, "4")
    with Graph.open(path) as again:
        assert again.commit(caught.value.details["commit_id"]).actor == "omnigraph:recovery"
        assert names(again) == ["ann"]


def test_a_version_from_before_the_stamp_changed_is_refused_by_its_own_stamp(graph, path):
    restamp(path, "3")
    restamp(path, "4")
    with pytest.raises(FormatRefused):
        graph.snapshot(version=2)
    assert graph.snapshot(version=3).count("Person") == 0


# -- staying warm -----------------------------------------------------------------------------


class Cost:
    """What a block asked of the storage."""

    def __init__(self, store):
        self._store = store

    def __enter__(self):
        self._opened, self._before = self._store.datasets.opened, self._counts()
        return self

    def __exit__(self, *_):
        after = self._counts()
        self.opened = self._store.datasets.opened - self._opened
        self.reads, self.writes, self.lists, self.deletes = (
            now - then for now, then in zip(after, self._before, strict=True)
        )

    def _counts(self):
        traffic = self._store.objects.traffic
        return traffic.reads, traffic.writes, traffic.lists, traffic.deletes


SCHEMA_LOOKS = 3


@pytest.mark.parametrize("history", [1, 40])
def test_a_warm_read_opens_nothing_and_probes_once(graph, history):
    """Three looks at schema files and one at the next manifest, for many tables."""
    for number in range(history):
        graph.append(people(**{f"p{number}": number}))
    tables = ("Person", "Company", "Knows", "WorksAt")
    for name in tables:
        graph.snapshot().read(name)
    with Cost(graph._handle.store) as cost:
        snapshot = graph.snapshot()
        assert [snapshot.read(name).num_rows for name in tables] == [history, 0, 0, 0]
    assert cost.opened == 0
    assert (cost.reads, cost.writes, cost.lists, cost.deletes) == (SCHEMA_LOOKS + 1, 0, 0, 0)


def test_a_warm_read_of_a_branch_also_looks_at_its_reference(graph):
    """That look is what tells a recreated branch from the former one."""
    graph.append(people(ann=1))
    graph.branches.create("b")
    assert names(graph, "b") == ["ann"]
    with Cost(graph._handle.store) as cost:
        assert names(graph, "b") == ["ann"]
    assert cost.opened == 0
    assert (cost.reads, cost.writes, cost.lists) == (SCHEMA_LOOKS + 2, 0, 0)


def test_a_branch_that_wrote_nothing_reads_with_the_handles_of_main(graph):
    """The pins of a fresh branch are the same files."""
    graph.append(people(ann=1))
    assert names(graph) == ["ann"]
    graph.branches.create("b")
    graph.snapshot("b")
    with Cost(graph._handle.store) as cost:
        assert names(graph, "b") == ["ann"]
    assert cost.opened == 0


def test_a_write_drops_only_the_handles_of_what_it_wrote(graph, other):
    """Another handle opens the table that changed, not the others."""
    graph.append(people(ann=1))
    for name in ("Person", "Company"):
        other.snapshot().read(name)
    graph.append(people(bo=2))
    with Cost(other._handle.store) as cost:
        assert names(other) == ["ann", "bo"]
        assert other.snapshot().read("Company").num_rows == 0
    assert cost.opened == 1
    with Cost(graph._handle.store) as cost:
        assert names(graph) == ["ann", "bo"]
    assert cost.opened == 0


def test_the_schema_contract_is_looked_at_once_for_each_operation(graph, monkeypatch):
    """For reads and writes."""
    looks = []
    files = type(graph._handle.store.schema_files)
    real = files.check
    monkeypatch.setattr(
        files, "check", lambda self, existing: looks.append(1) or real(self, existing)
    )
    for operation in (
        graph.snapshot,
        graph.commits,
        graph.branches.list,
        graph.tags.list,
        graph.indexes.status,
        graph.refresh,
        graph.indexes.ensure,
        lambda: graph.append(people(ann=1)),
        lambda: graph.append(people(bo=2)),
        lambda: graph.branches.create("b"),
        lambda: graph.branches.delete("b"),
        lambda: graph.tags.create("t"),
    ):
        looks.clear()
        operation()
        assert len(looks) == 1


@pytest.fixture
def reads(monkeypatch):
    """The parts that readers of a manifest read, one entry for each read."""
    seen = []
    real = LedgerReader.read

    def spy(self, columns=None, condition=None, fragments=None, **more):
        seen.append(None if fragments is None else sorted(fragments))
        return real(self, columns, condition, fragments, **more)

    monkeypatch.setattr(LedgerReader, "read", spy)
    return seen


def test_news_are_read_from_the_parts_that_they_added(graph, other, path, reads):
    """A refresh reads new fragments, whoever wrote them, and once."""
    other.snapshot()
    graph.append(people(ann=1))
    graph.append(people(bo=2))
    reads.clear()
    assert other.snapshot().count("Person") == 2
    assert reads == [[1, 2]]
    foreign_upsert(path, {"object_id": "x:1", "object_type": "x"})
    reads.clear()
    assert (other.snapshot().version, other.snapshot().version) == (4, 4)
    assert reads == [[3]]


def test_a_publish_takes_over_what_it_wrote_without_reading_it(graph, reads):
    """So does the one that compacts the manifest."""
    graph.append(people(ann=1))
    reads.clear()
    for number in range(20):
        graph.append(people(**{f"p{number}": number}))
        assert graph.snapshot().count("Person") == number + 2
    assert reads == []


def test_a_compaction_is_read_whole_by_others_and_shows_the_same(graph, other, path, reads):
    for number in range(14):
        graph.append(people(**{f"p{number}": number}))
    other.snapshot()
    graph.append(people(last=1))
    reads.clear()
    assert other.snapshot().count("Person") == 15
    assert reads == [[16]]
    manifest = other._handle.store.manifest(None)
    assert state_of(manifest) == fresh_state(graph._handle.store)
    assert manifest.with_state(lambda state, _: state.rows) == len(manifest_rows(path))


def test_a_reader_that_slept_through_a_compaction_misses_nothing(graph, other):
    other.snapshot()
    for number in range(40):
        graph.append(people(**{f"p{number}": number}))
    assert other.snapshot().count("Person") == 40
    assert state_of(other._handle.store.manifest(None)) == fresh_state(graph._handle.store)


# -- earlier versions -------------------------------------------------------------------------


def test_a_snapshot_keeps_its_version_while_the_graph_moves_on(graph, other):
    """A new one sees what another handle wrote."""
    graph.append(people(ann=1))
    taken = other.snapshot()
    graph.append(people(bo=2) | knows(("ann", "bo")))
    assert (taken.version, taken.count("Person"), taken.count("Knows")) == (2, 1, 0)
    assert taken.read("Person", ["name"])["name"].to_pylist() == ["ann"]
    assert taken.read("Knows").num_rows == 0
    now = other.snapshot()
    assert (now.version, now.count("Person"), now.count("Knows")) == (3, 2, 1)


def test_every_version_shows_its_own_rows(graph, path):
    """In any order, warm and cold."""
    for number in range(20):
        graph.append(people(**{f"p{number:02}": number}))
    cold = Graph.open(path, "r")
    commits = sorted(graph.commits(), key=lambda commit: commit.version)
    for number in (0, 20, 7, 14, 15, 16, 7):
        expected = [f"p{n:02}" for n in range(number)]
        for handle in (graph, cold):
            assert names(handle, version=commits[number].version) == expected


@pytest.mark.parametrize("version", [0, -1, 3, 2**63])
def test_a_version_that_never_was_is_an_error(graph, version):
    graph.append(people(ann=1))
    with pytest.raises(InputError, match=f"has no version {version}") as caught:
        graph.snapshot(version=version)
    assert caught.value.hint == "its newest version is 2"


def test_a_version_that_cleanup_removed_is_gone(graph, path):
    graph.append(people(ann=1))
    (path / "__manifest" / "_versions" / f"{2**64 - 1 - 1:020d}.manifest").unlink()
    with pytest.raises(HistoryGone) as caught:
        Graph.open(path, "r").snapshot(version=1)
    assert caught.value.details == {"version": 1}


def test_the_history_of_a_branch_is_its_own(graph):
    """What main did after the fork is not in it, and the other way round."""
    graph.append(people(ann=1))
    graph.branches.create("b")
    graph.append(people(main1=1))
    first = graph.append(people(branch1=1), branch="b").version
    graph.append(people(branch2=2), branch="b")
    assert names(graph, version=3) == ["ann", "main1"]
    assert names(graph, "b", version=first) == ["ann", "branch1"]
    assert names(graph, "b") == ["ann", "branch1", "branch2"]
    with pytest.raises(HistoryGone, match="branch 'b'"):
        graph.snapshot("b", version=1)


def test_a_snapshot_has_a_name_for_its_state(graph):
    """The branch, the version, and for a branch which life of it."""
    assert graph.snapshot().snapshot_id == "manifest:main:v1"
    graph.branches.create("b")
    first = graph.snapshot("b").snapshot_id
    graph.branches.delete("b")
    graph.branches.create("b")
    assert first.startswith("manifest:b:v1:etag:")
    assert graph.snapshot("b").snapshot_id not in (first, "manifest:b:v1")


def test_concurrent_readers_of_one_handle_see_whole_snapshots(path):
    """A commit of two tables is seen with both or with none."""
    graph = Graph.init(path, SCHEMA, durability="os")
    reader = Graph.open(path, "r")

    def look(_):
        snapshot = reader.snapshot()
        return snapshot.count("Person"), snapshot.count("Company")

    with ThreadPoolExecutor(4) as pool:
        looks = pool.map(look, range(200))
        for number in range(10):
            rows = people(**{f"p{number}": 1})
            rows["Company"] = pa.table({"name": [f"c{number}"]})
            graph.append(rows)
        assert all(persons == firms for persons, firms in looks)
    assert look(0) == (10, 10)


# -- publishing through plain parts -----------------------------------------------------------


def test_a_long_mixed_history_reads_back_as_it_was_kept(path, store):
    """Warm, lagging and fresh readers agree after every kind of row and foreign work."""
    chance = random.Random(7)
    manifest, lagging = store.manifest(None), store_at(path).manifest(None)
    versions = dict.fromkeys(LOCATIONS, 1)
    for step in range(120):
        key = chance.choice(sorted(versions))
        match chance.randrange(8):
            case 0:
                foreign_upsert(path, {"object_id": f"x:{step}", "object_type": "x"})
            case 1:
                manifest_of(path).optimize.compact_files()
            case 2:
                assert state_of(lagging) == fresh_state(store)
            case 3:
                seen = manifest.current().pin(key)
                owner = "b" if seen.branch is None else None
                row = VersionRow(key, seen.version, owner, seen.row_count)
                store.publisher.publish(manifest, Publication({key: versions[key]}, [row]))
            case _:
                expected = {key: versions[key]}
                versions[key] += chance.randrange(1, 3)
                row = VersionRow(key, versions[key], None, step, {"e_tag": str(step)})
                intent = CommitIntent(new_ulid(), None, now_micros(), "ann")
                store.publisher.publish(manifest, Publication(expected, [row], commit=intent))
        assert state_of(manifest) == fresh_state(store)
    assert state_of(lagging) == fresh_state(store)
    assert len(manifest_of(path).get_fragments()) < 20


def test_paths_in_the_manifest_do_not_name_the_root(graph, path):
    """A graph can be moved as far as main goes."""
    graph.append(people(ann=1))
    assert all(
        not Path(row["location"]).is_absolute()
        for row in manifest_rows(path).values()
        if row["location"]
    )
