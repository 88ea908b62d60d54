"""The procedure that decides, written as the specification has it, and random bundles for it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import yaml
from hypothesis import strategies as st

from omnigraph import Identity
from omnigraph.policy.actions import ACTIONS, IN_QUERIES, ON_BRANCH, ON_TARGET, SERVER_ACTIONS

PLAIN = sorted(set(ACTIONS) - SERVER_ACTIONS)


@dataclass(frozen=True)
class WrittenBundle:
    """A bundle as plain data; each rule has its id, its group, its actions and restrictions."""

    version: int
    groups: dict[str, list[str]]
    protected: list[str]
    rules: list[dict[str, Any]] = field(default_factory=list)

    @property
    def text(self) -> str:
        allow = ("actions", "branch_scope", "target_branch_scope", "branches", "target_branches")
        tree = {
            "version": self.version,
            "groups": self.groups,
            "protected_branches": self.protected,
            "rules": [
                {
                    "id": rule["id"],
                    "allow": {
                        "actors": {"group": rule["group"]},
                        **{key: rule[key] for key in (*allow, "queries") if key in rule},
                    },
                }
                for rule in self.rules
            ],
        }
        return yaml.safe_dump(tree, allow_unicode=False, default_style='"').replace(
            f'"version": !!int "{self.version}"', f"version: {self.version}"
        )


def is_named(patterns: list[str], branch: str) -> bool:
    return any(re.fullmatch(expression(pattern), branch) for pattern in patterns)


@cache
def expression(pattern: str) -> str:
    pieces = re.split(r"(\*+)", pattern)
    stars = {True: r"[^/]*", False: r"[\s\S]*"}
    return "".join(
        stars[piece == "*"] if piece.startswith("*") else re.escape(piece) for piece in pieces
    )


def holds(
    bundle: WrittenBundle,
    rule: dict[str, Any],
    branch: str | None,
    target: str | None,
    query: str | None,
) -> bool:
    """Whether the restriction of a rule holds for a request."""
    for key, subject in (("branch_scope", branch), ("target_branch_scope", target)):
        scope = rule.get(key, "any")
        if scope != "any":
            is_protected = subject is not None and is_named(bundle.protected, subject)
            return subject is not None and is_protected == (scope == "protected")
    for key, subject in (("branches", branch), ("target_branches", target)):
        if key in rule:
            return subject is not None and is_named(rule[key], subject)
    return "queries" not in rule or query in rule["queries"]


def decide(
    bundle: WrittenBundle,
    actor: str | Identity,
    action: str,
    branch: str | None = None,
    target: str | None = None,
    query: str | None = None,
) -> tuple[bool, str | None, str]:
    """Allowed or not, the rule, and the message."""
    name = actor if isinstance(actor, str) else actor.id
    token = frozenset() if isinstance(actor, str) else actor.groups
    groups = {g for g, actors in bundle.groups.items() if name in actors or g in token}
    if not groups:
        return False, None, f"policy denied action '{action}' for unknown actor '{name}'"
    matching = []
    for rule in bundle.rules:
        actions = set(rule["actions"])
        if bundle.version == 1 and "read" in actions:
            actions.add("read_history")
        is_for = rule["group"] in groups and action in actions
        if is_for and holds(bundle, rule, branch, target, query):
            matching.append(rule["id"])
    if matching:
        return True, min(matching), f"policy allowed action '{action}' for actor '{name}'"
    on = "" if branch is None else f" on branch '{branch}'"
    targeting = "" if target is None else f" targeting branch '{target}'"
    return False, None, f"policy denied action '{action}'{on}{targeting} for actor '{name}'"


_RESTRICTIONS: dict[str, tuple[frozenset[str], int]] = {
    "branch_scope": (ON_BRANCH, 1),
    "target_branch_scope": (ON_TARGET, 1),
    "branches": (ON_BRANCH, 2),
    "target_branches": (ON_TARGET, 2),
    "queries": (IN_QUERIES, 2),
}
BRANCHES = ["main", "rel/1", "rel/1/fix", "draft"]
PATTERNS = ["main", "rel/*", "rel/**", "dr*", "draft"]
QUERIES = ["top", "find"]


@st.composite
def bundles(draw: st.DrawFn, names: st.SearchStrategy[str] | None = None) -> WrittenBundle:
    """A valid bundle of either version; ``names`` are those of actors, groups and rules."""
    version = draw(st.sampled_from([1, 2]))
    actors = st.sampled_from(["ana", "bo"]) if names is None else names
    group_names = st.sampled_from(["g", "h"]) if names is None else names
    members = st.lists(actors, min_size=1 if version == 1 else 0, max_size=3)
    groups = draw(st.dictionaries(group_names, members, min_size=1, max_size=3))
    rules: list[dict[str, Any]] = []
    ids = draw(st.lists(st.text("ab:", min_size=1, max_size=3), unique=True, max_size=5))
    if names is not None:
        ids = draw(st.lists(names, unique=True, max_size=5))
    for rule_id in ids:
        keys = [key for key, (_, since) in _RESTRICTIONS.items() if since <= version]
        key = draw(st.sampled_from([None, *keys]))
        possible = PLAIN if key is None else sorted(_RESTRICTIONS[key][0])
        rule = {
            "id": rule_id,
            "group": draw(st.sampled_from(sorted(groups))),
            "actions": draw(st.lists(st.sampled_from(possible), min_size=1, unique=True)),
        }
        if key is not None:
            values = QUERIES if key == "queries" else PATTERNS
            words = st.sampled_from(["any", "protected", "unprotected"])
            is_scope = key.endswith("scope")
            rule[key] = draw(words if is_scope else st.lists(st.sampled_from(values), max_size=2))
        rules.append(rule)
    protected = draw(st.lists(st.sampled_from(PATTERNS), unique=True, max_size=2))
    return WrittenBundle(version, groups, protected, rules)
