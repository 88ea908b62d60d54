"""Every error that OmniGraph raises, as one tree.

Each class has a stable ``code`` (what programs match on), a message that names the thing, a
``hint`` when there is something to do, and ``retryable``: whether the same call may succeed
later without a change by the caller. ``details`` carries the same facts as data. Errors of
underlying libraries never surface: ``storage`` and ``spark`` translate them into this tree.

::

    OmniGraphError                       error
    ├── LanguageError                    language              a text is wrong; has diagnostics
    │   ├── SchemaError                  schema_invalid
    │   ├── QueryError                   query_invalid
    │   └── PlanError                    plan_refused          valid, but cannot be executed
    ├── InputError                       bad_input             a value or argument is wrong
    │   ├── ParameterError               bad_parameter
    │   ├── ValueConversionError         bad_value             a value does not fit its property
    │   └── LoadError                    bad_record            has file, line, field
    ├── IntegrityError                   integrity             the data would break a rule
    │   ├── ValueViolation               value_violation       range, check, enum
    │   ├── UniqueViolation              unique_violation
    │   ├── OrphanEdge                   orphan_edge
    │   └── CardinalityViolation         cardinality_violation
    ├── NotFound                         not_found
    │   ├── GraphNotFound                graph_not_found
    │   ├── BranchNotFound               branch_not_found
    │   ├── CommitNotFound               commit_not_found
    │   ├── QueryNotFound                query_not_found
    │   └── EntityNotFound               entity_not_found
    ├── AlreadyExists                    already_exists
    │   ├── AlreadyInitialized           already_initialized
    │   ├── BranchExists                 branch_exists
    │   └── KeyConflict                  key_conflict          strict append met an existing key
    ├── Conflict                         conflict              lost to a concurrent writer
    │   ├── VersionMismatch              version_mismatch      has table_key, expected, actual
    │   ├── PublishContention            publish_contention
    │   ├── PreconditionFailed           precondition_failed   if_commit did not hold
    │   ├── MergeConflicts               merge_conflicts       has the conflicts
    │   ├── BranchInUse                  branch_in_use
    │   ├── SchemaChanging               schema_changing       a schema change is in progress
    │   ├── SchemaDrift                  schema_drift          the schema files disagree
    │   └── RecoveryRequired             recovery_required
    ├── SchemaChangeRefused              schema_change_refused
    ├── FormatRefused                    format_refused        written by another format version
    ├── HistoryGone                      history_gone          removed by cleanup
    ├── OutcomePending                   outcome_pending       outcome unknown; has commit_id
    ├── LimitExceeded                    limit_exceeded
    │   ├── QueryTimeout                 query_timeout
    │   ├── MemoryExceeded               memory_exceeded
    │   ├── RowLimitExceeded             row_limit_exceeded
    │   └── Cancelled                    cancelled
    ├── StorageError                     storage
    │   ├── StorageMissing               storage_missing
    │   ├── StorageCorrupt               storage_corrupt
    │   ├── StorageDenied                storage_denied
    │   ├── StorageFull                  storage_full
    │   ├── StorageUnavailable           storage_unavailable   transient fault
    │   └── StorageUnknown               storage_unknown       outcome unknown
    ├── EmbeddingError                   embedding
    ├── SparkError                       spark
    │   └── SparkUnavailable             spark_unavailable     PySpark or Java is missing
    ├── ServerError                      server                invalid server response
    │   └── ServerUnavailable            server_unavailable    it cannot be reached
    ├── PackageMissing                   package_missing       an optional package
    ├── PolicyDenied                     policy_denied
    ├── ReadOnly                         read_only
    ├── Closed                           closed
    └── InternalError                    internal              a bug in OmniGraph
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from omnigraph.lang.diagnostics import Diagnostic, render_all


class OmniGraphError(Exception):
    """The root: catch this to catch everything OmniGraph raises on purpose."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details: dict[str, Any] = dict(details or {})

    def to_json(self) -> dict[str, Any]:
        """The error as plain data, keys in a fixed order."""
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "retryable": self.retryable,
            "details": self.details,
        }


# -- texts ----------------------------------------------------------------------------------


class LanguageError(OmniGraphError):
    """A schema or query text is wrong. ``diagnostics`` has every finding, with its location."""

    code = "language"

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        first = diagnostics[0]
        more = len(diagnostics) - 1
        message = f"{first.location}: {first.text}" + (f" (+{more} more)" if more else "")
        super().__init__(
            message,
            hint=first.hint,
            details={"diagnostics": [diagnostic.to_json() for diagnostic in diagnostics]},
        )
        self.diagnostics = tuple(diagnostics)

    def render(self) -> str:
        """All findings as shown to a person."""
        return render_all(self.diagnostics)


class SchemaError(LanguageError):
    code = "schema_invalid"


class QueryError(LanguageError):
    code = "query_invalid"


class PlanError(LanguageError):
    """The query is valid but cannot be executed."""

    code = "plan_refused"


# -- values and arguments ---------------------------------------------------------------------


class InputError(OmniGraphError):
    code = "bad_input"


class ParameterError(InputError):
    code = "bad_parameter"


class ValueConversionError(InputError):
    code = "bad_value"


class LoadError(InputError):
    code = "bad_record"


# -- integrity --------------------------------------------------------------------------------


class IntegrityError(OmniGraphError):
    code = "integrity"


class ValueViolation(IntegrityError):
    code = "value_violation"


class UniqueViolation(IntegrityError):
    code = "unique_violation"


class OrphanEdge(IntegrityError):
    code = "orphan_edge"


class CardinalityViolation(IntegrityError):
    code = "cardinality_violation"


# -- missing and existing things --------------------------------------------------------------


class NotFound(OmniGraphError):
    code = "not_found"


class GraphNotFound(NotFound):
    code = "graph_not_found"


class BranchNotFound(NotFound):
    code = "branch_not_found"


class CommitNotFound(NotFound):
    code = "commit_not_found"


class QueryNotFound(NotFound):
    code = "query_not_found"


class EntityNotFound(NotFound):
    code = "entity_not_found"


class AlreadyExists(OmniGraphError):
    code = "already_exists"


class AlreadyInitialized(AlreadyExists):
    code = "already_initialized"


class BranchExists(AlreadyExists):
    code = "branch_exists"


class KeyConflict(AlreadyExists):
    code = "key_conflict"


# -- concurrent work --------------------------------------------------------------------------


class Conflict(OmniGraphError):
    code = "conflict"
    retryable = True


class VersionMismatch(Conflict):
    code = "version_mismatch"


class PublishContention(Conflict):
    code = "publish_contention"


class PreconditionFailed(Conflict):
    code = "precondition_failed"
    retryable = False


class MergeConflicts(Conflict):
    code = "merge_conflicts"
    retryable = False


class BranchInUse(Conflict):
    code = "branch_in_use"
    retryable = False


class SchemaChanging(Conflict):
    code = "schema_changing"


class SchemaDrift(Conflict):
    code = "schema_drift"
    retryable = False


class RecoveryRequired(Conflict):
    code = "recovery_required"
    retryable = False


# -- the life of a graph ----------------------------------------------------------------------


class SchemaChangeRefused(OmniGraphError):
    code = "schema_change_refused"


class FormatRefused(OmniGraphError):
    code = "format_refused"


class HistoryGone(OmniGraphError):
    code = "history_gone"


class OutcomePending(OmniGraphError):
    """The write may or may not become visible; look up ``commit_id``, do not repeat it."""

    code = "outcome_pending"


class ReadOnly(OmniGraphError):
    code = "read_only"


class Closed(OmniGraphError):
    code = "closed"


# -- limits -----------------------------------------------------------------------------------


class LimitExceeded(OmniGraphError):
    code = "limit_exceeded"


class QueryTimeout(LimitExceeded):
    code = "query_timeout"


class MemoryExceeded(LimitExceeded):
    code = "memory_exceeded"


class RowLimitExceeded(LimitExceeded):
    code = "row_limit_exceeded"


class Cancelled(LimitExceeded):
    code = "cancelled"


# -- below ------------------------------------------------------------------------------------


class StorageError(OmniGraphError):
    code = "storage"


class StorageMissing(StorageError):
    code = "storage_missing"


class StorageCorrupt(StorageError):
    code = "storage_corrupt"


class StorageDenied(StorageError):
    code = "storage_denied"


class StorageFull(StorageError):
    code = "storage_full"


class StorageUnavailable(StorageError):
    code = "storage_unavailable"
    retryable = True


class StorageUnknown(StorageError):
    code = "storage_unknown"


class EmbeddingError(OmniGraphError):
    code = "embedding"


class SparkError(OmniGraphError):
    code = "spark"


class SparkUnavailable(SparkError):
    code = "spark_unavailable"


class ServerError(OmniGraphError):
    code = "server"


class ServerUnavailable(ServerError):
    code = "server_unavailable"
    retryable = True


class PackageMissing(OmniGraphError):
    code = "package_missing"


class PolicyDenied(OmniGraphError):
    code = "policy_denied"


class InternalError(OmniGraphError):
    code = "internal"
