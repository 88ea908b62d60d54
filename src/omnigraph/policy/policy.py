"""``Policy``: the decisions of one bundle."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import cast

from omnigraph.argument_checks import Location, public
from omnigraph.errors import InputError, PolicyDenied, PolicyInvalid
from omnigraph.policy.actions import IMPLIED, Action, BundleScope
from omnigraph.policy.bundle import Bundle, PolicyRule, read_bundle
from omnigraph.policy.decision import (
    Decision,
    allowed_message,
    denied_message,
    unknown_actor_message,
)


class Policy:
    """A bundle of rules that say who may do what. Pass it to ``Graph.open`` to check every write.

    Rules only allow: what no rule allows is denied. Safe to share between threads.

    >>> policy = Policy.parse(
    ...     '''
    ... version: 1
    ... groups: {staff: [ana, bo]}
    ... protected_branches: [main, release/**]
    ... rules:
    ...   - id: staff-draft
    ...     allow:
    ...       actors: {group: staff}
    ...       actions: [change]
    ...       branch_scope: unprotected
    ... '''
    ... )
    >>> policy.decide("ana", "change", "draft").rule
    'staff-draft'
    >>> policy.decide("ana", "change", "main").message
    "policy denied action 'change' on branch 'main' for actor 'ana'"
    """

    def __init__(self, bundle: Bundle, *, name: str, scope: BundleScope, digest: str) -> None:
        self._bundle = bundle
        self._rules = _rules_by_actor(bundle)
        self._members = frozenset(actor for group in bundle.groups.values() for actor in group)
        self._granted = frozenset(actor for actor, _ in self._rules)
        self.name = name
        """The file or the name of the bundle, for messages."""
        self.scope: BundleScope = scope
        """What the bundle is for: one graph, or the server."""
        self.digest = digest
        """The SHA-256 of the text."""

    @classmethod
    @public
    def parse(cls, text: str, *, name: str = "<policy>", scope: BundleScope = "graph") -> Policy:
        """The policy of a YAML text.

        Raises:
            PolicyInvalid: the text is not a valid bundle; names the line.

        >>> Policy.parse("{version: 2}", name="staff.yaml")
        Traceback (most recent call last):
        ...
        omnigraph.errors.PolicyInvalid: policy 'staff.yaml', line 1: policy version must be 1
        """
        bundle = read_bundle(text, name, scope)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return cls(bundle, name=name, scope=scope, digest=digest)

    @classmethod
    @public
    def open(cls, path: Location, *, scope: BundleScope = "graph") -> Policy:
        """The policy of a YAML file.

        Raises:
            InputError: the file cannot be read.
            PolicyInvalid: the file is not a valid bundle; names the line.

        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        ...     print("{version: 1, groups: {staff: [ana]}}", file=file, flush=True)
        ...     Policy.open(file.name).actors
        ('ana',)
        """
        return cls.parse(_text_of(path), name=str(path), scope=scope)

    @property
    def actors(self) -> tuple[str, ...]:
        """The actors of all groups, sorted."""
        return tuple(sorted(self._members))

    @public
    def decide(
        self, actor: str, action: Action, branch: str | None = None, target: str | None = None
    ) -> Decision:
        """Whether an actor may do something, and the rule that allows it.

        ``branch`` is the branch that is read or changed, ``target`` the one that is created,
        deleted, merged into or given a schema. If several rules allow it, the decision names the
        first in alphabetical order.

        >>> Policy.parse("{version: 1}").decide("ana", "read").message
        "policy denied action 'read' for unknown actor 'ana'"
        """
        if actor not in self._members:
            return Decision(False, None, unknown_actor_message(action, actor))
        for rule in self._rules.get((actor, action), ()):
            if self._covers(rule, branch, target):
                return Decision(True, rule.id, allowed_message(action, actor))
        return Decision(False, None, denied_message(action, actor, branch, target))

    @public
    def check(
        self,
        actor: str | None,
        action: str,
        branch: str | None = None,
        target: str | None = None,
    ) -> None:
        """Raise unless an actor may do something; what an open graph calls before each write.

        Raises:
            PolicyDenied: no rule allows it, or there is no actor.

        >>> Policy.parse("{version: 1}").check(None, "change", "main")
        Traceback (most recent call last):
        ...
        omnigraph.errors.PolicyDenied: no actor for engine-layer policy check: action 'change'
        """
        if actor is None:
            raise PolicyDenied.without_actor(action)
        decision = self.decide(actor, cast(Action, action), branch, target)
        if not decision.allowed:
            raise denied(decision, actor, action, branch, target)

    @public
    def knows(self, actor: str) -> bool:
        """Whether any rule allows anything to an actor.

        >>> Policy.parse("{version: 1, groups: {staff: [ana]}}").knows("ana")
        False
        """
        return actor in self._granted

    def _covers(self, rule: PolicyRule, branch: str | None, target: str | None) -> bool:
        scope, subject = rule.branch_scope, branch
        if rule.target_branch_scope is not None:
            scope, subject = rule.target_branch_scope, target
        if scope is None or scope == "any":
            return True
        if subject is None:
            return False
        return self._bundle.protected.contain(subject) == (scope == "protected")

    def __repr__(self) -> str:
        rules, actors = len(self._bundle.rules), len(self._members)
        return f"<Policy {self.name!r}: {rules} rules, {actors} actors>"


def denied(
    decision: Decision, actor: str, action: str, branch: str | None, target: str | None
) -> PolicyDenied:
    """The error of a decision."""
    return PolicyDenied(
        decision.message,
        hint="ask whoever maintains the policy of this graph",
        details={"actor": actor, "action": action, "branch": branch, "target": target},
    )


def _rules_by_actor(bundle: Bundle) -> dict[tuple[str, str], Sequence[PolicyRule]]:
    """The rules for each actor and action, in the order of their ids."""
    rules: dict[tuple[str, str], list[PolicyRule]] = {}
    for rule in sorted(bundle.rules, key=lambda rule: rule.id):
        allowed = dict.fromkeys(rule.actions)
        for action in rule.actions:
            allowed |= dict.fromkeys(IMPLIED.get(action, ()))
        for actor in set(bundle.groups[rule.group]):
            for action in allowed:
                rules.setdefault((actor, action), []).append(rule)
    return {key: tuple(value) for key, value in rules.items()}


def _text_of(path: str | PathLike[str]) -> str:
    try:
        return Path(path).read_text("utf-8")
    except OSError as error:
        reason = (error.strerror or "it cannot be read").lower()
        raise InputError(f"cannot read policy '{path}': {reason}") from None
    except ValueError:
        raise PolicyInvalid(f"policy '{path}' is not UTF-8 text") from None
