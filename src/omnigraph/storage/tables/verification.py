"""Checks of tables for verify: indexes against rows, and the files that versions reference."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.records import dataclass
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.failures import is_unsupported_filter, lance_call
from omnigraph.storage.tables.table import ROW_ID, Table
from omnigraph.storage.tables.types import TableRef

# Up to this many rows every value is looked up, beyond it a sample.
_SMALL, _SAMPLE = 20_000, 500
_CHUNK = 500
_VECTORS, _NEAREST = 3, 10


def files_of_version(table: Table) -> list[str]:
    """The data and deletion files of one version, relative to their copy of the table."""
    with lance_call("read", table.ref.path):
        fragments = [fragment.metadata for fragment in table.dataset.get_fragments()]
    names = [f"data/{file.path}" for fragment in fragments for file in fragment.files]
    return names + [
        fragment.deletion_file.path(fragment.id) for fragment in fragments if fragment.deletion_file
    ]


def branch_names(datasets: Datasets, location: str) -> list[str]:
    dataset = datasets.open(TableRef(location))
    with lance_call("list the branches of", location):
        return sorted(dataset.branches.list())


@dataclass(frozen=True, slots=True)
class IndexGap:
    """Differences between an index and the rows: missing matches and false matches."""

    missing: int
    extra: int


def equality_gap(table: Table, column: str) -> IndexGap | None:
    """Compare the matches of an equality index with the rows, for all values or a sample."""
    with lance_call("read", table.ref.path):
        dataset = table.dataset
        rows = int(dataset.count_rows())
        if rows <= _SMALL:
            everything = dataset.to_table(columns=[column], with_row_id=True)
            values = everything[column]
        else:
            everything = None
            some = np.linspace(0, rows - 1, _SAMPLE).astype(np.int64)
            values = dataset.take(some.tolist(), columns=[column])[column]
        wanted = pc.unique(values).drop_null()
        if pa.types.is_floating(wanted.type):
            wanted = wanted.filter(pc.invert(pc.is_nan(wanted)))
        missing = extra = 0
        for start in range(0, len(wanted), _CHUNK):
            chunk = wanted.slice(start, _CHUNK)
            condition = pc.field(column).isin(chunk)
            try:
                indexed = _rows(dataset, condition, use_index=True)
                if everything is None:
                    there = _rows(dataset, condition, use_index=False)
                else:
                    kept = everything.filter(pc.is_in(everything[column], value_set=chunk))
                    there = np.sort(kept[ROW_ID].to_numpy())
            except (ValueError, pa.ArrowInvalid) as error:
                if is_unsupported_filter(error):
                    # Queries do not use the index of such a column either.
                    return None
                raise
            missing += len(np.setdiff1d(there, indexed))
            extra += len(np.setdiff1d(indexed, there)) + len(indexed) - len(np.unique(indexed))
    return IndexGap(missing, extra) if missing or extra else None


def _rows(dataset: object, condition: pc.Expression, *, use_index: bool) -> npt.NDArray[np.uint64]:
    scanner = dataset.scanner(  # type: ignore[attr-defined]
        columns=[], filter=condition, with_row_id=True, use_scalar_index=use_index
    )
    row_ids: npt.NDArray[np.uint64] = np.sort(scanner.to_table()[ROW_ID].to_numpy())
    return row_ids


def vector_gap(table: Table, column: str, metric: str) -> IndexGap | None:
    """Compare the neighbours from a vector index with the true nearest ones, for a sample."""
    missing = 0
    with lance_call("search", table.ref.path):
        dataset = table.dataset
        rows = int(dataset.count_rows())
        if not rows:
            return None
        some = np.linspace(0, rows - 1, 8 * _VECTORS).astype(np.int64)
        values = dataset.take(np.unique(some).tolist(), columns=[column])[column]
        vectors = [vector for vector in values.to_pylist() if vector is not None and any(vector)]
        for vector in vectors[:_VECTORS]:
            query = pa.array(vector, values.type.value_type).to_numpy()
            near, nearest = (
                dataset.scanner(
                    columns=["_distance"],
                    nearest={
                        "column": column,
                        "q": query,
                        "k": _NEAREST,
                        "metric": metric,
                        "use_index": use_index,
                        "minimum_nprobes": 1_000_000,
                    },
                )
                .to_table()["_distance"]
                .to_pylist()
                for use_index in (True, False)
            )
            far = sum(
                not math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-4)
                for a, b in zip(sorted(near), sorted(nearest), strict=False)
            )
            missing += far + max(len(nearest) - len(near), 0)
    return IndexGap(missing, 0) if missing else None
