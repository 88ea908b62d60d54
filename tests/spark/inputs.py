"""Random files for loads, good and bad, and what a load made of them."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph import Graph
from omnigraph.errors import OmniGraphError
from omnigraph.write.load.job import LoadDestination, LoadJob, LoadMode
from omnigraph.write.load.run import load_into

SCHEMA = """
node P {
    name: String @key
    age: I32?
    mail: String? @unique
    tags: [String]?
    photo: Blob?
    @range(age, 0..150)
}
node Q { note: String? }
edge K: P -> P { w: F64? }
edge O: P -> Q @card(0..2)
"""
OWN_ID = re.compile("01[0-9A-Z]{24}")
_ODD = (
    '{"type":"P"',
    '{"type": "Zed", "data": {}}',
    "nonsense",
    "",
    '{"type":"P","data":{"name":"x1"}} {"type":"Q"}',
    '{"type":"P","data":{"name":"x2","name":"x3"}}',
)


class Pickling:
    """Runs tasks as other processes would, one after the other, through pickles."""

    def run(self, function, tasks, label=""):
        return [
            pickle.loads(pickle.dumps(function))(pickle.loads(pickle.dumps(task))) for task in tasks
        ]


in_process = Pickling()


def make_files(random: Random, folder: Path) -> list[str]:
    """One to three files of records, CSV or Parquet among them now and then."""
    files = []
    for number in range(random.randrange(1, 4)):
        bad = random.random() < 0.5
        path = folder / f"f{number}.ndjson"
        path.write_text(_text(random, random.randrange(60), bad), encoding="utf-8")
        files.append(str(path))
    if random.random() < 0.3:
        (folder / "Q.csv").write_text("note\nhello\n\nworld\n")
        files.append(str(folder / "Q.csv"))
    if random.random() < 0.3:
        names = [f"pq{random.randrange(10**6)}" for _ in range(random.randrange(1, 30))]
        ages = [random.choice([1, None, 200 if random.random() < 0.1 else 7]) for _ in names]
        rows = pa.table({"name": names, "age": pa.array(ages, pa.int32())})
        pq.write_table(rows, folder / "P.parquet", row_group_size=5)
        files.append(str(folder / "P.parquet"))
    return files


def _text(random: Random, count: int, bad: bool) -> str:
    records: list[dict] = []
    for number in range(count):
        kind = random.random()
        people = [record["data"]["name"] for record in records if record.get("type") == "P"] or [
            "p0"
        ]
        if kind < 0.5:
            records.append({"type": "P", "data": _person(random, number, bad)})
        elif kind < 0.6:
            records.append({"type": "Q", "data": {"note": "né" * random.randrange(3)}})
        else:
            ends = [random.choice(people), random.choice(people)]
            if bad and random.random() < 0.05:
                ends[1] = "nobody"
            edge = {"edge": "K", "from": ends[0], "to": ends[1], "data": {"w": 1.5}}
            if random.random() < 0.1:
                edge["data"]["id"] = f"k{random.randrange(20)}"
            records.append(edge)
    lines = [json.dumps(record, ensure_ascii=random.random() < 0.5) for record in records]
    for _ in range(random.randrange(3) if bad else 0):
        pretty = json.dumps({"type": "P", "data": {"name": f"{random.random()}"}}, indent=1)
        lines.insert(random.randrange(len(lines) + 1), random.choice([*_ODD, pretty]))
    return "\n".join(lines) + ("\n" if random.random() < 0.8 else "")


def _person(random: Random, number: int, bad: bool) -> dict:
    existing = f"p{random.randrange(60)}"
    data = {"name": existing if bad and random.random() < 0.2 else f"p{number}_{random.random()}"}
    if random.random() < 0.7:
        data["age"] = random.choice([None, 5, 20])
    if random.random() < 0.3:
        data["mail"] = f"m{random.randrange(40 if bad else 10**6)}"
    if random.random() < 0.1:
        data["extra"] = 1
    if random.random() < 0.1:
        data["photo"] = "base64:aGVsbG8="
    if bad and random.random() < 0.05:
        data["age"] = random.choice([-1, "x", 2.5])
    return data


def load(graph: Graph, files: list[str], random: Random, reader=None, rejects: Path | None = None):
    """What a load with random options says; the same for the same state of ``random``."""
    mode = LoadMode(random.choice(["merge", "append", "overwrite"]))
    allowed = random.choice([0, 0, 3, 100])
    job = LoadJob(files, mode, max_rejects=allowed, rejects=rejects if allowed else None)
    is_branched = random.random() < 0.3
    destination = LoadDestination("b", "main") if is_branched else LoadDestination("main")
    args = (graph._handle.store, graph.catalog, job, destination)
    try:
        receipt = load_into(*args) if reader is None else load_into(*args, reader)
    except OmniGraphError as error:
        said = (type(error).__name__, error.message, error.hint, str(error.details))
        return tuple(OWN_ID.sub("<id>", str(item)) for item in said)
    counts = {key: (c.inserted, c.updated, c.deleted) for key, c in receipt.tables.items()}
    return counts, receipt.records, receipt.rejected, receipt.ignored, receipt.branch_created


def content(graph: Graph) -> dict[str, list[str]]:
    """All rows of all branches as text, without the ids that were made up."""
    return {
        branch: sorted(OWN_ID.sub("<id>", line) for line in graph.snapshot(branch).export())
        for branch in graph.branches.list()
    }
