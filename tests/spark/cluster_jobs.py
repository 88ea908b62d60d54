"""What tests have a driver do in a process of its own, through the handle of a graph."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

from omnigraph import Graph
from omnigraph.commit.failpoints import Failpoint, install
from omnigraph.spark import SparkConfig, SparkEngine, SparkGraph, open_spark, register
from omnigraph.spark.load import run as load
from omnigraph.spark.session.failures import carrying
from tests.crash.zygote import recorder

SCHEMA = """
node Person {
    name: String @key
    age: I32?
}
node Company { name: String @key }
edge Knows: Person -> Person { since: I32? }
edge WorksAt: Person -> Company
"""
QUERIES = (
    "match { $p: Person $p.age > 40 } return { $p.name, $p.age }",
    "match { $p: Person $p worksAt $c } return { $c.name, count($p) as n, avg($p.age) as age }"
    " order { n desc, $c.name }",
    "match { $a: Person $a knows $b $b knows $c } return { $a.name, $b.name, $c.name }"
    " order { $a.age desc, $a.name } limit 200",
    "match { $a: Person not { $a worksAt $c } } return { $a.name } order { $a.name }",
)
LONG_QUERY = (
    "match { $a: Person $a knows{1,2} $b } return { $a.name, $b.name } order { $a.name, $b.name }"
)
SPLIT_BYTES = 8_000
ROWS = 100

_engine: SparkEngine | None = None


def start(config: SparkConfig) -> dict[str, Any]:
    """Open Spark for all that follows; which processes and how many slots it has."""
    global _engine
    _engine = open_spark(config)
    assert _engine.jvm is not None
    return {"java": _engine.jvm.pid, "slots": _engine.slots, "scratch": _engine.jvm.scratch}


def executors() -> int:
    """How many of a cluster work for this driver."""
    existing = running().session.sparkContext._jsc.sc().getExecutorMemoryStatus().size()
    # The driver counts itself.
    return int(existing) - 1


def running() -> SparkEngine:
    assert _engine is not None
    return _engine


@contextmanager
def small_splits() -> Iterator[None]:
    """Let small tables and files be shared out as large ones are."""
    shared = load.split_reader
    with ExitStack() as stack:
        for target, value in (
            ("omnigraph.spark.load.run.split_reader", partial(shared, split_bytes=SPLIT_BYTES)),
            ("omnigraph.spark.source.reader.ROWS_IN_PARTITION", ROWS),
            ("omnigraph.spark.export._FILE_ROWS", ROWS),
            ("omnigraph.spark.query.sources._SPLIT_ROWS", ROWS),
        ):
            stack.enter_context(patch(target, value))
        yield


# -- the work --------------------------------------------------------------------------------------


@contextmanager
def opened(location: Any) -> Iterator[Graph]:
    """A graph by its path, or by its address and how it is reached."""
    uri, options = location if isinstance(location, tuple) else (location, None)
    with Graph.open(uri, storage_options=options) as graph:
        yield graph


def load_files(location: Any, files: Any, *args: Any, **options: Any) -> dict[str, int]:
    """How many rows of each table a load brought."""
    with small_splits(), opened(location) as graph:
        receipt = graph.load(files, *args, engine="spark", spark=running().session, **options)
        return {key: item.inserted for key, item in receipt.tables.items()}


def load_keyed(location: Any, files: Any, key: str) -> dict[str, int]:
    return load_files(location, files, "append", idempotency_key=key)


def export_to(location: Any, dest: Path, form: str) -> int:
    with small_splits(), opened(location) as graph:
        rows = graph.snapshot().export(dest, form, engine="spark", spark=running().session)
        assert isinstance(rows, int)
        return rows


def ask(location: Any, text: str, how: str = "spark") -> Any:
    """The rows of a query as Arrow."""
    with small_splits(), opened(location) as graph:
        spark = running().session if how == "spark" else None
        return graph.query(f"query q() {{ {text} }}", engine=how, spark=spark).to_arrow()


TYPES = ("Person", "Company", "Knows", "WorksAt")


def copy_by_source(location: Any, other: Any, types: Sequence[str] = TYPES) -> dict[str, int]:
    """Read each type as a frame and write it into another graph; how many rows each has."""
    (uri, options), (dest, _) = (
        item if isinstance(item, tuple) else (str(item), None) for item in (location, other)
    )
    session = running().session
    register(session, storage_options=options)
    counts = {}
    for name in types:
        frame = session.read.format("omnigraph").option("type", name).option("partitions", 4)
        rows = frame.load(uri)
        rows.write.format("omnigraph").option("type", name).mode("append").save(dest)
        counts[name] = rows.count()
    return counts


def write_frames(location: Any, names: list[str]) -> dict[str, int]:
    """New persons and their edges as frames, in one commit."""
    session = running().session
    uri, options = location if isinstance(location, tuple) else (str(location), None)
    people = session.createDataFrame([(name, 7) for name in names], "name string, age int")
    knows = session.createDataFrame(list(pairwise(names)), "src string, dst string")
    graph = SparkGraph(uri, spark=session, storage_options=options)
    receipt = graph.write({"Person": people.repartition(4)}, {"Knows": knows}, "append")
    return {key: item.inserted for key, item in receipt.tables.items()}


def load_dying(
    crossings: Path, location: Any, files: Any, key: str, point: Failpoint | None
) -> dict[str, int]:
    """A load in the middle of which this process kills itself, unless it never gets there."""
    install(recorder(str(crossings), point, 1, stops=False))
    try:
        return load_keyed(location, files, key)
    finally:
        install(None)


def optimize(location: Any) -> list[str]:
    """Put small parts together; which tables have another version now."""
    with opened(location) as graph:
        report = graph.maintenance.optimize(engine="spark", spark=running().session)
        return [table.table_key for table in report.tables]


# -- work that is held up --------------------------------------------------------------------------


@dataclass(frozen=True)
class Gate:
    """The first who comes leaves its number and waits; who comes later passes."""

    folder: Path

    def hold(self) -> None:
        try:
            (self.folder / "first").touch(exist_ok=False)
        except FileExistsError:
            return
        (self.folder / "held.new").write_text(str(os.getpid()))
        (self.folder / "held.new").rename(self.folder / "held")
        while not (self.folder / "go").exists():
            time.sleep(0.02)


@dataclass(frozen=True)
class Kept:
    """Work on a share that is held up when it is done and has not been told."""

    work: Any
    gate: Gate
    split: int
    """Which of the shares, by what stands in it."""

    def __call__(self, numbered: tuple[int, Any]) -> Any:
        number, split = numbered
        answer = self.work(split)
        if number == self.split:
            self.gate.hold()
        return answer


@contextmanager
def kept_up(gate: Gate, label: str, split: int) -> Iterator[None]:
    """Hold one share of the jobs of a name."""
    tasks = SparkEngine.tasks

    def waiting(self: SparkEngine, work: Any, splits: Any, name: str, **how: Any) -> Any:
        if name != label:
            return tasks(self, work, splits, name, **how)
        return tasks(
            self, Kept(work, gate, split % len(splits)), list(enumerate(splits)), name, **how
        )

    with patch.object(SparkEngine, "tasks", waiting):
        yield


def load_kept(gate: Gate, location: Any, files: Any, split: int = -1) -> dict[str, int]:
    with kept_up(gate, "reading", split):
        return load_files(location, files, "append")


def export_kept(gate: Gate, location: Any, dest: Path, form: str) -> int:
    with kept_up(gate, "exporting", -1):
        return export_to(location, dest, form)


def ask_kept(gate: Gate, location: Any, text: str, number: int) -> Any:
    """A query whose pass of that number is held up in one task; from the last with -1 on."""
    made = 0

    def counted(work: Any, label: str) -> Callable[..., Iterator[Any]]:
        nonlocal made
        made += 1
        if made == number:
            return carrying(_Waiting(work, gate), label)
        return carrying(work, label)

    with patch("omnigraph.spark.query.rows.carrying", counted):
        return ask(location, text), made


class _Waiting:
    """A pass of the workers over rows, held up behind its last row."""

    def __init__(self, work: Any, gate: Gate) -> None:
        self.work = work
        self.gate = gate
        self.__name__ = self.__qualname__ = "waiting"

    def __call__(self, parts: Iterable[Any]) -> Iterator[Any]:
        yield from self.work(parts)
        self.gate.hold()
