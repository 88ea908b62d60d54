"""The reference files of branches, in which Lance writes where a branch was forked."""

from __future__ import annotations

import json
from dataclasses import dataclass

from omnigraph.errors import StorageCorrupt
from omnigraph.storage.objects.graph_paths import is_branch, refused


@dataclass(frozen=True, slots=True)
class BranchReference:
    """Where a branch was forked, and an identity that a later one of its name does not have."""

    parent: str | None
    parent_version: int
    life: str


def parse_reference(text: str, path: str) -> BranchReference:
    """Read a reference file; ``StorageCorrupt`` names ``path`` when it is not one."""
    try:
        stored = json.loads(text)
        mapping = (stored.get("identifier") or {}).get("version_mapping") or [[0, ""]]
        life = str(mapping[-1][1]) or str(stored.get("createAt"))
        parent = stored.get("parentBranch")
        if parent is not None and not is_branch(parent):
            raise refused(parent, f"'{path}'")
        return BranchReference(parent, int(stored["parentVersion"]), life)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        raise StorageCorrupt(f"'{path}' does not describe a branch") from None
