"""Writers that died: in this process at a boundary, or of the reference program, made by hand."""

from __future__ import annotations

import json
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.commit.ulid import new_ulid
from tests.commit.world import COMPANY, KNOWS, PERSON, at, companies, raising

LOCATIONS = {"node:Person": PERSON, "node:Company": COMPANY, "edge:Knows": KNOWS}


class Died(BaseException):
    """Nothing of ours catches this, so everything stays as a killed process leaves it."""


def die(graph, point, rows, **how):
    """A write of ours that ends at a boundary; its leases end with it."""
    with at(point, raising(Died())), pytest.raises(Died):
        graph.append(rows, **how)


# -- the reference program --------------------------------------------------------------------


def table_of(path, key, branch=None):
    """The newest version of a table, as plain Lance opens it."""
    tree = ("tree", branch) if branch else ()
    return lance.dataset(str(Path(path, LOCATIONS[key], *tree)))


def head(path, key, branch=None):
    return table_of(path, key, branch).version


def move(path, key, *names, branch=None):
    """Append rows to a table without telling the graph; each makes a version."""
    for name in names:
        table = table_of(path, key, branch)
        values = {field.name: [None] for field in table.schema}
        row = pa.table(values | {"id": [name], "name": [name]}, schema=table.schema)
        lance.write_dataset(row, table.uri, mode="append")


def pin(path, key, expected, post=None, branch=None, **more):
    """The entry of one table in a sidecar."""
    entry = {
        "table_key": key,
        "table_path": str(Path(path, LOCATIONS[key])),
        "expected_version": expected,
        "post_commit_pin": expected + 1 if post is None else post,
        **more,
    }
    return entry | ({"table_branch": branch} if branch else {})


def leave_sidecar(path, *tables, kind="Mutation", branch=None, actor="ana", **more):
    """A sidecar as the reference writes it; gives its operation id."""
    operation = more.pop("operation_id", None) or new_ulid()
    content = {
        "schema_version": 2,
        "operation_id": operation,
        "started_at": "1700000000000000",
        "branch": branch,
        "actor_id": actor,
        "writer_kind": kind,
        "tables": list(tables),
        **more,
    }
    file = Path(path, "__recovery", f"{operation}.json")
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(content))
    return operation


def left(path):
    """The sidecars that are there, by operation id."""
    return sorted(file.stem for file in Path(path, "__recovery").glob("*.json"))


# -- afterwards -------------------------------------------------------------------------------


def audited(graph):
    """What the audit table says: kind, operation, and where each table went."""
    return [
        (str(row.recovery_kind), row.operation_id, [tuple(o) for o in row.per_table_outcomes])
        for row in graph._handle.store.audit.rows()
    ]


def pinned(graph, key, branch="main"):
    return graph.snapshot(branch).tables[key]["version"]


# -- who recovers -----------------------------------------------------------------------------


def reopen(path):
    """A read-write open; gives what it recovered."""
    with Graph.open(path, durability="os") as graph:
        return graph.recovered


HEAL_POINTS = {
    "open": lambda graph, path: reopen(path),
    "refresh": lambda graph, path: graph.refresh(),
    "a write": lambda graph, path: graph.append(companies("Brim")),
    "a branch delete": lambda graph, path: graph.branches.delete("aside"),
}


def moved_once(path, graph, *names):
    """A mutation of the reference that planned one version and died; gives its operation id."""
    before = pinned(graph, "node:Person")
    move(path, "node:Person", *names)
    return leave_sidecar(path, pin(path, "node:Person", before))
