"""How long durable writes of one row take beside the bare calls of Lance that they need.

Run it with ``make bench`` or ``python bench/small_writes.py``. The graph has 100,000 people and two
million edges. The floor makes the same change in copies of the same tables: the calls of Lance,
what Lance needs to publish it in a table like the graph's manifest, the syncs of all new files and
of their directories, and the look at the new files that every write makes. What is compared runs
turn by turn in one process, so that noise of the machine hits both.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
from collections.abc import Callable
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from commit import Result, folder, seconds
from lance import LanceDataset
from lance.fragment import write_fragments
from social.engines import Ours
from social.network import generate

from omnigraph import Graph
from omnigraph.commit.publisher import _MAX_FRAGMENTS
from omnigraph.commit.rows import CommitRow, HeadRow, VersionRow, to_arrow
from omnigraph.commit.ulid import new_ulid, now_micros
from omnigraph.storage.durable import sync_tree
from omnigraph.storage.tables.store import ROWS_PER_FRAGMENT

PEOPLE, EDGES = 100_000, 2_000_000
WARM_UP, ROUNDS = 4, 30
GOALS = {"insert": 1.5, "update": 1.5, "delete": 3.0}
DEGREE = 25
MUTATIONS = """
query add($name: String) { insert Person { name: $name, age: 33, city: "city-1", bio: "new" } }
query change($name: String, $age: I32) { update Person set { age: $age } where name = $name }
query remove($name: String) { delete Person where name = $name }
"""


class Floor:
    """Copies of the tables of a graph, changed by Lance alone."""

    def __init__(self, directory: Path, graph: Graph) -> None:
        snapshot = graph.snapshot()
        self._tables: dict[str, LanceDataset] = {}
        for name in ("Person", "Knows", "WorksAt"):
            copy = directory / name
            shutil.copytree(snapshot.dataset(name).uri, copy)
            self._tables[name] = lance.dataset(str(copy))
        uri = str(directory / "manifest")
        lance.write_dataset(to_arrow([HeadRow(None, new_ulid())]), uri, enable_stable_row_ids=True)
        self._manifest = lance.dataset(uri)

    def insert(self, row: pa.Table) -> None:
        before = self._files("Person")
        dataset = self._tables["Person"]
        staged = write_fragments(
            row,
            dataset,
            mode="append",
            return_transaction=True,
            max_rows_per_file=ROWS_PER_FRAGMENT,
        )
        self._tables["Person"] = LanceDataset.commit(dataset, staged, max_retries=0)
        self._sync_table("Person", before)
        self._publish(["Person"])

    def update(self, row: pa.Table) -> None:
        before = self._files("Person")
        self._tables["Person"].merge_insert("id").when_matched_update_all().execute(row)
        self._sync_table("Person", before)
        self._publish(["Person"])

    def delete(self, person: str) -> None:
        conditions = {
            "Person": f"id = '{person}'",
            "Knows": f"src = '{person}' OR dst = '{person}'",
            "WorksAt": f"src = '{person}'",
        }
        for name, condition in conditions.items():
            before = self._files(name)
            self._tables[name].delete(condition)
            self._sync_table(name, before)
        self._publish(list(conditions))

    def _publish(self, names: list[str]) -> None:
        version = int(self._manifest.version) + 1
        commit = CommitRow(new_ulid(), version, None, now_micros(), new_ulid())
        info = {"manifest_path": "x" * 60, "manifest_size": 600, "e_tag": "y" * 24}
        pins = [VersionRow(f"node:{name}", version, None, version, info) for name in names]
        rows = to_arrow([*pins, commit, HeadRow(None, commit.commit_id, commit.parent)])
        before = self._new(self._manifest.uri)
        (
            self._manifest.merge_insert("object_id")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .conflict_retries(0)
            .use_index(False)
            .execute(rows)
        )
        self._sync(self._manifest.uri, before)
        if len(self._manifest.get_fragments()) >= _MAX_FRAGMENTS:
            staged = write_fragments(
                self._manifest.to_table(),
                self._manifest,
                mode="overwrite",
                return_transaction=True,
                enable_stable_row_ids=True,
            )
            self._manifest = LanceDataset.commit(self._manifest, staged, max_retries=0)

    # -- syncs and checks ----------------------------------------------------------------

    def _files(self, name: str) -> set[str]:
        return self._new(self._tables[name].uri)

    def _sync_table(self, name: str, before: set[str]) -> None:
        self._sync(self._tables[name].uri, before)

    def _new(self, uri: str) -> set[str]:
        paths = set()
        for name in ("data", "_deletions", "_transactions", "_versions"):
            path = f"{uri}/{name}"
            if os.path.isdir(path):
                paths.update(f"{path}/{file}" for file in os.listdir(path))
        return paths

    def _sync(self, uri: str, before: set[str]) -> None:
        new = [path for path in self._new(uri) - before if not path.endswith(".json")]
        for path in new:
            with open(path, "rb") as file:
                file.read()
        sync_tree(new, uri)


def measure(graph: Graph, floor: Floor, people: list[str]) -> list[Result]:
    """Each kind of write, turn by turn with its floor."""
    stored = graph.snapshot().dataset("Person").to_table(limit=1)
    results = []
    kinds: dict[str, tuple[Callable[[int], object], Callable[[int], object]]] = {
        "insert": (
            lambda n: graph.mutate(MUTATIONS, "add", {"name": f"new-{n}"}),
            lambda n: floor.insert(_renamed(stored, f"new-{n}")),
        ),
        "update": (
            lambda n: graph.mutate(MUTATIONS, "change", {"name": people[n], "age": n}),
            lambda n: floor.update(_renamed(stored, people[n])),
        ),
        "delete": (
            lambda n: graph.mutate(MUTATIONS, "remove", {"name": people[n]}),
            lambda n: floor.delete(people[n]),
        ),
    }
    labels = {"delete": f"delete of one node with about {DEGREE} edges"}
    for kind, (ours, bare) in kinds.items():
        spent: list[float] = []
        base: list[float] = []
        for number in range(WARM_UP + ROUNDS):
            spent.append(seconds(lambda ours=ours, number=number: ours(number)))
            base.append(seconds(lambda bare=bare, number=number: bare(number)))
        what = labels.get(kind, f"{kind} of one row") + ", durable"
        results.append(
            Result(
                what,
                statistics.median(spent[WARM_UP:]),
                statistics.median(base[WARM_UP:]),
                GOALS[kind],
            )
        )
    return results


def _renamed(row: pa.Table, name: str) -> pa.Table:
    for column in ("id", "name"):
        number = row.schema.get_field_index(column)
        row = row.set_column(number, row.schema.field(number), pa.array([name]))
    return row


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--people", type=int, default=PEOPLE)
    options.add_argument("--edges", type=int, default=EDGES)
    chosen = options.parse_args()
    print(f"{'what':56} {'median ms':>10} {'beside ms':>10} {'ratio':>7} {'goal':>6}")
    with folder() as directory:
        social = generate(chosen.people, chosen.edges)
        Ours.build(directory / "graph", social)
        degrees = np.bincount(social.src, minlength=chosen.people)
        degrees += np.bincount(social.dst, minlength=chosen.people)
        usual = np.argsort(np.abs(degrees - DEGREE), kind="stable")[: WARM_UP + ROUNDS]
        with Graph.open(directory / "graph") as graph:
            floor = Floor(directory / "floor", graph)
            for result in measure(graph, floor, [str(name) for name in social.names[usual]]):
                print(result)


if __name__ == "__main__":
    main()
