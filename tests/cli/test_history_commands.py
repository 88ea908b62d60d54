"""The commands about the past of a graph, one row of it, its Blobs and its indexes."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys

import pytest

from omnigraph import Graph
from tests.cli.workspace import Workspace, assert_fails
from tests.sampling import rotating

pytestmark = pytest.mark.rotates(6)

SCHEMA = """\
node Person {
  name: String @key
  age: I32?
  photo: Blob?
}
edge Knows: Person -> Person { since: I32?  note: Blob? }
"""
PHOTO = bytes(range(256)) * 4
COMMIT_KEYS = [
    "graph_commit_id",
    "manifest_branch",
    "manifest_version",
    "parent_commit_id",
    "merged_parent_commit_id",
    "actor_id",
    "created_at",
]
CHANGE_KEYS = ["table_key", "kind", "type_name", "id", "op", "before", "after"]


def person(name: str, **data: object) -> dict[str, object]:
    return {"type": "Person", "data": {"name": name, **data}}


def make(workspace: Workspace, name: str) -> list[str]:
    """A graph, and the ids of main's commits, the oldest first."""
    photo = "base64:" + base64.b64encode(PHOTO).decode()
    with Graph.init(workspace.directory / name, SCHEMA, durability="os") as graph:
        graph.load(
            [
                person("ana", age=41, photo=photo),
                person("bo", age=33),
                {"edge": "Knows", "from": "ana", "to": "bo", "data": {"id": "k1", "since": 2001}},
            ],
            actor="ana",
        )
        graph.tags.create("v1")
        graph.branches.create("work")
        graph.load([person("cy")], branch="work", actor="cy")
        graph.load([person("bo", age=34), person("dee")], actor="bo")
        graph.mutate('query cut() { delete Knows where from = "ana" }', actor="ana")
        return [commit.commit_id for commit in reversed(graph.commits())]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A directory with a graph that the tests only read."""
    workspace = Workspace(tmp_path_factory.mktemp("history"))
    workspace.ids = make(workspace, "g.omni")
    return workspace


@pytest.fixture
def own(tmp_path):
    """One to write to."""
    workspace = Workspace(tmp_path)
    workspace.ids = make(workspace, "g.omni")
    return workspace


def ask(workspace: Workspace, *arguments: str) -> str:
    done = workspace.run(*arguments, "--uri", "g.omni")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def ask_json(workspace: Workspace, *arguments: str):
    return json.loads(ask(workspace, *arguments, "--json"))


# -- all of them ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("diff",),
        ("diff", "v1", "--op", "changed"),
        ("changes", "poll", "--cursor", "c", "--start", "beginning"),
        ("changes", "poll", "--limit", "0"),
        ("changes", "poll", "--interval", "0"),
        ("changes", "baseline"),
        ("commit", "changes"),
        ("commit", "changes", "x", "--limit", "-1"),
        ("revert",),
        ("cherry-pick",),
        ("blame", "Person"),
        ("tag",),
        ("tag", "create"),
        ("tag", "create", "t", "--commit", "x", "--branch", "main"),
        ("blob", "get", "Person", "ana", "photo"),
        ("blob", "get", "thing", "Person", "ana", "photo"),
        ("blob", "get", "node", "Person", "ana", "photo", "--offset", "-1"),
        ("blob", "stat", "node", "Person", "ana", "photo", "--branch", "main", "--snapshot", "s"),
        ("index", "rebuild"),
    ],
)
def test_wrong_usage_exits_2(workspace, arguments):
    done = workspace.run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("diff", "nowhere"), "there is no branch, tag or commit 'nowhere'"),
        (("diff", "mian"), "hint: did you mean `main`?"),
        (("diff", "v1", "--type", "Cat"), "Cat"),
        (("changes", "poll", "--cursor", "nonsense"), "invalid cursor of a change feed"),
        (("changes", "poll", "--start", "later"), "invalid start 'later' of a change feed"),
        (("changes", "baseline", "--out", "no/where/b.jsonl"), "no/where"),
        (("commit", "changes", "01X"), "commit '01X' not found"),
        (("revert", "01X"), "commit '01X' not found"),
        (("cherry-pick", "01X"), "commit '01X' not found"),
        (("blame", "Person", "zoe"), "there is no Person 'zoe'"),
        (("tag", "delete", "v9"), "tag 'v9' not found"),
        (("tag", "delete", "v11"), "hint: did you mean `v1`?"),
        (("blob", "get", "node", "Person", "bo", "photo"), "Person.photo of 'bo' is null"),
        (("blob", "stat", "edge", "Person", "ana", "photo"), "edge:Person"),
        (("blob", "stat", "node", "Person", "ana", "age"), "is not a Blob"),
        (("index", "rebuild", "Cat"), "Cat"),
    ],
)
def test_what_fails_says_why(workspace, arguments, text):
    assert_fails(workspace.run(*arguments, "--uri", "g.omni", "--quiet"), text)


@pytest.mark.parametrize(
    "command",
    rotating(
        [
            "diff v1 --store g.omni --summary",
            "changes poll --store g.omni --json",
            "blame Person bo --store g.omni",
            "tag list --store g.omni",
            "index status g.omni",
        ],
        1,
        "history commands",
    ),
)
def test_a_process_says_the_same(workspace, command):
    arguments = command.split()
    done, same = workspace.process(*arguments), workspace.run(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (0, same.stdout, "")


# -- diff -----------------------------------------------------------------------------------------

DIFFERENCES = """\
node:Person +1 ~1 -0
edge:Knows +0 ~0 -1

~ node Person 'bo'  age: 33 → 34
+ node Person 'dee' {"name": "dee"}
- edge Knows 'k1' ana → bo {"since": 2001}
"""


def test_diff_shows_counts_and_then_every_row(workspace):
    assert ask(workspace, "diff", "v1") == DIFFERENCES
    assert ask(workspace, "diff", "v1", "--summary") == DIFFERENCES.partition("\n\n")[0] + "\n"
    assert ask(workspace, "diff", "v1", "--kind", "edge", "--op", "delete").splitlines()[2:] == [
        "- edge Knows 'k1' ana → bo {\"since\": 2001}"
    ]
    assert ask(workspace, "diff", "v1", "work", "--type", "Person").endswith(
        '+ node Person \'cy\' {"name": "cy"}\n'
    )
    assert ask(workspace, "diff", "main") == "no differences\n"


def test_the_json_of_a_diff(workspace):
    reported = ask_json(workspace, "diff", "v1", "work")
    assert list(reported) == ["from", "to", "stats", "tables", "schema_events", "changes"]
    assert reported["from"]["ref"] == "v1"
    assert (reported["to"]["ref"], reported["to"]["branch"]) == ("work", "work")
    assert reported["stats"] == {
        "inserts": 1,
        "updates": 0,
        "deletes": 0,
        "types_affected": ["Person"],
    }
    assert reported["tables"] == {"node:Person": {"inserted": 1, "updated": 0, "deleted": 0}}
    assert [list(change) for change in reported["changes"]] == [CHANGE_KEYS]


def test_a_script_learns_of_differences_by_the_exit_code(workspace):
    assert workspace.run("diff", "v1", "--uri", "g.omni", "--exit-code").returncode == 1
    assert workspace.run("diff", "v1", "v1", "--uri", "g.omni", "--exit-code").returncode == 0


def test_long_values_are_only_begun(workspace):
    line = ask(workspace, "commit", "changes", workspace.ids[1]).splitlines()[0]
    assert line.startswith('+ node Person \'ana\' {"age": 41, "name": "ana", "photo": "base64:')
    assert line.endswith("…}")
    assert len(line) < 200


# -- commit changes -------------------------------------------------------------------------------


def test_what_one_commit_changed_page_by_page(workspace):
    commit = workspace.ids[2]
    assert ask(workspace, "commit", "changes", commit) == (
        "~ node Person 'bo'  age: 33 → 34\n+ node Person 'dee' {\"name\": \"dee\"}\n"
    )
    first = ask_json(workspace, "commit", "changes", commit, "--limit", "1")
    assert list(first) == ["cause", "schema_events", "changes", "next_page_token"]
    assert list(first["cause"]) == COMMIT_KEYS
    assert (first["cause"]["graph_commit_id"], first["cause"]["actor_id"]) == (commit, "bo")
    assert [change["id"] for change in first["changes"]] == ["bo"]
    token = first["next_page_token"]
    last = ask_json(workspace, "commit", "changes", commit, "--page-token", token)
    assert [change["id"] for change in last["changes"]] == ["dee"]
    assert last["next_page_token"] is None
    human = ask(workspace, "commit", "changes", commit, "--limit", "1")
    assert human.endswith(f"next_page_token: {token}\n")


def test_a_commit_without_such_changes_is_not_followed_by_others(workspace):
    reported = ask_json(workspace, "commit", "changes", workspace.ids[2], "--kind", "edge")
    assert (reported["changes"], reported["next_page_token"]) == ([], None)
    assert ask_json(workspace, "commit", "changes", workspace.ids[0])["changes"] == []


def test_a_page_token_belongs_to_its_commit(workspace):
    first = ask_json(workspace, "commit", "changes", workspace.ids[2], "--limit", "1")
    done = workspace.run(
        "commit", "changes", workspace.ids[1], "--page-token", first["next_page_token"],
        "--uri", "g.omni",
    )  # fmt: skip
    assert_fails(done, "belongs to another commit")


# -- changes --------------------------------------------------------------------------------------


def test_a_feed_is_read_page_by_page(workspace):
    start = ("--start", f"after:{workspace.ids[0]}")
    page = ask_json(workspace, "changes", "poll", "--limit", "3", *start)
    assert list(page) == ["blocks", "cursor", "caught_up"]
    assert list(page["blocks"][0]) == [
        "commit_id",
        "branch",
        "version",
        "created_at",
        "actor",
        "schema_events",
        "changes",
        "is_complete",
    ]
    assert [block["commit_id"] for block in page["blocks"]] == [workspace.ids[1]]
    assert page["caught_up"] is False
    rest = ask_json(workspace, "changes", "poll", "--cursor", page["cursor"])
    assert [block["commit_id"] for block in rest["blocks"]] == workspace.ids[2:]
    assert rest["caught_up"] is True
    assert ask_json(workspace, "changes", "poll", "--start", "now")["blocks"] == []
    after = ask_json(workspace, "changes", "poll", "--start", f"after:{workspace.ids[2]}")
    assert [block["actor"] for block in after["blocks"]] == ["ana"]


def test_a_feed_for_people(workspace):
    lines = ask(workspace, "changes", "poll", "--op", "update", "--op", "delete").splitlines()
    assert [line.split()[:2] for line in lines if line.startswith("commit")] == [
        ["commit", workspace.ids[2]],
        ["commit", workspace.ids[3]],
    ]
    assert lines[0].endswith(" UTC by bo")
    assert lines[1] == "  ~ node Person 'bo'  age: 33 → 34"
    assert lines[-2].startswith("cursor: ")
    assert lines[-1] == "caught up"


def test_the_schema_is_shown_before_the_rows(own):
    with Graph.open(own.directory / "g.omni") as graph:
        graph.branches.delete("work")
        text = graph.schema.text()
        graph.schema.apply(text.replace("age: I32?", 'years: I64? @rename_from("age")'))
        apply = graph.commits()[0].commit_id
        graph.load([person("eve")])
    start = ("--start", f"after:{own.ids[3]}")
    lines = ask(own, "changes", "poll", *start).splitlines()
    assert lines[0].startswith(f"commit {apply}")
    events = [
        "! rename property 'Person.age' -> 'Person.years' on node 'Person'",
        "! widen property 'Person.years' of node 'Person' from I32? to I64?",
    ]
    assert lines[1:3] == [f"  {event}" for event in events]
    assert lines[4].startswith("  + node Person 'eve'")
    assert ask(own, "commit", "changes", apply).splitlines() == events
    assert ask(own, "diff", own.ids[3]).splitlines()[:3] == [*events, "node:Person +1 ~0 -0"]
    assert ask(own, "diff", own.ids[3], apply).splitlines() == events
    done = own.run("diff", own.ids[3], apply, "--uri", "g.omni", "--exit-code")
    assert done.returncode == 1
    reported = ask_json(own, "changes", "poll", *start, "--op", "schema")
    (event, _) = reported["blocks"][0]["schema_events"]
    assert event == {
        "kind": "rename_property",
        "type_kind": "node",
        "type_name": "Person",
        "from": "age",
        "to": "years",
        "type_id": event["type_id"],
        "property_id": event["property_id"],
    }
    assert len(reported["blocks"]) == 1
    shown = own.run("log", "g.omni", "--type", "Person", "--oneline").stdout
    assert apply in shown


def test_a_baseline_holds_the_cursor_for_what_follows(workspace, tmp_path):
    out = tmp_path / "base.jsonl"
    reported = ask_json(workspace, "changes", "baseline", "--branch", "work", "--out", str(out))
    assert list(reported) == [
        "uri",
        "branch",
        "out",
        "records",
        "snapshot_commit_id",
        "resume_cursor",
    ]
    lines = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert len(lines) == reported["records"] + 1 == 5
    assert lines[-1]["baseline"]["resume_cursor"] == reported["resume_cursor"]
    cursor = ("--branch", "work", "--cursor", reported["resume_cursor"])
    assert ask_json(workspace, "changes", "poll", *cursor)["blocks"] == []
    human = ask(workspace, "changes", "baseline", "--out", str(out))
    assert human.startswith(f"wrote 3 records of branch main to {out}\ncursor: ")


def test_a_feed_is_followed_until_it_is_interrupted(own):
    poll = ["changes", "poll", "--store", "g.omni", "--follow", "--json", "--interval", "0.1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "omnigraph.cli", *poll, "--start", f"after:{own.ids[2]}"],
        cwd=own.directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMNIGRAPH_HOME": str(own.directory)},
        text=True,
    )
    try:
        first = json.loads(process.stdout.readline())
        assert first["commit_id"] == own.ids[3]
        with Graph.open(own.directory / "g.omni") as graph:
            graph.load([person("eve")], actor="eve")
        second = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (second["actor"], [change["id"] for change in second["changes"]]) == ("eve", ["eve"])
    assert (process.returncode, rest) == (130, "")
    assert said.startswith("Error: interrupted")
    assert "Traceback" not in said
    resumed = ask_json(own, "changes", "poll", "--cursor", first["cursor"])
    assert [block["actor"] for block in resumed["blocks"]] == ["eve"]


# -- revert, cherry-pick, blame -------------------------------------------------------------------


def test_a_commit_is_taken_back_and_brought_again(own):
    preview = ask(own, "revert", own.ids[3], "--dry-run")
    assert preview == (
        f"would have reverted {own.ids[3]} into main: merged\n  edge:Knows +1 ~0 -0\n"
    )
    done = own.run("revert", own.ids[3], "--store", "g.omni", "--as", "zoe", "--json")
    reported = json.loads(done.stdout)
    assert list(reported) == [
        "source",
        "target",
        "outcome",
        "actor_id",
        "commit_id",
        "dry_run",
        "tables",
        "conflicts",
        "resolved",
    ]
    assert done.stderr == "omnigraph revert → g.omni (direct, local)\n"
    assert (reported["source"], reported["actor_id"]) == (own.ids[3], "zoe")
    assert ask(own, "diff", own.ids[2]) == "no differences\n"
    picked = own.run("cherry-pick", own.ids[3], "--uri", "g.omni", "--branch", "work", "--quiet")
    assert picked.stdout.startswith(f"picked {own.ids[3]} into work: merged\n")
    kinds = own.run("log", "g.omni", "--all", "--json", "--limit", "2").stdout
    assert {load["kind"] for load in json.loads(kinds)["commits"]} == {"revert", "cherry-pick"}


def test_a_commit_that_was_built_upon_conflicts_until_that_is_decided(own):
    with Graph.open(own.directory / "g.omni") as graph:
        graph.load([person("bo", age=99)])
    revert = ("revert", own.ids[2], "--uri", "g.omni", "--quiet")
    preview = own.run(*revert, "--dry-run")
    assert preview.returncode == 3
    assert "conflict node:Person/bo" in preview.stdout
    refused = own.run(*revert, "--conflicts", "c.jsonl")
    assert (refused.returncode, refused.stdout) == (3, "")
    assert refused.stderr.startswith("Error:")
    assert (own.directory / "c.jsonl").read_text("utf-8").count("\n") == 1
    assert own.run(*revert, "--resolve", "theirs").returncode == 0
    assert '"age": 33' in ask(own, "diff", own.ids[0], "--type", "Person")


def test_blame_names_the_commit_and_where_a_merge_took_it_from(own):
    with Graph.open(own.directory / "g.omni") as graph:
        graph.merge("work", actor="zoe")
        merge = graph.commits()[0].commit_id
        origin = graph.commits("work")[0].commit_id
    lines = ask(own, "blame", "Person", "cy").splitlines()
    assert lines[0].startswith(f"Person 'cy' written by {merge} branch=main actor=zoe ")
    assert lines[1].startswith(f"  merged from {origin} branch=work actor=cy ")
    reported = ask_json(own, "blame", "Knows", "k1")
    assert list(reported) == ["type_name", "id", "op", "commit", "origin"]
    assert (reported["op"], reported["commit"]["graph_commit_id"], reported["origin"]) == (
        "delete",
        own.ids[3],
        None,
    )
    assert list(reported["commit"]) == COMMIT_KEYS


# -- tags -----------------------------------------------------------------------------------------


def test_a_tag_is_made_moved_listed_and_deleted(own):
    made = own.run(
        "tag", "create", "v2", "--commit", own.ids[2], "--store", "g.omni", "--as", "zoe", "--json"
    )
    reported = json.loads(made.stdout)
    assert list(reported) == ["uri", "name", "graph_commit_id", "created_at", "actor_id"]
    assert (reported["name"], reported["graph_commit_id"]) == ("v2", own.ids[2])
    assert made.stderr == "omnigraph tag create → g.omni (direct, local)\n"
    again = own.run("tag", "create", "v2", "--uri", "g.omni", "--quiet")
    assert_fails(again, "tag 'v2' exists already\nhint: pass --move to move it")
    assert ask(own, "tag", "create", "v2", "--move", "--quiet") == f"tagged {own.ids[3]} as v2\n"
    assert ask(own, "tag", "list") == f"v1 {own.ids[1]}\nv2 {own.ids[3]}\n"
    listed = ask_json(own, "tag", "list")["tags"]
    assert [list(tag) for tag in listed] == [
        ["name", "graph_commit_id", "created_at", "actor_id"]
    ] * 2
    assert ask(own, "tag", "delete", "v2", "--quiet") == "deleted tag v2\n"
    assert ask_json(own, "tag", "delete", "v1", "--quiet") == {
        "uri": "g.omni",
        "name": "v1",
        "actor_id": None,
    }
    assert ask(own, "tag", "list") == ""


# -- blobs ----------------------------------------------------------------------------------------

BLOB = ("node", "Person", "ana", "photo")


def test_a_blob_goes_to_a_pipe_or_a_file_whole_or_in_part(workspace, tmp_path):
    out = tmp_path / "photo.gz"
    done = workspace.run("blob", "get", *BLOB, "--uri", "g.omni", "--out", str(out))
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"wrote 1024 bytes to {out}\n"
    assert out.read_bytes() == PHOTO
    workspace.run("blob", "get", *BLOB, "--uri", "g.omni", "--out", str(out), "--offset", "250",
              "--length", "10", "--snapshot", workspace.ids[1])  # fmt: skip
    assert out.read_bytes() == PHOTO[250:260]
    assert [path.name for path in tmp_path.iterdir()] == ["photo.gz"]
    part = ("--store", "g.omni", "--offset", "1000", "--branch", "work")
    piped = subprocess.run(
        [sys.executable, "-m", "omnigraph.cli", "blob", "get", *BLOB, *part],
        cwd=workspace.directory,
        capture_output=True,
        env={**os.environ, "OMNIGRAPH_HOME": str(workspace.directory)},
        check=True,
    )
    assert (piped.stdout, piped.stderr) == (PHOTO[1000:], b"")


def test_a_large_blob_is_written_piece_by_piece(own, monkeypatch):
    from omnigraph.cli.commands import blob

    monkeypatch.setattr(blob, "CHUNK_BYTES", 100)
    workspace = own.directory / "out.bin"
    own.run("blob", "get", *BLOB, "--uri", "g.omni", "--out", str(workspace), "--length", "1001")
    assert workspace.read_bytes() == PHOTO[:1001]
    own.run("blob", "get", *BLOB, "--uri", "g.omni", "--out", str(workspace), "--offset", "5000")
    assert workspace.read_bytes() == b""


@pytest.mark.own_process("it changes what this process takes for a terminal")
def test_a_blob_is_not_shown_on_a_terminal(workspace, monkeypatch):
    monkeypatch.setattr("omnigraph.cli.output.terminal.is_terminal", lambda stream: True)
    monkeypatch.setenv("NO_COLOR", "1")
    done = workspace.run("blob", "get", *BLOB, "--uri", "g.omni")
    assert_fails(done, "refusing to write binary data to a terminal")


def test_a_blob_that_cannot_be_written_names_the_file(workspace):
    done = workspace.run("blob", "get", *BLOB, "--uri", "g.omni", "--out", "no/where.bin")
    assert_fails(done, "cannot write 'no/where.bin': no such file or directory")


def test_what_is_known_of_a_blob(workspace):
    assert ask(workspace, "blob", "stat", *BLOB) == "size: 1024\nmanaged: yes\n"
    assert ask_json(workspace, "blob", "stat", *BLOB) == {
        "entity": "node",
        "type": "Person",
        "id": "ana",
        "property": "photo",
        "size": 1024,
        "managed": True,
        "uri": None,
    }


# -- indexes --------------------------------------------------------------------------------------


def test_indexes_are_shown_completed_and_built_anew(own):
    before = own.run("index", "status", "g.omni").stdout
    assert "node:Person" in before
    made = own.run("index", "ensure", "g.omni", "--as", "zoe")
    assert made.returncode == 0
    assert "built node:Person name (text)" in made.stdout
    assert made.stdout.splitlines()[-1].startswith("commit_id: ")
    assert made.stderr == "omnigraph index ensure → g.omni (direct, local)\n"
    again = own.run("index", "ensure", "g.omni", "--quiet")
    assert (again.stdout.splitlines()[0], again.stderr) == ("nothing to build", "")
    built = json.loads(
        own.run("index", "rebuild", "Person", "name", "--uri", "g.omni", "--json").stdout
    )
    assert list(built) == ["uri", "branch", "commit_id", "seconds", "built", "indexes"]
    assert {item["kind"] for item in built["built"]} == {"equality", "text"}
    status = json.loads(own.run("index", "status", "g.omni", "--json").stdout)
    assert {item["column"] for item in status["indexes"] if item["built"]} >= {"id", "name"}
    names = {
        item["kind"] for item in json.loads(own.run("log", "g.omni", "--json").stdout)["commits"]
    }
    assert "indexes" in names


def test_indexes_of_vectors_tell_what_they_find(tmp_path):
    workspace = Workspace(tmp_path)
    schema = "node Doc { name: String @key  v: Vector(4) @index }"
    with Graph.init(tmp_path / "v.omni", schema, durability="os") as graph:
        rows = [
            {"type": "Doc", "data": {"name": f"d{at}", "v": [at % 7, at % 5, at % 3, 1]}}
            for at in range(300)
        ]
        graph.load(rows)
        graph.indexes.ensure()
    plain = workspace.run("index", "status", "v.omni").stdout
    measured = workspace.run("index", "status", "v.omni", "--measure-recall").stdout
    assert " recall=" not in plain
    assert " recall=" in measured
    assert "  metric: " in plain
