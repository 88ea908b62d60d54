"""Every kind of writer there is, with the graph it starts from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from omnigraph import Graph
from omnigraph.commit.branches import Branches
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.lifecycle import table_location
from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.names import SCHEMA_LOCK
from omnigraph.commit.publisher import _MAX_FRAGMENTS, CommitIntent, Publication
from omnigraph.commit.rows import TableRow, VersionRow, WriterKind
from omnigraph.commit.schema.staging import SchemaStaging
from omnigraph.commit.sidecar import Registration, Sidecar, SidecarPin
from omnigraph.commit.store import GraphStore
from omnigraph.commit.ulid import new_ulid, now_micros
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.maintain.small_fragments import TIER
from omnigraph.storage.durable import Durability
from omnigraph.storage.objects.paths import parse_root
from omnigraph.storage.tables.types import TableRef
from tests.crash import operations
from tests.crash.harness import Harness, Operation, Prepared
from tests.crash.operations import BRANCH, SCHEMA, rows
from tests.crash.survival import State, Survival

Build = Callable[[Path, Harness], None]
BOTH = ("Person", "Knows")
ALL = ("Person", "Company", "Knows", "WorksAt")


@dataclass(frozen=True, slots=True)
class Scenario:
    """One operation on one graph."""

    name: str
    operation: Operation
    build: Build
    touched: tuple[str, ...]
    recovers: bool = False

    def __str__(self) -> str:
        return self.name

    def ready(self, folder: Path, crash: Harness) -> Ready:
        """Build the graph, and see what the operation makes of it when nobody dies."""
        root = folder / "graph"
        self.build(root, crash)
        prepared = Prepared.of(root, folder / "as-it-was")
        before = _state(root)
        reached = crash.crossings(self.operation, root)
        survival = Survival(before, _state(root), self.touched, self.recovers)
        return Ready(self, prepared, survival, reached)


@dataclass(frozen=True, slots=True)
class Ready:
    """A scenario that can be run as often as one likes."""

    scenario: Scenario
    prepared: Prepared
    survival: Survival
    reached: tuple[Failpoint, ...]


def _state(root: Path) -> State:
    with Graph.open(root, "r") as graph:
        return State.of(graph)


# -- graphs to start from -------------------------------------------------------------------------


def plain(root: Path, crash: Harness) -> None:
    """Two people who know each other, and a company."""
    with Graph.init(root, SCHEMA, durability="os") as graph:
        graph.append(rows("Person", "Ada", "Bob") | rows("Company", "Acme"))
        graph.append(rows("Knows", "k1", "k3"))


def befriended(root: Path, crash: Harness) -> None:
    """Bob knows others and has work."""
    plain(root, crash)
    with Graph.open(root, durability="os") as graph:
        graph.load(
            [
                {"edge": "Knows", "from": "Bob", "to": "Ada", "data": {"id": "k5"}},
                {"edge": "Knows", "from": "Ada", "to": "Bob", "data": {"id": "k6"}},
                {"edge": "WorksAt", "from": "Bob", "to": "Acme", "data": {"id": "w5"}},
            ]
        )


def branched(root: Path, crash: Harness) -> None:
    plain(root, crash)
    with Graph.open(root, durability="os") as graph:
        graph.branches.create(BRANCH)


def forked(root: Path, crash: Harness) -> None:
    """The branch has copies of two tables, and its parent moved on."""
    branched(root, crash)
    with Graph.open(root, durability="os") as graph:
        graph.append(rows("Person", "Carl") | rows("Knows", "k4"), branch=BRANCH)
        graph.append(rows("Person", "Dora"))


def with_an_orphan(root: Path, crash: Harness) -> None:
    """A first write to the branch died when it had forked."""
    branched(root, crash)
    died(crash, operations.append_on_branch, root, Failpoint.WRITE_AFTER_FORK)


def in_many_parts(root: Path, crash: Harness) -> None:
    """The next publish is the one that compacts the manifest."""
    plain(root, crash)
    with Graph.open(root, durability="os") as graph:
        for number in range(_MAX_FRAGMENTS - 4):
            graph.append(rows("Person", f"p{number}"))


def with_a_tail(root: Path, crash: Harness) -> None:
    """An index, and as many fragments that it does not cover as are merged."""
    plain(root, crash)
    with Graph.open(root, durability="os") as graph:
        graph.indexes.ensure()
        for number in range(TIER):
            graph.append(rows("Person", f"p{number}"))


def worn(root: Path, crash: Harness) -> None:
    """Tables in several parts, with rows deleted and changed; indexes that know some, or none."""
    plain(root, crash)
    with Graph.open(root, durability="os") as graph:
        graph.indexes.ensure()
        graph.append(rows("WorksAt", "w1"))
        for name in ("Carl", "Dora"):
            graph.append(rows("Person", name) | rows("Knows", f"k of {name}"))
        graph.mutate('query leave() { delete Person where name = "Carl" }')
        graph.load([{"type": "Person", "data": {"name": "Bob", "age": 77}}])


def worn_on_a_branch(root: Path, crash: Harness) -> None:
    """The same on the branch, which has its copies of the tables."""
    branched(root, crash)
    with Graph.open(root, durability="os") as graph:
        for name in ("Carl", "Dora"):
            graph.append(rows("Person", name) | rows("Knows", f"k of {name}"), branch=BRANCH)


def littered(root: Path, crash: Harness) -> None:
    """Old versions on main and a branch, a tag, a dropped type, a dead fork, files of nobody."""
    plain(root, crash)
    with Graph.open(root, durability="os") as graph:
        graph.append(rows("WorksAt", "w1"))
        graph.schema.apply(operations.WITHOUT_WORK)
        for name in ("Carl", "Dora"):
            graph.append(rows("Person", name))
        graph.tags.create("kept")
        graph.branches.create(BRANCH)
        for name in ("Eve", "Finn"):
            graph.append(rows("Person", name) | rows("Knows", f"k of {name}"), branch=BRANCH)
            graph.append(rows("Person", name))
        graph.branches.create("gone")
        graph.append(rows("Person", "Gil"), branch="gone")
        store = graph._handle.store
        location = store.manifest(None).current().pins["node:Person"].location
        (root / location / "data" / "nobody.lance").write_bytes(b"left")
        store.inline.delete_branch(MANIFEST, "gone")


_DIVERGED = (
    {"type": "Person", "data": {"name": "Ada", "age": 36}},
    {"type": "Person", "data": {"name": "Carl", "age": 20}},
    {"type": "Company", "data": {"name": "Beta"}},
    {"edge": "Knows", "from": "Ada", "to": "Carl", "data": {"id": "k7"}},
    {"edge": "WorksAt", "from": "Carl", "to": "Beta", "data": {"id": "w7"}},
)


def ahead(root: Path, crash: Harness) -> None:
    """The branch has inserted, changed and deleted in all tables; its parent has not moved."""
    befriended(root, crash)
    with Graph.open(root, durability="os") as graph:
        graph.branches.create(BRANCH)
        graph.load(_DIVERGED, branch=BRANCH)
        graph.mutate('query leave() { delete Person where name = "Bob" }', branch=BRANCH)


def diverged(root: Path, crash: Harness) -> None:
    """The same, and both have changed one table in different rows and others alike."""
    ahead(root, crash)
    with Graph.open(root, durability="os") as graph:
        graph.load([{"type": "Company", "data": {"name": "Beta"}}])
        graph.append(rows("Person", "Dora"))


def agreeing(root: Path, crash: Harness) -> None:
    """Both sides have made the same change."""
    branched(root, crash)
    with Graph.open(root, durability="os") as graph:
        for branch in ("main", BRANCH):
            graph.append(rows("Person", "Carl"), branch=branch)


def behind(root: Path, crash: Harness) -> None:
    """The branch has no table of its own, and its parent has moved on."""
    befriended(root, crash)
    with Graph.open(root, durability="os") as graph:
        graph.branches.create(BRANCH)
        graph.load(_DIVERGED)
        graph.mutate('query leave() { delete Person where name = "Bob" }')


def mistaken(root: Path, crash: Harness) -> None:
    """A commit that has to be taken back, and one after it."""
    befriended(root, crash)
    with Graph.open(root, durability="os") as graph:
        graph.load(_DIVERGED)
        graph.append(rows("Person", "Dora"))


def tall(root: Path, crash: Harness) -> None:
    """People have a height, which they can lose again."""
    plain(root, crash)
    with Graph.open(root, durability="os") as graph:
        graph.schema.apply(operations.TALL)
        graph.mutate('query m() { update Person set { height: 1.8 } where name = "Ada" }')


def died(crash: Harness, operation: Operation, root: Path, point: Failpoint) -> None:
    assert crash.kill_at_failpoint(operation, root, point).killed


def dead(build: Build, operation: Operation, point: Failpoint) -> Build:
    """A graph on which an operation died."""

    def built(root: Path, crash: Harness) -> None:
        build(root, crash)
        died(crash, operation, root, point)

    return built


def dead_on_a_lost_branch(root: Path, crash: Harness) -> None:
    """A write died with its tables moved, and then its branch went away."""
    forked(root, crash)
    with Graph.open(root) as graph:
        died(crash, operations.append_on_branch, root, Failpoint.WRITE_AFTER_TABLES)
        Branches(graph._handle.store).delete(BRANCH)


# -- schema applies, made by hand -----------------------------------------------------------------

_GROWN = f"{SCHEMA}node City {{ name: String @key }}\n"
_CITY = compile_schema(_GROWN).node("City")


def dead_apply(root: Path, crash: Harness) -> None:
    """A schema apply died when all was written: a new type, and a table that it rewrote."""
    plain(root, crash)
    store = GraphStore(parse_root(str(root)), Durability.OS)
    snapshot = store.manifest(None).current()
    pin = snapshot.pins["node:Person"]
    person = store.table(pin)
    staged = store.tables.stage_overwrite(person, person.read())
    store.inline.create_branch(TableRef(MANIFEST), snapshot.manifest_version, SCHEMA_LOCK)
    store.sidecars.write(
        Sidecar(
            new_ulid(),
            str(now_micros()),
            None,
            "ana",
            WriterKind.SCHEMA_APPLY,
            (
                SidecarPin(
                    pin.table_key,
                    store.root.path(pin.location),
                    pin.version,
                    pin.version + 1,
                    transactions=(staged.transaction_id,),
                ),
            ),
            additional_registrations=(Registration(_CITY.table_key, table_location(_CITY)),),
            leased=True,
        )
    )
    store.inline.create(table_location(_CITY), _CITY.arrow_schema())
    store.tables.commit_staged(staged)
    SchemaStaging(store.objects).stage(compile_schema(_GROWN), _GROWN)


def half_staged_apply(root: Path, crash: Harness) -> None:
    """It died before its schema files were complete: nothing of it may stay."""
    dead_apply(root, crash)
    (root / "_schema.ir.json.staging").unlink()


def staged_without_a_sidecar(root: Path, crash: Harness) -> None:
    """The tables of a schema apply are published, its schema files still wait."""
    plain(root, crash)
    store = GraphStore(parse_root(str(root)), Durability.OS)
    location = table_location(_CITY)
    created = store.inline.create(location, _CITY.arrow_schema())
    store.publisher.publish(
        store.manifest(None),
        Publication(
            {},
            [VersionRow.of(_CITY.table_key, created)],
            [TableRow(_CITY.table_key, location)],
            commit=CommitIntent(new_ulid(), None, now_micros()),
        ),
    )
    SchemaStaging(store.objects).stage(compile_schema(_GROWN), _GROWN)


# -- the scenarios --------------------------------------------------------------------------------

WRITERS = (
    Scenario("append to one table", operations.append_one, plain, ("Person",)),
    Scenario("append to several tables", operations.append_several, plain, ALL),
    Scenario("first write on a branch", operations.append_on_branch, branched, BOTH),
    Scenario("first write over an orphan", operations.append_on_branch, with_an_orphan, BOTH),
    Scenario("second write on a branch", operations.append_on_branch, forked, BOTH),
    Scenario("delete", operations.delete_rows, plain, BOTH),
    Scenario("upsert", operations.upsert_rows, plain, BOTH),
    Scenario("overwrite", operations.overwrite_rows, plain, BOTH),
    Scenario("mutate", operations.mutate, plain, ("Person", "Company")),
    Scenario("write as a group", operations.write_group, plain, ALL),
    Scenario(
        "delete and cascade",
        operations.delete_and_cascade,
        befriended,
        ("Person", "Knows", "WorksAt"),
    ),
    Scenario("merge several tables", operations.merge_several, befriended, ALL),
    Scenario("merge in streams", operations.merge_in_streams, befriended, ALL),
    Scenario("append while reading", operations.append_directly, befriended, ALL),
    Scenario("merge in shares", operations.merge_in_splits, befriended, ALL),
    Scenario("shares on a branch", operations.merge_in_splits_on_branch, branched, ALL),
    Scenario("shares over an orphan", operations.merge_in_splits_on_branch, with_an_orphan, ALL),
    Scenario("three-way merge", operations.merge_branch, diverged, ALL),
    Scenario("fast-forward", operations.merge_branch, ahead, ALL),
    Scenario("merge into a branch", operations.merge_into_branch, behind, ALL),
    Scenario("merge without a change", operations.merge_branch, agreeing, ("Person",)),
    Scenario("revert", operations.revert, mistaken, ALL),
    Scenario("ensure indexes", operations.ensure_indexes, plain, BOTH),
    Scenario("rebuild indexes", operations.rebuild_indexes, worn, BOTH),
    Scenario("optimize if needed", operations.optimize_if_needed, worn, BOTH),
    Scenario("optimize", operations.optimize, worn, (*BOTH, "WorksAt")),
    Scenario("compact a tail", operations.compact_tail, with_a_tail, ("Person",)),
    Scenario("optimize on a branch", operations.optimize_on_branch, worn_on_a_branch, BOTH),
    Scenario("cleanup", operations.clean_up, littered, BOTH),
    Scenario("create a branch", operations.create_branch, plain, ("Person",)),
    Scenario("delete a branch", operations.delete_branch, forked, BOTH),
    Scenario("create a tag", operations.create_tag, plain, ("Person",)),
    Scenario("apply a property", operations.apply_property, plain, BOTH),
    Scenario("apply two steps to one table", operations.apply_pair, plain, BOTH),
    Scenario("apply a rename", operations.apply_rename, plain, ("Person", "Human", "Knows")),
    Scenario("apply a hard drop", operations.apply_drop, tall, BOTH),
    Scenario("apply a constraint", operations.apply_constraint, plain, BOTH),
    Scenario("apply other types", operations.apply_types, plain, ("Person", "Company", "City")),
    Scenario("lose the publish", operations.lose_the_publish, plain, BOTH),
    Scenario("publish that compacts", operations.append_one, in_many_parts, ("Person",)),
)

_RECOVERED: tuple[tuple[str, Build, tuple[str, ...]], ...] = (
    ("roll forward", dead(plain, operations.append_several, Failpoint.WRITE_AFTER_TABLES), ALL),
    (
        "roll forward on a branch",
        dead(branched, operations.append_on_branch, Failpoint.WRITE_AFTER_TABLES),
        BOTH,
    ),
    (
        "roll forward a group",
        dead(plain, operations.write_group, Failpoint.WRITE_AFTER_TABLES),
        ALL,
    ),
    ("roll back a group", dead(plain, operations.write_group, Failpoint.WRITE_BETWEEN_TABLES), ALL),
    ("roll back", dead(plain, operations.append_several, Failpoint.WRITE_BETWEEN_TABLES), ALL),
    (
        "roll back a fork",
        dead(branched, operations.append_on_branch, Failpoint.WRITE_BETWEEN_TABLES),
        BOTH,
    ),
    (
        "roll back a half undone write",
        dead(plain, operations.lose_the_publish, Failpoint.UNDO_AFTER_RESTORE),
        BOTH,
    ),
    (
        "roll back a table between its steps",
        dead(plain, operations.apply_pair, Failpoint.WRITE_BETWEEN_STEPS),
        BOTH,
    ),
    (
        "roll a compaction forward",
        dead(with_a_tail, operations.compact_tail, Failpoint.WRITE_AFTER_TABLES),
        ("Person",),
    ),
    (
        "published compaction",
        dead(with_a_tail, operations.compact_tail, Failpoint.WRITE_AFTER_PUBLISH),
        ("Person",),
    ),
    ("stale sidecar", dead(plain, operations.append_several, Failpoint.WRITE_AFTER_PUBLISH), ALL),
    ("discarded branch", dead_on_a_lost_branch, BOTH),
    ("finish a schema apply", dead_apply, BOTH),
    ("take back a schema apply", half_staged_apply, BOTH),
    ("promote staged schema files", staged_without_a_sidecar, BOTH),
)

RECOVERIES = tuple(
    Scenario(name, operations.reopen, build, touched, recovers=True)
    for name, build, touched in _RECOVERED
)

SCENARIOS = (*WRITERS, *RECOVERIES)
