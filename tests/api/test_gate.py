"""Every public call that writes asks the policy first; everything else works without writing."""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import omnigraph
from omnigraph import EmbeddingConfig, Graph, Policy
from omnigraph.api.stored_queries import StoredQueries
from omnigraph.errors import InputError, OmniGraphError, PolicyDenied, SchemaChangeRefused
from tools.api_page import members

pytestmark = pytest.mark.rotates(3)

SCHEMA = """
node Doc { slug: String @key  text: String?  file: Blob?  v: Vector(8)? @embed("text") }
edge Cites: Doc -> Doc
"""
ADD = 'query add() { insert Doc { slug: "new" } }'
READ = "query q() { match { $d: Doc } return { $d.slug } }"
ROWS = [{"type": "Doc", "data": {"slug": "n"}}]


class Stored(NamedTuple):
    name: str
    text: str


QUERY = Stored("q", READ)
Request = tuple[str, str | None, str | None]


EVERYTHING = """
version: 1
groups: {all: [ana]}
rules:
  - id: everything
    allow:
      actors: {group: all}
      actions: [read, change, schema_apply, branch_create, branch_delete, branch_merge, admin]
"""


class Recorder:
    """A gate that notes what it is asked, and allows or refuses everything."""

    def __init__(self, *, allows: bool) -> None:
        self.allows = allows
        self.requests: list[tuple[str | None, str, str | None, str | None]] = []
        self.queries: list[str | None] = []

    def check(
        self,
        actor: str | None,
        action: str,
        branch: str | None = None,
        target: str | None = None,
        *,
        query: str | None = None,
    ) -> None:
        self.requests.append((actor, action, branch, target))
        self.queries.append(query)
        if not self.allows:
            raise PolicyDenied("policy denied")


def head(graph: Graph) -> str:
    return graph.commits()[0].commit_id


# What each writer asks for, in order; called on a graph with the branch `draft` and the tag `v1`.
WRITERS: dict[str, tuple[Callable[[Graph, Path], object], list[Request]]] = {
    "Graph.mutate": (lambda g, p: g.mutate(ADD, branch="draft"), [("change", "draft", None)]),
    "PreparedMutation.__call__": (
        lambda g, p: g.prepare_mutation(ADD)(branch="draft"),
        [("change", "draft", None)],
    ),
    "GraphStoredQueries.invoke_mutation": (
        lambda g, p: g.queries.invoke_mutation("add", branch="draft"),
        [("change", "draft", None)],
    ),
    "Graph.load": (lambda g, p: g.load(ROWS, branch="draft"), [("change", "draft", None)]),
    "Graph.load as a fork": (
        lambda g, p: g.load(ROWS, branch="forked", from_branch="main"),
        [("change", "forked", None), ("branch_create", "main", "forked")],
    ),
    "Graph.load from, of an existing branch": (
        lambda g, p: g.load(ROWS, branch="draft", from_branch="main"),
        [("change", "draft", None)],
    ),
    "Graph.load as a dry run": (
        lambda g, p: g.load(ROWS, dry_run=True),
        [("change", "main", None)],
    ),
    "Graph.append": (
        lambda g, p: g.append({"Doc": pa.table({"slug": ["x"]})}, branch="draft"),
        [("change", "draft", None)],
    ),
    "Graph.merge": (lambda g, p: g.merge("draft"), [("branch_merge", "draft", "main")]),
    "Graph.merge and delete": (
        lambda g, p: g.merge("draft", delete_branch=True),
        [("branch_merge", "draft", "main"), ("branch_delete", None, "draft")],
    ),
    "Graph.merge as a preview": (
        lambda g, p: g.merge("draft", into="main", dry_run=True),
        [("branch_merge", "draft", "main")],
    ),
    "Graph.revert": (lambda g, p: g.revert(head(g), branch="draft"), [("change", "draft", None)]),
    "Graph.cherry_pick": (
        lambda g, p: g.cherry_pick(head(g), branch="draft"),
        [("change", "draft", None)],
    ),
    "GraphBranches.create": (
        lambda g, p: g.branches.create("new", "main"),
        [("branch_create", "main", "new")],
    ),
    "GraphBranches.delete": (
        lambda g, p: g.branches.delete("draft"),
        [("branch_delete", None, "draft")],
    ),
    "GraphBlobs.put": (
        lambda g, p: g.blobs.put("Doc", "b", "file", b"x", branch="draft"),
        [("change", "draft", None)],
    ),
    "GraphBlobs.delete": (
        lambda g, p: g.blobs.delete("Doc", "b", "file", branch="draft"),
        [("change", "draft", None)],
    ),
    "GraphTags.create": (
        lambda g, p: g.tags.create("v2", branch="draft"),
        [("branch_create", "draft", "v2")],
    ),
    "GraphTags.create of a commit": (
        lambda g, p: g.tags.create("v3", head(g)),
        [("branch_create", None, "v3")],
    ),
    "GraphTags.delete": (lambda g, p: g.tags.delete("v1"), [("branch_create", None, "v1")]),
    "GraphSchema.apply": (
        lambda g, p: g.schema.apply(SCHEMA + "node City { name: String @key }"),
        [("schema_apply", None, "main")],
    ),
    "GraphSchema.apply as a dry run": (
        lambda g, p: g.schema.apply(SCHEMA, dry_run=True),
        [("read", None, None)],
    ),
    "GraphEmbeddings.fill": (
        lambda g, p: g.embeddings.fill(branch="draft", resume=p / "vectors"),
        [("change", "draft", None)],
    ),
    "GraphIndexes.ensure": (lambda g, p: g.indexes.ensure(), [("admin", "main", None)]),
    "GraphIndexes.rebuild": (lambda g, p: g.indexes.rebuild("Doc"), [("admin", "main", None)]),
    "GraphMaintenance.optimize": (
        lambda g, p: g.maintenance.optimize("main"),
        [("admin", "main", None)],
    ),
    "GraphMaintenance.repair": (lambda g, p: g.maintenance.repair(), [("admin", "main", None)]),
    "GraphMaintenance.cleanup": (
        lambda g, p: g.maintenance.cleanup(keep_versions=5),
        [("admin", None, None)],
    ),
    "GraphMaintenance.backup": (
        lambda g, p: g.maintenance.backup(p / "backup"),
        [("admin", None, None)],
    ),
}

# Calls that write nothing to the graph. They run on a graph that is open for reading.
READERS: dict[str, Callable[[Graph, Path], object]] = {
    "Graph.query": lambda g, p: g.query(READ).rows(),
    "Graph.pages": lambda g, p: list(g.pages(READ, page_size=1)),
    "Graph.prepare": lambda g, p: g.prepare(READ),
    "Graph.prepare_mutation": lambda g, p: g.prepare_mutation(ADD),
    "PreparedRead.__call__": lambda g, p: g.prepare(READ)().rows(),
    "GraphStoredQueries.list": lambda g, p: g.queries.list(),
    "GraphStoredQueries.get": lambda g, p: g.queries.get("q"),
    "GraphStoredQueries.check": lambda g, p: g.queries.check(),
    "GraphStoredQueries.invoke": lambda g, p: g.queries.invoke("q").rows(),
    "Graph.commits": lambda g, p: g.commits(),
    "Graph.commit": lambda g, p: g.commit(head(g)),
    "Graph.snapshot": lambda g, p: g.snapshot(),
    "Graph.refresh": lambda g, p: g.refresh(),
    "Graph.close": lambda g, p: g.close(),
    "GraphBranches.list": lambda g, p: g.branches.list(),
    "GraphTags.list": lambda g, p: g.tags.list(),
    "GraphSchema.text": lambda g, p: g.schema.text(),
    "GraphSchema.plan": lambda g, p: g.schema.plan(SCHEMA),
    "GraphChanges.poll": lambda g, p: g.changes.poll(),
    "GraphChanges.follow": lambda g, p: next(g.changes.follow()),
    "GraphChanges.of_commit": lambda g, p: g.changes.of_commit(head(g)),
    "GraphChanges.baseline": lambda g, p: g.changes.baseline(dest=p / "baseline.ndjson"),
    "GraphChanges.blame": lambda g, p: g.changes.blame("Doc", "a"),
    "GraphEmbeddings.status": lambda g, p: g.embeddings.status(),
    "GraphIndexes.status": lambda g, p: g.indexes.status(),
    "GraphMaintenance.doctor": lambda g, p: g.maintenance.doctor(),
    "GraphMaintenance.verify": lambda g, p: g.maintenance.verify(checksums=False),
    "GraphSnapshot.query": lambda g, p: g.snapshot().query(READ).rows(),
    "GraphSnapshot.explain": lambda g, p: g.snapshot().explain(READ),
    "GraphSnapshot.diff": lambda g, p: g.snapshot().diff(g.snapshot()),
    "GraphSnapshot.export": lambda g, p: g.snapshot().export(p / "export.ndjson"),
    "GraphSnapshot.count": lambda g, p: g.snapshot().count("Doc"),
    "GraphSnapshot.read": lambda g, p: g.snapshot().read("Doc"),
    "GraphSnapshot.scan": lambda g, p: list(g.snapshot().scan("Doc")),
    "GraphSnapshot.dataset": lambda g, p: g.snapshot().dataset("Doc"),
    "GraphSnapshot.entity": lambda g, p: g.snapshot().entity("Doc", "a"),
    "GraphSnapshot.neighbours": lambda g, p: g.snapshot().neighbours("Doc", "a"),
    "GraphSnapshot.blob_digest": lambda g, p: g.snapshot().blob_digest("Doc", "b", "file"),
    "GraphSnapshot.read_blob": lambda g, p: g.snapshot().read_blob("Doc", "b", "file"),
    "GraphSnapshot.blob_info": lambda g, p: g.snapshot().blob_info("Doc", "b", "file"),
}
# They make the handle, and are tested by themselves.
CONSTRUCTORS = {"Graph.init", "Graph.open", "Graph.for_actor"}
CLASSES = (
    "Graph",
    "GraphSnapshot",
    "GraphBranches",
    "GraphTags",
    "GraphChanges",
    "GraphSchema",
    "GraphStoredQueries",
    "GraphBlobs",
    "GraphIndexes",
    "GraphEmbeddings",
    "GraphMaintenance",
    "PreparedRead",
    "PreparedMutation",
)


def public_methods() -> set[str]:
    """Every public method of a graph, of its namespaces and of what it prepares."""
    return {
        f"{name}.{member}"
        for name in CLASSES
        for member, value in members(getattr(omnigraph, name)).items()
        if (not member.startswith("_") or member == "__call__")
        and (inspect.isfunction(value) or isinstance(value, classmethod | staticmethod))
    }


def method_of(case: str) -> str:
    return case.partition(" ")[0]


def namespaces() -> set[str]:
    """The classes of a graph and its parts; a protocol has no methods of its own."""
    return {
        name
        for name in omnigraph.__all__
        if name.startswith(("Graph", "Prepared"))
        and not getattr(getattr(omnigraph, name), "_is_protocol", False)
    }


def test_every_public_method_is_a_writer_or_a_reader():
    writers = set(map(method_of, WRITERS))
    assert writers & set(READERS) == set()
    assert writers | set(READERS) | CONSTRUCTORS == public_methods()
    assert namespaces() == set(CLASSES)


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = tmp_path_factory.mktemp("gate") / "g.omni"
    with Graph.init(uri, SCHEMA, durability="os") as graph:
        graph.load(
            [
                {"type": "Doc", "data": {"slug": "a", "text": "hello"}},
                {"type": "Doc", "data": {"slug": "b", "file": "base64:eA=="}},
            ]
        )
        graph.branches.create("draft")
        graph.tags.create("v1")
    return str(uri)


def files_of(uri: str) -> dict[str, str]:
    """The content of a graph, apart from what readers may derive from it."""
    return {
        str(path.relative_to(uri)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(Path(uri).rglob("*"))
        if path.is_file() and "__topology" not in path.parts
    }


@pytest.fixture(scope="module")
def content(uri: str) -> dict[str, str]:
    return files_of(uri)


def open_graph(uri: str, gate: Any, mode: Any = "rw", actor: str | None = "ana") -> Graph:
    config = EmbeddingConfig("mock")
    graph = Graph.open(uri, mode, policy=gate, actor=actor, embedding=config, durability="os")
    return Graph(graph._handle.with_queries(StoredQueries.read([Stored("add", ADD), QUERY])))


def test_a_writer_asks_first_and_a_refusal_leaves_the_graph_alone(uri, content, tmp_path):
    gate = Recorder(allows=False)
    with open_graph(uri, gate) as graph:
        for call, expected in WRITERS.values():
            gate.requests.clear()
            with pytest.raises(PolicyDenied):
                call(graph, tmp_path)
            assert gate.requests == [("ana", *expected[0])]
            assert os.listdir(tmp_path) == []
    assert files_of(uri) == content


def test_a_writer_without_an_actor_is_refused(uri, content, tmp_path):
    with open_graph(uri, Policy.parse(EVERYTHING), actor=None) as graph:
        for call, _ in WRITERS.values():
            with pytest.raises(PolicyDenied, match=r"^no actor for engine-layer policy check"):
                call(graph, tmp_path)
    assert files_of(uri) == content


def test_a_reader_asks_nobody_and_changes_nothing(uri, content, tmp_path):
    gate = Recorder(allows=False)
    graph = open_graph(uri, gate, "r")
    for name, call in READERS.items():
        if name != "Graph.close":
            call(graph, tmp_path)
    READERS["Graph.close"](graph, tmp_path)
    assert gate.requests == []
    assert files_of(uri) == content


@pytest.fixture
def copy(uri: str, tmp_path: Path) -> str:
    copied = str(tmp_path / "copy.omni")
    omnigraph.clone(uri, copied, durability="os")
    return copied


def test_an_allowed_writer_asks_for_exactly_what_it_does(copy, tmp_path):
    """One graph for all: the requests do not depend on what was written before."""
    asks = {}
    gate = Recorder(allows=True)
    with open_graph(copy, gate) as graph:
        for case, (call, _) in WRITERS.items():
            for name, make in (("draft", graph.branches), ("v1", graph.tags)):
                if name not in [getattr(item, "name", item) for item in make.list()]:
                    make.create(name)
            gate.requests.clear()
            # A schema apply meets the other branches after it was allowed.
            with suppress(SchemaChangeRefused):
                call(graph, tmp_path)
            asks[case] = [request[1:] for request in gate.requests]
            assert {request[0] for request in gate.requests} == {"ana"}
    assert asks == {case: expected for case, (_, expected) in WRITERS.items()}


def test_the_actor_of_a_call_goes_before_the_actor_of_the_handle(copy):
    gate = Recorder(allows=True)
    with open_graph(copy, gate) as graph:
        graph.branches.create("new", actor="bo")
        graph.mutate(ADD, branch="new", actor="bo")
        assert [request[0] for request in gate.requests] == ["bo", "bo"]
        assert graph.commits("new")[0].actor == "bo"


def test_init_asks_before_it_creates_anything(tmp_path):
    gate = Recorder(allows=False)
    with pytest.raises(PolicyDenied):
        Graph.init(tmp_path / "g.omni", SCHEMA, policy=gate, actor="ana")
    assert gate.requests == [("ana", "schema_apply", None, "main")]
    with pytest.raises(PolicyDenied, match="no actor for engine-layer policy check"):
        Graph.init(tmp_path / "g.omni", SCHEMA, policy=Policy.parse(EVERYTHING))
    assert os.listdir(tmp_path) == []


def test_something_that_is_not_a_gate_is_refused(uri):
    with pytest.raises(InputError, match="policy must be a WriteGate, not str"):
        Graph.open(uri, policy="policy.yaml")  # type: ignore[arg-type]


BUNDLE = """
version: 1
groups: {staff: [ana, bo], leads: [ana]}
protected_branches: [main, release/**]
rules:
  - id: draft
    allow: {actors: {group: staff}, actions: [change], branch_scope: unprotected}
  - id: fork
    allow: {actors: {group: staff}, actions: [branch_create], target_branch_scope: unprotected}
  - id: publish
    allow: {actors: {group: leads}, actions: [branch_merge], target_branch_scope: protected}
"""


@pytest.fixture
def guarded(copy: str) -> Iterator[Graph]:
    with open_graph(copy, Policy.parse(BUNDLE), actor=None) as graph:
        yield graph


def test_a_policy_guards_an_embedded_graph(guarded):
    guarded.mutate(ADD, branch="draft", actor="bo")
    with pytest.raises(PolicyDenied) as refusal:
        guarded.merge("draft", actor="bo")
    assert str(refusal.value) == (
        "policy denied action 'branch_merge' on branch 'draft' targeting branch 'main' "
        "for actor 'bo'"
    )
    assert refusal.value.details == {
        "actor": "bo",
        "action": "branch_merge",
        "branch": "draft",
        "target": "main",
    }
    assert guarded.merge("draft", actor="ana").commit_id is not None
    with pytest.raises(PolicyDenied, match="unknown actor 'eve'"):
        guarded.mutate(ADD, branch="draft", actor="eve")


def test_a_load_onto_a_new_branch_needs_both_permissions(guarded):
    with pytest.raises(PolicyDenied, match="'change' on branch 'release/1'"):
        guarded.load(ROWS, branch="release/1", from_branch="main", actor="bo")
    assert guarded.load(ROWS, branch="mine", from_branch="main", actor="bo").branch_created
    assert list(guarded.branches.list()) == ["main", "draft", "mine"]


@pytest.mark.parametrize("spelling", ["/main", "main/", "./main", "//main", "MAIN", " main"])
def test_another_spelling_is_not_a_way_to_a_protected_branch(guarded, spelling):
    before = guarded.commits()
    with pytest.raises(OmniGraphError):
        guarded.mutate(ADD, branch=spelling, actor="bo")
    with pytest.raises(OmniGraphError):
        guarded.load(ROWS, branch=spelling, actor="bo")
    assert guarded.commits() == before


@pytest.mark.parametrize("spelling", ["/release/1", "release//1", "release/./1", "release/1/"])
def test_another_spelling_is_not_a_way_to_a_branch_of_a_pattern(copy, spelling):
    with Graph.open(copy) as owner:
        owner.branches.create("release/1")
        before = owner.commits("release/1")
    with open_graph(copy, Policy.parse(BUNDLE), actor="bo") as graph:
        with pytest.raises(OmniGraphError):
            graph.mutate(ADD, branch=spelling)
        with pytest.raises(OmniGraphError):
            graph.append({"Doc": pa.table({"slug": ["x"]})}, branch=spelling)
        assert graph.commits("release/1") == before
