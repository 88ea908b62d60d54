"""The two steps of the embedding job on a split of a table, in any process.

**Embedding** reads the texts of one version and puts their vectors into the spool. It changes
nothing in the graph, so it can be interrupted and repeated. **Staging** reads the current version
of the graph and gives a vector to every row that has none and whose text is in the spool. A text
changed meanwhile is not in the spool, so its row is unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.embed.job.requests import EmbeddingRequests, EmbedWorker, PendingText, Refusal, Setup
from omnigraph.embed.job.spool import KEY_TYPE, UNKNOWN, is_visible, vector_key
from omnigraph.embed.job.targets import EmbedTarget
from omnigraph.embed.providers.config import EmbeddingConfig
from omnigraph.errors import InputError
from omnigraph.records import dataclass
from omnigraph.storage.tables.columns import (
    ROW_UPDATED,
    ColumnUpdate,
    Unfilled,
    unfilled_rows,
    update_columns,
)
from omnigraph.storage.tables.fragments import TableLocator, open_version
from omnigraph.storage.tables.store import KEY
from omnigraph.storage.tables.table import ROW_ADDRESS, Table

_READ_ROWS = 4096
_READ_BYTES = 4 << 20
"""The size of the vectors of one batch: Lance reads many batches ahead."""


@dataclass(frozen=True, slots=True)
class EmbedSplit:
    """Fragments of a version whose texts are embedded. Can be sent to other processes."""

    setup: Setup
    locator: TableLocator
    target: EmbedTarget
    fragments: tuple[int, ...]
    start: int = 0
    """The number of rows that are done already."""
    most: int | None = None
    """The maximum number of texts to read."""


@dataclass(frozen=True, slots=True)
class EmbedResult:
    ready: int
    """Rows whose vectors are in the spool."""
    embedded: int
    """Texts that the provider embedded."""
    skipped: int
    """Rows without a text."""
    requests: int
    tokens: int | None
    refusals: tuple[Refusal, ...]
    refused: int
    """Rows whose text was refused."""
    next: int | None
    """The row to resume at, if the split is not finished."""


@dataclass(frozen=True, slots=True)
class StagingSplit:
    """Fragments of a version that get vectors for several properties."""

    setup: Setup
    locator: TableLocator
    targets: tuple[EmbedTarget, ...]
    fragments: tuple[int, ...]
    until: int | None
    """Vectors are replaced only in rows that no later version changed."""


_worker: EmbedWorker | None = None
"""The worker of the last job: a process works on many splits of one job."""


def _remote_worker(setup: Setup) -> EmbedWorker:
    global _worker
    if not is_visible(Path(setup.folder)):
        raise InputError(
            "a worker cannot access the directory of kept embeddings",
            hint="pass as resume a directory shared by all workers, or use engine='local'",
        )
    if _worker is None or _worker.setup != setup:
        _worker = EmbedWorker(setup)
    return _worker


def embed_remote(split: EmbedSplit) -> EmbedResult:
    """``embed_split`` in a worker process."""
    return embed_split(split, _remote_worker(split.setup))


def stage_remote(split: StagingSplit) -> list[ColumnUpdate]:
    """``stage_split`` in a worker process."""
    return stage_split(split, _remote_worker(split.setup))


# -- embedding ------------------------------------------------------------------------------------


def embed_split(split: EmbedSplit, worker: EmbedWorker) -> EmbedResult:
    """Embed the texts of a split that are not in the spool."""
    worker.spool.refresh()
    setup, target = split.setup, split.target
    ready = skipped = refused = texts_read = 0
    submitted: set[bytes] = set()
    missing: list[bytes] = []
    resume_at: int | None = None
    with EmbeddingRequests(worker, target) as requests:
        for rows, passed in _rows(split):
            worker.check()
            texts = rows[target.source]
            with_text = texts.filter(pc.greater(pc.fill_null(pc.binary_length(texts), 0), 0))
            if split.most is not None and texts_read + len(with_text) > split.most:
                rows = _first(rows, target.source, split.most - texts_read)
                resume_at = passed + rows.num_rows
                texts = rows[target.source]
            keys = _keys(setup.config, target, texts)
            skipped += keys.null_count
            texts_read += len(keys) - keys.null_count
            stored_at = worker.spool.find(keys)
            for position, key in enumerate(keys.to_pylist()):
                if key is None:
                    continue
                if stored_at[position] != UNKNOWN:
                    ready += 1
                    continue
                missing.append(key)
                if key not in submitted:
                    submitted.add(key)
                    requests.submit(
                        PendingText(key, texts[position].as_py(), rows[KEY][position].as_py())
                    )
            if resume_at is not None:
                break
        requests.finish()
    if missing:
        is_stored = worker.spool.find(pa.array(missing, KEY_TYPE)) != UNKNOWN
        ready += int(is_stored.sum())
        refused = int((~is_stored).sum())
    return EmbedResult(
        ready,
        requests.usage.texts,
        skipped,
        requests.usage.requests,
        requests.usage.tokens,
        tuple(requests.refusals),
        refused,
        resume_at,
    )


def _rows(split: EmbedSplit) -> Iterator[tuple[pa.RecordBatch, int]]:
    """The rows of a split without a vector, and the number of rows before them."""
    table = open_version(split.locator)
    wanted = None if split.setup.again else Unfilled((split.target.name,))
    passed = 0
    for batch in unfilled_rows(
        table, wanted, [KEY, split.target.source], split.fragments, _read_rows(split.target)
    ):
        skip = max(0, min(batch.num_rows, split.start - passed))
        if skip < batch.num_rows:
            yield batch.slice(skip), passed + skip
        passed += batch.num_rows


def _read_rows(*targets: EmbedTarget) -> int:
    """The number of rows of one batch; its vectors are read to know which are missing."""
    size = sum(4 * target.dimension for target in targets)
    return max(64, min(_READ_ROWS, _READ_BYTES // size))


def _first(rows: pa.RecordBatch, source: str, texts: int) -> pa.RecordBatch:
    """The rows before the one with text number ``texts``."""
    lengths = pc.fill_null(pc.binary_length(rows[source]), 0).to_numpy(zero_copy_only=False)
    return rows.slice(0, int(np.flatnonzero(lengths > 0)[texts]))


def _keys(config: EmbeddingConfig, target: EmbedTarget, texts: pa.Array) -> pa.Array:
    """The key of every text; null where there is none."""
    provider, model = config.provider, config.model
    return pa.array(
        [
            vector_key(provider, model, target.dimension, text) if text else None
            for text in texts.to_pylist()
        ],
        KEY_TYPE,
    )


# -- staging --------------------------------------------------------------------------------------


def stage_split(split: StagingSplit, worker: EmbedWorker) -> list[ColumnUpdate]:
    """Write the vectors of rows without one, as column files beside their table."""
    worker.spool.refresh()
    table = open_version(split.locator)
    updates = []
    for fragment in split.fragments:
        worker.check()
        rows, values = _fill_fragment(split, worker, table, fragment)
        if rows is not None:
            updates.append(update_columns(table, fragment, rows, values))
    return updates


def _fill_fragment(
    split: StagingSplit, worker: EmbedWorker, table: Table, fragment: int
) -> tuple[pa.Table | None, int]:
    """The rows of a fragment that get a vector, and the number of their vectors."""
    names = [target.name for target in split.targets]
    sources = sorted({target.source for target in split.targets})
    # With several vectors a row may need one and have another, which is written again too.
    kept = names if len(names) > 1 else []
    updated = [ROW_UPDATED] if split.until is not None else []
    wanted = Unfilled(tuple(names), split.until)
    tables: list[pa.Table] = []
    values = 0
    for batch in unfilled_rows(
        table, wanted, [*sources, *kept, *updated], [fragment], _read_rows(*split.targets)
    ):
        columns, is_new = {ROW_ADDRESS: batch[ROW_ADDRESS]}, np.zeros(batch.num_rows, bool)
        for target in split.targets:
            column, gets = _column(split, worker, target, batch)
            columns[target.name] = column
            is_new |= gets
            values += int(gets.sum())
        if is_new.any():
            tables.append(pa.table(columns).filter(pa.array(is_new)))
    return (pa.concat_tables(tables) if tables else None), values


def _column(
    split: StagingSplit, worker: EmbedWorker, target: EmbedTarget, batch: pa.RecordBatch
) -> tuple[pa.Array, np.ndarray]:
    """The vector of every row, and a mask of the new ones."""
    keys = _keys(split.setup.config, target, batch[target.source])
    has_text = keys.is_valid().to_numpy(zero_copy_only=False)
    indexes = np.where(has_text, worker.spool.find(keys), UNKNOWN)
    gets = indexes != UNKNOWN
    values = np.zeros((batch.num_rows, target.dimension), np.float32)
    has_old = np.zeros(batch.num_rows, bool)
    if len(split.targets) > 1:
        old = batch[target.name]
        has_old = old.is_valid().to_numpy(zero_copy_only=False)
        values[has_old] = old.drop_null().flatten().to_numpy().reshape(-1, target.dimension)
        writable = ~has_old
        if split.until is not None:
            is_old = pc.less_equal(batch[ROW_UPDATED], split.until)
            writable |= is_old.to_numpy(zero_copy_only=False)
        gets &= writable
    values[gets] = worker.spool.read(indexes[gets], target.dimension)
    flat = pa.array(values.reshape(-1), pa.float32())
    mask = pa.array(~(gets | has_old))
    return pa.FixedSizeListArray.from_arrays(flat, target.dimension, mask=mask), gets
