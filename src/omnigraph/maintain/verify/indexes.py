"""Indexes against the rows: what is found with one must be what is found without."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from omnigraph.errors import OmniGraphError
from omnigraph.lang.query.typed import TextFunction
from omnigraph.maintain.optimize.indexes import declared_indexes
from omnigraph.maintain.optimize.vector_indexes import NEIGHBOURS, QUERIES, measure_recall
from omnigraph.maintain.verify.ground import Ground
from omnigraph.maintain.verify.report import ProblemCode, VerifyProblem
from omnigraph.read.search.analyser import split_words
from omnigraph.read.search.text import matches
from omnigraph.storage.tables.search import column_batches, text_hits, text_index, vector_index
from omnigraph.storage.tables.segments import index_facts, segments_of
from omnigraph.storage.tables.table import Table
from omnigraph.storage.tables.types import IndexKind, IndexSpec
from omnigraph.storage.tables.verification import IndexGap, equality_gap, vector_gap
from omnigraph.write.delta import Kind

_WORDS = 3
_BROKEN = 0.5


def rebuild_hint(table_key: str, column: str) -> str:
    return f"run graph.indexes.rebuild({table_key!r}, {column!r})"


def index_problems(ground: Ground, kind: Kind, table: Table) -> Iterator[VerifyProblem]:
    """Every index of a table that the schema asks for and that is there."""
    there = segments_of(table)
    damaged = table.damaged_indexes()
    for spec in declared_indexes(kind):
        if spec.name not in there:
            continue
        if any(f"/{s.uuid}/" in path for s in there[spec.name] for path in ground.damaged):
            # Told as files that are not what was written.
            continue
        ground.problems.count(indexes=1)
        hint = rebuild_hint(kind.table_key, spec.column)
        named = f"the {spec.kind.name.lower()} index of {kind.name}.{spec.column}"
        if spec.name in damaged:
            yield VerifyProblem(
                ProblemCode.INDEX_UNREADABLE, f"{named} cannot be used: its files are damaged", hint
            )
            continue
        try:
            gap = _gap(table, spec)
        except OmniGraphError as error:
            yield VerifyProblem(
                ProblemCode.INDEX_UNREADABLE, f"{named} cannot be used: {error.message}", hint
            )
            continue
        if gap is not None:
            yield VerifyProblem(
                ProblemCode.INDEX_DISAGREES,
                f"{named} does not find {gap.missing} rows that are there, "
                f"and finds {gap.extra} that are not",
                hint,
            )


def _gap(table: Table, spec: IndexSpec) -> IndexGap | None:
    if spec.kind is IndexKind.EQUALITY:
        return equality_gap(table, spec.column)
    if spec.kind is IndexKind.TEXT:
        return _text_gap(table, spec.column)
    index = vector_index(table, spec.column)
    if index is None:
        return None
    metric = index.metric or spec.metric
    if index_facts(table)[spec.name].method.upper() == IndexKind.VECTOR.value:
        return vector_gap(table, spec.column, metric)
    # One that keeps codes of vectors misses some rows by its nature; a broken one misses most.
    found = measure_recall(table, replace(spec, metric=metric, probes=None))
    if found is None or found >= _BROKEN:
        return None
    return IndexGap(round((1.0 - found) * QUERIES * NEIGHBOURS), 0)


def _text_gap(table: Table, column: str) -> IndexGap | None:
    """A few words of the first rows, looked for by the index and in the texts that it covers."""
    index = text_index(table, column)
    if index is None:
        return None
    words = _some_words(table, column, index.covered)
    found = {word: text_hits(table, index, word) for word in words}
    there: dict[str, list[np.ndarray]] = {word: [] for word in words}
    for batch in column_batches(table, column, index.covered) if words else ():
        for word in words:
            mask = matches(batch[column], TextFunction.SEARCH, word)
            there[word].append(batch["_rowid"].to_numpy()[mask])
    missing = extra = 0
    for word, hits in found.items():
        if hits is None:
            continue
        rows = np.concatenate([np.empty(0, np.uint64), *there[word]])
        missing += len(np.setdiff1d(rows, hits.row_ids))
        extra += len(np.setdiff1d(hits.row_ids, rows))
    return IndexGap(missing, extra) if missing or extra else None


def _some_words(table: Table, column: str, covered: frozenset[int]) -> list[str]:
    words: dict[str, None] = {}
    for batch in column_batches(table, column, covered, limit=64):
        for text in batch[column].to_pylist():
            words.update(dict.fromkeys(split_words(text or "")))
            if len(words) >= _WORDS:
                return list(words)[:_WORDS]
    return list(words)
