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
    from omnigraph.api.handle import Engine, Mode
    from omnigraph.api.maintenance import GraphIndexes, GraphMaintenance, verify_graph
    from omnigraph.api.query import Explanation
    from omnigraph.api.schema import GraphSchema
    from omnigraph.api.snapshot import BlobInfo, GraphSnapshot
    from omnigraph.commit.audit import RecoveryKind, TableOutcome
    from omnigraph.commit.history import Commit, Tag
    from omnigraph.commit.metadata import LoadReceipt, Receipt, SchemaEvent, TableCounts
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
    from omnigraph.lang.diagnostics import Diagnostic, Phase, Severity, Source, Span
    from omnigraph.lang.schema.ast import Annotation, Cardinality
    from omnigraph.lang.schema.catalog import (
        Catalog,
        EdgeType,
        Embed,
        Interface,
        NodeType,
        Property,
    )
    from omnigraph.lang.schema.compile import compile_schema
    from omnigraph.lang.schema.migrate import MigrationPlan
    from omnigraph.lang.schema.steps import Step, UnsupportedChange
    from omnigraph.lang.types import PropType, Scalar
    from omnigraph.maintain.backup.copy import CopyReport
    from omnigraph.maintain.backup.create import BackupReport
    from omnigraph.maintain.backup.index import BackupPoint, StoredFile
    from omnigraph.maintain.backup.prune import PruneReport
    from omnigraph.maintain.cleanup.report import (
        CleanupReport,
        ManifestCleanup,
        Reclaimed,
        Skipped,
        TableCleanup,
    )
    from omnigraph.maintain.doctor.report import (
        Advice,
        CleanupEstimate,
        DoctorReport,
        Holder,
        ManifestHealth,
        PendingWrite,
        TableHealth,
    )
    from omnigraph.maintain.optimize.indexes import IndexReport, IndexState
    from omnigraph.maintain.optimize.plan import MaintenancePolicy
    from omnigraph.maintain.optimize.run import OptimizeReport, TableStats
    from omnigraph.maintain.repair import Action, Drift, RepairReport, TableRepair
    from omnigraph.maintain.verify import VerifyReport
    from omnigraph.maintain.verify.report import ProblemCode, VerifyProblem, Weight
    from omnigraph.merge.blame import Blame
    from omnigraph.merge.change_filter import Operation
    from omnigraph.merge.conflicts import ConflictKind, Conflicts, RowConflict
    from omnigraph.merge.diff import Change, Diff
    from omnigraph.merge.feed import ChangeBlock, ChangePage
    from omnigraph.merge.run import MergeReport, Outcome, Resolve
    from omnigraph.plan import Expect, compile_query
    from omnigraph.plan.nodes import MutationPlan, ReadPlan
    from omnigraph.progress import OnProgress, Progress
    from omnigraph.read.limits import Cancel
    from omnigraph.result.result import Result
    from omnigraph.storage.durable import Durability
    from omnigraph.storage.tables.read_only import ReadOnlyDataset
    from omnigraph.storage.tables.types import Coverage, IndexKind
    from omnigraph.write.append import Rows
    from omnigraph.write.load.job import LoadData, LoadMode
    from omnigraph.write.validate.rules import Violation

__version__ = "0.1.0"

_NAMES = {
    "api.backup": "backup_points clone prune_backup restore",
    "api.branches": "GraphBranches GraphTags",
    "api.changes": "Baseline GraphChanges",
    "api.embeddings": "GraphEmbeddings",
    "api.graph": "Graph",
    "api.handle": "Engine Mode",
    "api.maintenance": "GraphIndexes GraphMaintenance verify_graph",
    "api.query": "Explanation",
    "api.schema": "GraphSchema",
    "api.snapshot": "BlobInfo GraphSnapshot",
    "commit.audit": "RecoveryKind TableOutcome",
    "commit.history": "Commit Tag",
    "commit.metadata": "LoadReceipt Receipt SchemaEvent TableCounts",
    "commit.recovery": "Recovered",
    "embed": "EmbeddingConfig",
    "embed.job.rate_limit": "RateLimit",
    "embed.job.requests": "Batching Refusal",
    "embed.job.run": "EmbeddingReport EmbeddingStatus",
    "errors": (
        "AlreadyExists Conflict InputError IntegrityError InternalError LanguageError NotFound "
        "OmniGraphError OutcomePending PlanError PreconditionFailed QueryError SchemaError "
        "StorageError VersionMismatch"
    ),
    "evolve.apply": "SchemaApplied",
    "lang.diagnostics": "Diagnostic Phase Severity Source Span",
    "lang.schema.ast": "Annotation Cardinality",
    "lang.schema.catalog": "Catalog EdgeType Embed Interface NodeType Property",
    "lang.schema.compile": "compile_schema",
    "lang.schema.migrate": "MigrationPlan",
    "lang.schema.steps": "Step UnsupportedChange",
    "lang.types": "PropType Scalar",
    "maintain.backup.copy": "CopyReport",
    "maintain.backup.create": "BackupReport",
    "maintain.backup.index": "BackupPoint StoredFile",
    "maintain.backup.prune": "PruneReport",
    "maintain.cleanup.report": "CleanupReport ManifestCleanup Reclaimed Skipped TableCleanup",
    "maintain.doctor.report": (
        "Advice CleanupEstimate DoctorReport Holder ManifestHealth PendingWrite TableHealth"
    ),
    "maintain.optimize.indexes": "IndexReport IndexState",
    "maintain.optimize.plan": "MaintenancePolicy",
    "maintain.optimize.run": "OptimizeReport TableStats",
    "maintain.repair": "Action Drift RepairReport TableRepair",
    "maintain.verify": "VerifyReport",
    "maintain.verify.report": "ProblemCode VerifyProblem Weight",
    "merge.blame": "Blame",
    "merge.change_filter": "Operation",
    "merge.conflicts": "ConflictKind Conflicts RowConflict",
    "merge.diff": "Change Diff",
    "merge.feed": "ChangeBlock ChangePage",
    "merge.run": "MergeReport Outcome Resolve",
    "plan": "Expect compile_query",
    "plan.nodes": "MutationPlan ReadPlan",
    "progress": "OnProgress Progress",
    "read.limits": "Cancel",
    "result.result": "Result",
    "storage.durable": "Durability",
    "storage.tables.read_only": "ReadOnlyDataset",
    "storage.tables.types": "Coverage IndexKind",
    "write.append": "Rows",
    "write.load.job": "LoadData LoadMode",
    "write.validate.violations": "Violation",
}
"""The names of the public surface, by their modules."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "__version__",
    "Graph",
    "GraphSnapshot",
    "GraphBranches",
    "GraphTags",
    "GraphChanges",
    "GraphSchema",
    "GraphIndexes",
    "GraphEmbeddings",
    "GraphMaintenance",
    "restore",
    "clone",
    "backup_points",
    "prune_backup",
    "verify_graph",
    "Result",
    "Explanation",
    "Cancel",
    "Progress",
    "OnProgress",
    "BlobInfo",
    "ReadOnlyDataset",
    "Receipt",
    "LoadReceipt",
    "LoadMode",
    "LoadData",
    "Rows",
    "TableCounts",
    "Durability",
    "Engine",
    "Mode",
    "Recovered",
    "RecoveryKind",
    "TableOutcome",
    "Commit",
    "Tag",
    "MergeReport",
    "Outcome",
    "Conflicts",
    "RowConflict",
    "ConflictKind",
    "Resolve",
    "Diff",
    "Change",
    "Operation",
    "ChangePage",
    "ChangeBlock",
    "SchemaEvent",
    "Baseline",
    "Blame",
    "Catalog",
    "NodeType",
    "EdgeType",
    "Interface",
    "Property",
    "Annotation",
    "Embed",
    "PropType",
    "Scalar",
    "Cardinality",
    "MigrationPlan",
    "Step",
    "UnsupportedChange",
    "SchemaApplied",
    "Violation",
    "IndexReport",
    "IndexState",
    "IndexKind",
    "Coverage",
    "OptimizeReport",
    "TableStats",
    "CleanupReport",
    "TableCleanup",
    "ManifestCleanup",
    "Reclaimed",
    "Skipped",
    "MaintenancePolicy",
    "DoctorReport",
    "TableHealth",
    "ManifestHealth",
    "PendingWrite",
    "Holder",
    "CleanupEstimate",
    "Advice",
    "RepairReport",
    "TableRepair",
    "Action",
    "Drift",
    "VerifyReport",
    "VerifyProblem",
    "ProblemCode",
    "Weight",
    "BackupReport",
    "BackupPoint",
    "StoredFile",
    "PruneReport",
    "CopyReport",
    "EmbeddingConfig",
    "EmbeddingReport",
    "Refusal",
    "EmbeddingStatus",
    "RateLimit",
    "Batching",
    "compile_schema",
    "compile_query",
    "Expect",
    "ReadPlan",
    "MutationPlan",
    "Source",
    "Span",
    "Severity",
    "Phase",
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
