"""Operations on one plain Lance table, to prove the harness on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
from lance.fragment import write_fragments

from omnigraph.commit.failpoints import Failpoint, reached

OLD = ["a", "b"]
NEW = ["c", "d"]


def create(root: Path) -> None:
    lance.write_dataset(pa.table({"id": OLD}), str(root), enable_stable_row_ids=True)


def rows(root: Path) -> list[str]:
    actual: list[str] = lance.dataset(str(root)).to_table()["id"].to_pylist()
    return actual


def append(root: Path) -> Iterator[None]:
    """Stage an append and commit it, with a boundary before, between and after."""
    dataset = lance.dataset(str(root))
    yield
    reached(Failpoint.WRITE_AFTER_SIDECAR)
    staged = write_fragments(pa.table({"id": NEW}), dataset, mode="append", return_transaction=True)
    reached(Failpoint.WRITE_BETWEEN_TABLES)
    lance.LanceDataset.commit(dataset, staged, max_retries=0)
    reached(Failpoint.WRITE_BETWEEN_TABLES)
