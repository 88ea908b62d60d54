"""The command at a terminal: prompts, editing, interrupts, colours, bars and questions.

Each test starts the program on a pseudo-terminal of its own, waits for what it shows, and types.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import shutil
import socket
import stat
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.cli.workspace import Workspace

pytestmark = pytest.mark.rotates(6)

SCHEMA = """\
node Person {
  name: String @key
  age: I32?
}

edge Knows: Person -> Person
"""
DATA = """\
{"type": "Person", "data": {"name": "Ana", "age": 30}}
{"type": "Person", "data": {"name": "Ben", "age": 41}}
{"edge": "Knows", "from": "Ana", "to": "Ben"}
"""
QUERIES = "query everybody() { match { $p: Person } return { $p.name } }\n"
ADULTS = "match { $p: Person $p.age >= 18 } return { $p.name }"
# Every one of them differs from every other: nothing can be counted without the rows.
ENDLESS = (
    "match { $a: Person $b: Person $c: Person $d: Person $a.name != $b.name $a.name != $c.name "
    "$b.name != $c.name $a.name != $d.name $b.name != $d.name $c.name != $d.name } "
    "return { count($d) as n }"
)

PATIENCE = 90.0
"""How long to wait for what must come; only a failure takes as long."""

TAB, INTERRUPT, END, UP, DISCARD = "\t", "\x03", "\x04", "\x1b[A", "\x15"
_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x07")
# A session leader without a terminal takes this one, so that Ctrl-C reaches it as a signal.
_TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl({}, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


class Terminal:
    """A program on a pseudo-terminal, and what it has shown there."""

    def __init__(
        self,
        workspace: Workspace,
        *command: str,
        stdout: int | None = None,
        stdin: int | None = None,
        **environ: str,
    ) -> None:
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 250, 0, 0))
        home = str(workspace.directory / ".operator")
        clean = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _TAKE_TERMINAL.format(2), *command],
            cwd=workspace.directory,
            stdin=slave if stdin is None else stdin,
            stdout=slave if stdout is None else stdout,
            stderr=slave,
            start_new_session=True,
            env={**clean, "OMNIGRAPH_HOME": home, "TERM": "xterm", "INPUTRC": os.devnull} | environ,
        )
        os.close(slave)
        self.raw = ""
        self._seen = 0

    @classmethod
    def of(cls, workspace: Workspace, *arguments: str, **how) -> Terminal:
        return cls(workspace, sys.executable, "-m", "omnigraph.cli", *arguments, **how)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(PATIENCE)
        os.close(self._master)

    @property
    def text(self) -> str:
        """All that was shown, without colours and the signs that move the cursor."""
        return _CONTROLS.sub("", self.raw).replace("\r", "")

    def type(self, text: str) -> None:
        self.type_raw(text.encode())

    def type_raw(self, data: bytes) -> None:
        os.write(self._master, data)

    def send(self, line: str) -> None:
        self.type(f"{line}\r")

    def until(self, text: str) -> str:
        """Wait for a text that was not there at the last wait; gives what came up to its end."""
        end = time.monotonic() + PATIENCE
        while True:
            actual = self.text.find(text, self._seen)
            if actual >= 0:
                before = self.text[self._seen : actual + len(text)]
                self._seen = actual + len(text)
                return before
            if not self._read(end):
                raise AssertionError(f"never saw {text!r} after {self.text[self._seen :]!r}")

    def ended(self) -> int:
        """Wait for the end of the program; gives its exit code."""
        end = time.monotonic() + PATIENCE
        while self._read(end):
            pass
        code = self._process.wait(PATIENCE)
        assert "Traceback" not in self.text
        return code

    def shown_at_end(self) -> str:
        """What is left to read when every line was drawn for the last time."""
        lines = re.sub(r"\r+\n", "\n", self.raw).split("\n")
        return "\n".join(re.split(r"\r\x1b\[2K", line)[-1] for line in lines)

    def _read(self, end: float) -> bool:
        """Take what there is; false when there is no more, or the time is up."""
        ready, _, _ = select.select([self._master], [], [], max(end - time.monotonic(), 0))
        if not ready:
            return False
        try:
            data = os.read(self._master, 65_536)
        except OSError:  # on Linux, how a pseudo-terminal says that nobody writes any more
            return False
        self.raw += data.decode("utf-8", "replace")
        return bool(data)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    workspace = Workspace(tmp_path_factory.mktemp("terminal"))
    workspace.write("s.pg", SCHEMA)
    workspace.write("d.ndjson", DATA)
    workspace.write("q.gq", QUERIES)
    assert workspace.run("init", "--schema", "s.pg", "g.omni").returncode == 0
    assert workspace.run("load", "g.omni", "--data", "d.ndjson", "--mode", "merge").returncode == 0
    script = b'\\branch -c dev\ninsert Person { name: "Cy" }\n'
    assert workspace.run("shell", "g.omni", stdin=script).returncode == 0
    return workspace


# -- the shell ------------------------------------------------------------------------------------


def test_a_shell_prompts_runs_statements_over_lines_and_ends_with_ctrl_d(workspace):
    with Terminal.of(workspace, "shell", "g.omni", "--no-history") as shell:
        assert "omnigraph 0.1.0 on g.omni" in shell.until("omnigraph:main> ")
        shell.send("match { $p: Person }")
        shell.until("      ...> ")
        shell.send("return { $p.name,")
        shell.until("      ...> ")
        shell.send("$p.age } order { $p.name }")
        assert "Ana    | 30" in shell.until("omnigraph:main> ")

        shell.send("match { $p: Persn } return { $p.name }")
        reported = shell.until("omnigraph:main> ")
        assert "<shell>:1:13: type error: T1: unknown node type `Persn`" in reported
        assert "            ^^^^^" in reported
        assert "hint: did you mean `Person`?" in reported

        shell.send("match { $p: Person")
        shell.until("      ...> ")
        shell.send("")
        assert "parse error" in shell.until("omnigraph:main> ")

        shell.send(r"\branch -c mine")
        shell.until("created branch mine from main")
        shell.until("omnigraph:mine> ")
        shell.send(r'insert Person { name: "Cy" }')
        shell.until("changed mine via shell: 1 nodes, 0 edges")
        shell.until("omnigraph:mine> ")
        shell.send(r"\branch main")
        shell.until("omnigraph:main> ")
        shell.type(END)
        assert shell.ended() == 0
    assert not (workspace.directory / ".operator" / "history").exists()


def test_a_pasted_text_is_read_line_by_line_types_stand_out_and_a_reader_cannot_write(workspace):
    with Terminal.of(workspace, "shell", "g.omni", "--no-history", "--read-only") as shell:
        shell.until("omnigraph:main> ")
        pasted = "query q() {\n\n  match { $p: Person }\n  return { $p.name }\n}\n.branches\n"
        shell.type(f"\x1b[200~{pasted}\x1b[201~\r")
        assert "2 rows from branch main via q" in shell.until("* main")
        shell.until("omnigraph:main> ")
        shell.send(".types")
        shell.until("edge Knows: Person -> Person")
        assert "\x1b[1mnode Person\x1b[0m" in shell.raw
        shell.until("omnigraph:main> ")
        shell.send('insert Person { name: "Cy" }')
        shell.until("this graph is open for reading only")
        shell.send(".quit")
        assert shell.ended() == 0


def test_tab_completes_commands_branches_types_properties_edges_and_queries(workspace):
    with Terminal.of(workspace, "shell", "g.omni", "--no-history", "--queries", "q.gq") as shell:
        shell.until("omnigraph:main> ")
        for typed, shown in [
            (f".sch{TAB}", ".schema"),
            (f"\\branch ma{TAB}", "\\branch main"),
            (f".call ev{TAB}", ".call everybody"),
            (f".load d.nd{TAB}", ".load d.ndjson"),
            (f"mat{TAB}", "match"),
            (f"match {{ $p: Per{TAB}", "match { $p: Person"),
            (f"match {{ $p: Person $p kn{TAB}", "$p: Person $p knows"),
            (f"match {{ $p: Person {{ na{TAB}", "$p: Person { name"),
            (f"match {{ $p: Person $p knows $f }} return {{ $f.ag{TAB}", "return { $f.age"),
        ]:
            shell.type(typed)
            shell.until(shown)
            shell.type(DISCARD)
        # What is common is put in at once; the next Tab shows what there is.
        shell.type(f".bra{TAB}{TAB}{TAB}")
        shell.until(".branches")
        shell.until("omnigraph:main> .branch")
        shell.type(DISCARD)
        shell.send("match { $p: Person }")
        shell.until("      ...> ")
        shell.type(f"return {{ $p.na{TAB}")
        shell.until("return { $p.name")
        shell.type(" }\r")
        shell.until("2 rows from branch main via shell")
        shell.until("omnigraph:main> ")
        shell.type(END)
        assert shell.ended() == 0


def test_history_is_kept_for_its_owner_in_one_entry_for_each_statement_and_bounded(workspace):
    history = workspace.directory / ".operator" / "history"
    history.parent.mkdir(exist_ok=True)
    history.write_text("".join(f".commits {n}\n" for n in range(1_500)))
    with Terminal.of(workspace, "shell", "g.omni") as shell:
        shell.until("omnigraph:main> ")
        shell.send("match { $p: Person }")
        shell.until("      ...> ")
        shell.send("return { $p.name }")
        shell.until("2 rows")
        shell.until("omnigraph:main> ")
        shell.send(" .tables")
        shell.until("node:Person")
        shell.until("omnigraph:main> ")
        shell.type(f"{UP}\r")
        assert "match { $p: Person } return { $p.name }" in shell.until("2 rows")
        shell.until("omnigraph:main> ")
        shell.send(".quit")
        assert shell.ended() == 0
    lines = history.read_text().splitlines()
    assert len(lines) == 1_000
    assert lines[-3:] == [".commits 1499", "match { $p: Person } return { $p.name }", ".quit"]
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    with Terminal.of(workspace, "shell", "g.omni", "--history", "own") as shell:
        shell.until("omnigraph:main> ")
        shell.type(END)
        assert shell.ended() == 0
    assert not Path(workspace.directory, "own").exists()


def test_ctrl_c_gives_up_the_input_or_the_query_and_not_the_shell(tmp_path):
    people = "".join(
        f'{{"type": "Person", "data": {{"name": "p{number}"}}}}\n' for number in range(1_000)
    )
    other = Workspace(tmp_path)
    other.write("s.pg", SCHEMA)
    other.write("many.ndjson", people)
    assert other.run("init", "--schema", "s.pg", "many.omni").returncode == 0
    assert (
        other.run("load", "many.omni", "--data", "many.ndjson", "--mode", "append").returncode == 0
    )
    with Terminal.of(other, "shell", "many.omni", "--no-history", "--read-only") as shell:
        shell.until("omnigraph:main> ")
        shell.send("match { $p: Person")
        shell.until("      ...> ")
        shell.type("nonsense")
        shell.until("nonsense")
        shell.type(INTERRUPT)
        shell.until("omnigraph:main> ")
        shell.send(".explain on")
        shell.until("explain is on")
        shell.until("omnigraph:main> ")
        shell.send(ENDLESS)
        # The plan is shown just before the query runs.
        shell.until("expected:")
        shell.type(INTERRUPT)
        assert "the query was cancelled" in shell.until("omnigraph:main> ")
        shell.send(".branches")
        shell.until("* main")
        shell.until("omnigraph:main> ")
        shell.type(END)
        assert shell.ended() == 0


LOST_INTERRUPTS = """\
import ctypes, itertools, readline, signal, sys
from omnigraph.cli import main
from omnigraph.cli.shell import completion as shell_completion
from omnigraph.cli.output import terminal

# A shell in the background starts its programs so.
signal.signal(signal.SIGINT, signal.SIG_IGN)

# The prompt is drawn, and nobody waits for a key yet; no instruction of Python follows.
send = map(ctypes.CDLL(None)["raise"], [signal.SIGINT])
readline.set_pre_input_hook(itertools.chain(send, itertools.repeat(0)).__next__)

def find(self, pending, before, word):
    signal.raise_signal(signal.SIGINT)
    return [".branches"]

shell_completion.Completion.find = find
note = terminal.note

def note_again(text):
    if not text:
        signal.raise_signal(signal.SIGINT)
    note(text)

terminal.note = note_again
sys.exit(main(["shell", "g.omni", "--no-history", "--read-only"]))
"""


def test_no_ctrl_c_is_lost_and_none_ends_the_shell(workspace):
    """Before the first key, while Tab asks for candidates, and while another one is answered."""
    with Terminal(workspace, sys.executable, "-c", LOST_INTERRUPTS) as shell:
        shell.until("omnigraph:main> ")
        shell.until("omnigraph:main> ")
        shell.type(f".br{TAB}")
        shell.until("omnigraph:main> ")
        shell.send(".tables")
        shell.until("node:Person")
        shell.until("omnigraph:main> ")
        shell.type(END)
        assert shell.ended() == 0


def test_prompts_are_no_results_when_stdout_is_a_file(workspace, tmp_path):
    with (
        open(tmp_path / "out", "wb") as out,
        Terminal.of(workspace, "shell", "g.omni", "--no-history", stdout=out.fileno()) as shell,
    ):
        shell.until("omnigraph:main> ")
        shell.send(ADULTS)
        shell.until("omnigraph:main> ")
        shell.send(".quit")
        assert shell.ended() == 0
    assert (tmp_path / "out").read_text().startswith("2 rows from branch main via shell\n")
    assert "omnigraph:" not in (tmp_path / "out").read_text()


def test_a_python_without_readline_has_a_shell_too(workspace):
    """And a line that is no text is left out."""
    code = (
        "import sys; sys.modules['readline'] = None; from omnigraph.cli import main; "
        "sys.exit(main(['shell', 'g.omni', '--no-history', '--read-only']))"
    )
    with Terminal(workspace, sys.executable, "-c", code, PYTHONUTF8="1") as shell:
        shell.until("omnigraph:main> ")
        shell.type_raw(b".bran\xff\n")
        shell.until("the line is not UTF-8 text")
        shell.until("omnigraph:main> ")
        shell.send(ADULTS)
        shell.until("2 rows from branch main via shell")
        shell.until("omnigraph:main> ")
        shell.type(END)
        assert shell.ended() == 0


# -- colours, bars and questions ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "start"),
    [
        ({}, "\x1b[31mError:\x1b[0m "),
        ({"NO_COLOR": "1"}, "Error: "),
        ({"TERM": "dumb"}, "Error: "),
    ],
)
def test_errors_are_red_at_a_terminal_that_shows_colours(workspace, environ, start):
    with Terminal.of(workspace, "version", "--graph", "g", **environ) as failing:
        assert failing.ended() == 1
        assert failing.raw.startswith(start)
        assert ("\x1b" in failing.raw) == ("\x1b" in start)


def test_a_log_is_coloured_at_a_terminal_and_the_rows_of_a_query_are_not(workspace):
    with Terminal.of(workspace, "log", "g.omni", "--no-pager") as log:
        assert log.ended() == 0
    assert "\x1b[33m" in log.raw
    with Terminal.of(workspace, "query", "--store", "g.omni", "-e", QUERIES) as query:
        assert query.ended() == 0
    assert "2 rows from branch main via everybody" in query.text
    assert "\x1b" not in query.raw
    assert "\x1b" not in workspace.process("log", "g.omni", TERM="xterm").stdout


def test_nothing_is_coloured_in_a_pipe(workspace):
    """What goes to a pipe is plain text."""
    script = f".types\n.nothing\n.diff main dev\n{ADULTS}\n".encode()
    done = workspace.process("shell", "g.omni", "--keep-going", stdin=script, TERM="xterm")
    assert "node Person" in done.stdout
    assert "+ node Person 'Cy'" in done.stdout
    assert done.stderr.startswith("Error: ")
    assert "\x1b" not in done.stdout + done.stderr


def test_a_load_shows_how_far_it_is_on_stderr_and_leaves_nothing_of_it(workspace, tmp_path):
    load = ("load", "g.omni", "--data", "d.ndjson", "--mode", "merge", "--branch", "bars")
    with (
        open(tmp_path / "out", "wb") as out,
        Terminal.of(workspace, *load, "--from", "main", stdout=out.fileno()) as progress_bar,
    ):
        assert progress_bar.ended() == 0
    assert "\r\x1b[2Kload  " in progress_bar.raw
    assert progress_bar.shown_at_end().strip() == "omnigraph load → g.omni (direct, local)"
    assert "\x1b" not in (tmp_path / "out").read_text()
    assert "loaded g.omni on branch bars with merge: 2 nodes" in (tmp_path / "out").read_text()

    piped = workspace.process(*load)
    assert piped.stderr == "omnigraph load → g.omni (direct, local)\n"


@pytest.mark.parametrize("answer", ["n", "", "yess"])
def test_destruction_that_is_not_local_is_asked_about_and_a_no_touches_nothing(workspace, answer):
    """The confirmation comes before the graph is opened."""
    with socket.socket() as storage:
        storage.bind(("127.0.0.1", 0))
        storage.listen()
        where = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{storage.getsockname()[1]}",
            "AWS_ALLOW_HTTP": "1",
        }
        delete = ("branch", "delete", "dev", "--store", "s3://bucket/g.omni")
        with Terminal.of(workspace, *delete, **where) as asking:
            asking.until("branch delete on s3://bucket/g.omni")
            asking.until("[y/N] ")
            asking.send(answer)
            assert asking.ended() == 1
            assert "Error: aborted" in asking.text
        assert select.select([storage], [], [], 0)[0] == []


def test_nobody_is_asked_where_nobody_could_answer(workspace):
    """With --json, or when stdin is no terminal, consent must be in the command."""
    delete = ("branch", "delete", "dev", "--store", "s3://bucket/g.omni")
    with Terminal.of(workspace, *delete, "--json") as refused:
        assert refused.ended() == 1
    assert "refusing destructive" in refused.text
    assert "--yes" in refused.text
    assert "[y/N]" not in refused.text
    piped = workspace.process(*delete)
    assert piped.returncode == 1
    assert "refusing destructive" in piped.stderr


# -- Tab in bash ----------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_the_command_at_a_terminal(workspace, tmp_path):
    program = tmp_path / "omnigraph"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m omnigraph.cli "$@"\n')
    program.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    bash = (str(shutil.which("bash")), "--norc", "--noprofile", "-i")
    with Terminal(workspace, *bash, PATH=path, PS1="ready> ") as shell:
        shell.until("ready> ")
        shell.send("source <(omnigraph completion bash)")
        shell.until("ready> ")
        for typed, shown in [
            (f"omnigraph bra{TAB}", "omnigraph branch "),
            (f"omnigraph query --store g.omni --branch ma{TAB}", "--branch main "),
            (f"omnigraph load g.omni --data d.nd{TAB}", "--data d.ndjson "),
            (f"omnigraph query --format=jsonl{TAB}", "--format=jsonl "),
        ]:
            shell.type(typed)
            shell.until(shown)
            shell.type(DISCARD)
        shell.send("exit 0")
        assert shell.ended() == 0
