"""A cluster in a directory, and the commands on it, run in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from omnigraph import Graph
from omnigraph.cluster.apply import apply_cluster
from omnigraph.cluster.bundle import DirectoryBundle
from omnigraph.cluster.drift import DriftReport, cluster_drift
from omnigraph.cluster.plan import approve_change, plan_cluster
from omnigraph.cluster.plan_file import ReviewedPlan
from omnigraph.cluster.reports import ApplyReport, ApproveReport, PlanReport, StateReport
from omnigraph.cluster.state_commands import cluster_status, import_cluster, refresh_cluster
from omnigraph.settings import Settings

SCHEMA = "node Task {\n  name: String @key\n}\n"
WIDER = "node Task {\n  name: String @key\n  due: Date?\n}\n"
DUE = "query due() { match { $t: Task } return { $t.name } }\n"
DUE_DATES = "query due() { match { $t: Task } return { $t.name, $t.due } }\n"
POLICY = """\
version: 1
groups: {staff: [ana, bo]}
protected_branches: [main]
rules:
  - id: staff-read
    allow: {actors: {group: staff}, actions: [read], branch_scope: any}
"""
CONFIG = """\
version: 1
metadata: {name: lab}
graphs:
  kb:
    schema: kb.pg
    queries: queries/
policies:
  kb-rules: {file: kb.policy.yaml, applies_to: [kb]}
"""


class Lab:
    """The directory of a cluster with one graph, one query and one policy."""

    def __init__(self, directory: Path, settings: Settings | None = None) -> None:
        self.directory = directory
        self.settings = settings or Settings()
        directory.mkdir(parents=True, exist_ok=True)
        self.write("cluster.yaml", CONFIG)
        self.write("kb.pg", SCHEMA)
        self.write("queries/due.gq", DUE)
        self.write("kb.policy.yaml", POLICY)

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8") if isinstance(text, str) else text)
        return path

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.directory / name).read_text("utf-8")
        assert old in text
        self.write(name, text.replace(old, new))

    @property
    def bundle(self) -> DirectoryBundle:
        return DirectoryBundle(self.directory)

    # -- commands ----------------------------------------------------------------------------

    def import_(self) -> StateReport:
        return import_cluster(self.bundle, self.settings)

    def refresh(self) -> StateReport:
        return refresh_cluster(self.bundle, self.settings)

    def status(self) -> StateReport:
        return cluster_status(self.bundle, self.settings)

    def drift(self) -> DriftReport:
        return cluster_drift(self.bundle, self.settings)

    def plan(self) -> PlanReport:
        return plan_cluster(self.bundle, self.settings)[0]

    def apply(self, actor: str | None = "ana", reviewed: ReviewedPlan | None = None) -> ApplyReport:
        return apply_cluster(self.bundle, self.settings, actor=actor, reviewed=reviewed)

    def approve(self, resource: str, actor: str = "ana") -> ApproveReport:
        return approve_change(self.bundle, self.settings, resource, actor)

    def applied(self) -> Lab:
        """Itself, after import and apply."""
        assert self.import_().ok
        report = self.apply()
        assert (report.ok, report.is_converged) == (True, True), report.diagnostics
        return self

    # -- what is stored ----------------------------------------------------------------------

    @property
    def ledger(self) -> Path:
        return self.directory / "__cluster" / "state.json"

    @property
    def lock(self) -> Path:
        return self.directory / "__cluster" / "lock.json"

    @property
    def state(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.ledger.read_text("utf-8"))
        return document

    @property
    def resources(self) -> dict[str, Any]:
        resources: dict[str, Any] = self.state["applied_revision"]["resources"]
        return resources

    def root(self, graph: str = "kb") -> Path:
        return self.directory / "graphs" / f"{graph}.omni"

    def open(self, graph: str = "kb", mode: Any = "r") -> Graph:
        return Graph.open(self.root(graph), mode)

    @property
    def sidecars(self) -> list[Path]:
        return sorted((self.directory / "__cluster" / "recoveries").glob("*.json"))

    @property
    def approvals(self) -> list[dict[str, Any]]:
        folder = self.directory / "__cluster" / "approvals"
        return [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]

    def blob(self, kind: str) -> Path:
        (path,) = (self.directory / "__cluster" / "resources" / kind).rglob("*.*")
        return path


def codes(report: Any, severity: str | None = None) -> list[str]:
    """The codes of the problems of a report."""
    return [
        diagnostic.code
        for diagnostic in report.diagnostics
        if severity in (None, diagnostic.severity)
    ]


def dispositions(report: Any) -> dict[str, str]:
    """What is done with each change: disposition, and the reason if there is one."""
    return {
        change.resource: f"{change.disposition}"
        if change.reason is None
        else f"{change.disposition} {change.reason}"
        for change in report.changes
    }
