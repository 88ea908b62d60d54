"""The rows of a node table that conditions keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from omnigraph.lang.query import typed
from omnigraph.lang.types import PropType, Scalar
from omnigraph.plan.arrow import filter_expression, pushable
from omnigraph.plan.nodes import NodeScan
from omnigraph.read.blocks import kept_rows
from omnigraph.read.frame import Frame, Mask
from omnigraph.read.sources import ID, NodeSource

if TYPE_CHECKING:
    from omnigraph.read.run import Run


def scan(run: Run, step: NodeScan, live: frozenset[str]) -> Frame:
    """The nodes of a type that all filters of a scan keep."""
    source = run.nodes(step.type_name)
    if source is None:
        return Frame(0, {step.variable: np.empty(0, np.int32)})
    pushed: list[typed.TypedExpr] = []
    others: list[typed.TypedExpr] = []
    for each in step.filters:
        (pushed if pushable(each) else others).append(each)
    is_asked_for = step.variable in live or bool(others)
    frame = _found(run, step, source, pushed, is_asked_for)
    for condition in others:
        frame = kept_rows(run, frame, condition)
    return frame


def direct(
    run: Run, step: NodeScan, columns: Sequence[str], limit: int | None = None
) -> Iterator[Frame] | None:
    """The rows of a scan with some of their columns, read in one go and not held.

    For a query that does nothing with a type but scan it, and only where the table is not in
    memory anyway: none otherwise.
    """
    source, filters = run.nodes(step.type_name), step.filters
    if source is None or any(map(is_key, filters)) or source.usual() is not None:
        return None
    if not all(map(pushable, filters)):
        return None
    pushed = filter_expression(typed.And(filters)) if filters else None
    names = list(dict.fromkeys([ID, *columns]))
    report = run.report(step)
    report.notes.append({"by": "storage", "pushed": len(filters)})

    def frames() -> Iterator[Frame]:
        for batch in source.table().scan(names, pushed, limit=limit):
            run.guard.check()
            report.rows += batch.num_rows
            report.bytes = max(report.bytes, batch.nbytes)
            report.storage = source.reads
            values = {(step.variable, name): batch.column(name) for name in names}
            yield Frame(batch.num_rows, values=values)

    return frames()


def _found(
    run: Run, step: NodeScan, source: NodeSource, filters: list[typed.TypedExpr], is_live: bool
) -> Frame:
    name = step.variable
    wanted = [each for each in filters if not is_key(each)]
    keys = [each for each in filters if is_key(each)]
    if keys:
        run.note({"by": "key"})
        return _by_key(run, name, source, keys, wanted)
    index = source.usual() if filters or is_live else source.cached_index()
    if index is not None and all(_is_cheap(source, each) for each in filters):
        run.note({"by": "memory"})
        frame = Frame(index.cache.rows, {name: index.numbers})
        for condition in filters:
            frame = kept_rows(run, frame, condition)
        return frame
    run.note({"by": "storage", "pushed": len(filters)})
    pushed = filter_expression(typed.And(tuple(filters))) if filters else None
    if not filters and not is_live:
        # Nobody asks which nodes these are.
        return Frame(1, weights=np.array([source.rows], np.int64)) if source.rows else Frame(0)
    if index is not None:
        rows = _column(run, source.table().scan([], pushed, row_ids=True), "_rowid", pa.uint64())
        return Frame(len(rows), {name: index.numbers_of_rows(rows.to_numpy())})
    texts = _column(run, source.table().scan([ID], pushed), ID, pa.string())
    return Frame(len(texts), {name: source.ids.numbers(texts)})


def _column(
    run: Run, batches: Iterator[pa.RecordBatch], name: str, type_: pa.DataType
) -> pa.ChunkedArray:
    """A column of rows that are read; a query can be ended between two batches."""
    return pa.chunked_array([batch[name] for batch in run.guard.between(batches)], type_)


def _is_cheap(source: NodeSource, condition: typed.TypedExpr) -> bool:
    """Whether the columns of a condition are in memory, or should be."""
    index = source.cached_index()
    assert index is not None
    names = {part.name for part in typed.walk(condition) if isinstance(part, typed.Column)}
    return all(
        name == ID or index.cache.has(name) or source.is_worth_caching(name, 0) for name in names
    )


# -- by key -----------------------------------------------------------------------------------


def is_key(condition: typed.TypedExpr) -> bool:
    """Whether a condition names the ids it wants."""
    match condition:
        case typed.Compare(
            op=typed.Relation.EQ, left=typed.Column(name="id"), right=typed.Constant(value=str())
        ):
            return True
        case typed.Membership(item=typed.Column(name="id"), options=typed.Constant(value=tuple())):
            return True
        case _:
            return False


def _named(condition: typed.TypedExpr) -> frozenset[str]:
    match condition:
        case typed.Compare(right=typed.Constant(value=str(text))):
            return frozenset({text})
        case typed.Membership(options=typed.Constant(value=tuple(texts))):
            return frozenset(text for text in texts if isinstance(text, str))
        case _:
            return frozenset()


def _by_key(
    run: Run,
    name: str,
    source: NodeSource,
    keys: Sequence[typed.TypedExpr],
    others: Sequence[typed.TypedExpr],
) -> Frame:
    """The few nodes that conditions name: from memory where held, else from the index."""
    texts = sorted(frozenset.intersection(*map(_named, keys)))
    index = source.usual(len(texts))
    if index is not None:
        numbers = index.ids.numbers_of(texts)
        there: Mask = index.positions(numbers) >= 0
        frame = Frame(len(numbers), {name: numbers}).where(there)
    else:
        wanted = typed.Membership(
            typed.Column(name, ID, typed.STRING),
            typed.Constant(tuple(texts), PropType(Scalar.STRING, is_list=True)),
        )
        rows = source.table().read([ID], filter_expression(wanted)) if texts else None
        found = np.empty(0, np.int32) if rows is None else source.ids.numbers(rows[ID])
        frame = Frame(len(found), {name: found})
    for condition in others:
        frame = kept_rows(run, frame, condition)
    return frame
