"""One request fails, at every place of every operation: it ends well or by an error of ours."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from omnigraph.api.graph import Graph
from omnigraph.commit.store import Timeouts
from omnigraph.errors import (
    AlreadyInitialized,
    GraphNotFound,
    OutcomePending,
    StorageUnavailable,
    StorageUnknown,
)
from tests.crash.operations import BRANCH, rows
from tests.crash.survival import State
from tests.faults.aftermath import Aftermath, Ending, ending_of, finish_recovery
from tests.faults.location import IMPATIENT, PATIENT, Prefix, new_graph, open_graph
from tests.faults.scenarios import BOTH, PAIR, SCENARIOS, Ready
from tests.rotation import in_turn, rotation, sample
from tests.s3.proxy import Action, Fault, Kind, Request, S3Proxy
from tests.s3.server import options_for
from tests.sampling import rotating

pytestmark = pytest.mark.rotates(6)

LIMIT = 90.0
"""Seconds after which an operation counts as hung; the longest that is allowed is a third."""

# What can happen to a request. An answer that is cut is the same as no answer where nothing
# changed, and only a condition can fail.
_LOOK = (Action.CUT_BEFORE, Action.UNAVAILABLE)
_READ = (*_LOOK, Action.TRUNCATE)
_DELETE = (*_LOOK, Action.CUT_AFTER)
_WRITE = (*_DELETE, Action.PRECONDITION, Action.CONFLICT)
FAULTS = {
    Kind.HEAD: _LOOK,
    Kind.GET: _READ,
    Kind.LIST: _READ,
    Kind.PUT: _WRITE,
    Kind.POST: _WRITE,
    Kind.DELETE: _DELETE,
}

FIRST_WRITE, CREATE_BRANCH, APPLY = SCENARIOS[1], SCENARIOS[2], SCENARIOS[9]
QUICK_SCENARIOS = 2
every_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=str)


def cases(requests: tuple[Request, ...]) -> list[tuple[int, Action]]:
    """Every request of an operation with everything that can happen to it."""
    return [
        (number, action)
        for number, request in enumerate(requests, start=1)
        for action in FAULTS[request.kind]
    ]


def spread(actual: list[tuple[int, Action]], count: int) -> list[tuple[int, Action]]:
    """Some of them, spread over all places and kinds; others each day."""
    stride = -(-len(actual) // count)
    return actual[rotation() % stride :: stride]


# -- single faults --------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", sample(SCENARIOS, QUICK_SCENARIOS, "s3 faults"), ids=str)
def test_one_failed_request_breaks_nothing(ready, scenario):
    start = ready(scenario)
    for number, action in spread(cases(start.requests), 2):
        check_fault(start, Fault(action, at=number))


@pytest.mark.slow
@every_scenario
def test_no_failed_request_breaks_anything(ready, scenario):
    start = ready(scenario)
    for number, action in cases(start.requests):
        check_fault(start, Fault(action, at=number))


def check_fault(start: Ready, *faults: Fault, timeouts: Timeouts = IMPATIENT) -> Ending:
    """Run an operation that meets faults, then look at the graph without them."""
    with start.again(timeouts) as (proxy, graph, run):
        proxy.plan(*faults)
        ending = within_limit(lambda: ending_of(run))
        proxy.reset()
        # Whoever comes first afterwards, an old handle or a new one, must find its way.
        veteran = graph if faults[0].at % 2 else None
        with reported(faults, start, ending):
            start.check(ending, veteran)
    return ending


def within_limit(work):
    """What something gives, unless it hangs."""
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(work).result(LIMIT)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def reported(faults: tuple[Fault, ...], start: Ready, ending: Ending) -> Iterator[None]:
    """Say which fault it was when a check fails."""
    try:
        yield
    except BaseException as error:
        first = faults[0]
        where = f"of {first.kind}" if first.kind else str(start.requests[first.at - 1 :][:1])
        error.add_note(f"after '{first.action}' at request {first.at} {where}: {ending}")
        raise


def test_a_branch_whose_answer_was_lost_is_created(ready):
    fault = Fault(Action.CUT_AFTER, kind=Kind.PUT, path="_refs/branches")
    assert check_fault(ready(CREATE_BRANCH), fault, timeouts=PATIENT).error is None


def test_a_handle_that_could_not_load_a_branch_loads_it_later(ready):
    with ready(FIRST_WRITE).again() as (proxy, graph, _):
        proxy.plan(Fault(Action.CUT_BEFORE, times=float("inf"), kind=Kind.GET, path="_refs/"))
        with pytest.raises(StorageUnavailable):
            graph.snapshot(BRANCH)
        proxy.reset()
        assert graph.snapshot(BRANCH).count("Person") == 2


def test_a_handle_writes_on_after_it_completed_its_own_apply(ready, monkeypatch):
    """A recovery in the same process changes the schema of the handle too."""
    monkeypatch.setattr("omnigraph.api.handle._COMPARED_SECONDS", float("inf"))
    with ready(APPLY).again(PATIENT) as (proxy, graph, run):
        proxy.plan(Fault(Action.PRECONDITION, kind=Kind.PUT, path="__manifest/data/"))
        with pytest.raises(OutcomePending):
            run()
        proxy.reset()
        graph.append(rows("Person", "Grace"))
        assert graph.snapshot().count("Person") == 3


def test_a_handle_writes_on_after_another_completed_its_apply(ready, monkeypatch):
    """It notices before the write is prepared that the schema is another one."""
    monkeypatch.setattr("omnigraph.api.handle._COMPARED_SECONDS", float("inf"))
    start = ready(APPLY)
    with start.again(PATIENT) as (proxy, graph, run):
        proxy.plan(Fault(Action.PRECONDITION, kind=Kind.PUT, path="__manifest/data/"))
        with pytest.raises(OutcomePending):
            run()
        proxy.reset()
        with open_graph(start.location.root) as other:
            finish_recovery(other)
        graph.append(rows("Person", "Grace"))
        assert graph.snapshot().count("Person") == 3


def test_a_handle_writes_on_after_another_changed_the_schema(ready, monkeypatch):
    monkeypatch.setattr("omnigraph.api.handle._COMPARED_SECONDS", float("inf"))
    start = ready(APPLY)
    with start.again(PATIENT) as (_, graph, _), open_graph(start.location.root) as other:
        graph.append(rows("Person", "Alan"))
        other.schema.apply(PAIR)
        graph.append(rows("Person", "Grace"))
        assert graph.snapshot().count("Person") == 4


# -- init -----------------------------------------------------------------------------------------


def test_a_failed_request_leaves_a_whole_graph_or_none(new_root):
    check_init(new_root(), lambda actual: spread(actual, 4))


@pytest.mark.slow
def test_any_failed_request_leaves_a_whole_graph_or_none(new_root):
    check_init(new_root(), lambda actual: actual)


def check_init(root, choose):
    location = Prefix(root)
    port = int(root.options["aws_endpoint"].rpartition(":")[2])
    with S3Proxy(port) as proxy:
        through = location.through(proxy.endpoint)
        with new_graph(through) as graph:
            empty = State.of(graph)
        requests = tuple(proxy.log)
    for number, action in choose(cases(requests)):
        location.put_back()
        with S3Proxy(port) as proxy:
            proxy.plan(Fault(action, at=number))
            through = location.through(proxy.endpoint)
            ending = within_limit(
                lambda through=through: ending_of(lambda: new_graph(through, IMPATIENT))
            )
        try:
            graph = open_graph(root)
        except GraphNotFound:
            assert ending.error is not None, f"{action} at {number}: not there"
            graph = new_graph(root, force=True)
        else:
            allowed = (type(None), OutcomePending, StorageUnknown)
            assert isinstance(ending.error, allowed), f"{action} at {number}: {ending}"
        with graph:
            Aftermath(empty, empty, BOTH[:1]).check(Ending(), graph)


# -- storms ---------------------------------------------------------------------------------------

STORMS = [Kind.GET, Kind.LIST, Kind.HEAD, Kind.PUT, Kind.DELETE]


@pytest.mark.parametrize("kind", rotating(STORMS, 2, "short storms"))
def test_a_short_storm_of_refusals_passes_unnoticed(ready, kind):
    """Each client asks again a few times."""
    start = ready(SCENARIOS[0])
    fault = Fault(Action.UNAVAILABLE, at=2, times=3, kind=kind)
    assert check_fault(start, fault, timeouts=PATIENT).error is None


@pytest.mark.parametrize("kind", rotating([Kind.PUT, Kind.GET], 1, "endless storms"))
def test_an_endless_storm_of_refusals_ends_the_operation(ready, kind):
    check_fault(ready(SCENARIOS[0]), Fault(Action.UNAVAILABLE, times=float("inf"), kind=kind))


@pytest.mark.slow
@pytest.mark.parametrize("kind", STORMS)
@every_scenario
def test_a_storm_may_begin_anywhere_and_ends_the_operation(ready, scenario, kind):
    start = ready(scenario)
    count = sum(request.kind is kind for request in start.requests)
    for number in in_turn(range(1, count + 1, max(count // 4, 1)), 2):
        fault = Fault(Action.UNAVAILABLE, at=number, times=float("inf"), kind=kind)
        check_fault(start, fault)


# -- nobody there ---------------------------------------------------------------------------------


@pytest.mark.parametrize("listens", [False, True], ids=["refuses", "never answers"])
@pytest.mark.parametrize("action", ["open", "init"])
def test_a_dead_endpoint_is_an_error_soon(listens, action):
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        options = options_for(f"http://127.0.0.1:{dead.getsockname()[1]}")
        if listens:
            dead.listen()
        with pytest.raises(StorageUnavailable):
            within_limit(lambda: visit(action, options))


def visit(action, options):
    if action == "open":
        return Graph.open("s3://graphs/g.omni", storage_options=options)
    return Graph.init("s3://graphs/g.omni", "node A { x: I32? }", storage_options=options)


def test_a_graph_that_exists_is_not_initialised_again_through_a_bad_line(ready):
    start = ready(SCENARIOS[0])
    with start.again() as (proxy, _, _):
        proxy.plan(Fault(Action.UNAVAILABLE, times=2))
        with pytest.raises(AlreadyInitialized):
            new_graph(start.location.through(proxy.endpoint), IMPATIENT)
