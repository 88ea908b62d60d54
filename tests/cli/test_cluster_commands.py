"""``omnigraph cluster`` and ``queries`` as an operator sees them: texts, JSON and exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.desk import Desk
from tests.cluster.lab import DUE, DUE_DATES, POLICY, WIDER, Lab

ROOT = Path(__file__).parents[2]


@pytest.fixture
def desk(tmp_path, monkeypatch, capsys) -> Desk:
    return Desk(tmp_path, monkeypatch, capsys)


@pytest.fixture
def lab(desk) -> Lab:
    return Lab(desk.directory / "lab")


def cluster(desk: Desk, *arguments: str) -> str:
    return desk.run("cluster", *arguments, "--config", "lab").works()


def test_the_plan_of_a_change_of_everything(desk, lab):
    lab.edit("cluster.yaml", "policies:", "  old: {schema: kb.pg}\npolicies:")
    lab.applied()
    with lab.open(mode="rw") as graph:
        graph.load([{"type": "Task", "data": {"name": "a"}}])
    lab.write("kb.pg", WIDER)
    lab.write("queries/due.gq", DUE.replace("due", "open"))
    lab.write(
        "kb.policy.yaml",
        POLICY.replace("[ana, bo]", "[ana, cy]").replace(
            "[read], branch_scope: any", "[change], branch_scope: unprotected"
        ),
    )
    lab.edit("cluster.yaml", "  old: {schema: kb.pg}\n", "  new: {schema: kb.pg}\n")
    lab.edit("cluster.yaml", "[kb]", "[kb, new]")
    assert cluster(desk, "plan").splitlines() == [
        "cluster plan: 9 change(s), 1 approval gate(s)",
        "  Update graph.kb",
        "    affects policy.kb-rules, schema.kb",
        "  Create graph.new",
        "    affects policy.kb-rules",
        "  Delete graph.old",
        "    blocked: approval_required",
        "  Update policy.kb-rules [bindings]",
        "  Delete query.kb.due",
        "  Create query.kb.open",
        "  Update schema.kb",
        '    {"kind": "add_property", "type_kind": "node", "type_name": "Task", "property_name": '
        '"due", "property_type": {"scalar": "Date", "nullable": true, "list": false, '
        '"enum_values": null}}',
        "    node:Task: 1 row(s)",
        "  Create schema.new",
        "  Delete schema.old",
        "    blocked: approval_required",
        "  needs approval: graph.old (deletes the graph and all of its data)",
        "  policy.kb-rules: bound to graph.kb, graph.new, formerly graph.kb",
        "  policy.kb-rules: ana, cy gain change on other branches",
        "  policy.kb-rules: ana, bo lose read, read_history",
    ]


def test_the_plan_names_what_a_change_reaches(desk, lab):
    """A provider with its graphs, and a schema with the queries that break or stay."""
    provider = "providers: {embedding: {main: {kind: mock, model: a}}}\n"
    lab.edit("cluster.yaml", "graphs:", f"{provider}graphs:")
    lab.edit("cluster.yaml", "queries: queries/", "queries: queries/\n    embedding_provider: main")
    lab.write("kb.pg", WIDER)
    lab.write("queries/due.gq", DUE_DATES)
    lab.write("queries/names.gq", DUE.replace("due", "names"))
    lab.applied()
    lab.edit("cluster.yaml", "model: a", "model: b")
    lab.edit("kb.pg", "due: Date?", 'until: Date? @rename_from("due")')
    lab.write("queries/due.gq", DUE_DATES.replace("$t.due", "$t.until"))
    assert cluster(desk, "plan").splitlines() == [
        "cluster plan: 4 change(s), 0 approval gate(s)",
        "  Update graph.kb",
        "    affects policy.kb-rules, query.kb.due, query.kb.names, schema.kb",
        "  Update provider.embedding.main",
        "    other settings of the provider",
        "    affects graph.kb",
        "  Update query.kb.due",
        "  Update schema.kb",
        '    {"kind": "rename_property", "type_kind": "node", "type_name": "Task", "from": "due", '
        '"to": "until"}',
        "    node:Task: 0 row(s)",
        "    affects query.kb.due, query.kb.names",
        "  breaks query.kb.due (changed by this plan): due.gq:1:52: type error: T6: type `Task` "
        "has no property `due`",
    ]


def test_a_migration_that_is_not_supported_is_shown_as_that(desk, lab):
    lab.applied()
    lab.write("kb.pg", "node Task {\n  name: String @key\n  due: Date\n}\n")
    with lab.open(mode="rw") as graph:
        graph.load([{"type": "Task", "data": {"name": "a"}}])
    lines = cluster(desk, "plan").splitlines()
    at = lines.index("  Update schema.kb")
    assert lines[at + 1] == "    migration UNSUPPORTED:"
    assert json.loads(lines[at + 2])["kind"] == "unsupported_change"


def test_first_lines_of_failures(desk, lab):
    lab.write("cluster.yaml", "version: 2\n")
    for command in ("validate", "plan", "apply", "status", "refresh", "import"):
        done = desk.run("cluster", command, "--config", "lab")
        first, second = done.out.splitlines()[:2]
        expected = (
            "cluster config invalid" if command == "validate" else f"cluster {command} failed"
        )
        assert (done.code, first) == (1, expected)
        if command == "status":
            assert second == "  lock: not held"
        assert (
            "ERROR unsupported_cluster_config_version version: cluster.yaml:1: the configuration "
            "has version 2, this program supports 1"
        ) in done.out
    done = desk.run("cluster", "force-unlock", "x", "--config", "lab")
    assert (done.code, done.out.splitlines()[0]) == (1, "cluster force-unlock failed")


def test_json_has_the_specified_fields_in_order(desk, lab):
    lab.import_()
    orders = {
        "validate": "ok config_dir config_file resource_digests resources dependencies diagnostics",
        "plan": "ok config_dir desired_revision resource_digests dependencies state_observations "
        "changes blast_radius approvals_required diagnostics authority policy_changes "
        "broken_queries",
        "apply": "ok config_dir actor desired_revision state_observations changes applied_count "
        "deferred_count converged state_written resource_statuses diagnostics",
        "status": "ok config_dir state_observations resource_digests resource_statuses "
        "observations diagnostics",
        "refresh": "ok operation config_dir state_observations resource_digests resource_statuses "
        "observations diagnostics",
    }
    for command, order in orders.items():
        extra = ["--as", "ana"] if command == "apply" else []
        document = json.loads(cluster(desk, command, "--json", *extra))
        assert list(document) == order.split(), command
        if "state_observations" in document:
            assert list(document["state_observations"])[:3] == [
                "state_path",
                "lock_path",
                "state_found",
            ]
    failed = desk.run("cluster", "import", "--config", "lab", "--json")
    assert failed.code == 1
    assert json.loads(failed.out)["diagnostics"][0]["code"] == "state_already_exists"


def test_the_blast_radius_names_direct_dependents(desk, lab):
    lab.import_()
    document = json.loads(cluster(desk, "plan", "--json"))
    assert {entry["resource"]: entry["affected"] for entry in document["blast_radius"]} == {
        "graph.kb": ["policy.kb-rules", "query.kb.due", "schema.kb"],
        "schema.kb": ["query.kb.due"],
    }


def test_a_plan_is_kept_and_applied(desk, lab):
    lab.import_()
    cluster(desk, "plan", "--out", "p.json")
    out = cluster(desk, "apply", "p.json", "--as", "ana")
    assert out.startswith("cluster apply: 4 applied, 0 deferred/blocked\n")
    done = desk.run("cluster", "apply", "p.json", "--config", "lab")
    assert (done.code, done.out.splitlines()[0]) == (1, "cluster apply failed")
    assert "ERROR plan_stale" in done.out
    desk.run("cluster", "apply", "no.json", "--config", "lab").fails("no.json")
    desk.run("cluster", "plan", "--out", "no/p.json", "--config", "lab").fails("cannot write")


def test_approving_needs_an_actor_before_anything_is_read(desk):
    desk.run("cluster", "approve", "graph.kb", "--config", "no").fails("needs an actor")
    desk.config("operator: {actor: bo}\n")
    done = desk.run("cluster", "approve", "graph.kb", "--config", "no")
    assert done.out.splitlines()[0] == "cluster approve failed"


def test_status_shows_who_holds_the_lock_and_what_waits(desk, lab):
    assert cluster(desk, "status").splitlines()[:2] == ["cluster state missing", "  lock: not held"]
    lab.import_()
    lock = {"version": 1, "lock_id": "L", "operation": "apply", "created_at": "x", "pid": 7}
    lab.write("__cluster/lock.json", json.dumps(lock))
    lines = cluster(desk, "status").splitlines()
    assert lines[0] == "cluster state: revision 1, 0 resource(s)"
    assert lines[2] == "  lock: held (id=L, operation=apply, pid=7, created_at=x, age_seconds=0)"
    assert "  graph.kb: drifted (graph_missing)" in lines
    out = cluster(desk, "force-unlock", "L")
    assert out.startswith("cluster force-unlock: removed lock (id=L, operation=apply, pid=7")


def test_flags_of_other_commands_do_not_apply(desk):
    for flags in (("--server", "x"), ("--graph", "g"), ("--store", "s"), ("--cluster", "c")):
        done = desk.run("cluster", "status", *flags)
        done.fails(f"`cluster` is a cluster control command; {flags[0]}", "Pass --config <dir>.")
    desk.run("cluster", "plan", "--as", "ana").fails("--as")
    done = desk.run("queries", "list", "--store", "s", "--server", "x")
    done.fails("`queries list` is a cluster control command", "--cluster <dir|uri>")


def test_queries_are_listed_and_checked(desk, lab):
    text = (
        'query find($name: String, $n: I32?) @description("Finds\none.") '
        "{ match { $t: Task { name: $name } } return { $t.name } limit 1 }\n"
    )
    lab.write("queries/find.gq", text)
    lab.applied()
    assert desk.run("queries", "list", "--cluster", "lab").works().splitlines() == [
        "read  due()",
        "read  find($name: String, $n: I32?)",
        "    description: Finds",
        "                 one.",
    ]
    document = json.loads(desk.run("queries", "list", "--cluster", "lab", "--json").works())
    assert document["queries"][1] == {
        "name": "find",
        "mcp_expose": False,
        "tool_name": None,
        "mutation": False,
        "description": "Finds\none.",
        "params": [
            {"name": "name", "type": "String", "nullable": False},
            {"name": "n", "type": "I32", "nullable": True},
        ],
    }
    nothing = desk.run("queries", "list", "--cluster", "lab", "--graph", "no").works()
    assert nothing == "(no stored queries registered)\n"
    valid = desk.run("queries", "validate", "--cluster", "lab").works()
    assert valid == "OK  2 stored queries type-check against the schema\n"
    desk.run("queries", "validate", "--cluster", "lab", "--graph", "no").fails("'no'")
    with lab.open(mode="rw") as graph:
        graph.schema.apply('node Task {\n  title: String @key @rename_from("name")\n}\n')
    broken = desk.run("queries", "validate", "--cluster", "lab")
    assert broken.code == 1
    assert broken.out.startswith("ERROR  query 'due': ")


def test_queries_need_a_servable_cluster(desk, lab):
    desk.run("queries", "list").fails("needs a cluster")
    desk.run("queries", "list", "--cluster", "lab").fails(
        "cluster `lab` is not servable:", "[cluster_state_missing]"
    )


ENDINGS = (
    "_error",
    "_failed",
    "_skipped",
    "_missing",
    "_mismatch",
    "_invalid",
    "_stale",
    "_pending",
    "_incomplete",
    "_lost",
    "_disabled",
    "_unavailable",
    "_required",
)
CONDITIONS = {
    "graph_missing",
    "payload_missing",
    "payload_mismatch",
    "payload_read_error",
    "schema_mismatch",
    "actual_applied_state_pending",
    "approval_required",
    "approvals_required",
}
"""Reasons and conditions of resources, which are not codes."""


def test_every_code_of_a_diagnostic_has_one_row_in_the_documentation():
    page = (ROOT / "docs" / "cluster.md").read_text("utf-8").partition("## Diagnostics")[2]
    documented = re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE)
    assert len(documented) == len(set(documented))
    sources = "".join(path.read_text() for path in (ROOT / "src/omnigraph/cluster").glob("*.py"))
    words = set(re.findall(r'"([a-z]+(?:_[a-z]+)+)"', sources))
    built = {code for code in documented if code.startswith("catalog_payload")}
    assert {code for code in documented if code not in words} - built == set()
    undocumented = {word for word in words if word.endswith(ENDINGS)} - set(documented)
    assert undocumented - CONDITIONS == set()
