"""The warm process: the same commands with the same results, and what it must never do."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from omnigraph import Cancel, Graph
from omnigraph.cli.command_context import enter
from omnigraph.cli.output import terminal
from omnigraph.cli.parser import build_parser
from omnigraph.cli.parser_tree import actions, leaves
from omnigraph.cli.warm import address
from omnigraph.cli.warm.admission import INPUTS, REFUSED_OPTIONS
from omnigraph.cli.warm.graphs import MOST_GRAPHS, OpenGraphs
from omnigraph.errors import Closed
from omnigraph.settings import environment_of
from tests.cluster.lab import POLICY, Lab
from tests.sampling import rotating

pytestmark = [
    pytest.mark.rotates(6),
    pytest.mark.skipif(sys.platform != "linux", reason="the warm process needs Linux"),
    pytest.mark.own_process("it has warm processes of its own"),
]
SCHEMA = (
    "node Person { name: String @key\n age: I32?\n photo: Blob? }\nedge Knows: Person -> Person"
)
DATA = (
    '{"type":"Person","data":{"name":"Ana","age":41}}\n'
    '{"type":"Person","data":{"name":"Bo"}}\n'
    '{"edge":"Knows","from":"Ana","to":"Bo"}\n'
)
NAMES = "query q() { match { $p: Person } return { $p.name } order { $p.name } }"
ADD = "query a($name: String) { insert Person { name: $name } }"
ROOT = Path(__file__).parent.parent.parent
SECONDS = 60
READS = (
    ("query", "--store", "g.omni", "-e", NAMES),
    ("query", "--store", "g.omni", "--query", "q.gq", "--json"),
    ("query", "--store", "./g.omni/", "-e", "query q() { match { $p: Perso } return { $p } }"),
    ("export", "g.omni"),
    ("read", "--store", "g.omni", "-e", NAMES, "--format", "csv"),
    ("commit", "show", "--uri", "g.omni", "01NONE"),
    ("log", "g.omni", "--oneline"),
)


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


class Desk:
    """A directory with a graph, and commands in processes that find a warm process of their own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        # A short path: that of a socket is limited.
        self.runtime = Path(tempfile.mkdtemp(prefix="warm-"))
        self.environ = {
            **os.environ,
            "OMNIGRAPH_WARM": "auto",
            "XDG_RUNTIME_DIR": str(self.runtime),
            "OMNIGRAPH_HOME": str(directory / "home"),
        }
        (directory / "d.jsonl").write_text(DATA, "utf-8")
        (directory / "q.gq").write_text(NAMES, "utf-8")
        (directory / "s.pg").write_text(SCHEMA, "utf-8")

    def graph(self, name: str = "g.omni") -> Path:
        path = self.directory / name
        with Graph.init(path, SCHEMA) as graph:
            graph.load(self.directory / "d.jsonl")
        return path

    def start(self, *arguments: str, **environ: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "omnigraph.cli", *arguments],
            cwd=self.directory,
            env={**self.environ, **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *arguments: str, stdin: bytes = b"", **environ: str) -> tuple[int, str, str]:
        process = self.start(*arguments, **environ)
        out, err = process.communicate(stdin, timeout=SECONDS)
        return process.returncode, out.decode("utf-8"), err.decode("utf-8")

    def status(self) -> dict[str, int]:
        # Also of another installation, whose socket has another name.
        for path in self.sockets.glob("warm-????????"):
            with (
                contextlib.suppress(OSError, address.Broken),
                socket.socket(socket.AF_UNIX) as connection,
            ):
                connection.connect(str(path))
                address.send(connection, b"S")
                return {"running": True, **json.loads(address.receive(connection)[1])}
        return {"running": False}

    @contextlib.contextmanager
    def runs_warm(self, count: int = 1) -> Iterator[None]:
        """So many commands inside are run by the warm process."""
        before = self.status()["commands_run"]
        yield
        wait_until(lambda: self.status()["commands_run"] >= before + count)
        assert self.status()["commands_run"] == before + count

    @property
    def sockets(self) -> Path:
        return self.runtime / "omnigraph"

    def close(self) -> None:
        self.run("warm", "stop")
        shutil.rmtree(self.runtime)


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    desk = Desk(tmp_path_factory.mktemp("warm"))
    desk.graph()
    code, out, err = desk.run("warm", "start")
    assert (code, err) == (0, ""), err
    assert out.startswith("warm process ")
    yield desk
    desk.close()


@pytest.fixture
def cold(tmp_path):
    """A directory whose commands find no warm process."""
    desk = Desk(tmp_path)
    yield desk
    desk.close()


# -- the same as without ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    rotating([(arguments,) for arguments in READS], 2, "warm reads"),
)
def test_a_read_has_the_same_streams_and_exit_code(desk, arguments):
    with desk.runs_warm():
        warm = desk.run(*arguments)
    assert warm == desk.run(*arguments, OMNIGRAPH_WARM="off")


def test_writes_of_either_process_are_seen_by_the_next_command(desk):
    desk.graph("both.omni")
    store = ("--store", "both.omni")
    for number in range(4):
        switch = "auto" if number % 2 else "off"
        params = json.dumps({"name": f"new{number}"})
        done = desk.run("mutate", *store, "-e", ADD, "--params", params, OMNIGRAPH_WARM=switch)
        assert done[0] == 0, done
        assert done[2] == "omnigraph mutate → both.omni (direct, local)\n"
        with desk.runs_warm():
            assert f"new{number}" in desk.run("query", *store, "-e", NAMES)[1]


def test_directory_actor_and_settings_are_those_of_the_command(desk):
    other = desk.directory / "other"
    other.mkdir()
    with Graph.init(other / "g.omni", SCHEMA) as graph:
        graph.mutate('query a() { insert Person { name: "Elsewhere" } }')
    home = desk.directory / "ana"
    home.mkdir()
    (home / "config.yaml").write_text("operator: {actor: ana}\nsurprise: 1\n", "utf-8")
    with desk.runs_warm(3):
        inside = subprocess.run(
            [sys.executable, "-m", "omnigraph.cli", "query", "--store", "g.omni", "-e", NAMES],
            cwd=other,
            env=desk.environ,
            capture_output=True,
            check=True,
        )
        assert b"Elsewhere" in inside.stdout
        params = ("--params", '{"name": "By Ana"}')
        store = ("--store", str(other / "g.omni"))
        done = desk.run("mutate", *store, "-e", ADD, *params, OMNIGRAPH_HOME=str(home))
        assert "actor_id: ana" in done[1]
        assert "unknown key `surprise`" in done[2]
        wrong = desk.run("query", *store, "-e", NAMES, OMNIGRAPH_TRAVERSAL_MODE="sideways")
        assert wrong[0] == 1
        assert "invalid OMNIGRAPH_TRAVERSAL_MODE 'sideways'" in wrong[2]


def test_a_graph_that_is_made_anew_is_another_one(desk):
    path = desk.graph("again.omni")
    command = ("query", "--store", "again.omni", "-e", NAMES)
    assert "Ana" in desk.run(*command)[1]
    shutil.rmtree(path)
    gone = desk.run(*command)
    assert gone == desk.run(*command, OMNIGRAPH_WARM="off")
    assert gone[0] == 1
    with Graph.init(path, SCHEMA) as graph:
        graph.mutate('query a() { insert Person { name: "Zoe" } }')
    with desk.runs_warm():
        shown = desk.run(*command)[1]
    assert "Zoe" in shown
    assert "Ana" not in shown


def without_ids(text: str) -> str:
    return re.sub(r"\b[0-9A-Z]{26}\b", "ID", text)


def test_a_graph_of_a_cluster_is_the_same_with_a_policy(desk):
    """Whoever can open the storage is not asked; who acts is the actor of the command."""
    lab = Lab(desk.directory / "lab")
    rows = """rows: [{id: r, actors: {group: staff}, types: [Task], where: 'name = "a"'}]\n"""
    lab.write("kb.policy.yaml", POLICY.replace("version: 1", "version: 2") + rows)
    lab.applied()
    graph = str(lab.directory / "graphs" / "kb.omni")
    tasks = "query q() { match { $t: Task } return { $t.name } order { $t.name } }"
    add = "query a($name: String) { insert Task { name: $name } }"
    mutate = ("mutate", "--store", graph, "-e", add, "--as", "eve", "--params")
    with desk.runs_warm(3):
        code, out, err = desk.run(*mutate, '{"name": "warm"}')
        cold = desk.run(*mutate, '{"name": "cold"}', OMNIGRAPH_WARM="off")
        assert (code, without_ids(out), err) == (cold[0], without_ids(cold[1]), cold[2])
        # The policy shows only `a`, and nothing to eve.
        for command in (("query", "--store", graph, "-e", tasks), ("log", graph, "--oneline")):
            warm = desk.run(*command)
            assert warm == desk.run(*command, OMNIGRAPH_WARM="off")
            assert warm[0] == 0
    assert "warm" in desk.run("query", "--store", graph, "-e", tasks)[1]
    with Graph.open(graph, "r") as opened:
        assert {commit.actor for commit in opened.commits()[:2]} == {"eve"}
    schema = ("schema", "apply", "--store", graph, "--schema", "lab/kb.pg")
    assert desk.run(*schema) == desk.run(*schema, OMNIGRAPH_WARM="off")


def test_files_and_stdin_come_from_the_command(desk):
    desk.graph("files.omni")
    with desk.runs_warm(3):
        by_name = desk.run("load", "files.omni", "--data", "d.jsonl", "--mode", "merge")
        assert by_name[0] == 0, by_name
        broken = desk.directory / "broken.jsonl"
        broken.write_text(f"{DATA}nonsense\n", "utf-8")
        code, _, err = desk.run("load", "files.omni", "--data", "broken.jsonl", "--mode", "merge")
        assert code == 1
        assert "broken.jsonl" in err
        lines = (f'{{"type":"Person","data":{{"name":"n{n}"}}}}\n' for n in range(30_000))
        many = desk.run(
            *("load", "files.omni", "--data", "-", "--mode", "append", "--json"),
            stdin="".join(lines).encode(),
        )
    assert json.loads(many[1])["nodes_loaded"] == 30_000


def test_every_option_that_names_a_file_is_known():
    """A new option that reads or writes a file must be streamed or refused."""
    for leaf in leaves(build_parser()):
        name = leaf.prog.removeprefix("omnigraph ")
        if name not in INPUTS:
            continue
        named = {
            action.dest
            for action in actions(leaf)
            if str(action.metavar) in ("FILE", "PATH", "DIR") and action.dest != "type"
        }
        covered = {*INPUTS[name], *REFUSED_OPTIONS}
        if name in ("lint", "explain"):
            covered.add("schema")  # instead of a graph
        assert named <= covered, name


@pytest.mark.slow
def test_what_it_does_not_do_runs_in_the_process_of_the_command(desk):
    with desk.runs_warm(0):
        assert desk.run("init", "new.omni", "--schema", "s.pg")[0] == 0
        assert desk.run("query", "--no-such-option")[0] == 2
        out = desk.run("query", "--store", "g.omni", "-e", NAMES, "--out", "rows.txt")
        assert out[0] == 0
        assert (desk.directory / "rows.txt").exists()


@pytest.mark.parametrize(
    "limit", rotating(["umask 077", "ulimit -v 8000000", "export TZ=Asia/Tokyo"], 1, "warm limits")
)
def test_a_command_with_other_limits_runs_in_its_own_process(desk, limit):
    words = [sys.executable, "-m", "omnigraph.cli", "query", "--store", "g.omni", "-e", NAMES]
    with desk.runs_warm(0):
        done = subprocess.run(
            ["bash", "-c", f'{limit}; exec "$@"', "bash", *words],
            cwd=desk.directory,
            env=desk.environ,
            capture_output=True,
            check=True,
        )
    assert b"Ana" in done.stdout


def test_colours_and_a_terminal_are_those_of_the_command(desk):
    def shown(switch: str, *command: str) -> bytes:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "omnigraph.cli", *command, "--uri", "g.omni"],
            cwd=desk.directory,
            env={**desk.environ, "OMNIGRAPH_WARM": switch, "TERM": "xterm"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        text = b""
        with contextlib.suppress(OSError):
            while data := os.read(ours, 4096):
                text += data
        os.close(ours)
        assert process.wait(SECONDS) == 1
        return text

    blob = ("blob", "get", "node", "Person", "Ana", "photo")
    for command in (("commit", "show", "01X"), blob):
        with desk.runs_warm():
            warm = shown("auto", *command)
        assert b"\x1b[31mError:" in warm
        assert warm == shown("off", *command)
    assert b"refusing to write binary data to a terminal" in warm


# -- interrupted -----------------------------------------------------------------------------------


def waiting(desk: Desk, *arguments: str) -> subprocess.Popen[bytes]:
    """A command that the warm process runs, and that waits for its stdin."""
    process = desk.start(*arguments)
    wait_until(lambda: desk.status()["commands_running"] == 1)
    return process


READS_STDIN = ("query", "--store", "g.omni", "--query", "-")


def test_ctrl_c_ends_the_command_and_not_the_process(desk):
    process = waiting(desk, *READS_STDIN)
    process.send_signal(signal.SIGINT)
    process.wait(SECONDS)
    _, err = process.communicate()
    assert (process.returncode, err) == (130, b"Error: interrupted\n")
    wait_until(lambda: desk.status()["commands_running"] == 0)


def test_ctrl_c_cancels_a_query(desk):
    with Graph.init(desk.directory / "many.omni", SCHEMA) as graph:
        graph.load([{"type": "Person", "data": {"name": f"p{n}", "age": n}} for n in range(3000)])
    long = (
        "query q() { match { $a: Person $b: Person $c: Person "
        "$a.age < $b.age $b.age < $c.age } return { count($c) as n } }"
    )
    process = waiting(desk, "query", "--store", "many.omni", "-e", long)
    process.send_signal(signal.SIGINT)
    process.wait(SECONDS)
    _, err = process.communicate()
    assert (process.returncode, err) == (130, b"Error: interrupted\n")
    wait_until(lambda: desk.status()["commands_running"] == 0)


def test_a_command_that_is_killed_is_not_waited_for(desk):
    process = waiting(desk, *READS_STDIN)
    process.kill()
    process.communicate()
    wait_until(lambda: desk.status()["commands_running"] == 0)


def test_a_reader_that_leaves_is_no_failure_to_talk_about(desk):
    desk.graph("piped.omni")
    rows = "".join(f'{{"type":"Person","data":{{"name":"n{n}"}}}}\n' for n in range(5000))
    assert desk.run("load", "piped.omni", "--data", "-", "--mode", "merge", stdin=rows.encode())
    with desk.runs_warm():
        process = desk.start("export", "piped.omni")
        with process:
            process.stdout.readline()
            process.stdout.close()
            assert process.stderr.read() == b""
        assert process.returncode == 141


def test_twenty_commands_at_once(desk):
    desk.graph("busy.omni")
    store = ("--store", "busy.omni")
    with desk.runs_warm(20):
        writers = [
            desk.start("mutate", *store, "-e", ADD, "--params", json.dumps({"name": f"w{n:02}"}))
            for n in range(10)
        ]
        readers = [desk.start("query", *store, "-e", NAMES, "--format", "csv") for _ in range(10)]
        for process in (*writers, *readers):
            _, err = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, err
    names = desk.run("query", *store, "-e", NAMES, "--format", "csv")[1].split()
    assert names == ["p.name", "Ana", "Bo", *(f"w{n:02}" for n in range(10))]


@dataclass
class Interrupted:
    """The context of a command whose user has pressed Ctrl-C."""

    stdout: io.StringIO
    is_committing: bool = False
    cancel: Cancel = field(default_factory=Cancel)

    def __post_init__(self) -> None:
        self.cancel.set()


def test_what_is_committed_is_reported_after_ctrl_c():
    context = Interrupted(io.StringIO())

    def show(line: str) -> None:
        enter(context)
        terminal.show(line)

    with pytest.raises(KeyboardInterrupt):
        copy_context().run(show, "rows")
    context.is_committing = True
    copy_context().run(show, "the receipt")
    assert context.stdout.getvalue() == "the receipt\n"


def test_graphs_are_closed_when_idle_and_kept_while_used(desk):
    graphs = OpenGraphs()
    path = str(desk.graph("idle.omni"))
    with graphs.opened(path, "r", None) as first:
        graphs.close_idle(0)
        assert first.snapshot().count("Person") == 2
    with graphs.opened(path, "r", None) as again:
        assert again is first
    graphs.close_idle(60)
    assert len(graphs) == 1
    graphs.close_idle(0)
    assert len(graphs) == 0
    with pytest.raises(Closed):
        first.snapshot()
    for number in range(MOST_GRAPHS + 2):
        with (
            environment_of({"OMNIGRAPH_EXPAND_INDEXED_MAX_HOPS": str(number)}),
            graphs.opened(path, "r", None) as graph,
        ):
            assert graph.snapshot().count("Person") == 2
    assert len(graphs) == MOST_GRAPHS
    graphs.close_idle(0)


# -- the end of the process ------------------------------------------------------------------------


def kill(desk: Desk) -> None:
    os.kill(desk.status()["pid"], signal.SIGKILL)


DYING = """\
import os, signal, sys
from omnigraph.commit import failpoints
def die(point):
    if point == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)
failpoints.install(die)
from omnigraph.cli.warm.process import main
main(int(sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("point", "is_made"),
    rotating([("write.after_sidecar", False), ("write.after_publish", True)], 1, "warm deaths"),
)
def test_a_commit_in_which_the_process_dies_is_named(cold, point, is_made):
    path = cold.graph()
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", DYING, str(writing), point],
        env=cold.environ,
        pass_fds=[writing],
    )
    os.close(writing)
    with os.fdopen(reading, "rb") as report:
        assert report.read() == b"ready"
    done = cold.run("mutate", "--store", "g.omni", "-e", ADD, "--params", '{"name": "Late"}')
    assert process.wait(SECONDS) == -signal.SIGKILL
    assert done[:2] == (1, "")
    assert done[2].endswith("code: outcome_pending\n")
    commit_id = re.search("`omnigraph commit show ([0-9A-Z]{26})`", done[2])[1]
    with Graph.open(path) as graph:
        commits = [commit.commit_id for commit in graph.commits()]
        assert graph.snapshot().count("Person") == 2 + is_made
        if is_made:
            assert graph.commit(commit_id).commit_id in commits
        else:
            assert commit_id not in commits


@pytest.mark.slow
def test_the_death_of_the_process_in_a_write_leaves_the_outcome_open(cold):
    cold.graph()
    cold.run("warm", "start")
    process = waiting(cold, "load", "g.omni", "--data", "-", "--mode", "append")
    process.stdin.write(b'{"type":"Person","data":{"name":"Lost"}}\n')
    process.stdin.flush()
    kill(cold)
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert "Error: the warm process ended before the command did" in err.decode()
    assert err.endswith(b"code: outcome_pending\n")
    # A new process takes the socket of the dead one over.
    assert cold.run("warm", "start")[1].endswith("started\n")
    with cold.runs_warm():
        assert "Lost" not in cold.run("query", "--store", "g.omni", "-e", NAMES)[1]


@contextlib.contextmanager
def pretender(desk: Desk, *replies: tuple[bytes, bytes]) -> Iterator[list[bytes]]:
    """A process on the socket that admits a command, sends something after go, and dies."""
    desk.sockets.mkdir(mode=0o700, exist_ok=True)
    received: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(desk.sockets / address.socket_name()))
        listening.listen()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                kind, _, numbers = address.receive(connection)
                received.append(kind)
                for number in numbers:
                    os.close(number)
                address.send(connection, *replies[0])
                with contextlib.suppress(address.Broken):
                    received.append(address.receive(connection)[0])
                    for reply in replies[1:]:
                        address.send(connection, *reply)

        thread = threading.Thread(target=serve)
        thread.start()
        yield received
        thread.join()
    (desk.sockets / address.socket_name()).unlink()


def test_a_read_that_has_used_nothing_runs_again_in_silence(cold):
    cold.graph()
    with pretender(cold, (b"r", b"")) as received:
        code, out, err = cold.run("query", "--store", "g.omni", "-e", NAMES)
    assert (code, err, received) == (0, "", [b"R", b"G"])
    assert "Ana" in out


def test_a_read_that_has_printed_something_is_not_run_again(cold):
    with pretender(cold, (b"r", b""), (b"U", b"")):
        done = cold.run("query", "--store", "g.omni", "-e", NAMES)
    assert done == (1, "", "Error: the warm process ended before the command did\n")


def test_a_write_that_was_sent_is_never_made_twice(cold):
    path = cold.graph()
    command = ("mutate", "--store", "g.omni", "-e", ADD, "--params", '{"name": "Twice"}')
    with pretender(cold, (b"w", b""), (b"C", b"01ABC")) as received:
        code, out, err = cold.run(*command)
    assert (code, out, received) == (1, "", [b"R", b"G"])
    assert "`omnigraph commit show 01ABC`" in err
    assert err.endswith("code: outcome_pending\n")
    with Graph.open(path, "r") as graph:
        assert graph.snapshot().count("Person") == 2


def test_a_write_that_is_refused_is_made_once(cold):
    path = cold.graph()
    with pretender(cold, (b"N", b"")) as received:
        command = ("mutate", "--store", "g.omni", "-e", ADD, "--params", '{"name": "Once"}')
        assert cold.run(*command)[0] == 0
    assert received == [b"R"]
    with Graph.open(path, "r") as graph:
        assert graph.snapshot().count("Person") == 3


@pytest.mark.slow
def test_it_starts_once_ends_when_idle_and_stops(cold):
    assert cold.run("warm", "stop")[1] == "not running\n"
    assert cold.run("warm", "status") == (0, "not running\n", "")
    assert cold.run("warm", "start", OMNIGRAPH_WARM_IDLE_SECONDS="1")[1].endswith("started\n")
    wait_until(lambda: not cold.status()["running"])
    starts = [cold.start("warm", "start") for _ in range(3)]
    texts = sorted(process.communicate(timeout=SECONDS)[0].split()[-1] for process in starts)
    assert texts == [b"running", b"running", b"started"]
    assert cold.run("warm", "stop")[1] == "stopped\n"
    assert not any(stat.S_ISSOCK(file.lstat().st_mode) for file in cold.sockets.iterdir())


@pytest.mark.slow
def installed(cold: Desk) -> Path:
    """A copy of the program that the commands of a desk run."""
    copy = cold.directory / "program"
    shutil.copytree(ROOT / "src" / "omnigraph", copy / "omnigraph")
    cold.environ["PYTHONPATH"] = str(copy)
    return copy / "omnigraph"


def upgrade(program: Path) -> None:
    module = program / "cli" / "output" / "rows.py"
    text = module.read_text("utf-8")
    assert "rows from {source}" in text
    module.write_text(text.replace("rows from {source}", "newer rows from {source}"), "utf-8")


def test_an_upgraded_program_is_noticed(cold):
    cold.graph()
    program = installed(cold)
    command = ("query", "--store", "g.omni", "-e", NAMES)
    cold.run("warm", "start")
    with cold.runs_warm():
        code, before, err = cold.run(*command)
    upgrade(program)
    after = before.replace("rows from", "newer rows from")
    # At once: no command after the upgrade is run by the old program.
    assert cold.run(*command) == (code, after, err)
    wait_until(lambda: not cold.status()["running"])
    assert cold.run("warm", "start")[1].endswith("started\n")
    with cold.runs_warm():
        assert cold.run(*command) == (code, after, err)


def test_a_command_that_runs_during_an_upgrade_is_finished_by_the_program_it_began_with(cold):
    cold.graph()
    program = installed(cold)
    cold.run("warm", "start")
    mutate = ("mutate", "--store", "g.omni", "--query", "-", "--params", '{"name": "Cy"}')
    with cold.start(*mutate) as running:
        assert running.stdin is not None
        wait_until(lambda: cold.status()["commands_running"] == 1)
        upgrade(program)
        # The next command notices it.
        assert "newer" in cold.run("query", "--store", "g.omni", "-e", NAMES)[1]
        out, _ = running.communicate(ADD.encode(), timeout=SECONDS)
    assert (running.returncode, b"1 nodes" in out) == (0, True), out
    assert "Cy" in cold.run("query", "--store", "g.omni", "-e", NAMES)[1]
    wait_until(lambda: not cold.status()["running"])


# -- attacks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "attack", rotating(["open to others", "a link", "a file", "of another user"], 1, "warm attacks")
)
def test_a_directory_that_is_not_the_users_alone_is_not_used(cold, attack):
    cold.graph()
    elsewhere = cold.runtime / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    match attack:
        case "open to others":
            cold.sockets.mkdir()
            cold.sockets.chmod(0o750)
        case "a link":
            cold.sockets.symlink_to(elsewhere)
        case "a file":
            cold.sockets.write_bytes(b"")
        case "of another user":
            if os.geteuid():
                pytest.skip("needs root")
            cold.sockets.mkdir(mode=0o700)
            os.chown(cold.sockets, 65534, 65534)
    code, out, err = cold.run("warm", "start")
    assert (code, out) == (1, "")
    assert "cannot be used for the warm process" in err
    with socket.socket(socket.AF_UNIX) as listening:
        if cold.sockets.is_dir():
            listening.bind(str(cold.sockets / address.socket_name()))
            listening.listen()
        assert "Ana" in cold.run("query", "--store", "g.omni", "-e", NAMES)[1]
        if cold.sockets.is_dir():
            listening.settimeout(0)
            with pytest.raises(BlockingIOError):
                listening.accept()


def test_nothing_is_sent_to_a_process_of_another_user(cold):
    if os.geteuid():
        pytest.skip("needs root")
    cold.graph()
    cold.sockets.mkdir(mode=0o700)
    # Whoever calls listen() is the owner that the other side sees.
    impostor = subprocess.Popen(
        [
            *(sys.executable, "-c"),
            "import os, socket, sys\n"
            "s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); os.setuid(65534); s.listen()\n"
            "print('ready', flush=True); c, _ = s.accept(); print(len(c.recv(100)), flush=True)",
            str(cold.sockets / address.socket_name()),
        ],
        stdout=subprocess.PIPE,
    )
    assert impostor.stdout.readline() == b"ready\n"
    assert "Ana" in cold.run("query", "--store", "g.omni", "-e", NAMES)[1]
    assert impostor.communicate(timeout=SECONDS)[0] == b"0\n"


@pytest.mark.slow
def test_what_is_left_at_the_socket_is_no_obstacle(cold):
    cold.graph()
    cold.sockets.mkdir(mode=0o700)
    (cold.sockets / address.socket_name()).write_bytes(b"planted")
    assert "Ana" in cold.run("query", "--store", "g.omni", "-e", NAMES)[1]
    assert cold.run("warm", "start")[1].endswith("started\n")
    with cold.runs_warm():
        assert "Ana" in cold.run("query", "--store", "g.omni", "-e", NAMES)[1]


@pytest.mark.slow
def test_it_can_be_turned_off(desk):
    with desk.runs_warm(0):
        assert "Ana" in desk.run("query", "--store", "g.omni", "-e", NAMES, OMNIGRAPH_WARM="off")[1]
    code, _, err = desk.run("warm", "start", OMNIGRAPH_WARM="off")
    assert code == 1
    assert "OMNIGRAPH_WARM is off" in err


@pytest.mark.parametrize("garbage", [b"", b"R\xff\xff\xff\xff", b"Rabc", b"X\0\0\0\0", b"\0" * 64])
def test_garbage_on_the_socket_harms_nobody(desk, garbage):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(desk.sockets / address.socket_name()))
        connection.sendall(garbage)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(SECONDS)
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(100) in (b"", b"N\0\0\0\0")
    assert desk.status()["running"]
