"""Who gains and who loses what by a changed policy, as a plan shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.lab import CONFIG, Lab, codes

BUNDLE = """\
version: {version}
groups: {{staff: [ana, bo], leads: [cy]}}
protected_branches: [main, release/**]
rules:
{rules}
{rows}
"""


def rule(name: str, group: str, actions: str, scope: str = "") -> str:
    return f"  - {{id: {name}, allow: {{actors: {{group: {group}}}, actions: [{actions}]{scope}}}}}"


ANY = ", branch_scope: any"
UNPROTECTED = ", branch_scope: unprotected"


def bundle(*rules: str, version: int = 1, rows: str = "") -> str:
    return BUNDLE.format(version=version, rules="\n".join(rules), rows=rows)


READ = rule("r", "staff", "read", ANY)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "lab")


def change(lab: Lab, before: str, after: str) -> dict[str, tuple[list[str], list[str]]]:
    """The gains and losses of each actor when a bundle replaces another."""
    lab.write("kb.policy.yaml", before)
    lab.applied()
    lab.write("kb.policy.yaml", after)
    return effects(lab)


def effects(lab: Lab) -> dict[str, tuple[list[str], list[str]]]:
    (entry,) = lab.plan().policy_changes
    return {actor["actor"]: (actor["gains"], actor["losses"]) for actor in entry["actors"]}


CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "written in another way": (
        bundle(rule("a", "staff", "read, change", ANY)),
        bundle(rule("c", "staff", "change", ANY), rule("b", "staff", "read", ANY)),
        {},
    ),
    "another action": (
        bundle(READ),
        bundle(READ, rule("c", "staff", "change", UNPROTECTED)),
        {actor: (["change on other branches"], []) for actor in ("ana", "bo")},
    ),
    "less than before": (
        bundle(READ, rule("c", "staff", "change", ANY)),
        bundle(READ, rule("c", "staff", "change", UNPROTECTED)),
        {actor: ([], ["change on main", "change on release/**"]) for actor in ("ana", "bo")},
    ),
    "another member": (
        bundle(READ),
        bundle(READ).replace("[ana, bo]", "[ana]").replace("[cy]", "[cy, bo]"),
        {"bo": ([], ["read", "read_history"])},
    ),
    "a pattern of branches": (
        bundle(READ, version=2),
        bundle(READ, rule("m", "leads", "change", ", branches: [draft/*]"), version=2),
        {"cy": (["change on draft/*"], [])},
    ),
    "a stored query": (
        bundle(READ, rule("q", "leads", "invoke_query", ", queries: [due]"), version=2),
        bundle(READ, rule("q", "leads", "invoke_query", ", queries: [other]"), version=2),
        {"cy": (["invoke_query other"], ["invoke_query due"])},
    ),
    "a target of merges": (
        bundle(READ),
        bundle(READ, rule("m", "leads", "branch_merge", ", target_branch_scope: protected")),
        {"cy": (["branch_merge into main", "branch_merge into release/**"], [])},
    ),
    "rows": (
        bundle(READ, version=2),
        bundle(
            READ,
            version=2,
            rows="rows:\n  - {id: t, actors: {group: staff}, types: [Task], where: 'name = \"a\"'}",
        ),
        {
            "ana": (['rows of Task where name = "a"'], ["all rows"]),
            "bo": (['rows of Task where name = "a"'], ["all rows"]),
            "cy": ([], ["all rows"]),
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_plan_shows_gains_and_losses(lab, case):
    before, after, expected = CASES[case]
    assert change(lab, before, after) == expected


def test_a_new_policy_and_a_deleted_one(lab):
    lab.write("kb.policy.yaml", bundle(READ))
    assert lab.import_().ok
    created = {actor: (["read", "read_history"], []) for actor in ("ana", "bo")}
    assert effects(lab) == created
    assert lab.apply().is_converged
    lab.write("cluster.yaml", CONFIG.partition("policies:")[0])
    assert effects(lab) == {actor: (losses, gains) for actor, (gains, losses) in created.items()}


def test_a_policy_of_the_server_is_compared_by_its_actions(lab):
    lab.write("cluster.yaml", "version: 1\npolicies: {s: {file: s.yaml, applies_to: [cluster]}}\n")
    lab.write("s.yaml", bundle(rule("g", "staff", "graph_list")))
    lab.applied()
    lab.write("s.yaml", bundle(rule("g", "leads", "graph_list, config_manage")))
    assert effects(lab) == {
        "ana": ([], ["graph_list"]),
        "bo": ([], ["graph_list"]),
        "cy": (["graph_list", "config_manage"], []),
    }


def test_a_damaged_text_of_the_applied_policy_is_no_reason_to_fail(lab):
    lab.applied()
    lab.blob("policy").unlink()
    lab.edit("kb.policy.yaml", "[ana, bo]", "[ana]")
    plan = lab.plan()
    assert (plan.ok, codes(plan)) == (True, ["policy_preview_unavailable"])
