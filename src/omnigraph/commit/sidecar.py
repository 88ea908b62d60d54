"""Sidecars: the plan of a write, recorded before it moves the first table.

One JSON file per operation, ``__recovery/<operation id>.json``, in the reference's format. Keys
that only we write (``transactions``, ``leased``, ``intent``, ``consulted``, ``if_commit``,
``branch_identity``, ``schemas``, ``hard_drops``, ``undoing``) are left out when empty;
other readers of the format ignore them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from omnigraph.errors import FormatRefused, StorageCorrupt, StorageMissing
from omnigraph.storage.objects.paths import escaped, is_branch, is_location
from omnigraph.storage.objects.store import ObjectStore

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

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
    """A table that the writer removes from the manifest."""

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

    ``started_at`` is in microseconds; ``leased`` says that the writer holds our leases: once they
    are free, it has finished or died; ``intent`` holds the extra keys of the planned commit. The
    rest are conditions for completing the write later: ``consulted`` are the table versions that
    its validation read, ``if_commit`` the commit that must be the newest, ``branch_identity``
    distinguishes its branch from a later one of that name.
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
    """The schema rows of a schema apply, as data."""
    undoing: bool = False
    """Whether the writer gave up: recovery finishes its undo, without a commit."""
    hard_drops: tuple[HardDrop, ...] = ()
    """What a schema apply removes for good; see ``commit.removal``."""

    def as_undoing(self) -> Sidecar:
        """The same plan, abandoned.

        No version is the planned one now, so that a program without ``undoing`` rolls the
        tables back, too.
        """
        tables = tuple(replace(pin, post_commit_pin=pin.expected_version) for pin in self.tables)
        return replace(self, tables=tables, undoing=True)

    def to_json(self) -> str:
        """The text of the file: keys in the reference's order, indented by two."""
        content = {"schema_version": self.schema_version, **_content(self)}
        return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str, name: str) -> Sidecar:
        """Read the text of the file ``name``, which is only used to say what is wrong.

        Raises ``FormatRefused`` for a version that is newer than ours and ``StorageCorrupt`` for
        anything that is not a sidecar.
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
        # Checked first: a newer format is not a damaged file.
        if version > SIDECAR_VERSION:
            raise FormatRefused(
                f"the recovery file '{name}' has version {version}, "
                f"this program supports versions up to {SIDECAR_VERSION}",
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
        # It is deleted by its operation id, so it would stay for ever.
        if sidecar.operation_id != operation_id:
            raise _corrupt(name, f"it is about operation '{sidecar.operation_id}'")
        return sidecar

    def exists(self, operation_id: str) -> bool:
        """Whether a sidecar is still there."""
        return self._objects.exists(_path(operation_id))

    def delete(self, operation_id: str) -> None:
        """Remove a sidecar, if it exists."""
        self._objects.delete(_path(operation_id))

    def load_all(self) -> list[Sidecar]:
        """Every sidecar, oldest first, except those that are deleted meanwhile."""
        sidecars = map(self.read, self.list())
        return [sidecar for sidecar in sidecars if sidecar is not None]

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


def _content(record: DataclassInstance) -> dict[str, Any]:
    """The keys of a record in the order of its fields; optional ones only where they are set."""
    content: dict[str, Any] = {}
    for spec in fields(record):
        value = getattr(record, spec.name)
        is_required = spec.default is MISSING and spec.default_factory is MISSING
        if is_required or not (value is None or value is False or value in ((), {})):
            content[spec.name] = _plain(value)
    return content


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    if is_dataclass(value) and not isinstance(value, type):
        return _content(value)
    return dict(value) if isinstance(value, Mapping) else value


# -- reading ----------------------------------------------------------------------------------


def _sidecar(content: _Fields, version: int) -> Sidecar:
    kind = content.text("writer_kind")
    if kind not in {writer.value for writer in WriterKind}:
        raise ValueError(f"unknown writer kind '{kind}'")
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
        value = self._value.get(key)
        if not isinstance(value, str):
            raise self._wrong(key, "a text")
        return value

    def optional_text(self, key: str) -> str | None:
        return None if self._value.get(key) is None else self.text(key)

    def branch(self, key: str) -> str | None:
        value = self.optional_text(key)
        if value is not None and not is_branch(value):
            raise ValueError(f"{self._where} has an invalid branch in '{key}': {escaped(value)}")
        return value

    def location(self, key: str) -> str:
        value = self.text(key)
        if not is_location(value):
            raise ValueError(f"{self._where} has an invalid path in '{key}': {escaped(value)}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._value.get(key, [])
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            raise self._wrong(key, "a list of texts")
        return tuple(value)

    def count(self, key: str) -> int:
        value = self._value.get(key)
        # True and False are integers to Python, not to JSON.
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(key, "a whole number")
        if not 0 <= value < _VERSION_LIMIT:
            raise self._wrong(key, "a version number")
        return value

    def optional_count(self, key: str) -> int | None:
        return None if self._value.get(key) is None else self.count(key)

    def flag(self, key: str) -> bool:
        value = self._value.get(key, False)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def object(self, key: str) -> dict[str, Any]:
        value = self._value.get(key, {})
        if not isinstance(value, dict):
            raise self._wrong(key, "an object")
        return value

    def versions(self, key: str) -> dict[str, int]:
        versions = _Fields(f"'{key}'", self.object(key))
        return {name: versions.count(name) for name in versions._value}

    def entries(self, key: str, *, required: bool = False) -> list[_Fields]:
        value = self._value.get(key, None if required else [])
        if not isinstance(value, list):
            raise self._wrong(key, "a list")
        return [_Fields(f"'{key}' entry {at}", entry) for at, entry in enumerate(value, start=1)]

    def _wrong(self, key: str, wanted: str) -> ValueError:
        if key not in self._value:
            return ValueError(f"{self._where} has no '{key}'")
        return ValueError(f"{self._where} has a '{key}' that is not {wanted}")
