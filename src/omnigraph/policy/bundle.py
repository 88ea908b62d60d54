"""The content of a bundle: groups, rules for actions, and rules for rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from omnigraph.identity import AttributeValue
from omnigraph.lang.diagnostics import Source
from omnigraph.policy.actions import IMPLIED
from omnigraph.policy.patterns import BranchNames
from omnigraph.records import dataclass

ANY_TYPE = "*"


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One rule: a group, what it may do, and on which branches or with which stored queries."""

    id: str
    group: str
    actions: tuple[str, ...]
    branch_scope: str | None = None
    target_branch_scope: str | None = None
    branches: BranchNames | None = None
    target_branches: BranchNames | None = None
    queries: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class RowRule:
    """The rows of some types that a group sees; without ``where``, all of them."""

    id: str
    group: str
    types: tuple[str, ...]
    branches: BranchNames | None = None
    where: Source | None = None
    line: int = 0

    def names(self, type_name: str) -> bool:
        """Whether the rule is for a type."""
        return ANY_TYPE in self.types or type_name in self.types


@dataclass(frozen=True, slots=True)
class Bundle:
    """The content of a bundle file. Without ``rows``, every actor sees the whole graph."""

    version: int
    groups: Mapping[str, tuple[str, ...]]
    protected: BranchNames
    rules: tuple[PolicyRule, ...]
    attributes: Mapping[str, Mapping[str, AttributeValue]] = field(default_factory=dict)
    rows: tuple[RowRule, ...] | None = None

    def actions_of(self, rule: PolicyRule) -> tuple[str, ...]:
        """What a rule allows; in version 1, an action may include others."""
        allowed = dict.fromkeys(rule.actions)
        if self.version == 1:
            for action in rule.actions:
                allowed |= dict.fromkeys(IMPLIED.get(action, ()))
        return tuple(allowed)
