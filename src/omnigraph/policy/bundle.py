"""Bundles of version 1: the YAML file, its validation, and its content.

The order of the checks and the marked parts of their texts are part of the contract with users of
earlier servers. A key that means nothing here is refused: a mistyped ``branch_scpoe`` would
otherwise widen access.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from omnigraph.errors import PolicyInvalid
from omnigraph.escaping import escape
from omnigraph.policy.actions import (
    ACTIONS,
    GRAPH_ACTIONS,
    ON_BRANCH,
    ON_TARGET,
    SERVER_ACTIONS,
    BundleScope,
)
from omnigraph.policy.patterns import BranchNames
from omnigraph.records import dataclass
from omnigraph.yaml_tree import YamlProblem, YamlValue, parse_yaml

_TOP = ("version", "kind", "groups", "protected_branches", "rules")
_SCOPES = ("any", "protected", "unprotected")


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One rule: a group, what it may do, and on which branches."""

    id: str
    group: str
    actions: tuple[str, ...]
    branch_scope: str | None = None
    target_branch_scope: str | None = None


@dataclass(frozen=True, slots=True)
class Bundle:
    """The content of a bundle file."""

    groups: Mapping[str, tuple[str, ...]]
    protected: BranchNames
    rules: tuple[PolicyRule, ...]


def read_bundle(text: str, name: str, scope: BundleScope) -> Bundle:
    """Parse and validate a bundle for a graph or for the server; raises ``PolicyInvalid``."""
    try:
        reader = _BundleReader(parse_yaml(text))
        reader.check(scope)
    except YamlProblem as problem:
        raise PolicyInvalid(
            f"policy '{escape(name)}', line {problem.line}: {problem.message}",
            hint="docs/policy.md lists the keys and rules of a bundle",
            details={"policy": name, "line": problem.line},
        ) from None
    return reader.bundle


@dataclass(frozen=True, slots=True)
class _WrittenRule:
    """A rule as it is written, with the lines of its parts."""

    rule: PolicyRule
    line: int
    actions: tuple[YamlValue, ...]


class _BundleReader:
    """Reads the whole tree first, so that types are checked before rules, as the order says."""

    def __init__(self, top: YamlValue) -> None:
        self._check_version(top)
        entries = top.mapping(_TOP)
        if "kind" in entries:
            entries["kind"].choice("server", "graph")
        none = YamlValue(None, "", top.line)
        self._groups = {
            name: (value.line, tuple(actor.text() for actor in value.items()))
            for name, value in entries.get("groups", none).mapping().items()
        }
        self._protected = [
            (value.line, value.text()) for value in entries.get("protected_branches", none).items()
        ]
        self._rules = [_rule(value) for value in entries.get("rules", none).items()]

    def _check_version(self, top: YamlValue) -> None:
        entries = top.mapping()
        version = top.required(entries, "version")
        if version.whole() != 1:
            raise YamlProblem("policy version must be 1", version.line)

    @property
    def bundle(self) -> Bundle:
        return Bundle(
            {name: actors for name, (_, actors) in self._groups.items()},
            BranchNames(tuple(name for _, name in self._protected)),
            tuple(lines.rule for lines in self._rules),
        )

    def check(self, scope: BundleScope) -> None:
        for name, (line, actors) in self._groups.items():
            self._check_group(name, line, actors)
        for line, branch in self._protected:
            if not branch.strip():
                raise YamlProblem("protected_branches contains a blank branch name", line)
        existing: set[str] = set()
        for lines in self._rules:
            if not lines.rule.id.strip():
                raise YamlProblem("the id of a policy rule must not be blank", lines.line)
            if lines.rule.id in existing:
                raise YamlProblem(f"duplicate policy rule id '{lines.rule.id}'", lines.line)
            existing.add(lines.rule.id)
            for message, line in self._faults(lines):
                raise YamlProblem(message, line)
        for lines in self._rules:
            for message, line in _repeated(lines):
                raise YamlProblem(message, line)
        for lines in self._rules:
            for message, line in _misplaced(lines, scope):
                raise YamlProblem(message, line)

    def _check_group(self, name: str, line: int, actors: tuple[str, ...]) -> None:
        if not name.strip():
            raise YamlProblem("the name of a policy group must not be blank", line)
        if not actors:
            raise YamlProblem(f"policy group '{name}' must not be empty", line)
        if not all(actor.strip() for actor in actors):
            raise YamlProblem(f"policy group '{name}' contains a blank actor id", line)

    def _faults(self, lines: _WrittenRule) -> Iterator[tuple[str, int]]:
        rule, line = lines.rule, lines.line
        label = f"policy rule '{rule.id}'"
        if not rule.group.strip():
            yield f"{label} has a blank group", line
        if rule.group not in self._groups:
            yield f"{label} references unknown group '{rule.group}'", line
        if not rule.actions:
            yield f"{label} must include at least one action", line
        if rule.branch_scope is not None and rule.target_branch_scope is not None:
            yield f"{label} may specify branch_scope or target_branch_scope, not both", line
        for action in lines.actions:
            word = action.text()
            if rule.branch_scope is not None and word not in ON_BRANCH:
                yield f"{label} uses branch_scope with unsupported action '{word}'", action.line
            if rule.target_branch_scope is not None and word not in ON_TARGET:
                yield (
                    f"{label} uses target_branch_scope with unsupported action '{word}'",
                    action.line,
                )
        for action in lines.actions:
            word = action.text()
            if word in SERVER_ACTIONS and GRAPH_ACTIONS.intersection(rule.actions):
                yield (
                    f"{label} mixes the server-scoped action '{word}' with per-graph actions; "
                    "split into separate rules",
                    action.line,
                )


def _rule(value: YamlValue) -> _WrittenRule:
    entries = value.mapping(("id", "allow"))
    rule_id = value.required(entries, "id")
    allow = value.required(entries, "allow")
    inside = allow.mapping(("actors", "actions", "branch_scope", "target_branch_scope"))
    actors = allow.required(inside, "actors")
    group = actors.required(actors.mapping(("group",)), "group").text()
    actions = tuple(allow.required(inside, "actions").items())
    rule = PolicyRule(
        rule_id.text(),
        group,
        tuple(action.choice(*ACTIONS) for action in actions),
        *(
            inside[key].choice(*_SCOPES) if key in inside else None
            for key in ("branch_scope", "target_branch_scope")
        ),
    )
    return _WrittenRule(rule, rule_id.line, actions)


def _repeated(lines: _WrittenRule) -> Iterator[tuple[str, int]]:
    existing: set[str] = set()
    for action in lines.actions:
        word = action.text()
        if word in existing:
            yield (
                f"duplicate policy id '{lines.rule.id}:{word}': the action is listed twice",
                (action.line),
            )
        existing.add(word)


def _misplaced(lines: _WrittenRule, scope: BundleScope) -> Iterator[tuple[str, int]]:
    """The actions of a rule that a bundle of this scope cannot allow."""
    label = f"policy rule '{lines.rule.id}'"
    for action in lines.actions:
        word = action.text()
        if scope == "graph" and word in SERVER_ACTIONS:
            yield (
                f"{label} uses the server-scoped action '{word}' in a Graph policy file; "
                "move it to the bundle that is bound to the cluster",
                action.line,
            )
        if scope == "server" and word in GRAPH_ACTIONS:
            yield (
                f"{label} uses the per-graph action '{word}' in a server policy file; "
                "move it to the bundle of a graph",
                action.line,
            )
