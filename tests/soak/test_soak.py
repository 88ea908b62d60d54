"""Hours in small: writers, readers, branches and maintenance in many processes on one graph.

No wrong read, no lost write, nobody who hangs, and no more on the disk than the policy says.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.staging import markers
from omnigraph.storage.checksums import FOLDER as CHECKSUMS
from omnigraph.storage.checksums import MOST_RECORDS, fold_checksums
from omnigraph.storage.tables.types import TableRef
from omnigraph.storage.tables.versions import versions_of
from tests.soak.acting import sooner
from tests.soak.model import (
    BRANCHER,
    KEEP,
    SCHEMA,
    SPACES,
    WRITERS,
    Story,
    begin,
    digest,
    judge,
    lines,
    look,
    story,
)
from tests.soak.parts import ROUNDS
from tests.soak.workers import Workers

pytestmark = pytest.mark.rotates(3)

SHORT = (10.0, 5.0)
LONG = (3 * 60.0, 30.0)
"""How long it goes on, and the age at which cleanup removes what nobody needs, in seconds."""
READERS = ("r0", "r1", "r2", "r3")
OLD = 3
BYTES_FACTOR = 3
BYTES_OF_A_COMMIT = 3000
"""The manifest keeps a row of every commit, whatever is cleaned."""
BYTES_OF_FILTERS = 4 * 2 * 32_768
"""A publish that cannot append beside the head writes a filter of its keys twice; a few such
versions are left after a cleanup."""


@pytest.fixture
def seed() -> int:
    """Another one for each run; a failure prints it."""
    chosen = int.from_bytes(os.urandom(4), "big")
    print(f"seed {chosen}")
    return chosen


def test_a_graph_under_load_stays_right_and_bounded(tmp_path, seed):
    soak(tmp_path, seed, *SHORT)


@pytest.mark.slow
def test_the_same_for_three_minutes(tmp_path, seed):
    soak(tmp_path, seed, *LONG)


def soak(folder: Path, seed: int, seconds: float, min_age: float) -> None:
    uri = str(folder / "g.omni")
    logs = folder / "logs"
    logs.mkdir()
    with Graph.init(uri, SCHEMA, durability="os") as graph:
        begin(graph)
    workers = Workers(uri, logs, seed, seconds, min_age)
    try:
        workers.add("writer", *WRITERS[:2])
        workers.add("writer", *WRITERS[2:])
        workers.add("reader", *READERS[:2])
        workers.add("reader", *READERS[2:])
        workers.add("keeper", "keeper")
        workers.add("brancher", BRANCHER)
        workers.run()
    finally:
        workers.end()
    try:
        stories = {name: story(logs / f"{name}.log") for name in SPACES}
        print_stories(stories, logs)
        everybody_did_something(stories, logs)
        nobody_read_what_never_was(stories, logs)
        with sooner(min_age), Graph.open(uri, durability="os") as graph:
            nothing_is_left_over(graph)
            everything_acknowledged_is_there_once(graph, stories)
            report = graph.maintenance.verify()
            assert report.problems == (), report.to_json()
            versions_are_bounded(graph, min_age)
            bytes_are_bounded(graph, folder)
            everything_acknowledged_is_there_once(graph, stories)
    except BaseException:
        for path in sorted(logs.glob("*.log")):
            print(f"== {path.name}\n{path.read_text()[-3000:]}")
        raise


def print_stories(stories: dict[str, Story], logs: Path) -> None:
    for name, reported in stories.items():
        print(name, len(reported.commits), "commits;", reported.refused)
    done: Counter[str] = Counter()
    for line in lines(logs / "keeper.log"):
        done.update(line.get("refused", {}))
        if "done" in line:
            done[line["done"]] += 1
            if line["done"] == "clean":
                done["versions removed"] += line["result"]
        if "unclean" in line:
            done[line["unclean"]["error"]] += 1
    print("keeper", json.dumps(done))


def everybody_did_something(stories: dict[str, Story], logs: Path) -> None:
    for name, reported in stories.items():
        assert reported.commits, f"{name} never got through"
    for name in READERS:
        assert [line["times"] for line in lines(logs / f"{name}.log") if "times" in line] > [0]
    done = {line["done"] for line in lines(logs / "keeper.log") if "done" in line}
    assert done == {item.__name__ for item in ROUNDS}


def nobody_read_what_never_was(stories: dict[str, Story], logs: Path) -> None:
    """Every state that a reader saw of a writer is one that this writer made."""
    for name in READERS:
        for line in lines(logs / f"{name}.log"):
            if "state" in line:
                writer, number, actual = line["state"]
                assert (number, actual) in stories[writer].states, (name, line)


def nothing_is_left_over(graph: Graph) -> None:
    assert graph._handle.store.sidecars.list() == []
    assert list(markers(graph._handle.store, ())) == []
    assert graph.branches.list() == ["main"]
    for table in graph.maintenance.repair().tables:
        assert table.classification == "no_drift", table


def everything_acknowledged_is_there_once(graph: Graph, stories: dict[str, Story]) -> None:
    seen = look(graph.snapshot())
    judge(seen, on_main=True)
    for name, reported in stories.items():
        assert seen.of(name) == reported.pairs, name
        assert (seen.progress[name], digest(seen.of(name))) in reported.states
        assert seen.progress[name] == reported.number
    assert seen.counter == sum(reported.counted for reported in stories.values())
    assert seen.drafts == stories[BRANCHER].drafts
    assert seen.note == stories[BRANCHER].note
    commits = graph.commits()
    chain = {commit.commit_id for commit in commits}
    assert len(chain) == len(commits)
    for name, reported in stories.items():
        assert len(set(reported.commits)) == len(reported.commits), name
        assert chain.issuperset(reported.commits), name
    for name in WRITERS:
        made = {commit.commit_id for commit in commits if commit.actor == name}
        assert made <= set(stories[name].commits), f"{name} was not told of all its commits"


def versions_are_bounded(graph: Graph, min_age: float) -> None:
    """After a cleanup only what is new, young, shown by a tag, or needed by a young state is there.

    The oldest young state was made before; the one after it may show versions of a write that had
    committed its tables by then, and not yet published them.
    """
    since = datetime.now(UTC) - timedelta(seconds=min_age)
    graph.maintenance.cleanup(keep_versions=KEEP, min_age=min_age)
    tags = len(graph.tags.list())
    for key, pin in graph._handle.store.manifest(None).current().pins.items():
        stamps = versions_of(graph._handle.store.datasets, TableRef(pin.location))
        old = [stamp for stamp in stamps[:-KEEP] if stamp.made < since]
        assert len(old) <= OLD + tags, (key, len(stamps), len(old))
    graph.maintenance.cleanup(keep_versions=KEEP, min_age=0)
    pins = graph._handle.store.manifest(None).current().pins
    for key, pin in pins.items():
        count = len(versions_of(graph._handle.store.datasets, TableRef(pin.location)))
        assert count <= KEEP + tags, (key, count)
        assert graph._handle.store.inline.branches(pin.location) == {}
    # A state stays when all that it shows does: each is one table further than the one before.
    states = len(versions_of(graph._handle.store.datasets, TableRef(MANIFEST)))
    print("states", states)
    assert states <= 2 * len(pins) * (KEEP + tags), states


def bytes_are_bounded(graph: Graph, folder: Path) -> None:
    """Against a graph that was loaded with the same rows just now."""
    for tag in graph.tags.list():
        graph.tags.delete(tag.name)
    with Graph.init(folder / "fresh.omni", SCHEMA, durability="os") as fresh:
        graph.snapshot().export(folder / "all.jsonl")
        fresh.load(folder / "all.jsonl")
        for item in (graph, fresh):
            item.maintenance.optimize()
            item.maintenance.cleanup(keep_versions=1, min_age=0)
            # They are put together when there are enough of them, not every time.
            assert len(item._handle.store.objects.list(CHECKSUMS)) <= MOST_RECORDS + 2
            fold_checksums(item._handle.store.objects)
    worn, new = size(folder / "g.omni"), size(folder / "fresh.omni")
    commits = len(graph.commits()) * BYTES_OF_A_COMMIT
    print("bytes", worn, new, len(graph.commits()))
    assert worn.total() - worn[MANIFEST] <= BYTES_FACTOR * (new.total() - new[MANIFEST])
    assert worn[MANIFEST] <= BYTES_FACTOR * new[MANIFEST] + commits + BYTES_OF_FILTERS


def size(root: Path) -> Counter[str]:
    """Bytes by what lies directly in a graph."""
    actual: Counter[str] = Counter()
    for path in root.rglob("*"):
        if path.is_file():
            actual[path.relative_to(root).parts[0]] += path.stat().st_size
    return actual
