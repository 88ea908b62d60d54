"""A command on a cluster dies anywhere: the next one completes its work, and nothing is lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from omnigraph.cluster.applied import read_applied
from omnigraph.commit.failpoints import Failpoint
from omnigraph.settings import Settings
from tests.cluster.lab import DUE_DATES, WIDER, Lab
from tests.crash import cluster_operations as commands
from tests.crash.harness import Harness, Operation, Prepared
from tests.sampling import rotating

pytestmark = pytest.mark.rotates(3)

OLD = "  old: {schema: old.pg}\n"
OLD_SCHEMA = "node Note {\n  slug: String @key\n}\n"
ROWS = [{"type": "Task", "data": {"name": name}} for name in ("a", "b", "c")]
STRIDE = 29
"""The bounded run dies at each step of so many."""


def imported(lab: Lab) -> None:
    assert lab.import_().ok


def with_rows(lab: Lab) -> None:
    lab.write("old.pg", OLD_SCHEMA)
    lab.edit("cluster.yaml", "policies:", f"{OLD}policies:")
    lab.applied()
    with lab.open(mode="rw") as graph:
        graph.load(ROWS)


def migrating(lab: Lab) -> None:
    with_rows(lab)
    lab.write("kb.pg", WIDER)
    lab.write("queries/due.gq", DUE_DATES)


def deleting(lab: Lab) -> None:
    with_rows(lab)
    lab.edit("cluster.yaml", OLD, "")


def approved(lab: Lab) -> None:
    deleting(lab)
    assert lab.approve("graph.old").ok


def declared(lab: Lab) -> None:
    """Nothing but the files."""


@dataclass(frozen=True)
class Scenario:
    """What is there before, the command, and the boundaries that it crosses."""

    name: str
    prepare: Callable[[Lab], None]
    operation: Operation
    points: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return self.name


SCENARIOS = (
    Scenario("import", declared, commands.import_first, frozenset({"before_ledger"})),
    Scenario(
        "create",
        imported,
        commands.apply,
        frozenset({"before_create", "after_create", "after_payloads", "before_ledger"}),
    ),
    Scenario(
        "migrate",
        migrating,
        commands.apply,
        frozenset({"before_schema", "after_schema", "after_payloads", "before_ledger"}),
    ),
    Scenario(
        "delete",
        approved,
        commands.apply,
        frozenset({"after_payloads", "before_delete", "after_delete", "before_ledger"}),
    ),
    Scenario("approve", deleting, commands.approve),
    Scenario("refresh", migrating, commands.refresh, frozenset({"before_ledger"})),
)
every_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=str)


@pytest.fixture
def prepared(scenario: Scenario, arena: Path, request: pytest.FixtureRequest) -> Prepared:
    root = arena / request.node.name.replace("[", "-").rstrip("]") / "lab"
    root.parent.mkdir(parents=True)
    scenario.prepare(Lab(root))
    return Prepared.of(root, root.with_name("as-it-was"))


def check(scenario: Scenario, root: Path) -> None:
    """The next commands complete what the dead one left, without anybody's help."""
    # `Lab` would write its files again.
    lab = Lab.__new__(Lab)
    lab.directory, lab.settings = root, Settings()
    if lab.lock.exists():
        # Time passes: the dead process does not renew its lock.
        os.utime(lab.lock, (0, 0))
    if scenario.name == "import" and not (lab.ledger.exists() and lab.state["state_revision"]):
        assert lab.import_().ok
    if scenario.name in ("approve", "refresh") and scenario.prepare is deleting:
        assert lab.approve("graph.old").ok
    report = lab.apply()
    assert (report.ok, report.is_converged) == (True, True), report.diagnostics
    assert (lab.sidecars, lab.lock.exists()) == ([], False)
    again = lab.apply()
    assert (again.ok, again.is_written, again.changes) == (True, False, ())
    applied = read_applied(str(root), Settings())
    assert {graph.graph_id for graph in applied.graphs} >= {"kb"}
    with lab.open() as graph:
        assert graph.schema.text() == (root / "kb.pg").read_text()
        has_rows = scenario.prepare not in (declared, imported)
        assert graph.snapshot().count("Task") == (len(ROWS) if has_rows else 0)
    is_deleted = scenario.prepare in (deleting, approved)
    assert lab.root("old").exists() is (
        not is_deleted and "old" in (root / "cluster.yaml").read_text()
    )
    assert all(
        entry["consumed_at"] is not None
        for entry in lab.approvals
        if entry["approval_id"] in lab.state["approval_records"]
    )
    if is_deleted:
        assert len(lab.state["approval_records"]) == 1


@every_scenario
def test_a_command_may_die_at_each_of_its_boundaries(crash: Harness, prepared, scenario):
    passed = []
    for point, _ in crash.walk_failpoints(scenario.operation, prepared):
        if point.startswith("cluster."):
            passed.append(point.removeprefix("cluster."))
            check(scenario, prepared.root)
    assert set(passed) == scenario.points


@pytest.mark.parametrize("scenario", rotating(SCENARIOS, 2, "cluster steps"), ids=str)
def test_a_command_may_die_at_some_steps(crash: Harness, prepared, scenario):
    steps = 0
    for _ in crash.walk_steps(scenario.operation, prepared, start=5, stride=STRIDE):
        check(scenario, prepared.root)
        steps += 1
    assert steps


@pytest.mark.slow
@every_scenario
def test_a_command_may_die_at_any_step(crash: Harness, prepared, scenario):
    steps = 0
    for _ in crash.walk_steps(scenario.operation, prepared):
        check(scenario, prepared.root)
        steps += 1
    print(f"{scenario}: {steps - 1} steps")
    assert steps > 10


def test_the_scenarios_cross_every_boundary_of_a_cluster():
    passed = {f"cluster.{point}" for scenario in SCENARIOS for point in scenario.points}
    assert passed == {point for point in Failpoint if point.startswith("cluster.")}
