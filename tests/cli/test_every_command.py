"""Every command: it works, its JSON has its shape, wrong usage exits with 2 and a failure with 1,
and nobody sees a traceback. Some commands run in a process of their own, which has imported
nothing before: each day other ones, and all of them with the slow tests. What the commands do in
detail is tested beside this."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.cli.parser import build_parser
from omnigraph.cli.parser_tree import leaves
from omnigraph.cluster.apply import apply_cluster
from omnigraph.cluster.bundle import DirectoryBundle
from omnigraph.cluster.scaffold import scaffold
from omnigraph.cluster.state_commands import import_cluster
from omnigraph.settings import Settings
from tests.cli.workspace import Workspace
from tests.cluster.ledgers import ULID
from tests.sampling import rotating

pytestmark = pytest.mark.rotates(6)

SCHEMA = """\
node Person {
  name: String @key
  age: I32?
  photo: Blob?
}

edge Knows: Person -> Person
"""
READ = "query q() { match { $p: Person } return { $p.name } }"
WRITE = 'query w() { insert Person { name: "New" } }'
SERVED = ("alias", "graphs list")
"""Their work is tested beside a server, in test_remote."""
STARTING = ("warm start", "warm stop", "serve", "mcp")
"""Their work is tested with processes of their own: test_warm, server/test_serve, tests/mcp."""
PROCESSES = 2
"""So many commands are processes in a quick run, for each way to end."""
NOTHING: tuple[str, ...] = ()
ELSEWHERE = ("--store", "g.omni")
"""A cluster has a directory of its own."""


@dataclass(frozen=True)
class Case:
    """How a command is called so that it works, and so that it fails.

    ``keys`` are the first ones of its JSON; none where it prints something else.
    """

    works: tuple[str, ...]
    fails: tuple[str, ...] | None
    keys: tuple[str, ...] | None = None
    text: str = ""
    code: int = 0
    stdin: bytes = b""


CASES = {
    "init": Case(("--schema", "s.pg", "new.omni"), ("--schema", "no.pg", "n.omni"), text="initial"),
    "load": Case(
        ("w.omni", "--data", "d.jsonl", "--mode", "merge", "--json"),
        ("no.omni", "--data", "d.jsonl", "--mode", "merge"),
        ("uri", "branch", "mode", "branch_created", "nodes_loaded"),
    ),
    "ingest": Case(
        ("w.omni", "--data", "d.jsonl", "--json"),
        ("no.omni", "--data", "d.jsonl"),
        ("uri", "branch", "base_branch", "branch_created", "mode", "tables", "actor_id"),
    ),
    "query": Case(
        ("--store", "g.omni", "-e", READ, "--json"),
        ("--store", "no.omni", "-e", READ),
        ("query_name", "target", "row_count", "columns", "rows"),
    ),
    "mutate": Case(
        ("--store", "w.omni", "-e", WRITE, "--json"),
        ("--store", "no.omni", "-e", WRITE),
        ("branch", "query_name", "affected_nodes", "affected_edges", "actor_id"),
    ),
    "alias": Case(NOTHING, ("nothing",)),
    "graphs list": Case(NOTHING, ("--server", "nothing")),
    "snapshot": Case(
        ("g.omni", "--json"),
        ("no.omni",),
        ("branch", "manifest_version", "internal_schema_version", "tables"),
    ),
    "export": Case(("g.omni",), ("no.omni",), text='"Ana"'),
    "branch create": Case(
        ("--uri", "w.omni", "made", "--json"),
        ("--uri", "no.omni", "made"),
        ("uri", "from", "name", "actor_id"),
    ),
    "branch list": Case(("--uri", "g.omni", "--json"), ("--uri", "no.omni"), ("branches",)),
    "branch delete": Case(
        ("--uri", "w.omni", "old", "--json"),
        ("--uri", "w.omni", "nothing"),
        ("uri", "name", "actor_id"),
    ),
    "branch merge": Case(
        ("--uri", "w.omni", "side", "--json"),
        ("--uri", "w.omni", "nothing"),
        ("source", "target", "outcome", "actor_id"),
    ),
    "commit list": Case(("g.omni", "--json"), ("no.omni",), ("commits",)),
    "commit show": Case(
        ("--uri", "g.omni", "COMMIT", "--json"),
        ("--uri", "g.omni", "01NO"),
        ("graph_commit_id", "manifest_branch", "manifest_version"),
    ),
    "commit changes": Case(
        ("--uri", "g.omni", "COMMIT", "--json"), ("--uri", "g.omni", "01NO"), NOTHING
    ),
    "log": Case(("g.omni", "--json"), ("no.omni",), NOTHING),
    "diff": Case(("side", "main", "--uri", "g.omni", "--json"), ("no", "--uri", "g.omni"), NOTHING),
    "changes poll": Case(("--uri", "g.omni", "--json"), ("--uri", "no.omni"), NOTHING),
    "changes baseline": Case(
        ("--uri", "g.omni", "--out", "base.jsonl", "--json"),
        ("--uri", "no.omni", "--out", "b"),
        NOTHING,
    ),
    "revert": Case(("--uri", "w.omni", "LAST", "--json"), ("--uri", "w.omni", "01NO"), NOTHING),
    "cherry-pick": Case(
        ("--uri", "w.omni", "SIDE", "--json"), ("--uri", "w.omni", "01NO"), NOTHING
    ),
    "blame": Case(
        ("Person", "Ana", "--uri", "g.omni", "--json"), ("Person", "No", "--uri", "g.omni"), NOTHING
    ),
    "tag create": Case(
        ("--uri", "w.omni", "new", "--json"), ("--uri", "w.omni", "x", "--commit", "01NO"), NOTHING
    ),
    "tag list": Case(("--uri", "g.omni", "--json"), ("--uri", "no.omni"), NOTHING),
    "tag delete": Case(
        ("--uri", "w.omni", "first", "--json"), ("--uri", "w.omni", "nothing"), NOTHING
    ),
    "blob get": Case(
        ("node", "Person", "Ana", "photo", "--uri", "g.omni"),
        ("node", "Person", "No", "photo", "--uri", "g.omni"),
        text="picture",
    ),
    "blob stat": Case(
        ("node", "Person", "Ana", "photo", "--uri", "g.omni", "--json"),
        ("node", "Person", "No", "photo", "--uri", "g.omni"),
        NOTHING,
    ),
    "blob put": Case(
        ("node", "Person", "Ana", "photo", "--file", "s.pg", "--uri", "w.omni", "--json"),
        ("node", "Person", "No", "photo", "--file", "s.pg", "--uri", "w.omni"),
        NOTHING,
    ),
    "blob delete": Case(
        ("node", "Person", "Ana", "photo", "--uri", "w.omni", "--json"),
        ("node", "Person", "No", "photo", "--uri", "w.omni"),
        NOTHING,
    ),
    "schema show": Case(("g.omni", "--json"), ("no.omni",), ("schema_source",)),
    "schema plan": Case(
        ("g.omni", "--schema", "s.pg", "--json"),
        ("g.omni", "--schema", "no.pg"),
        ("uri", "supported", "step_count", "steps"),
    ),
    "schema apply": Case(
        ("p.omni", "--schema", "s.pg", "--json"),
        ("p.omni", "--schema", "no.pg"),
        ("uri", "supported", "applied", "step_count", "manifest_version", "steps"),
    ),
    "lint": Case(
        ("--schema", "s.pg", "--query", "q.gq", "--json"),
        ("--schema", "no.pg", "--query", "q.gq"),
        ("status", "schema_source", "query_path", "queries_processed"),
    ),
    "fmt": Case(("--check", "s.pg"), ("no.pg",)),
    "explain": Case(
        ("--store", "g.omni", "-e", READ, "--json"),
        ("--store", "no.omni", "-e", READ),
        ("kind", "name", "params"),
    ),
    "index status": Case(("g.omni", "--json"), ("no.omni",), NOTHING),
    "index ensure": Case(("w.omni", "--json"), ("no.omni",), NOTHING),
    "index rebuild": Case(
        ("--uri", "w.omni", "Person", "--json"), ("--uri", "w.omni", "No"), NOTHING
    ),
    "optimize": Case(("w.omni", "--json"), ("no.omni",), ("uri", "tables")),
    "repair": Case(
        ("w.omni", "--json"),
        ("no.omni",),
        ("uri", "confirm", "force", "manifest_version", "tables"),
    ),
    "cleanup": Case(
        ("w.omni", "--keep", "5", "--confirm", "--json"),
        ("w.omni", "--confirm"),
        ("uri", "keep_versions", "older_than_secs", "tables"),
    ),
    "doctor": Case(("g.omni", "--json"), ("no.omni",), ("uri",)),
    "verify": Case(("g.omni", "--json"), ("no.omni",), ("uri", "is_sound", "branches")),
    "backup": Case(
        ("g.omni", "--to", "bk", "--json"), ("no.omni", "--to", "bk2"), ("backup", "uri")
    ),
    "backup prune": Case(
        ("bk0", "--keep", "1", "--dry-run", "--json"),
        ("nothing", "--keep", "1", "--confirm"),
        ("backup", "uri", "removed"),
    ),
    "restore": Case(("bk0", "r.omni", "--json"), ("nothing", "r2.omni"), ("backup", "uri")),
    "clone": Case(("g.omni", "c.omni", "--json"), ("no.omni", "c2.omni"), ("original", "uri")),
    "embed": Case(
        ("--input", "d.jsonl", "--output", "e.jsonl", "--spec", "spec.json", "--json"),
        ("--input", "no.jsonl", "--output", "e2.jsonl", "--spec", "spec.json"),
        ("input", "output", "rows", "selected_rows", "embedded_rows"),
    ),
    "shell": Case(("g.omni",), ("no.omni",), text="Ana", stdin=f"{READ}\n".encode()),
    "cluster init": Case(("new-lab", "--json"), ("lab",), ("ok", "config_dir", "files")),
    "cluster validate": Case(
        ("--config", "lab", "--json"),
        ELSEWHERE,
        ("ok", "config_dir", "config_file", "resource_digests", "resources", "dependencies"),
    ),
    "cluster import": Case(
        ("--config", "lab", "--json"),
        ELSEWHERE,
        ("ok", "operation", "config_dir", "state_observations", "resource_digests"),
    ),
    "cluster plan": Case(
        ("--config", "done", "--json"),
        ELSEWHERE,
        ("ok", "config_dir", "desired_revision", "resource_digests", "dependencies"),
    ),
    "cluster apply": Case(
        ("--config", "done", "--as", "ana", "--json"),
        ("--config", "done", "no-plan.json"),
        ("ok", "config_dir", "actor", "desired_revision", "state_observations", "changes"),
    ),
    "cluster deployments": Case(
        ("--config", "done", "--json"), ("01NO", "--config", "done"), ("deployments",)
    ),
    "cluster approve": Case(
        ("graph.kb", "--config", "less", "--as", "ana", "--json"),
        ("graph.kb", "--config", "less"),
        ("ok", "config_dir", "approval_id", "resource", "operation", "approved_by", "diagnostics"),
    ),
    "cluster status": Case(
        ("--config", "done", "--json"),
        ELSEWHERE,
        ("ok", "config_dir", "state_observations", "resource_digests", "resource_statuses"),
    ),
    "cluster refresh": Case(
        ("--config", "done", "--json"),
        ELSEWHERE,
        ("ok", "operation", "config_dir", "state_observations", "resource_digests"),
    ),
    "cluster drift": Case(
        ("--config", "done", "--json"),
        ELSEWHERE,
        ("ok", "config_dir", "state_observations", "drifted", "findings", "diagnostics"),
    ),
    "cluster force-unlock": Case(
        (ULID, "--config", "stuck", "--json"),
        (ULID, *ELSEWHERE),
        ("ok", "config_dir", "state_observations", "lock_removed", "diagnostics"),
    ),
    "queries list": Case(("--cluster", "done", "--json"), ("--cluster", "no"), ("queries",)),
    "queries validate": Case(
        ("--cluster", "done", "--json"), ("--cluster", "no"), ("ok", "breakages", "warnings")
    ),
    "policy validate": Case(("p.yaml", "--store", "g.omni"), ("no.yaml",), text="policy valid"),
    "policy test": Case(
        ("p.yaml", "--tests", "t.yaml"), ("p.yaml", "--tests", "no.yaml"), text="tests passed"
    ),
    "policy explain": Case(
        ("p.yaml", "--actor", "ana", "--action", "branch-merge"),
        ("no.yaml", "--actor", "ana", "--action", "read"),
        text="decision: deny",
    ),
    "profile list": Case(("--json",), None, NOTHING),
    "profile show": Case(("--json",), ("nothing",), ("name", "scope_kind", "target")),
    "login": Case(
        ("lab", "--json"), ("lab2",), ("server", "credentials_path", "declared"), stdin=b"token\n"
    ),
    "logout": Case(("lab", "--json"), None, ("server", "credentials_path")),
    "serve": Case(("g.omni",), ("--store", "no.omni")),
    "mcp": Case(("g.omni",), ("--store", "no.omni")),
    "warm start": Case(("--json",), ("--graph", "g")),
    "warm status": Case(("--json",), ("--graph", "g"), ("running",)),
    "warm stop": Case(("--json",), ("--graph", "g")),
    "completion": Case(("bash",), None, text="omnigraph"),
    "version": Case(("--quiet",), ("--graph", "g"), text="internal-schema 4"),
}


def commands() -> dict[str, bool]:
    """Every command that can be run, and whether it has ``--json``."""
    return {
        leaf.prog.removeprefix("omnigraph "): "--json" in leaf._option_string_actions
        for leaf in leaves(build_parser())
        if leaf.get_default("capability") is not None
    }


@pytest.fixture(scope="module")
def workspace(tmp_path_factory, how):
    """Files, a graph that is only read (``g.omni``), and one that is written (``w.omni``)."""
    workspace = Workspace(tmp_path_factory.mktemp("every"))
    workspace.write("s.pg", SCHEMA)
    workspace.write("q.gq", READ)
    workspace.write("p.yaml", "{version: 2, groups: {staff: [ana]}, rows: []}")
    workspace.write(
        "t.yaml", "{version: 1, cases: [{id: a, actor: ana, action: read, expect: deny}]}"
    )
    workspace.write(
        "spec.json", '{"dimension": 4, "types": {"Person": {"target": "v", "fields": ["name"]}}}'
    )
    workspace.write(
        "d.jsonl",
        '{"type":"Person","data":{"name":"Ana","age":41,"photo":"base64:cGljdHVyZQ=="}}\n'
        '{"type":"Person","data":{"name":"Bo"}}\n'
        '{"edge":"Knows","from":"Ana","to":"Bo"}\n',
    )
    Graph.init(workspace.directory / "p.omni", SCHEMA).close()
    ids = {}
    for name in ("g.omni", "w.omni"):
        with Graph.init(workspace.directory / name, SCHEMA) as graph:
            ids["COMMIT"] = graph.load(workspace.directory / "d.jsonl").commit_id
            graph.tags.create("first")
            graph.branches.create("side")
            graph.branches.create("old")
            added = 'query a() { insert Person { name: "%s" } }'
            ids["SIDE"] = graph.mutate(added % "Cy", branch="side").commit_id
            ids["LAST"] = graph.mutate(added % "Di").commit_id
            if name == "g.omni":
                ids["READ"] = ids["COMMIT"]
                graph.maintenance.backup(workspace.directory / "bk0")
    ids["COMMIT"] = ids["READ"]
    for name in ("lab", "done", "less", "stuck"):
        make_cluster(workspace.directory / name)
    return getattr(workspace, how), ids


def make_cluster(directory: Path) -> None:
    """A new cluster; ``done`` is applied, ``less`` declares less than that, ``stuck`` is locked."""
    scaffold(directory, "kb")
    if directory.name in ("done", "less"):
        bundle = DirectoryBundle(directory)
        assert import_cluster(bundle, Settings()).ok
        assert apply_cluster(bundle, Settings()).is_converged
    if directory.name == "less":
        (directory / "cluster.yaml").write_text("version: 1\n")
    if directory.name == "stuck":
        lock = {"version": 1, "lock_id": ULID, "operation": "apply", "created_at": "", "pid": 1}
        (directory / "__cluster").mkdir()
        (directory / "__cluster" / "lock.json").write_text(json.dumps(lock))


@pytest.mark.rotates(1)
def test_every_command_has_a_case():
    assert set(CASES) == set(commands())
    for name, has_json in commands().items():
        assert ("--json" in CASES[name].works) == has_json or name in SERVED, name


def parametrized(names: Iterable[str]) -> pytest.MarkDecorator:
    """Each command in this process and in one of its own; most of the latter are slow tests."""
    names = list(names)
    processes = rotating([(name, "process") for name in names], PROCESSES, "commands")
    return pytest.mark.parametrize(
        ("name", "how"), [*((name, "run") for name in names), *processes], scope="module"
    )


@parametrized(name for name in CASES if name not in (*SERVED, *STARTING))
def test_a_command_works(workspace, name):
    call, ids = workspace
    case = CASES[name]
    arguments = [ids.get(word, word) for word in case.works]
    done = call(*name.split(), *arguments, stdin=case.stdin, OMNIGRAPH_EMBEDDINGS_MOCK="1")
    assert done.returncode == case.code, done.stderr
    assert case.text in done.stdout
    if case.keys is not None:
        reported = json.loads(done.stdout)
        assert tuple(reported)[: len(case.keys)] == case.keys
        again = json.dumps(reported, indent=2, ensure_ascii=False) + "\n"
        assert done.stdout == again


@parametrized(CASES)
def test_wrong_usage_exits_with_2(workspace, name):
    call, _ = workspace
    done = call(*name.split(), "--no-such-option")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--no-such-option" in done.stderr


@parametrized(name for name, case in CASES.items() if case.fails is not None)
def test_a_failure_exits_with_1(workspace, name):
    call, _ = workspace
    done = call(*name.split(), *CASES[name].fails)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    lines = done.stderr.splitlines()
    assert any(line.startswith("Error:") for line in lines)
