"""Who gains and who loses what by a changed policy.

Both bundles are concerned about every actor that one of them names, every action, and branches and
queries that stand for all others: those that rules name, one name per pattern, and one that no rule
knows. So a rule that is only written in another way changes nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from omnigraph.cluster.desired import DesiredResource, DesiredState
from omnigraph.cluster.diagnostics import DiagnosticLog
from omnigraph.cluster.diff import ResourceChange
from omnigraph.cluster.ledger import LedgerState
from omnigraph.cluster.payloads import payload_path
from omnigraph.cluster.resources import CLUSTER, content_digest, kind_of, normal_bindings
from omnigraph.cluster.storage import ClusterStorage
from omnigraph.errors import OmniGraphError
from omnigraph.policy.actions import (
    ACTIONS,
    GRAPH_ACTIONS,
    IN_QUERIES,
    ON_BRANCH,
    ON_TARGET,
    SERVER_ACTIONS,
    Action,
    BundleScope,
)
from omnigraph.policy.bundle import Bundle
from omnigraph.policy.bundle_file import read_bundle
from omnigraph.policy.policy import Policy
from omnigraph.records import dataclass

OTHER = "other-branch-that-no-rule-names"
OTHER_QUERY = "other_query_that_no_rule_names"


def policy_changes(
    storage: ClusterStorage,
    desired: DesiredState,
    state: LedgerState,
    changes: Sequence[ResourceChange],
    log: DiagnosticLog,
) -> Iterator[dict[str, Any]]:
    """For each changed policy: its bindings before and after, and each actor's gains and losses."""
    for change in changes:
        if kind_of(change.resource) != "policy":
            continue
        wanted = desired.resources.get(change.resource)
        applied = state.resources.get(change.resource)
        before = () if applied is None else normal_bindings(applied.applies_to or ())
        after = () if wanted is None else wanted.bindings or ()
        try:
            text = None if applied is None else _applied(storage, change.resource, applied.digest)
            old = None if text is None else _parsed(text, change.resource, before)
            new = None if wanted is None else _parsed(_text(wanted), change.resource, after)
        except (OmniGraphError, UnicodeDecodeError) as error:
            message = "the applied bundle cannot be read, so the effect of the change is not known"
            if isinstance(error, OmniGraphError):
                message = f"{message}: {error.message}"
            log.warning("policy_preview_unavailable", change.resource, message)
            continue
        yield {
            "policy": change.resource,
            "bound_before": list(before),
            "bound_after": list(after),
            "actors": list(_effects(old, new)),
        }


def _text(resource: DesiredResource) -> str:
    assert resource.content is not None
    return resource.content.decode("utf-8")


def _applied(storage: ClusterStorage, address: str, digest: str) -> str | None:
    content = storage.objects.read_bytes(payload_path(address, digest))
    return content.decode("utf-8") if content_digest(content) == digest else None


@dataclass(frozen=True, slots=True)
class _Side:
    """A policy before or after the change."""

    policy: Policy
    bundle: Bundle


def _parsed(text: str, name: str, bindings: Iterable[str]) -> _Side:
    scope: BundleScope = "server" if CLUSTER in bindings else "graph"
    return _Side(Policy.parse(text, name=name, scope=scope), read_bundle(text, name, scope))


@dataclass(frozen=True, slots=True)
class _Question:
    """A request that stands for others, and how it is shown."""

    action: Action
    shown: str
    branch: str | None = None
    target: str | None = None
    query: str | None = None

    def is_allowed(self, side: _Side | None, actor: str) -> bool:
        if side is None:
            return False
        decision = side.policy.decide(
            actor, self.action, self.branch, self.target, query=self.query
        )
        return decision.allowed


def _effects(old: _Side | None, new: _Side | None) -> Iterator[dict[str, Any]]:
    sides = [side for side in (old, new) if side is not None]
    actors = sorted({actor for side in sides for actor in side.policy.actors})
    questions = list(_questions(sides))
    has_rows = any(side.bundle.rows is not None for side in sides)
    for actor in actors:
        allowed = {question for question in questions if question.is_allowed(new, actor)}
        formerly = {question for question in questions if question.is_allowed(old, actor)}
        visible, seen = (_rows(new, actor), _rows(old, actor)) if has_rows else ([], [])
        gains = list(_shown(questions, allowed - formerly))
        gains += [rows for rows in visible if rows not in seen]
        losses = list(_shown(questions, formerly - allowed))
        losses += [rows for rows in seen if rows not in visible]
        if gains or losses:
            yield {"actor": actor, "gains": gains, "losses": losses}


def _shown(questions: Sequence[_Question], changed: set[_Question]) -> Iterator[str]:
    """The questions whose answer changed; the action alone if all of its answers did."""
    for action in ACTIONS:
        concerned = [question for question in questions if question.action == action]
        if concerned and changed.issuperset(concerned):
            yield action
        else:
            yield from (question.shown for question in concerned if question in changed)


def _questions(sides: Sequence[_Side]) -> Iterator[_Question]:
    branches = _branch_names(sides)
    rules = [rule for side in sides for rule in side.bundle.rules]
    queries = sorted({name for rule in rules for name in rule.queries or ()})
    is_server = any(side.policy.scope == "server" for side in sides)
    for action in ACTIONS:
        if action in (GRAPH_ACTIONS if is_server else SERVER_ACTIONS):
            continue
        if action in ON_BRANCH:
            for name, shown in branches:
                yield _Question(action, f"{action} on {shown}", branch=name)
        elif action in ON_TARGET:
            for name, shown in branches:
                yield _Question(action, f"{action} into {shown}", target=name)
        elif action not in IN_QUERIES:
            yield _Question(action, action)
        if action == "invoke_query":
            for query in queries:
                yield _Question(action, f"invoke_query {query}", query=query)
            shown = "invoke_query of other queries" if queries else "invoke_query"
            yield _Question(action, shown, query=OTHER_QUERY)


def _branch_names(sides: Sequence[_Side]) -> list[tuple[str, str]]:
    """Names of branches that stand for all others, and how they are shown."""
    names: dict[str, str] = {"main": "main"}
    for side in sides:
        scopes = [side.bundle.protected]
        for rule in side.bundle.rules:
            scopes += [scope for scope in (rule.branches, rule.target_branches) if scope]
        for pattern in (name for scope in scopes for name in scope.names):
            names.setdefault(pattern.replace("**", "x/x").replace("*", "x"), pattern)
    return [*names.items(), (OTHER, "other branches")]


def _rows(side: _Side | None, actor: str) -> list[str]:
    """The rows that rules of a bundle open to an actor; all of them without such rules."""
    if side is None:
        return []
    if side.bundle.rows is None:
        return ["all rows"]
    shown = []
    for rule in side.bundle.rows:
        if actor not in side.bundle.groups.get(rule.group, ()):
            continue
        where = "" if rule.where is None else f" where {rule.where.text}"
        on = "" if rule.branches is None else f" on {', '.join(rule.branches.names)}"
        shown += [f"rows of {name}{where}{on}" for name in rule.types]
    return shown
