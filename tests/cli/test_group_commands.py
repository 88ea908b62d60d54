"""Commands that read a commit of a group: its own rows, and a note about its state."""

from __future__ import annotations

import json

import pytest

from omnigraph import Graph
from tests.cli.workspace import Workspace
from tests.commit.together import SCHEMA, together

COUNT = "query people() { match { $p: Person } return { count($p) as people } }"


@pytest.fixture
def workspace(tmp_path):
    return Workspace(tmp_path)


@pytest.fixture
def commits(workspace):
    """Two loads that were published together."""
    with Graph.init(workspace.directory / "g.omni", SCHEMA, durability="os") as graph:
        graph.load([{"type": "Person", "data": {"name": "ana"}}])
        receipts = together(
            graph,
            lambda: graph.load([{"type": "Person", "data": {"name": "bo"}}], actor="bo"),
            lambda: graph.load([{"type": "Person", "data": {"name": "ana", "age": 9}}]),
        )
    workspace.write("q.gq", COUNT)
    return [receipt.commit_id for receipt in receipts]


def run(workspace, *arguments):
    done = workspace.run(*arguments)
    assert done.returncode == 0, done.stderr
    return done


def test_commit_show_names_the_group(workspace, commits):
    first, last = commits
    assert (
        f"group: 1 of 2, ends with {last}\n"
        in run(workspace, "commit", "show", first, "--uri", "g.omni").stdout
    )
    shown = json.loads(run(workspace, "commit", "show", first, "--uri", "g.omni", "--json").stdout)
    assert shown["group"] == {"id": last, "index": 0, "size": 2}


def test_log_counts_the_rows_of_each_member(workspace, commits):
    shown = run(workspace, "log", "--store", "g.omni", "--json", "--limit", "2", "--stat").stdout
    tables = [commit["tables"] for commit in json.loads(shown)["commits"]]
    assert tables == [
        {"node:Person": {"inserted": 0, "updated": 1, "deleted": 0}},
        {"node:Person": {"inserted": 1, "updated": 0, "deleted": 0}},
    ]
    for name, count in (("Person", 2), ("Company", 0)):
        shown = run(workspace, "log", "--store", "g.omni", "--json", "--type", name, "--limit", "2")
        ids = {commit["graph_commit_id"] for commit in json.loads(shown.stdout)["commits"]}
        assert len(ids & {*commits}) == count


def test_a_query_at_a_member_says_what_it_shows(workspace, commits):
    first, last = commits
    query = ("query", "people", "--query", "q.gq", "--store", "g.omni", "--format", "jsonl")
    done = run(workspace, *query, "--snapshot", first)
    assert f"number 1 of a group of 2; this is the state after the last, {last}" in done.stderr
    assert '"people":2' in done.stdout.replace(" ", "")
    assert "group" not in run(workspace, *query, "--snapshot", last).stderr


def test_a_tag_of_a_member_says_what_it_shows(workspace, commits):
    first, last = commits
    done = run(workspace, "tag", "create", "v1", "--commit", first, "--uri", "g.omni")
    assert f"tagged {first} as v1; it shows the state after {last}" in done.stdout
    listed = json.loads(run(workspace, "tag", "list", "--uri", "g.omni", "--json").stdout)
    assert listed["tags"][0]["shows"] == last
