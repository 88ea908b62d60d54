"""Announcements of running writes in ``__recovery``: staging markers and claims on branches.

``<ULID>.staging`` names the versions that a long write started from and when it started, so that
cleanup keeps its files. Only cleanup reads it: it is not a sidecar, and a write that dies leaves it
behind.

``<ULID>.branch`` is written before a load creates a branch for itself and removed when the load has
ended; the load holds ``claim_lease`` meanwhile. A claim whose lease is free belongs to a load that
died. The claim identifies its branch: by the reference, or, if the load died before it was
recorded, by the version and the time that the claim announced.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field
from datetime import UTC, datetime

from omnigraph.commit.names import branch_label, normal_branch
from omnigraph.commit.sidecar import FOLDER
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.commit.ulid import is_ulid, new_ulid, now_micros
from omnigraph.errors import InputError, OmniGraphError, StorageCorrupt, StorageMissing
from omnigraph.logs import logger
from omnigraph.records import dataclass
from omnigraph.storage.objects.paths import is_branch
from omnigraph.storage.tables.branch_list import BranchInfo

ENDING = ".staging"
_CLAIM_ENDING = ".branch"
# Creating a branch takes milliseconds; a slow store may take longer.
_CREATION_SECONDS = 600

_LOG = logger(__name__)


@contextmanager
def staging_marker(store: GraphStore, branch: str | None, base: Snapshot) -> Iterator[str]:
    """Keep a staging marker while a write stages; yields the operation id."""
    operation = write_staging_marker(store, branch, base)
    try:
        yield operation
    finally:
        delete_staging_marker(store, operation)


def write_staging_marker(store: GraphStore, branch: str | None, base: Snapshot) -> str:
    """Write a staging marker that another process may remove; returns the operation id."""
    operation = new_ulid()
    content = {
        "operation_id": operation,
        "started_at": now_micros(),
        "branch": branch_label(branch),
        "base_branch": branch_label(base.branch),
        "tables": {key: pin.version for key, pin in base.pins.items()},
    }
    try:
        store.objects.write(_path(operation), json.dumps(content, sort_keys=True))
    except OmniGraphError:
        # It may exist already.
        delete_staging_marker(store, operation)
        raise
    return operation


def delete_staging_marker(store: GraphStore, operation: str) -> None:
    """Remove the marker of a write that has ended."""
    # A leftover marker is ignored once it is old enough.
    with suppress(OmniGraphError):
        store.objects.delete(_path(operation))


@dataclass(frozen=True, slots=True)
class Marker:
    """A write that is staging, or died while staging."""

    operation: str
    started: datetime
    branch: str | None
    tables: frozenset[str]
    bases: Mapping[str, int] = field(default_factory=dict)
    """The versions that it started from."""


def markers(store: GraphStore, besides: Collection[str] = ()) -> list[Marker]:
    """Every marker except ``besides``, oldest first; one removed concurrently is skipped."""
    result = []
    for name in store.objects.list(FOLDER):
        if name.endswith(ENDING) and name not in besides:
            with suppress(StorageMissing):
                result.append(_marker(name, store.objects.read(f"{FOLDER}/{name}")))
    return result


def _marker(name: str, text: str) -> Marker:
    try:
        content = json.loads(text)
        started = datetime.fromtimestamp(content["started_at"] / 1_000_000, UTC)
        bases = {str(key): int(version) for key, version in content["tables"].items()}
        branch = normal_branch(str(content["branch"]))
        return Marker(str(content["operation_id"]), started, branch, frozenset(bases), bases)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise StorageCorrupt(
            f"'{FOLDER}/{name}' is not a valid staging marker", hint="remove it if no write runs"
        ) from None


# -- claims on branches ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BranchClaim:
    """A branch that a load creates: from which version of which branch, and since when.

    ``started_at`` is in microseconds; ``identity`` is that of the manifest's branch, once made.
    """

    operation: str
    branch: str
    base_branch: str | None
    base_version: int
    started_at: int
    identity: str | None = None

    def is_of(self, made: BranchInfo, identity: str | None) -> bool:
        """Whether an existing branch of that name is the one that the load created."""
        if self.identity is not None:
            return identity == self.identity
        age = made.created_at - self.started_at // 1_000_000
        origin = (made.parent, made.parent_version)
        return origin == (self.base_branch, self.base_version) and 0 <= age <= _CREATION_SECONDS


def write_claim(store: GraphStore, claim: BranchClaim) -> None:
    """Write or replace a claim; it is durable when this returns."""
    content = {
        "operation_id": claim.operation,
        "started_at": claim.started_at,
        "branch": claim.branch,
        "base_branch": branch_label(claim.base_branch),
        "base_version": claim.base_version,
        "branch_identity": claim.identity,
    }
    path = _path(claim.operation, _CLAIM_ENDING)
    store.objects.write(path, json.dumps(content, sort_keys=True))


def delete_claim(store: GraphStore, claim: BranchClaim) -> None:
    """Remove the claim of a load that has ended."""
    store.objects.delete(_path(claim.operation, _CLAIM_ENDING))


def claims(store: GraphStore) -> list[BranchClaim]:
    """Every claim, oldest first; a damaged one is ignored with a warning."""
    valid = []
    for claim in read_claims(store):
        if isinstance(claim, StorageCorrupt):
            _LOG.warning("%s, and is ignored", claim.message)
        else:
            valid.append(claim)
    return valid


def read_claims(store: GraphStore) -> list[BranchClaim | StorageCorrupt]:
    """Every claim, oldest first; for a damaged one the error."""
    result: list[BranchClaim | StorageCorrupt] = []
    for name in store.objects.list(FOLDER):
        if name.endswith(_CLAIM_ENDING):
            # A load that ends now removes its claim.
            with suppress(StorageMissing):
                result.append(_claim(store, f"{FOLDER}/{name}"))
    return result


def _claim(store: GraphStore, path: str) -> BranchClaim | StorageCorrupt:
    try:
        content = json.loads(store.objects.read(path))
        operation, branch = content["operation_id"], content["branch"]
        identity = content["branch_identity"]
        if is_ulid(operation) and is_branch(branch):
            return BranchClaim(
                operation,
                branch,
                normal_branch(str(content["base_branch"])),
                int(content["base_version"]),
                int(content["started_at"]),
                None if identity is None else str(identity),
            )
    except (ValueError, KeyError, TypeError, RecursionError, InputError, StorageCorrupt):
        pass
    return StorageCorrupt(
        f"'{path}' is not a valid claim on a branch",
        hint="remove it if no load runs",
        details={"file": path},
    )


def _path(operation: str, ending: str = ENDING) -> str:
    return f"{FOLDER}/{operation}{ending}"
