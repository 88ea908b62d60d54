"""The files that the versions of a table name."""

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


def referenced_files(
    datasets: Datasets, ref: TableRef, until: int | None = None
) -> Iterator[ReferencedFile]:
    """The files that versions name, all or up to one, wherever in the graph they lie."""
    dataset = datasets.open(ref, until)
    seen: set[tuple[str, str]] = set()
    with lance_call("list the files of", ref.path):
        for batch in dataset.tracked_files():
            columns = [batch.column(n).to_pylist() for n in ("version", "base_uri", "path", "type")]
            for version, base, name, kind in zip(*columns, strict=True):
                if (base, name) not in seen and (until is None or version <= until):
                    seen.add((base, name))
                    # An address may be under the root that the graph was moved from.
                    path = f"{parse_table_address(base, ref.location)[1]}/{name}"
                    refuse_unsafe(path)
                    yield ReferencedFile(path, kind == "transaction file")
