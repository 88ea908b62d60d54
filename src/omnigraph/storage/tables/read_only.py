"""A version of a table as a Lance dataset for other tools, without anything that writes."""

from __future__ import annotations

import re
from typing import Any

from lance import LanceDataset

from omnigraph.errors import ReadOnly
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.types import TableRef

_READS = re.compile(
    "centroids|count_rows|data_storage_version|describe_indices|filter|fragment_ids"
    "|get_fragment|get_fragments|has_index|has_stable_row_ids|head|index_statistics|join"
    "|join_asof|lance_schema|list_indices|max_field_id|metadata|partition_expression"
    "|prewarm_index|read_blob_ranges|read_blobs|sample|scanner|schema|session|slice|sort_by|sql"
    "|stats|take|take_blobs|to_batches|to_pandas|to_table|uri|validate|version"
)


class ReadOnlyDataset(LanceDataset):
    """A Lance dataset with an allow-list of methods; all others raise ``ReadOnly``."""

    def __repr__(self) -> str:
        return f"<ReadOnlyDataset {self.uri} at version {self.version}>"


def _refused(name: str) -> Any:
    def refuse(*_: Any, **__: Any) -> Any:
        raise ReadOnly(
            f"'{name}' is not available on a snapshot's dataset, which is read only",
            hint="write through Graph.load, Graph.append or Graph.mutate",
        )

    return refuse if callable(getattr(LanceDataset, name)) else property(refuse)


for _name in dir(LanceDataset):
    if not _name.startswith("_") and not _READS.fullmatch(_name):
        setattr(ReadOnlyDataset, _name, _refused(_name))


def open_read_only(
    datasets: Datasets, ref: TableRef, version: int, keep: object
) -> ReadOnlyDataset:
    """A private dataset at a version; ``keep`` lives as long as the dataset."""
    dataset = datasets.open(ref, version)
    dataset.__class__ = ReadOnlyDataset
    dataset._keep = keep
    return dataset
