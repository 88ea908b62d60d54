"""OmniGraph: a lakehouse-native typed property graph with git-style workflows.

The public surface as far as it exists: a graph with its branches, commits and snapshots, the
compilers of both languages, and the tree of errors (all of it in ``omnigraph.errors``).
Importing this package is cheap: a name that needs a library is loaded when it is first used.

>>> from omnigraph import Source, compile_schema
>>> catalog = compile_schema(Source("people.pg", "node Person { name: String @key }"))
>>> list(catalog.node_types)
['Person']
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from omnigraph.api.backup import backup_points, clone, prune_backup, restore
    from omnigraph.api.graph import Graph
    from omnigraph.api.maintenance import OptimizeProgress
    from omnigraph.api.query import Explanation
    from omnigraph.api.snapshot import GraphSnapshot
    from omnigraph.api.verify import VerifyProgress, verify_graph
    from omnigraph.commit.history import Commit, Tag
    from omnigraph.commit.receipts import LoadReceipt, Receipt, TableCounts
    from omnigraph.commit.recovery import Recovered
    from omnigraph.embed import EmbeddingConfig
    from omnigraph.embed.job.run import EmbeddingProgress, EmbeddingReport, EmbeddingStatus
    from omnigraph.errors import (
        AlreadyExists,
        Conflict,
        InputError,
        IntegrityError,
        InternalError,
        LanguageError,
        NotFound,
        OmniGraphError,
        OutcomePending,
        PlanError,
        PreconditionFailed,
        QueryError,
        SchemaError,
        StorageError,
        VersionMismatch,
    )
    from omnigraph.evolve.apply import SchemaApplied
    from omnigraph.lang.diagnostics import Diagnostic, Severity, Source, Span
    from omnigraph.lang.schema import MigrationPlan, compile_schema
    from omnigraph.maintain.backup.copy import CopyProgress, CopyReport
    from omnigraph.maintain.backup.create import BackupReport
    from omnigraph.maintain.backup.index import BackupPoint
    from omnigraph.maintain.backup.prune import PruneReport
    from omnigraph.maintain.cleanup.report import CleanupReport
    from omnigraph.maintain.doctor.report import DoctorReport
    from omnigraph.maintain.optimize.indexes import IndexReport, IndexState
    from omnigraph.maintain.optimize.policy import MaintenancePolicy
    from omnigraph.maintain.optimize.run import OptimizeReport
    from omnigraph.maintain.verify import VerifyReport
    from omnigraph.plan import compile_query
    from omnigraph.read.limits import Cancel
    from omnigraph.result.result import Result
    from omnigraph.storage.durable import Durability
    from omnigraph.write.load.job import LoadMode, LoadProgress

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "Graph",
    "GraphSnapshot",
    "Result",
    "Explanation",
    "Cancel",
    "EmbeddingConfig",
    "EmbeddingReport",
    "EmbeddingStatus",
    "EmbeddingProgress",
    "Receipt",
    "LoadReceipt",
    "LoadMode",
    "LoadProgress",
    "TableCounts",
    "Commit",
    "Tag",
    "Recovered",
    "IndexReport",
    "IndexState",
    "OptimizeReport",
    "OptimizeProgress",
    "CleanupReport",
    "MaintenancePolicy",
    "DoctorReport",
    "VerifyReport",
    "VerifyProgress",
    "verify_graph",
    "restore",
    "clone",
    "backup_points",
    "prune_backup",
    "BackupReport",
    "BackupPoint",
    "PruneReport",
    "CopyReport",
    "CopyProgress",
    "MigrationPlan",
    "SchemaApplied",
    "Durability",
    "compile_schema",
    "compile_query",
    "Source",
    "Span",
    "Severity",
    "Diagnostic",
    "OmniGraphError",
    "LanguageError",
    "SchemaError",
    "QueryError",
    "PlanError",
    "InputError",
    "IntegrityError",
    "NotFound",
    "AlreadyExists",
    "Conflict",
    "VersionMismatch",
    "PreconditionFailed",
    "OutcomePending",
    "StorageError",
    "InternalError",
]

_LAZY = {
    "Diagnostic": "omnigraph.lang.diagnostics",
    "Severity": "omnigraph.lang.diagnostics",
    "Source": "omnigraph.lang.diagnostics",
    "Span": "omnigraph.lang.diagnostics",
    "AlreadyExists": "omnigraph.errors",
    "Conflict": "omnigraph.errors",
    "InputError": "omnigraph.errors",
    "IntegrityError": "omnigraph.errors",
    "InternalError": "omnigraph.errors",
    "LanguageError": "omnigraph.errors",
    "NotFound": "omnigraph.errors",
    "OmniGraphError": "omnigraph.errors",
    "OutcomePending": "omnigraph.errors",
    "PlanError": "omnigraph.errors",
    "PreconditionFailed": "omnigraph.errors",
    "QueryError": "omnigraph.errors",
    "SchemaError": "omnigraph.errors",
    "StorageError": "omnigraph.errors",
    "VersionMismatch": "omnigraph.errors",
    "Graph": "omnigraph.api.graph",
    "GraphSnapshot": "omnigraph.api.snapshot",
    "Result": "omnigraph.result.result",
    "Explanation": "omnigraph.api.query",
    "Cancel": "omnigraph.read.limits",
    "EmbeddingConfig": "omnigraph.embed",
    "EmbeddingReport": "omnigraph.embed.job.run",
    "EmbeddingStatus": "omnigraph.embed.job.run",
    "EmbeddingProgress": "omnigraph.embed.job.run",
    "Receipt": "omnigraph.commit.receipts",
    "LoadReceipt": "omnigraph.commit.receipts",
    "LoadMode": "omnigraph.write.load.job",
    "LoadProgress": "omnigraph.write.load.job",
    "TableCounts": "omnigraph.commit.receipts",
    "Commit": "omnigraph.commit.history",
    "Tag": "omnigraph.commit.history",
    "Recovered": "omnigraph.commit.recovery",
    "IndexReport": "omnigraph.maintain.optimize.indexes",
    "IndexState": "omnigraph.maintain.optimize.indexes",
    "OptimizeReport": "omnigraph.maintain.optimize.run",
    "OptimizeProgress": "omnigraph.api.maintenance",
    "CleanupReport": "omnigraph.maintain.cleanup.report",
    "MaintenancePolicy": "omnigraph.maintain.optimize.policy",
    "DoctorReport": "omnigraph.maintain.doctor.report",
    "VerifyReport": "omnigraph.maintain.verify",
    "VerifyProgress": "omnigraph.api.verify",
    "verify_graph": "omnigraph.api.verify",
    "restore": "omnigraph.api.backup",
    "clone": "omnigraph.api.backup",
    "backup_points": "omnigraph.api.backup",
    "prune_backup": "omnigraph.api.backup",
    "BackupReport": "omnigraph.maintain.backup.create",
    "BackupPoint": "omnigraph.maintain.backup.index",
    "PruneReport": "omnigraph.maintain.backup.prune",
    "CopyReport": "omnigraph.maintain.backup.copy",
    "CopyProgress": "omnigraph.maintain.backup.copy",
    "MigrationPlan": "omnigraph.lang.schema",
    "SchemaApplied": "omnigraph.evolve.apply",
    "Durability": "omnigraph.storage.durable",
    "compile_schema": "omnigraph.lang.schema",
    "compile_query": "omnigraph.plan",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "errors":
        return import_module("omnigraph.errors")
    home = _LAZY.get(name)
    if home is None:
        raise AttributeError(f"module 'omnigraph' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
