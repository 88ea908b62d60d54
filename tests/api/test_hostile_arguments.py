"""Whatever is passed to a public function or method, an error is one of OmniGraph."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from enum import Enum
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import omnigraph
from omnigraph import EmbeddingConfig, Graph, InputError, InternalError, OmniGraphError, Policy
from omnigraph.commit.metadata import receipt_of
from omnigraph.errors import StorageCorrupt
from omnigraph.lang.types import PropType, Scalar
from tests.server.serving import serving

pytestmark = pytest.mark.rotates(6)

SCHEMA = """
node Person {
  name: String @key
  age: I32?
  photo: Blob?
  about: String?
  vector: Vector(4)? @embed("about")
}
edge Knows: Person -> Person
"""
READ = "query q() { match { $p: Person } return { $p.name } }"
WRITE = 'query q() { insert Person { name: "x" } }'

HOSTILE: dict[str, Any] = {
    "None": None,
    "a number": 5,
    "a negative number": -1,
    "a huge number": 2**80,
    "not a number": float("nan"),
    "a word": "zz",
    "no text": "",
    "a NUL": "a\0b",
    "a lone surrogate": "\ud800",
    "a long text": "x" * 100_000,
    "bytes": b"",
    "a dict": {},
    "a dict of numbers": {5: 5},
    "a list": [],
    "a list of numbers": [5],
    "a list of words": ["zz"],
    "an object": object(),
}

OF_THE_ENGINE = {
    "Commit.of",
    "Receipt.of_commit",
    "LoadReceipt.of_commit",
    "TableCounts.of",
    "Holder.of",
    "Reclaimed.plus",
    "ReadPlan.meaning",
    "ReadPlan.map_exprs",
    "MutationPlan.map_exprs",
    "Source.byte_span",
    "Source.line",
    "Source.position",
}
"""What the engine builds its objects with: it takes other objects and positions of the engine."""
MADE_BY_USERS = {"EmbeddingConfig", "RateLimit", "Batching", "MaintenancePolicy", "Source"}
"""Classes whose objects users make and pass in."""


def public_callables() -> Iterator[tuple[str, Any]]:
    """Every public function and method that has parameters."""
    for name in omnigraph.__all__:
        value = getattr(omnigraph, name)
        if inspect.isfunction(value) or name in MADE_BY_USERS:
            yield name, value
        # The methods of a Lance dataset are those of Lance; protocols such as GraphLike have none.
        is_foreign = name == "ReadOnlyDataset" or name.endswith("Like")
        if not inspect.isclass(value) or issubclass(value, Enum) or is_foreign:
            continue
        for method, raw in inspect.getmembers_static(value):
            function = getattr(raw, "__func__", raw)
            is_ours = str(getattr(function, "__module__", "")).startswith("omnigraph")
            is_public = is_ours and inspect.isfunction(function) and not method.startswith("_")
            label = f"{name}.{method}"
            if is_public and _parameters(function) and label not in OF_THE_ENGINE:
                yield label, function


def _parameters(function: Any) -> list[str]:
    names = inspect.signature(function).parameters
    return [name for name in names if name not in ("self", "cls") and not name.startswith("_")]


CALLABLES = dict(public_callables())


@pytest.fixture
def graph(tmp_path):
    config = EmbeddingConfig("mock")
    graph = Graph.init(tmp_path / "g.omni", SCHEMA, durability="os", embedding=config)
    graph.append({"Person": pa.table({"name": ["ann"], "about": ["a person"]})})
    return graph


@pytest.fixture(scope="module")
def backup(tmp_path_factory):
    folder = tmp_path_factory.mktemp("backup")
    Graph.init(folder / "g.omni", SCHEMA, durability="os").maintenance.backup(folder / "copies")
    return folder / "copies"


@pytest.fixture
def loop():
    with asyncio.Runner() as loop:
        yield loop


@pytest.fixture
def remote(graph, request, loop):
    """The graph behind a server, for the methods of the client."""
    label = request.node.callspec.params["label"]
    if "Remote" not in label:
        yield None
        return
    with serving({"g": graph}, queries={"q": READ}) as server:
        address = f"http://127.0.0.1:{server.port}"
        if label.startswith("Async"):
            connected = loop.run(omnigraph.connect_async(address, graph="g"))
            yield connected
            loop.run(connected.close())
        else:
            with omnigraph.connect(address, graph="g") as connected:
                yield connected


def _owner(graph: Graph, remote: Any, loop: asyncio.Runner, name: str) -> Any:
    """An object of a public class, or the class where its functions need none."""
    makers = {
        "RemoteGraph": lambda: remote,
        "RemoteSnapshot": lambda: remote.snapshot(),
        "RemoteBranches": lambda: remote.branches,
        "RemoteSchema": lambda: remote.schema,
        "RemoteQueries": lambda: remote.queries,
        "RemoteTags": lambda: remote.tags,
        "RemoteChanges": lambda: remote.changes,
        "RemoteBlobs": lambda: remote.blobs,
        "RemoteIndexes": lambda: remote.indexes,
        "RemoteEmbeddings": lambda: remote.embeddings,
        "RemoteMaintenance": lambda: remote.maintenance,
        "RemoteJobs": lambda: remote.jobs,
        "RemoteDeployments": lambda: remote.deployments,
        "AsyncRemoteGraph": lambda: remote,
        "AsyncRemoteSnapshot": lambda: loop.run(remote.snapshot()),
        "AsyncRemoteBranches": lambda: remote.branches,
        "AsyncRemoteSchema": lambda: remote.schema,
        "AsyncRemoteQueries": lambda: remote.queries,
        "AsyncRemoteTags": lambda: remote.tags,
        "AsyncRemoteChanges": lambda: remote.changes,
        "AsyncRemoteBlobs": lambda: remote.blobs,
        "AsyncRemoteIndexes": lambda: remote.indexes,
        "AsyncRemoteEmbeddings": lambda: remote.embeddings,
        "AsyncRemoteMaintenance": lambda: remote.maintenance,
        "AsyncRemoteJobs": lambda: remote.jobs,
        "AsyncRemoteDeployments": lambda: remote.deployments,
        "Graph": lambda: graph,
        "GraphSnapshot": graph.snapshot,
        "GraphBranches": lambda: graph.branches,
        "GraphTags": lambda: graph.tags,
        "GraphChanges": lambda: graph.changes,
        "GraphSchema": lambda: graph.schema,
        "GraphStoredQueries": lambda: graph.queries,
        "GraphBlobs": lambda: graph.blobs,
        "GraphIndexes": lambda: graph.indexes,
        "GraphEmbeddings": lambda: graph.embeddings,
        "GraphMaintenance": lambda: graph.maintenance,
        "Policy": lambda: Policy.parse("{version: 1}"),
        "WriteGate": lambda: Policy.parse("{version: 1}"),
        "Result": lambda: graph.query(READ),
        "Catalog": lambda: graph.catalog,
        "Property": lambda: graph.catalog.node_types["Person"].properties["name"],
        "PropType": lambda: PropType(Scalar.I32),
        "Conflicts": lambda: omnigraph.Conflicts(()),
        "RateLimit": lambda: omnigraph.RateLimit(60),
        "Source": lambda: omnigraph.Source("a.gq", READ),
        "OptimizeReport": graph.maintenance.optimize,
        "CleanupReport": lambda: graph.maintenance.cleanup(9),
        "DoctorReport": graph.maintenance.doctor,
    }
    return makers[name]() if name in makers else getattr(omnigraph, name)


def _valid(graph: Graph, folder: Path, backup: Path) -> dict[str, Any]:
    """A value for each parameter that must be given, by callable and name, or by name alone."""
    commit = graph.commits()[0].commit_id
    return {
        "uri": folder / "new.omni",
        "clone.uri": graph.uri,
        "verify_graph.uri": graph.uri,
        "Graph.open.uri": graph.uri,
        "schema": SCHEMA,
        "source": READ,
        "Graph.mutate.source": WRITE,
        "RemoteGraph.mutate.source": WRITE,
        "AsyncRemoteGraph.mutate.source": WRITE,
        "RemoteGraph.merge.source": "main",
        "AsyncRemoteGraph.merge.source": "main",
        "url": "http://127.0.0.1:1",
        "graph": "g",
        "Graph.merge.source": "main",
        "Conflicts.error.source": "main",
        "target": "main",
        "actor": "ana",
        "Policy.decide.action": "change",
        "Policy.check.action": "change",
        "WriteGate.check.action": "change",
        "compile_schema.source": SCHEMA,
        "catalog": graph.catalog,
        "commit": commit,
        "commit_id": commit,
        "cursor": None,
        "type_name": "Person",
        "entity_id": "ann",
        "property_name": "photo",
        "other": graph.snapshot(),
        "rows": {},
        "data": [],
        "backup": backup,
        "dest": folder / "copy",
        "path": folder / "file",
        "what": "Person",
        "value": {},
        "options": {},
        "table_key": "node:Person",
        "name": "name",
        "GraphTags.create.name": "t",
        "GraphTags.delete.name": "t",
        "GraphBranches.create.name": "b",
        "GraphBranches.delete.name": "b",
        "Source.name": "a.gq",
        "text": READ,
        "word": "Knows",
        "number": 1,
        "offset": 0,
        "by": 2,
    }


async def _awaited(answer: Any) -> Any:
    return await answer


async def _first(answer: AsyncIterator[Any]) -> None:
    async with aclosing(answer) as rows:  # type: ignore[type-var]
        async for _ in rows:
            return


@pytest.mark.parametrize("label", CALLABLES)
def test_every_failure_is_typed(graph, remote, loop, backup, tmp_path, monkeypatch, label):
    monkeypatch.chdir(tmp_path)
    owner, _, method = label.partition(".")
    if method:
        function = getattr(_owner(graph, remote, loop, owner), method)
    else:
        function = getattr(omnigraph, owner)
    valid = _valid(graph, tmp_path, backup)
    given = {
        name: valid.get(f"{label}.{name}", valid.get(name))
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is inspect.Parameter.empty
    }
    untyped = []
    for name in _parameters(function):
        for kind, value in HOSTILE.items():
            try:
                answer = function(**{**given, name: value})
                if inspect.isawaitable(answer):
                    answer = loop.run(_awaited(answer))
                if method == "follow":
                    # It waits for commits, which nobody makes here.
                    continue
                if isinstance(answer, Iterator):
                    list(islice(answer, 5))
                if isinstance(answer, omnigraph.Result):
                    answer.close()
                if isinstance(answer, AsyncIterator):
                    loop.run(_first(answer))
            except Exception as error:
                if not isinstance(error, OmniGraphError) or isinstance(error, InternalError):
                    untyped.append(f"{name}={kind}: {type(error).__name__}: {str(error)[:90]}")
    assert not untyped, f"{label}:\n" + "\n".join(untyped)


REFUSED = {
    "write_ipc(None)": lambda: omnigraph.Result([], [], query_name="q", target={}).write_ipc(None),
    "to_json('zz')": lambda: omnigraph.Result([], [], query_name="q", target={}).to_json("zz"),
    "compile_schema(5)": lambda: omnigraph.compile_schema(5),
    "compile_schema(Source(5, 5))": lambda: omnigraph.compile_schema(omnigraph.Source(5, 5)),
    "compile_query(5, …)": lambda: omnigraph.compile_query(5, READ),
    "compile_query(…, 5)": lambda: omnigraph.compile_query(omnigraph.compile_schema(SCHEMA), 5),
    "expect='zz'": lambda: omnigraph.compile_query(
        omnigraph.compile_schema(SCHEMA), READ, expect="zz"
    ),
    "EmbeddingConfig(5)": lambda: EmbeddingConfig(5),
    "EmbeddingConfig(timeout_ms=0)": lambda: EmbeddingConfig(timeout_ms=0),
    "EmbeddingConfig.from_options(5)": lambda: EmbeddingConfig.from_options(5),
    "Receipt.from_json({})": lambda: omnigraph.Receipt.from_json({}),
    "LoadReceipt.from_json({})": lambda: omnigraph.LoadReceipt.from_json({}),
    "SchemaEvent.from_json({})": lambda: omnigraph.SchemaEvent.from_json({}),
    "PropType.from_json({})": lambda: PropType.from_json({}),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_a_wrong_argument_is_refused(call):
    with pytest.raises(InputError):
        call()


def test_an_expectation_may_be_a_word():
    catalog = omnigraph.compile_schema(SCHEMA)
    assert omnigraph.compile_query(catalog, READ, expect="read").name == "q"
    with pytest.raises(InputError, match="cannot be typechecked"):
        omnigraph.compile_query(catalog, WRITE, expect="read")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda graph: graph.snapshot().read("Person", filter=5), "an Expression"),
        (lambda graph: Graph.open("x", embedding=5), "an EmbeddingConfig"),
        (lambda graph: graph.query(READ, cancel=5), "a Cancel"),
        (lambda graph: graph.snapshot().export(types=[5]), "a list of names, not of int"),
    ],
)
def test_the_wanted_type_has_its_article(graph, call, text):
    with pytest.raises(InputError, match=text):
        call(graph)


def test_a_receipt_in_a_commit_that_cannot_be_read_is_damage():
    row = SimpleNamespace(commit_id="01A", manifest_version=1, extra={"receipt": {"branch": 5}})
    with pytest.raises(StorageCorrupt, match="the receipt in commit 01A"):
        receipt_of(row)
