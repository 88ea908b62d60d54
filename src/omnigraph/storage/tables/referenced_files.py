"""The files that the versions of a table name, up to one of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from omnigraph.storage.lance_format.addresses import parse_table_address
from omnigraph.storage.objects.graph_paths import refuse_unsafe
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.failures import lance_call
from omnigraph.storage.tables.types import TableRef


@dataclass(frozen=True, slots=True)
class ReferencedFile:
    """A file that some version names."""

    path: str
    """Relative to the root of the graph."""
    is_transaction: bool


def referenced_files(datasets: Datasets, ref: TableRef, until: int) -> Iterator[ReferencedFile]:
    """Each file once that versions up to one name, wherever in the graph it lies."""
    dataset = datasets.open(ref, until)
    seen: set[str] = set()
    with lance_call("list the files of", ref.path):
        batches = list(dataset.tracked_files())
    for batch in batches:
        columns = [batch.column(n).to_pylist() for n in ("version", "base_uri", "path", "type")]
        for version, base, name, kind in zip(*columns, strict=True):
            if version > until:
                continue
            path = f"{parse_table_address(base, ref.location)[1]}/{name}"
            if path not in seen:
                refuse_unsafe(path)
                seen.add(path)
                yield ReferencedFile(path, kind == "transaction file")
