"""What the processes of the concurrency tests do. Each says ``ready``, waits for ``go``, works,
and sends a dictionary about how it went.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.api.graph import Graph
from omnigraph.commit.failpoints import Failpoint, hooked
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.rows import WriterKind
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.write_request import PreparedWrite, WriteRequest, WriteView
from omnigraph.errors import Conflict, InputError, IntegrityError, NotFound, OmniGraphError

Result = dict[str, Any]
WORK: dict[str, Callable[..., Result]] = {}
READY, GO = "ready", "go"
_parent: list[Connection] = []


def work(function: Callable[..., Result]) -> Callable[..., Result]:
    WORK[function.__name__] = function
    return function


def open_graph(uri: str, options: dict[str, str]) -> Graph:
    return Graph.open(uri, durability="os", storage_options=options)


def wait_for_go() -> None:
    (parent,) = _parent
    parent.send(READY)
    if parent.recv() != GO:
        raise RuntimeError("the parent says something else")


def attempt(tally: Result, action: Callable[[], Any]) -> bool:
    """Do something once; count how it ended, and keep what a conflict said."""
    try:
        action()
    except (Conflict, IntegrityError) as error:
        tally.setdefault("refused", []).append(error.to_json())
        return False
    except OmniGraphError as error:
        tally.setdefault("failed", []).append(error.to_json())
        return False
    tally["done"] = tally.get("done", 0) + 1
    return True


@work
def append(uri: str, options: dict[str, str], kind: str, name: str, times: int) -> Result:
    """Append rows to one type, one row for each commit."""
    graph = open_graph(uri, options)
    tally: Result = {"done": 0, "names": []}
    wait_for_go()
    for number in range(times):
        row = f"{name}-{number}"
        if attempt(tally, lambda row=row: graph.append({kind: pa.table({"name": [row]})})):
            tally["names"].append(row)
    return tally


@work
def append_pairs(uri: str, options: dict[str, str], name: str, times: int) -> Result:
    """Append to two types in every commit, so that their counts are equal in every snapshot."""
    graph = open_graph(uri, options)
    tally: Result = {"done": 0}
    wait_for_go()
    for number in range(times):
        rows = pa.table({"name": [f"{name}-{number}"]})
        attempt(tally, lambda rows=rows: graph.append({"Left": rows, "Right": rows}))
    return tally


@work
def observe_pairs(uri: str, options: dict[str, str], until: int) -> Result:
    """Read snapshots until all rows are there; each must show both types alike."""
    graph = open_graph(uri, options)
    torn = reads = 0
    wait_for_go()
    seen = 0
    while seen < until:
        snapshot = graph.snapshot()
        left, right = (snapshot.read(kind, ["name"]).num_rows for kind in ("Left", "Right"))
        torn += (left, right) != (snapshot.count("Left"), snapshot.count("Left"))
        torn += left < seen
        seen = left
        reads += 1
    return {"reads": reads, "torn": torn}


@work
def increment(uri: str, options: dict[str, str], times: int) -> Result:
    """Read, add one, write back, strictly: who is late is refused and lost nothing."""
    graph = open_graph(uri, options)
    tally: Result = {"done": 0}
    wait_for_go()

    def prepare(view: WriteView) -> PreparedWrite:
        table = view.table("node:Counter")
        value = table.read()["value"][0].as_py()
        rows = pa.table({"id": ["c"], "name": ["c"], "value": pa.array([value + 1], pa.int64())})
        return PreparedWrite({"node:Counter": (view.stage.stage_upsert(table, rows),)})

    request = WriteRequest(
        WriterKind.MUTATION, None, frozenset({"node:Counter"}), prepare, strict=True
    )
    for _ in range(times):
        attempt(tally, lambda: commit_write(graph._handle.store, request))
    return tally


@work
def update_on_condition(uri: str, options: dict[str, str], kinds: list[str], times: int) -> Result:
    """Strict updates on top of the newest commit; ``unfair`` are refused although nobody made one.

    ``undone`` counts the writes that had moved their table and took it back.
    """
    graph = open_graph(uri, options)
    tally: Result = {"done": 0, "undone": 0, "unfair": []}
    wait_for_go()

    def count(point: Failpoint) -> None:
        tally["undone"] += point is Failpoint.UNDO_AFTER_PUBLISH

    with hooked(count):
        for number in range(times):
            kind = kinds[number % len(kinds)]
            newest = graph.snapshot().commit_id
            text = f'query q() {{ update {kind} set {{ value: {number} }} where name = "c" }}'
            done = attempt(tally, lambda t=text, c=newest: graph.mutate(t, if_commit=c))
            if not done and graph.snapshot().commit_id == newest:
                tally["unfair"].append(tally["refused"][-1])
    return tally


@work
def add_edges(uri: str, options: dict[str, str], name: str, people: list[str]) -> Result:
    """Connect people; some of them are being deleted at the same time."""
    graph = open_graph(uri, options)
    tally: Result = {"done": 0}
    wait_for_go()
    for one, other in zip(people, [*people[1:], people[0]], strict=True):
        edge = pa.table({"id": [f"{name}-{one}"], "src": [one], "dst": [other]})
        attempt(tally, lambda edge=edge: graph.append({"Knows": edge}))
    return tally


@work
def delete_people(uri: str, options: dict[str, str], people: list[str]) -> Result:
    """Delete people who have no edge; the edges are consulted, not written."""
    graph = open_graph(uri, options)
    tally: Result = {"done": 0, "deleted": []}
    wait_for_go()
    for person in people:
        request = WriteRequest(
            WriterKind.MUTATION, None, frozenset({"node:Person"}), _deletion(graph, person)
        )
        if attempt(tally, lambda request=request: commit_write(graph._handle.store, request)):
            tally["deleted"].append(person)
    return tally


def _deletion(graph: Graph, person: str) -> Callable[[WriteView], PreparedWrite]:
    def check(snapshot: Snapshot) -> dict[str, int]:
        pin = snapshot.pins["edge:Knows"]
        used = (pc.field("src") == person) | (pc.field("dst") == person)
        if graph._handle.store.table(pin).count(used):
            raise IntegrityError(f"{person} has edges")
        return {pin.table_key: pin.version}

    def prepare(view: WriteView) -> PreparedWrite:
        consulted = check(view.snapshot)
        table = view.table("node:Person")
        staged = view.stage.stage_delete_keys(table, pa.array([person]))
        return PreparedWrite({} if staged is None else {"node:Person": (staged,)}, consulted, check)

    return prepare


@work
def first_write(uri: str, options: dict[str, str], branch: str, name: str) -> Result:
    """Write to a table that the branch has no copy of yet."""
    graph = open_graph(uri, options)
    tally: Result = {"done": 0}
    wait_for_go()
    rows = {"Person": pa.table({"name": [name]})}
    attempt(tally, lambda: graph.append(rows, branch=branch))
    return tally


@work
def create_branch(uri: str, options: dict[str, str], branch: str) -> Result:
    graph = open_graph(uri, options)
    tally: Result = {"done": 0}
    wait_for_go()
    attempt(tally, lambda: graph.branches.create(branch))
    return tally


@work
def init(uri: str, options: dict[str, str], schema: str) -> Result:
    tally: Result = {"done": 0}
    wait_for_go()
    attempt(tally, lambda: Graph.init(uri, schema, durability="os", storage_options=options))
    return tally


@work
def recreate(uri: str, options: dict[str, str], branch: str, times: int) -> Result:
    """Delete and create a branch over and over while others write to it."""
    graph = open_graph(uri, options)
    tally: Result = {"done": 0}
    wait_for_go()
    for _ in range(times):
        attempt(tally, lambda: graph.branches.delete(branch))
        attempt(tally, lambda: graph.branches.create(branch))
    return tally


@work
def write_branch(uri: str, options: dict[str, str], branch: str, name: str, times: int) -> Result:
    """Write to a branch that comes and goes; an acknowledged row is in its commit's snapshot."""
    graph = open_graph(uri, options)
    tally: Result = {"done": 0, "lost": 0}
    wait_for_go()
    for number in range(times):
        row = f"{name}-{number}"
        rows = {"Person": pa.table({"name": [row]})}
        try:
            receipt = graph.append(rows, branch=branch)
        except (NotFound, Conflict):
            continue
        except OmniGraphError as error:
            tally.setdefault("failed", []).append(error.to_json())
            continue
        assert receipt is not None
        tally["done"] += 1
        try:
            actual = graph.snapshot(commit=receipt.commit_id).read("Person", ["name"])
        except OmniGraphError:
            continue
        tally["lost"] += row not in actual["name"].to_pylist()
    return tally


@work
def apply_schemas(uri: str, options: dict[str, str], schemas: list[str]) -> Result:
    """Apply schemas in turn, each until it is the schema or somebody else's is."""
    graph = open_graph(uri, options)
    tally: Result = {"done": 0, "applied": 0}
    wait_for_go()
    for schema in schemas:

        def act(schema: str = schema) -> None:
            tally["applied"] += graph.schema.apply(schema).applied

        while not attempt(tally, act):
            if "failed" in tally:
                return tally
    return tally


@work
def append_anyhow(
    uri: str, options: dict[str, str], kinds: list[str], name: str, times: int
) -> Result:
    """Append to a type under whatever name it has at the moment."""
    graph = open_graph(uri, options)
    tally: Result = {"done": 0, "names": []}
    wait_for_go()
    for number in range(times):
        row = f"{name}-{number}"
        # Read once: between two reads the type may be renamed.
        existing = graph.catalog.node_types
        kind = next(item for item in kinds if item in existing)
        try:
            graph.append({kind: pa.table({"name": [row]})})
        except InputError:
            # It was renamed between the look and the write.
            continue
        except Conflict as error:
            tally.setdefault("refused", []).append(error.code)
            continue
        except OmniGraphError as error:
            tally.setdefault("failed", []).append(error.to_json())
            continue
        tally["names"].append(row)
    return tally


@work
def read_anyhow(uri: str, options: dict[str, str], kinds: list[str], until: str) -> Result:
    """Read a type under whatever name a snapshot has for it, until somebody says so."""
    graph = open_graph(uri, options)
    tally: Result = {"reads": 0, "seen": []}
    wait_for_go()
    seen = 0
    while not any(tag.name == until for tag in graph.tags.list()):
        snapshot = graph.snapshot()
        kind = next(item for item in kinds if f"node:{item}" in snapshot.tables)
        count = snapshot.read(kind, ["name"]).num_rows
        assert seen <= count == snapshot.count(kind)
        seen = count
        tally["reads"] += 1
        if kind not in tally["seen"]:
            tally["seen"].append(kind)
    return tally


@work
def tag_when_done(
    uri: str, options: dict[str, str], schemas: list[str], tag: str, times: int
) -> Result:
    """Apply two schemas by turns, then say that it is over."""
    tally = apply_schemas(uri, options, schemas * times)
    open_graph(uri, options).tags.create(tag)
    return tally


@work
def merge(uri: str, options: dict[str, str], branch: str, times: int = 1) -> Result:
    """Merge a branch into main so often, again whenever somebody was faster."""
    graph = open_graph(uri, options)
    tally: Result = {"done": 0, "outcomes": []}
    wait_for_go()
    while tally["done"] < times and not tally.get("failed"):
        attempt(
            tally,
            lambda: tally["outcomes"].append(graph.merge(branch).outcome.value),
        )
    return tally


@work
def append_to_branch(
    uri: str, options: dict[str, str], branch: str, name: str, times: int
) -> Result:
    """Append people to a branch, one for each commit."""
    graph = open_graph(uri, options)
    tally: Result = {"done": 0, "names": []}
    wait_for_go()
    for number in range(times):
        rows = {"Person": pa.table({"name": [f"{name}-{number}"]})}
        if attempt(tally, lambda rows=rows: graph.append(rows, branch=branch)):
            tally["names"].append(f"{name}-{number}")
    return tally


@work
def append_while_branches(uri: str, options: dict[str, str], name: str, most: int) -> Result:
    """Append people to main without a pause, as long as there is a branch to be merged."""
    graph = open_graph(uri, options)
    tally: Result = {"done": 0, "names": []}
    wait_for_go()
    for number in range(most):
        rows = {"Person": pa.table({"name": [f"{name}-{number}"]})}
        if attempt(tally, lambda rows=rows: graph.append(rows)):
            tally["names"].append(f"{name}-{number}")
        if graph.branches.list() == ["main"]:
            break
    return tally


@work
def merge_and_delete(uri: str, options: dict[str, str], branches: list[str]) -> Result:
    """Merge branches into main and delete them."""
    graph = open_graph(uri, options)
    tally: Result = {"done": 0}
    wait_for_go()
    for branch in branches:
        attempt(tally, lambda branch=branch: graph.merge(branch, delete_branch=True))
    return tally


def process(parent: Connection, name: str, arguments: dict[str, Any]) -> None:
    """Do one of these in this process, which has nothing else to do."""
    _parent.append(parent)
    try:
        parent.send(WORK[name](**arguments))
    except BaseException:
        parent.send(traceback.format_exc())
        raise
