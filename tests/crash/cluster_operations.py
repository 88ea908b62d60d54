"""Commands on a cluster as operations that are killed; the root is the directory of the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from omnigraph.cluster.apply import apply_cluster
from omnigraph.cluster.bundle import DirectoryBundle, MemoryBundle
from omnigraph.cluster.diagnostics import DiagnosticLog
from omnigraph.cluster.plan import approve_change
from omnigraph.cluster.sent_bundle import files_to_send, received_bundle
from omnigraph.cluster.state_commands import import_cluster, refresh_cluster
from omnigraph.server.config import LogOptions
from omnigraph.server.deploying import Deployer
from omnigraph.server.request_log import RequestLog
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


# -- applies by a server -------------------------------------------------------------------------


def sent_files(root: Path) -> MemoryBundle:
    """The configuration of a directory, as a client sends it."""
    bundle, log = DirectoryBundle(root), DiagnosticLog()
    files = files_to_send(bundle, str(root), log)
    assert log.ok, log.entries
    return received_bundle("sent", files)


def deployer_of(location: Path | str, settings: Settings = PATIENT) -> Deployer:
    """The part of a writer process that applies configurations; what it serves is not asked."""
    log = RequestLog(LogOptions("error"))
    served: Any = SimpleNamespace(revision=1 << 40, kept={})
    return Deployer(str(location), settings, log, lambda: None, lambda: served)


def deploy(root: Path) -> Iterator[None]:
    deployer, bundle = deployer_of(root), sent_files(root)
    yield
    deployment = deployer.apply(bundle, "ana", None)
    assert deployment.outcome == "converged", deployment.report
