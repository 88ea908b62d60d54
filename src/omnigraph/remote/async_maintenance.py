"""``graph.maintenance``, ``graph.indexes``, ``graph.embeddings`` and ``graph.jobs``, async."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

import omnigraph
from omnigraph.api.arguments import Natural, Positive, public
from omnigraph.client.server import ServerRequest
from omnigraph.errors import OmniGraphError
from omnigraph.progress import OnProgress
from omnigraph.remote import jobs
from omnigraph.remote.async_namespaces import AsyncRemoteCalls
from omnigraph.remote.documents import decoding
from omnigraph.remote.jobs import Job, Waiting
from omnigraph.remote.maintenance import (
    cleanup_request,
    fill_request,
    optimize_request,
    repair_request,
    report_request,
    verify_request,
)

T = TypeVar("T")


async def follow(calls: AsyncRemoteCalls, job: Job, on_progress: OnProgress | None = None) -> Any:
    """Wait for the result of a job; if the task is cancelled, so is the job."""
    waiting = Waiting(job, on_progress)
    waits = jobs.pauses()
    try:
        waiting.see(job)
        while not waiting.job.has_ended:
            await asyncio.sleep(next(waits))
            try:
                waiting.see(await calls.send(jobs.show(job.job_id), jobs.job_of))
            except OmniGraphError as error:
                waiting.bear(error)
    except asyncio.CancelledError:
        await asyncio.shield(calls.send(jobs.cancel(job.job_id), jobs.job_of))
        raise
    done = waiting.job
    if done.commits:
        calls.connection.note(done.commits[-1])
    return done.outcome()


class AsyncRemoteJobs:
    """The jobs of a server, as ``graph.jobs``."""

    def __init__(self, calls: AsyncRemoteCalls) -> None:
        self._calls = calls

    @public
    async def list(self, *, status: str | None = None, kind: str | None = None) -> list[Job]:
        """The jobs of this token, newest first; of everybody, if it may see them."""
        return await self._calls.send(jobs.list_all(status, kind), jobs.jobs_of)

    @public
    async def get(self, job_id: str) -> Job:
        """The state of a job.

        Raises:
            NotFound: there is no such job, or the token may not know it.
        """
        return await self._calls.send(jobs.show(job_id), jobs.job_of)

    @public
    async def cancel(self, job_id: str) -> Job:
        """Ask a job to stop at its next safe point; forget one that has ended.

        Raises:
            NotFound: there is no such job, or the token may not know it.
        """
        return await self._calls.send(jobs.cancel(job_id), jobs.job_of)

    @public
    async def wait(self, job_id: str, *, on_progress: OnProgress | None = None) -> Any:
        """Wait for the result of a job, as JSON values; raises its error if it fails.

        Raises:
            NotFound: there is no such job, or the token may not know it.
        """
        return await follow(self._calls, await self.get(job_id), on_progress)


class _AsyncReports:
    """Reads reports of the library from the responses of a server."""

    def __init__(self, calls: AsyncRemoteCalls) -> None:
        self._calls = calls

    async def _run(
        self, request: ServerRequest, report: type[T], on_progress: OnProgress | None = None
    ) -> T:
        job = await self._calls.send(request, jobs.job_of)
        result = await follow(self._calls, job, on_progress)
        with decoding(self._calls.connection.base):
            return msgspec.convert(result, report)

    async def _read(self, request: ServerRequest, report: Any) -> Any:
        return await self._calls.send(request, lambda doc: msgspec.convert(doc["report"], report))


class AsyncRemoteMaintenance(_AsyncReports):
    """The maintenance of a remote graph, as ``graph.maintenance``."""

    @public
    async def optimize(
        self,
        branch: str = "main",
        *,
        if_needed: bool = False,
        on_progress: OnProgress | None = None,
    ) -> omnigraph.OptimizeReport:
        """Compact small fragments and complete indexes; see ``GraphMaintenance.optimize``.

        Raises:
            NotFound: the branch does not exist.
        """
        request = optimize_request(branch, if_needed)
        return await self._run(request, omnigraph.OptimizeReport, on_progress)

    @public
    async def repair(
        self, branch: str = "main", *, confirm: bool = False, force: bool = False
    ) -> omnigraph.RepairReport:
        """Find, or with ``confirm`` adopt, versions that the manifest does not have.

        Raises:
            NotFound: the branch does not exist.
        """
        return await self._run(repair_request(branch, confirm, force), omnigraph.RepairReport)

    @public
    async def cleanup(
        self,
        keep_versions: int | None = None,
        older_than: timedelta | float | None = None,
        *,
        dry_run: bool = False,
        min_age: timedelta | float | None = None,
        feed_retention: timedelta | float | None = None,
        on_progress: OnProgress | None = None,
    ) -> omnigraph.CleanupReport:
        """Remove old versions of all tables on all branches; see ``GraphMaintenance.cleanup``.

        Raises:
            InputError: neither limit is given, or one is negative.
        """
        ages = min_age, feed_retention
        request = cleanup_request(keep_versions, older_than, dry_run, *ages)
        return await self._run(request, omnigraph.CleanupReport, on_progress)

    @public
    async def doctor(self, branch: str = "main") -> omnigraph.DoctorReport:
        """The health of the graph on one page, and the commands to run where its storage is.

        Raises:
            NotFound: the branch does not exist.
        """
        request = report_request("maintenance", "doctor", branch=branch)
        report: omnigraph.DoctorReport = await self._read(request, omnigraph.DoctorReport)
        return report

    @public
    async def verify(
        self,
        branch: str | None = None,
        *,
        checksums: bool = True,
        on_progress: OnProgress | None = None,
    ) -> omnigraph.VerifyReport:
        """Check the integrity of one branch, or of all, down to the bytes; changes nothing.

        Raises:
            NotFound: the branch does not exist.
        """
        request = verify_request(branch, checksums)
        return await self._run(request, omnigraph.VerifyReport, on_progress)


class AsyncRemoteIndexes(_AsyncReports):
    """The indexes of a remote graph, as ``graph.indexes``."""

    @public
    async def status(
        self, branch: str = "main", *, measure_recall: bool = False
    ) -> omnigraph.IndexReport:
        """The existing indexes, their coverage, and the missing ones.

        Raises:
            NotFound: the branch does not exist.
        """
        request = report_request("indexes", branch=branch, measure_recall=measure_recall)
        report: omnigraph.IndexReport = await self._read(request, omnigraph.IndexReport)
        return report

    @public
    async def ensure(self, branch: str = "main") -> omnigraph.IndexReport:
        """Build the missing indexes of the schema; if there are none, nothing is committed.

        Raises:
            NotFound: the branch does not exist.
        """
        request = jobs.start("indexes", "ensure", body={"branch": branch})
        return await self._run(request, omnigraph.IndexReport)

    @public
    async def rebuild(
        self, what: str, column: str | None = None, *, branch: str = "main"
    ) -> omnigraph.IndexReport:
        """Rebuild the indexes of a type, or of one of its columns, in one commit.

        Raises:
            InputError: the type or column does not exist.
        """
        body = {"type": what, "column": column, "branch": branch}
        return await self._run(jobs.start("indexes", "rebuild", body=body), omnigraph.IndexReport)


class AsyncRemoteEmbeddings(_AsyncReports):
    """The vectors of a remote graph, as ``graph.embeddings``."""

    @public
    async def status(self, branch: str = "main") -> list[omnigraph.EmbeddingStatus]:
        """For every ``@embed`` property: the rows with a vector, and the rows without one.

        Raises:
            NotFound: the branch does not exist.
        """
        statuses: list[omnigraph.EmbeddingStatus] = await self._read(
            report_request("embeddings", branch=branch), list[omnigraph.EmbeddingStatus]
        )
        return statuses

    @public
    async def fill(
        self,
        types: Sequence[str] | None = None,
        properties: Sequence[str] | None = None,
        branch: str = "main",
        *,
        again: bool = False,
        threads: Positive = 4,
        commit_rows: Positive | None = None,
        max_rows: Positive | None = None,
        max_failures: Natural = 0,
        on_progress: OnProgress | None = None,
    ) -> omnigraph.EmbeddingReport:
        """Embed the texts of rows without a vector, by the provider of the server.

        Raises:
            EmbeddingError: the provider does not answer, or refuses a text.
        """
        rows = commit_rows, max_rows, max_failures
        request = fill_request(types, properties, branch, again, threads, *rows)
        return await self._run(request, omnigraph.EmbeddingReport, on_progress)
