"""A small graph to work on, and looks at its files that owe nothing to the program under test."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import lance
import pyarrow as pa

from omnigraph.commit.failpoints import hooked
from omnigraph.commit.manifests import Manifests
from omnigraph.commit.rows import SCHEMA as MANIFEST_SCHEMA
from omnigraph.commit.store import GraphStore
from omnigraph.storage.durable import Durability
from omnigraph.storage.objects.paths import parse_root

SCHEMA = """\
node Person { name: String @key  age: I32? }
node Company { name: String @key }
edge Knows: Person -> Person
edge WorksAt: Person -> Company
"""
PERSON = "nodes/40d76f1f51639ec0"
COMPANY = "nodes/7cb4e55c59663b1c"
KNOWS = "edges/602a25a3bd0b455b"
WORKS_AT = "edges/844eefbe5068b644"
STAMP = "omnigraph:internal_schema_version"


# -- rows to write ----------------------------------------------------------------------------


def people(**ages):
    return {"Person": pa.table({"name": list(ages), "age": pa.array(ages.values(), pa.int32())})}


def companies(*names):
    return {"Company": pa.table({"name": list(names)})}


def knows(*pairs):
    return {"Knows": pa.table({"src": [p[0] for p in pairs], "dst": [p[1] for p in pairs]})}


def works_at(*pairs):
    return {"WorksAt": pa.table({"src": [p[0] for p in pairs], "dst": [p[1] for p in pairs]})}


def names(graph, branch="main", **at):
    """The names of the people that a snapshot shows."""
    return sorted(graph.snapshot(branch, **at).read("Person", ["name"])["name"].to_pylist())


# -- the parts below the handle ---------------------------------------------------------------


def store_at(path, timeouts=None):
    """What a handle is made of, for another process that has nothing warm."""
    return GraphStore(parse_root(str(path)), Durability.OS, timeouts)


def state_of(manifest):
    """Everything that a manifest knows of its newest version."""
    return manifest.with_state(
        lambda state, version: {
            "version": version,
            "locations": dict(state.locations),
            "versions": dict(state.versions),
            "tombstones": dict(state.tombstones),
            "tags": dict(state.tags),
            "head": state.head,
            "schema": state.schema,
        }
    )


def fresh_state(store, branch=None):
    """The same, from a reader that reads everything."""
    return state_of(Manifests(store.datasets).of(branch))


# -- what lies on disk ------------------------------------------------------------------------


def manifest_of(path, branch=None):
    """The manifest as plain Lance opens it."""
    return lance.dataset(str(Path(path, "__manifest", *(("tree", branch) if branch else ()))))


def manifest_rows(path, branch=None):
    """Its rows by their key."""
    return {row["object_id"]: row for row in manifest_of(path, branch).to_table().to_pylist()}


def foreign_rows(*records):
    """Rows for a manifest as another program writes them."""
    existing = [{"table_key": "", **record} for record in records]
    return pa.Table.from_pylist(existing, schema=MANIFEST_SCHEMA)


def foreign_upsert(path, *records, branch=None):
    """Another program writes to the manifest."""
    (
        manifest_of(path, branch)
        .merge_insert("object_id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute(foreign_rows(*records))
    )


def restamp(path, value, branch=None):
    """Another program leaves its own format number in the manifest, or none."""
    metadata = {} if value is None else {STAMP: value}
    manifest_of(path, branch).update_schema_metadata(metadata, replace=True)


def listing(path):
    """Every file and directory below a path, with what shows that it was written."""
    matches = {}
    for entry in sorted(Path(path).rglob("*")):
        stat = entry.stat()
        matches[str(entry.relative_to(path))] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    return matches


# -- at a boundary ----------------------------------------------------------------------------


@contextmanager
def at(point, action):
    """Run something when a boundary is first passed."""
    waiting = [action]

    def hook(passed):
        if passed is point and waiting:
            waiting.pop()()

    with hooked(hook):
        yield


def raising(error):
    """An action that fails."""

    def fail():
        raise error

    return fail
