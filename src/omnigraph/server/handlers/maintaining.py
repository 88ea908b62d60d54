"""Maintenance: optimize, cleanup, repair, verify, indexes and embeddings; the long ones as jobs.

What can be refused before the work, such as an unknown branch, is refused by the request itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import msgspec

from omnigraph.api.row_access import require_whole_view
from omnigraph.errors import InputError
from omnigraph.maintain.cleanup.retention import cleanup_policy
from omnigraph.server.calls import Call, Reply
from omnigraph.server.handlers.jobs import run_on_spark, runs_on_spark, start_job
from omnigraph.server.handlers.reading import MAIN
from omnigraph.server.jobs.process_work import FillWork, OptimizeWork
from omnigraph.server.jobs.running import RunningJob
from omnigraph.server.models.jobs import (
    CleanupRequest,
    FillRequest,
    OptimizeRequest,
    RebuildIndexesRequest,
    RepairRequest,
    ReportOutput,
    VerifyRequest,
)

_THREADS = 4


def authorize_branch(call: Call) -> None:
    """Maintenance of a branch needs ``admin`` on it."""
    given = call.query if call.body is None else call.body
    call.require("admin", given.branch or MAIN)


def authorize_verify(call: Call) -> None:
    """Verifying one branch, or all of them."""
    call.require("admin", call.body.branch)


def authorize_fill(call: Call) -> None:
    """Embeddings change rows: besides ``admin`` they need ``change``."""
    branch = call.body.branch or MAIN
    call.require("admin", branch)
    call.require("change", branch)


# -- reports -----------------------------------------------------------------------------------


def index_status(call: Call) -> Reply:
    """The indexes of a branch."""
    branch, measure = call.query.branch or MAIN, call.query.measure_recall
    return _report(call.graph.indexes.status(branch, measure_recall=measure))


def embedding_status(call: Call) -> Reply:
    """How many rows have vectors."""
    return _report(call.graph.embeddings.status(call.query.branch or MAIN))


def doctor(call: Call) -> Reply:
    """The health of the graph on one page."""
    report = call.graph.maintenance.doctor(call.query.branch or MAIN)
    own, shown = report.uri, f"/graphs/{call.graph_id}"
    advice = tuple(
        replace(item, command=item.command.replace(own, shown)) for item in report.advice
    )
    return _report(replace(report, uri=shown, advice=advice))


def _report(report: Any) -> Reply:
    return Reply.json(ReportOutput(msgspec.to_builtins(report)))


# -- jobs --------------------------------------------------------------------------------------


def optimize(call: Call) -> Reply:
    """Compact a branch, and complete its indexes."""
    request: OptimizeRequest = call.body
    branch = _checked(call, request.branch)
    is_on_spark = runs_on_spark(request.engine)

    def work(job: RunningJob) -> Any:
        if is_on_spark:
            return run_on_spark(call, job, OptimizeWork(branch, request.if_needed))
        return call.graph.maintenance.optimize(
            branch,
            engine="local",
            if_needed=request.if_needed,
            on_progress=job.on_progress,
        )

    return start_job(call, "optimize", branch, _options(request), work)


def cleanup(call: Call) -> Reply:
    """Remove old versions."""
    request: CleanupRequest = call.body
    limits = request.min_age, request.feed_retention
    cleanup_policy(request.keep_versions, request.older_than, *limits)
    handle = call.graph._handle
    require_whole_view(handle, call.actor, "admin", None, handle.accepted().catalog)

    def work(job: RunningJob) -> Any:
        return call.graph.maintenance.cleanup(
            request.keep_versions,
            request.older_than,
            dry_run=request.dry_run,
            min_age=request.min_age,
            feed_retention=request.feed_retention,
            on_progress=job.on_progress,
        )

    return start_job(call, "cleanup", None, _options(request), work)


def repair(call: Call) -> Reply:
    """Find, or adopt, versions that were written outside of the graph."""
    request: RepairRequest = call.body
    if request.force and not request.confirm:
        raise InputError("force needs confirm", hint="pass confirm too")
    branch = _checked(call, request.branch)

    def work(job: RunningJob) -> Any:
        return call.graph.maintenance.repair(branch, confirm=request.confirm, force=request.force)

    return start_job(call, "repair", branch, _options(request), work)


def verify(call: Call) -> Reply:
    """Check the integrity of the graph."""
    request: VerifyRequest = call.body
    if request.branch is not None:
        _checked(call, request.branch)

    def work(job: RunningJob) -> Any:
        return call.graph.maintenance.verify(
            request.branch, checksums=request.checksums, on_progress=job.on_progress
        )

    return start_job(call, "verify", request.branch, _options(request), work)


def ensure_indexes(call: Call) -> Reply:
    """Build the missing indexes."""
    branch = _checked(call, call.body.branch)

    def work(job: RunningJob) -> Any:
        return call.graph.indexes.ensure(branch)

    return start_job(call, "index_ensure", branch, {}, work)


def rebuild_indexes(call: Call) -> Reply:
    """Build indexes again."""
    request: RebuildIndexesRequest = call.body
    branch = _checked(call, request.branch)

    def work(job: RunningJob) -> Any:
        return call.graph.indexes.rebuild(request.type, request.column, branch=branch)

    return start_job(call, "index_rebuild", branch, _options(request), work)


def fill_embeddings(call: Call) -> Reply:
    """Embed the texts of rows without a vector."""
    request: FillRequest = call.body
    branch = _checked(call, request.branch)
    is_on_spark = runs_on_spark(request.engine)
    options: dict[str, Any] = {
        "again": request.again,
        "threads": request.threads or _THREADS,
        "commit_rows": request.commit_rows,
        "max_rows": request.max_rows,
        "max_failures": request.max_failures,
    }

    def work(job: RunningJob) -> Any:
        if is_on_spark:
            spread = FillWork(request.types, request.properties, branch, options)
            return run_on_spark(call, job, spread)
        return call.graph.embeddings.fill(
            request.types,
            request.properties,
            branch,
            **options,
            engine="local",
            cancel=job.cancel,
            on_progress=job.on_progress,
        )

    return start_job(call, "embeddings_fill", branch, _options(request), work)


def _checked(call: Call, branch: str | None) -> str:
    """A branch that exists, and of which the actor sees everything."""
    name = branch or MAIN
    snapshot = call.graph.snapshot(name)
    require_whole_view(call.graph._handle, call.actor, "admin", name, snapshot.catalog)
    return name


def _options(request: msgspec.Struct) -> dict[str, Any]:
    """The members of a request that are not their defaults."""
    given = cast(dict[str, Any], msgspec.to_builtins(request))
    return {name: value for name, value in given.items() if value not in (None, False)}
