"""Runs, explains and profiles queries on a snapshot."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.api.engines import Engine, SparkLike, runs_on_spark
from omnigraph.api.handle import Handle, SnapshotContext
from omnigraph.commit.store import check_not_removed, detect_removal
from omnigraph.errors import PolicyDenied, StorageMissing
from omnigraph.escaping import escape
from omnigraph.lang.query import typed
from omnigraph.lang.query.checked import Direction
from omnigraph.lang.query.params import convert_params
from omnigraph.plan.bind import bind
from omnigraph.plan.nodes import (
    Connect,
    Expand,
    Intersect,
    Pipeline,
    PlanStep,
    ReadPlan,
    Total,
)
from omnigraph.plan.prepared import PreparedQuery
from omnigraph.plan.statistics import TableFacts, TableStatistics, table_keys
from omnigraph.plan.view import View
from omnigraph.read.context import QueryContext
from omnigraph.read.engine import execute
from omnigraph.read.gate import GATE
from omnigraph.read.limits import Limits, ResourceGuard
from omnigraph.read.run import Run, StepReport
from omnigraph.records import dataclass
from omnigraph.result.result import EntityRef, Link, Result, ResultColumn

if TYPE_CHECKING:
    from omnigraph.lang.schema.catalog import Catalog
    from omnigraph.plan.estimator import StepEstimate
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

    def compiled(catalog: Catalog, view: View) -> PreparedQuery:
        return handle.plans.read(catalog, handle.source(source, "<query>"), name, view)

    if runs_on_spark(engine, spark):
        context = resolve()
        check_whole_on_spark(context)
        return first_rows(handle, context, compiled, params, limits, handle.spark.open(spark))
    return run_prepared(handle, resolve, compiled, params, limits)


def check_whole_on_spark(context: SnapshotContext) -> None:
    """Refuse to read on Spark for an actor who sees only a part of the graph."""
    if not context.view.is_whole:
        raise PolicyDenied(
            "the policy shows only a part of the graph, and Spark reads all of it",
            hint="leave out engine and spark, so that the query runs in this process",
        )


def run_prepared(
    handle: Handle,
    resolve: Callable[[], SnapshotContext],
    compiled: Callable[[Catalog, View], PreparedQuery],
    params: Mapping[str, Any] | None,
    limits: Limits,
) -> Result:
    """The rows of a query, computed in this process.

    ``compiled`` is the query under a schema and a view.
    """
    # A remote state is resolved before the gate, so that no query holds it during network I/O.
    remote = None if handle.store.root.is_local else resolve()
    with GATE:
        context = remote or resolve()
        return first_rows(handle, context, compiled, params, limits, None)


def first_rows(
    handle: Handle,
    context: SnapshotContext,
    compiled: Callable[[Catalog, View], PreparedQuery],
    params: Mapping[str, Any] | None,
    limits: Limits,
    spark: SparkEngine | None,
    change: Callable[[ReadPlan], ReadPlan] | None = None,
    batch_rows: int | None = None,
) -> Result:
    """A result whose first batch has been computed; ``change`` is made to the bound plan."""
    try:
        prepared = _in_order(handle, compiled(context.catalog, context.view), context)
        plan = prepared.bind(convert_params(prepared.plan.params, params))
        if change is not None:
            plan = change(plan)
        guard = ResourceGuard(limits)
        guard.check()
        inputs = handle.query_context(context)
        if spark is None:
            if prepared.was_large:
                GATE.continue_as_large()
            run = Run(inputs, guard, prepared.info)
            run.batch_rows = batch_rows
            rows = execute(run, plan)
        else:
            from omnigraph.spark.query.run import execute_on_spark

            rows = execute_on_spark(spark, inputs, plan, prepared.info, guard)
        batches = _detecting_removal(inputs, rows)
        first = next(batches, None)
        if spark is None:
            prepared.note_size(is_large=run.is_large)
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
    text = handle.source(source, "<query>")
    prepared = handle.plans.read(context.catalog, text, name, context.view)
    return _in_order(handle, prepared, context)


def _in_order(handle: Handle, prepared: PreparedQuery, context: SnapshotContext) -> PreparedQuery:
    if len(prepared.ready.pipeline) < 2:
        return prepared
    catalog, info, pins = context.catalog, prepared.info, context.snapshot.pins
    facts = handle.topology.facts
    key: list[int] = []
    for table_key in prepared.once(
        "tables", lambda _: table_keys(catalog, info.node_types, info.traversed)
    ):
        pin = pins.get(table_key)
        # Numbers of rows are rounded to their bits; facts are never changed.
        key += (0, 0) if pin is None else (pin.row_count.bit_length(), id(facts(pin.location)))
    return prepared.ordered(catalog, tuple(key), lambda: _statistics(handle, prepared, context))


def _statistics(
    handle: Handle,
    prepared: PreparedQuery,
    context: SnapshotContext,
    magnitude: Callable[[int], float] | None = None,
) -> TableStatistics:
    """What is known about the tables of a query."""
    pins, topology, info = context.snapshot.pins, handle.topology, prepared.info

    def rows(table_key: str) -> int:
        pin = pins.get(table_key)
        return 0 if pin is None else pin.row_count

    def facts(table_key: str) -> TableFacts | None:
        pin = pins.get(table_key)
        return None if pin is None else topology.facts(pin.location)

    return TableStatistics.of(
        context.catalog, info.node_types, info.traversed, rows, facts, magnitude
    )


def _detecting_removal(
    inputs: QueryContext, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The same batches; raises ``HistoryGone`` if cleanup has removed their files."""
    try:
        yield from batches
    except StorageMissing:
        check_not_removed(inputs.store, inputs.snapshot)
        raise


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
    handle: Handle,
    context: SnapshotContext,
    source: str | PathLike[str],
    name: str | None,
    *,
    counts: bool = False,
) -> Explanation:
    """A plan, with estimates for a snapshot; the query is not run.

    Estimates count hidden rows: an actor who sees only a part of the graph gets them only with
    ``counts``, which is for those who may administer it.
    """
    from omnigraph.plan.explain import explain_json, explain_text
    from omnigraph.read.estimate import expectations

    text = handle.source(source, "<query>")
    compiled = handle.plans.any(context.catalog, text, name, context.view)
    inputs = handle.query_context(context)
    if not isinstance(compiled, PreparedQuery):
        return Explanation(explain_text(compiled), explain_json(compiled))
    compiled = _in_order(handle, compiled, context)
    plan = compiled.plan
    if not (context.view.is_whole or counts):
        return Explanation(explain_text(plan), explain_json(plan))
    with detect_removal(inputs.store, inputs.snapshot):
        run = Run(inputs, ResourceGuard(Limits()), compiled.info)
        expected = expectations(run, compiled.ready, _expected(handle, compiled, context))
    measured = _statistics(handle, compiled, context).measured()
    lines = [explain_text(plan), "expected:", *_note_lines(expected, "  ")]
    if measured:
        lines += ["statistics:", *(f"  {name}: {_facts(measured[name])}" for name in measured)]
    data = {**explain_json(plan), "expected": expected, "statistics": measured}
    return Explanation("\n".join(lines), data)


def _expected(
    handle: Handle, prepared: PreparedQuery, context: SnapshotContext
) -> tuple[StepEstimate, ...]:
    """The rows that the planner expects, for the exact sizes of the tables."""
    from omnigraph.plan.estimator import estimate_plan

    return estimate_plan(prepared.plan, _statistics(handle, prepared, context, float))


def _note_lines(notes: Iterable[Mapping[str, Any]], pad: str) -> Iterator[str]:
    for note in notes:
        facts = _facts({key: value for key, value in note.items() if key not in ("step", "inner")})
        yield f"{pad}{note['step']}: {facts}" if "step" in note else f"{pad}{facts}"
        yield from _note_lines(note.get("inner", ()), pad + "  ")


def _facts(note: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {escape(str(v))}" for key, v in note.items() if v is not None)


def profile_query(
    handle: Handle,
    context: SnapshotContext,
    source: str | PathLike[str],
    name: str | None,
    params: Mapping[str, Any] | None,
    limits: Limits,
    *,
    counts: bool = False,
) -> Explanation:
    """Run a query to its end, and report the rows, time and reads of each step.

    The steps of an actor who sees only a part of the graph are reported only with ``counts``: some
    of their numbers count hidden rows.
    """
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
    lines = [explain_text(shown), f"profile: {rows} rows in {seconds * 1000:.3f} ms"]
    data = {**explain_json(shown), "rows": rows, "milliseconds": round(seconds * 1000, 3)}
    if not (context.view.is_whole or counts):
        return Explanation("\n".join(lines), data)
    by_step = {id(report.step): report for report in run.reports}
    steps = [by_step.get(id(step)) or StepReport(step) for step in plan.pipeline]
    # The remaining time was spent on sorting, grouping and reading the returned values.
    left = seconds - sum(report.seconds for report in steps)
    reads = run.reads() - sum(report.storage for report in steps)
    after = StepReport(None, rows, max(left, 0.0), size, reads)
    expected = _expected(handle, prepared, context)
    reports = [*_report_notes(plan.pipeline, expected, by_step), _report_json(after)]
    data = {
        **explain_json(shown),
        "profile": reports,
        "rows": rows,
        "milliseconds": round(seconds * 1000, 3),
        "peak_bytes": guard.peak,
    }
    return Explanation("\n".join([*lines, *_report_lines(reports, "  ")]), data)


def _report_notes(
    steps: Pipeline, expected: Sequence[StepEstimate], by_step: Mapping[int, StepReport]
) -> Iterator[dict[str, Any]]:
    """The report of each step, with the rows that were expected, and of the steps inside it."""
    for step, estimate in zip(steps, expected, strict=True):
        note = _report_json(by_step.get(id(step)) or StepReport(step), round(estimate.rows))
        inner = list(_report_notes(step.inner_steps(), estimate.inner, by_step))
        if isinstance(step, Total):
            # A term is not a step of its own; its rows are those of its last step.
            inner = [{"step": note["step"], "inner": note["inner"]} for note in inner]
        yield {**note, "inner": inner} if inner else note


def _report_json(report: StepReport, expected: int | None = None) -> dict[str, Any]:
    from omnigraph.plan.explain import step_name

    return {
        "step": "return" if report.step is None else step_name(report.step),
        "rows": report.rows,
        "expected": expected,
        "milliseconds": round(report.seconds * 1000, 3),
        "bytes": report.bytes,
        "storage_operations": report.storage,
        "notes": [dict(note) for note in report.notes],
    }


def _report_lines(reports: Iterable[Mapping[str, Any]], pad: str) -> Iterator[str]:
    for report in reports:
        text = f"{pad}{report['step']}"
        if "rows" in report:
            expected = "" if report["expected"] is None else f"expected {report['expected']}, "
            text += (
                f": {report['rows']} rows, {expected}{report['milliseconds']:.3f} ms, "
                f"{report['bytes']} bytes, {report['storage_operations']} storage operations"
            )
            notes = "; ".join(map(_facts, report["notes"]))
            text += f" ({notes})" if notes else ""
        yield text
        yield from _report_lines(report.get("inner", ()), pad + "  ")
