"""Commands on the data of a graph, as a user meets them: load, query, mutate, branch, commit."""

from __future__ import annotations

import csv
import io
import json
import os
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph import Graph
from omnigraph.cli import files
from omnigraph.commit.failpoints import Failpoint
from omnigraph.errors import InputError
from tests.cli.workspace import Workspace, assert_fails
from tests.commit.deaths import die

pytestmark = pytest.mark.rotates(2)

SCHEMA = """\
node Person {
  name: String @key
  age: I32?
  tags: [String]?
}

edge Knows: Person -> Person
"""
DATA = """\
{"type":"Person","data":{"name":"Ana","age":41,"tags":["a","b"]}}
{"type":"Person","data":{"name":"Bo","age":33}}
{"type":"Person","data":{"name":"Cy, \\"the\\nlong\\"","age":null}}
{"edge":"Knows","from":"Ana","to":"Bo"}
"""
QUERIES = """\
query people() {
  match { $p: Person }
  return { $p.name, $p.age, $p.tags }
  order { $p.name }
}

query one($name: String) {
  match { $p: Person { name: $name } }
  return { $p.age }
}

query birthday($name: String, $age: I32) {
  update Person set { age: $age } where name = $name
}

query add($name: String) {
  insert Person { name: $name }
}
"""
ADD = "query add($name: String) { insert Person { name: $name } }"


def make(directory) -> Workspace:
    workspace = Workspace(directory)
    workspace.write("s.pg", SCHEMA)
    workspace.write("q.gq", QUERIES)
    workspace.write("d.jsonl", DATA)
    assert workspace.run("init", "--schema", "s.pg", "g.omni").stdout == "initialized g.omni\n"
    done = workspace.run("load", "g.omni", "--data", "d.jsonl", "--mode", "merge", "--as", "ana")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "omnigraph load → g.omni (direct, local)\n"
    assert done.stdout.startswith(
        "loaded g.omni on branch main with merge: "
        "3 nodes across 1 node types, 1 edges across 1 edge types\n"
    )
    return workspace


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A graph that the tests only read."""
    return make(tmp_path_factory.mktemp("kept"))


@pytest.fixture
def workspace(tmp_path):
    """A graph of its own."""
    return make(tmp_path)


def as_json(done):
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("}\n") or done.stdout.endswith("]\n")
    return json.loads(done.stdout)


def requested(workspace, *arguments: str, name: str = "people"):
    return workspace.run("query", name, "--query", "q.gq", "--store", "g.omni", *arguments)


# -- 5.1, 5.2: query ------------------------------------------------------------------------------


def test_rows_are_shown_as_a_table(kept):
    """The head line, padded cells, a line end shown as two characters."""
    assert requested(kept).stdout.splitlines() == [
        "3 rows from branch main via people",
        "p.name          | p.age | p.tags   ",
        "----------------+-------+----------",
        'Ana             | 41    | ["a","b"]',
        "Bo              | 33    | null     ",
        'Cy, "the\\nlong" | null  | null     ',
    ]


def test_rows_are_shown_in_every_text_format(kept):
    reported = as_json(requested(kept, "--json"))
    assert list(reported) == ["query_name", "target", "row_count", "columns", "rows"]
    assert reported["target"] == {"branch": "main", "snapshot": None}
    assert reported["rows"][0] == {"p.name": "Ana", "p.age": 41, "p.tags": ["a", "b"]}
    lines = [json.loads(line) for line in requested(kept, "--format", "jsonl").stdout.splitlines()]
    assert lines[0] == {
        "kind": "metadata",
        "query_name": "people",
        "target": {"branch": "main", "snapshot": None},
        "row_count": 3,
    }
    assert lines[1:] == reported["rows"]
    text = requested(kept, "--format", "csv").stdout
    rows = list(csv.reader(io.StringIO(text)))
    assert rows[0] == ["p.name", "p.age", "p.tags"]
    assert rows[1:] == [
        ["Ana", "41", '["a","b"]'],
        ["Bo", "33", "null"],
        ['Cy, "the\nlong"', "null", "null"],
    ]
    assert requested(kept, "--format", "kv").stdout.splitlines()[:6] == [
        "3 rows from branch main via people",
        "row 1",
        "p.name: Ana",
        "p.age: 41",
        'p.tags: ["a","b"]',
        "",
    ]


def test_rows_are_written_as_arrow_and_parquet(kept, tmp_path):
    out = tmp_path / "rows.parquet"
    assert requested(kept, "--format", "parquet", "--out", str(out)).stdout == ""
    assert pq.read_table(out).column("p.name").to_pylist()[0] == "Ana"
    out = tmp_path / "rows.arrow"
    assert requested(kept, "--format", "arrow", "--out", str(out)).returncode == 0
    assert pa.ipc.open_stream(out.read_bytes()).read_all().num_rows == 3


def test_no_rows_in_every_format(kept):
    none = ("--params", '{"name": "nobody"}')
    assert requested(kept, *none, name="one").stdout == (
        "0 rows from branch main via one\np.age\n-----\n"
    )
    assert requested(kept, *none, "--format", "kv", name="one").stdout.endswith("\n(no rows)\n")
    assert requested(kept, *none, "--format", "csv", name="one").stdout == "p.age\n"
    assert as_json(requested(kept, *none, "--json", name="one"))["rows"] == []


def test_a_query_comes_from_a_file_a_text_or_stdin(kept):
    text = "query q() { match { $p: Person } return { count($p) as n } }"
    for arguments, stdin in ((("-e", text), b""), (("--query", "-"), text.encode())):
        done = kept.run("query", "--store", "g.omni", *arguments, "--json", stdin=stdin)
        assert as_json(done)["rows"] == [{"n": 3}]
    params = kept.run(
        "query",
        "one",
        "--query",
        "q.gq",
        "--store",
        "g.omni",
        "--params-file",
        "-",
        "--json",
        stdin=b'{"name": "Bo"}',
    )
    assert as_json(params)["rows"] == [{"p.age": 33}]


def test_an_empty_branch_name_is_not_main(kept):
    text = "query q() { match { $p: Person } return { count($p) as n } }"
    for words in (("query", "-e", text), ("export",), ("log",)):
        done = kept.run(*words, "--store", "g.omni", "--branch", "")
        assert_fails(done, "the name of a branch cannot be empty")


def test_a_closed_stdin_is_told(monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(InputError, match="<stdin>: closed"):
        files.stdin_stream()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "provide a query name"),
        (("people",), "by-name invocation needs a server"),
        (("-e", " "), "must not be empty"),
        (("--query", "q.gq"), "multiple queries"),
        (("nothing", "--query", "q.gq"), "query 'nothing' not found"),
        (("add", "--query", "q.gq"), "mutat"),
        (("one", "--query", "q.gq"), "name"),
        (("one", "--query", "q.gq", "--params", "{"), "--params: not JSON (line 1"),
        (("one", "--query", "q.gq", "--params", "[1]"), "parameters must be a JSON object"),
        (("people", "--query", "q.gq", "--snapshot", "01NOTHING"), "'01NOTHING' not found"),
        (("people", "--query", "q.gq", "--branch", "nothing"), "nothing"),
        (("people", "--query", "q.gq", "--at", "soon"), "invalid time 'soon'"),
        (("people", "--query", "missing.gq"), "missing.gq"),
    ],
)
def test_a_query_that_cannot_be_asked_says_why(kept, arguments, text):
    assert_fails(kept.run("query", "--store", "g.omni", *arguments), text)


def test_a_mistake_in_a_query_is_shown_with_a_caret(kept):
    done = kept.run(
        "query", "--store", "g.omni", "-e", "query q() { match { $p: Robot } return { $p } }"
    )
    assert_fails(done, "Robot")
    assert "^" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("query", "--query", "a", "-e", "b"),
        ("query", "--params", "{}", "--params-file", "x"),
        ("query", "--branch", "a", "--snapshot", "b"),
        ("query", "--format", "xml"),
        ("query", "--json", "--format", "csv"),
        ("load", "g.omni", "--data", "d.jsonl"),
        ("load", "g.omni", "--mode", "merge"),
        ("load", "g.omni", "--data", "d.jsonl", "--mode", "upsert"),
        ("init", "g2.omni"),
        ("branch", "create"),
        ("branch", "merge"),
        ("branch",),
        ("commit", "show"),
        ("schema", "apply", "g.omni"),
        ("mutate", "--query", "a", "-e", "b"),
        ("repair", "g.omni", "--force"),
        ("snapshot", "a", "b"),
        ("export", "--format", "xml"),
        ("optimize", "--engine", "abacus"),
    ],
)
def test_wrong_usage_exits_2_and_prints_no_result(kept, arguments):
    done = kept.run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")


# -- 6.1: mutate ----------------------------------------------------------------------------------


def test_a_mutation_says_what_it_changed(workspace):
    done = workspace.run(
        "mutate",
        "birthday",
        "--query",
        "q.gq",
        "--store",
        "g.omni",
        "--as",
        "bo",
        "--params",
        '{"name": "Ana", "age": 42}',
    )
    lines = done.stdout.splitlines()
    assert lines[:2] == ["changed main via birthday: 1 nodes, 0 edges", "actor_id: bo"]
    reported = as_json(
        workspace.run(
            "mutate",
            "-e",
            ADD,
            "--store",
            "g.omni",
            "--params",
            '{"name": "Di"}',
            "--json",
            "--quiet",
        )
    )
    assert list(reported) == [
        "branch",
        "query_name",
        "affected_nodes",
        "affected_edges",
        "actor_id",
        "commit_id",
    ]
    assert (reported["affected_nodes"], reported["actor_id"]) == (1, None)
    # A lost race has an exit code of its own; what is not there fails as usual.
    old = json.loads(workspace.run("commit", "list", "g.omni", "--json").stdout)["commits"][-1]
    lost = workspace.run(
        "mutate",
        "-e",
        ADD,
        "--store",
        "g.omni",
        "--params",
        '{"name": "Eve"}',
        "--if-commit",
        old["graph_commit_id"],
    )
    assert (lost.returncode, lost.stdout) == (4, "")
    assert_fails(workspace.run("mutate", "-e", ADD, "--store", "g.omni", "--quiet"), "name")
    assert_fails(workspace.run("mutate", "add", "--store", "g.omni"), "by-name invocation")
    assert_fails(workspace.run("mutate", "-e", ADD, "--store", "no.omni", "--quiet"), "no graph at")


def test_a_mutation_from_a_pipe_is_read_once(workspace):
    """A shell passes ``<(...)`` as a pipe; without NAME the text is needed twice."""
    pipe = workspace.directory / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(ADD,), daemon=True)
    writer.start()
    params = ("--params", '{"name": "Piped"}')
    done = workspace.run(
        "mutate", "--query", "pipe", "--store", "g.omni", "--quiet", *params, "--json"
    )
    writer.join(60)
    assert json.loads(done.stdout)["query_name"] == "add"


# -- 6.2, 6.3: load and ingest --------------------------------------------------------------------


def test_a_load_can_go_to_a_new_branch(workspace):
    reported = as_json(
        workspace.run(
            "load",
            "g.omni",
            "--data",
            "-",
            "--mode",
            "append",
            "--branch",
            "review/x",
            "--from",
            "main",
            "--json",
            "--quiet",
            stdin=b'{"type":"Person","data":{"name":"Dora","shoe":44}}',
        )
    )
    assert list(reported)[:9] == [
        "uri",
        "branch",
        "mode",
        "base_branch",
        "branch_created",
        "nodes_loaded",
        "edges_loaded",
        "node_types_loaded",
        "edge_types_loaded",
    ]
    assert (reported["branch_created"], reported["nodes_loaded"], reported["ignored"]) == (
        True,
        1,
        {"Person.shoe": 1},
    )
    assert workspace.run("branch", "list", "--uri", "g.omni").stdout == "main\nreview/x\n"
    assert_fails(
        workspace.run(
            "load", "g.omni", "--data", "d.jsonl", "--mode", "merge", "--branch", "no", "--quiet"
        ),
        "no",
    )


def test_bad_records_refuse_a_load_or_are_set_aside(workspace):
    workspace.write("bad.jsonl", DATA + '{"type":"Person","data":{"age":1}}\n')
    load = ("load", "g.omni", "--data", "bad.jsonl", "--mode", "merge", "--quiet")
    done = workspace.run(*load)
    assert_fails(done, "bad.jsonl")
    reported = as_json(workspace.run(*load, "--dry-run", "--rejects", "r.jsonl", "--json"))
    assert (reported["dry_run"], reported["rejected"], reported["commit_id"]) == (True, 1, None)
    done = workspace.run(*load, "--rejects", "r.jsonl")
    assert "rejected 1 records (see r.jsonl)" in done.stdout
    assert "name" in (workspace.directory / "r.jsonl").read_text("utf-8")


def test_local_files_are_read_by_a_flag(workspace):
    workspace.write("b.pg", "node Doc { slug: String @key  body: Blob? }")
    workspace.run("init", "--schema", "b.pg", "b.omni")
    workspace.write("secret", "hi")
    uri = (workspace.directory / "secret").as_uri()
    workspace.write("b.jsonl", json.dumps({"type": "Doc", "data": {"slug": "a", "body": uri}}))
    add = 'query add($b: Blob) { insert Doc { slug: "a", body: $b } }'
    params = json.dumps({"b": uri})
    for call in (
        ("load", "b.omni", "--data", "b.jsonl", "--mode", "merge", "--quiet"),
        ("ingest", "b.omni", "--data", "b.jsonl", "--quiet"),
        ("mutate", "-e", add, "--store", "b.omni", "--params", params, "--quiet"),
    ):
        done = workspace.run(*call)
        assert done.returncode == 1
        assert "a Blob that names a local file is not read\nhint: pass --allow-local-files" in (
            done.stderr
        )
        assert workspace.run(*call, "--allow-local-files").returncode == 0
        with Graph.open(workspace.directory / "b.omni") as graph:
            assert graph.snapshot().read_blob("Doc", "a", "body") == b"hi"
            graph.mutate('query q() { delete Doc where slug = "a" }')


def test_the_old_form_of_load_still_works(workspace):
    done = workspace.run("ingest", "g.omni", "--data", "d.jsonl", "--branch", "old", "--json")
    assert "`omnigraph ingest` is deprecated; use `omnigraph load` instead" in done.stderr
    reported = json.loads(done.stdout)
    assert list(reported) == [
        "uri",
        "branch",
        "base_branch",
        "branch_created",
        "mode",
        "tables",
        "actor_id",
    ]
    done = workspace.run("ingest", "g.omni", "--data", "d.jsonl", "--branch", "old", "--quiet")
    assert done.stdout.splitlines()[0] == (
        "ingested g.omni into branch old from main with merge (branch exists)"
    )


# -- 5.4 to 5.8: looking --------------------------------------------------------------------------


def test_a_snapshot_lists_the_tables(kept):
    lines = kept.run("snapshot", "g.omni").stdout.splitlines()
    assert lines[0] == "branch: main"
    assert lines[2] == "internal_schema_version: 4"
    assert [line.split()[0] for line in lines[3:]] == ["edge:Knows", "node:Person"]
    assert lines[4].endswith("branch=main rows=3")
    reported = as_json(kept.run("snapshot", "g.omni", "--json"))
    assert list(reported) == ["branch", "manifest_version", "internal_schema_version", "tables"]
    assert reported["tables"][1] == {
        "table_key": "node:Person",
        "table_path": "nodes/40d76f1f51639ec0",
        "table_version": reported["tables"][1]["table_version"],
        "table_branch": None,
        "row_count": 3,
    }
    assert_fails(kept.run("snapshot", "g.omni", "--branch", "nothing"), "nothing")


def test_an_export_can_be_loaded_again(kept, tmp_path):
    exported = kept.run("export", "g.omni").stdout
    assert [list(json.loads(line)) for line in exported.splitlines()] == [
        *[["type", "data"]] * 3,
        ["edge", "from", "to", "data"],
    ]
    other = Workspace(tmp_path)
    other.write("s.pg", SCHEMA)
    other.run("init", "--schema", "s.pg", "h.omni")
    done = other.run(
        "load", "h.omni", "--data", "-", "--mode", "overwrite", stdin=exported.encode()
    )
    assert done.returncode == 0, done.stderr
    assert other.run("export", "h.omni").stdout == exported
    assert kept.run("export", "g.omni", "--type", "Knows").stdout.count("\n") == 1
    assert kept.run("export", "g.omni", "--table", "node:Person").stdout.count("\n") == 3
    assert_fails(kept.run("export", "g.omni", "--type", "No"), "unknown export type 'No'")
    assert_fails(kept.run("export", "g.omni", "--table", "x"), "unknown export table 'x'")
    old = kept.run("export", "g.omni", "--jsonl")
    assert old.stdout == exported
    assert old.stderr.startswith("warning: `omnigraph export --jsonl` is deprecated")
    assert kept.run("export", "g.omni", "--out", str(tmp_path / "o.jsonl")).stdout == ""
    assert (tmp_path / "o.jsonl").read_text("utf-8") == exported


def test_commits_are_listed_filtered_and_shown(kept):
    listed = kept.run("commit", "list", "g.omni").stdout.splitlines()
    assert listed[-2].endswith("actor=ana")
    reported = as_json(kept.run("commit", "list", "g.omni", "--json", "--filter", "actor=ana"))
    keys = [
        "graph_commit_id",
        "manifest_branch",
        "manifest_version",
        "parent_commit_id",
        "merged_parent_commit_id",
        "actor_id",
        "created_at",
    ]
    assert {tuple(commit) for commit in reported["commits"]} == {tuple(keys)}
    recovered = kept.run("commit", "list", "g.omni", "--filter", "actor=omnigraph:recovery")
    assert (recovered.returncode, recovered.stdout) == (0, "")
    shown = kept.run("commit", "show", "--uri", "g.omni", reported["commits"][0]["graph_commit_id"])
    assert shown.stdout.splitlines()[:2] == [
        f"graph_commit_id: {reported['commits'][0]['graph_commit_id']}",
        "manifest_branch: main",
    ]
    assert_fails(kept.run("commit", "show", "--uri", "g.omni", "01NO"), "commit '01NO' not found")
    assert_fails(
        kept.run("commit", "list", "g.omni", "--filter", "size=1"), "invalid filter 'size=1'"
    )


def test_the_schema_is_printed_as_it_was_given(kept):
    assert kept.run("schema", "show", "g.omni").stdout == f"{SCHEMA}\n"
    assert as_json(kept.run("schema", "get", "g.omni", "--json")) == {"schema_source": SCHEMA}


# -- 6.4: branches --------------------------------------------------------------------------------


def test_branches_are_made_merged_and_deleted(workspace):
    uri = ("--uri", "g.omni")
    done = workspace.run("branch", "create", *uri, "x", "--json", "--as", "ana")
    assert json.loads(done.stdout) == {
        "uri": "g.omni",
        "from": "main",
        "name": "x",
        "actor_id": "ana",
    }
    assert done.stderr == "omnigraph branch create → g.omni (direct, local)\n"
    assert_fails(workspace.run("branch", "create", *uri, "x", "--quiet"), "'x'")
    birthday = ("mutate", "birthday", "--query", "q.gq", "--store", "g.omni", "--quiet", "--params")
    workspace.run(*birthday, '{"name": "Ana", "age": 50}', "--branch", "x")
    workspace.run(*birthday, '{"name": "Ana", "age": 60}')
    refused = workspace.run("branch", "merge", *uri, "x", "--quiet")
    assert (refused.returncode, refused.stdout) == (3, "")
    assert "merge conflicts: node:Person:Ana (divergent_update)" in refused.stderr
    preview = workspace.run("branch", "merge", *uri, "x", "--dry-run", "--conflicts", "c.jsonl")
    assert preview.returncode == 3
    assert "node:Person:Ana (divergent_update)" in preview.stdout
    done = workspace.run(
        "branch", "merge", *uri, "x", "--resolve", "theirs", "--json", "--delete-branch"
    )
    reported = as_json(done)
    assert list(reported)[:4] == ["source", "target", "outcome", "actor_id"]
    assert (reported["outcome"], reported["resolved"]) == ("merged", 1)
    assert workspace.run("branch", "list", *uri).stdout == "main\n"
    workspace.run("branch", "create", *uri, "y", "--quiet")
    done = workspace.run("branch", "merge", *uri, "y", "--quiet")
    assert done.stdout == "merged y into main: already_up_to_date\n"
    assert workspace.run("branch", "delete", *uri, "y", "--quiet").stdout == "deleted branch y\n"
    assert_fails(
        workspace.run("branch", "delete", *uri, "main", "--quiet"), "cannot delete branch 'main'"
    )


# -- 6.5 to 6.7: schema ---------------------------------------------------------------------------


def test_a_schema_is_planned_and_applied(workspace):
    workspace.write("new.pg", SCHEMA.replace("age: I32?", "age: I32?\n  born: Date?"))
    step = "add property 'Person.born' (Date?) on node 'Person'"
    done = workspace.run("schema", "plan", "g.omni", "--schema", "new.pg")
    assert done.stdout == f"schema plan for g.omni\nsupported: yes\n- {step}\n"
    reported = as_json(workspace.run("schema", "plan", "g.omni", "--schema", "new.pg", "--json"))
    assert list(reported) == ["uri", "supported", "step_count", "steps"]
    done = workspace.run("schema", "apply", "g.omni", "--schema", "new.pg")
    lines = done.stdout.splitlines()
    assert lines[:3] == ["schema apply for g.omni", "supported: yes", "applied: yes"]
    assert lines[4] == f"- {step}"
    reported = as_json(workspace.run("schema", "apply", "g.omni", "--schema", "new.pg", "--json"))
    assert list(reported)[:6] == [
        "uri",
        "supported",
        "applied",
        "step_count",
        "manifest_version",
        "steps",
    ]
    assert (reported["applied"], reported["steps"]) == (False, [])
    workspace.write("bad.pg", SCHEMA.replace("age: I32?", "age: Bool?"))
    assert_fails(workspace.run("schema", "apply", "g.omni", "--schema", "bad.pg", "--quiet"), "age")
    workspace.write("wrong.pg", "node {")
    assert_fails(
        workspace.run("schema", "apply", "g.omni", "--schema", "wrong.pg", "--quiet"), "wrong.pg"
    )


def test_a_schema_that_breaks_stored_queries_is_applied_only_on_request(workspace):
    (workspace.directory / "stored").mkdir()
    text = "query ages() { match { $p: Person } return { $p.age } }"
    workspace.write("stored/ages.gq", text)
    workspace.write("new.pg", SCHEMA.replace("age: I32?", "years: I32?"))
    change = ("schema", "apply", "g.omni", "--schema", "new.pg", "--queries", "stored", "--quiet")
    assert_fails(workspace.run(*change), "breaks stored queries: 'ages'")
    assert "! query ages does not fit" in workspace.run(*change, "--dry-run").stdout
    reported = as_json(workspace.run(*change, "--allow-broken-queries", "--json"))
    assert (reported["applied"], reported["broken_queries"]) == (True, ["ages"])


# -- 7: creating and looking after ----------------------------------------------------------------


def test_a_graph_is_made_once(workspace):
    again = workspace.run("init", "--schema", "s.pg", "g.omni")
    assert_fails(again, "graph already initialized at 'g.omni'")
    assert "; --force starts over" in again.stderr
    workspace.write("wrong.pg", "node {")
    assert_fails(workspace.run("init", "--schema", "wrong.pg", "new.omni"), "wrong.pg:1:6")
    assert not (workspace.directory / "new.omni").exists()
    assert_fails(
        workspace.run("init", "--schema", "s.pg", "http://127.0.0.1:1/g"),
        "direct (storage-native) command and needs direct storage access",
    )


def test_optimize_and_repair_report_every_table(workspace):
    done = workspace.run("optimize", "g.omni")
    assert done.stdout.splitlines()[0] == "optimize g.omni — 3 tables"
    reported = as_json(workspace.run("optimize", "g.omni", "--json", "--quiet"))
    assert list(reported) == ["uri", "tables"]
    assert list(reported["tables"][0])[:8] == [
        "table_key",
        "fragments_removed",
        "fragments_added",
        "committed",
        "skipped",
        "manifest_version",
        "lance_head_version",
        "pending_indexes",
    ]
    assert not any(table["committed"] for table in reported["tables"])
    done = workspace.run("repair", "g.omni")
    assert done.stdout.splitlines()[0] == "repair g.omni — preview mode, 2 tables"
    reported = as_json(workspace.run("repair", "g.omni", "--confirm", "--json", "--quiet"))
    assert list(reported) == ["uri", "confirm", "force", "manifest_version", "tables"]
    assert [table["action"] for table in reported["tables"]] == ["no_op", "no_op"]


def test_queries_are_linted_against_a_graph(kept):
    reported = as_json(kept.run("lint", "g.omni", "--query", "q.gq", "--json"))
    assert reported["schema_source"] == {"kind": "graph", "uri": "g.omni"}
    assert reported["queries_processed"] == 4


def test_a_plan_is_shown_and_measured(kept):
    done = kept.run("explain", "people", "--query", "q.gq", "--store", "g.omni")
    assert "expected:" in done.stdout
    reported = as_json(
        kept.run("explain", "people", "--query", "q.gq", "--store", "g.omni", "--analyze", "--json")
    )
    assert reported["kind"] == "read"


def test_reading_an_earlier_state(workspace):
    commit = json.loads(workspace.run("commit", "list", "g.omni", "--json").stdout)["commits"][0]
    workspace.run(
        "mutate", "-e", ADD, "--store", "g.omni", "--params", '{"name": "Zoe"}', "--quiet"
    )
    reported = as_json(requested(workspace, "--snapshot", commit["graph_commit_id"], "--json"))
    assert reported["row_count"] == 3
    assert reported["target"] == {"branch": None, "snapshot": commit["graph_commit_id"]}
    head = requested(workspace, "--snapshot", commit["graph_commit_id"]).stdout.splitlines()[0]
    assert head == f"3 rows from snapshot {commit['graph_commit_id']} via people"


def test_what_a_recovery_did_is_found_by_its_actor(workspace):
    """A writer dies after its tables, the next command finishes it."""
    with Graph.open(workspace.directory / "g.omni") as graph:
        die(graph, Failpoint.WRITE_AFTER_TABLES, {"Person": pa.table({"name": ["Gus"]})})
    done = workspace.run("mutate", "-e", ADD, "--store", "g.omni", "--params", '{"name": "Hal"}')
    assert "an interrupted write was recovered first (RolledForward)" in done.stderr
    recovery = ("commit", "list", "g.omni", "--filter", "actor=omnigraph:recovery")
    assert workspace.run(*recovery).stdout.count("actor=omnigraph:recovery\n") == 1
    reported = as_json(workspace.run(*recovery, "--json"))
    assert [commit["actor_id"] for commit in reported["commits"]] == ["omnigraph:recovery"]
    assert "completes" in reported["commits"][0]
