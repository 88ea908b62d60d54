"""The routes of policies."""

from __future__ import annotations

from omnigraph.server.handlers import explaining
from omnigraph.server.models import requests, responses
from omnigraph.server.routes.shape import Route, of_graph

POLICY_ROUTES: tuple[Route, ...] = (
    of_graph(
        "POST",
        "/policy/explain",
        "explain_policy",
        "Explain what the policy decides; about oneself without `admin`",
        "policies",
        "admin",
        explaining.explain_policy,
        authorize=explaining.authorize_explain,
        request=requests.ExplainPolicyRequest,
        response=responses.PolicyExplanationOutput,
        since="1",
    ),
)
