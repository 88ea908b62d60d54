"""Stores numberings and adjacencies as derived files, so that a new process does not compute them.

The file of a table lists its fragments, so it is usable for every later version that still has some
of them; it is rewritten only if much of the table is missing from it. Numbers are valid only with
the numbering that assigned them: a file records a digest of the ids it depends on, and is ignored
unless the ids in memory begin with those.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from omnigraph.lang.fnv import fnv1a_64
from omnigraph.lang.values.numpy_view import numpy_view
from omnigraph.topology.adjacency import Adjacency
from omnigraph.topology.edges import BOTH, IN, OUT, EdgeIndex, StoredAdjacency
from omnigraph.topology.measures import Measures
from omnigraph.topology.nodes import Ids, Numbers

if TYPE_CHECKING:
    from omnigraph.storage.objects.derived import Derived, DerivedFiles
    from omnigraph.storage.tables.types import TableVersion
    from omnigraph.topology.cache import TableCache
    from omnigraph.topology.nodes import NodeIndex

# Below this number of rows, computing is as fast as reading.
_WORTH_IT = 20_000
_MOST_MISSING = 0.1
# The facts of a table with more fragments are not stored: every process would read their names.
_MOST_FRAGMENTS = 1_000
_IDS, _NODES, _EDGES, _EITHER, _FACTS = "ids", "nodes", "edges", "either", "facts"


class Persisted:
    """The derived files of one graph, as the topology uses them."""

    def __init__(self, files: DerivedFiles, *, writable: bool) -> None:
        self._files = files
        self._writable = writable
        self._seen: dict[str, Mapping[str, Any]] = {}
        """The metadata of files read or written by this process."""

    # -- numberings ----------------------------------------------------------------------

    def read_ids(self, location: str) -> Ids:
        """The newest stored numbering, or an empty one."""
        for name in sorted(self._names(_IDS, location), key=_number, reverse=True):
            stored = self._files.read(name)
            if stored is not None:
                return Ids(stored.arrays[_IDS])
        return Ids()

    def _store_ids(self, location: str, ids: Ids) -> None:
        count = len(ids)
        name = f"{_IDS}-{_name(location)}-{count}-{ids_digest(ids, count)}.arrow"
        existing = self._names(_IDS, location)
        if name not in existing or self._files.read(name) is None:
            self._files.write(name, {_IDS: ids.array()}, {})
            for old in existing:
                if old != name:
                    self._files.remove(old)

    # -- nodes ---------------------------------------------------------------------------

    def fill_nodes(self, identity: TableVersion, cache: TableCache, ids: Ids) -> None:
        """Fill the cache of a table with the stored numbers."""
        stored = self._newest(_NODES, identity)
        if stored is not None and _relies_on(stored.about, "ids", ids):
            _fill(cache, stored, {"id": "numbers"})

    def store_nodes(self, identity: TableVersion, index: NodeIndex) -> None:
        """Store the numbers of a table if it is large enough."""
        numberings = {"ids": index.ids}
        if not self._is_worth_it(_NODES, identity, index.cache, numberings):
            return
        self._store_ids(identity.location, index.ids)
        arrays = {
            "numbers": pa.array(index.numbers),
            "row_ids": pa.array(index.cache.row_ids()),
        }
        self._write(_NODES, identity, index.cache, arrays, {"ids": _digested(index.ids)})

    # -- edges ---------------------------------------------------------------------------

    def fill_edges(
        self, identity: TableVersion, cache: TableCache, src: Ids, dst: Ids
    ) -> dict[str, Adjacency]:
        """Fill the cache of a table; returns the stored adjacencies if they are still valid."""
        stored = self._newest(_EDGES, identity)
        if stored is None:
            return {}
        if not (_relies_on(stored.about, "src", src) and _relies_on(stored.about, "dst", dst)):
            return {}
        _fill(cache, stored, {"src": "src", "dst": "dst"})
        if not _has_all_parts(stored, cache):
            return {}
        return {direction: _adjacency(stored, direction) for direction in (OUT, IN)}

    def store_edges(
        self, identity: TableVersion, ends: tuple[str, str], index: EdgeIndex, src: Ids, dst: Ids
    ) -> None:
        """Store the numbers of a table and both adjacencies if it is large enough."""
        if not self._is_worth_it(_EDGES, identity, index.cache, {"src": src, "dst": dst}):
            return
        self._store_ids(ends[0], src)
        self._store_ids(ends[1], dst)
        arrays: dict[str, pa.Array] = {
            "src": pa.array(index.src),
            "dst": pa.array(index.dst),
            "row_ids": pa.array(index.cache.row_ids()),
        }
        for direction in (OUT, IN):
            arrays |= _arrays(index.adjacency(direction), direction)
        about = {"src": _digested(src), "dst": _digested(dst)}
        self._write(_EDGES, identity, index.cache, arrays, about)

    def either(
        self, identity: TableVersion, ends: tuple[str, str], cache: TableCache, src: Ids, dst: Ids
    ) -> StoredAdjacency:
        """The adjacency of a table in either direction, in a file that its first use makes."""
        numberings = {"src": src, "dst": dst}

        def read() -> Adjacency | None:
            stored = self._newest(_EITHER, identity)
            if stored is None or not _has_all_parts(stored, cache):
                return None
            is_valid = all(_relies_on(stored.about, key, ids) for key, ids in numberings.items())
            return _adjacency(stored, BOTH) if is_valid else None

        def write(adjacency: Adjacency) -> None:
            if self._is_worth_it(_EITHER, identity, cache, numberings):
                self._store_ids(ends[0], src)
                self._store_ids(ends[1], dst)
                about = {"src": _digested(src), "dst": _digested(dst)}
                self._write(_EITHER, identity, cache, _arrays(adjacency, BOTH), about)

        return StoredAdjacency(read, write)

    # -- facts ---------------------------------------------------------------------------

    def read_facts(self, location: str) -> Measures:
        """What was measured of a table, for the first plans of a process.

        Only from a local disk: elsewhere a plan is not worth a request.
        """
        if self._files.is_local:
            for name in self._names(_FACTS, location):
                stored = self._files.read(name)
                with suppress(KeyError, TypeError):
                    return Measures() if stored is None else Measures.from_json(stored.about)
        return Measures()

    def store_facts(self, location: str, measures: Measures) -> None:
        """Store what was measured of a table, if it is new."""
        is_worth_it = measures.rows >= _WORTH_IT and measures.fragments <= _MOST_FRAGMENTS
        is_worth_it = is_worth_it and not measures.is_stored
        if self._writable and self._files.is_local and is_worth_it:
            measures.is_stored = True
            self._files.write(f"{_FACTS}-{_name(location)}-0.arrow", {}, measures.to_json())

    # -- files ---------------------------------------------------------------------------

    def _names(self, file_type: str, location: str) -> list[str]:
        prefix = f"{file_type}-{_name(location)}-"
        return [name for name in self._files.list() if name.startswith(prefix)]

    def _newest(self, file_type: str, identity: TableVersion) -> Derived | None:
        """The newest file of the same copy of a table, else of the copy of main."""
        for name in self._newest_first(file_type, identity):
            stored = self._files.read(name)
            if stored is not None:
                self._seen[name] = stored.about
                return stored
        return None

    def _newest_first(self, file_type: str, identity: TableVersion) -> list[str]:
        own = f"-{_name(identity.ref.path)}.arrow"
        names = self._names(file_type, identity.location)
        return sorted(names, key=lambda n: (n.endswith(own), _number(n)), reverse=True)

    def _about(self, file_type: str, identity: TableVersion) -> Mapping[str, Any] | None:
        """The metadata of the newest file; read once."""
        for name in self._newest_first(file_type, identity)[:1]:
            if name in self._seen:
                return self._seen[name]
        stored = self._newest(file_type, identity)
        return None if stored is None else stored.about

    def _is_worth_it(
        self,
        file_type: str,
        identity: TableVersion,
        cache: TableCache,
        numberings: Mapping[str, Ids],
    ) -> bool:
        if not self._writable or cache.rows < _WORTH_IT:
            return False
        about = self._about(file_type, identity)
        if about is None or not all(_relies_on(about, key, ids) for key, ids in numberings.items()):
            return True
        stored = {signature for signature, _ in about["parts"]}
        missing = sum(f.rows for f in cache.fragments if f.signature not in stored)
        return missing > _MOST_MISSING * cache.rows

    def _write(
        self,
        file_type: str,
        identity: TableVersion,
        cache: TableCache,
        arrays: Mapping[str, pa.Array],
        about: Mapping[str, Any],
    ) -> None:
        parts = [(fragment.signature, fragment.rows) for fragment in cache.fragments]
        own = f"-{_name(identity.ref.path)}.arrow"
        old = [n for n in self._names(file_type, identity.location) if n.endswith(own)]
        name = f"{file_type}-{_name(identity.location)}-{identity.version}{own}"
        self._seen[name] = {**about, "parts": parts}
        self._files.write(name, arrays, self._seen[name])
        for stale in old:
            if stale != name:
                self._files.remove(stale)
                self._seen.pop(stale, None)


def _has_all_parts(stored: Derived, cache: TableCache) -> bool:
    """Whether a file was made from exactly the fragments of a table."""
    signatures = [entry.signature for entry in cache.entries]
    return signatures == [part[0] for part in stored.about["parts"]]


def _adjacency(stored: Derived, direction: str) -> Adjacency:
    return Adjacency(
        numpy_view(stored.arrays[f"{direction}_offsets"]),
        numpy_view(stored.arrays[f"{direction}_targets"]),
    )


def _arrays(adjacency: Adjacency, direction: str) -> dict[str, pa.Array]:
    return {
        f"{direction}_offsets": pa.array(adjacency.offsets),
        f"{direction}_targets": pa.array(adjacency.targets),
    }


def unused_files(names: Iterable[str], locations: Iterable[str], paths: Iterable[str]) -> list[str]:
    """The files of tables, or of branches of tables, that no longer exist."""
    tables, copies = {_name(location) for location in locations}, {_name(path) for path in paths}
    unused = []
    for name in names:
        file_type, _, rest = name.removesuffix(".arrow").partition("-")
        table, _, rest = rest.partition("-")
        if file_type not in (_IDS, _NODES, _EDGES, _EITHER, _FACTS):
            continue
        is_shared = file_type in (_IDS, _FACTS)
        if table not in tables or not (is_shared or rest.rpartition("-")[2] in copies):
            unused.append(name)
    return unused


def _fill(cache: TableCache, stored: Derived, columns: Mapping[str, str]) -> None:
    """Copy the stored arrays to the cached fragments that the table still has."""
    entries = {entry.signature: entry for entry in cache.entries}
    rows = numpy_view(stored.arrays["row_ids"])
    numbers: dict[str, Numbers] = {c: numpy_view(stored.arrays[a]) for c, a in columns.items()}
    start = 0
    for signature, count in stored.about["parts"]:
        entry = entries.get(signature)
        if entry is not None:
            entry.row_ids = rows[start : start + count]
            for column, array in numbers.items():
                entry.numbers[column] = array[start : start + count]
        start += count


def _relies_on(about: Mapping[str, Any], key: str, ids: Ids) -> bool:
    count, digest = about[key]
    return bool(count <= len(ids) and ids_digest(ids, count) == digest)


def _digested(ids: Ids) -> Sequence[Any]:
    count = len(ids)
    return count, ids_digest(ids, count)


def ids_digest(ids: Ids, count: int) -> str:
    """A digest of the first ids of a numbering."""
    array = ids.array()
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + count + 1]
    digest = hashlib.blake2b(np.diff(ends).tobytes(), digest_size=8)
    if count and data is not None:
        digest.update(memoryview(data)[ends[0] : ends[-1]])
    return digest.hexdigest()


def _name(text: str) -> str:
    return f"{fnv1a_64(text):016x}"


def _number(name: str) -> int:
    """The third section of a name: a count or a version."""
    section = name.split("-")[2]
    return int(section) if section.isdigit() else -1
