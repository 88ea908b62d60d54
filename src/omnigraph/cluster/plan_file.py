"""Reviewed plans: a file that says what was shown, so that exactly that is applied."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from omnigraph.cluster.diagnostics import ClusterStop
from omnigraph.cluster.diff import ResourceChange
from omnigraph.cluster.location import LEDGER
from omnigraph.cluster.reports import PlanReport
from omnigraph.cluster.state_file import LedgerRead, json_text
from omnigraph.cluster.storage import ClusterStorage, timestamp
from omnigraph.errors import InputError

PLAN_VERSION = 1
_KIND = "omnigraph-cluster-plan"


class ReviewedPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A plan that somebody has seen: the configuration, the ledger, and every change."""

    kind: str
    plan_version: int
    created_at: str
    storage: str
    config_digest: str
    state_cas: str | None
    state_revision: int
    changes: list[dict[str, Any]]

    def check_state(self, storage: ClusterStorage, ledger: LedgerRead) -> None:
        """Raise ``ClusterStop`` unless the plan was made for this ledger."""
        if self.storage != storage.location.uri:
            raise _stale("storage", f"it was made for the cluster at {self.storage}")
        if self.state_cas != ledger.cas:
            raise _stale(
                storage.path(LEDGER),
                f"it was made at revision {self.state_revision}, the ledger is at "
                f"{ledger.state.state_revision}",
            )

    def check_changes(self, config_digest: str | None, changes: Sequence[ResourceChange]) -> None:
        """Raise ``ClusterStop`` unless an apply would do exactly what the plan shows."""
        if self.config_digest != config_digest:
            raise _stale("cluster.yaml", "the configuration or one of its files changed")
        if self.changes != [_shown(change) for change in changes]:
            raise _stale("changes", "an apply would do something else now")


def _stale(path: str, why: str) -> ClusterStop:
    return ClusterStop(
        "plan_stale", path, f"the plan does not apply any more: {why}; nothing was changed"
    )


def _shown(change: ResourceChange) -> dict[str, Any]:
    """A change as a plan file has it; how a migration looks depends on the data."""
    document = change.to_json()
    document.pop("migration", None)
    return document


def plan_text(report: PlanReport, storage: str) -> str:
    """The file of a plan."""
    return json_text(
        {
            "kind": _KIND,
            "plan_version": PLAN_VERSION,
            "created_at": timestamp(),
            "storage": storage,
            "config_digest": report.config_digest,
            "state_cas": report.state.cas,
            "state_revision": report.state.revision,
            "changes": [_shown(change) for change in report.changes],
        }
    )


def read_plan(text: str, name: str) -> ReviewedPlan:
    """The plan of a file."""
    try:
        plan = msgspec.convert(json.loads(text), ReviewedPlan)
    except (ValueError, RecursionError) as error:
        raise InputError(f"'{name}' is not a plan of `cluster plan --out`") from error
    if plan.kind != _KIND or plan.plan_version != PLAN_VERSION:
        raise InputError(
            f"'{name}' is not a plan of version {PLAN_VERSION}", hint="make the plan again"
        )
    return plan
