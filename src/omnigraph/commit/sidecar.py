"""Sidecars: what a writer was about to do, written down before it moves the first table.

One JSON file per operation, ``__recovery/<operation id>.json``, in the reference's format. Keys
that only we write (``transactions``, ``leased``, ``intent``, ``consulted``, ``if_commit``,
``branch_identity``, ``schemas``, ``hard_drops``, ``undoing``) are left out when they say nothing;
other readers of the format ignore them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from omnigraph.errors import FormatRefused, StorageCorrupt, StorageMissing
from omnigraph.storage.objects.graph_paths import escaped, is_branch, is_location
from omnigraph.storage.objects.store import ObjectStore

SIDECAR_VERSION = 2
FOLDER = "__recovery"
_SUFFIX = ".json"
_VERSION_LIMIT = 1 << 64


class WriterKind(StrEnum):
    """Who wrote a sidecar."""

    MUTATION = "Mutation"
    LOAD = "Load"
    SCHEMA_APPLY = "SchemaApply"
    BRANCH_MERGE = "BranchMerge"
    ENSURE_INDICES = "EnsureIndices"
    OPTIMIZE = "Optimize"


@dataclass(frozen=True, slots=True)
class SidecarPin:
    """One table that the writer moves.

    ``table_path`` is its full address; ``table_branch`` is the branch on which the commits land;
    ``transactions`` are the ids of the planned Lance transactions, in the order they are made.
    """

    table_key: str
    table_path: str
    expected_version: int
    post_commit_pin: int
    confirmed_version: int | None = None
    table_branch: str | None = None
    transactions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Registration:
    """A table that the writer adds to the manifest; its path is relative to the root."""

    table_key: str
    table_path: str
    table_branch: str | None = None


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A table that the writer takes out of the manifest."""

    table_key: str
    tombstone_version: int


@dataclass(frozen=True, slots=True)
class HardDrop:
    """A table whose versions up to one hold data that is removed once the writer has published.

    The path is relative to the root.
    """

    table_key: str
    table_path: str
    through_version: int


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The plan of one operation.

    ``started_at`` is in microseconds; ``leased`` says that the writer holds our leases, so that
    whoever gets them knows it to be finished or dead; ``intent`` holds the extra keys of the
    commit that was to be published. The rest are conditions on which the writer may be finished
    by others: ``consulted`` are the versions of tables that it judged by, ``if_commit`` the commit
    that has to be the newest, ``branch_identity`` tells its branch from a later one of that name.
    """

    operation_id: str
    started_at: str
    branch: str | None
    actor_id: str | None
    writer_kind: WriterKind
    tables: tuple[SidecarPin, ...]
    merge_source_commit_id: str | None = None
    additional_registrations: tuple[Registration, ...] = ()
    tombstones: tuple[Tombstone, ...] = ()
    schema_version: int = SIDECAR_VERSION
    leased: bool = False
    intent: Mapping[str, Any] = field(default_factory=dict)
    consulted: Mapping[str, int] = field(default_factory=dict)
    if_commit: str | None = None
    branch_identity: str | None = None
    schemas: tuple[Mapping[str, Any], ...] = ()
    """The rows of a schema apply that say which schema the graph has, as data."""
    hard_drops: tuple[HardDrop, ...] = ()
    """What a schema apply removes for good; see ``commit.removal``."""
    undoing: bool = False
    """Whether the writer gave up while it lived: whoever finds this finishes the undo, and nobody
    is owed a commit."""

    def as_undoing(self) -> Sidecar:
        """The same plan, given up.

        No version counts as the planned one any more, so that a program that does not know
        ``undoing`` rolls the tables back too.
        """
        tables = tuple(replace(pin, post_commit_pin=pin.expected_version) for pin in self.tables)
        return replace(self, tables=tables, undoing=True)

    def to_json(self) -> str:
        """The text of the file: keys in the reference's order, indented by two."""
        content: dict[str, Any] = {
            "schema_version": self.schema_version,
            "operation_id": self.operation_id,
            "started_at": self.started_at,
            "branch": self.branch,
            "actor_id": self.actor_id,
            "writer_kind": self.writer_kind.value,
            "tables": [_pin_content(pin) for pin in self.tables],
            **_said(
                merge_source_commit_id=self.merge_source_commit_id,
                additional_registrations=[
                    {
                        "table_key": added.table_key,
                        "table_path": added.table_path,
                        **_said(table_branch=added.table_branch),
                    }
                    for added in self.additional_registrations
                ],
                tombstones=[
                    {"table_key": gone.table_key, "tombstone_version": gone.tombstone_version}
                    for gone in self.tombstones
                ],
                leased=self.leased or None,
                intent=dict(self.intent),
                consulted=dict(self.consulted),
                if_commit=self.if_commit,
                branch_identity=self.branch_identity,
                schemas=[dict(row) for row in self.schemas],
                undoing=self.undoing or None,
                hard_drops=[
                    {
                        "table_key": drop.table_key,
                        "table_path": drop.table_path,
                        "through_version": drop.through_version,
                    }
                    for drop in self.hard_drops
                ],
            ),
        }
        return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str, name: str) -> Sidecar:
        """Read the text of the file ``name``, which is only used to say what is wrong.

        Raises ``FormatRefused`` for a version that is newer than ours and ``StorageCorrupt`` for
        anything that is no sidecar.
        """
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise _corrupt(name, "it is not valid JSON") from None
        try:
            content = _Fields("it", value)
            version = content.count("schema_version")
        except ValueError as error:
            raise _corrupt(name, str(error)) from None
        # Before anything else is looked at: a newer shape is not a broken one.
        if version > SIDECAR_VERSION:
            raise FormatRefused(
                f"the recovery file '{name}' has version {version}, "
                f"this program knows versions up to {SIDECAR_VERSION}",
                hint="open the graph with the newer release that wrote the file, or upgrade; "
                "the file is kept, and the graph can be opened read-only meanwhile",
                details={"file": name, "found": version, "supported": SIDECAR_VERSION},
            )
        try:
            return _sidecar(content, version)
        except ValueError as error:
            raise _corrupt(name, str(error)) from None


class SidecarStore:
    """The sidecars of one graph. Faults of the store are raised; the callers decide."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def write(self, sidecar: Sidecar) -> None:
        """Write or replace a sidecar; it is durable when this returns."""
        self._objects.write(_path(sidecar.operation_id), sidecar.to_json())

    def read(self, operation_id: str) -> Sidecar | None:
        """One sidecar; ``None`` when it is gone."""
        path = _path(operation_id)
        name = self._objects.root.path(path)
        try:
            text = self._objects.read(path)
        except StorageMissing:
            return None
        except StorageCorrupt:
            raise _corrupt(name, "it is not UTF-8 text") from None
        sidecar = Sidecar.from_json(text, name)
        # Who handles a sidecar deletes it by its operation id: it would never go away.
        if sidecar.operation_id != operation_id:
            raise _corrupt(name, f"it is about operation '{sidecar.operation_id}'")
        return sidecar

    def exists(self, operation_id: str) -> bool:
        """Whether a sidecar is still there."""
        return self._objects.exists(_path(operation_id))

    def delete(self, operation_id: str) -> None:
        """Remove a sidecar; one that is gone is fine."""
        self._objects.delete(_path(operation_id))

    def load_all(self) -> list[Sidecar]:
        """Every sidecar, oldest first, without those that vanish meanwhile."""
        found = (self.read(operation_id) for operation_id in self.list())
        return [sidecar for sidecar in found if sidecar is not None]

    def list(self) -> list[str]:
        """The operation ids of the sidecars in the order of their file names, oldest first."""
        names = self._objects.list(FOLDER)
        return [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]


def _path(operation_id: str) -> str:
    return f"{FOLDER}/{operation_id}{_SUFFIX}"


def _corrupt(name: str, reason: str) -> StorageCorrupt:
    return StorageCorrupt(
        f"the recovery file '{name}' cannot be read: {reason}",
        hint="restore the file; or, once you know that no table it names has changes that are "
        "not published, remove it. The graph can be opened read-only meanwhile",
        details={"file": name, "reason": reason},
    )


# -- writing ----------------------------------------------------------------------------------


def _said(**keys: Any) -> dict[str, Any]:
    """The keys that hold something, in their order: no ``None``, no empty list or object."""
    return {
        key: value for key, value in keys.items() if value is not None and value not in ([], {})
    }


def _pin_content(pin: SidecarPin) -> dict[str, Any]:
    return {
        "table_key": pin.table_key,
        "table_path": pin.table_path,
        "expected_version": pin.expected_version,
        "post_commit_pin": pin.post_commit_pin,
        **_said(
            confirmed_version=pin.confirmed_version,
            table_branch=pin.table_branch,
            transactions=list(pin.transactions),
        ),
    }


# -- reading ----------------------------------------------------------------------------------


def _sidecar(content: _Fields, version: int) -> Sidecar:
    kind = content.text("writer_kind")
    if kind not in {known.value for known in WriterKind}:
        raise ValueError(f"'{kind}' is no kind of writer")
    return Sidecar(
        operation_id=content.text("operation_id"),
        started_at=content.text("started_at"),
        branch=content.branch("branch"),
        actor_id=content.optional_text("actor_id"),
        writer_kind=WriterKind(kind),
        tables=tuple(_pin(entry) for entry in content.entries("tables", required=True)),
        merge_source_commit_id=content.optional_text("merge_source_commit_id"),
        additional_registrations=tuple(
            Registration(
                entry.text("table_key"),
                entry.location("table_path"),
                entry.branch("table_branch"),
            )
            for entry in content.entries("additional_registrations")
        ),
        tombstones=tuple(
            Tombstone(entry.text("table_key"), entry.count("tombstone_version"))
            for entry in content.entries("tombstones")
        ),
        schema_version=version,
        leased=content.flag("leased"),
        intent=content.object("intent"),
        consulted=content.versions("consulted"),
        if_commit=content.optional_text("if_commit"),
        branch_identity=content.optional_text("branch_identity"),
        schemas=tuple(_schema(entry) for entry in content.entries("schemas")),
        undoing=content.flag("undoing"),
        hard_drops=tuple(
            HardDrop(
                entry.text("table_key"),
                entry.location("table_path"),
                entry.count("through_version"),
            )
            for entry in content.entries("hard_drops")
        ),
    )


def _pin(entry: _Fields) -> SidecarPin:
    return SidecarPin(
        table_key=entry.text("table_key"),
        table_path=entry.text("table_path"),
        expected_version=entry.count("expected_version"),
        post_commit_pin=entry.count("post_commit_pin"),
        confirmed_version=entry.optional_count("confirmed_version"),
        table_branch=entry.branch("table_branch"),
        transactions=entry.texts("transactions"),
    )


def _schema(entry: _Fields) -> dict[str, Any]:
    return {
        "version": entry.count("version"),
        "hash": entry.text("hash"),
        "source": entry.text("source"),
        "identity": entry.object("identity"),
    }


class _Fields:
    """A JSON object read key by key; ``ValueError`` says which key is missing or wrong."""

    def __init__(self, where: str, value: object) -> None:
        if not isinstance(value, dict):
            raise ValueError(f"{where} is not an object")
        self._where = where
        self._value: dict[str, Any] = value

    def text(self, key: str) -> str:
        found = self._value.get(key)
        if not isinstance(found, str):
            raise self._wrong(key, "a text")
        return found

    def optional_text(self, key: str) -> str | None:
        return None if self._value.get(key) is None else self.text(key)

    def branch(self, key: str) -> str | None:
        found = self.optional_text(key)
        if found is not None and not is_branch(found):
            raise ValueError(f"{self._where} has an invalid branch in '{key}': {escaped(found)}")
        return found

    def location(self, key: str) -> str:
        found = self.text(key)
        if not is_location(found):
            raise ValueError(f"{self._where} has an invalid path in '{key}': {escaped(found)}")
        return found

    def texts(self, key: str) -> tuple[str, ...]:
        found = self._value.get(key, [])
        if not isinstance(found, list) or not all(isinstance(entry, str) for entry in found):
            raise self._wrong(key, "a list of texts")
        return tuple(found)

    def count(self, key: str) -> int:
        found = self._value.get(key)
        # True and False are integers to Python, not to JSON.
        if not isinstance(found, int) or isinstance(found, bool):
            raise self._wrong(key, "a whole number")
        if not 0 <= found < _VERSION_LIMIT:
            raise self._wrong(key, "a version number")
        return found

    def optional_count(self, key: str) -> int | None:
        return None if self._value.get(key) is None else self.count(key)

    def flag(self, key: str) -> bool:
        found = self._value.get(key, False)
        if not isinstance(found, bool):
            raise self._wrong(key, "true or false")
        return found

    def object(self, key: str) -> dict[str, Any]:
        found = self._value.get(key, {})
        if not isinstance(found, dict):
            raise self._wrong(key, "an object")
        return found

    def versions(self, key: str) -> dict[str, int]:
        found = _Fields(f"'{key}'", self.object(key))
        return {name: found.count(name) for name in found._value}

    def entries(self, key: str, *, required: bool = False) -> list[_Fields]:
        found = self._value.get(key, None if required else [])
        if not isinstance(found, list):
            raise self._wrong(key, "a list")
        return [_Fields(f"'{key}' entry {at}", entry) for at, entry in enumerate(found, start=1)]

    def _wrong(self, key: str, wanted: str) -> ValueError:
        if key not in self._value:
            return ValueError(f"{self._where} has no '{key}'")
        return ValueError(f"{self._where} has a '{key}' that is not {wanted}")
