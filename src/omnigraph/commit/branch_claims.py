"""Claims of loads on the branches that they create for themselves.

``__recovery/<ULID>.branch`` is written before such a branch is created and removed when the load
has ended; the load holds ``claim_lease`` meanwhile. A claim whose lease is free belongs to a load
that died. The claim identifies its branch: by the reference, or, if the load died before it was
recorded, by the version and the time that the claim announced.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass

from omnigraph.commit.names import branch_label, normal_branch
from omnigraph.commit.sidecar import FOLDER
from omnigraph.commit.store import GraphStore
from omnigraph.commit.ulid import is_ulid
from omnigraph.errors import OmniGraphError, StorageCorrupt, StorageMissing
from omnigraph.logs import logger
from omnigraph.storage.objects.paths import is_branch
from omnigraph.storage.tables.inline import BranchInfo

ENDING = ".branch"
# Creating a branch takes milliseconds; a slow store may take longer.
_CREATION_SECONDS = 600

_LOG = logger(__name__)


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

    def to_json(self) -> str:
        """The text of the file."""
        content = {
            "operation_id": self.operation,
            "started_at": self.started_at,
            "branch": self.branch,
            "base_branch": branch_label(self.base_branch),
            "base_version": self.base_version,
            "branch_identity": self.identity,
        }
        return json.dumps(content, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> BranchClaim:
        """The inverse of ``to_json``; ``ValueError`` when it is something else."""
        try:
            content = json.loads(text)
            operation, branch = content["operation_id"], content["branch"]
            identity = content["branch_identity"]
            if not (is_ulid(operation) and is_branch(branch)):
                raise ValueError("invalid names")
            return BranchClaim(
                operation,
                branch,
                normal_branch(str(content["base_branch"])),
                int(content["base_version"]),
                int(content["started_at"]),
                None if identity is None else str(identity),
            )
        except (ValueError, KeyError, TypeError, RecursionError, OmniGraphError) as error:
            raise ValueError("not a claim on a branch") from error

    def is_of(self, made: BranchInfo, identity: str | None) -> bool:
        """Whether an existing branch of that name is the one that the load created."""
        if self.identity is not None:
            return identity == self.identity
        age = made.created_at - self.started_at // 1_000_000
        origin = (made.parent, made.parent_version)
        return origin == (self.base_branch, self.base_version) and 0 <= age <= _CREATION_SECONDS


def write_claim(store: GraphStore, claim: BranchClaim) -> None:
    """Write or replace a claim; it is durable when this returns."""
    store.objects.write(_path(claim.operation), claim.to_json())


def delete_claim(store: GraphStore, claim: BranchClaim) -> None:
    """Remove the claim of a load that has ended."""
    store.objects.delete(_path(claim.operation))


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
    """Every claim, oldest first; an error instead of a damaged one."""
    result: list[BranchClaim | StorageCorrupt] = []
    for name in store.objects.list(FOLDER):
        if name.endswith(ENDING):
            # A load that ends now removes its claim.
            with suppress(StorageMissing):
                result.append(_read(store, f"{FOLDER}/{name}"))
    return result


def _read(store: GraphStore, path: str) -> BranchClaim | StorageCorrupt:
    try:
        return BranchClaim.from_json(store.objects.read(path))
    except (ValueError, StorageCorrupt):
        return StorageCorrupt(
            f"'{path}' is not a valid claim on a branch",
            hint="remove it if no load runs",
            details={"file": path},
        )


def _path(operation: str) -> str:
    return f"{FOLDER}/{operation}{ENDING}"
