"""Queries as a server runs them: with the commit they include, and from memory where possible.

A look-up by key in a cached table takes less time than handing it to another thread. A server
answers it in its event loop, where nothing may be read, built or waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from omnigraph.api.handle import Handle, SnapshotContext
from omnigraph.api.query import first_rows, run_query
from omnigraph.lang.query import typed
from omnigraph.lang.types import PropType, Scalar
from omnigraph.plan.nodes import NodeScan
from omnigraph.plan.prepared import PreparedQuery
from omnigraph.read.gate import GATE
from omnigraph.read.limits import Limits
from omnigraph.read.sources import ID, table_id
from omnigraph.read.values import columns_read
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
    if prepared is None or not _is_cached(handle, context, prepared) or not GATE.enter_now():
        return None
    try:
        result = first_rows(handle, context, lambda *_: prepared, params, limits, None)
        return NewestResult(result, _commit_of(context))
    finally:
        GATE.__exit__()


def _commit_of(context: SnapshotContext) -> str | None:
    head = context.snapshot.head
    return None if head is None else head.commit_id


class _LookUp(NamedTuple):
    """A plan that looks up one node by its key: the type, and the columns that it returns."""

    type_name: str
    columns: frozenset[str]
    returns_id: bool


def _is_cached(handle: Handle, context: SnapshotContext, prepared: PreparedQuery) -> bool:
    """Whether a plan is a look-up whose table and columns are in memory."""
    look_up = prepared.once("look_up", lambda _: _look_up(prepared))
    if look_up is None:
        return False
    pin = context.snapshot.pin(context.catalog.node_types[look_up.type_name].table_key)
    index = None if pin is None else handle.topology.get(table_id(pin), NodeIndex)
    return (
        index is not None
        and index.ids.is_hashed
        and (index.ids.is_joined or not look_up.returns_id)
        and all(map(index.cache.has, look_up.columns))
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
            | typed.Constant(value=str()),
        ):
            read = {name for column in plan.columns for _, name in columns_read(column.expr)}
            return _LookUp(step.type_name, frozenset(read - {ID}), ID in read)
        case _:
            return None
