"""Optimize: fewer parts and complete indexes, and a graph that means what it meant before."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.commit.failpoints import Failpoint, hooked
from omnigraph.commit.publisher import CommitIntent, Publication
from omnigraph.commit.rows import VersionRow
from omnigraph.commit.store import Timeouts
from omnigraph.commit.ulid import new_ulid, now_micros
from omnigraph.errors import (
    BranchNotFound,
    InputError,
    ReadOnly,
    RecoveryRequired,
)
from omnigraph.maintain.optimize import plan as optimize_plan
from omnigraph.maintain.optimize.run import DRIFTED, NOT_OWNED, RETRIES
from omnigraph.storage.tables.segments import segments_of
from omnigraph.storage.tables.types import CommittedTable, IndexKind
from tests.commit.deaths import Died, leave_sidecar
from tests.commit.world import at, listing, manifest_of, raising

pytestmark = pytest.mark.rotates(6)

SCHEMA = """\
node Doc {
  slug: String @key
  title: String? @index
  year: I32? @index
  vec: Vector(4)? @index
  body: Blob?
}
node Empty { name: String @key }
edge Cites: Doc -> Doc
"""
DOC, CITES = "node:Doc", "edge:Cites"
STAMPS = ["_row_created_at_version", "_row_last_updated_at_version"]
LARGE = bytes(range(256)) * 600


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        yield graph


def docs(*numbers):
    return {
        "Doc": pa.table(
            {
                "slug": [f"d{n}" for n in numbers],
                "title": [f"word{n} common" for n in numbers],
                "year": pa.array(numbers, pa.int32()),
                "vec": pa.array([[float(n), 1, 2, 3] for n in numbers], pa.list_(pa.float32(), 4)),
                "body": pa.array(
                    [None if n % 3 == 0 else LARGE if n % 3 == 1 else b"%d" % n for n in numbers],
                    pa.large_binary(),
                ),
            }
        )
    }


def cites(*pairs):
    return {"Cites": pa.table({"src": [p[0] for p in pairs], "dst": [p[1] for p in pairs]})}


def in_parts(graph, count=6, branch="main", start=0):
    for n in range(start, start + count):
        graph.append(docs(10 * n, 10 * n + 1, 10 * n + 2), branch=branch)
        graph.append(cites((f"d{10 * n}", f"d{10 * n + 1}")), branch=branch)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    path = tmp_path_factory.mktemp("optimize") / "g.omni"
    with Graph.init(path, SCHEMA, durability="os") as graph:
        in_parts(graph)
    return path


@pytest.fixture
def filled(template, tmp_path):
    """Eighteen documents in six parts, and an edge in each of six parts."""
    shutil.copytree(template, tmp_path / "g.omni")
    with Graph.open(tmp_path / "g.omni", durability="os") as graph:
        yield graph


def dataset(graph, key=DOC, branch="main"):
    pin = graph._handle.store.manifest(None if branch == "main" else branch).current().pins[key]
    return lance.dataset(f"{graph.uri}/{pin.ref.path}", version=pin.version)


def parts(graph, key=DOC, branch="main"):
    return len(dataset(graph, key, branch).get_fragments())


def physical(graph, key=DOC):
    """Row ids and stamps of every row, by id."""
    rows = dataset(graph, key).to_table(columns=["id", *STAMPS], with_row_id=True)
    return rows.sort_by("id").to_pylist()


def is_complete(graph, branch="main"):
    states = graph.indexes.status(branch).indexes
    return all(s.coverage is not None and s.coverage.complete for s in states if _filled(s))


def _filled(state):
    return state.table_key in (DOC, CITES)


QUERIES = """
query all() { match { $d: Doc } return { $d.slug, $d.title, $d.year } order { $d.slug } }
query year($y: I32) { match { $d: Doc { year: $y } } return { $d.slug } }
query word($w: String) { match { $d: Doc search($d.title, $w) } return { $d.slug } }
query near($v: Vector(4)) {
  match { $d: Doc } return { $d.slug } order { nearest($d.vec, $v) } limit 3
}
query cited() { match { $a: Doc $a cites $b } return { $a.slug, $b.slug } order { $a.slug } }
"""


def responses(graph, branch="main"):
    """What queries of every kind say, each through its index where there is one."""
    ask = lambda name, **params: graph.query(QUERIES, name, params, branch=branch).rows()  # noqa: E731
    numbers = [0, 1, 2, 11, 21, 41, 51, 99, 500]
    return {
        "all": ask("all"),
        "years": [ask("year", y=n) for n in numbers],
        "words": [ask("word", w=f"word{n}") for n in numbers],
        "near": [ask("near", v=[float(n), 1.0, 2.0, 3.0]) for n in (1, 21, 51)],
        "cited": ask("cited"),
        "blobs": {
            row["d.slug"]: graph.snapshot(branch).read_blob("Doc", row["d.slug"], "body")
            for row in ask("all")
        },
    }


# -- what it does -----------------------------------------------------------------------------


def test_small_parts_become_one_and_every_index_knows_every_row(filled):
    before, rows = responses(filled), physical(filled)
    report = filled.maintenance.optimize(actor="ana")
    assert responses(filled) == before
    assert physical(filled) == rows
    assert (parts(filled), parts(filled, CITES)) == (1, 1)
    assert is_complete(filled)
    stats = report.table(DOC)
    assert (stats.fragments_removed, stats.fragments_added, stats.committed) == (6, 1, True)
    assert ("title", IndexKind.TEXT) in stats.indexed
    newest = filled.commits()[0]
    assert (newest.commit_id, newest.actor) == (report.commit_id, "ana")


def test_all_tables_are_one_commit(filled):
    before = len(filled.commits())
    filled.maintenance.optimize()
    assert len(filled.commits()) == before + 1


def test_deleted_rows_leave_the_files_and_every_answer(filled):
    filled.maintenance.optimize()
    filled.mutate("query q() { delete Doc where year < 25 }")
    before, rows = responses(filled), physical(filled)
    report = filled.maintenance.optimize()
    assert report.table(DOC).fragments_added == 1
    (left,) = dataset(filled).get_fragments()
    assert left.metadata.num_deletions == 0
    assert responses(filled) == before
    assert physical(filled) == rows


@pytest.mark.parametrize("large", [10, 10**6])
def test_changed_rows_are_found_by_what_they_say_now(filled, large, monkeypatch):
    """A text index that knew the row before would find it by its old words."""
    filled.maintenance.optimize()
    monkeypatch.setattr(optimize_plan, "LARGE_SEGMENT", large)
    filled.load([{"type": "Doc", "data": {"slug": "d11", "title": "word500", "year": 500}}])
    before, rows = responses(filled), physical(filled)
    assert before["words"][-1] == [{"d.slug": "d11"}]
    filled.maintenance.optimize()
    assert responses(filled) == before
    assert physical(filled) == rows
    assert is_complete(filled)


def test_new_rows_of_a_large_table_are_folded_in_without_building_anew(filled, monkeypatch):
    filled.maintenance.optimize()
    monkeypatch.setattr(optimize_plan, "LARGE_SEGMENT", 10)
    existing = {s.uuid for actual in segments_of(table(filled)).values() for s in actual}
    in_parts(filled, 2, start=10)
    before = responses(filled)
    filled.maintenance.optimize()
    now = segments_of(table(filled))
    assert existing < {s.uuid for actual in now.values() for s in actual}
    assert {len(actual) for actual in now.values()} == {2}
    assert parts(filled) == 2
    assert responses(filled) == before
    assert is_complete(filled)
    assert filled.maintenance.optimize().commit_id is None


def test_new_rows_without_a_vector_are_folded_in_too(filled, monkeypatch):
    filled.maintenance.optimize()
    monkeypatch.setattr(optimize_plan, "LARGE_SEGMENT", 10)
    filled.load([{"type": "Doc", "data": {"slug": "bare"}}])
    before = responses(filled)
    assert filled.maintenance.optimize().table(DOC).pending_indexes == ()
    assert is_complete(filled)
    assert responses(filled) == before


def table(graph, key=DOC):
    return graph._handle.store.table(graph._handle.store.manifest(None).current().pins[key])


def test_an_index_that_is_declared_and_missing_is_built(filled):
    """Alone, without anything to put together."""
    filled.maintenance.optimize()
    pin = filled._handle.store.manifest(None).current().pins[DOC]
    assert set(segments_of(filled._handle.store.table(pin))) == {
        "id_equality",
        "slug_equality",
        "slug_text",
        "title_equality",
        "title_text",
        "vec_vector",
        "year_equality",
    }


def test_a_column_without_a_value_is_pending_and_fails_nothing(graph):
    graph.load([{"type": "Doc", "data": {"slug": "a"}}])
    report = graph.maintenance.optimize()
    (pending,) = report.table(DOC).pending_indexes
    assert (pending.column, pending.reason) == ("vec", "no row has a vector")
    reported = report.to_json()
    assert reported["tables"][1]["pending_indexes"] == [
        {"column": "vec", "reason": "no row has a vector"}
    ]


def test_earlier_versions_stay_what_they_were(filled):
    before, version = responses(filled), filled.snapshot().version
    filled.tags.create("before")
    filled.maintenance.optimize()
    filled.mutate("query q() { delete Doc where year < 25 }")
    filled.maintenance.optimize()
    for how in ({"version": version}, {"tag": "before"}):
        old = filled.snapshot(**how).query(QUERIES, "all", {}).rows()
        assert old == before["all"]


def test_writing_goes_on(filled):
    filled.maintenance.optimize()
    pins = filled._handle.store.manifest(None).current().pins
    assert all(filled._handle.store.tables.head(pin.ref) == pin.version for pin in pins.values())
    filled.mutate('query q() { update Doc set { title: "new" } where slug = "d11" }')
    filled.append(docs(99))
    with Graph.open(filled.uri) as again:
        assert again.recovered == ()
        assert again.snapshot().count("Doc") == 19


# -- nothing to do ----------------------------------------------------------------------------


def test_an_empty_graph_has_one_stat_for_each_table_and_the_manifest(graph):
    before = listing(graph.uri)
    report = graph.maintenance.optimize()
    assert [stats.table_key for stats in report.tables] == [CITES, DOC, "node:Empty", "__manifest"]
    assert not any(stats.committed for stats in report.tables)
    assert report.commit_id is None
    assert listing(graph.uri) == before


def test_a_second_optimize_changes_nothing(filled):
    filled.maintenance.optimize()
    before = listing(filled.uri)
    report = filled.maintenance.optimize()
    assert report.commit_id is None
    assert not any(stats.committed for stats in report.tables)
    assert listing(filled.uri) == before


def test_the_manifest_becomes_one_part_and_no_sidecar_stays(filled):
    report = filled.maintenance.optimize()
    assert len(manifest_of(filled.uri).get_fragments()) == 1
    assert report.table("__manifest").fragments_added == 1
    assert list(Path(filled.uri, "__recovery").glob("*.json")) == []
    assert list(Path(filled.uri, "__recovery").glob("*.staging")) == []


def test_only_what_is_needed_when_that_is_asked_for(filled):
    filled.maintenance.optimize()
    filled.append(docs(99))
    assert filled.maintenance.optimize(if_needed=True).commit_id is None
    assert parts(filled) == 2
    in_parts(filled, 8, start=20)
    assert filled.maintenance.optimize(if_needed=True).commit_id is not None
    assert parts(filled) == 1


def test_nothing_is_left_beside_what_the_versions_name(filled):
    """No version that is in no history, and no segment that was put together with others."""
    filled.maintenance.optimize()
    files = [path.name for path in Path(filled.uri).rglob("*.manifest")]
    assert not any(name.startswith("d") for name in files)
    used = {s.uuid for actual in segments_of(table(filled)).values() for s in actual}
    there = {path.name for path in Path(dataset(filled).uri, "_indices").iterdir()}
    assert there == used


# -- settings of Lance ------------------------------------------------------------------------


def cleanup_at(dataset, version):
    """Have Lance remove all that is old when it commits this version."""
    dataset.update_config(
        {"lance.auto_cleanup.interval": f"{version}", "lance.auto_cleanup.older_than": "0s"}
    )


def test_stored_cleanup_settings_go_first_and_no_version_is_lost(filled):
    pin = filled._handle.store.manifest(None).current().pins[DOC]
    cleanup_at(dataset(filled), pin.version + 2)
    publish_head(filled, DOC)
    manifest = manifest_of(filled.uri)
    cleanup_at(manifest, manifest.version + 2)
    report = filled.maintenance.optimize()
    assert report.table(DOC).committed
    for kept in (dataset(filled), manifest_of(filled.uri)):
        assert kept.config() == {}
        assert [item["version"] for item in kept.versions()] == list(range(1, kept.version + 1))


def publish_head(graph, key):
    """Take over what somebody else did to a table, as a repair would."""
    store = graph._handle.store
    pin = store.manifest(None).current().pins[key]
    head = store.tables.head(pin.ref)
    made = CommittedTable(pin.ref, head, pin.row_count, store.datasets.info(pin.ref, head))
    intent = CommitIntent(new_ulid(), None, now_micros())
    publication = Publication({key: pin.version}, [VersionRow.of(key, made)], commit=intent)
    store.publisher.publish(store.manifest(None), publication)


# -- branches ---------------------------------------------------------------------------------


def test_a_branch_has_its_own_tables_optimized_and_main_stays(filled):
    filled.branches.create("feat")
    for n in (99, 100):
        filled.append(docs(n), branch="feat")
    before, of_main = responses(filled, "feat"), dataset(filled).version
    report = filled.maintenance.optimize("feat")
    assert report.branch == "feat"
    assert report.table(DOC).fragments_removed == 8
    assert report.table(CITES).skipped == NOT_OWNED
    assert parts(filled, DOC, "feat") == 1
    assert responses(filled, "feat") == before
    assert dataset(filled).version == of_main
    assert filled.maintenance.optimize("feat").commit_id is None
    assert len(manifest_of(filled.uri, "feat").get_fragments()) == 1
    with pytest.raises(BranchNotFound):
        filled.maintenance.optimize("none")


def test_a_branch_keeps_reading_what_main_was(filled):
    filled.branches.create("feat")
    before = responses(filled, "feat")
    filled.maintenance.optimize()
    assert responses(filled, "feat") == before
    filled.append(docs(99), branch="feat")
    assert filled.snapshot("feat").count("Doc") == 19


# -- drift and sidecars -----------------------------------------------------------------------


def drift(graph, key=DOC, *, by="delete"):
    """Somebody writes to a table without telling the graph."""
    actual = dataset(graph, key)
    if by == "delete":
        actual.delete("id = 'd0'")
    else:
        row = actual.to_table(limit=1).drop_columns(["id"]).append_column("id", [["x"]])
        lance.write_dataset(
            row.select(actual.schema.names).cast(actual.schema), actual.uri, mode="append"
        )


def test_a_table_that_drifted_is_skipped_and_the_others_are_not(filled):
    drift(filled)
    report = filled.maintenance.optimize()
    stats, pinned = report.table(DOC), filled.snapshot().tables[DOC]["version"]
    assert stats.skipped == DRIFTED
    assert (stats.manifest_version, stats.lance_head_version) == (pinned, pinned + 1)
    assert not stats.committed
    assert report.table(CITES).committed
    assert parts(filled) == 6


def test_what_a_dead_writer_left_is_settled_first(filled):
    with at(Failpoint.WRITE_AFTER_TABLES, raising(Died())), pytest.raises(Died):
        filled.append(docs(99))
    report = filled.maintenance.optimize()
    assert report.table(DOC).fragments_removed == 7
    assert filled.snapshot().count("Doc") == 19


def test_a_sidecar_that_cannot_be_settled_refuses_it(filled):
    """The reference's own, whose roll-back is for an open."""
    drift(filled)
    pin = filled._handle.store.manifest(None).current().pins[DOC]
    entry = {
        "table_key": DOC,
        "table_path": filled._handle.store.root.path(pin.location),
        "expected_version": pin.version - 1,
        "post_commit_pin": pin.version,
    }
    operation = leave_sidecar(filled.uri, entry)
    before = listing(filled.uri).keys()
    with pytest.raises(RecoveryRequired, match=operation) as caught:
        filled.maintenance.optimize()
    assert "reopen" in caught.value.hint
    assert listing(filled.uri).keys() == before


def stopped_writer(graph, finish):
    """An append in another thread that has moved its tables and waits, and what makes it wait."""
    inside = threading.Event()
    writer = threading.Thread(target=lambda: graph.append(docs(99)))

    def stop(point):
        if point is Failpoint.WRITE_AFTER_TABLES and threading.current_thread() is writer:
            inside.set()
            finish.wait()

    return writer, inside, stop


def test_a_writer_that_lives_is_waited_for(filled):
    finish = threading.Event()
    writer, inside, stop = stopped_writer(filled, finish)

    def hook(point):
        stop(point)
        if point is Failpoint.RECOVERY_AFTER_LEASES:
            # The optimize has seen the sidecar, and that it belongs to somebody.
            finish.set()

    with hooked(hook):
        writer.start()
        inside.wait()
        report = filled.maintenance.optimize()
        writer.join()
    assert report.table(DOC).fragments_removed == 7
    assert filled.snapshot().count("Doc") == 19


def test_and_not_for_ever(filled):
    finish = threading.Event()
    writer, inside, stop = stopped_writer(filled, finish)
    with hooked(stop):
        writer.start()
        inside.wait()
        filled._handle.store.timeouts = Timeouts(lease=0.0)
        with pytest.raises(RecoveryRequired, match="by its writer"):
            filled.maintenance.optimize()
        finish.set()
        writer.join()


# -- others that write ------------------------------------------------------------------------

POINTS = [
    Failpoint.OPTIMIZE_BEFORE_COMPACTION,
    Failpoint.OPTIMIZE_AFTER_COMPACTION,
    Failpoint.OPTIMIZE_AFTER_STAGE,
]
WRITES = {
    "an append": lambda graph: graph.append(docs(99)),
    "an upsert": lambda graph: graph.load(
        [{"type": "Doc", "data": {"slug": "d11", "title": "word500"}}]
    ),
    "a delete": lambda graph: graph.mutate('query q() { delete Doc where slug = "d11" }'),
    "an overwrite": lambda graph: graph.load(
        {**docs(*range(70)), **cites(("d1", "d2"))}, mode="overwrite"
    ),
}


@pytest.mark.parametrize("point", POINTS, ids=str)
@pytest.mark.parametrize("write", WRITES)
def test_whoever_writes_meanwhile_loses_nothing(filled, write, point):
    seen = {}

    def disturb():
        with Graph.open(filled.uri, durability="os") as other:
            WRITES[write](other)
            seen["answers"], seen["rows"] = responses(other), physical(other)

    with at(point, disturb):
        report = filled.maintenance.optimize()
    assert report.commit_id is not None
    assert responses(filled) == seen["answers"]
    assert physical(filled) == seen["rows"]
    assert parts(filled) == 1
    assert is_complete(filled)
    assert filled.maintenance.optimize().commit_id is None


def test_parts_that_stayed_are_not_rewritten_twice(filled, monkeypatch):
    monkeypatch.setattr(optimize_plan, "ROWS_PER_FRAGMENT", 5_000)
    rewritten = []

    def count(point):
        if point is Failpoint.OPTIMIZE_AFTER_COMPACTION:
            rewritten.append(len(list(Path(dataset(filled).uri, "data").glob("*.lance"))))
            if len(rewritten) == 1:
                with Graph.open(filled.uri, durability="os") as other:
                    other.load(
                        {
                            "Doc": docs(*range(1000, 1000 + optimize_plan.ROWS_PER_FRAGMENT))[
                                "Doc"
                            ].drop(["body"])
                        }
                    )

    with hooked(count):
        filled.maintenance.optimize()
    first, second = rewritten
    # The table has one more, the one that was loaded.
    assert second == first + 1


def test_somebody_who_never_rests_is_kept_out_in_the_end(filled):
    """The last try holds the tables while it works."""
    times = []

    def disturb(point):
        if point is Failpoint.OPTIMIZE_AFTER_STAGE and len(times) <= RETRIES:
            times.append(point)
            with Graph.open(filled.uri, durability="os") as other:
                other.append(docs(100 + len(times)))

    with hooked(disturb):
        report = filled.maintenance.optimize()
    assert len(times) == RETRIES + 1
    assert report.table(DOC).committed
    assert filled.snapshot().count("Doc") == 18 + RETRIES + 1
    assert parts(filled) == 1


def test_a_race_that_is_lost_at_the_commit_is_run_again(filled):
    """Another program, which knows no lease, commits to the table in between."""
    before = responses(filled)
    with at(Failpoint.WRITE_AFTER_SIDECAR, lambda: drift(filled, CITES, by="append")):
        report = filled.maintenance.optimize()
    assert report.table(CITES).committed
    assert responses(filled) == before
    assert (parts(filled), parts(filled, CITES)) == (1, 1)
    assert is_complete(filled)
    with Graph.open(filled.uri) as again:
        assert again.recovered == ()
        assert responses(again) == before


@pytest.mark.parametrize(
    "point", [Failpoint.OPTIMIZE_BEFORE_COMPACTION, Failpoint.OPTIMIZE_AFTER_STAGE]
)
def test_a_branch_that_is_deleted_meanwhile_is_not_found(filled, point):
    filled.branches.create("review")
    in_parts(filled, 6, branch="review", start=20)

    def delete(reached):
        if reached is point and "review" in filled.branches.list():
            filled.branches.delete("review")

    with hooked(delete), pytest.raises(BranchNotFound, match="'review'"):
        filled.maintenance.optimize("review")


def test_readers_are_not_disturbed(filled):
    snapshot = filled.snapshot()
    expected = snapshot.read("Doc", ["slug"]).num_rows
    seen = []

    def read(point):
        seen.append(filled.snapshot().read("Doc", ["slug"]).num_rows)

    with hooked(read):
        filled.maintenance.optimize()
    assert set(seen) == {expected}
    assert snapshot.read("Doc", ["slug"]).num_rows == expected


# -- asking for it ----------------------------------------------------------------------------


def test_progress_is_told_and_may_not_write(filled):
    seen = []
    filled.maintenance.optimize(on_progress=seen.append)
    assert {at.phase for at in seen} == {"rewriting", "indexing"}
    assert (seen[-1].done, seen[-1].total) == (10, 10)
    filled.append(docs(99))
    with pytest.raises(InputError, match="progress"):
        filled.maintenance.optimize(on_progress=lambda at: filled.append(docs(100)))


def test_how_much_is_done_at_once_is_a_setting(filled, monkeypatch):
    monkeypatch.setenv("OMNIGRAPH_MAINTENANCE_CONCURRENCY", "1")
    with Graph.open(filled.uri) as graph:
        assert graph.maintenance.optimize().table(DOC).fragments_added == 1
    monkeypatch.setenv("OMNIGRAPH_MAINTENANCE_CONCURRENCY", "many")
    with (
        Graph.open(filled.uri) as graph,
        pytest.raises(InputError, match="MAINTENANCE_CONCURRENCY"),
    ):
        graph.maintenance.optimize()


def test_an_engine_that_is_none_is_refused(filled):
    with pytest.raises(InputError, match="engine"):
        filled.maintenance.optimize(engine="quick")


def test_who_may_only_read_cannot(filled):
    with Graph.open(filled.uri, "r") as reader, pytest.raises(ReadOnly):
        reader.maintenance.optimize()


def test_auto_says_why_it_takes_spark(filled, monkeypatch, caplog):
    monkeypatch.setattr("omnigraph.api.maintenance.OPTIMIZE_BYTES", 1)
    monkeypatch.setattr("omnigraph.spark.session.engine.is_installed", lambda: False)
    report = filled.maintenance.optimize()
    assert report.commit_id is not None
    (said,) = [r.message for r in caplog.records if "Spark" in r.message]
    assert "Spark is not installed" in said
