"""Explains decisions: about an action by its rule, about a row by each rule for its type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any, Literal

from omnigraph.identity import Identity
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.plan.view import ALL, WHOLE, View
from omnigraph.policy.decision import Decision
from omnigraph.policy.rows import OpensNothing, RowPolicy
from omnigraph.records import dataclass

Shown = Callable[[Sequence[View]], Sequence[bool]]
"""Whether the row in question is visible in each of some views."""


@dataclass(frozen=True, slots=True)
class RowVerdict:
    """What one row rule opens of a type for an actor: all rows, some, or nothing and why."""

    rule: str
    opens: Literal["all", "some", "nothing"]
    reason: str | None = None
    view: View = field(default=WHOLE, repr=False, compare=False)
    """The view in which this rule alone decides about the type, and everything else is visible."""


def row_verdicts(
    rows: RowPolicy,
    identity: Identity,
    groups: frozenset[str],
    branch: str,
    catalog: Catalog,
    type_name: str,
) -> Iterator[RowVerdict]:
    """The verdict of each row rule for a type, in the order of the file."""
    whole = {e.table_key: ALL for e in (*catalog.node_types.values(), *catalog.edge_types.values())}
    entity = catalog.node_types.get(type_name) or catalog.edge_types.get(type_name)
    if entity is None:
        return
    for rule, opening in rows.explain(identity, groups, branch, catalog, type_name):
        if isinstance(opening, OpensNothing):
            yield RowVerdict(rule.id, "nothing", opening.reason)
        else:
            view = View.of(catalog, {**whole, entity.table_key: opening})
            yield RowVerdict(rule.id, "all" if opening is ALL else "some", None, view)


@dataclass(frozen=True, slots=True)
class ActionExplanation:
    """A decision about an action, with what was decided about."""

    decision: Decision
    actor: str
    action: str
    branch: str | None = None
    target: str | None = None
    query: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The fields in the order in which they are shown; what was not given is left out."""
        fields = {
            "decision": "allow" if self.decision.allowed else "deny",
            "actor": self.actor,
            "action": self.action,
            "branch": self.branch,
            "target_branch": self.target,
            "query": self.query,
            "matched_rule": self.decision.rule,
            "message": self.decision.message,
        }
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class RowExplanation:
    """Whether an actor sees a row, and what each rule says about it."""

    actor: str
    type_name: str
    id: str
    branch: str
    visible: bool
    rules: tuple[tuple[str, str], ...]
    message: str

    def to_json(self) -> dict[str, Any]:
        return {
            "visible": self.visible,
            "actor": self.actor,
            "type": self.type_name,
            "id": self.id,
            "branch": self.branch,
            "rules": [{"rule": rule, "verdict": verdict} for rule, verdict in self.rules],
            "message": self.message,
        }


def explain_row(
    actor: str,
    type_name: str,
    row_id: str,
    branch: str,
    view: View,
    verdicts: Sequence[RowVerdict],
    shown: Shown,
) -> RowExplanation:
    """Why an actor sees a row or not; ``verdicts`` are those of ``Policy.row_verdicts``."""
    open_rules = [verdict for verdict in verdicts if verdict.opens != "nothing"]
    exists, visible, *opened = shown([WHOLE, view, *(verdict.view for verdict in open_rules)])
    opens = {verdict.rule: is_open for verdict, is_open in zip(open_rules, opened, strict=True)}
    texts = tuple((verdict.rule, _text(verdict, opens, exists)) for verdict in verdicts)
    return RowExplanation(
        actor,
        type_name,
        row_id,
        branch,
        visible,
        texts,
        _message(f"{type_name} '{row_id}'", actor, exists, visible, any(opened), view),
    )


def _text(verdict: RowVerdict, opens: dict[str, bool], exists: bool) -> str:
    if verdict.opens == "nothing":
        return f"opens nothing: {verdict.reason}"
    if not exists:
        return f"opens {verdict.opens} rows"
    return "opens the row" if opens[verdict.rule] else "its condition is not true for the row"


def _message(row: str, actor: str, exists: bool, visible: bool, is_open: bool, view: View) -> str:
    if not exists:
        return f"there is no {row}"
    if visible:
        reason = ": everything is visible to it" if view.is_whole else ""
        return f"actor '{actor}' sees {row}{reason}"
    reason = "an end of the edge is hidden" if is_open else "no rule opens it"
    return f"actor '{actor}' does not see {row}: {reason}"
