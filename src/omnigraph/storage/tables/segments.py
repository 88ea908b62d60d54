"""Index segments: each covers some fragments of a table; segments of one name form one index.

Any process can build a segment over some fragments; the segments of one index are then merged here,
which works for every kind of index we build. They are used once a commit references them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset
from lance.indices import IndicesBuilder

from omnigraph.records import dataclass
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.failures import UnfitValues, index_build, lance_call
from omnigraph.storage.tables.fragments import TableLocator
from omnigraph.storage.tables.indexes import index_name, index_settings, removable_segment
from omnigraph.storage.tables.table import Table
from omnigraph.storage.tables.types import IndexKind, IndexSpec

_CREATED = "_row_created_at_version"


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment of an index of a version."""

    name: str
    uuid: str
    fragments: frozenset[int]
    version: int
    """The version it was built on; it does not contain later rows."""
    is_misnamed: bool = False
    """Whether it still has a former name of its column, which another column may use now."""
    index: Any = field(default=None, repr=False, compare=False)


def segments_of(table: Table) -> dict[str, tuple[Segment, ...]]:
    """The segments of every index of a version, by the name that the index would have now."""
    segments: dict[str, tuple[Segment, ...]] = {}
    with lance_call("read", table.ref.path):
        for index in table.dataset.describe_indices():
            name = index_name(index)
            made = tuple(_segment(name, index, segment) for segment in index.segments)
            segments[name] = (*segments.get(name, ()), *made)
    return segments


def _segment(name: str, index: Any, segment: Any) -> Segment:
    version = int(segment.dataset_version_at_last_update)
    removable = removable_segment(index, segment)
    fragments = frozenset(segment.fragment_ids)
    return Segment(name, str(segment.uuid), fragments, version, name != index.name, removable)


def oldest_rows(table: Table, fragments: Iterable[int]) -> dict[int, int]:
    """The version that created the oldest row of each fragment."""
    rows_by_fragment = table.read_fragments(list(fragments), [_CREATED])
    return {
        number: int(pc.min(rows[_CREATED]).as_py()) if len(rows) else table.version
        for number, rows in rows_by_fragment.items()
    }


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """The metadata of an index of a version, without reading the index."""

    name: str
    method: str
    metric: str | None
    sub_vectors: int | None
    segments: int
    largest: int
    """The rows in its largest segment."""
    rows: int
    outside: int
    """Rows that it does not cover."""
    fragments: int
    size: int
    created_at: datetime | None
    """The time when its newest segment was built."""


def index_facts(table: Table) -> dict[str, IndexFacts]:
    """Every index of a version, by the name that it would have now."""
    with lance_call("read", table.ref.path):
        indexes = table.dataset.describe_indices()
        rows = {f.fragment_id: f.metadata.num_rows for f in table.dataset.get_fragments()}
        return {name: _facts(name, indexes, rows) for name in sorted(map(index_name, indexes))}


def _facts(name: str, indexes: Sequence[Any], rows: Mapping[int, int]) -> IndexFacts:
    same = [index for index in indexes if index_name(index) == name]
    segments = [segment for index in same for segment in index.segments]
    details: Mapping[str, Any] = same[0].details or {}
    metric = details.get("metric_type")
    covered_by_segment = [set(segment.fragment_ids) & rows.keys() for segment in segments]
    covered: set[int] = set().union(*covered_by_segment)
    count = sum(rows[number] for number in covered)
    # In milliseconds, as stored; the process that built an index has a finer time.
    moments = [
        s.created_at.replace(microsecond=s.created_at.microsecond // 1000 * 1000)
        for s in segments
        if s.created_at is not None
    ]
    return IndexFacts(
        name,
        str(same[0].index_type),
        None if metric is None else str(metric).lower(),
        (details.get("compression") or {}).get("num_sub_vectors"),
        len(segments),
        max((sum(rows[n] for n in numbers) for numbers in covered_by_segment), default=0),
        count,
        sum(rows.values()) - count,
        len(covered),
        sum(int(segment.size_bytes or 0) for segment in segments),
        max(moments, default=None),
    )


def partitions_of(table: Table, name: str) -> int | None:
    """The number of partitions of a vector index; ``None`` if there is no such index."""
    with lance_call("read", table.ref.path):
        for index in table.dataset.describe_indices():
            if index_name(index) == name:
                return len(table.dataset.get_ivf_model(index.name).centroids)
    return None


def some_vectors(table: Table, column: str, count: int) -> npt.NDArray[np.float32]:
    """A sample of vectors, spread evenly over a table, without nulls."""
    total = table.count()
    positions = np.unique(np.linspace(0, max(total - 1, 0), min(count, total)).astype(np.int64))
    with lance_call("read", table.ref.path):
        taken = table.dataset.take(positions.tolist(), columns=[column])[column].combine_chunks()
    size = table.schema.field(column).type.list_size
    numbers = taken.drop_null().flatten().to_numpy(zero_copy_only=False)
    vectors: npt.NDArray[np.float32] = numbers.astype(np.float32, copy=False).reshape(-1, size)
    return vectors


# -- in other processes ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IndexBuild:
    """Fragments of one version that an index segment is to cover."""

    locator: TableLocator
    spec: IndexSpec
    fragments: tuple[int, ...]
    is_all: bool = True
    """Whether it will not be merged with other segments."""
    partitions: int = 1
    """Partitions of a vector index; a small segment has fewer than the whole index."""
    centroids: Any = field(default=None, repr=False, compare=False)
    """The centroids of the partitions; trained if not given."""


@dataclass(frozen=True, slots=True)
class BuiltIndex:
    """A segment that no version references yet."""

    spec: IndexSpec
    index: Any = field(repr=False, compare=False)

    @property
    def folder(self) -> str:
        """The directory of its files, relative to the table."""
        return f"_indices/{self.index.uuid}"

    def at(self, version: int) -> Any:
        """The segment for the commit after a version; it was built on a detached version."""
        return replace(self.index, dataset_version=version)


def build_segment(build: IndexBuild) -> BuiltIndex | None:
    """Build a segment; for any process. ``None`` if Lance cannot build it from these values."""
    spec, locator = build.spec, build.locator
    try:
        with index_build(spec.name, locator.path):
            dataset = locator.open()
            settings = index_settings(replace(spec, partitions=build.partitions))
            if spec.kind is IndexKind.VECTOR and build.partitions == 1:
                settings["ivf_centroids"] = _one_centroid(dataset, spec)
            elif build.centroids is not None:
                settings["ivf_centroids"] = build.centroids
                settings["num_partitions"] = len(build.centroids)
            built = dataset.create_index_uncommitted(
                spec.column, spec.lance_type, fragment_ids=list(build.fragments), **settings
            )
            if spec.kind is IndexKind.TEXT and build.is_all:
                # Without this step the commit succeeds and every text query fails.
                built = dataset.merge_existing_index_segments([built])
    except UnfitValues:
        return None
    return BuiltIndex(spec, built)


def is_divisible(spec: IndexSpec) -> bool:
    """Whether several processes can build it; not if codes are trained on all vectors."""
    return spec.kind is not IndexKind.VECTOR or spec.sub_vectors is None


def train_centroids(locator: TableLocator, spec: IndexSpec, partitions: int) -> Any:
    """The centroids that all segments of an index share, trained on a sample of the vectors.

    ``None`` if training fails: then one process builds the index, and reports any failure.
    """
    try:
        with index_build(spec.name, locator.path):
            builder = IndicesBuilder(locator.open(), spec.column)
            return builder.train_ivf(partitions, distance_type=spec.metric).centroids
    except UnfitValues:
        return None


def join_segments(
    datasets: Datasets, locator: TableLocator, built: Sequence[BuiltIndex]
) -> BuiltIndex:
    """Merge segments that cover different fragments into one; their files are removed."""
    spec = built[0].spec
    with lance_call(f"build the {spec.name} index of", locator.path):
        whole = locator.open().merge_existing_index_segments([segment.index for segment in built])
    joined = BuiltIndex(spec, whole)
    discard_segments(datasets, locator.path, (b for b in built if b.folder != joined.folder))
    return joined


def discard_segments(datasets: Datasets, path: str, built: Iterable[BuiltIndex]) -> None:
    for segment in built:
        datasets.objects.delete_prefix(f"{path}/{segment.folder}")


def _one_centroid(dataset: LanceDataset, spec: IndexSpec) -> pa.FixedSizeListArray:
    """One fixed centroid: segments can only be merged if they share their centroids.

    It also allows an index without any vectors, from which no centroid could be trained.
    """
    size = dataset.schema.field(spec.column).type.list_size
    value = np.full(size, size**-0.5, np.float32)
    return pa.FixedSizeListArray.from_arrays(pa.array(value), size)
