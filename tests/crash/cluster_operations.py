"""Commands on a cluster as operations that are killed; the root is the directory of the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from omnigraph.cluster.apply import apply_cluster
from omnigraph.cluster.bundle import DirectoryBundle
from omnigraph.cluster.plan import approve_change
from omnigraph.cluster.state_commands import import_cluster, refresh_cluster
from omnigraph.settings import Settings

# No renewal happens while a walk copies files after each step.
PATIENT = Settings.from_environ({"OMNIGRAPH_CLUSTER_LOCK_SECONDS": "7200"})


def apply(root: Path) -> Iterator[None]:
    bundle = DirectoryBundle(root)
    yield
    report = apply_cluster(bundle, PATIENT, actor="ana")
    assert report.ok, report.diagnostics


def import_first(root: Path) -> Iterator[None]:
    bundle = DirectoryBundle(root)
    yield
    report = import_cluster(bundle, PATIENT)
    assert report.ok, report.diagnostics


def refresh(root: Path) -> Iterator[None]:
    bundle = DirectoryBundle(root)
    yield
    report = refresh_cluster(bundle, PATIENT)
    assert report.ok, report.diagnostics


def approve(root: Path) -> Iterator[None]:
    bundle = DirectoryBundle(root)
    yield
    report = approve_change(bundle, PATIENT, "graph.old", "ana")
    assert report.ok, report.diagnostics
