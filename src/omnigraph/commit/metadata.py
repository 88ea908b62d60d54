"""The metadata of a commit: the keys that only this program writes, and the receipt of a write.

The keys are part of the metadata of a ``graph_commit`` row, after the keys of the format, and other
programs ignore them. Empty keys are left out. Unknown keys are kept, so that a commit of a newer
release can be read and rewritten.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any

from omnigraph.argument_checks import reads_json
from omnigraph.commit.receipts import Receipt, TableCounts, as_text, as_whole
from omnigraph.commit.rows import (
    COMPLETES,
    FINGERPRINT,
    IDEMPOTENCY_KEY,
    PICKS,
    RECEIPT,
    REVERTS,
    ROLLED_BACK,
    WRITER,
    CommitRow,
    completed_ids,
)
from omnigraph.errors import IdempotencyKeyReused, InputError, StorageCorrupt
from omnigraph.records import dataclass
from omnigraph.storage.tables.types import StagedTable

LOAD = "load"
"""The counts of a load that are not part of its receipt."""
LOAD_BRANCH = "load_branch"
"""What a load did with its branch."""
MERGE = "merge"
"""What a merge included, and how its conflicts were resolved."""
GROUP = "group"
"""The position of a commit in a group."""
JOB = "job"
"""The id of the job that made the commit."""


@dataclass(frozen=True, slots=True)
class Group:
    """The position of a commit in a group that was published at once.

    ``ids`` are the ids that this member wrote, by table key: they distinguish its rows from those
    of the others, since all members share one version of each table.
    """

    id: str
    index: int
    size: int
    ids: Mapping[str, tuple[str, ...]]
    other: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data in a fixed order."""
        return {
            "id": self.id,
            "index": self.index,
            "size": self.size,
            "ids": {key: list(self.ids[key]) for key in sorted(self.ids)},
            **self.other,
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Group:
        """The inverse of ``to_json``."""
        index, size = as_whole(value["index"]), as_whole(value["size"])
        if not 0 <= index < size:
            raise ValueError(f"member {index} of {size}")
        ids = {str(key): tuple(map(as_text, written)) for key, written in value["ids"].items()}
        other = {key: value[key] for key in value if key not in ("id", "index", "size", "ids")}
        return Group(as_text(value["id"]), index, size, ids, other)


@dataclass(frozen=True, slots=True)
class SchemaEvent:
    """A change of a type or property, by its stable ids.

    ``step`` is the migration step as data: ``kind``, ``type_kind``, names and further fields; for
    an added type also its properties, and the ``value`` that existing rows got.
    """

    step: Mapping[str, Any]
    type_id: int
    property_id: int | None = None

    @property
    def kind(self) -> str:
        """What happened, such as ``rename_property``."""
        return str(self.step["kind"])

    @property
    def type_kind(self) -> str:
        """``node``, ``edge`` or ``interface``."""
        return str(self.step.get("type_kind", ""))

    @property
    def type_name(self) -> str:
        """The name of the type after the event; for a dropped type, before it."""
        step = self.step
        named = "type_name" if "type_name" in step else "name" if "name" in step else "to"
        return str(step.get(named, ""))

    @property
    def table_key(self) -> str:
        return f"{self.type_kind}:{self.type_name}"

    def describe(self) -> str:
        """One line for people."""
        from omnigraph.lang.schema.steps import DropMode, step_from_json

        try:
            # A diff of two states does not show the drop mode.
            text = step_from_json({"mode": str(DropMode.SOFT), **self.step}).describe()
        except InputError:
            return f"{self.kind} of type {self.type_id}"
        if "mode" not in self.step:
            text = text.removesuffix(f" ({DropMode.SOFT} mode)")
        if "value" not in self.step:
            return text
        return f"{text}, {json.dumps(self.step['value'], ensure_ascii=False)} in existing rows"

    def to_json(self) -> dict[str, Any]:
        """Plain data in a fixed order."""
        ids = {"type_id": self.type_id}
        if self.property_id is not None:
            ids["property_id"] = self.property_id
        return {**self.step, **ids}

    @staticmethod
    @reads_json("schema event")
    def from_json(value: Mapping[str, Any]) -> SchemaEvent:
        """The inverse of ``to_json``."""
        step = {key: value[key] for key in value if key not in ("type_id", "property_id")}
        as_text(step["kind"])
        of_property = value.get("property_id")
        return SchemaEvent(
            step, as_whole(value["type_id"]), None if of_property is None else as_whole(of_property)
        )


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """All metadata of a commit. ``other`` are keys of other releases."""

    writer: str | None = None
    """The kind of write that made it, a value of ``WriterKind``."""
    load: Mapping[str, Any] | None = None
    load_branch: Mapping[str, Any] | None = None
    merge: Mapping[str, Any] | None = None
    reverts: str | None = None
    picks: str | None = None
    group: Group | None = None
    schema_events: tuple[SchemaEvent, ...] = ()
    idempotency_key: str | None = None
    fingerprint: str | None = None
    """Distinguishes the write of an idempotency key from another under the same key."""
    receipt: Mapping[str, Any] | None = None
    """The receipt of the first call under an idempotency key."""
    job: str | None = None
    """The job that made it, see ``job_ids``."""
    completes: tuple[str, ...] = ()
    """The interrupted commits that this recovery completed."""
    rolled_back: str | None = None
    """The interrupted commit that this recovery rolled back."""
    other: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The keys of the row that are set, in a fixed order."""
        content: dict[str, Any] = {}
        for key in _READERS:
            value = getattr(self, key)
            if value is None or value == ():
                continue
            if isinstance(value, Group):
                value = value.to_json()
            elif key == "schema_events":
                value = [event.to_json() for event in value]
            elif key == COMPLETES:
                # A single id is stored as a string, as before groups existed.
                value = list(value) if len(value) > 1 else value[0]
            content[key] = value
        return {**content, **self.other}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> CommitMetadata:
        """The inverse of ``to_json``; ``StorageCorrupt`` for an invalid value."""
        content: dict[str, Any] = {"other": {}}
        for key, raw in value.items():
            if key not in _READERS:
                content["other"][key] = raw
            elif raw is not None:
                try:
                    content[key] = _READERS[key](raw)
                except (KeyError, TypeError, ValueError, AttributeError, InputError) as error:
                    raise StorageCorrupt(
                        f"the key '{key}' in the metadata of a commit cannot be read",
                        hint="restore the graph from a backup, "
                        "or export what another branch still has",
                        details={"key": key},
                    ) from error
        return CommitMetadata(**content)

    @staticmethod
    def of(row: CommitRow) -> CommitMetadata:
        """The metadata of a row of the manifest."""
        return CommitMetadata.from_json(row.extra)


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("not an object")
    return value


_READERS: Mapping[str, Callable[[Any], Any]] = {
    WRITER: as_text,
    LOAD: _object,
    LOAD_BRANCH: _object,
    MERGE: _object,
    REVERTS: as_text,
    PICKS: as_text,
    GROUP: Group.from_json,
    "schema_events": lambda events: tuple(map(SchemaEvent.from_json, events)),
    IDEMPOTENCY_KEY: as_text,
    FINGERPRINT: as_text,
    RECEIPT: _object,
    JOB: as_text,
    COMPLETES: completed_ids,
    ROLLED_BACK: as_text,
}
"""Every key in the order of the row, named as its field, and how its value is read."""


# -- receipts ---------------------------------------------------------------------------------


def count_rows(steps: Iterable[StagedTable]) -> TableCounts:
    """The sum over the steps of a write to one table."""
    staged = tuple(steps)
    return TableCounts(
        sum(step.inserted for step in staged),
        sum(step.updated for step in staged),
        sum(step.deleted for step in staged),
    )


def receipt_of(row: CommitRow) -> Receipt:
    """The receipt of the first call of a commit with an idempotency key."""
    metadata = CommitMetadata.of(row)
    completes = metadata.completes
    first = completes[0] if len(completes) == 1 else row.commit_id
    identity = {"commit_id": first, "version": row.manifest_version}
    try:
        return Receipt.from_json({**(metadata.receipt or {}), **identity})
    except InputError as error:
        raise StorageCorrupt(
            f"the receipt in commit {row.commit_id} cannot be read: {error.message}",
            hint="restore the graph from a backup, or write under another idempotency key",
            details={"commit_id": row.commit_id},
        ) from error


def key_reused(key: str, first: dict[str, Any]) -> IdempotencyKeyReused:
    """The error of a key that belongs to another write."""
    return IdempotencyKeyReused(
        f"the idempotency key '{key}' was used for another write",
        hint="use a new key for every new write",
        details=first,
    )
