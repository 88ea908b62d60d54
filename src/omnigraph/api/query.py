"""Running reads for the handle: a plan on a snapshot, as a ``Result``; explain and profile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from omnigraph.api.arguments import ENGINES
from omnigraph.commit.removed_snapshots import detect_removal
from omnigraph.commit.snapshot_leases import SnapshotLease
from omnigraph.errors import InputError
from omnigraph.escaping import escape
from omnigraph.lang.query import typed
from omnigraph.lang.query.checked import Direction
from omnigraph.plan.bind import bind
from omnigraph.plan.explain import explain_json, explain_text
from omnigraph.plan.nodes import (
    AntiJoin,
    Connect,
    Expand,
    MutationPlan,
    NodeScan,
    PlanStep,
    ReadPlan,
    RowFilter,
)
from omnigraph.plan.prepared import PreparedQuery
from omnigraph.read.context import QueryContext
from omnigraph.read.engine import execute
from omnigraph.read.estimate import estimates
from omnigraph.read.gate import GATE
from omnigraph.read.limits import Limits, ResourceGuard
from omnigraph.read.run import Run, StepReport
from omnigraph.read.strategy import TraversalMode, TraversalSettings
from omnigraph.result.result import EntityRef, Link, Result, ResultColumn
from omnigraph.settings import Settings

if TYPE_CHECKING:
    from omnigraph.spark.session.engine import SparkEngine
    from omnigraph.spark.session.resolve import SparkLike


class BoundQuery(NamedTuple):
    """A compiled read and the values of its parameters."""

    prepared: PreparedQuery
    values: Mapping[str, typed.Value]


class WarmSpark:
    """The Spark of a handle: what it started stays until the handle is closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: SparkEngine | None = None

    def open(self, spark: SparkLike) -> SparkEngine:
        """A handle of Spark for one query."""
        from omnigraph.spark.session.resolve import resolve_spark

        usual = Settings.from_environ().spark_options()
        with self._lock:
            if self._kept is not None and not self._kept.is_alive:
                self._kept.close()
                self._kept = None
            found = resolve_spark(spark, usual)
            if self._kept is None and found.owns:
                self._kept = resolve_spark(spark, usual)
            return found

    def close(self) -> None:
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()


def check_engine(engine: str) -> None:
    if engine not in ENGINES:
        raise InputError(f"'{engine}' is no query engine", hint=f"use one of {', '.join(ENGINES)}")


def run_query(
    context: QueryContext,
    query: BoundQuery,
    limits: Limits,
    target: Mapping[str, str],
    spark: SparkEngine | None = None,
) -> Result:
    """The rows of a plan. What is wrong with it shows now, not when rows are pulled.

    With a handle of Spark it runs there; the handle is closed with the result.
    """
    plan, info = query.prepared.bind(query.values), query.prepared.info
    guard = ResourceGuard(limits)
    lease = SnapshotLease(context.store.root.uri, context.snapshot)
    try:
        guard.check()
        if spark is None:
            batches = _lasting(context, execute(Run(context, guard, info), plan))
            with GATE:
                first = next(batches, None)
        else:
            from omnigraph.spark.query.run import execute_on_spark

            batches = _lasting(context, execute_on_spark(spark, context, plan, info, guard))
            first = next(batches, None)
    except BaseException:
        if spark is not None:
            spark.close()
        raise
    return Result(
        columns_of(plan),
        _again(first, batches, lease),
        query_name=plan.name,
        target=target,
        links=links_of(plan),
        close=None if spark is None else spark.close,
        schema=info.schema,
    )


def _lasting(context: QueryContext, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches; what cleanup removed under them is said as such."""
    with detect_removal(context.store, context.snapshot):
        yield from batches


def _again(
    first: pa.RecordBatch | None, rest: Iterator[pa.RecordBatch], lease: SnapshotLease
) -> Iterator[pa.RecordBatch]:
    """All batches; the snapshot that they come from is in use until the last."""
    if first is not None:
        yield first
    yield from rest


def columns_of(plan: ReadPlan) -> list[ResultColumn]:
    """The columns of a plan's result with what they hold."""
    return [ResultColumn(c.name, c.expr.type, _entity(c.expr)) for c in plan.columns]


def _entity(expr: typed.TypedExpr) -> EntityRef | None:
    if not isinstance(expr, typed.Entity):
        return None
    return EntityRef(expr.kind, expr.type_name, expr.variable)


def links_of(plan: ReadPlan) -> list[Link]:
    """Which returned nodes are joined by an edge of the pattern."""
    places = {
        column.expr.variable: place
        for place, column in enumerate(plan.columns)
        if isinstance(column.expr, typed.Entity)
    }
    found = []
    for step in plan.pipeline:
        if not isinstance(step, Expand | Connect) or not {step.src, step.dst} <= places.keys():
            continue
        ends = (step.src, step.dst) if step.direction is not Direction.IN else (step.dst, step.src)
        edge = None if step.edge_variable is None else places.get(step.edge_variable)
        found.append(Link(places[ends[0]], places[ends[1]], step.edge_type, edge))
    return found


def traversal_settings(settings: Settings) -> TraversalSettings:
    """From the environment; what makes no sense there is refused."""
    mode = settings.traversal_mode.lower()
    if mode not in ("", "auto", *TraversalMode):
        raise InputError(
            f"OMNIGRAPH_TRAVERSAL_MODE is '{settings.traversal_mode}'",
            hint="set it to indexed, csr or auto",
        )
    return TraversalSettings(
        TraversalMode(mode) if mode in tuple(TraversalMode) else None,
        _count("OMNIGRAPH_EXPAND_INDEXED_MAX_HOPS", settings.indexed_max_hops, 6),
        _count("OMNIGRAPH_EXPAND_INDEXED_MAX_FRONTIER", settings.indexed_max_frontier, 1024),
    )


def _count(variable: str, text: str, default: int) -> int:
    if not text:
        return default
    if not text.isdecimal():
        raise InputError(f"{variable} is '{text}'", hint="set it to a whole number")
    return int(text)


# -- explain and profile ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Explanation:
    """A plan to read: as text, or as plain data."""

    text: str
    data: Mapping[str, Any]

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> dict[str, Any]:
        return dict(self.data)


def explain_plan(context: QueryContext, compiled: PreparedQuery | MutationPlan) -> Explanation:
    """A plan, and what it would do on a snapshot; nothing runs."""
    if not isinstance(compiled, PreparedQuery):
        return Explanation(explain_text(compiled), explain_json(compiled))
    plan = compiled.plan
    with detect_removal(context.store, context.snapshot):
        expected = estimates(Run(context, ResourceGuard(Limits()), compiled.info), compiled.ready)
    lines = [explain_text(plan), "expected:", *(f"  {_facts(note)}" for note in expected)]
    return Explanation("\n".join(lines), {**explain_json(plan), "expected": expected})


def _facts(note: Mapping[str, Any]) -> str:
    shown = {key: value for key, value in note.items() if key not in ("step", "inner")}
    facts = ", ".join(
        f"{key} {escape(str(value))}" for key, value in shown.items() if value is not None
    )
    inner = "".join(f"\n    {_facts(each)}" for each in note.get("inner", ()))
    return f"{note['step']}: {facts}{inner}" if "step" in note else facts


def profile_plan(context: QueryContext, query: BoundQuery, limits: Limits) -> Explanation:
    """Run a plan to its end, and say what each step did."""
    plan, shown = query.prepared.bind(query.values), bind(query.prepared.plan, query.values)
    guard = ResourceGuard(limits)
    run = Run(context, guard, query.prepared.info, profiled=True)
    start = time.perf_counter()
    rows = size = 0
    for batch in _lasting(context, execute(run, plan)):
        rows, size = rows + batch.num_rows, size + batch.nbytes
    seconds = time.perf_counter() - start
    steps = _in_order(plan.pipeline, run.reports)
    # What is left of the time went into order, groups and the values that are returned.
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


def _in_order(pipeline: Sequence[PlanStep], reports: Sequence[StepReport]) -> list[StepReport]:
    known = {id(report.step): report for report in reports}
    return [known.get(id(step)) or StepReport(step) for step in pipeline]


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
        case RowFilter():
            return "filter"
        case _:
            return type(step).__name__.lower()
