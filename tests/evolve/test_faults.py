"""Applies that fail or die in a living process: all of it or nothing, and writing goes on."""

from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph import Graph, verify_graph
from omnigraph.commit.failpoints import Failpoint, hooked
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.publisher import CommitIntent, Publication
from omnigraph.commit.rows import VersionRow, WriterKind
from omnigraph.commit.schema.lock import MARK, is_locked
from omnigraph.commit.ulid import new_ulid, now_micros
from omnigraph.commit.write_request import PreparedWrite, WriteRequest
from omnigraph.errors import OutcomePending, SchemaChanging, StorageUnavailable, VersionMismatch
from omnigraph.maintain.verify import ProblemCode
from tests.commit.world import at, raising, store_at
from tests.evolve.world import AGES, KNOWS, RENAMED, SCHEMA, changed, friends, values

pytestmark = pytest.mark.rotates(6)

BIG = changed(
    ("age: I32?", 'years: I64? @rename_from("age")'),
    ("node Company { name: String @key }\n", "node City { name: String @key }\n"),
    ("edge WorksAt: Human -> Company\n", ""),
    schema=RENAMED,
)
"""A type is renamed, a property widened, one type comes and two go."""

EARLY = [
    Failpoint.WRITE_AFTER_SIDECAR,
    Failpoint.WRITE_AFTER_TABLES,
    Failpoint.SCHEMA_BEFORE_STAGING,
    Failpoint.SCHEMA_AFTER_STAGING,
    Failpoint.PUBLISH_BEFORE,
]
LATE = [
    Failpoint.PUBLISH_AFTER,
    Failpoint.WRITE_AFTER_PUBLISH,
    Failpoint.STAGING_BEFORE_PROMOTE,
    Failpoint.STAGING_BETWEEN_RENAMES,
    Failpoint.WRITE_AFTER_SIDECAR_DELETE,
    Failpoint.SCHEMA_BEFORE_CLEANUP,
]


class Died(BaseException):
    """Stands for the end of a process."""


def is_old(graph):
    return graph.schema.text() == SCHEMA


def check(graph, path):
    """The graph is whole under the schema it has, and takes further writes and applies."""
    name, column = ("Person", "age") if is_old(graph) else ("Human", "years")
    assert values(graph, name, column) == AGES
    assert friends(graph, name) == KNOWS
    assert not is_locked(graph._handle.store)
    assert not (path / MARK).exists()
    assert list(path.glob("*.staging")) == []
    assert graph._handle.store.sidecars.list() == []
    for pin in graph._handle.store.manifest(None).current().pins.values():
        assert graph._handle.store.tables.head(pin.ref) == pin.version
    graph.load([{"type": name, "data": {"name": "Eve", column: 1}}])
    assert values(graph, name, column) == {**AGES, "Eve": 1}
    done = graph.schema.apply(BIG)
    assert done.applied == (name == "Person")
    assert values(graph, "Human", "years") == {**AGES, "Eve": 1}


@pytest.mark.parametrize("point", EARLY[:-1])
def test_an_apply_that_fails_takes_everything_back_at_once(graph, path, point):
    with at(point, raising(StorageUnavailable("gone"))), pytest.raises(StorageUnavailable):
        graph.schema.apply(BIG)
    if point is Failpoint.WRITE_AFTER_SIDECAR:
        # Nothing has happened yet, so nothing is taken back either; the next writer tidies up.
        graph.refresh()
    assert is_old(graph)
    check(graph, path)


@pytest.mark.parametrize("point", [*EARLY, *LATE])
@pytest.mark.parametrize("how", ["same handle", "other handle", "reopen"])
def test_after_a_death_the_next_writer_finds_all_or_nothing(graph, other, path, point, how):
    with at(point, raising(Died())), pytest.raises(Died):
        graph.schema.apply(BIG)
    if how == "reopen":
        with Graph.open(path, durability="os") as again:
            assert is_old(again) is (point in EARLY[:3])
            check(again, path)
    else:
        # Nobody has to reopen: the first write settles what is left.
        writer = graph if how == "same handle" else other
        writer.tags.create("next")
        assert is_old(writer) is (point in EARLY[:3])
        check(writer, path)


def test_a_published_apply_whose_files_cannot_be_put_in_place_is_finished_later(graph, path):
    with (
        at(Failpoint.STAGING_BETWEEN_RENAMES, raising(StorageUnavailable("gone"))),
        pytest.raises(OutcomePending) as pending,
    ):
        graph.schema.apply(BIG)
    assert graph.commit(pending.value.details["commit_id"])
    assert values(graph, "Human", "years") == AGES
    graph.tags.create("next")
    check(graph, path)


def test_who_publishes_without_our_leases_makes_the_apply_go_back(graph, path):
    """The reference program takes none; what it wrote meanwhile was not looked at."""

    def publish():
        store = store_at(path)
        pin = store.manifest(None).current().pins["node:Company"]
        table = store.table(pin)
        row = pa.Table.from_pylist([{"id": "Beta", "name": "Beta"}], schema=table.schema)
        done = store.tables.commit_staged(store.tables.stage_append(table, row))
        commit = CommitIntent(new_ulid(), None, now_micros())
        rows = [VersionRow.of(pin.table_key, done)]
        store.publisher.publish(store.manifest(None), Publication({}, rows, commit=commit))

    with at(Failpoint.SCHEMA_AFTER_STAGING, publish), pytest.raises(VersionMismatch):
        graph.schema.apply(BIG)
    assert is_old(graph)
    assert sorted(values(graph, "Company", "name")) == ["Acme", "Beta", "Globex"]
    check(graph, path)


def test_what_was_prepared_under_another_schema_is_not_written(graph, other):
    existing = other._handle.check().schema_hash
    graph.schema.apply(changed(("age: I32?", "age: I32?  city: String?")))

    def prepare(view):
        table = view.table("node:Person")
        rows = pa.Table.from_pylist([{"id": "X", "name": "X"}], schema=table.schema)
        return PreparedWrite({"node:Person": (view.stage.stage_append(table, rows),)})

    touched = frozenset({"node:Person"})
    request = WriteRequest(WriterKind.LOAD, None, touched, prepare, schema_hash=existing)
    with pytest.raises(SchemaChanging, match="the schema was changed"):
        commit_write(other._handle.store, request)
    assert values(graph, "Person", "age") == AGES


def test_what_cannot_be_removed_for_good_does_not_fail_the_apply(graph, path, caplog):
    with at(Failpoint.SCHEMA_BEFORE_CLEANUP, raising(StorageUnavailable("gone"))):
        done = graph.schema.apply(changed(("  age: I32?", "")), allow_data_loss=True)
    assert (done.applied, done.cleared) == (True, ())
    assert "still on storage" in caplog.text
    assert friends(graph) == KNOWS
    actual = verify_graph(graph.uri).problems
    assert {item.code for item in actual} == {ProblemCode.CLEANUP_UNFINISHED}
    folder = path / graph.snapshot().tables["node:Person"]["path"]
    assert len(list((folder / "_versions").glob("*.manifest"))) > 1
    with Graph.open(path, durability="os"):
        assert len(list((folder / "_versions").glob("*.manifest"))) == 1
    assert verify_graph(graph.uri).problems == ()


@pytest.mark.parametrize("point", [Failpoint.SCHEMA_AFTER_STAGING, Failpoint.PUBLISH_AFTER])
def test_a_hard_drop_takes_data_only_when_it_is_in_force(graph, path, point):
    """One that is taken back leaves everything; one that a recovery finishes leaves nothing."""
    without = changed(("  age: I32?", ""))
    if point is Failpoint.SCHEMA_AFTER_STAGING:
        with at(point, raising(StorageUnavailable("gone"))), pytest.raises(StorageUnavailable):
            graph.schema.apply(without, allow_data_loss=True)
    else:
        with at(point, raising(Died())), pytest.raises(Died):
            graph.schema.apply(without, allow_data_loss=True)
    with Graph.open(path, durability="os") as again:
        folder = path / again.snapshot().tables["node:Person"]["path"]
        versions = len(list((folder / "_versions").glob("*.manifest")))
        if is_old(again):
            assert values(again, "Person", "age") == AGES
            assert versions > 1
        else:
            assert (point, versions) == (Failpoint.PUBLISH_AFTER, 1)
        assert friends(again) == KNOWS
    assert verify_graph(str(path)).problems == ()


@pytest.mark.parametrize(
    "point",
    [Failpoint.UNDO_AFTER_MARK, Failpoint.UNDO_AFTER_RESTORE, Failpoint.UNDO_AFTER_PUBLISH],
)
def test_a_hard_drop_that_was_given_up_takes_nothing_whoever_finishes_the_undo(graph, path, point):
    filled = graph.commits()[0].commit_id
    errors = {Failpoint.SCHEMA_AFTER_STAGING: StorageUnavailable("gone"), point: Died()}

    def fail(passed):
        if passed in errors:
            raise errors[passed]

    with hooked(fail), pytest.raises(Died):
        graph.schema.apply(changed(("  age: I32?", "")), allow_data_loss=True)
    (sidecar,) = graph._handle.store.sidecars.load_all()
    assert sidecar.undoing
    assert sidecar.hard_drops
    with Graph.open(path, durability="os") as again:
        assert is_old(again)
        # The versions before are those that the drop was to remove.
        assert values(again, "Person", "age", commit=filled) == AGES
        check(again, path)
    assert list((path / "__recovery").glob("*.cleanup")) == []
    assert verify_graph(str(path)).problems == ()
