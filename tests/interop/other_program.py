"""A program that knows the format of a graph and an older Lance, and nothing of omnigraph.

Run as a script in an environment of its own; it prints one JSON value. It stands for the
reference program, which reads and writes graphs with this release of Lance.

    python other_program.py look <root> [branch]
    python other_program.py write <root> <branch> <name> <commit id>
    python other_program.py create <root>
"""

from __future__ import annotations

import json
import os
import sys
import time

import lance
import pyarrow as pa

STAMP = "omnigraph:internal_schema_version"
PERSON = "nodes/40d76f1f51639ec0"
KNOWS = "edges/602a25a3bd0b455b"
GENESIS = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
SCHEMA = """\
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person
"""
TABLES = {
    "node:Person": (
        PERSON,
        pa.schema(
            [
                pa.field("id", pa.string(), nullable=False),
                pa.field("age", pa.int32()),
                pa.field("name", pa.string(), nullable=False),
            ]
        ),
    ),
    "edge:Knows": (
        KNOWS,
        pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("id", "src", "dst")]),
    ),
}
MANIFEST = pa.schema(
    [
        pa.field(
            "object_id",
            pa.string(),
            nullable=False,
            metadata={"lance-schema:unenforced-primary-key": "true"},
        ),
        pa.field("object_type", pa.string(), nullable=False),
        pa.field("location", pa.string()),
        pa.field("metadata", pa.string()),
        pa.field("base_objects", pa.list_(pa.field("item", pa.string()))),
        pa.field("table_key", pa.string(), nullable=False),
        pa.field("table_version", pa.uint64()),
        pa.field("table_branch", pa.string()),
        pa.field("row_count", pa.uint64()),
    ]
)


def at(root: str, location: str, branch: str | None) -> str:
    return f"{root}/{location}" + (f"/tree/{branch}" if branch else "")


# -- reading ------------------------------------------------------------------------------------


def look(root: str, branch: str | None) -> dict[str, object]:
    """What a branch shows: how many rows of each kind, its commits, and the ids of its tables."""
    manifest = lance.dataset(at(root, "__manifest", branch))
    rows = manifest.to_table().to_pylist()
    kinds: dict[str, int] = {}
    for row in rows:
        kinds[row["object_type"]] = kinds.get(row["object_type"], 0) + 1
    stamp = (manifest.schema.metadata or {})[STAMP.encode()].decode()
    return {
        "stamp": stamp,
        "kinds": kinds,
        "commits": [row["object_id"] for row in rows if row["object_type"] == "graph_commit"],
        "head": head_of(rows, branch),
        "chain": chain_of(rows, branch),
        "tables": {key: content(root, key, pin, rows) for key, pin in pins_of(rows).items()},
    }


def pins_of(rows: list[dict[str, object]]) -> dict[str, dict[str, object]]:
    """The newest version of each table that no tombstone hides."""
    pins: dict[str, dict[str, object]] = {}
    for row in rows:
        existing = pins.get(row["table_key"])
        if row["object_type"] == "table_version" and (
            existing is None or row["table_version"] > existing["table_version"]
        ):
            pins[row["table_key"]] = row
    hidden = {
        (row["table_key"], row["table_version"])
        for row in rows
        if row["object_type"] == "table_tombstone"
    }
    return {
        key: pin
        for key, pin in sorted(pins.items())
        if not any(name == key and upto >= pin["table_version"] for name, upto in hidden)
    }


def head_of(rows: list[dict[str, object]], branch: str | None) -> str | None:
    wanted = f"graph_head:{branch or 'main'}"
    actual = [row for row in rows if row["object_id"] == wanted]
    return json.loads(actual[0]["metadata"])["head_commit_id"] if actual else None


def chain_of(rows: list[dict[str, object]], branch: str | None) -> list[str]:
    """The commits from the head to the first, by the keys of the format and no others."""
    said = {row["object_id"]: json.loads(row["metadata"]) for row in commits_of(rows)}
    actual, here = [], head_of(rows, branch)
    while here is not None:
        if not isinstance(said[here]["created_at"], int):
            raise AssertionError(f"{here}: created_at is no number")
        actual.append(here)
        here = said[here].get("parent_commit_id")
    return actual


def content(root: str, key: str, pin: dict[str, object], rows: list[dict[str, object]]) -> object:
    dataset = open_table(root, key, pin, rows)
    ids = sorted(dataset.to_table(columns=["id"])["id"].to_pylist())
    if len(ids) != pin["row_count"]:
        raise AssertionError(f"{key}: {len(ids)} rows, the pin says {pin['row_count']}")
    for one in ids:
        # By a filter too: an index that this release does not know must not hide a row.
        if dataset.count_rows(f"id = '{one}'") != 1:
            raise AssertionError(f"{key}: '{one}' is not found by a filter")
    actual = dataset.to_table().sort_by("id").to_pylist()
    return {"ids": ids, "stable": dataset.has_stable_row_ids, "rows": actual}


def open_table(
    root: str, key: str, pin: dict[str, object], rows: list[dict[str, object]]
) -> lance.LanceDataset:
    location = next(row["location"] for row in rows if row["object_id"] == key)
    return lance.dataset(at(root, location, pin["table_branch"]), version=pin["table_version"])


# -- writing ------------------------------------------------------------------------------------


def write(root: str, branch: str | None, name: str, commit_id: str) -> dict[str, object]:
    """Add a person that is thirty, and publish that as one commit."""
    manifest = lance.dataset(at(root, "__manifest", branch))
    rows = manifest.to_table().to_pylist()
    pin = pins_of(rows)["node:Person"]
    table = open_table(root, "node:Person", pin, rows)
    person = pa.table({"id": [name], "age": [30], "name": [name]}, TABLES["node:Person"][1])
    table.insert(person.select(table.schema.names), mode="append")
    if table.version != pin["table_version"] + 1:
        raise AssertionError("somebody else wrote")
    parent = head_of(rows, branch)
    if parent is None:
        parent = max(commits_of(rows), key=lambda row: row["table_version"])["object_id"]
    upsert(
        manifest,
        [
            version_row("node:Person", table.version, table.count_rows(), pin["table_branch"]),
            *lineage(commit_id, manifest.version + 1, branch, parent),
        ],
    )
    return {"manifest": manifest.version, "table": table.version}


def commits_of(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [row for row in rows if row["object_type"] == "graph_commit"]


def upsert(manifest: lance.LanceDataset, records: list[dict[str, object]]) -> None:
    existing = [{"table_key": "", **record} for record in records]
    (
        manifest.merge_insert("object_id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .conflict_retries(0)
        .use_index(False)
        .execute(pa.Table.from_pylist(existing, schema=MANIFEST))
    )


def version_row(key: str, version: int, count: int, branch: str | None) -> dict[str, object]:
    # The reference program records where the version lies; a reader has to do without.
    return {
        "object_id": f"{key}${version:020d}",
        "object_type": "table_version",
        "metadata": json.dumps({"naming_scheme": "V2"}),
        "table_key": key,
        "table_version": version,
        "table_branch": branch,
        "row_count": count,
    }


def lineage(
    commit_id: str, version: int, branch: str | None, parent: str | None
) -> list[dict[str, object]]:
    commit = {"created_at": time.time_ns() // 1000}
    head = {"head_commit_id": commit_id}
    if parent is not None:
        commit["parent_commit_id"] = parent
        head["parent_commit_id"] = parent
    return [
        {
            "object_id": commit_id,
            "object_type": "graph_commit",
            "metadata": json.dumps(commit),
            "table_version": version,
            "table_branch": branch,
        },
        {
            "object_id": f"graph_head:{branch or 'main'}",
            "object_type": "graph_head",
            "metadata": json.dumps(head),
        },
    ]


def create(root: str) -> dict[str, object]:
    """A graph of two empty tables, as version 0.8 makes one: the stamp comes after the rows."""
    os.makedirs(root)
    with open(f"{root}/_schema.pg", "x", encoding="utf-8") as file:
        file.write(SCHEMA)
    rows = []
    for key, (location, schema) in TABLES.items():
        lance.write_dataset(schema.empty_table(), f"{root}/{location}", enable_stable_row_ids=True)
        rows.append(
            {
                "object_id": key,
                "object_type": "table",
                "location": location,
                "table_key": key,
            }
        )
        rows.append(version_row(key, 1, 0, None))
    rows.extend(lineage(GENESIS, 1, None, None))
    existing = [{"table_key": "", **row} for row in rows]
    manifest = lance.write_dataset(
        pa.Table.from_pylist(existing, schema=MANIFEST),
        f"{root}/__manifest",
        enable_stable_row_ids=True,
    )
    manifest.update_schema_metadata({STAMP: "4"})
    manifest.update_config({"omnigraph.made_by": "another program"})
    return {"version": manifest.version, "format": manifest.data_storage_version}


def main(arguments: list[str]) -> None:
    verb, root, *rest = arguments
    branch = rest[0] if rest and rest[0] != "main" else None
    if verb == "look":
        actual = look(root, branch)
    elif verb == "write":
        actual = write(root, branch, *rest[1:])
    else:
        actual = create(root)
    print(json.dumps({"lance": lance.__version__, **actual}))


if __name__ == "__main__":
    main(sys.argv[1:])
