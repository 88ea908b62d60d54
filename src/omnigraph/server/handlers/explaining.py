"""Explains what the policy in force decides, for an action and for a row."""

from __future__ import annotations

from typing import Any

import msgspec

from omnigraph.api.shown_rows import shown_by
from omnigraph.errors import InputError, PolicyDenied
from omnigraph.identity import Identity
from omnigraph.plan.view import WHOLE
from omnigraph.policy.explain import ActionExplanation, explain_row
from omnigraph.server.calls import Call, Reply
from omnigraph.server.handlers.reading import MAIN
from omnigraph.server.models.requests import ExplainPolicyRequest, RowName
from omnigraph.server.models.responses import PolicyExplanationOutput


def authorize_explain(call: Call) -> None:
    """``admin``; without it, only about the actor's own actions, never whether a row exists."""
    request: ExplainPolicyRequest = call.body
    if not _is_own(call) or request.row is not None:
        call.require("admin")


def explain_policy(call: Call) -> Reply:
    """What the policy in force decides."""
    request: ExplainPolicyRequest = call.body
    if request.action is None and request.row is None:
        raise InputError("nothing to explain: give an action, or a row")
    identity = _identity(call)
    document: dict[str, Any] = {}
    if request.action is not None:
        branch, target, query = request.branch, request.target_branch, request.query
        decision = call.state.access.decide(
            call.graph_id, identity, request.action, branch, target, query=query
        )
        explained = ActionExplanation(decision, identity.id, request.action, branch, target, query)
        document = explained.to_json()
    if request.row is not None:
        document["row"] = _explain_row(call, identity, request.branch or MAIN, request.row)
    return Reply.json(msgspec.convert(document, PolicyExplanationOutput))


def _is_own(call: Call) -> bool:
    request: ExplainPolicyRequest = call.body
    return request.actor == call.actor and not request.groups and not request.attributes


def _identity(call: Call) -> Identity:
    request: ExplainPolicyRequest = call.body
    if call.identity is not None and _is_own(call):
        return call.identity
    return Identity(request.actor, frozenset(request.groups or ()), request.attributes or {})


def _explain_row(call: Call, identity: Identity, branch: str, row: RowName) -> dict[str, Any]:
    # The row is looked up in the whole graph. With attributes of their choice, administrators who
    # do not see all of it could find out its values.
    policy = call.state.access.policy_of(call.graph_id)
    snapshot = call.serving.graph.snapshot(branch)
    if policy is not None and not policy.view(call.identity, branch, snapshot.catalog).is_whole:
        raise PolicyDenied.beyond_view(call.actor, "admin", branch)
    view = WHOLE if policy is None else policy.view(identity, branch, snapshot.catalog)
    verdicts = (
        () if policy is None else policy.row_verdicts(identity, branch, snapshot.catalog, row.type)
    )
    explained = explain_row(
        identity.id,
        row.type,
        row.id,
        branch,
        view,
        tuple(verdicts),
        lambda views: shown_by(snapshot, views, row.type, row.id),
    )
    return explained.to_json()
