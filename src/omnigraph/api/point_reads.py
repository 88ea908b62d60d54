"""Queries as a server runs them: with the commit they include, and from memory where possible.

A look-up by key in a cached table takes less time than handing it to another thread. A server
answers it in its event loop, where nothing may be read, built or waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from omnigraph.api.handle import Handle, SnapshotContext
from omnigraph.api.query import columns_of, links_of, run_query
from omnigraph.lang.query import typed
from omnigraph.lang.query.params import convert_params
from omnigraph.lang.types import PropType, Scalar
from omnigraph.plan.nodes import NodeScan, ReadPlan
from omnigraph.plan.prepared import PreparedQuery
from omnigraph.read.limits import Limits, ResourceGuard
from omnigraph.read.sources import ID, table_id
from omnigraph.result.result import Result
from omnigraph.topology.nodes import NodeIndex


class NewestResult(NamedTuple):
    """The rows of a query on the newest state of a branch, and the commit that it includes."""

    result: Result
    commit_id: str | None


def query_newest(
    handle: Handle,
    find: Callable[[], SnapshotContext],
    source: str,
    name: str | None,
    params: Mapping[str, Any] | None,
    limits: Limits,
) -> NewestResult:
    """Run a query that reads in this process, on the state that ``find`` returns."""
    contexts: list[SnapshotContext] = []

    def resolve() -> SnapshotContext:
        contexts.append(find())
        return contexts[-1]

    result = run_query(handle, resolve, source, name, params, limits, "local", None)
    return NewestResult(result, _commit_of(contexts[-1]))


def find_in_memory(
    handle: Handle,
    branch: str,
    source: str,
    name: str | None,
    params: Mapping[str, Any] | None,
    limits: Limits,
) -> NewestResult | None:
    """The same for a look-up by key whose table is cached; ``None`` for anything else."""
    context = handle.read_in_memory(branch)
    if context is None or not context.view.is_whole:
        return None
    prepared = handle.plans.cached_read(context.catalog, source, name)
    if prepared is None:
        return None
    look_up = prepared.once("look_up", lambda _: _look_up(prepared))
    index = None if look_up is None else _cached_index(handle, context, look_up)
    if look_up is None or index is None:
        return None
    values = convert_params(prepared.plan.params, params)
    guard = ResourceGuard(limits)
    guard.check()
    result = _row_of(prepared, context, look_up, index, values, guard)
    return NewestResult(result, _commit_of(context))


def _commit_of(context: SnapshotContext) -> str | None:
    head = context.snapshot.head
    return None if head is None else head.commit_id


class _LookUp(NamedTuple):
    """A plan that looks up one node by its key: the type, and the columns that it returns."""

    type_name: str
    key: typed.Parameter | typed.Constant
    fields: tuple[str, ...]
    """The column of the table in each column of the result."""


def _cached_index(handle: Handle, context: SnapshotContext, look_up: _LookUp) -> NodeIndex | None:
    """The index of the table, if it and the columns are in memory."""
    pin = context.snapshot.pin(context.catalog.node_types[look_up.type_name].table_key)
    index = None if pin is None else handle.topology.get(table_id(pin), NodeIndex)
    is_cached = (
        index is not None
        and index.ids.is_hashed
        and all(field == ID or index.cache.has(field) for field in look_up.fields)
    )
    return index if is_cached else None


def _row_of(
    prepared: PreparedQuery,
    context: SnapshotContext,
    look_up: _LookUp,
    index: NodeIndex,
    values: Mapping[str, typed.Value],
    guard: ResourceGuard,
) -> Result:
    """The row of one node, as the engine returns it: the columns of the table at its position."""
    key = look_up.key.value if isinstance(look_up.key, typed.Constant) else values[look_up.key.name]
    assert isinstance(key, str)
    position, batches = index.position(key), list[pa.RecordBatch]()
    if position is not None:
        guard.check_rows(1)
        arrays = [
            pa.array([key]) if field == ID else index.cache.column(field).slice(position, 1)
            for field in look_up.fields
        ]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=prepared.info.schema))
    return Result(
        prepared.once("columns", columns_of),
        batches,
        query_name=prepared.plan.name,
        target=context.target,
        links=prepared.once("links", links_of),
        schema=prepared.info.schema,
    )


def _look_up(prepared: PreparedQuery) -> _LookUp | None:
    plan, info = prepared.ready, prepared.info
    if len(plan.pipeline) != 1 or not info.streams or info.has_search:
        return None
    (step,) = plan.pipeline
    if not isinstance(step, NodeScan) or len(step.filters) != 1:
        return None
    match step.filters[0]:
        # A null would not be looked up by the key.
        case typed.Compare(
            op=typed.Relation.EQ,
            left=typed.Column(name="id"),
            right=typed.Parameter(type=PropType(scalar=Scalar.STRING, nullable=False))
            | typed.Constant(value=str()) as key,
        ):
            fields = _fields(plan)
            return None if fields is None else _LookUp(step.type_name, key, fields)
        case _:
            return None


def _fields(plan: ReadPlan) -> tuple[str, ...] | None:
    """The columns of the table that a plan of one row returns, if it returns nothing else."""
    if plan.distinct or plan.offset or plan.limit == 0:
        return None
    names = []
    for column in plan.columns:
        match column.expr:
            case typed.Column(name=name):
                names.append(name)
            case typed.Entity():
                names.append(ID)
            case _:
                return None
    return tuple(names)
