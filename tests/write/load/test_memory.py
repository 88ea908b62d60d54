"""Loads and exports take bounded memory, however large their files are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph import Graph
from tests.write.load import memory

pytestmark = pytest.mark.rotates(6)

SCHEMA = """\
node Doc { slug: String @key  text: String }
node Pic { slug: String @key  body: Blob? }
node Note { text: String  body: Blob? }
edge Cites: Doc -> Doc
"""
MOST = 400


def megabytes(uri, what, path):
    """How much memory a load or an export takes, in a process of its own."""
    call = [sys.executable, memory.__file__, str(uri), what, str(path)]
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    done = subprocess.run(call, capture_output=True, text=True, env=environment, check=True)
    return float(done.stdout)


def size(path):
    return path.stat().st_size / (1 << 20)


TEXT = "0123456789" * 200


def write_ndjson(path, count):
    with path.open("w") as file:
        for n in range(count):
            record = {"type": "Doc", "data": {"slug": f"d{n}", "text": f"{n} {TEXT}"}}
            file.write(json.dumps(record) + "\n")


def write_csv(path, count):
    with path.open("w") as file:
        file.write("slug,text\n")
        file.writelines(f"d{n},{n} {TEXT}\n" for n in range(count))


def write_parquet(path, count):
    schema = pa.schema([("slug", pa.string()), ("text", pa.string())])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for start in range(0, count, 5_000):
            numbers = range(start, start + 5_000)
            rows = {"slug": [f"d{n}" for n in numbers], "text": [f"{n} {TEXT}" for n in numbers]}
            writer.write_table(pa.table(rows, schema))


@pytest.mark.parametrize(
    ("form", "write"),
    [
        ("ndjson", write_ndjson),
        pytest.param("csv", write_csv, marks=pytest.mark.slow),
        pytest.param("parquet", write_parquet, marks=pytest.mark.slow),
    ],
    ids=["ndjson", "csv", "parquet"],
)
def test_four_times_the_rows_do_not_take_twice_the_memory(tmp_path, form, write):
    """Neither when they are new nor when they replace others."""
    peaks = []
    for count in (25_000, 100_000):
        uri, path = tmp_path / f"{count}.omni", tmp_path / str(count) / f"Doc.{form}"
        path.parent.mkdir()
        Graph.init(uri, SCHEMA, durability="os").close()
        write(path, count)
        peaks.append([megabytes(uri, "load", path) for _ in ("new", "again")])
        with Graph.open(uri, "r") as graph:
            assert graph.snapshot().count("Doc") == count
    assert size(path) > 190
    few, many = peaks
    assert many[0] < 2 * few[0]
    assert many[1] < 2 * few[1]


@pytest.mark.slow
def test_a_file_three_times_as_large_as_the_memory_loads_and_comes_out_again(tmp_path):
    """Loaded again, all of its nodes replace older ones; the edges come first."""
    uri, path = tmp_path / "g.omni", tmp_path / "docs.ndjson"
    Graph.init(uri, SCHEMA, durability="os").close()
    count = 640_000
    with path.open("w") as file:
        for n in range(0, count, 10):
            file.write(json.dumps({"edge": "Cites", "from": f"d{n}", "to": f"d{n + 1}"}) + "\n")
        for n in range(count):
            data = {"slug": f"d{n}", "text": f"{n} {TEXT}"}
            file.write(json.dumps({"type": "Doc", "data": data}) + "\n")
    assert size(path) > 3 * MOST
    assert megabytes(uri, "load", path) < MOST
    assert megabytes(uri, "load", path) < MOST
    with Graph.open(uri) as graph:
        assert graph.snapshot().count("Doc") == count
        assert graph.snapshot().count("Cites") == 2 * count / 10
    assert megabytes(uri, "ndjson", tmp_path / "out.ndjson") < MOST
    assert size(tmp_path / "out.ndjson") > 3 * MOST
    assert megabytes(uri, "parquet", tmp_path / "out") < MOST
    written = pq.ParquetFile(tmp_path / "out" / "nodes" / "Doc.parquet").metadata.num_rows
    assert written == count


@pytest.mark.slow
def test_large_blobs_load_and_come_out_again(tmp_path):
    """From files of 8 MB each, many of them."""
    uri, path = tmp_path / "g.omni", tmp_path / "pics.ndjson"
    Graph.init(uri, SCHEMA, durability="os").close()
    picture = tmp_path / "picture.bin"
    picture.write_bytes(os.urandom(8 << 20))
    with path.open("w") as file:
        for n in range(200):
            data = {"slug": f"p{n}", "body": picture.as_uri()}
            file.write(json.dumps({"type": "Pic", "data": data}) + "\n")
    assert megabytes(uri, "load", path) < MOST
    assert megabytes(uri, "load", path) < MOST
    with Graph.open(uri) as graph:
        assert graph.snapshot().count("Pic") == 200
        assert (
            graph.snapshot().read_blob("Pic", "p7", "body", 1 << 20, 100)
            == (picture.read_bytes()[1 << 20 :][:100])
        )
    assert megabytes(uri, "parquet", tmp_path / "out") < MOST


def test_a_csv_line_of_any_length_takes_bounded_memory(tmp_path):
    Graph.init(tmp_path / "g.omni", SCHEMA, durability="os").close()
    assert megabytes(tmp_path / "g.omni", "one csv line", 1536 << 20) < 80
