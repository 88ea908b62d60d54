"""What the crash tests do to a graph: one operation for each kind of writer.

Each is a generator for the harness: what stands before its ``yield`` is preparation. Nothing is
built when this module is imported, because the zygote imports it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from omnigraph import Graph, MaintenancePolicy, prune_backup
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.receipts import LoadReceipt
from omnigraph.commit.rows import WriterKind
from omnigraph.commit.write_request import PreparedWrite, WriteRequest, WriteView
from omnigraph.errors import StorageUnavailable, VersionMismatch
from omnigraph.maintain import small_fragments
from omnigraph.spark.load.run import split_reader
from omnigraph.storage.executor import ThreadExecutor
from omnigraph.write.load import spool
from omnigraph.write.load.job import LoadDestination, LoadJob, LoadMode
from omnigraph.write.load.run import load_into
from tests.commit.together import Waiting, kept

SCHEMA = """
node Person { name: String @key  age: I32? }
node Company { name: String @key }
edge Knows: Person -> Person
edge WorksAt: Person -> Company
"""
BRANCH = "feat"
NEW = "review/new"
TALL = SCHEMA.replace("age: I32?", "age: I32?  height: F64?")
PAIR = SCHEMA.replace("age: I32?", "age: I32  city: String?")
HUMAN = SCHEMA.replace("Person", "Human").replace("node Human", 'node Human @rename_from("Person")')
STRICT = SCHEMA.replace("age: I32?", "age: I32?  @range(age, 0..)")
WITHOUT_WORK = SCHEMA.replace("edge WorksAt: Person -> Company\n", "")
SECRET = SCHEMA.replace("age: I32?", "age: I32?  secret: String?")
WITHOUT_COMPANIES = WITHOUT_WORK.replace("node Company { name: String @key }\n", "")
OTHERS = (
    SCHEMA.replace("node Company { name: String @key }", "node City { name: String @key }")
    .replace("edge WorksAt: Person -> Company", "edge LivesIn: Person -> City")
    .replace("age: I32?", "age: I64")
)


def rows(table: str, *names: str) -> dict[str, pa.Table]:
    """Rows of one type; an edge goes from the first person to itself, or to the first company."""
    if table in ("Person", "Human"):
        return {table: pa.table({"name": list(names), "age": pa.array([len(names)] * len(names))})}
    if table in ("Company", "City"):
        return {table: pa.table({"name": list(names)})}
    end = "Ada" if table == "Knows" else "Acme"
    ends = {"src": ["Ada"] * len(names), "dst": [end] * len(names)}
    return {table: pa.table({"id": list(names), **ends})}


def several(*names: str) -> dict[str, pa.Table]:
    """Rows of all four types."""
    return {
        table: actual
        for table in ("Person", "Company", "Knows", "WorksAt")
        for actual in rows(table, *names).values()
    }


# -- the graph ------------------------------------------------------------------------------------


def init(root: Path, durability: str = "disk") -> Iterator[None]:
    yield
    Graph.init(root, SCHEMA, durability=durability)


def init_by_force(root: Path, durability: str = "disk") -> Iterator[None]:
    yield
    Graph.init(root, SCHEMA, force=True, durability=durability)


def reopen(root: Path, durability: str = "disk") -> Iterator[None]:
    """The recovery of an open."""
    yield
    Graph.open(root, durability=durability)


# -- appends --------------------------------------------------------------------------------------


def append_one(root: Path, durability: str = "disk") -> Iterator[None]:
    graph = Graph.open(root, actor="ana", durability=durability)
    yield
    graph.append(rows("Person", "Grace"))


def append_several(root: Path, durability: str = "disk") -> Iterator[None]:
    graph = Graph.open(root, actor="ana", durability=durability)
    yield
    graph.append(several("Grace"))


def append_on_branch(root: Path, durability: str = "disk") -> Iterator[None]:
    """The first time this forks two tables."""
    graph = Graph.open(root, actor="ana", durability=durability)
    yield
    graph.append(rows("Person", "Grace") | rows("Knows", "loop"), branch=BRANCH)


# -- mutations and loads --------------------------------------------------------------------------

_HIRE = """
query hire($name: String, $company: String) {
  insert Company { name: $company }
  insert Person { name: $name, age: 30 }
  update Person set { age: 50 } where name = "Ada"
}
"""
_ADD = 'query add() { insert Person { name: "Grace", age: 30 } }'
_MERGED: tuple[dict[str, Any], ...] = (
    {"edge": "Knows", "from": "Ada", "to": "Grace", "data": {"id": "k1"}},
    {"edge": "Knows", "from": "Grace", "to": "Ada", "data": {"id": "k9"}},
    {"type": "Person", "data": {"name": "Grace", "age": 85}},
    {"type": "Person", "data": {"name": "Ada"}},
    {"type": "Company", "data": {"name": "Beta"}},
    {"edge": "WorksAt", "from": "Grace", "to": "Beta", "data": {"id": "w9"}},
)

_NEW_ROWS = tuple(
    record for record in _MERGED if record["data"] not in ({"id": "k1"}, {"name": "Ada"})
)


def mutate(root: Path, durability: str = "disk") -> Iterator[None]:
    """A new company, a new person and a change of another one."""
    graph = Graph.open(root, actor="ana", durability=durability)
    yield
    graph.mutate(_HIRE, "hire", {"name": "Grace", "company": "Beta"}, idempotency_key="once")


def write_group(root: Path, durability: str = "disk") -> Iterator[None]:
    """Three writes of all four types that waited for another, and are committed at once."""
    graph = Graph.open(root, actor="ana", durability=durability)
    colleague = {"type": "Person", "data": {"name": "Bob", "age": 40}}
    company = {"type": "Company", "data": {"name": "Beta"}}
    work = {"edge": "WorksAt", "from": "Bob", "to": "Beta", "data": {"id": "w9"}}
    waiting = Waiting(
        [
            lambda: graph.mutate(_ADD, idempotency_key="once"),
            lambda: graph.load([colleague, company, work], actor="bea"),
            lambda: graph.append(rows("Person", "Hal") | rows("Knows", "k9"), actor="cem"),
        ]
    )
    with kept(graph) as queue:
        waiting.start(queue)
        yield
    for outcome in waiting.join():
        if isinstance(outcome, BaseException):
            raise outcome


def delete_and_cascade(root: Path, durability: str = "disk") -> Iterator[None]:
    """A person goes, with edges of two types."""
    graph = Graph.open(root, actor="ana", durability=durability)
    yield
    graph.mutate('query leave() { delete Person where name = "Bob" }')


def merge_several(root: Path, durability: str = "disk") -> Iterator[None]:
    """Rows of all four types, of which some replace others."""
    graph = Graph.open(root, actor="ana", durability=durability)
    yield
    graph.load(_MERGED)


def merge_in_streams(root: Path, durability: str = "disk") -> Iterator[None]:
    """The same as a load does it whose rows do not fit in memory."""
    spool._IN_MEMORY = 0
    graph = Graph.open(root, actor="ana", durability=durability)
    yield
    graph.load(_MERGED)


def append_directly(root: Path, durability: str = "disk") -> Iterator[None]:
    """A load that is written while it is read: rows lie beside their tables before it ends."""
    spool._DIRECT = 0
    graph = Graph.open(root, actor="ana", durability=durability)
    yield
    graph.load(_NEW_ROWS, "append")


def merge_in_splits(root: Path, durability: str = "disk") -> Iterator[None]:
    """The same as many processes do it: rows lie beside their tables before anything moves."""
    graph, file = _with_file(root, durability)
    yield
    _load_in_splits(graph, file, "main")


def merge_in_splits_on_branch(root: Path, durability: str = "disk") -> Iterator[None]:
    """On a branch that has no copy of the tables yet."""
    graph, file = _with_file(root, durability)
    yield
    _load_in_splits(graph, file, BRANCH)


def load_on_new_branch(root: Path, durability: str = "disk") -> Iterator[None]:
    """Onto a branch that the load creates for itself."""
    graph = Graph.open(root, actor="ana", durability=durability)
    yield
    new_branch_load(graph)


def new_branch_load(graph: Graph) -> LoadReceipt:
    """The load, and its repeat."""
    return graph.load(_MERGED, branch=NEW, from_branch="main", idempotency_key="once")


def load_in_splits_on_new_branch(root: Path, durability: str = "disk") -> Iterator[None]:
    """The same as many processes do it."""
    graph, file = _with_file(root, durability)
    yield
    _load_in_splits(graph, file, NEW, "main")


def new_branch_load_in_splits(graph: Graph) -> LoadReceipt:
    """The load, and its repeat, from the file that is there."""
    file = str(Path(graph.uri).with_suffix(".ndjson"))
    return _load_in_splits(graph, file, NEW, "main")


def _with_file(root: Path, durability: str) -> tuple[Graph, str]:
    file = root.with_suffix(".ndjson")
    file.write_text("".join(f"{json.dumps(record)}\n" for record in _MERGED))
    return Graph.open(root, durability=durability), str(file)


def _load_in_splits(graph: Graph, file: str, branch: str, base: str | None = None) -> LoadReceipt:
    reader = split_reader(ThreadExecutor(1), split_bytes=150)
    key = None if base is None else "once"
    job = LoadJob([file], LoadMode.MERGE)
    destination = LoadDestination(branch, base, actor="ana", idempotency_key=key)
    return load_into(graph._handle.store, graph.catalog, job, destination, reader)


# -- other writes, through the protocol -----------------------------------------------------------


def delete_rows(root: Path, durability: str = "disk") -> Iterator[None]:
    """A person goes, and the edge that leads to it."""
    graph = Graph.open(root, durability=durability)
    yield
    _write(graph, _delete, strict=True)


def upsert_rows(root: Path, durability: str = "disk") -> Iterator[None]:
    graph = Graph.open(root, durability=durability)
    yield
    _write(graph, _upsert)


def overwrite_rows(root: Path, durability: str = "disk") -> Iterator[None]:
    graph = Graph.open(root, durability=durability)
    yield
    _write(graph, _overwrite, strict=True)


def lose_the_publish(root: Path, durability: str = "disk") -> Iterator[None]:
    """A write whose expectation does not hold: it takes its tables back while it lives."""
    graph = Graph.open(root, durability=durability)
    yield
    try:
        _write(graph, _stale)
    except VersionMismatch:
        return
    raise AssertionError("the publish went through")


def _write(
    graph: Graph, prepare: Callable[[WriteView], PreparedWrite], strict: bool = False
) -> None:
    touched = frozenset({"node:Person", "edge:Knows"})
    commit_write(
        graph._handle.store,
        WriteRequest(WriterKind.MUTATION, None, touched, prepare, strict, "ana"),
    )


def _delete(view: WriteView) -> PreparedWrite:
    gone = {"node:Person": ["Bob"], "edge:Knows": ["k1"]}
    staged = {
        key: view.stage.stage_delete_keys(view.table(key), pa.array(ids))
        for key, ids in gone.items()
    }
    return PreparedWrite({key: (step,) for key, step in staged.items() if step is not None})


def _upsert(view: WriteView) -> PreparedWrite:
    return _staged(view, view.stage.stage_upsert)


def _overwrite(view: WriteView) -> PreparedWrite:
    return _staged(view, view.stage.stage_overwrite)


def _stale(view: WriteView) -> PreparedWrite:
    staged = _staged(view, view.stage.stage_append).tables
    return PreparedWrite(staged, {"node:Company": 99})


def _staged(view: WriteView, stage: Callable[..., Any]) -> PreparedWrite:
    people = {"id": ["Ada", "Grace"], "name": ["Ada", "Grace"], "age": [50, None]}
    edges = {"id": ["k1", "k2"], "src": ["Ada", "Ada"], "dst": ["Grace", "Ada"]}
    content: Mapping[str, Mapping[str, Any]] = {"node:Person": people, "edge:Knows": edges}
    staged = {}
    for key, columns in content.items():
        table = view.table(key)
        data = pa.Table.from_pydict(dict(columns), schema=table.schema)
        staged[key] = (stage(table, data),)
    return PreparedWrite(staged)


# -- branches that come together ------------------------------------------------------------------


def merge_branch(root: Path, durability: str = "disk") -> Iterator[None]:
    """What the branch inserted, changed and deleted in all tables, into main."""
    graph = Graph.open(root, actor="ana", durability=durability)
    yield
    graph.merge(BRANCH)


def merge_into_branch(root: Path, durability: str = "disk") -> Iterator[None]:
    """The same the other way."""
    graph = Graph.open(root, actor="ana", durability=durability)
    yield
    graph.merge("main", BRANCH)


def revert(root: Path, durability: str = "disk") -> Iterator[None]:
    """Take back the last commit but one."""
    graph = Graph.open(root, actor="ana", durability=durability)
    wrong = graph.commits()[1].commit_id
    yield
    graph.revert(wrong)


# -- the rest -------------------------------------------------------------------------------------


def ensure_indexes(root: Path, durability: str = "disk") -> Iterator[None]:
    graph = Graph.open(root, durability=durability)
    yield
    graph.indexes.ensure()


def rebuild_indexes(root: Path, durability: str = "disk") -> Iterator[None]:
    graph = Graph.open(root, durability=durability)
    yield
    graph.indexes.rebuild("Person")


def optimize_if_needed(root: Path, durability: str = "disk") -> Iterator[None]:
    """By a policy that finds something in some tables only."""
    graph = Graph.open(root, actor="ana", durability=durability)
    policy = MaintenancePolicy(small_fragments=2, deleted_fraction=1.0, uncovered_fraction=1.0)
    yield
    graph.maintenance.optimize(engine="local", if_needed=True, policy=policy)


def repair(root: Path, durability: str = "disk") -> Iterator[None]:
    graph = Graph.open(root, durability=durability)
    yield
    graph.maintenance.repair(confirm=True, force=True)


def optimize(root: Path, durability: str = "disk") -> Iterator[None]:
    graph = Graph.open(root, actor="ana", durability=durability)
    yield
    graph.maintenance.optimize(engine="local")


def compact_tail(root: Path, durability: str = "disk") -> Iterator[None]:
    """What a handle does beside its writers: no commit of the graph comes of it."""
    graph = Graph.open(root, actor="ana", durability=durability)
    yield
    assert small_fragments.compact_tail(graph._handle.store, None, "node:Person").merged


def optimize_on_branch(root: Path, durability: str = "disk") -> Iterator[None]:
    graph = Graph.open(root, actor="ana", durability=durability)
    yield
    graph.maintenance.optimize(BRANCH, engine="local")


def clean_up(root: Path, durability: str = "disk") -> Iterator[None]:
    graph = Graph.open(root, durability=durability)
    yield
    report = graph.maintenance.cleanup(1, min_age=0)
    # What could not be removed is reported, and the next cleanup finishes it.
    errors = [report.manifest.error, *(table.error for table in report.tables)]
    reasons = [error for error in errors if error] + [item.reason for item in report.skipped]
    if reasons:
        raise StorageUnavailable("; ".join(reasons))


def apply_property(root: Path, durability: str = "disk") -> Iterator[None]:
    graph = Graph.open(root, actor="ana", durability=durability)
    yield
    graph.schema.apply(TALL)


def apply_pair(root: Path, durability: str = "disk") -> Iterator[None]:
    """A property is added and another made required: two versions of one table."""
    graph = Graph.open(root, actor="ana", durability=durability)
    yield
    graph.schema.apply(PAIR)


def drop_for_good(root: Path, durability: str = "disk") -> Iterator[None]:
    """A property goes for good, and a node and an edge type."""
    graph = Graph.open(root, actor="ana", durability=durability)
    yield
    graph.schema.apply(WITHOUT_COMPANIES, allow_data_loss=True)


def apply_rename(root: Path, durability: str = "disk") -> Iterator[None]:
    """A type, which two edge types name."""
    graph = Graph.open(root, actor="ana", durability=durability)
    yield
    graph.schema.apply(HUMAN)


def apply_drop(root: Path, durability: str = "disk") -> Iterator[None]:
    """A property goes for good."""
    graph = Graph.open(root, actor="ana", durability=durability)
    yield
    graph.schema.apply(SCHEMA, allow_data_loss=True)


def apply_constraint(root: Path, durability: str = "disk") -> Iterator[None]:
    """No table moves."""
    graph = Graph.open(root, actor="ana", durability=durability)
    yield
    graph.schema.apply(STRICT)


def apply_types(root: Path, durability: str = "disk") -> Iterator[None]:
    """Two types come, two go, and a number of a third is widened and required."""
    graph = Graph.open(root, actor="ana", durability=durability)
    yield
    graph.schema.apply(OTHERS, values={"Person.age": 0})


def create_branch(root: Path, durability: str = "disk") -> Iterator[None]:
    graph = Graph.open(root, durability=durability)
    yield
    graph.branches.create(BRANCH)


def delete_branch(root: Path, durability: str = "disk") -> Iterator[None]:
    graph = Graph.open(root, durability=durability)
    yield
    graph.branches.delete(BRANCH)


def create_tag(root: Path, durability: str = "disk") -> Iterator[None]:
    graph = Graph.open(root, durability=durability)
    yield
    graph.tags.create("v1")


# -- backups: the root is a directory with a graph and a backup of it ------------------------------


def prune_to_one(root: Path) -> Iterator[None]:
    yield
    prune_backup(root / "backup", keep=1)


def back_up(root: Path) -> Iterator[None]:
    with Graph.open(root / "graph", durability="os") as graph:
        yield
        graph.maintenance.backup(root / "backup")
