"""What a new process need not compute again: numberings and numbered tables as derived files.

A file of a table names its parts, so it is of use for every later version that still has some of
them; it is written anew only when much of the table is not in it. Numbers mean something only
with the numbering they were made by: a file says by a digest which ids it relies on, and is left
alone when the ids in memory do not begin with those.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from omnigraph.lang.fnv import fnv1a_64
from omnigraph.topology.adjacency import Adjacency
from omnigraph.topology.edges import IN, OUT, EdgeIndex
from omnigraph.topology.ids import Ids, Numbers

if TYPE_CHECKING:
    from omnigraph.storage.objects.derived import Derived, DerivedFiles
    from omnigraph.storage.tables.types import TableVersion
    from omnigraph.topology.held import HeldTable
    from omnigraph.topology.nodes import NodeIndex

# Below this, computing is as fast as reading.
_WORTH_IT = 20_000
_MOST_MISSING = 0.1
_IDS, _NODES, _EDGES = "ids", "nodes", "edges"


class Persisted:
    """The derived files of one graph, as the topology uses them."""

    def __init__(self, files: DerivedFiles, *, writable: bool) -> None:
        self._files = files
        self._writable = writable
        self._seen: dict[str, Mapping[str, Any]] = {}
        """What the files say that were read or written here: enough to judge if they still do."""

    # -- numberings ----------------------------------------------------------------------

    def read_ids(self, location: str) -> Ids:
        """The numbering that was stored last, or an empty one."""
        prefix = f"{_IDS}-{_name(location)}-"
        names = [name for name in self._files.list() if name.startswith(prefix)]
        for name in sorted(names, key=_number, reverse=True):
            found = self._files.read(name)
            if found is not None:
                return Ids(found.arrays[_IDS])
        return Ids()

    def _keep_ids(self, location: str, ids: Ids) -> None:
        count = len(ids)
        name = f"{_IDS}-{_name(location)}-{count}-{ids_digest(ids, count)}.arrow"
        known = [n for n in self._files.list() if n.startswith(f"{_IDS}-{_name(location)}-")]
        if name not in known or self._files.read(name) is None:
            self._files.write(name, {_IDS: ids.array()}, {})
            for old in known:
                if old != name:
                    self._files.remove(old)

    # -- nodes ---------------------------------------------------------------------------

    def fill_nodes(self, identity: TableVersion, held: HeldTable, ids: Ids) -> None:
        """Give the parts of a table the numbers that are stored."""
        found = self._newest(_NODES, identity)
        if found is not None and _relies_on(found.about, "ids", ids):
            _fill(held, found, {"id": "numbers"})

    def keep_nodes(self, identity: TableVersion, index: NodeIndex) -> None:
        """Store the numbers of a table if that is worth it."""
        numberings = {"ids": index.ids}
        if not self._is_worth_it(_NODES, identity, index.held, numberings):
            return
        self._keep_ids(identity.location, index.ids)
        arrays = {
            "numbers": pa.array(index.numbers),
            "row_ids": pa.array(index.held.row_ids()),
        }
        self._write(_NODES, identity, index.held, arrays, {"ids": _digested(index.ids)})

    # -- edges ---------------------------------------------------------------------------

    def fill_edges(
        self, identity: TableVersion, held: HeldTable, src: Ids, dst: Ids
    ) -> dict[str, Adjacency]:
        """Give the parts of a table what is stored; gives the adjacencies if they still fit."""
        found = self._newest(_EDGES, identity)
        if found is None:
            return {}
        if not (_relies_on(found.about, "src", src) and _relies_on(found.about, "dst", dst)):
            return {}
        _fill(held, found, {"src": "src", "dst": "dst"})
        if [part.signature for part in held.parts] != [p[0] for p in found.about["parts"]]:
            return {}
        return {
            direction: Adjacency(
                found.arrays[f"{direction}_offsets"].to_numpy(),
                found.arrays[f"{direction}_targets"].to_numpy(),
            )
            for direction in (OUT, IN)
        }

    def keep_edges(
        self, identity: TableVersion, ends: tuple[str, str], index: EdgeIndex, src: Ids, dst: Ids
    ) -> None:
        """Store the numbers of a table, and both adjacencies, if that is worth it."""
        if not self._is_worth_it(_EDGES, identity, index.held, {"src": src, "dst": dst}):
            return
        self._keep_ids(ends[0], src)
        self._keep_ids(ends[1], dst)
        arrays: dict[str, pa.Array] = {
            "src": pa.array(index.src),
            "dst": pa.array(index.dst),
            "row_ids": pa.array(index.held.row_ids()),
        }
        for direction in (OUT, IN):
            adjacency = index.adjacency(direction)
            arrays[f"{direction}_offsets"] = pa.array(adjacency.offsets)
            arrays[f"{direction}_targets"] = pa.array(adjacency.targets)
        about = {"src": _digested(src), "dst": _digested(dst)}
        self._write(_EDGES, identity, index.held, arrays, about)

    # -- files ---------------------------------------------------------------------------

    def _names(self, kind: str, identity: TableVersion) -> list[str]:
        prefix = f"{kind}-{_name(identity.location)}-"
        return [name for name in self._files.list() if name.startswith(prefix)]

    def _newest(self, kind: str, identity: TableVersion) -> Derived | None:
        """The newest file of the same copy of a table, else of the copy of main."""
        for name in self._newest_first(kind, identity):
            found = self._files.read(name)
            if found is not None:
                self._seen[name] = found.about
                return found
        return None

    def _newest_first(self, kind: str, identity: TableVersion) -> list[str]:
        own = f"-{_name(identity.ref.path)}.arrow"
        names = self._names(kind, identity)
        return sorted(names, key=lambda n: (n.endswith(own), _number(n)), reverse=True)

    def _about(self, kind: str, identity: TableVersion) -> Mapping[str, Any] | None:
        """What the newest file says, without reading it once more."""
        for name in self._newest_first(kind, identity)[:1]:
            if name in self._seen:
                return self._seen[name]
        found = self._newest(kind, identity)
        return None if found is None else found.about

    def _is_worth_it(
        self, kind: str, identity: TableVersion, held: HeldTable, numberings: Mapping[str, Ids]
    ) -> bool:
        if not self._writable or held.rows < _WORTH_IT:
            return False
        about = self._about(kind, identity)
        if about is None or not all(_relies_on(about, *each) for each in numberings.items()):
            return True
        stored = {signature for signature, _ in about["parts"]}
        missing = sum(f.rows for f in held.fragments if f.signature not in stored)
        return missing > _MOST_MISSING * held.rows

    def _write(
        self,
        kind: str,
        identity: TableVersion,
        held: HeldTable,
        arrays: Mapping[str, pa.Array],
        about: Mapping[str, Any],
    ) -> None:
        parts = [(fragment.signature, fragment.rows) for fragment in held.fragments]
        own = f"-{_name(identity.ref.path)}.arrow"
        old = [name for name in self._names(kind, identity) if name.endswith(own)]
        name = f"{kind}-{_name(identity.location)}-{identity.version}{own}"
        self._seen[name] = {**about, "parts": parts}
        self._files.write(name, arrays, self._seen[name])
        for stale in old:
            if stale != name:
                self._files.remove(stale)
                self._seen.pop(stale, None)


def unused_files(names: Iterable[str], locations: Iterable[str], paths: Iterable[str]) -> list[str]:
    """The files of tables, or of copies of tables, that are not there any more."""
    tables, copies = {_name(location) for location in locations}, {_name(path) for path in paths}
    found = []
    for name in names:
        kind, _, rest = name.removesuffix(".arrow").partition("-")
        table, _, rest = rest.partition("-")
        if kind not in (_IDS, _NODES, _EDGES):
            continue
        if table not in tables or (kind != _IDS and rest.rpartition("-")[2] not in copies):
            found.append(name)
    return found


def _fill(held: HeldTable, found: Derived, columns: Mapping[str, str]) -> None:
    """Hand the stored arrays to the parts that a table still has."""
    parts = {part.signature: part for part in held.parts}
    rows = found.arrays["row_ids"].to_numpy()
    numbers: dict[str, Numbers] = {c: found.arrays[a].to_numpy() for c, a in columns.items()}
    start = 0
    for signature, count in found.about["parts"]:
        part = parts.get(signature)
        if part is not None:
            part.row_ids = rows[start : start + count]
            for column, array in numbers.items():
                part.numbers[column] = array[start : start + count]
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
    """The third part of a name: a count or a version."""
    part = name.split("-")[2]
    return int(part) if part.isdigit() else -1
