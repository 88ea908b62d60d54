"""The ``omnigraph`` command as a user meets it: a process with arguments, files and streams."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.cli.workspace import Workspace, assert_fails

SCHEMA = """\
node Person {
  name: String @key
  age: I32?
}

edge Knows: Person -> Person
"""
QUERIES = """\
query friends($name: String) {
  match {
    $p: Person { name: $name }
    $p knows $f
  }
  return { $f.name }
}

query birthday($name: String, $age: I32) {
  update Person set { age: $age } where name = $name
}
"""
LINT = ("lint", "--schema", "s.pg", "--query", "q.gq")
EXPLAIN = ("explain", "friends", "--schema", "s.pg", "--query", "q.gq")
PLAN = ("schema", "plan", "s.pg", "--schema", "new.pg")


@pytest.fixture
def workspace(tmp_path):
    workspace = Workspace(tmp_path)
    workspace.write("s.pg", SCHEMA)
    workspace.write("q.gq", QUERIES)
    return workspace


# -- the program ----------------------------------------------------------------------------------


def test_version_prints_two_lines(workspace):
    assert workspace.run("version").stdout == "omnigraph 0.1.0\ninternal-schema 4\n"


@pytest.mark.parametrize("flag", ["-v", "--version"])
def test_the_version_flag_prints_one_line(workspace, flag):
    done = workspace.run(flag)
    assert (done.returncode, done.stdout) == (0, "omnigraph 0.1.0\n")


@pytest.mark.parametrize("arguments", [("--help",), ("-h",), ("help",)])
def test_help_ends_with_the_legend(workspace, arguments):
    done = workspace.run(*arguments)
    assert done.returncode == 0
    legend = done.stdout.split("COMMANDS BY CAPABILITY:")[1]
    words = [line.split()[0] for line in legend.splitlines() if line[2:3].strip()]
    assert words == ["any", "served", "direct", "control", "local"]


def test_help_of_a_command(workspace):
    assert (
        workspace.run("help", "schema", "plan").stdout
        == workspace.run("schema", "plan", "-h").stdout
    )
    assert "--allow-data-loss" in workspace.run("help", "schema", "plan").stdout


def test_help_names_what_counts_when_an_option_is_not_given(workspace):
    reported = workspace.run("help", "branch", "merge").stdout
    assert "branch to merge into (default: main)" in reported
    assert "after the merge\n" in reported


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (("brnch",), "omnigraph: error: unknown command 'brnch'; did you mean branch?"),
        (("branch", "lst"), "omnigraph branch: error: unknown command 'lst'; did you mean list?"),
        (("xyz",), "omnigraph: error: unknown command 'xyz'; omnigraph --help lists them"),
    ],
)
def test_an_unknown_command_is_told_the_nearest_one(workspace, arguments, reported):
    assert workspace.run(*arguments).stderr.splitlines()[-1] == reported


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nothing",),
        ("-V",),
        ("version", "more"),
        ("lint", "--sch", "s.pg"),
        ("fmt",),
        ("fmt", "--check", "--stdout", "s.pg"),
        ("fmt", "--kind", "sql", "s.pg"),
        ("explain", "--sch", "s.pg"),
        ("schema",),
        ("schema", "plan", "s.pg"),
    ],
)
def test_wrong_usage_exits_2(workspace, arguments):
    done = workspace.run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("usage: omnigraph")


@pytest.mark.parametrize(
    ("old", "arguments"),
    [
        ("check", ("check",)),
        ("query lint", ("query", "lint")),
        ("query check", ("query", "check")),
    ],
)
def test_an_old_spelling_works_with_a_warning(workspace, old, arguments):
    done = workspace.run(*arguments, *LINT[1:])
    assert done.returncode == 0
    assert done.stdout == workspace.run(*LINT).stdout
    assert done.stderr == (
        f"warning: `omnigraph {old}` is deprecated; use `omnigraph lint` instead\n"
    )


# -- files that cannot be used --------------------------------------------------------------------


@pytest.mark.parametrize("command", [LINT, EXPLAIN, PLAN, ("fmt", "s.pg")])
def test_a_missing_file_is_one_line(workspace, command):
    (workspace.directory / "s.pg").unlink()
    done = workspace.run(*command)
    assert_fails(done, "s.pg: no such file or directory")
    assert done.stderr.splitlines()[1:] in ([], ["code: bad_input"])


def test_what_is_missing_is_said(workspace):
    assert_fails(workspace.run("lint", "--query", "q.gq"), "no graph addressed")
    assert_fails(workspace.run("explain", "--schema", "s.pg"), "provide a query name")


def test_a_directory_is_not_a_text(workspace):
    (workspace.directory / "dir.pg").mkdir()
    assert_fails(workspace.run("fmt", "dir.pg"), "dir.pg: is a directory")


def test_a_text_that_is_not_utf8_is_refused(workspace):
    workspace.write("s.pg", b"node A {}\xff")
    assert_fails(workspace.run(*LINT), "s.pg: not UTF-8 text (byte 0xff at offset 9)")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_one_line(workspace):
    (workspace.directory / "s.pg").chmod(0)
    assert_fails(workspace.run(*LINT), "s.pg: permission denied")


def test_a_name_with_odd_bytes_is_shown_escaped(workspace):
    assert_fails(workspace.run("fmt", os.fsdecode(b"\xff.pg")), "\\udcff.pg: no such file")


def test_another_locale_changes_nothing(workspace):
    workspace.write("s.pg", '// ä → ☃\nnode "')
    assert workspace.run(*LINT, PYTHONIOENCODING="ascii").stderr == workspace.run(*LINT).stderr


def test_a_reader_that_leaves_is_no_failure_to_talk_about(workspace):
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "omnigraph.cli", *EXPLAIN],
            cwd=workspace.directory,
            stdout=pipe,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (141, "")


def test_an_input_that_is_closed_is_one_line(workspace):
    assert_fails(shell(workspace, "fmt - --kind pg <&-"), "<stdin>: closed")


def shell(workspace: Workspace, command: str) -> subprocess.CompletedProcess[str]:
    """Run the command with redirections."""
    return subprocess.run(
        f'"{sys.executable}" -m omnigraph.cli {command}',
        shell=True,
        cwd=workspace.directory,
        capture_output=True,
        text=True,
        check=False,
    )


def test_ctrl_c_is_one_line(workspace):
    os.mkfifo(workspace.directory / "slow.pg")
    process = subprocess.Popen(
        [sys.executable, "-m", "omnigraph.cli", "fmt", "slow.pg"],
        cwd=workspace.directory,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process, open_when_read(workspace.directory / "slow.pg", process):
        err = interrupt(process)
    assert (process.returncode, err) == (130, "Error: interrupted\n")


def interrupt(process: subprocess.Popen[str]) -> str:
    """Press Ctrl-C until it is heard: a signal just before a blocking read is only noted."""
    for _ in range(30):
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=2)[1]
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError("the command does not end")


def open_when_read(fifo: Path, process: subprocess.Popen[str]) -> BinaryIO:
    """The writing end of a named pipe, as soon as the process has opened the other."""
    while True:
        try:
            return os.fdopen(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK), "wb")
        except OSError:
            assert process.poll() is None, "the command ended without reading"


# -- lint -----------------------------------------------------------------------------------------


def test_lint_prints_one_line_per_query(workspace):
    done = workspace.run(*LINT)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "OK    query `friends` (read)",
        "OK    query `birthday` (mutation)",
        "INFO  Lint complete: 2 queries processed (0 error(s), 0 warning(s), 0 info item(s))",
    ]


def test_lint_warns(workspace):
    workspace.write("q.gq", 'query rename() { update Person set { age: 1 } where name = "A" }')
    lines = workspace.run(*LINT).stdout.splitlines()
    assert lines[1] == (
        "WARN  query `rename`: mutation declares no params; hardcoded mutations are easy to miss"
    )
    assert lines[-1].endswith("(0 error(s), 1 warning(s), 0 info item(s))")


def test_lint_reports_what_no_update_sets(workspace):
    workspace.write("s.pg", SCHEMA.replace("age: I32?", "age: I32?\n  city: String?"))
    done = workspace.run(*LINT)
    assert done.returncode == 0
    assert "WARN  Person.city exists in schema but no update query sets it" in done.stdout


def test_lint_fails_on_a_wrong_query_and_checks_the_others(workspace):
    workspace.write("q.gq", QUERIES.replace("$f.name", "$f.nam"))
    done = workspace.run(*LINT)
    assert done.returncode == 1
    assert "ERROR query `friends`: type error: T6: " in done.stdout
    assert "OK    query `birthday` (mutation)" in done.stdout
    assert "^^^" in done.stderr


def test_lint_of_a_text_that_does_not_parse_is_one_finding(workspace):
    workspace.write("q.gq", "query (")
    done = workspace.run(*LINT, "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert (report["status"], report["queries_processed"], report["results"]) == ("error", 0, [])
    assert [finding["code"] for finding in report["findings"]] == ["Q000"]


def test_the_lint_report_as_json(workspace):
    done = workspace.run(*LINT, "--json")
    report = json.loads(done.stdout)
    assert list(report) == [
        "status",
        "schema_source",
        "query_path",
        "queries_processed",
        "errors",
        "warnings",
        "infos",
        "results",
        "findings",
        "diagnostics",
    ]
    assert report["status"] == "ok"
    assert report["schema_source"] == {"kind": "file", "path": "s.pg"}
    assert report["query_path"] == "q.gq"
    assert report["results"][0]["name"] == "friends"
    assert report["results"][0]["kind"] == "read"
    assert report["findings"] == []
    assert done.stdout == json.dumps(report, indent=2, ensure_ascii=False) + "\n"


def test_lint_with_a_wrong_schema_fails_with_a_caret(workspace):
    workspace.write("s.pg", "node Person { name: Strin }")
    done = workspace.run(*LINT, "--json")
    assert_fails(done, "s.pg:1:21: ")
    assert "^^^^^" in done.stderr


def test_lint_of_a_schema_alone(workspace):
    done = workspace.run("lint", "--schema", "s.pg")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("INFO  Lint complete: ")


def test_lint_of_a_wrong_schema_alone(workspace):
    workspace.write("s.pg", "node Person { name: Strin  age: I3 }")
    done = workspace.run("lint", "--schema", "s.pg", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert (report["status"], report["errors"]) == ("error", 2)
    human = workspace.run("lint", "--schema", "s.pg")
    assert human.returncode == 1
    assert human.stderr.count("^^") >= 2


# -- fmt ------------------------------------------------------------------------------------------


def test_fmt_rewrites_in_place_and_is_then_content(workspace):
    path = workspace.write("s.pg", "node  Person{name:String @key}")
    path.chmod(0o640)
    assert workspace.run("fmt", "--check", "s.pg").stdout == "s.pg\n"
    assert workspace.run("fmt", "s.pg", "q.gq").returncode == 0
    assert path.read_text("utf-8").startswith("node Person {")
    assert path.stat().st_mode & 0o777 == 0o640
    done = workspace.run("fmt", "--check", "s.pg", "q.gq")
    assert (done.returncode, done.stdout) == (0, "")
    assert sorted(os.listdir(workspace.directory)) == ["q.gq", "s.pg"]


def test_fmt_check_changes_nothing(workspace):
    text = "node  Person{name:String @key}"
    path = workspace.write("s.pg", text)
    done = workspace.run("fmt", "--check", "s.pg", "q.gq")
    assert (done.returncode, done.stdout) == (1, "s.pg\n")
    assert path.read_text("utf-8") == text


def test_fmt_keeps_a_symbolic_link(workspace):
    target = workspace.write("real.pg", "node  A{}")
    (workspace.directory / "link.pg").symlink_to("real.pg")
    assert workspace.run("fmt", "link.pg").returncode == 0
    assert (workspace.directory / "link.pg").is_symlink()
    assert target.read_text("utf-8") != "node  A{}"


def test_fmt_prints_with_stdout(workspace):
    path = workspace.write("s.pg", "node  A{}")
    done = workspace.run("fmt", "--stdout", "s.pg")
    assert done.stdout.startswith("node A")
    assert path.read_text("utf-8") == "node  A{}"


def test_fmt_reads_stdin(workspace):
    done = workspace.run("fmt", "-", "--kind", "gq", stdin=QUERIES.encode())
    assert (done.returncode, done.stdout) == (0, workspace.run("fmt", "--stdout", "q.gq").stdout)


def test_fmt_wants_to_know_the_language(workspace):
    workspace.write("text.txt", SCHEMA)
    assert_fails(workspace.run("fmt", "-"), "<stdin>: neither a .pg nor a .gq file")
    assert_fails(workspace.run("fmt", "text.txt"), "text.txt: neither a .pg nor a .gq file")
    assert workspace.run("fmt", "text.txt", "--kind", "pg").returncode == 0


def test_fmt_leaves_a_broken_file_and_goes_on(workspace):
    broken = workspace.write("broken.pg", "node {")
    path = workspace.write("s.pg", "node  A{}")
    done = workspace.run("fmt", "broken.pg", "s.pg")
    assert_fails(done, "broken.pg:1:6: ")
    assert broken.read_text("utf-8") == "node {"
    assert path.read_text("utf-8") != "node  A{}"


# -- explain --------------------------------------------------------------------------------------


def test_explain_shows_a_plan(workspace):
    done = workspace.run(*EXPLAIN)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Knows" in done.stdout


def test_explain_as_json_is_one_document(workspace):
    done = workspace.run(*EXPLAIN, "--json")
    plan = json.loads(done.stdout)
    assert plan["name"] == "friends"
    assert done.stdout == json.dumps(plan, indent=2, ensure_ascii=False) + "\n"


def test_explain_of_an_unknown_query_fails(workspace):
    done = workspace.run("explain", "nobody", "--schema", "s.pg", "--query", "q.gq")
    assert_fails(done, "query 'nobody' not found")


def test_explain_needs_a_name_where_there_are_several(workspace):
    done = workspace.run("explain", "--schema", "s.pg", "--query", "q.gq")
    assert_fails(done, "multiple queries")


def test_explain_shows_every_mistake_with_a_caret(workspace):
    workspace.write("q.gq", QUERIES.replace("$f.name }", "$f.nam, $p.agee }"))
    done = workspace.run(*EXPLAIN, "--json")
    assert_fails(done, "q.gq:6:")
    assert "T6" in done.stderr
    assert done.stderr.count(" | ") == 4


# -- schema plan ----------------------------------------------------------------------------------


def test_a_plan_lists_its_steps(workspace):
    workspace.write("new.pg", SCHEMA.replace("age: I32?", "age: I32?\n  city: String? @index"))
    done = workspace.run(*PLAN)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "schema plan for s.pg",
        "supported: yes",
        "- add property 'Person.city' (String?) on node 'Person'",
        "- add constraint @index(city) on node 'Person'",
    ]


def test_a_plan_without_changes(workspace):
    workspace.write("new.pg", f"// a comment\n{SCHEMA}")
    done = workspace.run(*PLAN)
    assert done.stdout == "schema plan for s.pg\nsupported: yes\nno schema changes\n"


def test_an_unsupported_plan_is_an_answer(workspace):
    workspace.write("new.pg", SCHEMA.replace("age: I32?", "age: String?"))
    done = workspace.run(*PLAN)
    assert done.returncode == 0
    assert "supported: no\n- unsupported change on " in done.stdout
    assert "[OG-MF-106, destructive]: " in done.stdout


@pytest.mark.parametrize(("flags", "mode"), [((), "soft"), (("--allow-data-loss",), "hard")])
def test_a_drop_is_soft_unless_data_loss_is_allowed(workspace, flags, mode):
    workspace.write("new.pg", SCHEMA.replace("  age: I32?\n", ""))
    done = workspace.run(*PLAN, *flags)
    assert f"- drop property 'Person.age' of node 'Person' ({mode} mode)" in done.stdout
    plan = json.loads(workspace.run(*PLAN, *flags, "--json").stdout)
    assert list(plan) == ["uri", "supported", "step_count", "steps"]
    assert (plan["uri"], plan["supported"], plan["step_count"]) == ("s.pg", True, 1)
    assert plan["steps"] == [
        {
            "kind": "drop_property",
            "type_kind": "node",
            "type_name": "Person",
            "property_name": "age",
            "mode": mode,
        }
    ]


def test_a_plan_for_a_wrong_schema_fails(workspace):
    workspace.write("new.pg", "node Person { name: Strin }")
    assert_fails(workspace.run(*PLAN), "new.pg:1:21: ")
