"""What libraries below do to the process: panics on stderr, and no memory left.

A user of the command sees a typed error, and nothing of a library.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from omnigraph import Graph
from omnigraph.errors import MemoryExceeded
from omnigraph.exhaustion import as_memory_exceeded
from omnigraph.storage.objects.failures import translate
from omnigraph.storage.tables.failures import translate_lance
from tests.cli.workspace import Workspace
from tests.sampling import rotating

pytestmark = pytest.mark.rotates(3)

SCHEMA = "node Person { name: String @key }"
QUERY = (
    "query",
    "--store",
    "g.omni",
    "-e",
    "query q() { match { $p: Person } return { $p.name } }",
)
LOAD = ("load", "w.omni", "--data", "d.jsonl", "--mode", "merge")
NOISE = ("panicked", ".rs:", "RUST_BACKTRACE", "WARN", "lance::", "Traceback", "OpenBLAS")


# The damage is known before Lance sees the file; here it has to panic.
UNCHECKED = """
from omnigraph.storage.first_read import FirstReads
FirstReads.check_version_file = lambda *given: None
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory) -> Workspace:
    workspace = Workspace(tmp_path_factory.mktemp("below"))
    rows = [{"type": "Person", "data": {"name": f"n{n:03}"}} for n in range(200)]
    workspace.write("d.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    for name in ("g.omni", "w.omni", "damaged.omni"):
        with Graph.init(workspace.directory / name, SCHEMA, durability="os") as graph:
            graph.load(workspace.directory / "d.jsonl")
    for file in (workspace.directory / "damaged.omni").glob("nodes/*/_versions/*.manifest"):
        # An impossible length, on which Lance panics.
        file.write_bytes(b"\xff" * 40 + file.read_bytes()[40:])
    workspace.write("sitecustomize.py", UNCHECKED)
    return workspace


# -- panics ---------------------------------------------------------------------------------------


def on_damage(workspace: Workspace, **environ: str) -> subprocess.CompletedProcess[str]:
    words = [word.replace("g.omni", "damaged.omni") for word in QUERY]
    return workspace.process(*words, PYTHONPATH=str(workspace.directory), **environ)


def test_a_panic_is_a_typed_error_and_nothing_else(workspace):
    done = on_damage(workspace, LANCE_LOG="debug")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: 'nodes/")
    assert done.stderr.endswith("code: storage_corrupt\n")
    assert "hint: `omnigraph verify` names all such files" in done.stderr
    assert [noise for noise in NOISE if noise in done.stderr] == []


def test_who_asks_for_it_sees_what_libraries_say(workspace):
    done = on_damage(workspace, OMNIGRAPH_DEBUG="1")
    assert done.returncode == 1
    assert "panicked" in done.stderr
    assert done.stderr.endswith("code: storage_corrupt\n")


def test_a_program_that_uses_the_library_keeps_its_stderr(workspace):
    """Also one that calls ``main`` with arguments: only the program itself may take it."""
    program = (
        "import os, sys; from omnigraph.cli import main; code = main(sys.argv[1:]); "
        "os.write(2, b'mine\\n'); sys.exit(code)"
    )
    words = [word.replace("g.omni", "damaged.omni") for word in QUERY]
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=workspace.directory,
        env={**os.environ, "PYTHONPATH": str(workspace.directory)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "panicked" in done.stderr
    assert done.stderr.endswith("mine\n")


# -- memory ---------------------------------------------------------------------------------------


# In a program of its own: nothing may be forked where Lance was used.
_LIMIT = (
    "import os, resource, sys; size = int(sys.argv[1]) << 20; "
    "resource.setrlimit(resource.RLIMIT_AS, (size, size)); os.execv(sys.argv[2], sys.argv[2:])"
)


def limited(workspace: Workspace, words: tuple[str, ...], megabytes: int) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "omnigraph.cli", *words]
    done = subprocess.run(
        [sys.executable, "-c", _LIMIT, str(megabytes), *command],
        cwd=workspace.directory,
        env={**os.environ, "OMNIGRAPH_HOME": str(workspace.directory / ".operator")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


LIMITS = (64, 100, 160, 200, 250, 300, 400, 500, 600, 700, 800, 1000, 1500, 2000)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the limit does not bind")
@pytest.mark.parametrize(
    ("words", "megabytes"),
    rotating([(words, size) for words in (QUERY, LOAD) for size in LIMITS], 1, "memory limits"),
)
def test_too_little_memory_is_a_typed_error(workspace, words, megabytes):
    code, out, err = limited(workspace, words, megabytes)
    assert [noise for noise in NOISE if noise in err] == []
    assert "internal error" not in err
    if code == 0:
        assert "200" in out
    else:
        assert (code, out) == (1, ""), err
        assert "Error: the process ran out of memory" in err
        assert err.endswith("code: memory_exceeded\n")
        assert "hint: raise its limit" in err
    with Graph.open(workspace.directory / "w.omni", durability="os") as graph:
        assert graph.maintenance.verify().problems == ()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the limit does not bind")
def test_a_limit_changes_nothing_where_there_is_enough(workspace):
    assert limited(workspace, QUERY, 1 << 14) == (0, workspace.run(*QUERY).stdout, "")
    assert limited(workspace, ("query", "--no-such-option"), 1 << 14)[0] == 2


def panic(text: str) -> BaseException:
    return type("PanicException", (BaseException,), {})(text)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        ImportError("libarrow.so: failed to map segment from shared object"),
        ImportError("libx.so: cannot allocate memory in static TLS block"),
        ImportError("x.so: cannot map zero-fill pages"),
        RuntimeError("can't start new thread"),
        OSError(12, "Cannot allocate memory"),
        OSError("LanceError(IO): Cannot allocate memory (os error 12)"),
        panic("failed to spawn thread: Os { code: 11, kind: WouldBlock }"),
        panic("OS can't spawn worker thread: Resource temporarily unavailable (os error 11)"),
    ],
    ids=repr,
)
def test_a_lack_of_memory_is_known_by_whatever_name(error):
    assert isinstance(as_memory_exceeded(error), MemoryExceeded)
    assert isinstance(translate_lance(error, "read", "t"), MemoryExceeded)
    # A write that failed on the way may have arrived.
    unknown = translate_lance(error, "commit", "t", writes=True)
    assert not isinstance(unknown, MemoryExceeded)


@pytest.mark.parametrize(
    "error",
    [
        ImportError("No module named 'x'"),
        ValueError("out of memory"),
        OSError(28, "No space left on device"),
        OSError("a value: out of memory"),
        RuntimeError("out of range"),
        KeyError("can't start new thread"),
    ],
    ids=repr,
)
def test_other_failures_are_not_taken_for_it(error):
    assert as_memory_exceeded(error) is None


def test_memory_that_lacks_below_is_told_as_such():
    error = RuntimeError("wrapped")
    error.__cause__ = MemoryError()
    assert isinstance(as_memory_exceeded(error), MemoryExceeded)
    assert isinstance(translate(OSError(12, "x"), "read", "t"), MemoryExceeded)
    assert not isinstance(translate(OSError(12, "x"), "write", "t", writes=True), MemoryExceeded)
