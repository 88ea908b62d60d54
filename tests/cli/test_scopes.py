"""Which flags go with which command, what a command addresses, and what is refused before it."""

from __future__ import annotations

import argparse
import io
import json
import re
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.cli.flags import Capability, check_flags, fill_global_flags
from omnigraph.cli.operator_config import OperatorConfig
from omnigraph.cli.output import terminal
from omnigraph.cli.parser import build_parser
from omnigraph.cli.parser_tree import leaves
from omnigraph.cli.scopes import is_local
from omnigraph.cli.targets import GraphTarget, require_consent
from omnigraph.errors import InputError
from tests.cli.desk import Desk
from tests.cli.workspace import Workspace, assert_fails
from tests.client.stub import stub_server

SCHEMA = "node Person {\n  name: String @key\n}\n"
READ = "query all() { match { $p: Person } return { $p.name } }"
QUERY = ("query", "-e", READ)


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("scopes") / "g.omni"
    with Graph.init(path, SCHEMA) as made:
        made.load([{"type": "Person", "data": {"name": "Ana"}}], "append")
    return path


@pytest.fixture
def desk(tmp_path, monkeypatch, capsys):
    return Desk(tmp_path, monkeypatch, capsys)


def ledger(*graphs: str) -> str:
    resources = {"schema.kb": {"digest": "d"}, "query.kb.due": {"digest": "d"}}
    resources |= {f"graph.{name}": {"digest": "d"} for name in graphs}
    return json.dumps({"version": 1, "applied_revision": {"resources": resources}})


# -- the flag guard -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ("doctor", "g", "--server", "x"),
            "`doctor` is a direct (storage-native) command; --server addresses a served graph "
            "and does not apply. Pass a storage URI, or --cluster <dir> --graph <id>.",
        ),
        (
            ("lint", "g", "--query", "q", "--server", "x"),
            "`lint` is a direct (storage-native) command; --server addresses a served graph and "
            "does not apply. Pass a storage URI.",
        ),
        (
            ("init", "g", "--schema", "s", "--graph", "x"),
            "`init` is a direct (storage-native) command; --graph selects a graph within a server "
            "or cluster scope and does not apply. Pass a storage URI.",
        ),
        (
            ("query", "q", "--cluster", "x"),
            "`query` is a data command; --cluster addresses a cluster-scoped command and does not "
            "apply.",
        ),
        (
            ("branch", "list", "--cluster", "x"),
            "`branch` is a data command; --cluster addresses a cluster-scoped command and does "
            "not apply.",
        ),
        (
            ("schema", "show", "--cluster", "x"),
            "`schema show` is a data command; --cluster addresses a cluster-scoped command and "
            "does not apply.",
        ),
        (
            ("version", "--graph", "g"),
            "`version` is a local command; --graph selects a graph within a server or cluster "
            "scope and does not apply. It does not address a graph.",
        ),
        (
            ("profile", "list", "--server", "x"),
            "`profile` is a local command; --server addresses a served graph and does not apply. "
            "It does not address a graph.",
        ),
        (
            ("login", "lab", "--store", "x"),
            "`login` is a local command; --store addresses the storage of one graph and does not "
            "apply. It does not address a graph.",
        ),
        (("embed", "--profile", "p"), "`embed` is a local command; --profile"),
        (
            ("logout", "lab", "--as", "a"),
            "`logout` is a local command; --as names the actor of a write",
        ),
        (("init", "g", "--schema", "s", "--store", "x"), "`init` is a direct (storage-native)"),
        (("init", "g", "--schema", "s", "--profile", "x"), "`init` is a direct (storage-native)"),
        (("query", "q", "--as", "a"), "`query` is a data command; --as names the actor of a write"),
        (("optimize", "g", "--as", "a"), "`optimize` is a direct (storage-native) command; --as"),
    ],
)
def test_a_flag_without_a_use_is_refused_before_anything_else(desk, arguments, text):
    desk.config("defaults: [")
    desk.run(*arguments).fails(f"Error: {text}")
    flag = next(at for at, word in enumerate(arguments) if word.startswith("--") and at > 0)
    moved = [*arguments[flag : flag + 2], *arguments[:flag], *arguments[flag + 2 :]]
    if arguments[flag] in ("--server", "--cluster", "--graph"):
        desk.run(*moved).fails(f"Error: {text}")


def expected_flags(leaf: argparse.ArgumentParser) -> set[str]:
    """The global flags that a command takes, by what it works on."""
    capability = leaf.get_default("capability")
    name = leaf.prog.removeprefix("omnigraph ")
    if capability is Capability.LOCAL:
        return set()
    flags = set() if name == "init" else {"profile", "store"}
    if capability is Capability.ANY:
        flags |= {"server", "graph"}
        if leaf.get_default("writes"):
            flags.add("as")
    if leaf.get_default("through_server"):
        flags |= {"server", "graph"}
    if name in ("optimize", "repair", "cleanup", "lint"):
        flags |= {"cluster", "graph"}
    return flags


LEAVES = [
    leaf
    for leaf in leaves(build_parser())
    if leaf.get_default("capability") in (Capability.ANY, Capability.DIRECT, Capability.LOCAL)
]
EXISTING = re.compile(
    r"omnigraph (init|load|ingest|query|mutate|alias|snapshot|export|branch (create|list|delete|"
    r"merge)|commit (list|show)|schema \w+|lint|fmt|optimize|repair|cleanup|embed|profile \w+|"
    r"login|logout|version)"
)


@pytest.mark.parametrize(
    "leaf", [leaf for leaf in LEAVES if EXISTING.fullmatch(leaf.prog)], ids=lambda leaf: leaf.prog
)
def test_every_command_takes_the_flags_of_its_class(leaf):
    taken = set()
    for flag in ("server", "cluster", "graph", "store", "profile", "as"):
        given = argparse.Namespace(**{**leaf._defaults, flag: "x"})
        fill_global_flags(given)
        try:
            check_flags(given)
        except InputError:
            continue
        taken.add(flag)
    assert taken == expected_flags(leaf)


WRITING = {
    "load", "ingest", "mutate", "branch create", "branch delete", "branch merge", "schema apply",
}  # fmt: skip


def test_the_commands_that_write_record_who_did():
    existing = [leaf for leaf in LEAVES if EXISTING.fullmatch(leaf.prog)]
    writing = {
        leaf.prog.removeprefix("omnigraph ") for leaf in existing if leaf.get_default("writes")
    }
    assert writing == WRITING


# -- one scope ------------------------------------------------------------------------------------

STORE = ("--store", "g.omni")
SERVER = ("--server", "http://127.0.0.1:1")


@pytest.mark.parametrize(
    "arguments",
    [
        (*QUERY, *STORE, *SERVER),
        ("branch", "list", "--uri", "g.omni", *STORE),
        ("branch", "list", "--uri", "g.omni", *SERVER),
        ("snapshot", "g.omni", *STORE),
        ("snapshot", "g.omni", *SERVER),
        ("snapshot", "g.omni", *STORE, *SERVER),
        ("optimize", "g.omni", "--cluster", "c"),
        ("optimize", *STORE, "--cluster", "c"),
        ("lint", "g.omni", "--query", "q.gq", "--cluster", "c"),
    ],
)
def test_two_scopes_are_mutually_exclusive(desk, arguments):
    desk.run(*arguments).fails("mutually exclusive")
    assert list(desk.directory.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [(*QUERY, *STORE), ("snapshot", "g.omni"), ("optimize", "g.omni")]
)
def test_a_store_is_already_a_single_graph(desk, arguments):
    desk.run(*arguments, "--graph", "kb").fails("already a single graph")


@pytest.mark.parametrize("arguments", [QUERY, ("snapshot",), ("optimize",), ("branch", "list")])
def test_nothing_addressed_says_how_to(desk, arguments):
    done = desk.run(*arguments)
    done.fails("Error: no graph addressed", "--store", "--profile", "defaults.server")


def test_a_graph_in_place_of_a_name_is_addressed_by_the_hint(desk, graph):
    hint = f"hint: '{graph}' is taken for a name; pass the graph as --store {graph}"
    for command in (("query", str(graph), "-e", READ), ("branch", "delete", str(graph))):
        desk.run(*command).fails("Error: no graph addressed", hint)


def test_a_graph_after_the_arguments_is_refused_by_the_command_itself(desk, graph):
    done = desk.run("branch", "create", "review/x", str(graph))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("usage: omnigraph branch create")
    last = done.err.splitlines()[-1]
    assert last == (
        f"omnigraph branch create: error: unrecognized arguments: {graph}; "
        "pass the graph with --uri"
    )


def test_a_store_is_found_by_every_way(desk, graph):
    desk.config(
        f"profiles: {{ mine: {{ store: '{graph}' }} }}\ndefaults: {{ store: nowhere.omni }}\n"
    )
    want = desk.run(*QUERY, "--store", str(graph)).works()
    assert "Ana" in want
    assert desk.run(*QUERY, "--store", f"file://{graph}").works() == want
    assert desk.run(*QUERY, "--profile", "mine").works() == want
    assert desk.run("--profile", "mine", *QUERY).works() == want
    desk.run(*QUERY).fails("nowhere.omni")
    desk.environ(OMNIGRAPH_PROFILE="mine")
    assert desk.run(*QUERY).works() == want
    desk.run(*QUERY, "--store", "nowhere.omni").fails("nowhere.omni")
    desk.environ(OMNIGRAPH_PROFILE="  ")
    desk.config(f"defaults: {{ store: '{graph}' }}")
    assert desk.run(*QUERY).works() == want


CONFIG = """\
servers: { lab: { url: "http://127.0.0.1:1" }, two: { url: "http://h" } }
clusters: { c: { root: nowhere } }
profiles:
  served: { server: lab, default_graph: kb }
  lost: { server: gone, default_graph: kb }
  ops: { cluster: c }
  mine: { store: g.omni }
  graph: { store: g.omni, default_graph: kb }
  none: {}
  three: { server: lab, cluster: c, store: g.omni }
"""


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        ((*QUERY, "--profile", "nobody"), ["unknown profile 'nobody'"]),
        ((*QUERY, "--profile", "none"), ["profile 'none' binds no scope"]),
        ((*QUERY, "--profile", "three"), ["binds 3 scopes (server, cluster, store)"]),
        ((*QUERY, "--profile", "lost"), ["unknown server 'gone'", "lab, two"]),
        ((*QUERY, "--server", "gone"), ["unknown server 'gone'", "lab, two"]),
        ((*QUERY, "--server", "lab", "--graph", ""), ["invalid graph id ''"]),
        ((*QUERY, "--server", "lab", "--graph", ".."), ["invalid graph id '..'"]),
        ((*QUERY, "--server", "lab", "--graph", "\udcff"), ["cannot be reached"]),
        ((*QUERY, "--server", "s3://b/x"), ["invalid server address 's3://b/x'"]),
        ((*QUERY, "--profile", "ops"), ["not valid for graph data commands"]),
        ((*QUERY, "--profile", "graph"), ["does not apply to a store scope"]),
        ((*QUERY, "--profile", "mine", "--graph", "x"), ["does not apply to a store scope"]),
        (("optimize", "--profile", "graph"), ["does not apply to a store scope"]),
        (("doctor", "--profile", "served"), ["needs direct storage access"]),
        (("lint", "--query", "q", "--profile", "served"), ["needs direct storage access"]),
        (("schema", "plan", "--schema", "s", "--profile", "ops"), ["has no applied graphs"]),
        (("optimize", "--profile", "ops"), ["has no applied graphs; run cluster apply first"]),
        (
            (*QUERY, "--store", "http://h"),
            ["'http://h' is a server: it must be addressed with `--server <url>`"],
        ),
        (("snapshot", "HTTPS://h"), ["must be addressed with `--server <url>`"]),
        (
            ("optimize", "http://h"),
            ["direct (storage-native) command and needs direct storage access", "remote server"],
        ),
        (
            ("init", "http://h", "--schema", "s"),
            ["direct (storage-native) command and needs direct storage access", "remote server"],
        ),
        (
            ("optimize", "--store", "https://h"),
            ["direct (storage-native) command and needs direct storage access", "remote server"],
        ),
        (
            ("load", *SERVER, "--graph", "g", "--as", "me", "--data", "d", "--mode", "merge"),
            ["`--as` is not allowed on a served write"],
        ),
        (
            ("mutate", "q", "--profile", "served", "--as", "me"),
            ["`--as` is not allowed on a served write"],
        ),
    ],
)
def test_a_scope_that_a_command_cannot_use_is_refused(desk, arguments, texts):
    desk.config(CONFIG)
    desk.run(*arguments).fails(*texts)
    assert [path.name for path in desk.directory.iterdir()] == ["home"]


@pytest.mark.parametrize(
    ("defaults", "arguments", "text"),
    [
        ("{ server: lab, default_graph: kb }", ("doctor",), "needs direct storage access"),
        ("{ server: gone }", QUERY, "unknown server 'gone'"),
        ("{ store: g.omni }", (*QUERY, "--graph", "x"), "does not apply to a store scope"),
        ("{ store: 'http://h' }", QUERY, "must be addressed with `--server <url>`"),
        ("{ default_graph: kb }", QUERY, "no graph addressed"),
    ],
)
def test_defaults_that_a_command_cannot_use_are_refused(desk, defaults, arguments, text):
    desk.config(f"servers: {{ lab: {{ url: 'http://h' }} }}\ndefaults: {defaults}\n")
    desk.run(*arguments).fails(text)


# -- servers --------------------------------------------------------------------------------------


@pytest.fixture
def server():
    with stub_server() as stub:
        yield stub


@pytest.mark.parametrize("ids", [["kb"], ["a", "b c"]])
def test_a_server_without_a_graph_tells_its_graphs(desk, server, ids):
    server.responses["GET /graphs"] = {"graphs": [{"graph_id": i, "uri": "u"} for i in ids]}
    for arguments in (("query", "q"), ("mutate", "q"), ("branch", "list"), (*QUERY,)):
        desk.run(*arguments, "--server", f"{server.url}/").fails(
            ", ".join(ids), "pass --graph <id>"
        )
    assert server.requested == ["GET /graphs"] * 4


@pytest.mark.parametrize(
    "answer",
    [
        (403, {"error": "no"}),
        (404, b""),
        (405, b""),
        (500, b"x"),
        {"graphs": []},
        {"other": 1},
        [],
        {"graphs": [1]},
        (200, b"<html>"),
    ],
)
def test_a_server_that_does_not_tell_is_asked_as_it_is(desk, server, answer):
    server.responses["GET /graphs"] = answer
    server.responses["POST /queries/q"] = (404, {"error": "stored query not found"})
    desk.run("query", "q", "--server", server.url).fails("Error: stored query not found")
    assert server.requested == ["GET /graphs", "POST /queries/q"]


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (("--server", "{url}/", "--graph", "kb"), "/graphs/kb/queries/q"),
        (("--server", "{url}", "--graph", "a b"), "/graphs/a%20b/queries/q"),
        (("--server", "lab", "--graph", "other"), "/base/graphs/other/queries/q"),
        (("--profile", "p"), "/base/graphs/own/queries/q"),
        (("--profile", "p", "--graph", "other"), "/base/graphs/other/queries/q"),
        (("--profile", "plain"), "/base/queries/q"),
        ((), "/base/graphs/kb/queries/q"),
        (("--graph", "other"), "/base/graphs/other/queries/q"),
    ],
)
def test_the_graph_of_a_server_is_found(desk, server, arguments, path):
    """The graph of a profile never comes from the defaults."""
    desk.config(
        f"servers: {{ lab: {{ url: '{server.url}/base/' }} }}\n"
        "defaults: { server: lab, default_graph: kb }\n"
        "profiles: { p: { server: lab, default_graph: own }, plain: { server: lab } }\n"
    )
    desk.run("query", "q", *(word.format(url=server.url) for word in arguments))
    assert server.requests[-1].path == path


@pytest.mark.parametrize(
    ("arguments", "request_line"),
    [
        (QUERY, "POST /graphs/kb/query"),
        (("mutate", "-e", READ), "POST /graphs/kb/mutate"),
        (("load", "--data", "d", "--mode", "merge"), "POST /graphs/kb/load/ndjson?branch=main"),
        (("ingest", "--data", "d"), "POST /graphs/kb/load/ndjson?branch=main"),
        (("branch", "list"), "GET /graphs/kb/branches"),
        (("branch", "create", "x"), "POST /graphs/kb/branches"),
        (("branch", "delete", "x", "--yes"), "DELETE /graphs/kb/branches/x"),
        (("branch", "merge", "x"), "POST /graphs/kb/branches/merge"),
        (("commit", "list"), "GET /graphs/kb/commits?branch=main"),
        (("commit", "show", "01A"), "GET /graphs/kb/commits/01A"),
        (("snapshot",), "GET /graphs/kb/snapshot?branch=main"),
        (("export",), "GET /graphs/kb/snapshot?branch=main"),
        (("schema", "show"), "GET /graphs/kb/schema"),
        (("schema", "apply", "--schema", "d"), "POST /graphs/kb/schema/apply"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[:2]),
)
def test_every_verb_on_data_asks_the_server(desk, server, arguments, request_line):
    desk.write("d", '{"type": "P", "data": {}}')
    desk.run(*arguments, "--server", server.url, "--graph", "kb").fails("server returned 404")
    assert server.requested[0].startswith(request_line)


def test_a_destructive_write_through_a_server_needs_consent(desk, server):
    served = ("--server", server.url, "--graph", "kb")
    desk.write("d", '{"type": "P", "data": {}}')
    for command in (("branch", "delete", "x"), ("load", "--data", "d", "--mode", "overwrite")):
        desk.run(*command, *served).fails("refusing destructive", "--yes")
    assert server.requested == []


# -- clusters -------------------------------------------------------------------------------------


@pytest.fixture
def cluster(desk, graph):
    """A cluster with one graph that is really there."""
    desk.write("c/__cluster/state.json", ledger("kb"))
    (desk.directory / "c" / "graphs").mkdir()
    (desk.directory / "c" / "graphs" / "kb.omni").symlink_to(graph)
    return desk


@pytest.mark.parametrize("name", ["../../outside", "..", "a/../../b", "/abs", "~", "a\\b", ""])
def test_a_ledger_names_no_graph_outside_its_cluster(desk, graph, name):
    desk.write("c/__cluster/state.json", ledger(name))
    for arguments in (("--cluster", "c"), ("--cluster", "c", "--graph", name)):
        done = desk.run("optimize", *arguments, "--quiet")
        done.fails("c")
        assert "invalid graph id" in done.err


LINT = ("lint", "--query", "q.gq", "--json")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--cluster", "c"),
        ("--cluster", "c/", "--graph", "kb"),
        ("--cluster", "named"),
        ("--cluster", "elsewhere"),
        ("--profile", "ops"),
        ("--profile", "ops", "--graph", "kb"),
    ],
)
def test_a_graph_of_a_cluster_is_found_by_its_ledger(cluster, arguments):
    """By name, by directory, by the storage of a cluster.yaml, and by a profile."""
    cluster.config("clusters: { named: { root: c } }\nprofiles: { ops: { cluster: named } }\n")
    cluster.write("elsewhere/cluster.yaml", "storage: ../c\n")
    cluster.write("q.gq", READ)
    report = json.loads(cluster.run(*LINT, *arguments).works())
    assert report["schema_source"]["uri"].endswith("c/graphs/kb.omni")


@pytest.mark.parametrize(
    ("graphs", "arguments", "texts"),
    [
        ((), (), ["has no applied graphs; run cluster apply first"]),
        (("a", "b"), (), ["a, b", "pass --graph <id>"]),
        (("a", "b"), ("--graph", "x"), ["is not applied in cluster", "a, b", "cluster apply"]),
        ((), ("--graph", "x"), ["is not applied in cluster", "cluster apply"]),
        (("a",), ("--graph", "../a"), ["is not applied in cluster"]),
    ],
)
def test_a_graph_that_a_cluster_lacks_is_refused(desk, graphs, arguments, texts):
    desk.write("c/__cluster/state.json", ledger(*graphs))
    desk.run("optimize", "--cluster", "c", *arguments).fails(*texts)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"applied_revision": {"resources": 1}}', '{"x": [1]}',
             '{"applied_revision": {"resources": [1]}}']
)  # fmt: skip
def test_a_damaged_ledger_is_one_line(desk, text):
    desk.write("c/__cluster/state.json", text)
    desk.run("optimize", "--cluster", "c").fails("the ledger of cluster 'c' cannot be read")


def test_a_damaged_cluster_file_is_one_line(desk):
    desk.write("c/cluster.yaml", "storage: [")
    desk.run("optimize", "--cluster", "c").fails("could not read 'c/cluster.yaml'")


@pytest.mark.parametrize(
    "arguments",
    [
        ("init", "c/graphs/new.omni", "--schema", "s.pg"),
        ("init", "file://{here}/c/graphs/new.omni/", "--schema", "s.pg"),
        ("schema", "apply", "c/graphs/kb.omni", "--schema", "s.pg"),
        ("schema", "apply", "--store", "c/graphs/kb.omni", "--schema", "s.pg"),
    ],
)
def test_a_graph_inside_a_cluster_is_changed_by_the_cluster(cluster, arguments):
    cluster.write("s.pg", SCHEMA)
    done = cluster.run(*(word.format(here=cluster.directory) for word in arguments))
    done.fails("is inside cluster", "cluster apply")
    assert [path.name for path in (cluster.directory / "c" / "graphs").iterdir()] == ["kb.omni"]


def test_a_path_that_only_looks_like_a_cluster_is_free(desk):
    desk.write("s.pg", SCHEMA)
    uri = "plain/graphs/new.omni"
    assert desk.run("init", uri, "--schema", "s.pg").works() == f"initialized {uri}\n"


# -- locality and consent -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "local"),
    [
        ("g.omni", True),
        ("/data/g", True),
        ("file:///g", True),
        ("s3://b/g", False),
        ("gs://b/g", False),
        ("http://h", False),
    ],
)
def test_what_is_local(uri, local):
    assert is_local(uri) is local


@pytest.mark.parametrize(
    "arguments",
    [
        ("load", "--mode", "overwrite", "--data", "missing.jsonl", "--store", "s3://b/g"),
        ("branch", "delete", "x", "--uri", "s3://b/g"),
        ("branch", "delete", "x", "--uri", "s3://b/g", "--json"),
    ],
)
def test_destruction_elsewhere_needs_consent_before_anything_is_touched(desk, arguments):
    # An address where nobody answers: whoever asked it would fail in another way.
    desk.environ(AWS_ENDPOINT_URL="http://127.0.0.1:1", AWS_ALLOW_HTTP="1")
    desk.run(*arguments).fails("refusing destructive", "--yes")


@pytest.mark.parametrize(
    ("answer", "goes_on"),
    [("y", True), (" YES \n", True), ("n\n", False), ("", False), ("yess\n", False)],
)
def test_somebody_at_a_terminal_is_asked(monkeypatch, capsys, answer, goes_on):
    monkeypatch.setattr(terminal, "is_terminal", lambda stream: True)
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    target = GraphTarget("s3://b/g", OperatorConfig(), None)
    given = argparse.Namespace(yes=False, json=False)
    if goes_on:
        require_consent(given, target, "branch delete")
    else:
        with pytest.raises(InputError, match=r"^aborted"):
            require_consent(given, target, "branch delete")
    out, err = capsys.readouterr()
    assert (out, "s3://b/g" in err) == ("", True)


def test_nobody_is_asked_who_agreed_or_works_here(capsys):
    for yes, uri in ((True, "s3://b/g"), (False, "g.omni"), (False, "file:///g")):
        given = argparse.Namespace(yes=yes, json=True)
        require_consent(given, GraphTarget(uri, OperatorConfig(), None), "branch delete")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("branch", "create", "b1"), "omnigraph branch create → {uri} (direct, local)"),
        (("branch", "delete", "b1"), "omnigraph branch delete → {uri} (direct, local)"),
        (("branch", "create", "b2", "--quiet"), ""),
        (("--quiet", "branch", "delete", "b2"), ""),
    ],
)
def test_a_write_says_where_it_goes(desk, graph, arguments, line):
    uri = f"file://{graph}"
    with Graph.open(graph) as open_graph:
        wanted = {"main"} if "create" in arguments else {"main", "b1", "b2"}
        for name in {*open_graph.branches.list()} - wanted:
            open_graph.branches.delete(name)
        for name in wanted - {*open_graph.branches.list()}:
            open_graph.branches.create(name)
    done = desk.run(*arguments, "--uri", uri)
    assert done.code == 0
    assert done.err.strip() == line.format(uri=uri)


def test_who_writes_comes_from_the_flag_or_the_configuration(desk, graph):

    def actor(*flags: str) -> str | None:
        done = desk.run("branch", "create", "who", "--uri", str(graph), "--json", *flags)
        desk.run("branch", "delete", "who", "--uri", str(graph))
        return json.loads(done.works())["actor_id"]

    assert actor() is None
    desk.config("operator: { actor: ana }")
    assert actor() == "ana"
    assert actor("--as", "bo") == "bo"


# -- old spellings --------------------------------------------------------------------------------


def warning(old: str, new: str) -> str:
    return f"warning: `omnigraph {old}` is deprecated; use `omnigraph {new}` instead\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [("check", "lint"), ("query lint", "lint"), ("query check", "lint")],
)
def test_old_spellings_of_lint_work_with_a_warning(desk, old, new):
    desk.write("s.pg", SCHEMA)
    desk.write("q.gq", READ)
    files = ("--schema", "s.pg", "--query", "q.gq")
    done = desk.run(*old.split(), *files)
    assert done.err == warning(old, new)
    assert done.out == desk.run(new, *files).works()


def test_old_spellings_of_query_and_mutate_work_with_a_warning(desk, graph):
    done = desk.run("read", "-e", READ, "--store", str(graph))
    assert done.err == warning("read", "query")
    assert done.out == desk.run(*QUERY, "--store", str(graph)).works()
    change = 'query none() { delete Person where name = "nobody" }'
    done = desk.run("change", "-e", change, "--store", str(graph), "--quiet")
    assert done.works().startswith("changed main via none: 0 nodes, 0 edges")
    assert done.err == warning("change", "mutate")


def test_old_forms_of_export_load_and_schema_show(desk, graph):
    done = desk.run("export", str(graph), "--jsonl")
    assert done.out == desk.run("export", str(graph)).works()
    assert done.err == warning("export --jsonl", "export")
    desk.write("one.jsonl", '{"type":"Person","data":{"name":"Ana"}}\n')
    done = desk.run("ingest", str(graph), "--data", "one.jsonl", "--quiet")
    assert done.works().startswith(f"ingested {graph} into branch main from main with merge")
    assert done.err == warning("ingest", "load")
    done = desk.run("schema", "get", str(graph))
    assert (done.out, done.err) == (desk.run("schema", "show", str(graph)).works(), "")


@pytest.mark.parametrize("arguments", [("--quiet", "read", "-e", READ), ("--quiet", "check")])
def test_a_flag_in_front_defeats_the_old_spelling(desk, arguments):
    done = desk.run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert "deprecated" not in done.err


# -- as a process ---------------------------------------------------------------------------------


def test_guards_and_scopes_as_a_process(tmp_path, graph):
    location = Workspace(tmp_path)
    assert_fails(
        location.process("doctor", "--server", "x"),
        "`doctor` is a direct (storage-native) command; --server addresses a served graph",
    )
    done = location.process(*QUERY, "--store", str(graph), "--server", "x")
    assert_fails(done, "mutually exclusive")
    done = location.process(
        "load", "--mode", "overwrite", "--store", "s3://b/g", "--data", "x.jsonl"
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "refusing destructive" in done.stderr
    assert "--yes" in done.stderr
