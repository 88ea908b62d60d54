"""Looking after a graph from the command line: optimize, repair, cleanup, doctor and verify."""

from __future__ import annotations

import json

import pytest

from omnigraph import Graph
from tests.cli.workspace import Workspace, assert_fails

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"


@pytest.fixture
def workspace(tmp_path):
    workspace = Workspace(tmp_path)
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        for name in ("Ana", "Bo", "Cy"):
            graph.load([{"type": "Person", "data": {"name": name}}])
    return workspace


def as_json(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# -- cleanup --------------------------------------------------------------------------------------


def test_cleanup_needs_a_policy_that_can_be_read(workspace):
    done = workspace.run("cleanup", "g.omni", "--confirm")
    assert_fails(done, "--keep")
    assert "--older-than" in done.stderr
    assert_fails(workspace.run("cleanup", "g.omni", "--older-than", "3y"), "unknown duration unit")
    assert_fails(workspace.run("cleanup", "g.omni", "--older-than", "soon"), "invalid duration")
    assert_fails(
        workspace.run("cleanup", "g.omni", "--older-than", "9" * 5_000), "invalid duration"
    )


def test_cleanup_refuses_wrong_limits_before_it_is_confirmed(workspace):
    keep = ("cleanup", "g.omni", "--keep")
    assert_fails(workspace.run(*keep, "1", "--min-age", "soon"), "invalid duration")
    assert_fails(workspace.run(*keep, "1", "--feed-retention", "3y"), "unknown duration unit")
    done = workspace.run(*keep, "1", "--min-age", "999999w", "--confirm")
    assert "removed 0 versions" in done.stdout


def test_cleanup_is_a_notice_until_it_is_confirmed(workspace):
    for more in ((), ("--json",)):
        done = workspace.run("cleanup", "g.omni", "--keep", "2", "--older-than", "7d", *more)
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr.startswith("cleanup is destructive — rerun with --confirm.")
        assert "g.omni: keep 2, older than 7d" in done.stderr


def test_cleanup_removes_what_its_dry_run_said(workspace):
    policy = ("cleanup", "g.omni", "--keep", "1", "--min-age", "0", "--json", "--quiet")
    reported = as_json(workspace.run(*policy, "--dry-run"))
    assert list(reported)[:4] == ["uri", "keep_versions", "older_than_secs", "tables"]
    assert list(reported["tables"][0]) == [
        "table_key",
        "bytes_removed",
        "old_versions_removed",
        "error",
    ]
    done = as_json(workspace.run(*policy, "--confirm"))
    assert done["tables"] == reported["tables"]
    person = next(table for table in done["tables"] if table["table_key"] == "node:Person")
    assert person["old_versions_removed"] > 0
    again = workspace.run(
        "cleanup", "g.omni", "--keep", "1", "--min-age", "0", "--confirm", "--quiet"
    )
    assert again.stdout.splitlines()[0] == (
        "cleanup g.omni (keep 1) — removed 0 versions (0 bytes) across 2 tables"
    )
    assert as_json(workspace.run("verify", "g.omni", "--json"))["is_sound"]


def test_cleanup_of_a_distant_graph_asks_before_it_touches_it(workspace):
    done = workspace.run("cleanup", "s3://nowhere/g", "--keep", "1", "--confirm")
    assert_fails(done, "refusing destructive")
    assert "--yes" in done.stderr


# -- doctor, verify -------------------------------------------------------------------------------


def test_the_doctor_says_how_the_graph_is(workspace):
    page = workspace.run("doctor", "g.omni").stdout
    assert "node:Person" in page
    # The graph's own address may be longer.
    lines = page.replace(str(workspace.directory), "").splitlines()
    assert max(map(len, lines)) <= 100
    reported = as_json(workspace.run("doctor", "g.omni", "--json"))
    assert {table["table_key"] for table in reported["tables"]} == {"node:Person", "edge:Knows"}


def test_verify_names_a_damaged_file_and_exits_with_1(workspace):
    done = workspace.run("verify", "g.omni")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "verify g.omni — sound")
    file = next((workspace.directory / "g.omni" / "nodes").rglob("*.lance"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))
    done = workspace.run("verify", "g.omni")
    assert (done.returncode, done.stdout.splitlines()[0]) == (1, "verify g.omni — damaged")
    assert file.name in done.stdout
    assert "checksum_mismatch" in done.stdout
    reported = workspace.run("verify", "g.omni", "--json")
    assert reported.returncode == 1
    assert not json.loads(reported.stdout)["is_sound"]


# -- copies ---------------------------------------------------------------------------------------


def test_a_backup_is_listed_and_restored(workspace):
    first = as_json(workspace.run("backup", "g.omni", "--to", "bk", "--json"))
    assert first["copied_files"] == first["files"] > 0
    workspace.run("load", "g.omni", "--data", "-", "--mode", "merge", "--quiet", stdin=b"")
    second = as_json(workspace.run("backup", "g.omni", "--to", "bk", "--json"))
    assert second["copied_files"] < first["copied_files"]
    listed = workspace.run("backup", "--list", "--to", "bk").stdout.splitlines()
    assert [line.split()[0] for line in listed] == [first["point"], second["point"]]
    restored = workspace.run("restore", "bk", "r.omni", "--point", first["point"])
    assert restored.stdout.startswith("restored r.omni from bk: point ")
    assert workspace.run("export", "r.omni").stdout == workspace.run("export", "g.omni").stdout
    assert_fails(workspace.run("restore", "bk", "r.omni"), "r.omni")
    assert_fails(workspace.run("restore", "bk", "x.omni", "--point", "01NO"), "01NO")


def test_points_of_a_backup_are_pruned(workspace):
    points = [as_json(workspace.run("backup", "g.omni", "--to", "bk", "--json"))["point"]]
    add = 'query a() { insert Person { name: "Di" } }'
    assert workspace.run("mutate", "--store", "g.omni", "-e", add, "--quiet").returncode == 0
    points.append(as_json(workspace.run("backup", "g.omni", "--to", "bk", "--json"))["point"])
    assert_fails(workspace.run("backup", "prune", "bk"), "needs a policy")
    notice = workspace.run("backup", "prune", "bk", "--keep", "1")
    assert (notice.returncode, notice.stdout) == (0, "")
    assert "rerun with --confirm" in notice.stderr
    dry = as_json(workspace.run("backup", "prune", "bk", "--keep", "1", "--dry-run", "--json"))
    assert (dry["removed"], dry["kept"], dry["dry_run"]) == (points[:1], points[1:], True)
    younger = workspace.run("backup", "prune", "bk", "--older-than", "7d", "--confirm", "--json")
    assert as_json(younger)["removed"] == []
    assert_fails(workspace.run("backup", "prune", "bk", "--point", "01NO", "--confirm"), "01NO")
    every = [f"--point={point}" for point in points]
    done = workspace.run("backup", "prune", "bk", *every, "--confirm")
    assert_fails(done, "every point")
    assert "--allow-empty" in done.stderr
    done = workspace.run("backup", "prune", "bk", "--keep", "1", "--confirm")
    assert done.stdout.splitlines()[0] == f"removed point {points[0]}"
    assert "removed 1 of 2 points of bk and " in done.stdout
    listed = workspace.run("backup", "--list", "--to", "bk").stdout.splitlines()
    assert [line.split()[0] for line in listed] == points[1:]
    assert workspace.run("backup", "prune", "bk", *every[1:], "--allow-empty", "--confirm").stdout
    assert_fails(workspace.run("restore", "bk", "r.omni"), "has no point")


def test_a_graph_in_a_directory_of_that_name_is_still_backed_up(workspace):
    (workspace.directory / "g.omni").rename(workspace.directory / "prune")
    assert as_json(workspace.run("backup", "./prune", "--to", "bk", "--json"))["files"] > 0


def test_a_clone_goes_its_own_way(workspace):
    done = workspace.run("clone", "g.omni", "c.omni")
    assert done.stdout.startswith("cloned g.omni to c.omni: 1 branches, ")
    add = 'query a() { insert Person { name: "Di" } }'
    assert workspace.run("mutate", "--store", "c.omni", "-e", add, "--quiet").returncode == 0
    assert '"Di"' in workspace.run("export", "c.omni").stdout
    assert '"Di"' not in workspace.run("export", "g.omni").stdout


# -- indexes --------------------------------------------------------------------------------------


def test_repair_refuses_what_changed_rows(workspace):
    import lance

    table = next((workspace.directory / "g.omni" / "nodes").iterdir())
    lance.dataset(str(table)).delete("id = 'Bo'")
    preview = workspace.run("repair", "g.omni")
    assert "suspicious preview" in preview.stdout
    refused = workspace.run("repair", "g.omni", "--confirm", "--json")
    assert refused.returncode == 1
    assert "repair refused node:Person" in refused.stderr
    assert json.loads(refused.stdout)["manifest_version"] is None
    reported = as_json(workspace.run("repair", "g.omni", "--confirm", "--force", "--json"))
    assert [table["action"] for table in reported["tables"]] == ["no_op", "forced"]
    assert '"Bo"' not in workspace.run("export", "g.omni").stdout
