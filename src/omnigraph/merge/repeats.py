"""Merges under an idempotency key: a repeated call gets the report of the first one.

The commit of such a merge carries what its report says besides the commit itself. A merge that
changes nothing makes no commit, so nothing is kept of its key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from omnigraph.commit.metadata import MERGE, receipt_of
from omnigraph.commit.publisher import AlreadyDone, refuse_repeat
from omnigraph.commit.receipts import TableCounts
from omnigraph.commit.rows import CommitRow
from omnigraph.commit.store import GraphStore
from omnigraph.errors import StorageCorrupt
from omnigraph.merge.conflicts import Choice, choices_of
from omnigraph.records import dataclass

_REPORT = "report"
_RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class MergeKey:
    """An idempotency key, and the digest of what is merged under it."""

    key: str
    fingerprint: str

    @classmethod
    def of(cls, key: str | None, operation: str, subject: str, resolve: Any) -> MergeKey | None:
        """The key of a call; ``subject`` is the branch or the commit that it names."""
        if key is None:
            return None
        choices = json.dumps(choices_of(resolve), sort_keys=True, default=repr)
        parts = operation, subject, choices
        digest = hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()
        return cls(key, f"{operation}:{digest[:32]}")


@dataclass(frozen=True, slots=True)
class RecordedMerge:
    """What the commit of a merge says about it."""

    commit_id: str
    version: int
    head: str | None
    """The newest commit of the merged branch."""
    outcome: str
    base: str | None
    tables: Mapping[str, TableCounts]
    resolved: Mapping[str, Choice]

    @classmethod
    def of(cls, row: CommitRow) -> RecordedMerge:
        """That of a row of the manifest."""
        receipt = receipt_of(row)
        assert receipt.commit_id is not None, "the receipt is that of a commit"
        try:
            merge: Mapping[str, Any] = row.extra[MERGE]
            report = merge[_REPORT]
            tables = {str(key): TableCounts(**counts) for key, counts in report["tables"].items()}
            base = report["base"]
            return cls(
                receipt.commit_id,
                receipt.version,
                row.merged_parent,
                str(report["outcome"]),
                None if base is None else str(base),
                tables,
                dict(merge.get(_RESOLVED) or {}),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise StorageCorrupt(
                f"the report in commit {row.commit_id} cannot be read",
                hint="restore the graph from a backup, or write under another idempotency key",
                details={"commit_id": row.commit_id},
            ) from error


def recorded_report(
    outcome: str, base: str | None, tables: Mapping[str, TableCounts]
) -> dict[str, Any]:
    """The part of the report that is stored in the commit's metadata."""
    counts = {key: asdict(table) for key, table in sorted(tables.items())}
    return {_REPORT: {"outcome": outcome, "base": base, "tables": counts}}


def find_merge(store: GraphStore, branch: str | None, key: MergeKey) -> RecordedMerge | None:
    """The merge that was made on a branch under a key; ``None`` if there is none.

    Raises ``IdempotencyKeyReused`` if the key belongs to another write.
    """
    manifest = store.manifest(branch)
    manifest.current()
    try:
        manifest.with_state(lambda state, _: refuse_repeat(state, branch, key.key, key.fingerprint))
    except AlreadyDone as done:
        return RecordedMerge.of(done.commit)
    return None
