"""A wrong kind of argument is a typed error that names it, whatever is called."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from omnigraph import Graph, InputError

SCHEMA = "node Person { name: String @key  age: I32? }"
QUERY = "query add($n: String) { insert Person { name: $n } }"


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    graph = Graph.init(tmp_path_factory.mktemp("g") / "g.omni", SCHEMA, durability="os")
    graph.append({"Person": pa.table({"name": ["ann"]})})
    return graph


CALLS = {
    "open a number": lambda graph: Graph.open(5),
    "open bytes": lambda graph: Graph.open(b"x"),
    "open nothing": lambda graph: Graph.open(""),
    "schema none": lambda graph: Graph.init("x", None),
    "schema empty": lambda graph: Graph.init("x", ""),
    "options a number": lambda graph: Graph.open("x", storage_options=5),
    "branch a number": lambda graph: graph.snapshot(5),
    "branch bytes": lambda graph: graph.branches.create(b"x"),
    "branch from a number": lambda graph: graph.branches.create("x", 5),
    "branch with a NUL": lambda graph: graph.snapshot("a\0b"),
    "branch no Unicode": lambda graph: graph.branches.delete("\ud800"),
    "tag a list": lambda graph: graph.tags.create(["a"]),
    "tag a number": lambda graph: graph.tags.delete(5),
    "version as text": lambda graph: graph.snapshot(version="1"),
    "version a truth": lambda graph: graph.snapshot(version=True),
    "commit a number": lambda graph: graph.snapshot(commit=5),
    "commit bytes": lambda graph: graph.commit(b"x"),
    "query a number": lambda graph: graph.mutate(5),
    "query none": lambda graph: graph.mutate(None),
    "query name a number": lambda graph: graph.mutate(QUERY, 5),
    "actor a number": lambda graph: graph.mutate(QUERY, "add", {"n": "x"}, actor=5),
    "actor empty": lambda graph: graph.append({}, actor=""),
    "key a number": lambda graph: graph.mutate(QUERY, "add", {"n": "x"}, idempotency_key=5),
    "key a list": lambda graph: graph.mutate(QUERY, "add", {"n": "x"}, idempotency_key=["a"]),
    "key empty": lambda graph: graph.mutate(QUERY, "add", {"n": "x"}, idempotency_key=""),
    "rows a list": lambda graph: graph.append([]),
    "rows none": lambda graph: graph.append(None),
    "rows of a number": lambda graph: graph.append({5: pa.table({"name": ["x"]})}),
    "rejects a number": lambda graph: graph.load([], rejects=5),
    "max_rejects as text": lambda graph: graph.load([], max_rejects="3"),
    "progress a number": lambda graph: graph.load([], on_progress=5),
    "types a number": lambda graph: graph.snapshot().export(types=5),
    "types of files a list": lambda graph: graph.load([], types=["Person"]),
    "types of files a number": lambda graph: graph.load([], types=5),
    "schema blank": lambda graph: Graph.init("x", " \n"),
    "destination a number": lambda graph: graph.snapshot().export(5),
    "type a number": lambda graph: graph.snapshot().count(5),
    "columns as text": lambda graph: graph.snapshot().read("Person", "name"),
    "unknown column": lambda graph: graph.snapshot().read("Person", ["nope"]),
    "unknown column in a condition": lambda graph: graph.snapshot().read(
        "Person", filter=pc.field("nope") == 1
    ),
    "condition as text": lambda graph: graph.snapshot().read("Person", filter="age > 3"),
    "condition of another type": lambda graph: list(
        graph.snapshot().scan("Person", filter=pc.field("age") == "x")
    ),
    "offset as text": lambda graph: graph.snapshot().read_blob("Person", "ann", "name", "1"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_wrong_kind_of_argument_is_named(graph, call):
    before = graph.snapshot().version
    with pytest.raises(InputError) as caught:
        call(graph)
    assert ".py" not in caught.value.message
    assert graph.snapshot().version == before


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda graph: graph.load([], types=5), "a dict of types by file name, not int"),
        (lambda graph: graph.snapshot().export(types=5), "types must be a list of names, not int"),
        (lambda graph: graph.query(5), "source must be text or a path, not int"),
        (lambda graph: Graph.init("x", 5), "schema must be text or a path, not int"),
        (lambda graph: Graph.open(5), "uri must be a path, not int"),
    ],
)
def test_what_is_wanted_is_said(graph, call, text):
    with pytest.raises(InputError, match=text):
        call(graph)


@pytest.mark.parametrize("source", ["", "  ", "// a comment", "/* one */", "// a\n"])
def test_a_text_without_a_query_is_not_taken_for_a_file(graph, source):
    for call in (graph.query, graph.mutate, graph.snapshot().explain):
        with pytest.raises(InputError, match="the text contains no query"):
            call(source)


def test_none_is_fine_where_it_is_the_default(graph):
    assert graph.snapshot(commit=None, tag=None, version=None).count("Person") == 1
    assert graph.snapshot().read("Person", None, None).num_rows == 1


def test_an_idempotency_key_stands_for_one_write_on_one_branch(graph):
    first = graph.mutate(QUERY, "add", {"n": "bo"}, idempotency_key="k")
    assert graph.mutate(QUERY, "add", {"n": "bo"}, idempotency_key="k") == first
    with pytest.raises(InputError, match="was used for another write"):
        graph.mutate(QUERY, "add", {"n": "cy"}, idempotency_key="k")
    graph.branches.create("other")
    there = graph.mutate(QUERY, "add", {"n": "cy"}, branch="other", idempotency_key="k")
    assert (there.branch, graph.snapshot("other").count("Person")) == ("other", 3)
