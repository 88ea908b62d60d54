"""Recorded checksums are found without reading every record."""

from __future__ import annotations

import json
import os
import time

import pytest

from omnigraph.storage import recorded_sums
from omnigraph.storage.checksums import FOLDER, Checksums, FileSum
from omnigraph.storage.objects.paths import parse_root
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.storage.recorded_sums import RecordedSums

OLD = time.time() - 10_000


@pytest.fixture
def objects(tmp_path):
    return ObjectStore(parse_root(str(tmp_path / "g")))


@pytest.fixture
def record(objects, monkeypatch):
    """Writes a record as a publish does, at a time."""

    def write(sums, at):
        monkeypatch.setattr(time, "time_ns", lambda: int(at * 1e9))
        before = set(objects.list(FOLDER))
        checksums = Checksums(objects)
        for path, item in sums.items():
            folder, _, name = path.rpartition("/")
            checksums.note(folder, [name], {name: item})
        checksums.record(now=True)
        (name,) = set(objects.list(FOLDER)) - before
        return name

    return write


def sums_of(number):
    return {f"nodes/a/data/{number}.lance": FileSum(number, f"sha256:{number:064x}")}


@pytest.fixture
def read(monkeypatch):
    """The records that are read."""
    names = []
    real = RecordedSums._read

    def counting(self, name, missing):
        if name not in self._parsed:
            names.append(name)
        real(self, name, missing)

    monkeypatch.setattr(RecordedSums, "_read", counting)
    return names


def test_the_record_of_the_moment_of_a_file_is_read_first(objects, record, read):
    names = [record(sums_of(n), OLD + 10 * n) for n in range(50)]
    sums = RecordedSums(objects)
    assert sums.find({"nodes/a/data/20.lance": OLD + 199}) == sums_of(20)
    assert read == [names[20]]
    assert sums.find({"nodes/a/data/20.lance": OLD + 199}) == sums_of(20)
    assert read == [names[20]]


def test_writers_may_have_recorded_in_between(objects, record, read):
    names = [record(sums_of(n), OLD + n) for n in range(100)]
    assert RecordedSums(objects).find({"nodes/a/data/20.lance": OLD + 17}) == sums_of(20)
    assert read == names[17:21]


def test_a_record_of_an_earlier_release_goes_by_its_time(objects, record, read):
    name = record(sums_of(1), OLD)
    objects.rename(f"{FOLDER}/{name}", f"{FOLDER}/0c7e1c9c-1.json")
    os.utime(objects.root.path(f"{FOLDER}/0c7e1c9c-1.json"), (OLD, OLD))
    record(sums_of(2), OLD + 50)
    assert RecordedSums(objects).find({"nodes/a/data/1.lance": OLD - 1}) == sums_of(1)
    assert read == ["0c7e1c9c-1.json"]


def test_a_record_that_comes_later_is_found(objects, record, read):
    sums = RecordedSums(objects)
    assert sums.find({"nodes/a/data/1.lance": OLD}) == {}
    name = record(sums_of(1), OLD + 1)
    assert sums.find({"nodes/a/data/1.lance": OLD}) == sums_of(1)
    assert read == [name]


def test_a_file_that_looks_younger_than_its_record_is_found(objects, record):
    record(sums_of(1), OLD)
    assert RecordedSums(objects).find({"nodes/a/data/1.lance": OLD + 5_000}) == sums_of(1)


def test_a_small_record_is_read_once(objects, record, read):
    name = record(sums_of(1), OLD)
    sums = RecordedSums(objects)
    for number in (2, 3, 1):
        sums.find({f"nodes/a/data/{number}.lance": OLD})
    assert read == [name]


def test_a_large_record_is_searched(objects, record, monkeypatch):
    monkeypatch.setattr(recorded_sums, "_SMALL", 0)
    many = {k: v for n in range(20) for k, v in sums_of(n).items()}
    record(many | {'nodes/"q/é.lance': FileSum(3, "sha256:03")}, OLD)
    sums = RecordedSums(objects)
    wanted = {"nodes/a/data/7.lance": OLD, 'nodes/"q/é.lance': OLD, "nodes/a/none": OLD}
    assert sums.find(wanted) == {**sums_of(7), 'nodes/"q/é.lance': FileSum(3, "sha256:03")}


@pytest.mark.parametrize("text", ["", "{", "[]", json.dumps({"files": {"a": 1}})])
def test_a_record_that_cannot_be_read_records_nothing(objects, text):
    objects.write_bytes(f"{FOLDER}/x.json", text.encode())
    assert RecordedSums(objects).find({"a": OLD}) == {}
