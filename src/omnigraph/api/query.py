"""Runs, explains and profiles queries on a snapshot."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.api.engines import Engine, SparkLike, runs_on_spark
from omnigraph.api.handle import Handle, SnapshotContext
from omnigraph.commit.store import detect_removal
from omnigraph.escaping import escape
from omnigraph.lang.query import typed
from omnigraph.lang.query.checked import Direction
from omnigraph.lang.query.params import convert_params
from omnigraph.plan.bind import bind
from omnigraph.plan.nodes import (
    AntiJoin,
    Connect,
    Expand,
    Intersect,
    NodeScan,
    PlanStep,
    ReadPlan,
    RowFilter,
    Total,
    Weigh,
)
from omnigraph.plan.prepared import PreparedQuery
from omnigraph.read.context import QueryContext
from omnigraph.read.engine import execute
from omnigraph.read.gate import GATE
from omnigraph.read.limits import Limits, ResourceGuard
from omnigraph.read.run import Run, StepReport
from omnigraph.records import dataclass
from omnigraph.result.result import EntityRef, Link, Result, ResultColumn

if TYPE_CHECKING:
    from omnigraph.lang.schema.catalog import Catalog
    from omnigraph.spark.session.engine import SparkEngine


def run_query(
    handle: Handle,
    resolve: Callable[[], SnapshotContext],
    source: str | PathLike[str],
    name: str | None,
    params: Mapping[str, Any] | None,
    limits: Limits,
    engine: Engine,
    spark: SparkLike,
) -> Result:
    """The rows of a query on the state that ``resolve`` returns.

    Errors are raised here, not when rows are read. A query in this process passes the gate for
    small queries; a query on Spark does not, and its engine is closed with the result.
    """

    def compiled(catalog: Catalog) -> PreparedQuery:
        return handle.plans.read(catalog, handle.source(source, "<query>"), name)

    if runs_on_spark(engine, spark):
        context = resolve()
        return _first_rows(handle, context, compiled, params, limits, handle.spark.open(spark))
    return run_prepared(handle, resolve, compiled, params, limits)


def run_prepared(
    handle: Handle,
    resolve: Callable[[], SnapshotContext],
    compiled: Callable[[Catalog], PreparedQuery],
    params: Mapping[str, Any] | None,
    limits: Limits,
) -> Result:
    """The rows of a query, computed in this process; ``compiled`` is the query under a schema."""
    # A remote state is resolved before the gate, so that no query holds it during network I/O.
    remote = None if handle.store.root.is_local else resolve()
    with GATE:
        context = remote or resolve()
        return _first_rows(handle, context, compiled, params, limits, None)


def _first_rows(
    handle: Handle,
    context: SnapshotContext,
    compiled: Callable[[Catalog], PreparedQuery],
    params: Mapping[str, Any] | None,
    limits: Limits,
    spark: SparkEngine | None,
) -> Result:
    """A result whose first batch has been computed."""
    try:
        prepared = _in_order(compiled(context.catalog), context)
        plan = prepared.bind(convert_params(prepared.plan.params, params))
        guard = ResourceGuard(limits)
        guard.check()
        inputs = handle.query_context(context)
        if spark is None:
            rows = execute(Run(inputs, guard, prepared.info), plan)
        else:
            from omnigraph.spark.query.run import execute_on_spark

            rows = execute_on_spark(spark, inputs, plan, prepared.info, guard)
        batches = _detecting_removal(inputs, rows)
        first = next(batches, None)
    except BaseException:
        if spark is not None:
            spark.close()
        raise
    return Result(
        prepared.once("columns", columns_of),
        _joined(first, batches, context),
        query_name=plan.name,
        target=context.target,
        links=prepared.once("links", links_of),
        close=None if spark is None else spark.close,
        schema=prepared.info.schema,
    )


def _prepared(
    handle: Handle, context: SnapshotContext, source: str | PathLike[str], name: str | None
) -> PreparedQuery:
    """A compiled read with its steps in the order for a snapshot."""
    prepared = handle.plans.read(context.catalog, handle.source(source, "<query>"), name)
    return _in_order(prepared, context)


def _in_order(prepared: PreparedQuery, context: SnapshotContext) -> PreparedQuery:
    pins = context.snapshot.pins

    def rows(table_key: str) -> int:
        pin = pins.get(table_key)
        return 0 if pin is None else pin.row_count

    return prepared.ordered(context.catalog, rows)


def _detecting_removal(
    inputs: QueryContext, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The same batches; raises ``HistoryGone`` if cleanup has removed their files."""
    with detect_removal(inputs.store, inputs.snapshot):
        yield from batches


def _joined(
    first: pa.RecordBatch | None, rest: Iterator[pa.RecordBatch], context: SnapshotContext
) -> Iterator[pa.RecordBatch]:
    """All batches; holding the context protects the snapshot from cleanup until the end."""
    if first is not None:
        yield first
    yield from rest


def columns_of(plan: ReadPlan) -> list[ResultColumn]:
    """The columns of a plan's result, with their types and entities."""
    columns = []
    for column in plan.columns:
        expr, entity = column.expr, None
        if isinstance(expr, typed.Entity):
            entity = EntityRef(expr.kind, expr.type_name, expr.variable)
        columns.append(ResultColumn(column.name, expr.type, entity))
    return columns


def links_of(plan: ReadPlan) -> list[Link]:
    """The pairs of returned nodes that an edge of the pattern joins."""
    positions = {
        column.expr.variable: position
        for position, column in enumerate(plan.columns)
        if isinstance(column.expr, typed.Entity)
    }
    links = []
    joins = [
        join
        for step in plan.pipeline
        for join in (_joins(step) if isinstance(step, Intersect) else (step,))
    ]
    for step in joins:
        if not isinstance(step, Expand | Connect) or not {step.src, step.dst} <= positions.keys():
            continue
        ends = (step.src, step.dst) if step.direction is not Direction.IN else (step.dst, step.src)
        edge = None if step.edge_variable is None else positions.get(step.edge_variable)
        links.append(Link(positions[ends[0]], positions[ends[1]], step.edge_type, edge))
    return links


def _joins(step: Intersect) -> list[PlanStep]:
    first, others = step.as_joins()
    return [first, *others]


# -- explain and profile ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Explanation:
    """A query plan, as text or as plain data."""

    text: str
    data: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"<Explanation {self.text.partition(chr(10))[0]}>"

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        from html import escape as escape_html

        return f"<pre>{escape_html(self.text)}</pre>"

    def to_json(self) -> dict[str, Any]:
        return dict(self.data)


def explain_query(
    handle: Handle, context: SnapshotContext, source: str | PathLike[str], name: str | None
) -> Explanation:
    """A plan, with estimates for a snapshot; the query is not run."""
    from omnigraph.plan.explain import explain_json, explain_text
    from omnigraph.read.estimate import estimates

    compiled = handle.plans.any(context.catalog, handle.source(source, "<query>"), name)
    inputs = handle.query_context(context)
    if not isinstance(compiled, PreparedQuery):
        return Explanation(explain_text(compiled), explain_json(compiled))
    compiled = _in_order(compiled, context)
    plan = compiled.plan
    with detect_removal(inputs.store, inputs.snapshot):
        expected = estimates(Run(inputs, ResourceGuard(Limits()), compiled.info), compiled.ready)
    lines = [explain_text(plan), "expected:", *(f"  {_facts(note)}" for note in expected)]
    return Explanation("\n".join(lines), {**explain_json(plan), "expected": expected})


def _facts(note: Mapping[str, Any]) -> str:
    shown = {key: value for key, value in note.items() if key not in ("step", "inner")}
    facts = ", ".join(
        f"{key} {escape(str(value))}" for key, value in shown.items() if value is not None
    )
    inner = "".join(f"\n    {_facts(inner_note)}" for inner_note in note.get("inner", ()))
    return f"{note['step']}: {facts}{inner}" if "step" in note else facts


def profile_query(
    handle: Handle,
    context: SnapshotContext,
    source: str | PathLike[str],
    name: str | None,
    params: Mapping[str, Any] | None,
    limits: Limits,
) -> Explanation:
    """Run a query to its end, and report the rows, time and reads of each step."""
    from omnigraph.plan.explain import explain_json, explain_text

    prepared = _prepared(handle, context, source, name)
    inputs = handle.query_context(context)
    values = convert_params(prepared.plan.params, params)
    plan, shown = prepared.bind(values), bind(prepared.plan, values)
    guard = ResourceGuard(limits)
    run = Run(inputs, guard, prepared.info, profiled=True)
    start = time.perf_counter()
    rows = size = 0
    for batch in _detecting_removal(inputs, execute(run, plan)):
        rows, size = rows + batch.num_rows, size + batch.nbytes
    seconds = time.perf_counter() - start
    by_step = {id(report.step): report for report in run.reports}
    steps = [by_step.get(id(step)) or StepReport(step) for step in plan.pipeline]
    # The remaining time was spent on sorting, grouping and reading the returned values.
    left = seconds - sum(report.seconds for report in steps)
    reads = run.reads() - sum(report.storage for report in steps)
    steps.append(StepReport(None, rows, max(left, 0.0), size, reads))
    data = {
        **explain_json(shown),
        "profile": [_report_json(report) for report in steps],
        "rows": rows,
        "milliseconds": round(seconds * 1000, 3),
        "peak_bytes": guard.peak,
    }
    lines = [explain_text(shown), f"profile: {rows} rows in {seconds * 1000:.3f} ms"]
    lines += [f"  {_report_text(report)}" for report in steps]
    return Explanation("\n".join(lines), data)


def _report_json(report: StepReport) -> dict[str, Any]:
    return {
        "step": _name(report.step),
        "rows": report.rows,
        "milliseconds": round(report.seconds * 1000, 3),
        "bytes": report.bytes,
        "storage_operations": report.storage,
        "notes": [dict(note) for note in report.notes],
    }


def _report_text(report: StepReport) -> str:
    notes = "; ".join(map(_facts, report.notes))
    text = (
        f"{_name(report.step)}: {report.rows} rows, {report.seconds * 1000:.3f} ms, "
        f"{report.bytes} bytes, {report.storage} storage operations"
    )
    return f"{text} ({notes})" if notes else text


def _name(step: PlanStep | None) -> str:
    match step:
        case None:
            return "return"
        case NodeScan():
            return f"scan ${step.variable}"
        case Expand() | Connect():
            return f"{type(step).__name__.lower()} ${step.src} to ${step.dst}"
        case AntiJoin():
            return "without"
        case Intersect():
            return f"intersect ${step.dst}"
        case Total():
            return "total"
        case Weigh():
            return f"count for ${step.variable}"
        case RowFilter():
            return "filter"
        case _:
            return type(step).__name__.lower()
