"""A graph that is open without local files reads and writes none that its arguments name."""

from __future__ import annotations

import builtins
import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph import EmbeddingConfig, Graph
from omnigraph.errors import InputError, OmniGraphError, QueryError, SchemaError

SCHEMA = """
node Doc { slug: String @key  text: String?  file: Blob?  v: Vector(8)? @embed("text") }
edge Cites: Doc -> Doc
"""
SECRET = "query stolen() { match { $d: Doc } return { $d.slug } }"
ADD = "query add($file: Blob?) { insert Doc { slug: 'new', file: $file } }".replace("'", '"')


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of this machine that no argument may name."""
    file = tmp_path / "secret.gq"
    file.write_text(SECRET)
    return file


@pytest.fixture
def graph(tmp_path: Path):
    config = EmbeddingConfig("mock")
    uri = tmp_path / "g.omni"
    with Graph.init(uri, SCHEMA, durability="os", embedding=config, local_files=False) as graph:
        graph.load([{"type": "Doc", "data": {"slug": "a", "text": "hello"}}])
        yield graph


@pytest.fixture
def opened(secret: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The secret file, once for each time that this process opens it."""
    names: list[str] = []

    def noticing(function: Callable[..., object]) -> Callable[..., object]:
        def call(path: object, *arguments: object, **options: object) -> object:
            if not isinstance(path, int) and os.fspath(path) == str(secret):  # type: ignore[arg-type]
                names.append(str(secret))
            return function(path, *arguments, **options)

        return call

    monkeypatch.setattr(builtins, "open", noticing(open))
    monkeypatch.setattr(io, "open", noticing(io.open))
    monkeypatch.setattr(os, "open", noticing(os.open))
    return names


READERS: dict[str, Callable[[Graph, str], object]] = {
    "query": lambda g, path: g.query(path),
    "query of a snapshot": lambda g, path: g.snapshot().query(path),
    "query by a path": lambda g, path: g.query(Path(path)),
    "explain": lambda g, path: g.snapshot().explain(path),
    "prepare": lambda g, path: g.prepare(path),
    "prepare_mutation": lambda g, path: g.prepare_mutation(path),
    "mutate": lambda g, path: g.mutate(path),
    "schema.plan": lambda g, path: g.schema.plan(path),
    "schema.plan by a path": lambda g, path: g.schema.plan(Path(path)),
    "schema.apply": lambda g, path: g.schema.apply(path),
    "schema.apply with a value": lambda g, path: g.schema.apply(
        SCHEMA.replace("file: Blob?", "file: Blob"), values={"Doc.file": f"file://{path}"}
    ),
    "load": lambda g, path: g.load(path),
    "load by a path": lambda g, path: g.load(Path(path)),
    "load of several": lambda g, path: g.load([path, path]),
    "load of a generator": lambda g, path: g.load(iter([path])),
    "load of a directory": lambda g, path: g.load(os.path.dirname(path)),
    "load of a pattern": lambda g, path: g.load(path.replace("secret", "*")),
    "load of a Blob": lambda g, path: g.load(
        [{"type": "Doc", "data": {"slug": "b", "file": f"file://{path}"}}]
    ),
    "load of a stream": lambda g, path: g.load(
        io.BytesIO(f'{{"type":"Doc","data":{{"slug":"b","file":"file://{path}"}}}}'.encode())
    ),
    "load of allowed files": lambda g, path: g.load(
        [{"type": "Doc", "data": {"slug": "b", "file": f"file://{path}"}}], allow_local_files=True
    ),
    "mutate with a Blob": lambda g, path: g.mutate(ADD, params={"file": f"file://{path}"}),
    "mutate with allowed files": lambda g, path: g.mutate(
        ADD, params={"file": f"file://{path}"}, allow_local_files=True
    ),
    "a prepared mutation": lambda g, path: g.prepare_mutation(ADD)(
        {"file": f"file://{path}"}, allow_local_files=True
    ),
    "merge": lambda g, path: g.merge("review", resolve=path),
    "merge by a path": lambda g, path: g.merge("review", resolve=Path(path)),
    "revert": lambda g, path: g.revert(g.commits()[0].commit_id, resolve=path),
    "cherry_pick": lambda g, path: g.cherry_pick(g.commits()[0].commit_id, resolve=path),
}


@pytest.mark.parametrize("way", READERS)
def test_no_argument_reads_a_file(graph, secret, opened, way):
    graph.branches.create("review")
    before = graph.snapshot().commit_id
    if way == "schema.apply" or way.startswith("schema.apply "):
        graph.branches.delete("review")
    with pytest.raises(OmniGraphError) as caught:
        READERS[way](graph, str(secret))
    assert opened == []
    shown = f"{caught.value} {caught.value.hint} {caught.value.details}"
    assert "stolen" not in shown
    assert graph.snapshot().commit_id == before


@pytest.mark.parametrize("read", [Graph.query, Graph.mutate], ids=["query", "mutate"])
def test_a_string_is_parsed_as_it_is(graph, secret, read):
    with pytest.raises(QueryError) as caught:
        read(graph, str(secret))
    assert "<query>:1:1" in str(caught.value)


def test_a_schema_is_parsed_as_it_is(graph, secret):
    with pytest.raises(SchemaError):
        graph.schema.plan(str(secret))
    with pytest.raises(SchemaError):
        Graph.init(graph.uri + "-other", str(secret), local_files=False)


WRITERS: dict[str, Callable[[Graph, Path], object]] = {
    "rejects": lambda g, path: g.load([{"type": "Doc", "data": {"slug": "b"}}], rejects=path),
    "export": lambda g, path: g.snapshot().export(path),
    "export of Parquet": lambda g, path: g.snapshot().export(path, "parquet"),
    "baseline": lambda g, path: g.changes.baseline(dest=path),
    "resume": lambda g, path: g.embeddings.fill(resume=path),
}


@pytest.mark.parametrize("way", WRITERS)
def test_no_argument_writes_a_file(graph, tmp_path, way):
    dest = tmp_path / "written"
    with pytest.raises(InputError, match="without local files"):
        WRITERS[way](graph, dest)
    assert not dest.exists()


def test_data_itself_is_taken(graph):
    graph.load(io.BytesIO(b'{"type":"Doc","data":{"slug":"b","file":"base64:aGk="}}'))
    graph.mutate(ADD, params={"file": b"hi"})
    graph.branches.create("review")
    graph.merge("review", resolve="ours")
    graph.merge("review", resolve={})
    assert graph.snapshot().count("Doc") == 3
    assert len(list(graph.snapshot().export())) == 3
    assert graph.embeddings.fill().filled == 1


def test_a_graph_reads_files_by_default(tmp_path, secret):
    with Graph.init(tmp_path / "open.omni", SCHEMA, durability="os") as graph:
        assert graph.query(secret).rows() == []
        assert graph.query(str(secret)).rows() == []
