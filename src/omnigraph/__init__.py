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
    from omnigraph.api.blob_info import BlobInfo
    from omnigraph.api.blobs import GraphBlobs
    from omnigraph.api.branches import GraphBranches, GraphTags
    from omnigraph.api.changes import Baseline, GraphChanges
    from omnigraph.api.embeddings import GraphEmbeddings
    from omnigraph.api.engines import Engine
    from omnigraph.api.gate import WriteGate
    from omnigraph.api.graph import Graph
    from omnigraph.api.graph_like import (
        BranchesLike,
        ChangesLike,
        GraphLike,
        QueriesLike,
        SchemaLike,
        SnapshotLike,
        TagsLike,
    )
    from omnigraph.api.handle import Mode
    from omnigraph.api.maintenance import GraphIndexes, GraphMaintenance, verify_graph
    from omnigraph.api.neighbours import Neighbour
    from omnigraph.api.query import Explanation
    from omnigraph.api.query_registry import GraphStoredQueries
    from omnigraph.api.schema import GraphSchema
    from omnigraph.api.snapshot import GraphSnapshot
    from omnigraph.api.statements import PreparedMutation, PreparedRead
    from omnigraph.api.stored_queries import StoredQuery
    from omnigraph.commit.audit import RecoveryKind, TableOutcome
    from omnigraph.commit.commits import Commit, CommitGroup, Tag
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
    from omnigraph.identity import Identity
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
    from omnigraph.maintain.verify.report import ProblemCode, VerifyProblem, VerifyReport, Weight
    from omnigraph.merge.blame import Blame
    from omnigraph.merge.change_filter import Operation
    from omnigraph.merge.conflicts import ConflictKind, Conflicts, RowConflict
    from omnigraph.merge.diff import Change, Diff
    from omnigraph.merge.pages import ChangeBlock, ChangePage
    from omnigraph.merge.run import MergeReport, Outcome, Resolve
    from omnigraph.plan import Expect, compile_query
    from omnigraph.plan.nodes import MutationPlan, ReadPlan
    from omnigraph.policy.decision import Decision
    from omnigraph.policy.explain import RowVerdict
    from omnigraph.policy.findings import PolicyFinding
    from omnigraph.policy.policy import Policy
    from omnigraph.progress import OnProgress, Progress
    from omnigraph.read.limits import Cancel
    from omnigraph.remote.async_blobs import AsyncRemoteBlobs
    from omnigraph.remote.async_deployments import AsyncRemoteDeployments
    from omnigraph.remote.async_graph import AsyncRemoteGraph, connect_async
    from omnigraph.remote.async_history import AsyncRemoteChanges, AsyncRemoteTags
    from omnigraph.remote.async_maintenance import (
        AsyncRemoteEmbeddings,
        AsyncRemoteIndexes,
        AsyncRemoteJobs,
        AsyncRemoteMaintenance,
    )
    from omnigraph.remote.async_namespaces import (
        AsyncRemoteBranches,
        AsyncRemoteQueries,
        AsyncRemoteSchema,
    )
    from omnigraph.remote.async_snapshot import AsyncRemoteSnapshot
    from omnigraph.remote.blobs import RemoteBlobs
    from omnigraph.remote.deployments import Deployment, RemoteDeployments
    from omnigraph.remote.graph import RemoteGraph
    from omnigraph.remote.history import RemoteChanges, RemoteTags
    from omnigraph.remote.jobs import Job, RemoteJobs
    from omnigraph.remote.maintenance import RemoteEmbeddings, RemoteIndexes, RemoteMaintenance
    from omnigraph.remote.namespaces import RemoteBranches, RemoteQueries, RemoteSchema
    from omnigraph.remote.opening import connect
    from omnigraph.remote.snapshot import RemoteSnapshot
    from omnigraph.result.page import ResultPage
    from omnigraph.result.result import Result
    from omnigraph.storage.durable import Durability
    from omnigraph.storage.tables.read_only import ReadOnlyDataset
    from omnigraph.storage.tables.types import Coverage, IndexKind
    from omnigraph.write.append import Rows
    from omnigraph.write.load.job import LoadData, LoadMode
    from omnigraph.write.validate.rules import Violation

__version__ = "0.1.0"

_NAMES = {
    "api.graph": "Graph",
    "api.snapshot": "GraphSnapshot",
    "api.neighbours": "Neighbour",
    "api.blob_info": "BlobInfo",
    "api.branches": "GraphBranches GraphTags",
    "api.blobs": "GraphBlobs",
    "api.changes": "GraphChanges Baseline",
    "api.schema": "GraphSchema",
    "api.query_registry": "GraphStoredQueries",
    "api.stored_queries": "StoredQuery",
    "api.embeddings": "GraphEmbeddings",
    "api.maintenance": "GraphIndexes GraphMaintenance verify_graph",
    "remote.opening": "connect",
    "remote.graph": "RemoteGraph",
    "remote.namespaces": "RemoteBranches RemoteSchema RemoteQueries",
    "remote.snapshot": "RemoteSnapshot",
    "remote.blobs": "RemoteBlobs",
    "remote.jobs": "RemoteJobs Job",
    "remote.deployments": "RemoteDeployments Deployment",
    "remote.async_deployments": "AsyncRemoteDeployments",
    "remote.maintenance": "RemoteIndexes RemoteEmbeddings RemoteMaintenance",
    "remote.async_blobs": "AsyncRemoteBlobs",
    "remote.history": "RemoteChanges RemoteTags",
    "remote.async_graph": "connect_async AsyncRemoteGraph",
    "remote.async_snapshot": "AsyncRemoteSnapshot",
    "remote.async_history": "AsyncRemoteChanges AsyncRemoteTags",
    "remote.async_maintenance": "AsyncRemoteIndexes AsyncRemoteEmbeddings AsyncRemoteMaintenance "
    "AsyncRemoteJobs",
    "remote.async_namespaces": "AsyncRemoteBranches AsyncRemoteSchema AsyncRemoteQueries",
    "api.graph_like": "GraphLike SnapshotLike BranchesLike SchemaLike QueriesLike TagsLike "
    "ChangesLike",
    "api.backup": "restore clone backup_points prune_backup",
    "result.page": "ResultPage",
    "result.result": "Result",
    "api.query": "Explanation",
    "api.statements": "PreparedMutation PreparedRead",
    "read.limits": "Cancel",
    "progress": "Progress OnProgress",
    "storage.tables.read_only": "ReadOnlyDataset",
    "write.load.job": "LoadMode LoadData",
    "write.append": "Rows",
    "storage.durable": "Durability",
    "commit.recovery": "Recovered",
    "commit.commits": "Commit CommitGroup Tag",
    "merge.run": "MergeReport Resolve Outcome",
    "merge.conflicts": "Conflicts RowConflict ConflictKind",
    "merge.diff": "Diff Change",
    "merge.pages": "ChangePage ChangeBlock",
    "commit.receipts": "Receipt LoadReceipt TableCounts",
    "commit.metadata": "SchemaEvent",
    "merge.blame": "Blame",
    "lang.schema.catalog": "Catalog NodeType EdgeType Interface Property Embed",
    "lang.schema.migrate": "MigrationPlan",
    "lang.schema.steps": "UnsupportedChange Step",
    "evolve.apply": "SchemaApplied",
    "write.validate.rules": "Violation",
    "maintain.optimize.indexes": "IndexReport IndexState",
    "maintain.optimize.run": "OptimizeReport TableStats",
    "maintain.cleanup.report": "CleanupReport TableCleanup ManifestCleanup Reclaimed Skipped",
    "maintain.optimize.plan": "MaintenancePolicy",
    "maintain.doctor.report": "DoctorReport TableHealth ManifestHealth PendingWrite Holder "
    "CleanupEstimate Advice",
    "maintain.repair": "RepairReport TableRepair Action Drift",
    "maintain.verify.report": "VerifyReport VerifyProblem ProblemCode Weight",
    "maintain.backup.create": "BackupReport",
    "maintain.backup.index": "BackupPoint StoredFile",
    "maintain.backup.prune": "PruneReport",
    "maintain.backup.copy": "CopyReport",
    "embed": "EmbeddingConfig",
    "embed.job.run": "EmbeddingReport EmbeddingStatus",
    "embed.job.requests": "Refusal Batching",
    "embed.job.rate_limit": "RateLimit",
    "lang.schema.compile": "compile_schema",
    "plan": "compile_query Expect",
    "plan.nodes": "ReadPlan MutationPlan",
    "lang.diagnostics": "Source Span Severity Diagnostic Phase",
    "errors": "OmniGraphError LanguageError SchemaError QueryError PlanError "
    "InputError IntegrityError NotFound AlreadyExists Conflict "
    "VersionMismatch PreconditionFailed OutcomePending StorageError "
    "InternalError",
    "api.engines": "Engine",
    "api.handle": "Mode",
    "api.gate": "WriteGate",
    "identity": "Identity",
    "policy.policy": "Policy",
    "policy.decision": "Decision",
    "policy.explain": "RowVerdict",
    "policy.findings": "PolicyFinding",
    "commit.audit": "RecoveryKind TableOutcome",
    "merge.change_filter": "Operation",
    "lang.types": "PropType Scalar",
    "lang.schema.ast": "Cardinality Annotation",
    "storage.tables.types": "IndexKind Coverage",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
"""The module of each name of the public surface."""

__all__ = ["__version__", "Graph", "GraphSnapshot", "GraphBranches", "GraphTags", "GraphChanges"]
__all__ += [
    "GraphSchema",
    "GraphStoredQueries",
    "StoredQuery",
    "GraphBlobs",
    "GraphIndexes",
    "GraphEmbeddings",
    "GraphMaintenance",
]
__all__ += ["connect", "RemoteGraph", "RemoteSnapshot", "RemoteBranches", "RemoteSchema"]
__all__ += ["RemoteTags", "RemoteChanges", "AsyncRemoteTags", "AsyncRemoteChanges"]
__all__ += ["RemoteQueries", "RemoteBlobs", "RemoteIndexes", "RemoteEmbeddings"]
__all__ += ["RemoteMaintenance", "RemoteJobs", "Job", "RemoteDeployments", "Deployment"]
__all__ += ["connect_async", "AsyncRemoteGraph"]
__all__ += ["AsyncRemoteSnapshot", "AsyncRemoteBranches", "AsyncRemoteSchema"]
__all__ += ["AsyncRemoteQueries", "AsyncRemoteBlobs", "AsyncRemoteIndexes"]
__all__ += ["AsyncRemoteEmbeddings", "AsyncRemoteMaintenance", "AsyncRemoteJobs"]
__all__ += ["AsyncRemoteDeployments"]
__all__ += ["GraphLike", "SnapshotLike", "BranchesLike", "SchemaLike"]
__all__ += ["QueriesLike", "TagsLike", "ChangesLike"]
__all__ += ["restore", "clone", "backup_points", "prune_backup", "verify_graph"]
__all__ += [
    "PreparedRead",
    "PreparedMutation",
    "Result",
    "ResultPage",
    "Explanation",
    "Cancel",
    "Progress",
    "OnProgress",
    "BlobInfo",
    "Neighbour",
]
__all__ += ["ReadOnlyDataset"]
__all__ += ["Receipt", "LoadReceipt", "LoadMode", "LoadData", "Rows", "TableCounts", "Durability"]
__all__ += ["Engine", "Mode"]
__all__ += ["Recovered", "RecoveryKind", "TableOutcome", "Commit", "CommitGroup", "Tag"]
__all__ += ["MergeReport", "Outcome", "Conflicts", "RowConflict", "ConflictKind", "Resolve"]
__all__ += ["Diff", "Change", "Operation"]
__all__ += ["ChangePage", "ChangeBlock", "SchemaEvent", "Baseline", "Blame"]
__all__ += ["Catalog", "NodeType", "EdgeType", "Interface", "Property", "Annotation", "Embed"]
__all__ += ["PropType", "Scalar", "Cardinality", "MigrationPlan", "Step", "UnsupportedChange"]
__all__ += ["SchemaApplied", "Violation"]
__all__ += ["IndexReport", "IndexState", "IndexKind", "Coverage", "OptimizeReport", "TableStats"]
__all__ += ["CleanupReport"]
__all__ += ["TableCleanup", "ManifestCleanup", "Reclaimed", "Skipped", "MaintenancePolicy"]
__all__ += ["DoctorReport", "TableHealth", "ManifestHealth", "PendingWrite", "Holder"]
__all__ += ["CleanupEstimate", "Advice", "RepairReport"]
__all__ += ["TableRepair", "Action", "Drift", "VerifyReport", "VerifyProblem", "ProblemCode"]
__all__ += ["Weight"]
__all__ += ["BackupReport", "BackupPoint", "StoredFile", "PruneReport", "CopyReport"]
__all__ += ["EmbeddingConfig", "EmbeddingReport", "Refusal", "EmbeddingStatus", "RateLimit"]
__all__ += ["Batching"]
__all__ += [
    "Policy",
    "Decision",
    "RowVerdict",
    "PolicyFinding",
    "WriteGate",
    "Identity",
]
__all__ += ["compile_schema", "compile_query", "Expect", "ReadPlan", "MutationPlan", "Source"]
__all__ += ["Span"]
__all__ += ["Severity", "Phase", "Diagnostic"]
__all__ += ["OmniGraphError", "LanguageError", "SchemaError", "QueryError", "PlanError"]
__all__ += ["InputError", "IntegrityError", "NotFound", "AlreadyExists", "Conflict"]
__all__ += ["VersionMismatch", "PreconditionFailed", "OutcomePending", "StorageError"]
__all__ += ["InternalError"]


def __getattr__(name: str) -> Any:
    module = "errors" if name == "errors" else _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'omnigraph' has no attribute {name!r}")
    loaded = _load(f"omnigraph.{module}")
    return loaded if name == "errors" else getattr(loaded, name)


_FEW_OBJECTS, _FEW_OF_CLASSES = 30_000, 100
"""Up to so many objects, and so many of classes outside of the standard library, a process counts
as one that has just started."""


def _load(module: str) -> Any:
    """Import a module without the garbage collector, which would take a tenth of the time.

    What the first import of a new process creates are modules, classes and functions of OmniGraph,
    Lance, pyarrow and NumPy, which live until it ends: they are taken away from the collector. It
    would otherwise examine them at each full collection, and twice when the process ends, which
    takes longer than opening a graph. The few objects that existed before go with them. In a
    process that has objects of its own, nothing is taken away.
    """
    import gc
    import sys

    if module in sys.modules or not gc.isenabled():
        return _import(module)
    gc.disable()
    try:
        is_new = "omnigraph.api.graph" not in sys.modules and _is_new(gc.get_objects())
        loaded = _import(module)
        if is_new and "omnigraph.api.graph" in sys.modules:
            gc.freeze()
        return loaded
    finally:
        gc.enable()


def _import(module: str) -> Any:
    """Import a module; the threads that NumPy starts do not spin."""
    import sys
    from importlib import import_module

    if "numpy" in sys.modules or not module.startswith("omnigraph.api."):
        return import_module(module)
    # Not an ``import``: those of this module list the names of the surface.
    with import_module("omnigraph.settings").idle_threads_asleep():
        return import_module(module)


def _is_new(objects: list[Any]) -> bool:
    """Whether a process has created hardly any object but modules, classes and functions."""
    import sys

    if len(objects) >= _FEW_OBJECTS:
        return False
    standard = sys.stdlib_module_names
    classes = {type(value) for value in objects}
    own = {cls for cls in classes if str(cls.__module__).partition(".")[0] not in standard}
    return sum(type(value) in own for value in objects) < _FEW_OF_CLASSES if own else True


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
