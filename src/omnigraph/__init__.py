"""OmniGraph: a lakehouse-native typed property graph with git-style workflows.

The public surface: ``Graph`` with its snapshots and namespaces, everything that they take and
return, the compilers of both languages, and the error tree (all of it in ``omnigraph.errors``).
Importing this package is cheap: a name is loaded when it is first used.

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
    from omnigraph.api.branches import GraphBranches, GraphTags
    from omnigraph.api.changes import Baseline, GraphChanges
    from omnigraph.api.embeddings import GraphEmbeddings
    from omnigraph.api.graph import Graph
    from omnigraph.api.maintenance import (
        GraphIndexes,
        GraphMaintenance,
        verify_graph,
    )
    from omnigraph.api.query import Explanation
    from omnigraph.api.schema import GraphSchema
    from omnigraph.api.snapshot import BlobInfo, GraphSnapshot
    from omnigraph.commit.history import Commit, Tag
    from omnigraph.commit.metadata import SchemaEvent
    from omnigraph.commit.receipts import LoadReceipt, Receipt, TableCounts
    from omnigraph.commit.recovery import Recovered
    from omnigraph.embed import EmbeddingConfig
    from omnigraph.embed.job.rate_limit import RateLimit
    from omnigraph.embed.job.requests import Batching, Refusal
    from omnigraph.embed.job.run import EmbeddingReport, EmbeddingStatus
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
    from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType
    from omnigraph.lang.schema.compile import compile_schema
    from omnigraph.lang.schema.migrate import MigrationPlan
    from omnigraph.lang.schema.steps import UnsupportedChange
    from omnigraph.maintain.backup.copy import CopyReport
    from omnigraph.maintain.backup.create import BackupReport
    from omnigraph.maintain.backup.index import BackupPoint
    from omnigraph.maintain.backup.prune import PruneReport
    from omnigraph.maintain.cleanup.report import CleanupReport, TableCleanup
    from omnigraph.maintain.doctor.report import DoctorReport, TableHealth
    from omnigraph.maintain.optimize.indexes import IndexReport, IndexState
    from omnigraph.maintain.optimize.plan import MaintenancePolicy
    from omnigraph.maintain.optimize.run import OptimizeReport, TableStats
    from omnigraph.maintain.repair import RepairReport, TableRepair
    from omnigraph.maintain.verify import VerifyReport
    from omnigraph.maintain.verify.report import VerifyProblem
    from omnigraph.merge.blame import Blame
    from omnigraph.merge.conflicts import ConflictKind, Conflicts, RowConflict
    from omnigraph.merge.diff import Change, Diff
    from omnigraph.merge.feed import ChangeBlock, ChangePage
    from omnigraph.merge.run import MergeReport, Resolve
    from omnigraph.plan import compile_query
    from omnigraph.plan.nodes import MutationPlan, ReadPlan
    from omnigraph.progress import Progress
    from omnigraph.read.limits import Cancel
    from omnigraph.result.result import Result
    from omnigraph.storage.durable import Durability
    from omnigraph.storage.tables.read_only import ReadOnlyDataset
    from omnigraph.write.append import Rows
    from omnigraph.write.load.job import LoadData, LoadMode
    from omnigraph.write.validate.rules import Violation

__version__ = "0.1.0"

_MODULES = {
    "Graph": "api.graph",
    "GraphSnapshot": "api.snapshot",
    "GraphBranches": "api.branches",
    "GraphTags": "api.branches",
    "GraphChanges": "api.changes",
    "GraphSchema": "api.schema",
    "GraphIndexes": "api.maintenance",
    "GraphEmbeddings": "api.embeddings",
    "GraphMaintenance": "api.maintenance",
    "restore": "api.backup",
    "clone": "api.backup",
    "backup_points": "api.backup",
    "prune_backup": "api.backup",
    "verify_graph": "api.maintenance",
    "Result": "result.result",
    "Explanation": "api.query",
    "Cancel": "read.limits",
    "Progress": "progress",
    "BlobInfo": "api.snapshot",
    "ReadOnlyDataset": "storage.tables.read_only",
    "Receipt": "commit.receipts",
    "LoadReceipt": "commit.receipts",
    "LoadMode": "write.load.job",
    "LoadData": "write.load.job",
    "Rows": "write.append",
    "TableCounts": "commit.receipts",
    "Durability": "storage.durable",
    "Recovered": "commit.recovery",
    "Commit": "commit.history",
    "Tag": "commit.history",
    "MergeReport": "merge.run",
    "Conflicts": "merge.conflicts",
    "RowConflict": "merge.conflicts",
    "ConflictKind": "merge.conflicts",
    "Resolve": "merge.run",
    "Diff": "merge.diff",
    "Change": "merge.diff",
    "ChangePage": "merge.feed",
    "ChangeBlock": "merge.feed",
    "SchemaEvent": "commit.metadata",
    "Baseline": "api.changes",
    "Blame": "merge.blame",
    "Catalog": "lang.schema.catalog",
    "NodeType": "lang.schema.catalog",
    "EdgeType": "lang.schema.catalog",
    "MigrationPlan": "lang.schema.migrate",
    "UnsupportedChange": "lang.schema.steps",
    "SchemaApplied": "evolve.apply",
    "Violation": "write.validate.violations",
    "IndexReport": "maintain.optimize.indexes",
    "IndexState": "maintain.optimize.indexes",
    "OptimizeReport": "maintain.optimize.run",
    "TableStats": "maintain.optimize.run",
    "CleanupReport": "maintain.cleanup.report",
    "TableCleanup": "maintain.cleanup.report",
    "MaintenancePolicy": "maintain.optimize.plan",
    "DoctorReport": "maintain.doctor.report",
    "TableHealth": "maintain.doctor.report",
    "RepairReport": "maintain.repair",
    "TableRepair": "maintain.repair",
    "VerifyReport": "maintain.verify",
    "VerifyProblem": "maintain.verify.report",
    "BackupReport": "maintain.backup.create",
    "BackupPoint": "maintain.backup.index",
    "PruneReport": "maintain.backup.prune",
    "CopyReport": "maintain.backup.copy",
    "EmbeddingConfig": "embed",
    "EmbeddingReport": "embed.job.run",
    "Refusal": "embed.job.requests",
    "EmbeddingStatus": "embed.job.run",
    "RateLimit": "embed.job.rate_limit",
    "Batching": "embed.job.requests",
    "compile_schema": "lang.schema.compile",
    "compile_query": "plan",
    "ReadPlan": "plan.nodes",
    "MutationPlan": "plan.nodes",
    "Source": "lang.diagnostics",
    "Span": "lang.diagnostics",
    "Severity": "lang.diagnostics",
    "Diagnostic": "lang.diagnostics",
    "OmniGraphError": "errors",
    "LanguageError": "errors",
    "SchemaError": "errors",
    "QueryError": "errors",
    "PlanError": "errors",
    "InputError": "errors",
    "IntegrityError": "errors",
    "NotFound": "errors",
    "AlreadyExists": "errors",
    "Conflict": "errors",
    "VersionMismatch": "errors",
    "PreconditionFailed": "errors",
    "OutcomePending": "errors",
    "StorageError": "errors",
    "InternalError": "errors",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
"""The module of each name of the public surface."""

__all__ = ["__version__", "Graph", "GraphSnapshot", "GraphBranches", "GraphTags", "GraphChanges"]
__all__ += ["GraphSchema", "GraphIndexes", "GraphEmbeddings", "GraphMaintenance"]
__all__ += ["restore", "clone", "backup_points", "prune_backup", "verify_graph"]
__all__ += ["Result", "Explanation", "Cancel", "Progress", "BlobInfo", "ReadOnlyDataset"]
__all__ += ["Receipt", "LoadReceipt", "LoadMode", "LoadData", "Rows", "TableCounts", "Durability"]
__all__ += ["Recovered", "Commit", "Tag"]
__all__ += ["MergeReport", "Conflicts", "RowConflict", "ConflictKind", "Resolve", "Diff", "Change"]
__all__ += ["ChangePage", "ChangeBlock", "SchemaEvent", "Baseline", "Blame"]
__all__ += ["Catalog", "NodeType", "EdgeType", "MigrationPlan", "UnsupportedChange"]
__all__ += ["SchemaApplied", "Violation"]
__all__ += ["IndexReport", "IndexState", "OptimizeReport", "TableStats", "CleanupReport"]
__all__ += ["TableCleanup", "MaintenancePolicy", "DoctorReport", "TableHealth", "RepairReport"]
__all__ += ["TableRepair", "VerifyReport", "VerifyProblem"]
__all__ += ["BackupReport", "BackupPoint", "PruneReport", "CopyReport"]
__all__ += ["EmbeddingConfig", "EmbeddingReport", "Refusal", "EmbeddingStatus", "RateLimit"]
__all__ += ["Batching"]
__all__ += ["compile_schema", "compile_query", "ReadPlan", "MutationPlan", "Source", "Span"]
__all__ += ["Severity", "Diagnostic"]
__all__ += ["OmniGraphError", "LanguageError", "SchemaError", "QueryError", "PlanError"]
__all__ += ["InputError", "IntegrityError", "NotFound", "AlreadyExists", "Conflict"]
__all__ += ["VersionMismatch", "PreconditionFailed", "OutcomePending", "StorageError"]
__all__ += ["InternalError"]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "errors":
        return import_module("omnigraph.errors")
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'omnigraph' has no attribute {name!r}")
    return getattr(import_module(f"omnigraph.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
