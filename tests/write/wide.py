"""A program that works on rows with wide vectors that are null, and says how much memory it took.

Called by the tests: ``python wide.py <folder> <rows> <step> …``; prints the megabytes of each step.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from omnigraph import Graph
from omnigraph.lang.types import MOST_DIMENSIONS
from omnigraph.storage.tables import wide_columns
from omnigraph.write.load import gather, tables

SCHEMA = f"node Doc {{ slug: String @key  v: Vector({MOST_DIMENSIONS})?  x: I32? }}"
MORE = SCHEMA.replace("x: I32?", f"x: I32?  w: Vector({MOST_DIMENSIONS})?")
DELETE = "query q() { delete Doc where x is null }"
BATCH = 8 << 20


def peak() -> float:
    (line,) = (
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM:")
    )
    return int(line.split()[1]) / 1024


def steps(folder: Path, rows: int) -> dict[str, Callable[[Graph], object]]:
    names = [f"d{n}" for n in range(rows)]
    lines = folder / "docs.ndjson"
    lines.write_text(
        "".join(json.dumps({"type": "Doc", "data": {"slug": n}}) + "\n" for n in names)
    )
    (folder / "Doc.csv").write_text("".join(f"{line}\n" for line in ["slug", *names]))
    frame = pa.table({"slug": names})
    return {
        "load": lambda graph: graph.load(lines),
        "merge": lambda graph: graph.load(lines),
        "csv": lambda graph: graph.load(folder / "Doc.csv"),
        "table": lambda graph: graph.load({"Doc": frame}),
        "append": lambda graph: graph.append({"Doc": pa.table({"slug": [f"a{n}" for n in names]})}),
        "scan": lambda graph: [batch.num_rows for batch in graph.snapshot().scan("Doc")],
        "export": lambda graph: sum(1 for _ in graph.snapshot().export()),
        "parquet": lambda graph: graph.snapshot().export(folder / "out", "parquet"),
        "reload": lambda graph: graph.load(folder / "out", "overwrite"),
        "apply": lambda graph: graph.schema.apply(MORE),
        "optimize": lambda graph: graph.maintenance.optimize(),
        "delete": lambda graph: graph.mutate(DELETE),
    }


def main(folder: str, rows: str, *names: str) -> None:
    for module, name in (
        (wide_columns, "BATCH_BYTES"),
        (gather, "BATCH_BYTES"),
        (tables, "_BYTES"),
    ):
        setattr(module, name, BATCH)
    location = Path(folder)
    existing = steps(location, int(rows))
    with Graph.init(location / "g.omni", SCHEMA, durability="os") as graph:
        graph.load([{"type": "Doc", "data": {"slug": "first"}}])
        list(graph.snapshot().export())
        for name in names:
            Path("/proc/self/clear_refs").write_text("5")
            before = peak()
            existing[name](graph)
            print(name, peak() - before)


if __name__ == "__main__":
    main(*sys.argv[1:])
