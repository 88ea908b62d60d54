"""``omnigraph policy``: bundles of files and of clusters, with the texts that scripts rely on."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest

from omnigraph import Graph
from tests.cli.workspace import Workspace, assert_fails
from tests.cluster.ledgers import ClusterFiles

pytestmark = pytest.mark.rotates(2)

SCHEMA = """
node Person { name: String @key  tenant: String  level: I32? }
node City { name: String @key }
edge Knows: Person -> Person
edge LivesIn: Person -> City
"""
BUNDLE = """\
version: 2
groups:
  staff: [ana, bo]
  leads: [lea]
protected_branches: [main]
actors:
  ana: {tenants: [t1], level: 3}
  bo: {tenants: [t2]}
rules:
  - {id: read, allow: {actors: {group: staff}, actions: [read]}}
  - {id: top, allow: {actors: {group: staff}, actions: [invoke_query], queries: [top]}}
  - id: merge
    allow: {actors: {group: leads}, actions: [branch_merge], target_branch_scope: protected}
rows:
  - {id: own, actors: {group: staff}, types: [Person], where: tenant in $actor.tenants}
  - {id: low, actors: {group: staff}, types: [Person], where: level <= $actor.level}
  - {id: edges, actors: {group: staff}, types: [Knows]}
  - {id: all, actors: {group: leads}, types: ["*"]}
"""
VERSION_1 = """\
version: 1
groups: {staff: [ana, bo], leads: [ana]}
protected_branches: [main]
rules:
  - {id: staff-read, allow: {actors: {group: staff}, actions: [read]}}
"""
SERVER = """\
version: 1
kind: server
groups: {ops: [op]}
rules: [{id: list, allow: {actors: {group: ops}, actions: [graph_list]}}]
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory) -> Workspace:
    workspace = Workspace(tmp_path_factory.mktemp("policy"))
    workspace.write("p.yaml", BUNDLE)
    workspace.write("v1.yaml", VERSION_1)
    workspace.write("server.yaml", SERVER)
    workspace.write("s.pg", SCHEMA)
    rows = [
        {"type": "Person", "data": {"name": "a", "tenant": "t1", "level": 9}},
        {"type": "Person", "data": {"name": "b", "tenant": "t2", "level": 1}},
        {"type": "City", "data": {"name": "c"}},
        {"edge": "Knows", "from": "a", "to": "b"},
    ]
    cluster = ClusterFiles(workspace.directory / "cluster")
    cluster.graph("kb").graph("wiki").graph("free")
    cluster.policy("team", BUNDLE, ["graph.kb"])
    cluster.policy("old", VERSION_1, ["graph.wiki"])
    cluster.policy("ops", SERVER, ["cluster"])
    for uri in ("g.omni", "cluster/graphs/kb.omni"):
        with Graph.init(workspace.directory / uri, SCHEMA) as graph:
            graph.load(rows)
    return workspace


def run(workspace: Workspace, *arguments: str) -> str:
    done = workspace.run("policy", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- validate -------------------------------------------------------------------------------------


def test_a_valid_bundle_is_reported_with_its_actors(workspace):
    assert run(workspace, "validate", "p.yaml") == "policy valid: bundle 'p.yaml' [3 actors]\n"
    assert run(workspace, "validate", "server.yaml").endswith("[1 actors]\n")
    line = "policy valid: bundle 'team' [3 actors]\n"
    assert run(workspace, "validate", "--cluster", "cluster", "--graph", "kb") == line


def test_what_stays_closed_is_a_warning(workspace):
    for schema in (("--schema", "s.pg"), ("--store", "g.omni")):
        done = workspace.run("policy", "validate", "p.yaml", *schema)
        assert done.returncode == 0
        assert done.stderr.splitlines() == [
            "warning: policy 'p.yaml', line 16: row rule 'low' opens nothing for actor 'bo': "
            "the actor has no attribute 'level'"
        ]
    workspace.write("few.yaml", BUNDLE.replace("  - {id: all, actors: {group: leads}", "# "))
    done = workspace.run("policy", "validate", "few.yaml", "--schema", "s.pg")
    assert "no row rule opens type 'City'" in done.stderr
    assert "no row rule opens type 'LivesIn'" in done.stderr


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (
            "tenant in",
            "tenent in",
            "line 15: row rule 'own', Person: type `Person` has no property `tenent` "
            "(did you mean `tenant`?)",
        ),
        ("types: [Knows]", "types: [Know]", "row rule 'edges': unknown node or edge type `Know`"),
        ("level <=", "name <", "row rule 'low', Person: "),
        (
            'types: ["*"]}',
            'types: ["*"], where: no = 1}',
            "row rule 'all': no type fits its condition",
        ),
    ],
)
def test_rules_that_do_not_fit_the_schema_are_refused(workspace, old, new, text):
    bundle = BUNDLE.replace(old, new)
    if new == "name <":
        bundle = BUNDLE.replace("level <= $actor.level", "name < 3")
    workspace.write("bad.yaml", bundle)
    assert run(workspace, "validate", "bad.yaml").startswith("policy valid")
    done = workspace.run("policy", "validate", "bad.yaml", "--schema", "s.pg")
    assert_fails(done, text)
    assert text in done.stderr
    assert done.stderr.startswith("Error: policy 'bad.yaml', line ")


def test_a_broken_bundle_is_refused_with_its_line(workspace):
    workspace.write("broken.yaml", "version: 1\nrulez: []\n")
    done = workspace.run("policy", "validate", "broken.yaml")
    assert_fails(done, "policy 'broken.yaml', line 2: unknown key 'rulez'")


# -- explain --------------------------------------------------------------------------------------


def test_a_decision_is_explained_with_its_rule(workspace):
    for action in ("branch_merge", "branch-merge"):
        assert run(
            workspace, "explain", "p.yaml", "--actor", "lea", "--action", action,
            "--branch", "draft", "--target-branch", "main",
        ) == (
            "decision: allow\nactor: lea\naction: branch_merge\nbranch: draft\n"
            "target_branch: main\nmatched_rule: merge\n"
            "message: policy allowed action 'branch_merge' for actor 'lea'\n"
        )  # fmt: skip
    assert run(workspace, "explain", "p.yaml", "--actor", "eve", "--action", "read") == (
        "decision: deny\nactor: eve\naction: read\n"
        "message: policy denied action 'read' for unknown actor 'eve'\n"
    )
    with_token = ("--actor", "eve", "--in-group", "staff", "--action", "invoke-query")
    assert "decision: allow\n" in run(workspace, "explain", "p.yaml", *with_token, "--query", "top")
    assert "decision: deny\n" in run(workspace, "explain", "p.yaml", *with_token, "--query", "x")


def explained(workspace: Workspace, actor: str, type_name: str, row: str) -> list[str]:
    output = run(
        workspace, "explain", "p.yaml", "--store", "g.omni", "--actor", actor,
        "--type", type_name, "--id", row,
    )  # fmt: skip
    return output.splitlines()


def test_a_row_is_explained_rule_by_rule(workspace):
    assert explained(workspace, "ana", "Person", "a") == [
        "row: visible",
        "actor: ana",
        "type: Person",
        "id: a",
        "branch: main",
        "rule own: opens the row",
        "rule low: its condition is not true for the row",
        "rule all: opens nothing: the actor is not in group 'leads'",
        "message: actor 'ana' sees Person 'a'",
    ]
    assert explained(workspace, "bo", "Person", "a")[5:] == [
        "rule own: its condition is not true for the row",
        "rule low: opens nothing: the actor has no attribute 'level'",
        "rule all: opens nothing: the actor is not in group 'leads'",
        "message: actor 'bo' does not see Person 'a': no rule opens it",
    ]
    assert explained(workspace, "lea", "Person", "a")[-1] == (
        "message: actor 'lea' sees Person 'a': everything is visible to it"
    )
    missing = explained(workspace, "ana", "Person", "nobody")
    assert missing[0] == "row: hidden"
    assert missing[-1] == "message: there is no Person 'nobody'"


def test_an_edge_with_a_hidden_end_is_explained(workspace):
    with Graph.open(workspace.directory / "g.omni", "r") as graph:
        edge = next(graph.snapshot().scan("Knows"))["id"][0].as_py()
    assert explained(workspace, "bo", "Knows", edge)[-1] == (
        f"message: actor 'bo' does not see Knows '{edge}': an end of the edge is hidden"
    )
    assert explained(workspace, "lea", "Knows", edge)[0] == "row: visible"


def test_the_row_of_a_cluster_is_looked_up_in_its_graph(workspace):
    output = run(
        workspace, "explain", "--cluster", "cluster", "--graph", "kb", "--actor", "ana",
        "--action", "read", "--type", "Person", "--id", "a",
    )  # fmt: skip
    assert output.startswith("decision: allow\n")
    assert "row: visible\n" in output


# -- test -----------------------------------------------------------------------------------------


def test_the_cases_of_version_1_are_run(workspace):
    workspace.write(
        "t1.yaml",
        "version: 1\ncases:\n"
        "  - {id: reads, actor: ana, action: read, branch: main, expect: allow}\n"
        "  - {id: changes, actor: ana, action: change, branch: main, expect: deny}\n",
    )
    assert run(workspace, "test", "v1.yaml", "--tests", "t1.yaml") == (
        "policy tests passed: 2 cases\n"
    )
    wiki = ("--cluster", "cluster", "--graph", "wiki")
    assert "passed: 2 cases" in run(workspace, "test", *wiki, "--tests", "t1.yaml")


CASES_2 = """\
version: 2
cases:
  - {id: own, actor: ana, sees: {type: Person, id: a}, expect: allow}
  - {id: other, actor: ana, sees: {type: Person, id: b}, branch: main, expect: allow}
  - {id: city, actor: ana, sees: {type: City, id: c}, expect: deny}
  - {id: top, actor: ana, action: invoke_query, query: top, expect: allow}
  - {id: rest, actor: ana, action: invoke_query, query: rest, expect: deny}
  - id: token
    actor: new
    groups: [staff]
    attributes: {tenants: [t2]}
    sees: {type: Person, id: b}
    expect: allow
"""


def test_the_cases_of_version_2_name_queries_rows_and_tokens(workspace):
    workspace.write("t2.yaml", CASES_2)
    done = workspace.run("policy", "test", "p.yaml", "--tests", "t2.yaml", "--store", "g.omni")
    assert done.stdout == "policy tests passed: 6 cases\n", done.stderr
    workspace.write("t3.yaml", CASES_2.replace("id: a}, expect: allow", "id: a}, expect: deny"))
    done = workspace.run("policy", "test", "p.yaml", "--tests", "t3.yaml", "--store", "g.omni")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[:2] == [
        "Error: policy tests failed:",
        "own: expected Deny but got allow",
    ]
    done = workspace.run("policy", "test", "p.yaml", "--tests", "t2.yaml")
    assert_fails(done, "policy test 'own' names a row, and there is no graph")


# -- which bundle ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--cluster", "cluster"), "pass --graph <id>"),
        (("--cluster", "cluster", "--graph", "free"), "no policy bundle bound to graph 'free'"),
        (("--cluster", "cluster", "--graph", "no"), "no policy bundle bound to graph 'no'"),
        (("--cluster", "nowhere"), "not ready"),
        ((), "`policy validate` needs a cluster"),
        (("p.yaml", "--server", "http://127.0.0.1:1"), "--server addresses a served graph"),
        (("--graph", "kb"), "`policy validate` needs a cluster"),
    ],
)
def test_a_bundle_that_is_not_named_clearly_is_refused(workspace, arguments, text):
    done = workspace.run("policy", "validate", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert text in done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("validate", "p.yaml", "--cluster", "cluster"), "mutually exclusive"),
        (("validate", "p.yaml", "--schema", "s.pg", "--store", "g"), "mutually exclusive"),
        (("validate", "--store", "g.omni"), "pass the bundle FILE with it"),
        (("test", "p.yaml"), "--tests"),
        (("explain", "p.yaml", "--actor", "a"), "nothing to explain"),
        (("explain", "p.yaml", "--actor", "a", "--type", "T"), "pass --type and --id"),
        (("explain", "p.yaml", "--actor", "a", "--type", "T", "--id", "x"), "pass --store URI"),
        (("explain", "p.yaml", "--actor", "a", "--action", "raed"), "invalid action 'raed'"),
        (
            ("explain", "p.yaml", "--actor", "a", "--action", "read", "--server", "http://h"),
            "mutually exclusive",
        ),
    ],
)
def test_wrong_usage_exits_with_2(workspace, arguments, text):
    done = workspace.run("policy", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert text in done.stderr


def test_the_only_bundle_of_a_cluster_is_found_also_that_of_the_server(tmp_path):
    workspace = Workspace(tmp_path)
    cluster = ClusterFiles(tmp_path / "c").graph("kb")
    assert_fails(workspace.run("policy", "validate", "--cluster", "c"), "no applied policy bundles")
    cluster.policy("ops", SERVER, ["cluster"])
    assert run(workspace, "validate", "--cluster", "c") == (
        "policy valid: bundle 'ops' [1 actors]\n"
    )
    output = run(workspace, "explain", "--cluster", "c", "--actor", "op", "--action", "graph-list")
    assert "matched_rule: list\n" in output


# -- servers --------------------------------------------------------------------------------------


class _Explainer(BaseHTTPRequestHandler):
    """Answers as a server does, by what it is asked about."""

    bodies: ClassVar[list[tuple[str, dict[str, object]]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.bodies.append((self.path, body))
        row = {
            "visible": True, "actor": "ana", "type": "Person", "id": "a", "branch": "main",
            "rules": [{"rule": "own", "verdict": "opens the row"}], "message": "m",
        }  # fmt: skip
        document = {"decision": "allow", "actor": "ana", "action": "read", "message": "allowed"}
        reply = json.dumps({"row": row} if "row" in body else document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *arguments: object) -> None:
        pass


def test_the_bundle_in_force_on_a_server_is_explained_and_tested_there(workspace):
    _Explainer.bodies.clear()
    with HTTPServer(("127.0.0.1", 0), _Explainer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            at = ("--server", f"http://127.0.0.1:{server.server_port}", "--graph", "kb")
            request = ("--actor", "ana", "--action", "branch-merge", "--target-branch", "main")
            assert run(workspace, "explain", *at, *request).startswith(
                "decision: allow\nactor: ana"
            )
            output = run(
                workspace, "explain", *at, "--actor", "ana", "--type", "Person", "--id", "a"
            )
            assert "rule own: opens the row\n" in output
            workspace.write(
                "ts.yaml",
                "version: 2\ncases:\n"
                "  - {id: a, actor: ana, action: read, expect: allow}\n"
                "  - {id: b, actor: ana, sees: {type: P, id: x}, groups: [g], expect: deny}\n",
            )
            done = workspace.run("policy", "test", *at, "--tests", "ts.yaml")
            assert "b: expected Deny but got allow" in done.stderr
        finally:
            server.shutdown()
            thread.join()
    assert _Explainer.bodies == [
        (
            "/graphs/kb/policy/explain",
            {"actor": "ana", "action": "branch_merge", "target_branch": "main"},
        ),
        ("/graphs/kb/policy/explain", {"actor": "ana", "row": {"type": "Person", "id": "a"}}),
        ("/graphs/kb/policy/explain", {"actor": "ana", "action": "read"}),
        (
            "/graphs/kb/policy/explain",
            {"actor": "ana", "groups": ["g"], "row": {"type": "P", "id": "x"}},
        ),
    ]
