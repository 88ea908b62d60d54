"""Decides about actions: sorts a request into its class and remembers the decision of the class.

A decision depends on an actor only by its groups, on a branch only by whether it is protected and
which rules name it, and on a query only by which rules name it. So a few hundred classes stand for
all requests, and a server asks Cedar once for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from omnigraph.identity import Identity
from omnigraph.policy.actions import BundleScope
from omnigraph.policy.bounded import BoundedCache
from omnigraph.policy.bundle import Bundle, PolicyRule
from omnigraph.policy.cedar import BranchClass, CedarRules, RequestClass
from omnigraph.policy.patterns import BranchNames

MOST_DECISIONS = 8192
MOST_NAMES = 4096
"""The names of branches and queries whose class is remembered, at most."""

_NO_BRANCH = BranchClass()
_NO_RULES: frozenset[str] = frozenset()
_UNDECIDED = object()


class ActionRules:
    """The decisions of one bundle. Safe to share between threads."""

    def __init__(self, bundle: Bundle, scope: BundleScope) -> None:
        self._bundle = bundle
        self._cedar = CedarRules(bundle, scope)
        self._groups = frozenset(bundle.groups)
        self._groups_of = _groups_by_actor(bundle)
        self._decisions: BoundedCache[RequestClass, object] = BoundedCache(MOST_DECISIONS)
        self._branches: BoundedCache[str, BranchClass] = BoundedCache(MOST_NAMES)
        self._targets: BoundedCache[str, BranchClass] = BoundedCache(MOST_NAMES)
        self._queries: BoundedCache[str, frozenset[str]] = BoundedCache(MOST_NAMES)

    def groups_of(self, actor: str | Identity) -> frozenset[str]:
        """The groups of the bundle that an actor is in, by the bundle or by its token."""
        if isinstance(actor, str):
            return self._groups_of.get(actor, _NO_RULES)
        groups = self._groups_of.get(actor.id, _NO_RULES)
        return groups | (self._groups & actor.groups) if actor.groups else groups

    def decide(
        self,
        groups: frozenset[str],
        actor: str,
        action: str,
        branch: str | None,
        target: str | None,
        query: str | None,
    ) -> str | None:
        """The rule that allows a request of an actor in some groups; ``None`` if none does."""
        request = RequestClass(
            groups,
            action,
            self._class_of(branch, self._branches, _branches),
            self._class_of(target, self._targets, _target_branches),
            self._queries_of(query),
        )
        rule = self._decisions.get(request, _UNDECIDED)
        if rule is _UNDECIDED:
            rule = self._cedar.decide(request, actor, branch, target)
            self._decisions.put(request, rule)
        assert rule is None or isinstance(rule, str)
        return rule

    def _class_of(
        self,
        branch: str | None,
        classes: BoundedCache[str, BranchClass],
        names: Callable[[PolicyRule], BranchNames | None],
    ) -> BranchClass:
        if branch is None:
            return _NO_BRANCH
        result = classes.get(branch)
        if result is None:
            rules = (
                rule.id
                for rule in self._bundle.rules
                if (scope := names(rule)) is not None and scope.contain(branch)
            )
            result = BranchClass(True, self._bundle.protected.contain(branch), frozenset(rules))
            classes.put(branch, result)
        return result

    def _queries_of(self, query: str | None) -> frozenset[str]:
        if query is None:
            return _NO_RULES
        result = self._queries.get(query)
        if result is None:
            result = frozenset(_rules_naming(self._bundle, query))
            self._queries.put(query, result)
        return result


def _branches(rule: PolicyRule) -> BranchNames | None:
    return rule.branches


def _target_branches(rule: PolicyRule) -> BranchNames | None:
    return rule.target_branches


def _rules_naming(bundle: Bundle, query: str) -> Iterator[str]:
    for rule in bundle.rules:
        if rule.queries is not None and query in rule.queries:
            yield rule.id


def _groups_by_actor(bundle: Bundle) -> dict[str, frozenset[str]]:
    groups: dict[str, set[str]] = {}
    for group, actors in bundle.groups.items():
        for actor in actors:
            groups.setdefault(actor, set()).add(group)
    return {actor: frozenset(names) for actor, names in groups.items()}
