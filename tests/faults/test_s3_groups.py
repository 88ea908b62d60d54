"""One request of a group fails: each member is acknowledged and stored, or neither."""

from __future__ import annotations

from collections import Counter

import pytest

from omnigraph.api.graph import Graph
from omnigraph.commit.group_members import group_of
from omnigraph.errors import OmniGraphError
from tests.commit.together import rows_of, sizes, together
from tests.crash.operations import rows
from tests.faults.aftermath import Ending, check_tidy, finish_recovery, go_on
from tests.faults.location import PATIENT, be_patient, open_graph
from tests.faults.scenarios import BOTH, Ready, Scenario, on_graph, opened, plain
from tests.faults.test_s3_faults import cases, reported, spread, within_limit
from tests.s3.proxy import Fault

pytestmark = pytest.mark.rotates(3)

MEMBERS = ("Grace", "Hal", "Ida")


def write_group(graph: Graph) -> list[object]:
    """Three writes that waited for another; what came of each."""
    calls = [lambda n=name: graph.append(rows("Person", n), actor=n) for name in MEMBERS]
    return together(graph, *calls)


GROUP = Scenario("write as a group", plain, on_graph(write_group), opened)


def test_the_members_are_committed_as_one_group(ready):
    with ready(GROUP).again(PATIENT) as (_, graph, run):
        assert not [outcome for outcome in run() if isinstance(outcome, BaseException)]
        assert sizes(graph)[-3:] == [(0, 3), (1, 3), (2, 3)]


def test_one_failed_request_of_a_group_breaks_nothing(ready):
    start = ready(GROUP)
    for number, action in spread(cases(start.requests), 4):
        check_fault(start, Fault(action, at=number))


@pytest.mark.slow
def test_no_failed_request_of_a_group_breaks_anything(ready):
    start = ready(GROUP)
    for number, action in cases(start.requests):
        check_fault(start, Fault(action, at=number))


def check_fault(start: Ready, fault: Fault) -> None:
    """Run the group through a fault, then compare each answer with the graph."""
    with start.again() as (proxy, veteran, run):
        proxy.plan(fault)
        outcomes = within_limit(run)
        proxy.reset()
        with (
            reported((fault,), start, Ending()),
            open_graph(start.location.root) as graph,
        ):
            finish_recovery(graph)
            for name, outcome in zip(MEMBERS, outcomes, strict=True):
                check_member(graph, name, outcome)
            check_groups(graph)
            check_tidy(graph)
            if fault.at % 2:
                be_patient(veteran)
                go_on(veteran, BOTH, "next by a veteran")
            go_on(graph, BOTH, "next")
            check_tidy(graph)


def check_member(graph: Graph, name: str, outcome: object) -> None:
    stored = {row["name"] for row in graph.snapshot().read("Person").to_pylist()}
    writers = Counter(row.actor for row in rows_of(graph))
    assert writers[name] == (name in stored), f"{name}: {writers[name]} commits"
    if isinstance(outcome, BaseException):
        assert isinstance(outcome, OmniGraphError), repr(outcome)
        ending = Ending(outcome)
        ending.check()
        assert ending.may_be_applied or name not in stored, f"{name} in spite of {outcome!r}"
    else:
        assert name in stored, f"{name} was acknowledged and is not there"


def check_groups(graph: Graph) -> None:
    groups = [group for row in rows_of(graph) if (group := group_of(row)) is not None]
    counts = Counter(group.id for group in groups)
    assert all(counts[group.id] == group.size for group in groups), "a group is not whole"
