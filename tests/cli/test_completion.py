"""``omnigraph completion``: what Tab offers at each place of a command line."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys

import pytest

from omnigraph import Graph
from omnigraph.cli.commands.completion import SCRIPTS, complete, split_line
from omnigraph.cli.flags import VALUE_FLAGS
from omnigraph.cli.parser import build_parser
from tests.cli.workspace import Workspace

SCHEMA = "node Person { name: String @key }"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    workspace = Workspace(tmp_path_factory.mktemp("completion"))
    with Graph.init(workspace.directory / "g.omni", SCHEMA, durability="os") as graph:
        graph.branches.create("dev")
        graph.branches.create("feature/x")
        graph.tags.create("v1")
    return workspace


def offered(line: str) -> list[str]:
    return [word for word, _ in complete(line).words]


# -- the answers ----------------------------------------------------------------------------------


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            shown = {choices_action.dest for choices_action in action._choices_actions}
            return {name: child for name, child in action.choices.items() if name in shown}
    return {}


def test_every_command_form_and_option_is_offered_where_it_may_stand():
    """From the parsers alone: a command that is added needs nothing here."""
    parser = build_parser()
    assert offered("omnigraph ") == list(commands_of(parser))
    for name, child in commands_of(parser).items():
        forms = commands_of(child)
        if forms:
            assert offered(f"omnigraph {name} ") == list(forms)
        for form, leaf in forms.items() or [("", child)]:
            actual = set(offered(f"omnigraph {name} {form}".rstrip() + " -"))
            every = {
                max(action.option_strings, key=len)
                for action in leaf._actions
                if action.option_strings and action.help != argparse.SUPPRESS
            }
            assert every - VALUE_FLAGS <= actual <= every


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("omnigraph bra", ["branch"]),
        ("omnigraph schema p", ["plan"]),
        ("omnigraph --store g.omni schema p", ["plan"]),
        ("omnigraph --store=g.omni schema p", ["plan"]),
        ("omnigraph nothing ", []),
        ("omnigraph query --form", ["--format"]),
        ("omnigraph query --format j", ["jsonl", "json"]),
        ("omnigraph query --format=c", ["--format=csv"]),
        ("omnigraph query --params x --params", []),
        ("omnigraph load g.omni --da", ["--data"]),
        ("omnigraph load g.omni --data d.ndjson --da", ["--data"]),
        ("omnigraph load g.omni --mode a", ["append"]),
        ("omnigraph query -e 'match { $p: P' --format k", ["kv"]),
        ("omnigraph completion ", ["bash", "zsh", "fish"]),
        ("omnigraph backup pr", ["prune"]),
        ("omnigraph backup prune b --ke", ["--keep"]),
        ("omnigraph backup g.omni --ke", []),
        ("omnigraph backup --to b pr", []),
        # What the guard would refuse is not offered.
        ("omnigraph version --", ["--help", "--yes", "--quiet"]),
        ("omnigraph query --s", ["--server", "--store", "--snapshot"]),
        ("omnigraph optimize --c", ["--cluster"]),
        ("omnigraph ingest", []),
        ("omnigraph", []),
        ("", []),
    ],
)
def test_words_are_offered_that_fit(line, expected):
    assert offered(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "omnigraph load g.omni --data ",
        "omnigraph load ",
        "omnigraph backup prune ",
        "omnigraph query --store ",
        "omnigraph backup g.omni --to ",
        "omnigraph query --query=",
        "omnigraph load g.omni --type ",
    ],
)
def test_files_are_offered_where_a_file_stands(line):
    answer = complete(line)
    assert (answer.kind, list(answer.words)) == ("files", [])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("omnigraph query --store g.omni --branch ", ["main", "dev", "feature/x"]),
        ("omnigraph query --branch d", []),
        ("omnigraph query --store none.omni --branch ", []),
        ("omnigraph query --store s3://bucket/g --branch ", []),
        ("omnigraph load g.omni --branch f", ["feature/x"]),
        ("omnigraph branch delete --uri g.omni d", ["dev"]),
        ("omnigraph branch merge --uri g.omni dev --into m", ["main"]),
        ("omnigraph query --store g.omni --branch=d", ["--branch=dev"]),
        ("omnigraph query --store g.omni --tag ", ["v1"]),
        ("omnigraph tag delete --uri g.omni v", ["v1"]),
        ("omnigraph diff --uri g.omni ", ["main", "dev", "feature/x", "v1"]),
    ],
)
def test_branches_and_tags_are_those_of_the_graph_that_the_line_names(
    workspace, monkeypatch, line, expected
):
    monkeypatch.chdir(workspace.directory)
    monkeypatch.setenv("OMNIGRAPH_HOME", str(workspace.directory / ".operator"))
    monkeypatch.delenv("OMNIGRAPH_PROFILE", raising=False)
    assert offered(line) == expected


def test_names_of_the_configuration_are_offered(tmp_path, monkeypatch):
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path))
    (tmp_path / "config.yaml").write_text(
        "servers: { lab: { url: 'http://127.0.0.1:1' } }\n"
        "clusters: { root: { root: /c } }\n"
        "profiles: { mine: { store: /g }, team: { server: lab } }\n"
        "aliases: { due: { server: lab, query: due } }\n"
    )
    assert offered("omnigraph query --profile ") == ["mine", "team"]
    assert offered("omnigraph query --server l") == ["lab"]
    assert offered("omnigraph profile show t") == ["team"]
    assert offered("omnigraph login ") == ["lab"]
    assert offered("omnigraph alias ") == ["due"]
    answer = complete("omnigraph optimize --cluster ")
    assert (answer.kind, [word for word, _ in answer.words]) == ("files", ["root"])
    (tmp_path / "config.yaml").write_text("[broken")
    assert offered("omnigraph query --profile ") == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("omnigraph ", ["omnigraph", ""]),
        ("omnigraph a", ["omnigraph", "a"]),
        ("omnigraph 'a b", ["omnigraph", "a b"]),
        ('omnigraph "a b', ["omnigraph", "a b"]),
        ("omnigraph a\\", ["omnigraph", "a"]),
        ("omnigraph a\\ b ", ["omnigraph", "a b", ""]),
        ("omnigraph --x=\"a b\" ''", ["omnigraph", "--x=a b", ""]),
    ],
)
def test_lines_are_taken_apart_as_a_shell_does(line, words):
    assert split_line(line) == words


# -- the command ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", list(SCRIPTS))
def test_the_script_of_a_shell_is_printed_and_names_no_command(workspace, shell):
    done = workspace.run("completion", shell)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", SCRIPTS[shell])
    assert f"completion {shell} --line" in done.stdout
    assert "optimize" not in done.stdout


def test_what_scripts_are_answered(workspace):
    line = ("--line", "omnigraph query --format=j")
    assert workspace.run("completion", "bash", *line).stdout == "words\njsonl\njson\n"
    assert workspace.run("completion", "zsh", *line).stdout == (
        "words\n--format=jsonl\n--format=json\n"
    )
    reported = workspace.run("completion", "fish", "--line", "omnigraph vers").stdout
    assert reported == "words\nversion\tshow the version and the storage format\n"
    assert workspace.run("completion", "fish", "--line", "omnigraph load ").stdout == "files\n"


def test_a_shell_that_is_not_known_is_wrong_usage(workspace):
    for arguments in (("completion",), ("completion", "tcsh")):
        done = workspace.process(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert "usage: omnigraph completion" in done.stderr
    assert workspace.run("completion", "bash", "--graph", "g").returncode == 1


def test_nothing_heavy_is_loaded_to_answer(workspace):
    """A Tab must not be felt."""
    code = (
        "import sys; from omnigraph.cli import main; "
        "main(['completion', 'bash', '--line', 'omnigraph branch ']); "
        "print([name for name in ('lance', 'pyarrow', 'numpy', 'yaml') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.splitlines() == ["words", "create", "list", "delete", "merge", "[]"]


# -- bash -----------------------------------------------------------------------------------------

BASH = shutil.which("bash")
_ASK = """
source <(omnigraph completion bash)
while IFS= read -r COMP_LINE; do
    COMP_POINT=${#COMP_LINE}
    COMP_WORDS=(omnigraph)
    COMP_CWORD=1
    _omnigraph
    (IFS=,; echo "${COMPREPLY[*]}")
done
"""


@pytest.mark.skipif(BASH is None, reason="there is no bash")
def test_the_function_of_bash_gives_the_same_answers(workspace, tmp_path):
    program = tmp_path / "omnigraph"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m omnigraph.cli "$@"\n')
    program.chmod(0o755)
    lines = [
        "omnigraph bra",
        "omnigraph branch ",
        "omnigraph query --form",
        "omnigraph query --format=j",
        "omnigraph load g.omni --data ",
        "omnigraph branch delete --uri g.omni ",
    ]
    done = subprocess.run(
        [str(BASH), "--norc", "--noprofile", "-c", _ASK],
        input="".join(f"{line}\n" for line in lines),
        cwd=workspace.directory,
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "branch",
        "create,list,delete,merge",
        "--format",
        "jsonl,json",
        "",
        "main,dev,feature/x",
    ]
