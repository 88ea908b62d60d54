"""Parts of a file that are read apart, and put together as if one had read all of it."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import LoadError
from omnigraph.lang.schema.catalog import text_of
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.write.load import limits, ndjson
from omnigraph.write.load.intake import Intake
from omnigraph.write.load.ndjson import Extent, read_records
from omnigraph.write.load.rejects import CollectedRejects, Rejects, TooManyRejects
from omnigraph.write.load.spool import SOURCE_LINE
from tests.write.load.lines import catalogs, streams
from tests.write.load.test_decoders import ALL, Rows
from tests.write.load.world import SCHEMA, node, people

CATALOG = compile_schema(SCHEMA)
MARK = b"\xef\xbb\xbf"


class Split:
    """One part of a file, read by itself."""

    def __init__(self, catalog, data, *, is_first):
        self.sinks = {}
        self.rejects = CollectedRejects(ALL)
        intake = Intake(catalog, self._sink, self.rejects)
        self.extent = read_records(io.BytesIO(data), intake, "share", is_first=is_first)
        intake.flush()
        self.ignored, self.records = intake.ignored, intake.records

    def _sink(self, kind):
        return self.sinks.setdefault(kind.table_key, Rows(kind))

    def rows(self, lines):
        """All rows, where they stand when so many lines came before."""
        for key, sink in self.sinks.items():
            for row in sink.plain():
                yield key, {**row, SOURCE_LINE: row[SOURCE_LINE] + lines}


def splits(catalog, pieces):
    """The pieces one after the other; one that ends inside a record is read with the next."""
    waiting, is_first = b"", True
    for number, piece in enumerate(pieces):
        split = Split(catalog, waiting + piece, is_first=is_first)
        if split.extent.is_open and number < len(pieces) - 1:
            waiting += piece
            continue
        waiting, is_first = b"", False
        yield split


def put_together(catalog, pieces):
    lines = records = taken = 0
    rows, rejects, ignored = [], [], {}
    for split in splits(catalog, pieces):
        rows += split.rows(lines)
        rejects += [reject.shifted("x", lines, records) for reject in split.rejects.collected]
        for name, count in split.ignored.items():
            ignored[name] = ignored.get(name, 0) + count
        lines += split.extent.lines
        records += split.extent.records
        taken += split.records
    rows.sort(key=lambda row: (row[0], row[1][SOURCE_LINE], repr(row)))
    return rows, [(r.to_json(), r.error().message) for r in rejects], ignored, lines, records, taken


@given(st.data(), catalogs())
def test_the_parts_of_any_stream_are_the_whole(data, catalog):
    """Rows with their lines, rejects with their messages, counts."""
    stream = data.draw(streams(catalog))
    ends = [n + 1 for n, byte in enumerate(stream) if byte == ord("\n")]
    cuts = sorted(data.draw(st.sets(st.sampled_from(ends), max_size=3))) if ends else []
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert put_together(catalog, pieces) == put_together(catalog, [stream])


def test_a_mark_is_one_only_where_the_file_begins():
    line = json.dumps(node("Person", name="Ada")).encode() + b"\n"
    assert Split(CATALOG, MARK + line, is_first=True).rejects.collected == []
    (reject,) = Split(CATALOG, MARK + line, is_first=False).rejects.collected
    assert (
        reject.shifted("a.ndjson", 7, 5).error().message.startswith("a.ndjson:8: invalid JSON at")
    )
    assert reject.shifted("a.ndjson", 7, 5).reason.startswith("invalid JSON at record 6: ")


EXTENTS = {
    "": Extent(0, 0),
    "{}": Extent(1, 1),
    "{}\n{}\n": Extent(2, 2),
    "\n\n{} {}\n\n": Extent(4, 2),
    '{}\n{"a":\n': Extent(2, 2, is_open=True),
    '{}\n{"a":\n1}': Extent(3, 2),
    "oops\n{}": Extent(2, 2),
}


@pytest.mark.parametrize(("text", "extent"), EXTENTS.items())
def test_how_much_was_read_can_be_asked_for(text, extent):
    assert Split(CATALOG, text.encode(), is_first=True).extent == extent


# -- rejects ----------------------------------------------------------------------------------


def collected(records, allowed):
    rejects = CollectedRejects(allowed)
    intake = Intake(CATALOG, Rows, rejects)
    data = "".join(json.dumps(record) + "\n" for record in records)
    try:
        read_records(io.BytesIO(data.encode()), intake, "x")
        intake.flush()
    except TooManyRejects:
        return rejects, True
    return rejects, False


BAD = [node("Person", name="a", age=999), node("Robot"), node("Person", name="b", age="x")]


@pytest.mark.parametrize(("allowed", "expected"), [(0, [2]), (1, [2, 3]), (2, [2, 3, 4])])
def test_a_part_tells_one_more_than_is_allowed(allowed, expected):
    rejects, is_over = collected([*people("Ada"), *BAD, *people("Bob")], allowed)
    assert ([reject.line for reject in rejects.collected], is_over) == (expected, True)


def test_a_part_with_no_more_than_is_allowed_is_read_to_its_end():
    rejects, is_over = collected([*people("Ada"), *BAD, *people("Bob")], 3)
    assert ([reject.line for reject in rejects.collected], is_over) == ([2, 3, 4], False)


def test_rejects_say_the_same_in_another_process():
    rejects, _ = collected(BAD, ALL)
    there = pickle.loads(pickle.dumps(rejects.collected))
    assert there == rejects.collected
    for one, other in zip(there, rejects.collected, strict=True):
        mine, theirs = one.shifted("f", 1, 1).error(), other.shifted("f", 1, 1).error()
        assert (type(mine), mine.message, mine.details) == (
            type(theirs),
            theirs.message,
            theirs.details,
        )


def test_what_ends_a_load_whatever_is_allowed_ends_a_part(monkeypatch):
    monkeypatch.setattr(limits, "LONGEST_RECORD", 1_000)
    monkeypatch.setattr(ndjson, "_BLOCK", 64)
    records = [BAD[1], node("Person", name="x" * 2_000)]
    rejects, is_over = collected(records, ALL)
    assert ([reject.line for reject in rejects.collected], is_over) == ([1], True)
    assert rejects.fatal.shifted("f", 5, 5).error().message == "f:7: the record is too long"
    data = "".join(json.dumps(record) + "\n" for record in records).encode()
    for allowed, message in ((0, "x:1: record 1: unknown"), (1, "x:2: the record is too long")):
        with pytest.raises(LoadError, match=message):
            read_records(io.BytesIO(data), Intake(CATALOG, Rows, Rejects(allowed)), "x")


# -- elsewhere --------------------------------------------------------------------------------

ELSEWHERE = """
import io, json, sys
from omnigraph.lang.schema.catalog import catalog_of
from omnigraph.write.load.intake import Intake
from omnigraph.write.load.ndjson import read_records
from omnigraph.write.load.rejects import CollectedRejects

class Sink:
    def __init__(self, kind):
        self.add = lambda batch: added.append((kind.table_key, batch["name"].to_pylist()))

added = []
given = json.load(sys.stdin)
rejects = CollectedRejects(5)
intake = Intake(catalog_of(given["catalog"]), Sink, rejects)
print(read_records(io.BytesIO(given["text"].encode()), intake, "x").lines)
intake.flush()
print(added, [reject.line for reject in rejects.collected])
"""


def test_a_process_with_nothing_but_the_text_of_the_catalog_reads_a_part():
    text = "\n".join(map(json.dumps, [*people("Ada", "Bob"), node("Robot")]))
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        input=json.dumps({"catalog": text_of(CATALOG), "text": text}),
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3] / "src",
    )
    assert done.stdout.splitlines() == ["3", "[('node:Person', ['Ada', 'Bob'])] [3]"]


def test_places_are_those_of_the_lines():
    matches = []

    class Locations:
        def __init__(self, kind):
            pass

        def add(self, batch):
            matches.append(batch[SOURCE_LINE].to_numpy() & (1 << 40) - 1)

    text = "\n".join(map(json.dumps, people(*map(str, range(5_000)))))
    intake = Intake(CATALOG, Locations, Rejects())
    read_records(io.BytesIO(text.encode()), intake, "x")
    intake.flush()
    assert np.array_equal(np.concatenate(matches), np.arange(1, 5_001))
