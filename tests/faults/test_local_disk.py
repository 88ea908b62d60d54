"""A local disk that is full or read-only: an error that says so, and all is well afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from omnigraph.api.graph import Graph
from omnigraph.errors import OutcomePending, StorageDenied, StorageFull
from omnigraph.storage.objects.paths import Root, parse_root
from tests.crash.harness import Prepared
from tests.crash.survival import State
from tests.faults.aftermath import Aftermath, Ending, ending_of
from tests.faults.disks import SmallDisk, small_disk
from tests.faults.location import open_graph
from tests.faults.scenarios import BOTH, SCENARIOS, Scenario

pytestmark = pytest.mark.rotates(6)

CHOSEN = [SCENARIOS[number] for number in (0, 1, 5, 6)]
every_scenario = pytest.mark.parametrize("scenario", CHOSEN, ids=str)
every_resource = pytest.mark.parametrize("resource", ["pages", "entries"])


@dataclass(frozen=True)
class Local:
    """A scenario on a local disk that can be run as often as one likes."""

    scenario: Scenario
    root: Root
    prepared: Prepared
    aftermath: Aftermath

    def again(self) -> tuple[Graph | None, Callable[[], object]]:
        """The graph as it was: the handle, and the operation to call."""
        self.prepared.put_back()
        return self.scenario.start(self.root)


def build(scenario: Scenario, folder: Path, copy: Path) -> Local:
    root = parse_root(str(folder / "g.omni"))
    scenario.build(root)
    prepared = Prepared.of(Path(root.uri), copy / "as-it-was")
    before = state(root)
    prepared.put_back()
    _, run = scenario.start(root)
    run()
    aftermath = Aftermath(before, state(root), BOTH, scenario.recovers, scenario.repeatable)
    return Local(scenario, root, prepared, aftermath)


def state(root: Root) -> State:
    with open_graph(root) as graph:
        return State.of(graph)


# -- full -----------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    top = tmp_path / "disk"
    top.mkdir()
    with small_disk(top) as actual:
        yield actual


@every_resource
@every_scenario
def test_a_disk_that_fills_up_is_an_error_until_there_is_room(disk, tmp_path, scenario, resource):
    local = build(scenario, disk.top, tmp_path)
    needed = room_for(disk, local, resource)
    for room in range(0, needed, max(needed // 3, 1)):
        check_full(disk, local, resource, room)


@pytest.mark.slow
@every_resource
@every_scenario
def test_a_disk_may_fill_up_at_any_moment(disk, tmp_path, scenario, resource):
    local = build(scenario, disk.top, tmp_path)
    for room in range(room_for(disk, local, resource) + 1):
        check_full(disk, local, resource, room)


def room_for(disk: SmallDisk, local: Local, resource: str) -> int:
    """How much an operation takes."""
    _, run = local.again()
    before = getattr(disk, resource)
    run()
    return getattr(disk, resource) - before


def check_full(disk: SmallDisk, local: Local, resource: str, room: int) -> None:
    veteran, run = local.again()
    with disk.only(**{resource: room}):
        ending = ending_of(run)
    assert isinstance(ending.error, StorageFull | OutcomePending | None) or panicked(ending)
    try:
        with open_graph(local.root) as graph:
            local.aftermath.check(ending, graph, veteran if room % 2 else None)
    except BaseException as error:
        error.add_note(f"after {room} {resource}: {ending}")
        raise


def panicked(ending: Ending) -> bool:
    """Lance gives up without a reason when it cannot write some file of a text index."""
    return ending.error is not None and type(ending.error.__cause__).__name__ == "PanicException"


def test_a_disk_without_any_room_says_so_and_takes_nothing(disk, tmp_path):
    local = build(SCENARIOS[0], disk.top, tmp_path)
    veteran, run = local.again()
    with disk.only(entries=0), pytest.raises(StorageFull) as raised:
        run()
    assert raised.value.hint == "free space and repeat"
    with open_graph(local.root) as graph:
        actual = local.aftermath.check(Ending(raised.value), graph, veteran)
    assert actual == local.aftermath.before


def test_a_disk_that_is_read_only_can_be_read(disk, tmp_path):
    local = build(SCENARIOS[0], disk.top, tmp_path)
    veteran, run = local.again()
    with disk.read_only():
        with pytest.raises(StorageDenied) as raised:
            run()
        with Graph.open(local.root.uri, "r") as graph:
            assert State.of(graph) == local.aftermath.before
    with open_graph(local.root) as graph:
        local.aftermath.check(Ending(raised.value), graph, veteran)
