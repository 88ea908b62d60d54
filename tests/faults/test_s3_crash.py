"""A process that works on S3 dies at a request, or is stopped until others take it for dead."""

from __future__ import annotations

import functools

import pytest

from omnigraph.commit.failpoints import Failpoint
from omnigraph.errors import StorageUnknown
from tests.crash.operations import rows
from tests.crash.survival import State
from tests.faults import children
from tests.faults.aftermath import NEXT, Ending, finish_recovery, without_next
from tests.faults.children import Children
from tests.faults.location import open_graph
from tests.faults.scenarios import SCENARIOS, Ready
from tests.rotation import sample
from tests.s3.proxy import Action, Fault, S3Proxy
from tests.sampling import rotating

KILLED = [
    number
    for number, scenario in enumerate(SCENARIOS)
    if "write" in scenario.name or "append" in scenario.name or "roll" in scenario.name
]
APPEND = 0
HOURS = 7200.0
MOST_LOST = 50
OTHER = f"{NEXT} by another"

PAUSES = (
    Failpoint.WRITE_AFTER_SIDECAR,
    Failpoint.WRITE_BETWEEN_TABLES,
    Failpoint.WRITE_AFTER_TABLES,
    Failpoint.PUBLISH_BEFORE,
)
MORE_PAUSES = (
    Failpoint.WRITE_AFTER_LEASES,
    Failpoint.PUBLISH_AFTER,
    Failpoint.WRITE_AFTER_PUBLISH,
    Failpoint.WRITE_AFTER_SIDECAR_DELETE,
)
NUMBERS = {scenario.name: number for number, scenario in enumerate(SCENARIOS)}
RECOVERY_PAUSES = {
    NUMBERS["roll forward"]: (Failpoint.RECOVERY_AFTER_LEASES, Failpoint.RECOVERY_BEFORE_PUBLISH),
    NUMBERS["roll back a fork"]: (
        Failpoint.RECOVERY_AFTER_LEASES,
        Failpoint.RECOVERY_BEFORE_RESTORE,
        Failpoint.RECOVERY_AFTER_RESTORE,
        Failpoint.RECOVERY_AFTER_PUBLISH,
        Failpoint.RECOVERY_AFTER_AUDIT,
    ),
}
FORK = 1
FORK_PAUSES = (Failpoint.FORK_BEFORE_CREATE, Failpoint.WRITE_AFTER_FORK, *PAUSES, *MORE_PAUSES)

every_killed = pytest.mark.parametrize("number", KILLED, ids=lambda number: str(SCENARIOS[number]))


class Killed(StorageUnknown):
    """How an operation ends whose process was killed."""


# -- killed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "number", sample(KILLED, 1, "s3 crashes"), ids=lambda number: str(SCENARIOS[number])
)
def test_a_writer_that_dies_at_a_request_is_finished_or_taken_back(ready, family, number):
    start = ready(SCENARIOS[number])
    count = len(start.requests)
    for at in (count // 2, count * 4 // 5):
        check_kill(start, family, number, at)


@pytest.mark.slow
@every_killed
def test_a_writer_may_die_at_any_request(ready, family, number):
    start = ready(SCENARIOS[number])
    at, lost = 1, 0
    while (ending := check_kill(start, family, number, at)).error is not None:
        if isinstance(ending.error, Killed):
            at += 1
        else:
            # Its lease expired on a busy machine before it came so far.
            lost += 1
            assert lost < MOST_LOST
    assert at > len(start.requests) // 2


def check_kill(start: Ready, family: Children, number: int, at: int) -> Ending:
    """Kill the operation before a request arrives, then look; how it ended.

    Every place is covered: dying after a request leaves what dying before the next one leaves.
    """
    start.location.put_back()
    fault = Fault(Action.DELAY, at=at, seconds=HOURS)
    with S3Proxy(start.port) as proxy:
        root = start.location.through(proxy.endpoint)
        pid = family.at_gate(functools.partial(children.scenario, number), root)
        proxy.reset()
        proxy.plan(fault)
        ended = family.kill_at(pid, fault)
        # Else the proxy would still forward the request of the dead when it lets go of it.
        proxy._server.close_connections()
    ending = Ending(Killed("killed")) if ended is None else ended
    start.check(ending)
    return ending


# -- stopped --------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", rotating(PAUSES, 1, "s3 pauses"))
def test_a_writer_that_was_stopped_too_long_does_no_harm(ready, family, point):
    check_pause(ready(SCENARIOS[APPEND]), family, APPEND, point)


@pytest.mark.slow
@pytest.mark.parametrize("point", MORE_PAUSES)
def test_a_writer_may_be_stopped_at_any_boundary(ready, family, point):
    check_pause(ready(SCENARIOS[APPEND]), family, APPEND, point)


@pytest.mark.slow
@pytest.mark.parametrize("point", FORK_PAUSES)
def test_a_writer_that_forks_may_be_stopped_at_any_boundary(ready, family, point):
    check_pause(ready(SCENARIOS[FORK]), family, FORK, point)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "point"),
    [(number, point) for number, points in RECOVERY_PAUSES.items() for point in points],
    ids=str,
)
def test_a_recovery_may_be_stopped_at_any_boundary(ready, family, number, point):
    check_pause(ready(SCENARIOS[number]), family, number, point)


def check_pause(start: Ready, family: Children, number: int, point: Failpoint) -> None:
    """Stop a writer until another one has written to the same tables, then let it go on."""
    start.location.put_back()
    root = start.location.root
    expected = start.aftermath
    pid = family.at_gate(functools.partial(children.paused, number, point), root)
    try:
        assert family.stop_at_boundary(pid), f"{point} was not crossed"
        with open_graph(root) as other:
            branches = other.branches.list()
            for branch in branches:
                other.append(rows("Person", OTHER) | rows("Company", OTHER), branch=branch)
            finish_recovery(other)
            meanwhile = without_next(State.of(other))
        assert meanwhile in (expected.before, expected.after)
        ending = family.ending(pid)
    except BaseException:
        family.drop(pid)
        raise
    with open_graph(root) as graph:
        actual = expected.check(ending, graph)
        for branch in branches:
            people = graph.snapshot(branch).read("Person")["id"].to_pylist()
            assert OTHER in people
            assert len(people) == len(set(people))
    if meanwhile == expected.after:
        assert actual == expected.after, "it was there, and is gone"
