"""A server dies anywhere in an apply: its record is honest, and the next apply completes it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omnigraph.cluster.deployments import DeploymentRecord, Deployments
from omnigraph.cluster.storage import ClusterStorage
from omnigraph.commit.failpoints import Failpoint
from omnigraph.settings import Settings
from tests.cluster.lab import Lab
from tests.crash.cluster_operations import deploy, deployer_of, sent_files
from tests.crash.harness import Harness, Prepared
from tests.crash.test_crash_cluster import (
    STRIDE,
    Scenario,
    approved,
    check,
    imported,
    migrating,
)
from tests.sampling import rotating

SCENARIOS = (
    Scenario("create", imported, deploy, frozenset({"after_create", "before_ledger"})),
    Scenario("migrate", migrating, deploy, frozenset({"after_schema", "before_ledger"})),
    Scenario("delete", approved, deploy, frozenset({"after_delete", "before_ledger"})),
)
every_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=str)


@pytest.fixture
def prepared(scenario: Scenario, arena: Path, request: pytest.FixtureRequest) -> Prepared:
    root = arena / request.node.name.replace("[", "-").rstrip("]") / "lab"
    root.parent.mkdir(parents=True)
    scenario.prepare(Lab(root))
    return Prepared.of(root, root.with_name("as-it-was"))


def lab_at(root: Path) -> Lab:
    # `Lab` would write its files again.
    lab = Lab.__new__(Lab)
    lab.directory, lab.settings = root, Settings()
    return lab


def records_of(root: Path) -> list[DeploymentRecord]:
    return Deployments(ClusterStorage(str(root), Settings())).newest(10)


def check_record(root: Path, before: str) -> str:
    """What the record of the dead server says is what has happened; returns that."""
    lab, records = lab_at(root), records_of(root)
    text = lab.ledger.read_text()
    if not records:
        # It died before it wrote that it begins: nothing else was written either.
        assert (text, lab.sidecars, lab.lock.exists()) == (before, [], False)
        return "none"
    (record,) = records
    assert record.outcome in ("lost", "converged")
    if record.outcome == "converged":
        assert record.ended_at is not None
        assert record.revision == lab.state["state_revision"]
        assert lab.plan().changes == ()
        assert (lab.sidecars, lab.lock.exists()) == ([], False)
    else:
        assert (record.ended_at, record.report, record.in_force) == (None, None, None)
    return record.outcome


def check_next(scenario: Scenario, root: Path) -> None:
    """The next apply by a server completes it, whatever the first one left."""
    lab, first = lab_at(root), records_of(root)
    if lab.lock.exists():
        # Time passes: the dead process does not renew its lock.
        os.utime(lab.lock, (0, 0))
    done = deployer_of(root).apply(sent_files(root), "ana", None)
    assert (done.outcome, done.in_force) == ("converged", True), done.report
    assert records_of(root) == [done, *first]
    check(scenario, root)


@pytest.mark.parametrize("scenario", rotating(SCENARIOS, 1, "deployment boundaries"), ids=str)
def test_a_server_may_die_at_the_boundaries_of_an_apply(crash: Harness, prepared, scenario):
    before = lab_at(prepared.root).ledger.read_text()
    for point, _ in crash.walk_failpoints(scenario.operation, prepared):
        if point.removeprefix("cluster.") in scenario.points:
            assert check_record(prepared.root, before) == "lost"
            check_next(scenario, prepared.root)


@pytest.mark.parametrize("scenario", rotating(SCENARIOS, 1, "deployment steps"), ids=str)
def test_a_server_may_die_at_some_steps_of_an_apply(crash: Harness, prepared, scenario):
    walk(crash, prepared, scenario, start=3, stride=STRIDE)


@pytest.mark.slow
@every_scenario
def test_a_server_may_die_at_any_step_of_an_apply(crash: Harness, prepared, scenario):
    seen = walk(crash, prepared, scenario)
    # Before the first record, between both, and after the last one.
    assert list(dict.fromkeys(seen)) == ["none", "lost", "converged"]
    print(f"{scenario}: {len(seen) - 1} steps")


def walk(
    crash: Harness, prepared: Prepared, scenario: Scenario, start: int = 1, stride: int = 1
) -> list[str]:
    before = lab_at(prepared.root).ledger.read_text()
    seen = []
    for _ in crash.walk_steps(scenario.operation, prepared, start=start, stride=stride):
        seen.append(check_record(prepared.root, before))
        check_next(scenario, prepared.root)
    assert seen[-1] == "converged"
    return seen


def test_the_boundaries_are_those_of_a_cluster():
    names = {f"cluster.{point}" for scenario in SCENARIOS for point in scenario.points}
    assert names <= set(Failpoint)
