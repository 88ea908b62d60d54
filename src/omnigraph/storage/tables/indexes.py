"""How Lance builds, lists and names the indexes of a table."""

from __future__ import annotations

from typing import Any

from lance import LanceDataset
from lance.dataset import Index

from omnigraph.storage.tables.types import IndexKind, IndexSpec


def build_index(dataset: LanceDataset, spec: IndexSpec) -> Index:
    fragments = [fragment.fragment_id for fragment in dataset.get_fragments()]
    built = dataset.create_index_uncommitted(
        spec.column, spec.lance_type, fragment_ids=fragments, **index_settings(spec)
    )
    if spec.kind is IndexKind.TEXT:
        # Without this step the commit succeeds and every text query fails.
        built = dataset.merge_existing_index_segments([built])
    return built


def index_settings(spec: IndexSpec) -> dict[str, Any]:
    """Lance's settings for building an index."""
    settings: dict[str, Any] = {"name": spec.name, "replace": True}
    if spec.kind is IndexKind.TEXT:
        settings["with_position"] = True
    elif spec.kind is IndexKind.VECTOR:
        settings.update(metric=spec.metric, num_partitions=max(1, spec.partitions))
        if spec.sub_vectors is not None:
            settings["num_sub_vectors"] = spec.sub_vectors
    return settings


def index_name(index: Any) -> str:
    """The name an index would get if it were built now; Lance never renames one."""
    ending = str(index.name).rpartition("_")[2]
    kinds = {kind.name.lower() for kind in IndexKind}
    return f"{index.field_names[0]}_{ending}" if ending in kinds else str(index.name)


def index_segments(dataset: LanceDataset, name: str) -> list[Index]:
    """The segments of an index in the form that a commit takes for removing them."""
    return [
        removable_segment(index, segment)
        for index in dataset.describe_indices()
        if index_name(index) == name
        for segment in index.segments
    ]


def removable_segment(index: Any, segment: Any) -> Index:
    """A segment in the form that a commit takes for removing it."""
    return Index(
        uuid=segment.uuid,
        name=index.name,
        fields=list(index.fields),
        dataset_version=segment.dataset_version_at_last_update,
        fragment_ids=segment.fragment_ids,
        index_version=segment.index_version,
    )
