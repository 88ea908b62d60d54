"""What was acknowledged survives a power failure: the system calls of whole operations say so.

A file is safe when it was synced after its last byte, and its name when the directory was synced
after the name came into being. Lance syncs nothing, so all of it is our doing.
"""

from __future__ import annotations

import functools
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest

from omnigraph import Graph
from omnigraph.commit.failpoints import Failpoint
from tests.crash import operations
from tests.crash.harness import Harness, Operation
from tests.crash.scenarios import RECOVERIES, WRITERS, Scenario, branched, died, forked, plain
from tests.crash.steps import NAMES, OPENS, SIZES, SYNCS, WRITES, Step
from tests.sampling import rotating

pytestmark = pytest.mark.rotates(6)

Traced = Callable[[Scenario], tuple[Step, ...]]

LINKS = frozenset({"link", "linkat"})
RENAMES = frozenset({"rename", "renameat", "renameat2"})
REMOVALS = frozenset({"unlink", "unlinkat", "rmdir"})
HINT = "latest_version_hint.json"
# What is no promise to anybody: leases end with their process, temporary files with their rename,
# what Lance takes for a hint may be wrong, and a checksum that is lost only cannot be compared.
PASSING = (".lease", "~", ".tmp", HINT, "__checksums")

if sys.platform != "linux":
    pytest.skip(
        "system calls are traced with strace, which only Linux has", allow_module_level=True
    )


@pytest.fixture(scope="module")
def crash(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    if shutil.which("strace") is None:
        pytest.fail("strace is missing; tools/ensure-strace installs it")
    harness = Harness(tmp_path_factory.mktemp("harness"))
    yield harness
    harness.close()


class Disk:
    """What a power failure would take, as a trace goes on: bytes of files, and names."""

    def __init__(self) -> None:
        self._bytes: set[str] = set()
        self._names: set[str] = set()

    def take(self, step: Step) -> None:
        path = step.paths[-1]
        if step.call in SYNCS:
            self._bytes.discard(path)
            self._names = {name for name in self._names if _folder(name) != path}
        elif step.call in WRITES | SIZES:
            self._bytes.add(step.paths[0])
        elif step.call in OPENS or step.call.startswith("mkdir"):
            self._names.add(path)
        elif step.call in RENAMES | LINKS:
            self._become(step.paths[0], path, moved=step.call in RENAMES)
        elif step.call in REMOVALS:
            self._bytes.discard(path)
            self._names.discard(path)
        else:
            assert step.call not in NAMES, f"what does {step} do to the disk?"

    def _become(self, source: str, target: str, *, moved: bool) -> None:
        self._names.add(target)
        if source in self._bytes:
            self._bytes.add(target)
        if moved:
            self._bytes.discard(source)
            self._names.discard(source)

    def unsafe(self, *tops: str) -> list[str]:
        """What is not safe yet, everywhere or below some directories."""
        actual = {path for path in self._bytes | self._names if not is_passing(path)}
        return sorted(path for path in actual if not tops or path.split("/")[0] in tops)


def _folder(path: str) -> str:
    return str(PurePosixPath(path).parent)


def is_passing(path: str) -> bool:
    return any(mark in path for mark in PASSING)


def is_version(step: Step) -> bool:
    """Whether a step makes a version of a dataset visible; one with a d is in no history."""
    name = PurePosixPath(step.paths[-1]).name
    return step.call in RENAMES | LINKS and name.endswith(".manifest") and name[0] != "d"


def is_sidecar(path: str) -> bool:
    return path.startswith("__recovery/") and path.endswith(".json")


@pytest.fixture(scope="module")
def traced(crash: Harness, tmp_path_factory: pytest.TempPathFactory) -> Traced:
    """The steps of a scenario; each is run once."""

    @functools.cache
    def get(scenario: Scenario) -> tuple[Step, ...]:
        root = tmp_path_factory.mktemp("scenario") / "graph"
        scenario.build(root, crash)
        return crash.durable_steps(scenario.operation, root)

    return get


@pytest.mark.parametrize("scenario", rotating([*WRITERS, *RECOVERIES], 3, "durability"), ids=str)
def test_all_that_was_written_is_safe_when_the_operation_returns(
    traced: Traced, scenario: Scenario
):
    disk = Disk()
    steps = traced(scenario)
    for step in steps:
        disk.take(step)
    assert disk.unsafe() == []
    assert any(step.syncs for step in steps)


@pytest.mark.parametrize("force", [False, True])
def test_a_new_graph_is_safe_when_init_returns(crash: Harness, tmp_path: Path, force: bool):
    operation = operations.init_by_force if force else operations.init
    disk = Disk()
    for step in crash.durable_steps(operation, tmp_path):
        if is_version(step) and step.paths[-1].startswith("__manifest/"):
            assert disk.unsafe("nodes", "edges") == []
        disk.take(step)
    assert disk.unsafe() == []


COMMITS = [
    scenario
    for scenario in WRITERS
    # A cleanup empties tables that no branch shows, and publishes nothing.
    if scenario.operation.__name__
    not in ("create_branch", "delete_branch", "create_tag", "clean_up")
]


@pytest.mark.parametrize("scenario", rotating(COMMITS, 2, "phases"), ids=str)
def test_each_phase_is_safe_before_the_next_begins(traced: Traced, scenario: Scenario):
    """The sidecar before a table moves, the tables before the publish, that before the end."""
    disk = Disk()
    published, forks, moved = False, set(), set()
    steps = traced(scenario)
    # Rows that were written again lie there until the end; no version names them.
    removed = {step.paths[-1] for step in steps if step.call in REMOVALS}
    for step in steps:
        path = step.paths[-1]
        if step.call.startswith("mkdir") and path.endswith("/_versions"):
            forks.add(path)
        if is_version(step) and path.startswith(("nodes/", "edges/")):
            if _folder(path) in forks:
                # The first version of a fork is the one of its parent.
                forks.discard(_folder(path))
            else:
                assert any(map(is_sidecar, moved)), f"{step} came before the sidecar"
                assert not [left for left in disk.unsafe("__recovery") if is_sidecar(left)]
        if is_version(step) and path.startswith("__manifest/"):
            assert set(disk.unsafe("nodes", "edges")) <= removed
            published = True
        if step.call in REMOVALS and is_sidecar(path):
            assert published
            assert disk.unsafe("__manifest") == []
        disk.take(step)
        moved.add(path)
    assert published


# -- what somebody else left ----------------------------------------------------------------------


def synced_by(crash: Harness, operation: Operation, root: Path) -> set[str]:
    return {step.paths[-1] for step in crash.durable_steps(operation, root) if step.call in SYNCS}


def files(root: Path, *tops: str) -> set[str]:
    return {
        str(path.relative_to(root))
        for top in tops
        for path in (root / top).rglob("*")
        if path.is_file() and not is_passing(path.name)
    }


@pytest.mark.parametrize("build", [plain, branched, forked])
def test_a_recovery_makes_safe_what_it_publishes(crash: Harness, tmp_path: Path, build: Callable):
    """The dead writer may have died before it synced its tables."""
    root = tmp_path / "graph"
    build(root, crash)
    before = files(root, "nodes", "edges")
    operation = operations.append_several if build is plain else operations.append_on_branch
    died(
        crash,
        functools.partial(operation, durability="os"),
        root,
        Failpoint.WRITE_AFTER_TABLES,
    )
    left = files(root, "nodes", "edges") - before
    assert len(left) >= 6
    assert left <= synced_by(crash, operations.reopen, root)


@pytest.mark.parametrize("point", [Failpoint.PUBLISH_AFTER, Failpoint.WRITE_AFTER_PUBLISH])
def test_a_recovery_makes_safe_what_it_finds_published(
    crash: Harness, tmp_path: Path, point: Failpoint
):
    """Otherwise the sidecar would be gone and the publish with it."""
    root = tmp_path / "graph"
    plain(root, crash)
    before = files(root, "__manifest")
    died(crash, functools.partial(operations.append_one, durability="os"), root, point)
    left = files(root, "__manifest") - before
    assert len(left) >= 3
    assert left <= synced_by(crash, operations.reopen, root)


def test_a_publish_makes_safe_what_it_builds_on(crash: Harness, tmp_path: Path):
    """A tag has no sidecar: whoever wrote it may have died before it was on the disk."""
    root = tmp_path / "graph"
    plain(root, crash)
    before = files(root, "__manifest")
    crash.run(functools.partial(operations.create_tag, durability="os"), root).must_not_fail()
    left = files(root, "__manifest") - before
    assert len(left) >= 3
    assert left <= synced_by(crash, operations.append_one, root)


# -- names that go away ---------------------------------------------------------------------------


def test_a_branch_that_was_deleted_does_not_come_back(crash: Harness, tmp_path: Path):
    root = tmp_path / "graph"
    forked(root, crash)
    reference = "__manifest/_refs/branches/feat.json"
    steps = crash.durable_steps(operations.delete_branch, root)
    gone = next(
        n for n, step in enumerate(steps) if step.call in REMOVALS and step.paths[-1] == reference
    )
    assert _folder(reference) in {step.paths[-1] for step in steps[gone:] if step.syncs}


# -- hints ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "\0" * 14, '{"version":1}', '{"version":99}', None])
def test_a_wrong_hint_misleads_nobody(tmp_path: Path, text: str | None):
    """Lance notes the newest version in a file that it never syncs, so it may be lost or torn."""
    root = tmp_path / "graph"
    with Graph.init(root, operations.SCHEMA) as graph:
        graph.append(operations.rows("Person", "Ada"))
        graph.append(operations.rows("Person", "Bob"))
    hints = list(root.rglob(HINT))
    assert hints
    for hint in hints:
        hint.unlink() if text is None else hint.write_text(text)
    with Graph.open(root) as graph:
        graph.append(operations.rows("Person", "Carl"))
        assert graph.snapshot().count("Person") == 3


# -- without the promise --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "build"),
    [
        (operations.append_several, plain),
        (operations.append_on_branch, branched),
        (operations.delete_rows, plain),
        (operations.ensure_indexes, plain),
        (operations.create_branch, plain),
        (operations.create_tag, plain),
        (operations.lose_the_publish, plain),
    ],
)
def test_nothing_is_synced_when_the_operating_system_is_trusted(
    crash: Harness, tmp_path: Path, operation: Operation, build: Callable
):
    root = tmp_path / "graph"
    build(root, crash)
    disk = Disk()
    steps = crash.durable_steps(functools.partial(operation, durability="os"), root)
    for step in steps:
        disk.take(step)
    assert [str(step) for step in steps if step.syncs] == []
    assert disk.unsafe() != []


def test_no_sync_makes_a_scratch_graph(crash: Harness, tmp_path: Path):
    operation = functools.partial(operations.init, durability="os")
    steps = crash.durable_steps(operation, tmp_path)
    assert [str(step) for step in steps if step.syncs] == []
