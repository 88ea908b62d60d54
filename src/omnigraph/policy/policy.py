"""``Policy``: the decisions of one bundle."""

from __future__ import annotations

import hashlib
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, cast

from omnigraph.argument_checks import Location, public
from omnigraph.errors import InputError, PolicyDenied, PolicyInvalid
from omnigraph.identity import Identity
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.plan.view import WHOLE, View
from omnigraph.policy.action_rules import ActionRules
from omnigraph.policy.actions import Action, BundleScope
from omnigraph.policy.bundle import Bundle
from omnigraph.policy.bundle_file import read_bundle
from omnigraph.policy.decision import (
    Decision,
    allowed_message,
    denied_message,
    unknown_actor_message,
)
from omnigraph.policy.explain import RowVerdict, row_verdicts
from omnigraph.policy.findings import PolicyFinding, check_rows
from omnigraph.policy.rows import RowPolicy

MAIN = "main"
# Whoever is allowed one of these on a branch may know that it exists.
_ON_BRANCH: tuple[Action, ...] = ("read", "change", "export", "read_history")
_ON_TARGET: tuple[Action, ...] = ("branch_merge", "branch_delete", "branch_create")


class Policy:
    """A bundle of rules that say who may do what, and who may see what.

    Pass it to ``Graph.open``: every write is checked, and every read sees what its actor may see.

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
        self._rules = ActionRules(bundle, scope)
        self._rows = None if bundle.rows is None else RowPolicy(bundle)
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
            PackageMissing: the extra ``policy`` is not installed.

        >>> Policy.parse("{version: 3}", name="staff.yaml")
        Traceback (most recent call last):
        ...
        omnigraph.errors.PolicyInvalid: policy 'staff.yaml', line 1: policy version must be 1 or 2
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

    def __reduce__(self) -> tuple[Any, ...]:
        made = partial(Policy, name=self.name, scope=self.scope, digest=self.digest)
        return made, (self._bundle,)

    @property
    def actors(self) -> tuple[str, ...]:
        """The actors of all groups, sorted; those of tokens are not known here."""
        return tuple(sorted({actor for group in self._bundle.groups.values() for actor in group}))

    @property
    def restricts_rows(self) -> bool:
        """Whether the bundle says which rows are visible; if not, everybody sees all of them."""
        return self._rows is not None

    @public
    def decide(
        self,
        actor: str | Identity,
        action: Action,
        branch: str | None = None,
        target: str | None = None,
        *,
        query: str | None = None,
    ) -> Decision:
        """Whether an actor may do something, and the rule that allows it.

        ``branch`` is the branch that is read or changed, ``target`` the one that is created,
        deleted, merged into or given a schema, ``query`` the stored query that is invoked, or that
        reads or changes. If several rules allow it, the decision names the first in alphabetical
        order.

        >>> Policy.parse("{version: 1}").decide("ana", "read").message
        "policy denied action 'read' for unknown actor 'ana'"
        """
        identity = actor if isinstance(actor, str) else actor.id
        groups = self._rules.groups_of(actor)
        if not groups:
            return Decision(False, None, unknown_actor_message(action, identity))
        rule = self._rules.decide(groups, identity, action, branch, target, query)
        if rule is not None:
            return Decision(True, rule, allowed_message(action, identity))
        return Decision(False, None, denied_message(action, identity, branch, target))

    @public
    def check(
        self,
        actor: str | Identity | None,
        action: str,
        branch: str | None = None,
        target: str | None = None,
        *,
        query: str | None = None,
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
        decision = self.decide(actor, cast(Action, action), branch, target, query=query)
        if not decision.allowed:
            name = actor if isinstance(actor, str) else actor.id
            raise denied(decision, name, action, branch, target)

    @public
    def view(self, actor: str | Identity | None, branch: str, catalog: Catalog) -> View:
        """What an actor sees of a graph on a branch, under a schema; what an open graph asks.

        Without rules for rows it is the whole graph; with them, nothing without an actor.

        >>> from omnigraph.lang.schema.compile import compile_schema
        >>> catalog = compile_schema("node Note { slug: String @key }")
        >>> Policy.parse("{version: 1}").view("ana", "main", catalog).is_whole
        True
        >>> Policy.parse("{version: 2, rows: []}").view("ana", "main", catalog).hides("node:Note")
        True
        """
        if self._rows is None:
            return WHOLE
        if actor is None:
            return View.of(catalog, {})
        identity = Identity(actor) if isinstance(actor, str) else actor
        return self._rows.view(identity, self._rules.groups_of(identity), branch, catalog)

    @public
    def row_verdicts(
        self, actor: str | Identity, branch: str, catalog: Catalog, type_name: str
    ) -> tuple[RowVerdict, ...]:
        """What each row rule for a type opens for an actor, or why it opens nothing.

        >>> from omnigraph.lang.schema.compile import compile_schema
        >>> catalog = compile_schema("node Note { slug: String @key }")
        >>> policy = Policy.parse(
        ...     "{version: 2, groups: {staff: [ana]}, rows: "
        ...     "[{id: notes, actors: {group: staff}, types: [Note]}]}"
        ... )
        >>> policy.row_verdicts("bo", "main", catalog, "Note")[0].reason
        "the actor is not in group 'staff'"
        """
        if self._rows is None:
            return ()
        identity = Identity(actor) if isinstance(actor, str) else actor
        groups = self._rules.groups_of(identity)
        return tuple(row_verdicts(self._rows, identity, groups, branch, catalog, type_name))

    @public
    def check_schema(self, catalog: Catalog) -> tuple[PolicyFinding, ...]:
        """What does not fit a schema: errors in conditions, and warnings about what stays closed.

        >>> from omnigraph.lang.schema.compile import compile_schema
        >>> catalog = compile_schema("node Note { slug: String @key }")
        >>> policy = Policy.parse(
        ...     "{version: 2, groups: {staff: [ana]}, rows: "
        ...     "[{id: notes, actors: {group: staff}, types: [Nota]}]}"
        ... )
        >>> print(policy.check_schema(catalog)[0])
        line 1: row rule 'notes': unknown node or edge type `Nota` (did you mean `Note`?)
        """
        if self._rows is None:
            return ()
        return tuple(check_rows(self._bundle, self._rows, catalog))

    @public
    def knows(self, actor: str | Identity) -> bool:
        """Whether any rule allows anything to an actor.

        >>> Policy.parse("{version: 1, groups: {staff: [ana]}}").knows("ana")
        False
        """
        return any(rule.group in self._rules.groups_of(actor) for rule in self._bundle.rules)

    @public
    def hides_branch(self, actor: str | Identity, branch: str) -> bool:
        """Whether a branch must look absent to an actor.

        It may do nothing with the branch, nor list branches. That ``main`` exists is no secret.

        >>> Policy.parse("{version: 1}").hides_branch("ana", "plans")
        True
        """
        return branch != MAIN and not (
            self.decide(actor, "read").allowed
            or any(self.decide(actor, action, branch).allowed for action in _ON_BRANCH)
            or any(self.decide(actor, action, None, branch).allowed for action in _ON_TARGET)
        )

    def __repr__(self) -> str:
        rules = len(self._bundle.rules) + len(self._bundle.rows or ())
        actors = len(self.actors)
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


def _text_of(path: str | PathLike[str]) -> str:
    try:
        return Path(path).read_text("utf-8")
    except OSError as error:
        reason = (error.strerror or "it cannot be read").lower()
        raise InputError(f"cannot read policy '{path}': {reason}") from None
    except ValueError:
        raise PolicyInvalid(f"policy '{path}' is not UTF-8 text") from None
