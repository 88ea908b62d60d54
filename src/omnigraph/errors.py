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
    │   ├── LoadError                    bad_record            has file, line, field
    │   ├── IdempotencyKeyReused         idempotency_reused    the key of another write
    │   ├── InvalidCursor                bad_cursor            changed, too old, of another query
    │   └── PolicyInvalid                policy_invalid        a bundle of rules; has policy, line
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
    ├── QueryBroken                      query_broken          a stored query; the schema changed
    ├── FormatRefused                    format_refused        written by another format version
    ├── HistoryGone                      history_gone          removed by cleanup
    │   └── ViewChanged                  view_changed          a cursor of another policy or view
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
    │   └── ServerUnavailable            server_unavailable    unreachable or busy; has retry_after
    ├── ServerNotReady                   server_not_ready      it cannot start; has diagnostics
    ├── NotServed                        not_served            not available through a server
    ├── PackageMissing                   package_missing       an optional package
    ├── Unauthorized                     unauthorized          the server knows no such token
    ├── PolicyDenied                     policy_denied
    │   ├── ForeignCursor                foreign_cursor        a cursor of another actor
    │   └── RestrictedView               restricted_view       needs a view of all rows
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
    retryable: bool = False
    """Whether the same call may succeed later; that of a server's error is the server's."""

    def __init_subclass__(cls, *, code: str | None = None, retryable: bool | None = None) -> None:
        cls.code = code or cls.code
        cls.retryable = cls.retryable if retryable is None else retryable

    def __init__(
        self, message: str, *, hint: str | None = None, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details: dict[str, Any] = dict(details or {})

    @property
    def retry_after(self) -> float | None:
        """The seconds to wait before the call is repeated, if a server asks for a pause."""
        seconds: float | None = self.details.get("retry_after")
        return seconds

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


class LanguageError(OmniGraphError, code="language"):
    """A schema or query text is wrong. ``diagnostics`` has every finding, with its location."""

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

    def __reduce__(self) -> tuple[type[LanguageError], tuple[tuple[Diagnostic, ...]]]:
        return type(self), (self.diagnostics,)

    def render(self) -> str:
        """All findings as shown to a person."""
        return render_all(self.diagnostics)


class SchemaError(LanguageError, code="schema_invalid"):
    """A schema text is invalid."""


class QueryError(LanguageError, code="query_invalid"):
    """A query text is invalid."""


class PlanError(LanguageError, code="plan_refused"):
    """The query is valid but cannot be executed."""


# -- values and arguments ---------------------------------------------------------------------


class InputError(OmniGraphError, code="bad_input"):
    """A value or an argument is wrong."""


class ParameterError(InputError, code="bad_parameter"):
    """A parameter of a query is missing, unknown or of the wrong type."""


class ValueConversionError(InputError, code="bad_value"):
    """A value does not fit its property."""


class LoadError(InputError, code="bad_record"):
    """A record to load is wrong; ``details`` has its file, line and field."""


class IdempotencyKeyReused(InputError, code="idempotency_reused"):
    """The idempotency key was used for another write; ``details`` has its commit."""


class InvalidCursor(InputError, code="bad_cursor"):
    """A cursor was changed, is too old, or belongs to another query or other parameters."""


class PolicyInvalid(InputError, code="policy_invalid"):
    """A policy bundle is not valid; ``details`` has its name and the line."""


# -- integrity --------------------------------------------------------------------------------


class IntegrityError(OmniGraphError, code="integrity"):
    """The data would break a rule of the schema."""


class ValueViolation(IntegrityError, code="value_violation"):
    """A value is outside of its range, check or enum."""


class UniqueViolation(IntegrityError, code="unique_violation"):
    """Two rows would have the same unique value."""


class OrphanEdge(IntegrityError, code="orphan_edge"):
    """An edge would have no node at one of its ends."""


class CardinalityViolation(IntegrityError, code="cardinality_violation"):
    """A node would have too few or too many edges of a type."""


# -- missing and existing things --------------------------------------------------------------


class NotFound(OmniGraphError, code="not_found"):
    """Something named does not exist."""


class GraphNotFound(NotFound, code="graph_not_found"):
    """There is no graph at this location."""


class BranchNotFound(NotFound, code="branch_not_found"):
    """There is no branch of this name."""


class CommitNotFound(NotFound, code="commit_not_found"):
    """There is no commit with this id."""


class QueryNotFound(NotFound, code="query_not_found"):
    """There is no query of this name."""


class EntityNotFound(NotFound, code="entity_not_found"):
    """There is no node or edge with this id."""


class AlreadyExists(OmniGraphError, code="already_exists"):
    """Something of this name exists already."""


class AlreadyInitialized(AlreadyExists, code="already_initialized"):
    """There is a graph at this location already."""


class BranchExists(AlreadyExists, code="branch_exists"):
    """There is a branch of this name already."""


class KeyConflict(AlreadyExists, code="key_conflict"):
    """A strict append met an existing key."""


# -- concurrent work --------------------------------------------------------------------------


class Conflict(OmniGraphError, code="conflict", retryable=True):
    """Lost to a concurrent writer."""


class VersionMismatch(Conflict, code="version_mismatch"):
    """A table moved on; ``details`` has table_key, expected and actual."""


class PublishContention(Conflict, code="publish_contention"):
    """Other writers kept publishing first."""


class PreconditionFailed(Conflict, code="precondition_failed", retryable=False):
    """The branch is not at the commit of ``if_commit``."""


class MergeConflicts(Conflict, code="merge_conflicts", retryable=False):
    """Both sides changed the same rows; ``details`` has the conflicts."""


class BranchInUse(Conflict, code="branch_in_use", retryable=False):
    """The branch cannot be deleted while others depend on it."""


class SchemaChanging(Conflict, code="schema_changing"):
    """A schema change is in progress."""


class SchemaDrift(Conflict, code="schema_drift", retryable=False):
    """The schema files disagree with each other."""


class RecoveryRequired(Conflict, code="recovery_required", retryable=False):
    """An interrupted write must be recovered first."""


# -- the life of a graph ----------------------------------------------------------------------


class SchemaChangeRefused(OmniGraphError, code="schema_change_refused"):
    """The schema cannot be changed in this way."""


class QueryBroken(OmniGraphError, code="query_broken"):
    """A stored query does not fit the schema any more; ``details`` has its name."""


class FormatRefused(OmniGraphError, code="format_refused"):
    """The graph was written by another format version."""


class HistoryGone(OmniGraphError, code="history_gone"):
    """The version was removed by cleanup."""


class ViewChanged(HistoryGone, code="view_changed"):
    """A cursor belongs to another view of the graph: begin again, or take a new baseline."""


class OutcomePending(OmniGraphError, code="outcome_pending"):
    """The write may or may not become visible; look up ``commit_id``, do not repeat it."""


class ReadOnly(OmniGraphError, code="read_only"):
    """The graph was opened for reading."""


class Closed(OmniGraphError, code="closed"):
    """The graph or result was closed."""


# -- limits -----------------------------------------------------------------------------------


class LimitExceeded(OmniGraphError, code="limit_exceeded"):
    """A limit of the call was reached."""


class QueryTimeout(LimitExceeded, code="query_timeout"):
    """The query exceeded its time limit."""


class MemoryExceeded(LimitExceeded, code="memory_exceeded"):
    """There is not enough memory, or no further thread."""


class RowLimitExceeded(LimitExceeded, code="row_limit_exceeded"):
    """The query returned more rows than allowed."""


class Cancelled(LimitExceeded, code="cancelled"):
    """The call was cancelled."""


# -- below ------------------------------------------------------------------------------------


class StorageError(OmniGraphError, code="storage"):
    """The storage failed."""


class StorageMissing(StorageError, code="storage_missing"):
    """A file or object is missing."""


class StorageCorrupt(StorageError, code="storage_corrupt"):
    """A file or object is damaged."""


class StorageDenied(StorageError, code="storage_denied"):
    """The storage refused access."""


class StorageFull(StorageError, code="storage_full"):
    """The storage is full."""


class StorageUnavailable(StorageError, code="storage_unavailable", retryable=True):
    """A transient fault of the storage."""


class StorageUnknown(StorageError, code="storage_unknown"):
    """The storage failed, and the outcome is unknown."""


class EmbeddingError(OmniGraphError, code="embedding"):
    """The embedding provider failed or refused."""


class SparkError(OmniGraphError, code="spark"):
    """Spark failed."""


class SparkUnavailable(SparkError, code="spark_unavailable"):
    """PySpark or Java is missing."""


class ServerError(OmniGraphError, code="server"):
    """The server failed, or its response is invalid."""


class ServerUnavailable(ServerError, code="server_unavailable", retryable=True):
    """The server cannot be reached, or is busy; ``retry_after`` is the pause it asks for."""


class ServerNotReady(OmniGraphError, code="server_not_ready"):
    """The server cannot start with what it was given; ``details`` has the diagnostics."""


class NotServed(OmniGraphError, code="not_served"):
    """A part of the interface of a graph that is not available through a server."""


class PackageMissing(OmniGraphError, code="package_missing"):
    """An optional package is not installed."""


class Unauthorized(OmniGraphError, code="unauthorized"):
    """The server requires a token, or does not know the one that was sent."""


class PolicyDenied(OmniGraphError, code="policy_denied"):
    """A policy does not allow this."""

    @classmethod
    def without_actor(cls, action: str) -> PolicyDenied:
        """A policy is to decide, and nobody says who acts."""
        return cls(
            f"no actor for engine-layer policy check: action '{action}'",
            hint="pass actor= to the call, or to Graph.open",
            details={"action": action},
        )

    @classmethod
    def beyond_view(
        cls, actor: str | None, action: str, branch: str | None, target: str | None = None
    ) -> PolicyDenied:
        """The call needs rows that the actor may not see; never says which, or why.

        >>> print(PolicyDenied.beyond_view("ana", "change", "main"))
        policy denied action 'change' on branch 'main' for actor 'ana': beyond its view
        """
        on = "" if branch is None else f" on branch '{branch}'"
        targeting = "" if target is None else f" targeting branch '{target}'"
        who = "" if actor is None else f" for actor '{actor}'"
        return cls(
            f"policy denied action '{action}'{on}{targeting}{who}: beyond its view",
            hint="the policy hides rows that it needs, or would hide rows that it adds",
            details={"actor": actor, "action": action, "branch": branch, "target": target},
        )


class ForeignCursor(PolicyDenied, code="foreign_cursor"):
    """A cursor was issued to another actor."""


class RestrictedView(PolicyDenied, code="restricted_view"):
    """Only actors who may see all rows can use this."""


class InternalError(OmniGraphError, code="internal"):
    """A bug in OmniGraph."""
