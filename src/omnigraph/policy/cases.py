"""Test cases for a bundle: a YAML file of requests with the decisions that are expected.

Version 1 is the form of earlier servers. In version 2 a case may name a stored query, a row that is
seen or not, and what comes with a token: groups and attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Literal, cast

from omnigraph.errors import PolicyInvalid
from omnigraph.escaping import escape
from omnigraph.identity import AttributeValue, Identity
from omnigraph.policy.actions import ACTIONS, Action
from omnigraph.policy.bundle_file import read_attributes
from omnigraph.policy.decision import Decider
from omnigraph.records import dataclass
from omnigraph.yaml_tree import YamlProblem, YamlValue, parse_yaml

_KEYS = ("id", "actor", "action", "branch", "target_branch", "expect")
_KEYS_2 = (*_KEYS, "query", "sees", "groups", "attributes")
_MAIN = "main"


@dataclass(frozen=True, slots=True)
class PolicyCase:
    """One request and the decision that is expected; ``action`` is ``None`` for a row."""

    id: str
    actor: str
    action: Action | None
    expect: Literal["allow", "deny"]
    branch: str | None = None
    target: str | None = None
    query: str | None = None
    row: tuple[str, str] | None = None
    """The type and the id of a row that the actor sees, or not."""
    groups: frozenset[str] = frozenset()
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)

    @property
    def identity(self) -> Identity:
        return Identity(self.actor, self.groups, self.attributes)

    @property
    def row_branch(self) -> str:
        """The branch on which the row is looked up."""
        return _MAIN if self.branch is None else self.branch


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
        if version.whole() not in (1, 2):
            raise YamlProblem("policy test version must be 1 or 2", version.line)
        cases: dict[str, PolicyCase] = {}
        for value in top.required(entries, "cases").items():
            case = _case(value, version.whole())
            if case.id in cases:
                raise YamlProblem(f"duplicate policy test id '{escape(case.id)}'", value.line)
            cases[case.id] = case
    except YamlProblem as problem:
        raise PolicyInvalid(
            f"policy tests '{escape(name)}', line {problem.line}: {problem.message}",
            details={"policy": name, "line": problem.line},
        ) from None
    return tuple(cases.values())


def run_cases(
    policy: Decider,
    cases: Sequence[PolicyCase],
    sees: Callable[[PolicyCase], bool] | None = None,
) -> tuple[CaseFailure, ...]:
    """The cases that fail, in their order; ``sees`` decides about cases that name a row."""
    return failed_cases(cases, lambda case: _is_allowed(policy, case, sees))


def failed_cases(
    cases: Sequence[PolicyCase], is_allowed: Callable[[PolicyCase], bool]
) -> tuple[CaseFailure, ...]:
    """The cases that are decided in another way than expected."""
    failures = []
    for case in cases:
        decided: Literal["allow", "deny"] = "allow" if is_allowed(case) else "deny"
        if decided != case.expect:
            failures.append(CaseFailure(case, decided))
    return tuple(failures)


def _is_allowed(
    policy: Decider, case: PolicyCase, sees: Callable[[PolicyCase], bool] | None
) -> bool:
    if case.action is not None:
        decision = policy.decide(
            case.identity, case.action, case.branch, case.target, query=case.query
        )
        return decision.allowed
    if sees is None:
        raise PolicyInvalid(
            f"policy test '{escape(case.id)}' names a row, and there is no graph",
            hint="pass the graph, for example with --store",
        )
    return sees(case)


def _case(value: YamlValue, version: int) -> PolicyCase:
    entries = value.mapping(_KEYS if version == 1 else _KEYS_2)
    row = _row(entries["sees"]) if "sees" in entries else None
    wanted = ("id", "actor", "expect") if row is not None else ("id", "actor", "action", "expect")
    required = {key: value.required(entries, key) for key in wanted}
    for key in ("id", "actor"):
        if not required[key].text().strip():
            raise YamlProblem(f"{required[key].path} must not be blank", required[key].line)
    if row is not None and "action" in entries:
        raise YamlProblem(f"{value.path} has both action and sees", value.line)
    branch, target, query = (
        entries[key].text() if key in entries and not entries[key].is_null else None
        for key in ("branch", "target_branch", "query")
    )
    return PolicyCase(
        required["id"].text(),
        required["actor"].text(),
        None if row is not None else cast(Action, required["action"].choice(*ACTIONS)),
        "allow" if required["expect"].choice("allow", "deny") == "allow" else "deny",
        branch,
        target,
        query,
        row,
        frozenset(group.text() for group in entries["groups"].items())
        if "groups" in entries
        else frozenset(),
        read_attributes(entries["attributes"]) if "attributes" in entries else {},
    )


def _row(value: YamlValue) -> tuple[str, str]:
    entries = value.mapping(("type", "id"))
    return value.required(entries, "type").text(), value.required(entries, "id").text()
