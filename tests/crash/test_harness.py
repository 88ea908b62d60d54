"""The harness reaches every step of an operation, and a plain Lance table survives each kill."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.commit.failpoints import Failpoint
from tests.crash import plain_table
from tests.crash.harness import Ending, Harness, Prepared
from tests.crash.plain_table import NEW, OLD
from tests.crash.steps import Step, Trace, shape_of

SIDECAR = Failpoint.WRITE_AFTER_SIDECAR
BETWEEN = Failpoint.WRITE_BETWEEN_TABLES


@pytest.fixture
def table(tmp_path: Path) -> Prepared:
    plain_table.create(tmp_path / "table")
    return Prepared.of(tmp_path / "table", tmp_path / "as-it-was")


@pytest.fixture
def empty(tmp_path: Path) -> Prepared:
    (tmp_path / "root").mkdir()
    return Prepared.of(tmp_path / "root", tmp_path / "as-it-was")


# -- operations that are no tables ----------------------------------------------------------------


def fail(root: Path) -> Iterator[None]:
    yield
    raise LookupError(f"nothing in {root.name}")


def fail_early(root: Path) -> Iterator[None]:
    raise LookupError("not prepared")
    yield


def replace_file(root: Path) -> Iterator[None]:
    """The textbook way to make a file durable."""
    (root / "before").touch()
    yield
    descriptor = os.open(root / "new", os.O_WRONLY | os.O_CREAT)
    os.write(descriptor, b"text")
    os.fsync(descriptor)
    os.close(descriptor)
    os.rename(root / "new", root / "file")
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(folder)
    os.close(folder)


def make_folders(root: Path, threads: int, one: int) -> Iterator[None]:
    """Folders one after the other, by several threads in turn."""
    yield
    for thread in range(threads):
        worker = threading.Thread(
            target=lambda thread=thread: [(root / f"{thread}-{n}").mkdir() for n in range(one)]
        )
        worker.start()
        worker.join()


# -- a plain table --------------------------------------------------------------------------------


def test_a_table_killed_after_any_step_has_the_old_rows_or_the_new(crash: Harness, table: Prepared):
    steps = crash.durable_steps(plain_table.append, table.put_back())
    seen = []
    for count, outcome in enumerate(crash.walk_steps(plain_table.append, table), start=1):
        rows = plain_table.rows(table.root)
        assert rows in (OLD, OLD + NEW), outcome.steps[-1]
        seen.append((outcome.ending, len(outcome.steps), rows == OLD + NEW))
        assert outcome.killed == (count <= len(steps))
    *kills, last = seen
    assert last == (Ending.COMPLETED, len(steps), True)
    assert kills == [(Ending.KILLED, n, new) for n, (_, _, new) in enumerate(kills, start=1)]
    commit = steps.index(next(step for step in steps if step.call == "linkat"))
    assert [new for _, _, new in kills] == [n >= commit for n in range(len(steps))]


def test_the_next_append_succeeds_after_any_kill(crash: Harness, table: Prepared):
    for outcome in crash.walk_steps(plain_table.append, table, stride=3):
        before = plain_table.rows(table.root)
        crash.run(plain_table.append, table.root).must_not_fail()
        assert plain_table.rows(table.root) == before + NEW, outcome.steps[-1]


def test_a_step_of_one_run_is_found_again_in_the_next(crash: Harness, table: Prepared):
    steps = crash.durable_steps(plain_table.append, table.put_back())
    promoted = next(step for step in steps if step.call == "renameat")
    assert promoted == Step("renameat", "data/*.lance", 1)
    outcome = crash.kill_at_step(plain_table.append, table.put_back(), promoted)
    assert outcome.killed
    assert outcome.steps == steps[: steps.index(promoted) + 1]
    assert plain_table.rows(table.root) == OLD


# -- steps ----------------------------------------------------------------------------------------


def test_steps_come_in_order_with_syncs_and_without_the_preparation(
    crash: Harness, empty: Prepared
):
    assert [str(step) for step in crash.durable_steps(replace_file, empty.root)] == [
        "openat new #1",
        "write new #1",
        "fsync new #1",
        "rename file #1",
        "fsync . #1",
    ]


def test_a_killed_step_has_taken_effect_and_the_next_has_not(crash: Harness, empty: Prepared):
    left = []
    for outcome in crash.walk_steps(replace_file, empty):
        names = sorted(path.name for path in empty.root.iterdir() if path.name != "before")
        sizes = [(empty.root / name).stat().st_size for name in names]
        left.append((outcome.killed, names, sizes))
    assert left == [
        (True, ["new"], [0]),
        (True, ["new"], [4]),
        (True, ["file"], [4]),
        (False, ["file"], [4]),
    ]


def test_a_walk_shows_what_killed_processes_leave(crash: Harness, table: Prepared):
    """By name and size; versions and transactions hold times and ids of varying length."""

    def left() -> list[tuple[str, int]]:
        files = [path for path in table.root.rglob("*") if path.is_file()]
        names = [shape_of(str(path.relative_to(table.root))) for path in files]
        # A version is written under another name first, which begins like its own.
        varying = [".manifest" in name or name.endswith(".txn") for name in names]
        sizes = [
            min(file.stat().st_size, 1 if varies else 1 << 40)
            for file, varies in zip(files, varying, strict=True)
        ]
        return sorted(zip(names, sizes, strict=True))

    walked = [left() for _ in crash.walk_steps(plain_table.append, table)]
    for count, expected in enumerate(walked, start=1):
        outcome = crash.kill_after(plain_table.append, table.put_back(), count)
        assert (outcome.killed, left()) == (count < len(walked), expected)


def test_steps_are_counted_over_all_threads(crash: Harness, empty: Prepared):
    operation = functools.partial(make_folders, threads=3, one=2)
    left = [len(list(empty.root.iterdir())) for _ in crash.walk_steps(operation, empty)]
    assert left == [1, 2, 3, 4, 5, 6, 6]


def test_a_step_that_never_comes_lets_the_operation_complete(crash: Harness, empty: Prepared):
    assert crash.kill_at_step(replace_file, empty.root, Step("mkdir", "nowhere", 1)).completed


@pytest.mark.slow
def test_hundreds_of_children_neither_hang_nor_crash(crash: Harness, table: Prepared):
    for _ in range(300):
        assert crash.run(plain_table.append, table.put_back()).completed
    for _ in range(10):
        ends = [outcome.ending for outcome in crash.walk_steps(plain_table.append, table)]
        assert Ending.FAILED not in ends


# -- failpoints -----------------------------------------------------------------------------------


def test_crossings_are_listed_in_order(crash: Harness, table: Prepared):
    assert crash.crossings(plain_table.append, table.root) == (SIDECAR, BETWEEN, BETWEEN)


def test_a_process_dies_at_the_crossing_that_was_asked_for(crash: Harness, table: Prepared):
    left = []
    for location in crash.walk_failpoints(plain_table.append, table):
        left.append((*location, plain_table.rows(table.root)))
    assert left == [(SIDECAR, 1, OLD), (BETWEEN, 1, OLD), (BETWEEN, 2, OLD + NEW)]


def test_a_failpoint_that_is_not_crossed_so_often_lets_the_operation_complete(
    crash: Harness, table: Prepared
):
    outcome = crash.kill_at_failpoint(plain_table.append, table.root, BETWEEN, 3)
    assert outcome.completed
    assert plain_table.rows(table.root) == OLD + NEW


# -- operations that fail by themselves -----------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "text"), [(fail, "nothing in root"), (fail_early, "not prepared")]
)
def test_an_operation_that_fails_is_neither_killed_nor_completed(
    crash: Harness, empty: Prepared, operation, text
):
    outcome = crash.run(operation, empty.root)
    assert outcome.ending is Ending.FAILED
    assert text in outcome.output
    with pytest.raises(AssertionError, match=text):
        crash.durable_steps(operation, empty.root)


# -- the trace ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('7 openat(AT_FDCWD</w>, "/g/a", O_RDWR|O_CREAT|O_EXCL, 0666) = 9</g/a>', "openat a #1"),
        ('7 openat(AT_FDCWD</w>, "/g/a", O_RDONLY|O_CLOEXEC) = 9</g/a>', None),
        ('7 openat(5</g/data>, "a", O_WRONLY|O_TRUNC) = 9</g/data/a>', "openat data/a #1"),
        ('7 openat(AT_FDCWD</w>, "/elsewhere", O_WRONLY|O_CREAT) = 9</elsewhere>', None),
        ('7 write(9</g/a>, ""..., 256)          = 256', "write a #1"),
        ('7 write(4<anon_inode:[eventfd]>, ""..., 8) = 8', None),
        ('7 mkdir("/g/data", 0777)          = 0', "mkdir data #1"),
        ('7 mkdir("/g/data", 0777)          = -1 EEXIST (File exists)', None),
        ('7 mkdir("/graph/data", 0777)      = 0', None),
        ('7 renameat(AT_FDCWD</g>, "/g/a", AT_FDCWD</g>, "/g/b") = 0', "renameat b #1"),
        ('7 rename("/w/a", "/g/b")          = 0', "rename b #1"),
        ('7 rename("/g/b", "/w/a")          = 0', "rename b #1"),
        ('7 unlinkat(5</g/data>, "a", 0)    = 0', "unlinkat data/a #1"),
        ("7 copy_file_range(4</g/a>, NULL, 5</g/b>, NULL, 9, 0) = 9", "copy_file_range b #1"),
        ("7 sendfile(5</g/b>, 4</g/a>, NULL, 9) = 9", "sendfile b #1"),
        ("7 ftruncate(5</g/b>, 0)           = 0", "ftruncate b #1"),
        ("7 +++ exited with 0 +++", None),
        ("7 --- stopped by SIGSTOP ---", None),
        ('7 unlink("/g/a" <unfinished ...>', None),
    ],
)
def test_a_line_of_a_trace_is_a_step_or_nothing(line, expected):
    steps = Trace("/g").feed(f"{line}\n")
    assert [str(step) for step in steps] == ([] if expected is None else [expected])


def test_a_call_that_another_thread_interrupts_ends_where_it_resumes():
    trace = Trace("/g")
    first = trace.feed('7 unlink("/g/a" <unfinished ...>\n8 unlink("/g/b") = 0\n')
    assert first == [Step("unlink", "b", 1)]
    assert trace.feed("7 <... unlink resumed>)            = 0\n") == [Step("unlink", "a", 1)]


def test_half_a_line_waits_for_its_other_half():
    trace = Trace("/g")
    assert trace.feed('7 unlink("/g/a") ') == []
    assert trace.feed("= 0\n") == [Step("unlink", "a", 1)]


def test_calls_on_one_shape_are_numbered():
    trace = Trace("/g")
    trace.feed('7 unlink("/g/.tmpAAAAAA") = 0\n8 unlink("/g/.tmpBBBBBB") = 0\n')
    assert trace.steps == [Step("unlink", ".tmp*", 1), Step("unlink", ".tmp*", 2)]


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("data/.tmpFw5UVL", "data/.tmp*"),
        ("data/0111100111010000100111009059b64c77a9263888db671385.lance", "data/*.lance"),
        ("_indices/48c2c2ae-247c-49f8-a0ca-1040eac0d14f/page.idx", "_indices/*/page.idx"),
        ("_deletions/0-1-12264730529337061846.arrow", "_deletions/0-1-*.arrow"),
        ("__recovery/01JZX3V5N8Q2W4E6R8T0Y2C4D6.json", "__recovery/*.json"),
        ("_versions/18446744073709551613.manifest", "_versions/18446744073709551613.manifest"),
        ("nodes/af63dc4c8601ec8c/data", "nodes/af63dc4c8601ec8c/data"),
    ],
)
def test_a_shape_keeps_what_is_the_same_in_every_run(path, shape):
    assert shape_of(path) == shape
