"""A remote graph has everything that a graph has, or says that a server does not offer it."""

from __future__ import annotations

import inspect

import pytest

import omnigraph
from omnigraph import AsyncRemoteGraph, Graph, GraphSnapshot, RemoteGraph, RemoteSnapshot
from omnigraph.client.server import Connection
from omnigraph.errors import InputError, NotServed
from omnigraph.remote import unserved

PAIRS = [
    (Graph, RemoteGraph, unserved.GRAPH),
    (GraphSnapshot, RemoteSnapshot, unserved.SNAPSHOT),
    (omnigraph.GraphBranches, omnigraph.RemoteBranches, {}),
    (omnigraph.GraphStoredQueries, omnigraph.RemoteQueries, {}),
    (omnigraph.GraphSchema, omnigraph.RemoteSchema, {}),
    (omnigraph.GraphBlobs, omnigraph.RemoteBlobs, {}),
    (omnigraph.GraphTags, omnigraph.RemoteTags, {}),
    (omnigraph.GraphChanges, omnigraph.RemoteChanges, {}),
    (omnigraph.GraphIndexes, omnigraph.RemoteIndexes, {}),
    (omnigraph.GraphEmbeddings, omnigraph.RemoteEmbeddings, {}),
    (omnigraph.GraphMaintenance, omnigraph.RemoteMaintenance, {}),
]
HERE_ONLY = {"max_memory"}
"""Arguments that only mean something in the process of the graph."""


def members(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


def instance_members(graph) -> set[str]:
    return {name for name in dir(graph) if not name.startswith("_")}


@pytest.fixture
def remote():
    return RemoteGraph(Connection("http://127.0.0.1:1/graphs/kb"))


@pytest.mark.parametrize(("local", "remote_class", "table"), PAIRS)
def test_every_member_is_served_or_in_the_table(local, remote_class, table):
    extra = {"recovered"} if local is Graph else set()
    missing = (members(local) | extra) - members(remote_class)
    assert missing == set(table)


@pytest.mark.parametrize(("local", "remote_class", "table"), PAIRS)
def test_a_method_takes_the_same_arguments(local, remote_class, table):
    for name in members(local) & members(remote_class):
        if not inspect.isfunction(getattr(local, name)):
            continue
        ours = inspect.signature(getattr(local, name)).parameters
        theirs = inspect.signature(getattr(remote_class, name)).parameters
        shared = [key for key in ours if key not in HERE_ONLY]
        assert list(theirs) == shared, name
        for key in shared:
            assert theirs[key].default == ours[key].default, (name, key)
            assert theirs[key].kind == ours[key].kind, (name, key)


LIKE = [
    (omnigraph.GraphLike, Graph, RemoteGraph),
    (omnigraph.SnapshotLike, GraphSnapshot, RemoteSnapshot),
    (omnigraph.BranchesLike, omnigraph.GraphBranches, omnigraph.RemoteBranches),
    (omnigraph.TagsLike, omnigraph.GraphTags, omnigraph.RemoteTags),
    (omnigraph.ChangesLike, omnigraph.GraphChanges, omnigraph.RemoteChanges),
    (omnigraph.SchemaLike, omnigraph.GraphSchema, omnigraph.RemoteSchema),
    (omnigraph.QueriesLike, omnigraph.GraphStoredQueries, omnigraph.RemoteQueries),
]


@pytest.mark.parametrize(("protocol", "local", "remote_class"), LIKE)
def test_what_both_kinds_have_in_common_is_what_the_protocol_says(protocol, local, remote_class):
    for name in members(protocol):
        if not inspect.isfunction(getattr(protocol, name)):
            continue
        promised = inspect.signature(getattr(protocol, name)).parameters
        for kind in (local, remote_class):
            offered = inspect.signature(getattr(kind, name)).parameters
            for key, parameter in promised.items():
                assert offered[key].default == parameter.default, (kind, name, key)


@pytest.mark.parametrize("namespace", ["branches", "tags", "changes", "queries", "schema"])
def test_every_namespace_of_both_kinds_is_in_the_protocol(namespace, remote):
    assert namespace in members(omnigraph.GraphLike)
    assert namespace in instance_members(remote)


def test_the_async_client_has_the_same_methods():
    pairs = [
        (RemoteGraph, AsyncRemoteGraph, {"calls"}),
        (RemoteSnapshot, omnigraph.AsyncRemoteSnapshot, {"catalog", "count", "group"}),
        (omnigraph.RemoteBranches, omnigraph.AsyncRemoteBranches, set()),
        (omnigraph.RemoteSchema, omnigraph.AsyncRemoteSchema, set()),
        (omnigraph.RemoteQueries, omnigraph.AsyncRemoteQueries, set()),
        (omnigraph.RemoteBlobs, omnigraph.AsyncRemoteBlobs, set()),
        (omnigraph.RemoteTags, omnigraph.AsyncRemoteTags, set()),
        (omnigraph.RemoteChanges, omnigraph.AsyncRemoteChanges, set()),
        (omnigraph.RemoteIndexes, omnigraph.AsyncRemoteIndexes, set()),
        (omnigraph.RemoteEmbeddings, omnigraph.AsyncRemoteEmbeddings, set()),
        (omnigraph.RemoteMaintenance, omnigraph.AsyncRemoteMaintenance, {"backup"}),
        (omnigraph.RemoteJobs, omnigraph.AsyncRemoteJobs, set()),
        (omnigraph.RemoteDeployments, omnigraph.AsyncRemoteDeployments, set()),
    ]
    for sync, twin, without in pairs:
        # What a constructor sets is not a member of the class.
        own = {"branch", "version", "commit_id"} if twin is omnigraph.AsyncRemoteSnapshot else set()
        assert members(sync) - members(twin) - own - {"actor"} <= without, twin


@pytest.mark.parametrize("name", unserved.GRAPH)
def test_what_is_not_served_says_so(remote, name):
    with pytest.raises(NotServed, match=f"graph.{name} is not available through a server"):
        getattr(remote, name)


def test_an_unknown_attribute_is_none_at_all(remote):
    with pytest.raises(AttributeError):
        _ = remote.no_such_thing


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda g: g.query(5), "source must be text or a path"),
        (lambda g: g.query("query q() {}", branch=5), "branch must be text"),
        (lambda g: g.mutate("query q() {}", idempotency_key=" "), "idempotency_key must have"),
        (lambda g: g.mutate("query q() {}", actor="ana"), "actor cannot be chosen"),
        (lambda g: g.mutate("query q() {}", allow_local_files=True), "no server reads local"),
        (lambda g: g.load([], "replace"), "mode"),
        (lambda g: g.load(5), "cannot load from int"),
        (lambda g: g.load("no-such-file.jsonl"), "no-such-file.jsonl"),
        (lambda g: g.commits(None), "branch must be text"),
        (lambda g: g.snapshot("side", commit="01A"), "branch cannot be combined"),
        (lambda g: g.snapshot(commit="01A", at="01B"), "pass only one"),
        (lambda g: g.branches.create(5), "name must be text"),
        (lambda g: g.snapshot(tag="v1", at="01B"), "pass only one"),
        (lambda g: g.merge("side", actor="ana"), "actor cannot be chosen"),
        (lambda g: g.merge("side", resolve="no-such-file"), "neither 'ours' nor 'theirs'"),
        (lambda g: g.revert("01A", resolve={"x": "mine"}), "the choice for 'x' is 'mine'"),
        (lambda g: g.changes.poll(limit=0), "at least one change"),
        (lambda g: g.changes.poll(kinds=["row"]), "invalid kind 'row'"),
        (lambda g: g.changes.follow(ops=["x"]), "invalid operation 'x'"),
        (lambda g: g.tags.create(5), "name must be text"),
        (lambda g: g.query("no-such-file.gq"), "cannot read 'no-such-file.gq'"),
    ],
)
def test_arguments_are_checked_before_anything_is_sent(remote, call, text):
    with pytest.raises(InputError, match=text):
        call(remote)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda g: g.query("query q() {}", engine="spark"), r"engine of query"),
        (lambda g: g.load([], rejects="r"), r"rejects of load"),
        (lambda g: g.snapshot(version=3), r"version of snapshot"),
    ],
)
def test_arguments_that_a_server_does_not_take_are_refused(remote, call, text):
    with pytest.raises(NotServed, match=text):
        call(remote)


def test_a_closed_graph_sends_nothing(remote):
    with remote:
        pass
    assert repr(remote) == "<RemoteGraph http://127.0.0.1:1/graphs/kb (closed)>"
    for call in (remote.commits, remote.branches.list, lambda: remote.query("query q() {}")):
        with pytest.raises(omnigraph.errors.Closed):
            call()


def test_the_token_is_in_no_representation():
    graph = omnigraph.connect("https://h.example/", graph="k/b", token="s3cret")
    assert repr(graph) == "<RemoteGraph https://h.example/graphs/k%2Fb>"
    assert "s3cret" not in repr(graph.calls.connection)
