"""Branch references and table addresses in the format of Lance.

The version file of a branch names the table that it was forked from by an absolute address. In a
graph that was moved or copied this address has the former root: it is dangling or, worse, refers to
the original.
"""

from __future__ import annotations

import json
import os
import re

from omnigraph.errors import InputError, StorageCorrupt
from omnigraph.records import dataclass
from omnigraph.storage.objects.paths import Root, is_branch, is_copy, parse_root, refused


@dataclass(frozen=True, slots=True)
class BranchReference:
    """The fork point of a branch, and an id that differs from later branches of the same name."""

    parent: str | None
    parent_version: int
    life: str


def parse_reference(text: str, path: str) -> BranchReference:
    """Parse a reference file; ``StorageCorrupt`` with ``path`` if it is invalid."""
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
    """Rewrites addresses under a former root of a graph to its present root."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._is_here: dict[str, bool] = {root.uri: True}

    def localize(self, address: str, location: str) -> str:
        """The address of a table or branch under this root; unchanged if it is under it already.

        ``location`` is the table whose file contains the address. Raises ``StorageCorrupt`` for an
        address that is not a table: Lance would read whatever it finds there.
        """
        root, path = parse_table_address(address, location)
        if root not in self._is_here:
            self._is_here[root] = self._is_same_directory(root)
        if self._is_here[root] and ".." not in address.split("/"):
            return address
        return self._root.path(path)

    def _is_same_directory(self, uri: str) -> bool:
        """Compare by inode: a directory has several paths if links lead to it."""
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
