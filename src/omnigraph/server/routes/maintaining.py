"""The routes of maintenance and of jobs."""

from __future__ import annotations

from functools import partial

from omnigraph.server.handlers import jobs, maintaining
from omnigraph.server.models import jobs as models
from omnigraph.server.routes.shape import Route, branch_bytes, of_graph

_report = partial(
    of_graph,
    "GET",
    tag="maintenance",
    action="admin",
    authorize=maintaining.authorize_branch,
    response=models.ReportOutput,
    since="1",
)
_job = partial(
    of_graph,
    "POST",
    tag="maintenance",
    action="admin",
    lane="write",
    response=models.JobOutput,
    size=branch_bytes,
    success=202,
    since="1",
)

MAINTENANCE_ROUTES: tuple[Route, ...] = (
    _job(
        path="/maintenance/optimize",
        operation="optimize",
        summary="Compact the tables of a branch and complete its indexes",
        handler=maintaining.optimize,
        authorize=maintaining.authorize_branch,
        request=models.OptimizeRequest,
    ),
    _job(
        path="/maintenance/cleanup",
        operation="cleanup",
        summary="Remove old versions, and files of processes that died",
        handler=maintaining.cleanup,
        request=models.CleanupRequest,
    ),
    _job(
        path="/maintenance/repair",
        operation="repair",
        summary="Find, or adopt, versions that were written outside of the graph",
        handler=maintaining.repair,
        authorize=maintaining.authorize_branch,
        request=models.RepairRequest,
    ),
    _job(
        path="/maintenance/verify",
        operation="verify",
        summary="Check the integrity of the graph, down to its bytes",
        handler=maintaining.verify,
        authorize=maintaining.authorize_verify,
        request=models.VerifyRequest,
    ),
    _report(
        path="/maintenance/doctor",
        operation="doctor",
        summary="Report the health of the graph",
        handler=maintaining.doctor,
        query=models.ReportParameters,
    ),
    _report(
        path="/indexes",
        operation="index_status",
        summary="Show the indexes of a branch",
        handler=maintaining.index_status,
        query=models.IndexParameters,
    ),
    _job(
        path="/indexes/ensure",
        operation="ensure_indexes",
        summary="Build the missing indexes",
        handler=maintaining.ensure_indexes,
        authorize=maintaining.authorize_branch,
        request=models.EnsureIndexesRequest,
    ),
    _job(
        path="/indexes/rebuild",
        operation="rebuild_indexes",
        summary="Build the indexes of a type or column again",
        handler=maintaining.rebuild_indexes,
        authorize=maintaining.authorize_branch,
        request=models.RebuildIndexesRequest,
    ),
    _report(
        path="/embeddings",
        operation="embedding_status",
        summary="Show how many rows have vectors",
        handler=maintaining.embedding_status,
        query=models.ReportParameters,
    ),
    _job(
        path="/embeddings/fill",
        operation="fill_embeddings",
        summary="Embed the texts of rows without a vector; also needs `change`",
        handler=maintaining.fill_embeddings,
        authorize=maintaining.authorize_fill,
        request=models.FillRequest,
    ),
)

_of_job = partial(of_graph, tag="jobs", action="read", authorize=jobs.authorize_jobs, since="1")

JOB_ROUTES: tuple[Route, ...] = (
    _of_job(
        "GET",
        path="/jobs",
        operation="list_jobs",
        summary="List jobs: one's own, or with `admin` all",
        handler=jobs.list_jobs,
        query=models.JobFilter,
        response=models.JobListOutput,
    ),
    _of_job(
        "GET",
        path="/jobs/{job_id}",
        operation="get_job",
        summary="Show a job: its status, progress, result or error",
        handler=jobs.get_job,
        response=models.JobOutput,
    ),
    _of_job(
        "DELETE",
        path="/jobs/{job_id}",
        operation="cancel_job",
        summary="Ask a job to stop, or forget one that has ended",
        handler=jobs.cancel_job,
        lane="write",
        response=models.JobOutput,
        size=branch_bytes,
        statuses=(202,),
    ),
)
