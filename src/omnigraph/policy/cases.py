"""Test cases for a bundle: a YAML file of requests with the decisions that are expected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

from omnigraph.errors import PolicyInvalid
from omnigraph.escaping import escape
from omnigraph.policy.actions import ACTIONS, Action
from omnigraph.policy.decision import Decider
from omnigraph.records import dataclass
from omnigraph.yaml_tree import YamlProblem, YamlValue, parse_yaml

_KEYS = ("id", "actor", "action", "branch", "target_branch", "expect")


@dataclass(frozen=True, slots=True)
class PolicyCase:
    """One request and the decision that is expected."""

    id: str
    actor: str
    action: Action
    expect: Literal["allow", "deny"]
    branch: str | None = None
    target: str | None = None


@dataclass(frozen=True, slots=True)
class CaseFailure:
    """A case that a policy decides in another way."""

    case: PolicyCase
    decided: Literal["allow", "deny"]

    def __str__(self) -> str:
        return f"{self.case.id}: expected {self.case.expect.capitalize()} but got {self.decided}"


def read_cases(text: str, name: str = "<cases>") -> tuple[PolicyCase, ...]:
    """The cases of a file; raises ``PolicyInvalid`` with the line.

    >>> case = "{id: a, actor: bo, action: change, branch: main, expect: deny}"
    >>> read_cases(f"{{version: 1, cases: [{case}]}}")[0].expect
    'deny'
    """
    try:
        top = parse_yaml(text)
        entries = top.mapping(("version", "cases"))
        version = top.required(entries, "version")
        if version.whole() != 1:
            raise YamlProblem("policy test version must be 1", version.line)
        cases: dict[str, PolicyCase] = {}
        for value in top.required(entries, "cases").items():
            case = _case(value)
            if case.id in cases:
                raise YamlProblem(f"duplicate policy test id '{escape(case.id)}'", value.line)
            cases[case.id] = case
    except YamlProblem as problem:
        raise PolicyInvalid(
            f"policy tests '{escape(name)}', line {problem.line}: {problem.message}",
            details={"policy": name, "line": problem.line},
        ) from None
    return tuple(cases.values())


def run_cases(policy: Decider, cases: Sequence[PolicyCase]) -> tuple[CaseFailure, ...]:
    """The cases that fail, in their order."""
    failures = []
    for case in cases:
        decision = policy.decide(case.actor, case.action, case.branch, case.target)
        decided: Literal["allow", "deny"] = "allow" if decision.allowed else "deny"
        if decided != case.expect:
            failures.append(CaseFailure(case, decided))
    return tuple(failures)


def _case(value: YamlValue) -> PolicyCase:
    entries = value.mapping(_KEYS)
    required = {key: value.required(entries, key) for key in ("id", "actor", "action", "expect")}
    for key in ("id", "actor"):
        if not required[key].text().strip():
            raise YamlProblem(f"{required[key].path} must not be blank", required[key].line)
    optional = [
        entries[key].text() if key in entries and not entries[key].is_null else None
        for key in ("branch", "target_branch")
    ]
    return PolicyCase(
        required["id"].text(),
        required["actor"].text(),
        cast(Action, required["action"].choice(*ACTIONS)),
        "allow" if required["expect"].choice("allow", "deny") == "allow" else "deny",
        *optional,
    )
