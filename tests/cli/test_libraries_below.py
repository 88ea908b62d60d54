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
from tests.cli.place import Place
from tests.sampling import rotating

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
def place(tmp_path_factory) -> Place:
    place = Place(tmp_path_factory.mktemp("below"))
    rows = [{"type": "Person", "data": {"name": f"n{n:03}"}} for n in range(200)]
    place.write("d.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    for name in ("g.omni", "w.omni", "damaged.omni"):
        with Graph.init(place.directory / name, SCHEMA, durability="os") as graph:
            graph.load(place.directory / "d.jsonl")
    for file in (place.directory / "damaged.omni").glob("nodes/*/_versions/*.manifest"):
        # An impossible length, on which Lance panics.
        file.write_bytes(b"\xff" * 40 + file.read_bytes()[40:])
    place.write("sitecustomize.py", UNCHECKED)
    return place


# -- panics ---------------------------------------------------------------------------------------


def on_damage(place: Place, **environ: str) -> subprocess.CompletedProcess[str]:
    words = [word.replace("g.omni", "damaged.omni") for word in QUERY]
    return place.process(*words, PYTHONPATH=str(place.directory), **environ)


def test_a_panic_is_a_typed_error_and_nothing_else(place):
    done = on_damage(place, LANCE_LOG="debug")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: 'nodes/")
    assert done.stderr.endswith("code: storage_corrupt\n")
    assert "hint: `omnigraph verify` names all such files" in done.stderr
    assert [noise for noise in NOISE if noise in done.stderr] == []


def test_who_asks_for_it_sees_what_libraries_say(place):
    done = on_damage(place, OMNIGRAPH_DEBUG="1")
    assert done.returncode == 1
    assert "panicked" in done.stderr
    assert done.stderr.endswith("code: storage_corrupt\n")


def test_a_program_that_uses_the_library_keeps_its_stderr(place):
    """Also one that calls ``main`` with arguments: only the program itself may take it."""
    program = (
        "import os, sys; from omnigraph.cli import main; code = main(sys.argv[1:]); "
        "os.write(2, b'mine\\n'); sys.exit(code)"
    )
    words = [word.replace("g.omni", "damaged.omni") for word in QUERY]
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=place.directory,
        env={**os.environ, "PYTHONPATH": str(place.directory)},
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


def limited(place: Place, words: tuple[str, ...], megabytes: int) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "omnigraph.cli", *words]
    done = subprocess.run(
        [sys.executable, "-c", _LIMIT, str(megabytes), *command],
        cwd=place.directory,
        env={**os.environ, "OMNIGRAPH_HOME": str(place.directory / ".operator")},
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
def test_too_little_memory_is_a_typed_error(place, words, megabytes):
    code, out, err = limited(place, words, megabytes)
    assert [noise for noise in NOISE if noise in err] == []
    assert "internal error" not in err
    if code == 0:
        assert "200" in out
    else:
        assert (code, out) == (1, ""), err
        assert "Error: the process ran out of memory" in err
        assert err.endswith("code: memory_exceeded\n")
        assert "hint: raise its limit" in err
    with Graph.open(place.directory / "w.omni", durability="os") as graph:
        assert graph.maintenance.verify().problems == ()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the limit does not bind")
def test_a_limit_changes_nothing_where_there_is_enough(place):
    assert limited(place, QUERY, 1 << 14) == (0, place.run(*QUERY).stdout, "")
    assert limited(place, ("query", "--no-such-option"), 1 << 14)[0] == 2


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
