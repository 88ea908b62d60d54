"""Readers beside a writer take over what it announces, and all of them at the same moment."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.commit.announcements import Announced, Announcer, create_memory
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.manifest import Manifest
from omnigraph.storage.tables.ledger_reader import LedgerReader
from tests.commit.world import SCHEMA, at, fresh_state, names, people, state_of, store_at

pytestmark = pytest.mark.rotates(3)


@dataclass
class Beside:
    """A writer and two readers that share its announcements."""

    writer: Graph
    readers: list[Graph]
    memory: Path
    path: Path

    def manifests(self, branch: str | None = None) -> list[Manifest]:
        return [reader._handle.store.manifest(branch) for reader in self.readers]

    def states(self, branch: str | None = None) -> list[dict]:
        return [state_of(manifest) for manifest in self.manifests(branch)]


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Beside]:
    # Nothing is late on a busy machine.
    monkeypatch.setattr("omnigraph.commit.announcements._HIDDEN_NANOSECONDS", 1 << 40)
    path, memory = tmp_path / "g.omni", tmp_path / "announcements"
    create_memory(memory)
    with ExitStack() as stack:
        writer = stack.enter_context(Graph.init(path, SCHEMA, durability="os"))
        writer.append(people(ada=36))
        readers = [stack.enter_context(Graph.open(path, "r")) for _ in range(2)]
        writer._handle.store.manifests.announce(Announcer(memory))
        for reader in readers:
            reader._handle.store.manifests.follow(Announced(memory))
        yield Beside(writer, readers, memory, path)


@contextmanager
def reading_nothing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def fail(*_: object) -> None:
        raise AssertionError("a version of the manifest was read")

    with monkeypatch.context() as patch:
        patch.setattr(LedgerReader, "advance", fail)
        yield


def test_a_reader_takes_commits_over_without_reading_the_manifest(beside, monkeypatch):
    with reading_nothing(monkeypatch):
        for number in range(40):
            beside.writer.append(people(**{f"p{number}": number}))
            if number % 3 == 0:
                assert [len(names(reader)) for reader in beside.readers] == [number + 2] * 2
        states = beside.states()
    assert states == [fresh_state(store_at(beside.path))] * 2
    assert [reader.commits() for reader in beside.readers] == [beside.writer.commits()] * 2


def test_no_reader_shows_a_commit_before_all_may(beside):
    before = beside.states()
    seen = []

    def look() -> None:
        # It is on the disk, but not acknowledged.
        assert fresh_state(store_at(beside.path))["version"] == before[0]["version"] + 1
        seen.append(beside.states())
        seen.append([m.current_in_memory().manifest_version for m in beside.manifests()])
        with Graph.open(beside.path, "r") as late:
            late._handle.store.manifests.follow(Announced(beside.memory))
            late.refresh()
            seen.append(names(late))

    with at(Failpoint.PUBLISH_AFTER, look):
        beside.writer.append(people(bo=1))
    assert seen == [before, [before[0]["version"]] * 2, ["ada"]]
    assert [names(reader) for reader in beside.readers] == [["ada", "bo"]] * 2


def test_a_publish_that_fails_hides_nothing(beside):
    def fail() -> None:
        raise OSError("the process is about to end")

    with at(Failpoint.PUBLISH_AFTER, fail), pytest.raises(OSError, match="about to end"):
        beside.writer.append(people(bo=1))
    assert beside.states() == [fresh_state(store_at(beside.path))] * 2


def test_what_a_dead_writer_hides_is_shown_after_a_moment(beside, monkeypatch):
    key = beside.writer._handle.store.manifest(None)._key(None)
    newest = beside.states()[0]["version"]
    Announcer(beside.memory).hide(key, newest + 1)
    with Graph.open(beside.path, durability="os") as other:
        other.append(people(bo=1))
    assert [names(reader) for reader in beside.readers] == [["ada"]] * 2
    monkeypatch.setattr("omnigraph.commit.announcements.time.monotonic_ns", lambda: 1 << 62)
    assert [names(reader) for reader in beside.readers] == [["ada", "bo"]] * 2


def test_a_new_writer_hides_nothing_of_the_one_before(beside):
    key = beside.writer._handle.store.manifest(None)._key(None)
    Announcer(beside.memory).hide(key, beside.states()[0]["version"] + 1)
    with Graph.open(beside.path, durability="os") as other:
        other.append(people(bo=1))
        Announcer(beside.memory)
        assert [names(reader) for reader in beside.readers] == [["ada", "bo"]] * 2


def test_commits_of_other_programs_are_read_at_once(beside):
    with Graph.open(beside.path, durability="os") as other:
        for number in range(4):
            other.append(people(**{f"other{number}": 1}))
            assert beside.states() == [fresh_state(store_at(beside.path))] * 2
            beside.writer.append(people(**{f"own{number}": 1}))
            assert beside.states() == [fresh_state(store_at(beside.path))] * 2


def test_a_branch_does_not_take_over_what_an_earlier_one_of_its_name_had(beside):
    for age in range(3):
        beside.writer.branches.create("draft")
        beside.writer.append(people(bo=age), branch="draft")
        assert beside.states("draft") == [fresh_state(store_at(beside.path), "draft")] * 2
        assert [names(reader, "draft") for reader in beside.readers] == [["ada", "bo"]] * 2
        beside.writer.branches.delete("draft")


def test_damaged_memory_is_not_used(beside):
    beside.states()
    beside.writer.append(people(bo=1))
    content = bytearray(beside.memory.read_bytes())
    position = content.find(b"graph_commit")
    content[position : position + 5] = b"-----"
    beside.memory.write_bytes(content)
    assert beside.states() == [fresh_state(store_at(beside.path))] * 2


def test_a_reader_that_missed_too_much_reads_the_manifest(beside):
    beside.states()
    for number in range(60):
        beside.writer.append(people(**{f"p{number}": number}))
    assert beside.states() == [fresh_state(store_at(beside.path))] * 2


def test_readers_follow_any_order_of_writers_and_work(beside):
    chance = random.Random(5)
    with Graph.open(beside.path, durability="os") as other:
        for number in range(50):
            graph = chance.choice([beside.writer, beside.writer, other])
            match chance.randrange(6):
                case 0:
                    graph.maintenance.optimize()
                case 1:
                    graph.tags.create(f"t{number}")
                case _:
                    graph.append(people(**{f"p{number}": number}))
            for manifest in beside.manifests()[: chance.randrange(3)]:
                manifest.current_in_memory()
                assert state_of(manifest) == fresh_state(store_at(beside.path))
    assert beside.states() == [fresh_state(store_at(beside.path))] * 2


def test_a_reader_goes_on_though_the_version_that_it_read_was_removed(beside):
    beside.states()
    read = {manifest._reader.version for manifest in beside.manifests()}
    for number in range(20):
        beside.writer.append(people(**{f"p{number}": number}))
        beside.states()
    assert {manifest._reader.version for manifest in beside.manifests()} == read
    for version in range(max(read) + 1):
        # As cleanup does after a while.
        name = beside.writer._handle.store.manifest(None).ref.version_path(version)
        (beside.path / name).unlink(missing_ok=True)
    with Graph.open(beside.path, durability="os") as other:
        other.append(people(bo=1))
    assert beside.states() == [fresh_state(store_at(beside.path))] * 2
    assert [reader.commits() for reader in beside.readers] == [beside.writer.commits()] * 2


def test_the_memory_has_its_space_before_anything_is_announced(tmp_path):
    create_memory(tmp_path / "memory")
    status = (tmp_path / "memory").stat()
    assert status.st_blocks * 512 >= status.st_size > 0
