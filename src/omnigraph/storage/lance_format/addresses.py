"""The references of branches, and the addresses of tables, as Lance writes them down.

The version file of a branch names the table that it was forked from by a complete address. In a
graph that was moved or copied it names the former root: it leads nowhere or, worse, to the
original.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass

from omnigraph.errors import InputError, StorageCorrupt
from omnigraph.storage.objects.paths import Root, is_branch, is_copy, parse_root, refused


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


_TABLE = re.compile(r"(.*?)/((?:(?:nodes|edges)/[^/]+|__manifest)(?:/tree/.+)?)", re.DOTALL)


class GraphAddresses:
    """Distinguishes addresses under the root of a graph from those under another root."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._is_here: dict[str, bool] = {root.uri: True}

    def localize(self, address: str, location: str) -> str:
        """The address of a table or branch under this root; unchanged if it is there already.

        ``location`` is that of the table whose file names the address. ``StorageCorrupt`` for an
        address that is not that of a table: Lance would read whatever it finds there.
        """
        root, path = parse_table_address(address, location)
        if root not in self._is_here:
            self._is_here[root] = self._is_same_directory(root)
        if self._is_here[root] and ".." not in address.split("/"):
            return address
        return self._root.path(path)

    def _is_same_directory(self, uri: str) -> bool:
        """A directory has several names when there are links to it or above it."""
        if not self._root.is_local or uri.startswith("s3://"):
            return False
        try:
            return os.path.samefile(uri, self._root.uri)
        except OSError:
            return False


def parse_table_address(address: str, location: str) -> tuple[str, str]:
    """The root and the path of a table in a graph; ``StorageCorrupt`` for any other address."""
    root, path = _split_address(address, location)
    if not is_copy(path) and path != location:
        raise refused(address, f"a version file of '{location}'")
    return root, path


def _split_address(address: str, location: str) -> tuple[str, str]:
    try:
        uri = parse_root(address).uri
    except InputError:
        return "", ""
    if uri.endswith(f"/{location}"):
        return uri.removesuffix(f"/{location}"), location
    root, middle, branch = uri.rpartition(f"/{location}/tree/")
    if middle:
        return root, f"{location}/tree/{branch}"
    match = _TABLE.fullmatch(uri)
    return ("", "") if match is None else (match[1], match[2])
