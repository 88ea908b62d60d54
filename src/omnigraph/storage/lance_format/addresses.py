"""The addresses of tables in version files, compared with the root of the graph.

The version file of a branch names the table that it was forked from by a complete address. In a
graph that was moved or copied it names the former root: it leads nowhere or, worse, to the
original.
"""

from __future__ import annotations

import os
import re

from omnigraph.errors import InputError
from omnigraph.storage.objects.graph_paths import is_copy, refused
from omnigraph.storage.objects.roots import Root, parse_root

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
        if self._names_root(root) and ".." not in address.split("/"):
            return address
        return self._root.path(path)

    def _names_root(self, uri: str) -> bool:
        if uri not in self._is_here:
            self._is_here[uri] = self._is_same_directory(uri)
        return self._is_here[uri]

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
    split = _split_address(address, location)
    if split is None or not (is_copy(split[1]) or split[1] == location):
        raise refused(address, f"a version file of '{location}'")
    return split


def _split_address(address: str, location: str) -> tuple[str, str] | None:
    try:
        uri = parse_root(address).uri
    except InputError:
        return None
    if uri.endswith(f"/{location}"):
        return uri.removesuffix(f"/{location}"), location
    root, middle, branch = uri.rpartition(f"/{location}/tree/")
    if middle:
        return root, f"{location}/tree/{branch}"
    match = _TABLE.fullmatch(uri)
    return None if match is None else (match[1], match[2])
