"""``cluster drift``: what changed outside of the control plane. Nothing is written."""

from __future__ import annotations

from typing import Any

from omnigraph.cluster.bundle import ConfigBundle
from omnigraph.cluster.diagnostics import ClusterStop
from omnigraph.cluster.location import LEDGER
from omnigraph.cluster.observe import LiveGraph, look_at_graphs
from omnigraph.cluster.payloads import report_payloads
from omnigraph.cluster.reports import Diagnostics, StateObservations, is_ok
from omnigraph.cluster.resources import kind_of, owner_of
from omnigraph.cluster.session import open_session
from omnigraph.cluster.state_commands import foreign_lock, no_state, note_sidecars, state_missing
from omnigraph.cluster.state_file import LedgerRead, read_ledger
from omnigraph.records import dataclass
from omnigraph.settings import Settings


@dataclass(frozen=True, slots=True)
class DriftFinding:
    """A resource that is not what was applied."""

    resource: str
    condition: str
    message: str
    recorded: str | None = None
    actual: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "resource": self.resource,
            "condition": self.condition,
            "message": self.message,
            "recorded_digest": self.recorded,
            "actual_digest": self.actual,
        }


@dataclass(frozen=True, slots=True)
class DriftReport:
    """Everything that is not what was applied."""

    config_dir: str
    state: StateObservations
    findings: tuple[DriftFinding, ...] = ()
    diagnostics: Diagnostics = ()

    @property
    def ok(self) -> bool:
        return is_ok(self.diagnostics)

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "config_dir": self.config_dir,
            "state_observations": self.state.to_json(),
            "drifted": bool(self.findings),
            "findings": [finding.to_json() for finding in self.findings],
            "diagnostics": [diagnostic.to_json() for diagnostic in self.diagnostics],
            "authority": "observed",
        }


def cluster_drift(bundle: ConfigBundle, settings: Settings) -> DriftReport:
    """Compare the ledger with the graphs and blobs; no lock is taken, nothing is written."""
    session, log = open_session(bundle, settings, header=True)
    if session is None:
        return DriftReport(bundle.name, no_state(), diagnostics=log.entries)
    storage = session.storage
    ledger, foreign = LedgerRead(), None
    findings: list[DriftFinding] = []
    try:
        foreign = foreign_lock(storage, log)
        note_sidecars(storage, log)
        ledger = read_ledger(storage)
        if not ledger.exists:
            raise state_missing(storage.path(LEDGER))
        recorded = {
            owner_of(address) or "": resource.digest
            for address, resource in sorted(ledger.state.resources.items())
            if kind_of(address) == "schema"
        }
        for graph, live in look_at_graphs(storage, list(recorded)):
            finding = _graph_drift(graph, recorded[graph], live)
            findings += [] if finding is None else [finding]
        for payload in report_payloads(storage, ledger.state, log):
            findings.append(DriftFinding(payload.address, payload.condition, payload.message))
    except ClusterStop as stop:
        log.add([stop.diagnostic])
    state = StateObservations.of(storage, ledger, foreign)
    return DriftReport(bundle.name, state, tuple(findings), log.entries)


def _graph_drift(graph: str, recorded: str, live: LiveGraph) -> DriftFinding | None:
    if not live.exists:
        message = "the graph does not exist any more; an apply after a refresh creates an empty one"
        return DriftFinding(f"graph.{graph}", "graph_missing", message, recorded)
    if not live.opens:
        message = f"the graph does not open: {live.error}"
        return DriftFinding(f"graph.{graph}", "graph_observation_error", message, recorded)
    if live.digest != recorded:
        message = "the schema was changed by another program"
        return DriftFinding(f"schema.{graph}", "schema_mismatch", message, recorded, live.digest)
    return None
