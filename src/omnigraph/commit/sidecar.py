"""Sidecars: the plan of a write, recorded before it moves the first table.

One JSON file per operation, ``__recovery/<operation id>.json``, in the reference's format. Keys
that only we write (``transactions``, ``leased``, ``intent``, ``consulted``, ``if_commit``,
``branch_identity``, ``schemas``, ``hard_drops``, ``undoing``, ``members``, ``pins_only``) are left
out when empty; other readers of the format ignore them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass, replace
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

from omnigraph.commit.rows import WriterKind
from omnigraph.errors import FormatRefused, StorageCorrupt, StorageMissing
from omnigraph.records import dataclass
from omnigraph.storage.objects.paths import escaped, is_branch, is_location
from omnigraph.storage.objects.store import ObjectStore

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SIDECAR_VERSION = 2
FOLDER = "__recovery"
_SUFFIX = ".json"
_VERSION_LIMIT = 1 << 64

BranchName = Annotated[str, (is_branch, "branch")]
Location = Annotated[str, (is_location, "path")]
"""A path relative to the root."""


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
    table_branch: BranchName | None = None
    transactions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Registration:
    """A table that the writer adds to the manifest."""

    table_key: str
    table_path: Location
    table_branch: BranchName | None = None


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A table that the writer removes from the manifest."""

    table_key: str
    tombstone_version: int


@dataclass(frozen=True, slots=True)
class HardDrop:
    """A table whose versions up to one hold data that is removed once the writer has published."""

    table_key: str
    table_path: Location
    through_version: int


@dataclass(frozen=True, slots=True)
class RecordedSchema:
    """A schema row of the manifest that a schema apply publishes."""

    version: int
    hash: str
    source: str
    identity: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SidecarMember:
    """One commit of a group: its id, its actor, the extra keys of its metadata."""

    commit_id: str
    actor_id: str | None = None
    intent: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The plan of one operation.

    ``started_at`` is in microseconds. ``leased`` means that the writer holds our leases: once they
    are free, it has finished or died. ``intent`` has the extra keys of the planned commit. The rest
    are conditions for completing the write later: ``consulted`` are the table versions that its
    validation read, ``if_commit`` the commit that must be the newest, ``branch_identity``
    distinguishes its branch from a later one of that name.
    """

    operation_id: str
    started_at: str
    branch: BranchName | None
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
    schemas: tuple[RecordedSchema, ...] = ()
    undoing: bool = False
    """Whether the writer gave up: recovery finishes its undo, without a commit."""
    hard_drops: tuple[HardDrop, ...] = ()
    """What a schema apply removes permanently; see ``commit.removal``."""
    members: tuple[SidecarMember, ...] = ()
    """The commits of a group, in order; the operation is named after the last."""
    pins_only: bool = False
    """Whether the writer publishes without a commit, because it leaves all rows as they are."""

    @property
    def ends_silently(self) -> bool:
        """Whether its recovery makes no commit either."""
        return self.undoing or self.pins_only

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
        """Parse the text of the file ``name``, which is only used in errors.

        Raises ``FormatRefused`` for a version that is newer than ours and ``StorageCorrupt`` for
        anything that is not a sidecar.
        """
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise _corrupt(name, "it is not valid JSON") from None
        try:
            if not isinstance(value, dict):
                raise ValueError("it is not an object")
            version = _value(int, "it", "schema_version", value)
            # Checked first: a newer format is not a damaged file.
            if version > SIDECAR_VERSION:
                raise FormatRefused(
                    f"the recovery file '{name}' has version {version}, "
                    f"this program supports versions up to {SIDECAR_VERSION}",
                    hint="open the graph with the newer release that wrote the file, or upgrade; "
                    "the file is kept, and the graph can be opened read-only meanwhile",
                    details={"file": name, "found": version, "supported": SIDECAR_VERSION},
                )
            sidecar: Sidecar = _record(cls, "it", value)
            return sidecar
        except ValueError as error:
            raise _corrupt(name, str(error)) from None


class SidecarStore:
    """The sidecars of one graph. Faults of the store are raised; the callers decide."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def write(self, sidecar: Sidecar) -> None:
        """Write or replace a sidecar; it is durable when this returns."""
        self._objects.write(sidecar_path(sidecar.operation_id), sidecar.to_json())

    def read(self, operation_id: str) -> Sidecar | None:
        """One sidecar; ``None`` when it is gone."""
        path = sidecar_path(operation_id)
        name = self._objects.root.path(path)
        try:
            text = self._objects.read(path)
        except StorageMissing:
            return None
        except StorageCorrupt:
            raise _corrupt(name, "it is not UTF-8 text") from None
        sidecar = Sidecar.from_json(text, name)
        # It is deleted by operation id, so it would remain forever.
        if sidecar.operation_id != operation_id:
            raise _corrupt(name, f"it is about operation '{sidecar.operation_id}'")
        return sidecar

    def exists(self, operation_id: str) -> bool:
        """Whether a sidecar still exists."""
        return self._objects.exists(sidecar_path(operation_id))

    def delete(self, operation_id: str, *, synced: bool = True) -> None:
        """Remove a sidecar, if it exists."""
        self._objects.delete(sidecar_path(operation_id), synced=synced)

    def load_all(self) -> list[Sidecar]:
        """Every sidecar, oldest first, except those that are deleted meanwhile."""
        sidecars = map(self.read, self.list())
        return [sidecar for sidecar in sidecars if sidecar is not None]

    def list(self) -> list[str]:
        """The operation ids of the sidecars in the order of their file names, oldest first."""
        names = self._objects.list(FOLDER)
        return [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]


def sidecar_path(operation_id: str) -> str:
    return f"{FOLDER}/{operation_id}{_SUFFIX}"


def _corrupt(name: str, reason: str) -> StorageCorrupt:
    return StorageCorrupt(
        f"the recovery file '{name}' cannot be read: {reason}",
        hint="restore the file; or, once you know that no table it names has changes that are "
        "not published, remove it. The graph can be opened read-only meanwhile",
        details={"file": name, "reason": reason},
    )


# -- JSON -------------------------------------------------------------------------------------


def _is_required(spec: Field[Any]) -> bool:
    return spec.default is MISSING and spec.default_factory is MISSING


def _content(record: DataclassInstance) -> dict[str, Any]:
    """The keys of a record in the order of its fields; optional ones only where they are set."""
    content: dict[str, Any] = {}
    for spec in fields(record):
        value = getattr(record, spec.name)
        if _is_required(spec) or not (value is None or value is False or value in ((), {})):
            content[spec.name] = _plain(value)
    return content


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    if is_dataclass(value) and not isinstance(value, type):
        return _content(value)
    return dict(value) if isinstance(value, Mapping) else value


def _record(kind: type[Any], where: str, value: object) -> Any:
    """The inverse of ``_content``; ``ValueError`` says which key is missing or wrong."""
    if not isinstance(value, dict):
        raise ValueError(f"{where} is not an object")
    hints = get_type_hints(kind, include_extras=True)
    content = {
        spec.name: _value(hints[spec.name], where, spec.name, value)
        for spec in fields(kind)
        if spec.name in value or _is_required(spec)
    }
    return kind(**content)


def _value(hint: Any, where: str, key: str, content: Mapping[str, Any]) -> Any:
    """The value of a key, which has to be what the annotation of its field says."""
    origin, arguments = get_origin(hint), get_args(hint)
    value: Any = content.get(key)
    if origin in (Union, UnionType):
        return None if value is None else _value(arguments[0], where, key, content)
    if origin is Annotated:
        text = _value(str, where, key, content)
        is_valid, what = arguments[1]
        if not is_valid(text):
            raise ValueError(f"{where} has an invalid {what} in '{key}': {escaped(text)}")
        return text
    if hint is WriterKind:
        kind = _value(str, where, key, content)
        if kind not in {writer.value for writer in WriterKind}:
            raise ValueError(f"unknown writer kind '{kind}'")
        return WriterKind(kind)
    if key not in content:
        raise ValueError(f"{where} has no '{key}'")
    json_type, wanted = _JSON_TYPES[hint if hint == tuple[str, ...] else origin or hint]
    # Compared exactly: True and False are integers to Python, not to JSON.
    if type(value) is not json_type or (
        hint == tuple[str, ...] and not all(isinstance(entry, str) for entry in value)
    ):
        raise ValueError(f"{where} has a '{key}' that is not {wanted}")
    if hint is int and not 0 <= value < _VERSION_LIMIT:
        raise ValueError(f"{where} has a '{key}' that is not a version number")
    if hint == Mapping[str, int]:
        return {name: _value(int, f"'{key}'", name, value) for name in value}
    if hint == tuple[str, ...]:
        return tuple(value)
    if origin is tuple:
        entries = enumerate(value, start=1)
        return tuple(_record(arguments[0], f"'{key}' entry {at}", entry) for at, entry in entries)
    return value


_JSON_TYPES: Mapping[Any, tuple[Any, str]] = {
    str: (str, "a text"),
    int: (int, "a whole number"),
    bool: (bool, "true or false"),
    tuple: (list, "a list"),
    tuple[str, ...]: (list, "a list of texts"),
    Mapping: (dict, "an object"),
}
