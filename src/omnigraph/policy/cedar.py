"""The rules of a bundle as Cedar policies: the only module that knows Cedar.

One ``permit`` per rule and action, named ``<rule>:<action>``, under a schema that Cedar checks
strictly. Names from a bundle or a request are always values of JSON, never parts of a text, so
quotes, line ends or ``::`` in them mean nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, NamedTuple

from omnigraph.errors import InternalError, PackageMissing
from omnigraph.policy.actions import (
    ACTIONS,
    GRAPH_ACTIONS,
    SERVER_ACTIONS,
    SHARED_ACTIONS,
    BundleScope,
)
from omnigraph.policy.bundle import Bundle, PolicyRule

NAMESPACE = "Omnigraph"
_RESOURCES: dict[BundleScope, tuple[str, str]] = {
    "graph": (f"{NAMESPACE}::Graph", "default"),
    "server": (f"{NAMESPACE}::Server", "root"),
}
_CONTEXT = {
    "branch": "String",
    "has_branch": "Boolean",
    "branch_is_protected": "Boolean",
    "branch_rules": "Set",
    "target_branch": "String",
    "has_target_branch": "Boolean",
    "target_branch_is_protected": "Boolean",
    "target_branch_rules": "Set",
    "query_rules": "Set",
}
"""The facts about a request. ``*_rules`` are the ids of the rules whose names cover it."""

Json = dict[str, Any]


class BranchClass(NamedTuple):
    """What rules can tell about a branch: all branches of a class are decided alike."""

    is_given: bool = False
    is_protected: bool = False
    rules: frozenset[str] = frozenset()


class RequestClass(NamedTuple):
    """What the decision about a request depends on."""

    groups: frozenset[str]
    action: str
    branch: BranchClass
    target: BranchClass
    query_rules: frozenset[str]


class CedarRules:
    """The compiled rules of a bundle. Safe to share between threads."""

    def __init__(self, bundle: Bundle, scope: BundleScope) -> None:
        """Compile and validate; raises ``PackageMissing`` if Cedar is not installed."""
        cedar = _cedar()
        self._is_authorized = cedar.is_authorized
        self._resource = _entity(*_RESOURCES[scope])
        # Cedar takes a request about an action of the other scope for an error.
        self._actions = SHARED_ACTIONS | (GRAPH_ACTIONS if scope == "graph" else SERVER_ACTIONS)
        policies, self._rules = _policies(bundle, self._resource)
        text = json.dumps({"staticPolicies": policies, "templates": {}, "templateLinks": []})
        try:
            self._schema = _parsed_schema()
            self._policies = cedar.PolicySet.from_json_str(text)
            self._entities = cedar.Entities.from_json_str(
                json.dumps([_member("Group", group, ()) for group in bundle.groups]), self._schema
            )
            report = cedar.validate_policies(cedar.policies_from_json_str(text), self._schema)
        except ValueError as error:
            raise InternalError(f"policy: the rules cannot be compiled: {error}") from None
        if not report.validation_passed:
            raise InternalError(f"policy: the compiled rules are not valid: {report.errors[0]}")

    def decide(
        self, request: RequestClass, actor: str, branch: str | None, target: str | None
    ) -> str | None:
        """The smallest id of the rules that allow a request; ``None`` if none does."""
        if request.action not in self._actions:
            return None
        principal = _member("Actor", actor, request.groups)
        context = {
            "branch": _text(branch),
            "has_branch": request.branch.is_given,
            "branch_is_protected": request.branch.is_protected,
            "branch_rules": sorted(request.branch.rules),
            "target_branch": _text(target),
            "has_target_branch": request.target.is_given,
            "target_branch_is_protected": request.target.is_protected,
            "target_branch_rules": sorted(request.target.rules),
            "query_rules": sorted(request.query_rules),
        }
        try:
            result = self._is_authorized(
                {
                    "principal": principal["uid"],
                    "action": _entity(f"{NAMESPACE}::Action", request.action),
                    "resource": self._resource,
                    "context": context,
                },
                self._policies,
                self._entities.with_added_json_str(json.dumps([principal])),
                self._schema,
            )
        except ValueError as error:
            raise InternalError(f"policy: {error}") from None
        if result.diagnostics.errors:
            raise InternalError(f"policy: {result.diagnostics.errors[0]}")
        if not result.allowed:
            return None
        return min(self._rules[policy] for policy in result.diagnostics.reasons)


def _cedar() -> Any:
    try:
        import cedarpy
    except ImportError:
        raise PackageMissing(
            "policies need the package cedarpy",
            hint="install omnigraph with its extra: pip install 'omnigraph[policy]'",
            details={"package": "cedarpy", "extra": "policy"},
        ) from None
    return cedarpy


# -- policies ------------------------------------------------------------------------------------


def _policies(bundle: Bundle, resource: Json) -> tuple[dict[str, Json], Mapping[str, str]]:
    """The policies by their ids, and the rule of each."""
    policies: dict[str, Json] = {}
    rules: dict[str, str] = {}
    for rule in bundle.rules:
        conditions = [{"kind": "when", "body": part} for part in _conditions(rule)]
        for action in bundle.actions_of(rule):
            policy = f"{rule.id}:{action}"
            rules[policy] = rule.id
            policies[policy] = {
                "effect": "permit",
                "principal": {"op": "in", "entity": _entity(f"{NAMESPACE}::Group", rule.group)},
                "action": {"op": "==", "entity": _entity(f"{NAMESPACE}::Action", action)},
                "resource": {"op": "==", "entity": resource},
                "conditions": conditions,
                "annotations": {"id": policy},
            }
    return policies, rules


def _conditions(rule: PolicyRule) -> list[Json]:
    if rule.branch_scope in ("protected", "unprotected"):
        return _scope("branch", rule.branch_scope)
    if rule.target_branch_scope in ("protected", "unprotected"):
        return _scope("target_branch", rule.target_branch_scope)
    for names, fact in (
        (rule.branches, "branch_rules"),
        (rule.target_branches, "target_branch_rules"),
        (rule.queries, "query_rules"),
    ):
        if names is not None:
            return [{"contains": {"left": _fact(fact), "right": {"Value": rule.id}}}]
    return []


def _scope(subject: str, scope: str | None) -> list[Json]:
    is_protected = _fact(f"{subject}_is_protected")
    negated = {"!": {"arg": is_protected}}
    return [_fact(f"has_{subject}"), is_protected if scope == "protected" else negated]


def _fact(name: str) -> Json:
    return {".": {"left": {"Var": "context"}, "attr": name}}


# -- schema and entities -------------------------------------------------------------------------


@cache
def _parsed_schema() -> Any:
    """The schema is the same for all bundles; it says which facts a policy may use."""
    return _cedar().Schema.from_json_str(json.dumps(_schema()))


def _schema() -> Json:
    attributes = {
        name: {"type": kind, "element": {"type": "String"}} if kind == "Set" else {"type": kind}
        for name, kind in _CONTEXT.items()
    }
    context = {"type": "Record", "attributes": attributes}
    actions = {
        action: {
            "appliesTo": {
                "principalTypes": ["Actor"],
                "resourceTypes": _resource_types(action),
                "context": context,
            }
        }
        for action in ACTIONS
    }
    types: Json = {"Actor": {"memberOfTypes": ["Group"]}, "Group": {}, "Graph": {}, "Server": {}}
    return {NAMESPACE: {"entityTypes": types, "actions": actions}}


def _resource_types(action: str) -> list[str]:
    if action in SHARED_ACTIONS:
        return ["Graph", "Server"]
    return ["Graph"] if action in GRAPH_ACTIONS else ["Server"]


def _entity(kind: str, name: str) -> Json:
    return {"type": kind, "id": _text(name)}


def _member(kind: str, name: str, groups: Collection[str]) -> Json:
    parents = [_entity(f"{NAMESPACE}::Group", group) for group in sorted(groups)]
    return {"uid": _entity(f"{NAMESPACE}::{kind}", name), "attrs": {}, "parents": parents}


def _text(name: str | None) -> str:
    """A name as text that Cedar can store; half of a surrogate pair, of which no rule consists,
    is replaced."""
    return "" if name is None else name.encode("utf-8", "replace").decode()
