"""Indexes in segments: each knows some parts of a table, and all of one name are one index.

Any process can build a segment over its share of the parts; those of one index are then put
together here, which works for every kind that we build. Nothing moves before a commit names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset
from lance.dataset import Index

from omnigraph.errors import InternalError, StorageError
from omnigraph.storage.datasets import Datasets
from omnigraph.storage.lance_failures import lance_call
from omnigraph.storage.parts import VersionPlace
from omnigraph.storage.table import Table, index_name
from omnigraph.storage.table_types import IndexKind, IndexSpec
from omnigraph.storage.tables import index_settings

_CREATED = "_row_created_at_version"


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of an index that a version has."""

    name: str
    uuid: str
    parts: frozenset[int]
    version: int
    """What it was built on: a row that is younger is not in it."""
    is_misnamed: bool = False
    """Whether it still goes by a name that its column had once, and another may have now."""
    index: Any = field(default=None, repr=False, compare=False)


def segments_of(table: Table) -> dict[str, tuple[Segment, ...]]:
    """The segments of every index of a version, by the name that the index would have now."""
    found: dict[str, tuple[Segment, ...]] = {}
    with lance_call("read", table.ref.path):
        for index in table._dataset.describe_indices():
            name = index_name(index)
            made = tuple(_segment(name, index, segment) for segment in index.segments)
            found[name] = (*found.get(name, ()), *made)
    return found


def _segment(name: str, index: Any, segment: Any) -> Segment:
    version = int(segment.dataset_version_at_last_update)
    removable = Index(
        uuid=segment.uuid,
        name=index.name,
        fields=list(index.fields),
        dataset_version=version,
        fragment_ids=segment.fragment_ids,
        index_version=segment.index_version,
    )
    parts = frozenset(segment.fragment_ids)
    return Segment(name, str(segment.uuid), parts, version, name != index.name, removable)


def oldest_rows(table: Table, parts: Iterable[int]) -> dict[int, int]:
    """The version that made the oldest row of each part."""
    found = table.read_fragments(list(parts), [_CREATED])
    return {
        number: int(pc.min(rows[_CREATED]).as_py()) if len(rows) else table.version
        for number, rows in found.items()
    }


# -- in other processes ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Building:
    """Parts of one version that an index is to know."""

    place: VersionPlace
    spec: IndexSpec
    parts: tuple[int, ...]
    is_all: bool = True
    """Whether no other segment will be put together with it."""


@dataclass(frozen=True, slots=True)
class BuiltIndex:
    """A segment that no version names yet."""

    spec: IndexSpec
    index: Any = field(repr=False, compare=False)

    @property
    def folder(self) -> str:
        """Where its files are, relative to the table."""
        return f"_indices/{self.index.uuid}"

    def at(self, version: int) -> Any:
        """For the commit that follows a version; it was built on one that is in no history."""
        return replace(self.index, dataset_version=version)


def build_segment(share: Building) -> BuiltIndex | None:
    """Build a segment; for any process. None when Lance cannot, from the values that are there."""
    spec, place = share.spec, share.place
    try:
        with lance_call(f"build the {spec.name} index of", place.path):
            dataset = _open(place)
            settings = index_settings(spec)
            if spec.kind is IndexKind.VECTOR and spec.partitions == 1:
                settings["ivf_centroids"] = _one_centroid(dataset, spec)
            built = dataset.create_index_uncommitted(
                spec.column, spec.kind.value, fragment_ids=list(share.parts), **settings
            )
            if spec.kind is IndexKind.TEXT and share.is_all:
                # Without this step the commit succeeds and every text query fails.
                built = dataset.merge_existing_index_segments([built])
    except (StorageError, InternalError) as error:
        if type(error) not in (StorageError, InternalError):
            raise
        return None
    return BuiltIndex(spec, built)


def is_divisible(spec: IndexSpec) -> bool:
    """Whether several processes can build it; vectors only where nothing is learnt from all."""
    return spec.kind is not IndexKind.VECTOR or spec.partitions == 1


def join_segments(
    datasets: Datasets, place: VersionPlace, built: Sequence[BuiltIndex]
) -> BuiltIndex:
    """One segment of several that know different parts; their files go."""
    spec = built[0].spec
    with lance_call(f"build the {spec.name} index of", place.path):
        whole = _open(place).merge_existing_index_segments([each.index for each in built])
    joined = BuiltIndex(spec, whole)
    discard_segments(datasets, place.path, (b for b in built if b.folder != joined.folder))
    return joined


def discard_segments(datasets: Datasets, path: str, built: Iterable[BuiltIndex]) -> None:
    """Remove segments that will never be committed."""
    for each in built:
        datasets.objects.delete_prefix(f"{path}/{each.folder}")


def _open(place: VersionPlace) -> LanceDataset:
    # A build borrows its handle for itself alone.
    options = None if place.options is None else dict(place.options)
    return lance.dataset(place.uri, version=place.version, storage_options=options)


def _one_centroid(dataset: LanceDataset, spec: IndexSpec) -> pa.FixedSizeListArray:
    """The same for all segments, or they could not be put together; with one it chooses nothing.

    It also lets rows be indexed that have no vector, from which none could be learnt.
    """
    size = dataset.schema.field(spec.column).type.list_size
    value = np.full(size, size**-0.5, np.float32)
    return pa.FixedSizeListArray.from_arrays(pa.array(value), size)
