"""Vectors of many dimensions: what is refused, and what a null among them may cost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph import Graph, compile_schema
from omnigraph.api import graph as graph_module
from omnigraph.errors import LimitExceeded, QueryError, SchemaError
from omnigraph.lang.types import MOST_DIMENSIONS
from omnigraph.storage.tables.wide_columns import WIDEST_ROW, null_column
from tests.write import wide

pytestmark = pytest.mark.rotates(3)

TOO_MANY = MOST_DIMENSIONS + 1
ROWS = 600
MOST_MEGABYTES = 160
"""All the vectors of these rows take 150 at once, and several times that where they are copied."""
MORE_ROWS = 1_800
MORE_MEGABYTES = 220
"""Here they take 450. How many batches wait for one another depends on the load of the machine."""


@pytest.mark.parametrize("dimension", [TOO_MANY, 1_000_000_000, 2_147_483_647])
@pytest.mark.parametrize("nullable", ["", "?"])
def test_a_new_schema_with_too_wide_a_vector_is_refused(tmp_path, dimension, nullable):
    text = f"node Doc {{\n  slug: String @key\n  v: Vector({dimension}){nullable}\n}}"
    with pytest.raises(SchemaError) as caught:
        Graph.init(tmp_path / "g.omni", text)
    (actual,) = caught.value.diagnostics
    assert (actual.code, actual.location) == ("S004", "<schema>:3:6")
    assert f"exceeds maximum supported {MOST_DIMENSIONS}" in actual.text
    assert not (tmp_path / "g.omni").exists()


def test_a_schema_may_have_the_widest_and_get_no_wider(tmp_path):
    text = f"node Doc {{ slug: String @key  v: Vector({MOST_DIMENSIONS})? }}"
    with Graph.init(tmp_path / "g.omni", text, durability="os") as graph:
        graph.load([{"type": "Doc", "data": {"slug": "a"}}])
        with pytest.raises(SchemaError, match="exceeds maximum supported"):
            graph.schema.apply(text.replace("? }", f"?  w: Vector({TOO_MANY})? }}"))
        query = f"query q($v: Vector({TOO_MANY})?) {{ match {{ $d: Doc }} return {{ $d.slug }} }}"
        with pytest.raises(QueryError, match="out of range"):
            graph.query(query)


# -- graphs of other programs ---------------------------------------------------------------------

FOREIGN = """\
node Doc { slug: String @key  v: Vector(DIM)?  x: I32? }
node Note { text: String @key }
edge Cites: Doc -> Doc
"""


def foreign(tmp_path, monkeypatch, dimension):
    """A graph as a program without such a limit makes it, with a row whose vector is null."""
    text = FOREIGN.replace("DIM", str(dimension))
    with monkeypatch.context() as patched:
        patched.setattr(graph_module, "compile_schema", lambda source, **_: compile_schema(source))
        Graph.init(tmp_path / "g.omni", text, durability="os").close()
    return Graph.open(tmp_path / "g.omni", durability="os")


def write_null(graph, dimension):
    """A row whose vector is null, as another program that takes the memory for it writes it."""
    store = graph._handle.store
    pin = store.manifest(None).current().pins["node:Doc"]
    kind = pa.schema(graph.catalog.node_types["Doc"].arrow_schema())
    rows = {"id": ["a"], "slug": ["a"], "v": pa.nulls(1, kind.field("v").type), "x": [1]}
    lance.write_dataset(pa.table(rows, kind), store.root.path(pin.location), mode="append")
    graph.maintenance.repair(confirm=True, force=True)


def test_a_graph_with_a_wider_vector_opens_and_is_read(tmp_path, monkeypatch):
    dimension = 2 * MOST_DIMENSIONS
    with foreign(tmp_path, monkeypatch, dimension) as graph:
        write_null(graph, dimension)
        assert graph.snapshot().count("Doc") == 1
        (row,) = graph.query("query q() { match { $d: Doc } return { $d.slug, $d.v } }").rows()
        assert row["d.v"] is None
        assert len(list(graph.snapshot().export())) == 1
        is_not_written(graph)


def is_not_written(graph):
    """Every way to make rows of the type is refused; others work, and so does a deletion."""
    add = 'query q() { insert Doc { slug: "b" } }'
    change = 'query q() { update Doc set { x: 2 } where slug = "a" }'
    for write in (
        lambda: graph.load([{"type": "Doc", "data": {"slug": "b"}}]),
        lambda: graph.load({"Doc": pa.table({"slug": ["b"]})}),
        lambda: graph.append({"Doc": pa.table({"slug": ["b"]})}),
        lambda: graph.mutate(add),
        lambda: graph.mutate(change),
    ):
        with pytest.raises(LimitExceeded, match=r"Doc\.v is Vector\(\d+\)\?, and rows with more"):
            write()
    graph.load([{"type": "Note", "data": {"text": "n"}}])
    assert graph.snapshot().count("Note") == 1


def test_a_graph_with_a_vector_of_any_width_opens(tmp_path, monkeypatch):
    """One row of it would take 4 GB."""
    with foreign(tmp_path, monkeypatch, 1_000_000_000) as graph:
        is_not_written(graph)
        assert graph.query("query q() { match { $d: Doc } return { $d.slug, $d.x } }").rows() == []
        assert list(graph.snapshot().read("Doc", ["slug"])["slug"]) == []
        with pytest.raises(LimitExceeded, match=f"at most {WIDEST_ROW} can be read") as caught:
            graph.snapshot().read("Doc")
        assert caught.value.hint == "read other properties only"


# -- memory ---------------------------------------------------------------------------------------


def measured(folder: Path, rows: int, *steps: str) -> dict[str, float]:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    call = [sys.executable, wide.__file__, str(folder), str(rows), *steps]
    done = subprocess.run(call, capture_output=True, text=True, env=environment, check=True)
    return {name: float(size) for name, size in map(str.split, done.stdout.splitlines())}


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a step is read from /proc")
@pytest.mark.parametrize(
    ("rows", "most", "steps"),
    [
        (ROWS, MOST_MEGABYTES, ("load", "merge", "scan", "delete")),
        pytest.param(
            *(MORE_ROWS, MORE_MEGABYTES),
            ("table", "append", "optimize", "export", "apply", "scan"),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *(MORE_ROWS, MORE_MEGABYTES), ("csv", "parquet", "reload"), marks=pytest.mark.slow
        ),
    ],
)
def test_nulls_take_the_memory_of_a_batch(tmp_path, rows, most, steps):
    taken = measured(tmp_path, rows, *steps)
    assert list(taken) == list(steps)
    assert {name: size for name, size in taken.items() if size > most} == {}


def test_nulls_share_their_memory():
    type_ = pa.list_(pa.float32(), MOST_DIMENSIONS)
    before = pa.total_allocated_bytes()
    actual = null_column(5_001, type_)
    assert (len(actual), actual.null_count, actual.type) == (5_001, 5_001, type_)
    assert pa.total_allocated_bytes() - before < 4 << 20
    assert null_column(0, type_).type == type_
