"""Tab in real bash, zsh and fish: the generated script is sourced, and the shell completes.

``tools/ensure-shells`` installs them for ``make test-slow``. In bash and zsh a line is typed on a
pseudo-terminal and Tab is pressed; a key then prints the line as the shell holds it, and Enter runs
it. Fish answers what it would offer. Names that mean something to a shell are never run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from omnigraph import Graph
from tests.cli.test_terminal import TAB, Terminal
from tests.cli.workspace import Workspace

pytestmark = pytest.mark.slow

SCHEMA = "node Person { name: String @key }"
ODD = (
    "sp ace",
    "qu'ote",
    'ro"und',
    "do$(touch PWNED)llar",
    "ba`touch PWNED`ck",
    "co:lon",
    "an&d;x",
)
"""Names of profiles, each with a beginning of its own; those of branches can hold less."""
CONTROLS = ("es\x1bcape", "li\nne", "ta\tb", "bi\u202edi", "c1\x9bx")
SHOW_LINE = "\x14"
_SHOWN = re.compile(r"<<<(.*?)>>>", re.DOTALL)

# What completes is found in PATH, as for a user; it also writes down with which words it was run.
PROGRAM = """\
#!{python}
import json, os, sys
if sys.argv[1:2] == ["completion"]:
    from omnigraph.cli import main
    sys.exit(main())
with open({words!r}, "w") as out:
    json.dump(sys.argv[1:], out)
print("RAN")
"""


def needs(shell: str) -> None:
    if shutil.which(shell) is None:
        (pytest.fail if sys.platform == "linux" else pytest.skip)(
            f"{shell} is missing; tools/ensure-shells installs it"
        )


@pytest.fixture(scope="module")
def workspace(tmp_path_factory) -> Workspace:
    workspace = Workspace(tmp_path_factory.mktemp("shells"))
    with Graph.init(workspace.directory / "g.omni", SCHEMA, durability="os") as graph:
        graph.branches.create("dev")
        graph.branches.create("feature/x")
    profiles = {name: {"store": "g.omni"} for name in (*ODD, *CONTROLS, "plain")}
    (workspace.directory / ".operator").mkdir()
    workspace.write(".operator/config.yaml", json.dumps({"profiles": profiles}))
    for name in ("plain.gq", "my file.gq", "x$(touch PWNED).gq"):
        workspace.write(name, "")
    (workspace.directory / "bin").mkdir()
    words = str(workspace.directory / "words.json")
    program = workspace.write("bin/omnigraph", PROGRAM.format(python=sys.executable, words=words))
    program.chmod(0o755)
    for shell in ("bash", "zsh", "fish"):
        workspace.write(f"completion.{shell}", workspace.run("completion", shell).stdout)
    return workspace


def path_of(workspace: Workspace) -> str:
    return f"{workspace.directory / 'bin'}{os.pathsep}{os.environ['PATH']}"


BASH = r"""
PS1='READY> '
bind 'set bell-style none'
bind 'set enable-bracketed-paste off'
bind 'set completion-query-items 0'
bind 'set page-completions off'
source completion.bash
show() { printf '<<<%s>>>' "$READLINE_LINE"; }
bind -x '"\C-t": show'
"""
ZSH = r"""
PS1='READY> '
unsetopt beep zle_bracketed_paste prompt_sp
setopt no_always_last_prompt
autoload -U compinit
compinit -u -D
source completion.zsh
show() { print -rn -- "<<<$BUFFER>>>" }
zle -N show
bindkey '^T' show
bindkey '^I' complete-word
"""


class Shell(Terminal):
    """An interactive shell that has the completions."""

    def line_after(self, typed: str) -> str:
        """What stands in the line after Tab was pressed behind some text."""
        self.type("\x15" + typed + TAB + SHOW_LINE)
        self.until(">>>")
        return _SHOWN.findall(self.text)[-1]

    def run_line(self, workspace: Workspace) -> list[str]:
        """Press Enter; the words that the program was given."""
        self.type("\r")
        self.until("RAN")
        self.until("READY> ")
        return json.loads(Path(workspace.directory, "words.json").read_text("utf-8"))


@contextmanager
def started(workspace: Workspace, shell: str) -> Iterator[Shell]:
    needs(shell)
    workspace.write("setup.bash", BASH)
    workspace.write(".zshrc", ZSH)
    if shell == "bash":
        command = ["bash", "--noprofile", "--rcfile", "setup.bash", "-i"]
    else:
        command = ["zsh", "-d", "-i"]
    path = shutil.which(command[0])
    assert path is not None
    environ = {
        "PATH": path_of(workspace),
        "ZDOTDIR": str(workspace.directory),
        "HISTFILE": "",
        "LC_ALL": "C.UTF-8",
    }
    with Shell(workspace, path, *command[1:], **environ) as terminal:
        terminal.until("READY> ")
        yield terminal
    assert not (workspace.directory / "PWNED").exists()


INTERACTIVE = pytest.mark.parametrize("shell", ["bash", "zsh"])


@INTERACTIVE
def test_words_are_completed(workspace, shell):
    cases = {
        "omnigraph bran": "omnigraph branch ",
        "omnigraph branch li": "omnigraph branch list ",
        "omnigraph query --forma": "omnigraph query --format ",
        "omnigraph query --format c": "omnigraph query --format csv ",
        "omnigraph query --format=c": "omnigraph query --format=csv ",
        "omnigraph query --store g.omni --branch fe": "omnigraph query --store g.omni --branch "
        "feature/x ",
        "omnigraph query --store g.omni --branch=fe": "omnigraph query --store g.omni "
        "--branch=feature/x ",
        "omnigraph query --query pl": "omnigraph query --query plain.gq ",
        "omnigraph query --query=pl": "omnigraph query --query=plain.gq ",
        "omnigraph query --profile pla": "omnigraph query --profile plain ",
    }
    with started(workspace, shell) as terminal:
        for typed, line in cases.items():
            assert terminal.line_after(typed).rstrip() == line.rstrip(), typed


@INTERACTIVE
@pytest.mark.parametrize("option", ["--profile ", "--profile="])
def test_a_name_that_means_something_to_a_shell_arrives_as_it_is(workspace, shell, option):
    with started(workspace, shell) as terminal:
        for name in ODD:
            terminal.line_after(f"omnigraph query {option}{name[:2]}")
            words = ["--profile", name] if option.endswith(" ") else [f"--profile={name}"]
            assert terminal.run_line(workspace) == ["query", *words]


@INTERACTIVE
@pytest.mark.parametrize("quote", ["'", '"'])
def test_a_quote_that_is_open_is_kept(workspace, shell, quote):
    with started(workspace, shell) as terminal:
        for name in ODD:
            line = terminal.line_after(f"omnigraph query --profile {quote}{name[:2]}")
            if not line.rstrip().endswith(quote):
                terminal.type(quote)
            assert terminal.run_line(workspace) == ["query", "--profile", name]


@INTERACTIVE
def test_file_names_are_quoted(workspace, shell):
    with started(workspace, shell) as terminal:
        for name in ("my file.gq", "x$(touch PWNED).gq"):
            terminal.line_after(f"omnigraph query --query {name[0]}")
            assert terminal.run_line(workspace) == ["query", "--query", name]


@INTERACTIVE
def test_a_name_with_control_characters_is_not_offered(workspace, shell):
    with started(workspace, shell) as terminal:
        for name in CONTROLS:
            typed = f"omnigraph query --profile {name[:2]}"
            assert terminal.line_after(typed).rstrip() == typed
            assert name not in terminal.raw


@INTERACTIVE
def test_a_line_is_never_run_by_tab(workspace, shell):
    with started(workspace, shell) as terminal:
        for typed in (
            "omnigraph query --store $(touch PWNED) --branch ",
            "omnigraph query --store `touch PWNED` --branch ",
            'omnigraph query --store "$(touch PWNED)" --branch ',
            "omnigraph 'query --branch ",
        ):
            terminal.line_after(typed)


def fish(workspace: Workspace, line: str) -> list[str]:
    """What fish offers at the end of a line."""
    needs("fish")
    done = subprocess.run(
        ["fish", "--no-config", "-c", 'source completion.fish; complete -C "$argv[1]"', line],
        cwd=workspace.directory,
        env={**os.environ, "PATH": path_of(workspace), "HOME": str(workspace.directory)}
        | {"OMNIGRAPH_HOME": str(workspace.directory / ".operator"), "LC_ALL": "C.UTF-8"},
        capture_output=True,
        timeout=120,
        check=True,
    )
    assert not (workspace.directory / "PWNED").exists()
    return [splitline.split("\t")[0] for splitline in done.stdout.decode("utf-8").splitlines()]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("omnigraph bran", ["branch"]),
        ("omnigraph query --format c", ["csv"]),
        ("omnigraph query --format=c", ["--format=csv"]),
        ("omnigraph query --store g.omni --branch fe", ["feature/x"]),
        ("omnigraph query --store g.omni --branch=fe", ["--branch=feature/x"]),
        ("omnigraph query --query pl", ["plain.gq"]),
        ("omnigraph query --query=pl", ["--query=plain.gq"]),
        ("omnigraph query --profile sp", ["sp ace"]),
        ("omnigraph query --profile do", ["do$(touch PWNED)llar"]),
        ("omnigraph query --profile ro", ['ro"und']),
        ("omnigraph query --profile 'sp", ["sp ace"]),
        ("omnigraph query --profile es", []),
        ("omnigraph query --profile li", []),
        ("omnigraph query --store (touch PWNED) --branch ", []),
    ],
)
def test_fish_offers_what_fits(workspace, line, expected):
    assert sorted(fish(workspace, line)) == sorted(expected)
