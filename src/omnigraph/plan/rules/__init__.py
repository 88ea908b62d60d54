"""The optimizer rules, in the order they run. None changes the meaning of a plan.

Each rule is a function from plan to plan in its own module, with a fixture of plans before and
after it.
"""

from __future__ import annotations

from collections.abc import Callable

from omnigraph.plan.nodes import Plan
from omnigraph.plan.rules.close_cycles import close_cycles
from omnigraph.plan.rules.hoist_filters import hoist_filters
from omnigraph.plan.rules.push_filters import push_filters
from omnigraph.plan.rules.simplify import simplify

Rule = Callable[[Plan], Plan]

RULES: tuple[Rule, ...] = (simplify, close_cycles, push_filters, hoist_filters)


def optimize(plan: Plan) -> Plan:
    """Apply every rule once, in order."""
    for rule in RULES:
        plan = rule(plan)
    return plan
