"""The two steps of the embedding job on a share of a table, in whatever process.

**Embedding** reads texts of one version and makes sure that the spool has their vectors. It changes
nothing in the graph, so it can be repeated, and left at any point. **Staging** looks at the version
that the graph has by then, and gives a vector to every row that still wants one and whose text is
in the spool: a text that was changed meanwhile is not, and its row is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.embed.job.pace import Pace, RateLimit, nothing
from omnigraph.embed.job.requests import Asking, Batching, Refusal, Spent, Wanted
from omnigraph.embed.job.spool import KEY_TYPE, UNKNOWN, Spool, is_seen, key_of
from omnigraph.embed.job.targets import Target
from omnigraph.embed.providers.choice import make_embedder
from omnigraph.embed.providers.config import EmbeddingConfig
from omnigraph.embed.providers.embedder import Embedder
from omnigraph.errors import InputError
from omnigraph.storage.tables.columns import (
    ADDRESS,
    ColumnUpdate,
    Unfilled,
    unfilled_rows,
    update_columns,
)
from omnigraph.storage.tables.fragments import TableLocator, open_version
from omnigraph.storage.tables.store import KEY
from omnigraph.storage.tables.table import Table

_READ_ROWS = 4096
_READ_BYTES = 4 << 20
"""Of vectors in one batch: Lance reads many batches ahead."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What every share needs. The key of the provider is in it, and never shown."""

    config: EmbeddingConfig
    folder: str
    again: bool = False
    rate: RateLimit = RateLimit()
    """What one process may ask for."""
    batching: Batching = Batching()
    threads: int = 4
    max_refusals: int = 0


@dataclass(frozen=True, slots=True)
class Share:
    """Some fragments of a version, and which of their rows are meant. Made to be sent."""

    setup: Setup
    place: TableLocator
    target: Target
    fragments: tuple[int, ...]
    start: int = 0
    """So many of the rows were dealt with already."""
    most: int | None = None
    """No more texts than this are looked at."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """What became of a share."""

    ready: int
    """Rows whose vectors are in the spool now."""
    embedded: int
    """Texts that the provider was asked for, with success."""
    skipped: int
    """Rows without a text."""
    requests: int
    tokens: int | None
    refusals: tuple[Refusal, ...]
    refused: int
    """Rows whose text got no vector."""
    next: int | None
    """Where the share goes on, if it was left early."""


@dataclass(frozen=True, slots=True)
class Staging:
    """Fragments of a version that get vectors for several properties."""

    setup: Setup
    place: TableLocator
    targets: tuple[Target, ...]
    fragments: tuple[int, ...]
    until: int | None
    """When vectors are replaced: only in rows that no later version has changed."""


class Tools:
    """What a process needs for shares: made once, used for many."""

    def __init__(
        self,
        setup: Setup,
        embedder: Embedder | None = None,
        check: Callable[[], None] = nothing,
        tell: Callable[[Spent], None] = lambda _: None,
    ) -> None:
        self.setup = setup
        self.embedder = embedder or make_embedder(setup.config)
        self.spool = Spool(Path(setup.folder))
        self.pace = Pace(setup.rate, check)
        self.check = check
        self.tell = tell


_tools: Tools | None = None
"""Those of the last job: a worker process does many shares of one."""


def _remote_tools(setup: Setup) -> Tools:
    global _tools
    if not is_seen(Path(setup.folder)):
        raise InputError(
            "a worker does not see the directory where embeddings are kept",
            hint="pass as resume a directory that all workers share, or use engine='local'",
        )
    if _tools is None or _tools.setup != setup:
        _tools = Tools(setup)
    return _tools


def embed_remote(share: Share) -> Embedded:
    """``embed_share`` in a process of its own."""
    return embed_share(share, _remote_tools(share.setup))


def stage_remote(share: Staging) -> list[ColumnUpdate]:
    """``stage_share`` in a process of its own."""
    return stage_share(share, _remote_tools(share.setup))


# -- embedding ------------------------------------------------------------------------------------


def embed_share(share: Share, tools: Tools) -> Embedded:
    """Have the texts of a share embedded that are not in the spool yet."""
    tools.spool.refresh()
    setup, target = share.setup, share.target
    ready = skipped = repeated_refusals = looked_at = 0
    seen: set[bytes] = set()
    waiting: list[bytes] = []
    following: int | None = None
    with Asking(
        tools.embedder,
        target.dimension,
        (target.type_name, target.name),
        tools.spool,
        tools.pace,
        setup.batching,
        threads=setup.threads,
        max_refusals=setup.max_refusals,
        check=tools.check,
        tell=tools.tell,
    ) as asking:
        for rows, passed in _rows(share):
            tools.check()
            texts = rows[target.source]
            with_text = texts.filter(pc.greater(pc.fill_null(pc.binary_length(texts), 0), 0))
            if share.most is not None and looked_at + len(with_text) > share.most:
                rows = _first(rows, target.source, share.most - looked_at)
                following = passed + rows.num_rows
                texts = rows[target.source]
            keys = _keys(setup.config, target, texts)
            skipped += keys.null_count
            looked_at += len(keys) - keys.null_count
            known = tools.spool.find(keys)
            for position, key in enumerate(keys.to_pylist()):
                if key is None:
                    continue
                if known[position] != UNKNOWN:
                    ready += 1
                    continue
                waiting.append(key)
                if key not in seen:
                    seen.add(key)
                    asking.want(Wanted(key, texts[position].as_py(), rows[KEY][position].as_py()))
            if following is not None:
                break
        asking.finish()
    if waiting:
        there = tools.spool.find(pa.array(waiting, KEY_TYPE)) != UNKNOWN
        ready += int(there.sum())
        repeated_refusals = int((~there).sum())
    return Embedded(
        ready,
        asking.spent.texts,
        skipped,
        asking.spent.requests,
        asking.spent.tokens,
        tuple(asking.refusals),
        repeated_refusals,
        following,
    )


def _rows(share: Share) -> Iterator[tuple[pa.RecordBatch, int]]:
    """The rows of a share that want a vector, and how many came before."""
    table = open_version(share.place)
    wanted = None if share.setup.again else Unfilled((share.target.name,))
    passed = 0
    for batch in unfilled_rows(
        table, wanted, [KEY, share.target.source], share.fragments, _read_rows(share.target)
    ):
        skip = max(0, min(batch.num_rows, share.start - passed))
        if skip < batch.num_rows:
            yield batch.slice(skip), passed + skip
        passed += batch.num_rows


def _read_rows(*targets: Target) -> int:
    """How many rows are read at once, since whether they have a vector is seen by reading it."""
    size = sum(4 * target.dimension for target in targets)
    return max(64, min(_READ_ROWS, _READ_BYTES // size))


def _first(rows: pa.RecordBatch, source: str, texts: int) -> pa.RecordBatch:
    """The rows up to the one that has so many texts before it."""
    lengths = pc.fill_null(pc.binary_length(rows[source]), 0).to_numpy(zero_copy_only=False)
    return rows.slice(0, int(np.flatnonzero(lengths > 0)[texts]))


def _keys(config: EmbeddingConfig, target: Target, texts: pa.Array) -> pa.Array:
    """The key of every text; null where there is none."""
    provider, model = config.provider, config.model
    return pa.array(
        [
            key_of(provider, model, target.dimension, text) if text else None
            for text in texts.to_pylist()
        ],
        KEY_TYPE,
    )


# -- staging --------------------------------------------------------------------------------------


def stage_share(share: Staging, tools: Tools) -> list[ColumnUpdate]:
    """Write the vectors of rows that want one beside their table."""
    tools.spool.refresh()
    table = open_version(share.place)
    found = []
    for fragment in share.fragments:
        tools.check()
        rows, values = _filled(share, tools, table, fragment)
        if rows is not None:
            found.append(update_columns(table, fragment, rows, values))
    return found


def _filled(
    share: Staging, tools: Tools, table: Table, fragment: int
) -> tuple[pa.Table | None, int]:
    """The rows of a fragment that get some vector, and how many vectors they get."""
    names = [target.name for target in share.targets]
    sources = sorted({target.source for target in share.targets})
    # With several vectors a row may want one and keep another, which has to be written again too.
    kept = names if len(names) > 1 else []
    updated = ["_row_last_updated_at_version"] if share.until is not None else []
    wanted = Unfilled(tuple(names), share.until)
    pieces: list[pa.Table] = []
    values = 0
    for batch in unfilled_rows(
        table,
        wanted,
        [*sources, *kept, *updated],
        [fragment],
        _read_rows(*share.targets),
    ):
        columns, is_new = {ADDRESS: batch[ADDRESS]}, np.zeros(batch.num_rows, bool)
        for target in share.targets:
            column, gets = _column(share, tools, target, batch)
            columns[target.name] = column
            is_new |= gets
            values += int(gets.sum())
        if is_new.any():
            pieces.append(pa.table(columns).filter(pa.array(is_new)))
    return (pa.concat_tables(pieces) if pieces else None), values


def _column(
    share: Staging, tools: Tools, target: Target, batch: pa.RecordBatch
) -> tuple[pa.Array, np.ndarray]:
    """One vector of every row, and which of them are new."""
    texts = batch[target.source]
    keys = _keys(share.setup.config, target, texts)
    places = np.where(keys.is_valid().to_numpy(zero_copy_only=False), tools.spool.find(keys), -1)
    gets = places != UNKNOWN
    several = len(share.targets) > 1
    if several:
        is_null = batch[target.name].is_null().to_numpy(zero_copy_only=False)
        may = is_null
        if share.until is not None:
            old = pc.less_equal(batch["_row_last_updated_at_version"], share.until)
            may = is_null | old.to_numpy(zero_copy_only=False)
        gets = gets & may
    return _vectors(tools, target, batch, places, gets, several), gets


def _vectors(
    tools: Tools,
    target: Target,
    batch: pa.RecordBatch,
    places: np.ndarray,
    gets: np.ndarray,
    several: bool,
) -> pa.Array:
    made = tools.spool.read(places[gets], target.dimension)
    values = np.zeros((batch.num_rows, target.dimension), np.float32)
    valid = gets.copy()
    if several:
        old = batch[target.name]
        there = old.is_valid().to_numpy(zero_copy_only=False)
        values[there] = old.drop_null().flatten().to_numpy().reshape(-1, target.dimension)
        valid |= there
    values[gets] = made
    flat = pa.array(values.reshape(-1), pa.float32())
    return pa.FixedSizeListArray.from_arrays(flat, target.dimension, mask=pa.array(~valid))


def groups_of(fragments: Sequence[tuple[int, int]], rows: int) -> Iterator[tuple[int, ...]]:
    """Fragments in groups of about so many rows.

    >>> list(groups_of([(0, 5), (1, 5), (2, 9), (3, 1)], 10))
    [(0, 1), (2, 3)]
    """
    group: list[int] = []
    count = 0
    for number, size in fragments:
        group.append(number)
        count += size
        if count >= rows:
            yield tuple(group)
            group, count = [], 0
    if group:
        yield tuple(group)
