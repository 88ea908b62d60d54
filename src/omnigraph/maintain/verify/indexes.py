"""Indexes against rows: a search by index has to find what a scan finds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from omnigraph.errors import OmniGraphError
from omnigraph.lang.query.typed import TextFunction
from omnigraph.lang.schema.catalog import EntityType
from omnigraph.maintain.optimize.indexes import declared_indexes
from omnigraph.maintain.optimize.vector_indexes import NEIGHBOURS, QUERIES, measure_recall
from omnigraph.maintain.verify.context import VerifyContext
from omnigraph.maintain.verify.report import ProblemCode, VerifyProblem
from omnigraph.read.search.analyser import split_words
from omnigraph.read.search.text import matches
from omnigraph.storage.tables.search import column_batches, text_hits, text_index, vector_index
from omnigraph.storage.tables.segments import index_facts, segments_of
from omnigraph.storage.tables.table import Table
from omnigraph.storage.tables.types import IndexKind, IndexSpec
from omnigraph.storage.tables.verification import IndexGap, equality_gap, vector_gap

_WORDS = 3
_BROKEN = 0.5


def rebuild_hint(table_key: str, column: str) -> str:
    return f"run graph.indexes.rebuild({table_key!r}, {column!r})"


def index_problems(
    context: VerifyContext, entity_type: EntityType, table: Table
) -> Iterator[VerifyProblem]:
    """The problems of every declared and existing index of a table."""
    existing = segments_of(table)
    damaged = table.damaged_indexes()
    for spec in declared_indexes(entity_type):
        if spec.name not in existing:
            continue
        if any(f"/{s.uuid}/" in path for s in existing[spec.name] for path in context.damaged):
            # Reported as damaged files.
            continue
        context.problems.count(indexes=1)
        hint = rebuild_hint(entity_type.table_key, spec.column)
        name = f"the {spec.kind.name.lower()} index of {entity_type.name}.{spec.column}"
        if spec.name in damaged:
            yield VerifyProblem(
                ProblemCode.INDEX_UNREADABLE, f"{name} cannot be used: its files are damaged", hint
            )
            continue
        try:
            gap = _gap(table, spec)
        except OmniGraphError as error:
            yield VerifyProblem(
                ProblemCode.INDEX_UNREADABLE, f"{name} cannot be used: {error.message}", hint
            )
            continue
        if gap is not None:
            yield VerifyProblem(
                ProblemCode.INDEX_DISAGREES,
                f"{name} misses {gap.missing} rows, and finds {gap.extra} that do not match",
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
    # An index of encoded vectors misses some rows by design; a broken one misses most.
    recall = measure_recall(table, replace(spec, metric=metric, probes=None))
    if recall is None or recall >= _BROKEN:
        return None
    return IndexGap(round((1.0 - recall) * QUERIES * NEIGHBOURS), 0)


def _text_gap(table: Table, column: str) -> IndexGap | None:
    """Search some words of the first rows, by the index and by scanning the covered texts."""
    index = text_index(table, column)
    if index is None:
        return None
    words = _some_words(table, column, index.covered)
    by_index = {word: text_hits(table, index, word) for word in words}
    by_scan: dict[str, list[np.ndarray]] = {word: [] for word in words}
    for batch in column_batches(table, column, index.covered) if words else ():
        for word in words:
            mask = matches(batch[column], TextFunction.SEARCH, word)
            by_scan[word].append(batch["_rowid"].to_numpy()[mask])
    missing = extra = 0
    for word, hits in by_index.items():
        if hits is None:
            continue
        rows = np.concatenate([np.empty(0, np.uint64), *by_scan[word]])
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
