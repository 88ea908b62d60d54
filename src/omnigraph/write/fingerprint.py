"""Identifies a mutation, to detect another one with the same idempotency key."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from omnigraph.lang.query.checked import CheckedStatement
from omnigraph.lang.query.typed import NOW_PARAMETER
from omnigraph.plan.explain import show
from omnigraph.plan.nodes import MutationPlan


def fingerprint(plan: MutationPlan, values: Mapping[str, Any]) -> str:
    """A digest of name, statements and parameters.

    The layout of the text and the time of the call do not count: a repeat has another ``now()``.
    """
    params = sorted((key, repr(value)) for key, value in values.items() if key != NOW_PARAMETER)
    statements = [_spelled(step) for step in plan.statements]
    return hashlib.sha256(repr((plan.name, statements, params)).encode()).hexdigest()[:32]


def _spelled(step: CheckedStatement) -> tuple[object, ...]:
    values = [(name, show(value)) for name, value in step.assignments]
    where = None if step.where is None else show(step.where)
    return str(step.kind), step.type_name, values, where
