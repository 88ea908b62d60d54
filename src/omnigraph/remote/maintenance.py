"""``graph.maintenance``, ``graph.indexes`` and ``graph.embeddings`` of a remote graph.

Long calls are jobs of the server; they return when the job has ended, as the embedded ones do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

import omnigraph
from omnigraph.api.arguments import Actor, Location, Natural, Positive, public
from omnigraph.api.engines import Engine, SparkLike
from omnigraph.client.server import ServerRequest
from omnigraph.embed.job.rate_limit import RateLimit
from omnigraph.embed.job.requests import Batching
from omnigraph.errors import InputError
from omnigraph.progress import OnProgress
from omnigraph.remote import jobs
from omnigraph.remote.documents import decoding
from omnigraph.remote.unserved import not_served, refuse_arguments

if TYPE_CHECKING:
    from omnigraph.remote.calls import RemoteCalls

T = TypeVar("T")


def seconds(given: timedelta | float | None) -> float | None:
    """A duration as the server takes it."""
    return given.total_seconds() if isinstance(given, timedelta) else given


def report_request(
    *segments: str, branch: str | None = None, measure_recall: bool = False
) -> ServerRequest:
    """A report that is answered at once."""
    wanted = {"branch": branch, "measure_recall": "true" if measure_recall else None}
    return ServerRequest("GET", segments, {k: v for k, v in wanted.items() if v is not None})


def optimize_request(branch: str, if_needed: bool, engine: Engine = "auto") -> ServerRequest:
    body = {"branch": branch, "if_needed": if_needed, "engine": _chosen(engine)}
    return jobs.start("maintenance", "optimize", body=body)


def _chosen(engine: Engine) -> str | None:
    """The engine of a job, if it is not the one that a server has anyway."""
    return engine if engine == "spark" else None


def cleanup_request(
    keep_versions: int | None,
    older_than: timedelta | float | None,
    dry_run: bool,
    min_age: timedelta | float | None,
    feed_retention: timedelta | float | None,
) -> ServerRequest:
    body = {
        "keep_versions": keep_versions,
        "older_than": seconds(older_than),
        "dry_run": dry_run,
        "min_age": seconds(min_age),
        "feed_retention": seconds(feed_retention),
    }
    return jobs.start("maintenance", "cleanup", body=body)


def repair_request(branch: str, confirm: bool, force: bool) -> ServerRequest:
    if force and not confirm:
        raise InputError("force needs confirm", hint="pass confirm=True too")
    body = {"branch": branch, "confirm": confirm, "force": force}
    return jobs.start("maintenance", "repair", body=body)


def verify_request(branch: str | None, checksums: bool) -> ServerRequest:
    body = {"branch": branch, "checksums": checksums}
    return jobs.start("maintenance", "verify", body=body)


def fill_request(
    types: Sequence[str] | None,
    properties: Sequence[str] | None,
    branch: str,
    again: bool,
    threads: int,
    commit_rows: int | None,
    max_rows: int | None,
    max_failures: int,
    engine: Engine = "auto",
) -> ServerRequest:
    body = {
        "types": None if types is None else list(types),
        "properties": None if properties is None else list(properties),
        "branch": branch,
        "again": again,
        "threads": threads,
        "commit_rows": commit_rows,
        "max_rows": max_rows,
        "max_failures": max_failures,
        "engine": _chosen(engine),
    }
    return jobs.start("embeddings", "fill", body=body)


class _Reports:
    """Reads reports of the library from the responses of a server."""

    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls

    def _run(
        self, request: ServerRequest, report: type[T], on_progress: OnProgress | None = None
    ) -> T:
        result = jobs.run(self._calls, request, on_progress)
        with decoding(self._calls.connection.base):
            return msgspec.convert(result, report)

    def _read(self, request: ServerRequest, report: Any) -> Any:
        return self._calls.send(request, lambda doc: msgspec.convert(doc["report"], report))


class RemoteMaintenance(_Reports):
    """The maintenance of a remote graph, as ``graph.maintenance``."""

    @public
    def optimize(
        self,
        branch: str = "main",
        *,
        engine: Engine = "auto",
        spark: SparkLike = None,
        if_needed: bool = False,
        policy: omnigraph.MaintenancePolicy | None = None,
        on_progress: OnProgress | None = None,
        actor: Actor | None = None,
    ) -> omnigraph.OptimizeReport:
        """Compact small fragments and complete indexes; see ``GraphMaintenance.optimize``.

        Raises:
            NotFound: the branch does not exist.
            PolicyDenied: the token does not allow it.
            Cancelled: the job was cancelled.
        """
        refuse_arguments("maintenance.optimize", spark=spark, policy=policy, actor=actor)
        request = optimize_request(branch, if_needed, engine)
        return self._run(request, omnigraph.OptimizeReport, on_progress)

    @public
    def repair(
        self,
        branch: str = "main",
        *,
        confirm: bool = False,
        force: bool = False,
        actor: Actor | None = None,
    ) -> omnigraph.RepairReport:
        """Find, or with ``confirm`` adopt, versions that the manifest does not have.

        Raises:
            NotFound: the branch does not exist.
            PolicyDenied: the token does not allow it.
        """
        refuse_arguments("maintenance.repair", actor=actor)
        return self._run(repair_request(branch, confirm, force), omnigraph.RepairReport)

    @public
    def backup(
        self,
        dest: Location,
        *,
        storage_options: Mapping[str, str] | None = None,
        on_progress: OnProgress | None = None,
        actor: Actor | None = None,
    ) -> omnigraph.BackupReport:
        """Not available through a server: a backup is made where the storage is.

        Raises:
            NotServed: always.
        """
        raise not_served("graph.maintenance.backup", "a backup is made where the storage is")

    @public
    def cleanup(
        self,
        keep_versions: int | None = None,
        older_than: timedelta | float | None = None,
        *,
        dry_run: bool = False,
        min_age: timedelta | float | None = None,
        feed_retention: timedelta | float | None = None,
        on_progress: OnProgress | None = None,
        actor: Actor | None = None,
    ) -> omnigraph.CleanupReport:
        """Remove old versions of all tables on all branches; see ``GraphMaintenance.cleanup``.

        Raises:
            InputError: neither limit is given, or one is negative.
            PolicyDenied: the token does not allow it.
        """
        refuse_arguments("maintenance.cleanup", actor=actor)
        ages = min_age, feed_retention
        request = cleanup_request(keep_versions, older_than, dry_run, *ages)
        return self._run(request, omnigraph.CleanupReport, on_progress)

    @public
    def doctor(
        self, branch: str = "main", *, policy: omnigraph.MaintenancePolicy | None = None
    ) -> omnigraph.DoctorReport:
        """The health of the graph on one page, and the commands to run where its storage is.

        Raises:
            NotFound: the branch does not exist.
        """
        refuse_arguments("maintenance.doctor", policy=policy)
        request = report_request("maintenance", "doctor", branch=branch)
        report: omnigraph.DoctorReport = self._read(request, omnigraph.DoctorReport)
        return report

    @public
    def verify(
        self,
        branch: str | None = None,
        *,
        checksums: bool = True,
        on_progress: OnProgress | None = None,
    ) -> omnigraph.VerifyReport:
        """Check the integrity of one branch, or of all, down to the bytes; changes nothing.

        Raises:
            NotFound: the branch does not exist.
            PolicyDenied: the token does not allow it.
        """
        return self._run(verify_request(branch, checksums), omnigraph.VerifyReport, on_progress)


class RemoteIndexes(_Reports):
    """The indexes of a remote graph, as ``graph.indexes``."""

    @public
    def status(
        self, branch: str = "main", *, measure_recall: bool = False
    ) -> omnigraph.IndexReport:
        """The existing indexes, their coverage, and the missing ones.

        Raises:
            NotFound: the branch does not exist.
        """
        request = report_request("indexes", branch=branch, measure_recall=measure_recall)
        report: omnigraph.IndexReport = self._read(request, omnigraph.IndexReport)
        return report

    @public
    def ensure(
        self,
        branch: str = "main",
        *,
        policy: omnigraph.MaintenancePolicy | None = None,
        actor: Actor | None = None,
    ) -> omnigraph.IndexReport:
        """Build the missing indexes of the schema; if there are none, nothing is committed.

        Raises:
            NotFound: the branch does not exist.
            PolicyDenied: the token does not allow it.
        """
        refuse_arguments("indexes.ensure", policy=policy, actor=actor)
        request = jobs.start("indexes", "ensure", body={"branch": branch})
        return self._run(request, omnigraph.IndexReport)

    @public
    def rebuild(
        self,
        what: str,
        column: str | None = None,
        *,
        branch: str = "main",
        actor: Actor | None = None,
    ) -> omnigraph.IndexReport:
        """Rebuild the indexes of a type, or of one of its columns, in one commit.

        Raises:
            InputError: the type or column does not exist.
            PolicyDenied: the token does not allow it.
        """
        refuse_arguments("indexes.rebuild", actor=actor)
        body = {"type": what, "column": column, "branch": branch}
        return self._run(jobs.start("indexes", "rebuild", body=body), omnigraph.IndexReport)


class RemoteEmbeddings(_Reports):
    """The vectors of a remote graph, as ``graph.embeddings``."""

    @public
    def status(self, branch: str = "main") -> list[omnigraph.EmbeddingStatus]:
        """For every ``@embed`` property: the rows with a vector, and the rows without one.

        Raises:
            NotFound: the branch does not exist.
        """
        request = report_request("embeddings", branch=branch)
        statuses: list[omnigraph.EmbeddingStatus] = self._read(
            request, list[omnigraph.EmbeddingStatus]
        )
        return statuses

    @public
    def fill(
        self,
        types: Sequence[str] | None = None,
        properties: Sequence[str] | None = None,
        branch: str = "main",
        *,
        again: bool = False,
        rate: omnigraph.RateLimit = RateLimit(),  # noqa: B008 - frozen
        batching: omnigraph.Batching = Batching(),  # noqa: B008 - frozen
        threads: Positive = 4,
        resume: Location | None = None,
        commit_rows: Positive | None = None,
        max_rows: Positive | None = None,
        max_failures: Natural = 0,
        engine: Engine = "auto",
        spark: SparkLike = None,
        timeout: float | None = None,
        cancel: omnigraph.Cancel | None = None,
        on_progress: OnProgress | None = None,
        actor: Actor | None = None,
    ) -> omnigraph.EmbeddingReport:
        """Embed the texts of rows without a vector, by the provider of the server.

        Raises:
            EmbeddingError: the provider does not answer, or refuses a text.
            PolicyDenied: the token does not allow it.
            NotServed: an argument was given that only an open graph takes.
        """
        refuse_arguments(
            "embeddings.fill",
            spark=spark,
            rate=None if rate == RateLimit() else rate,
            batching=None if batching == Batching() else batching,
            resume=resume,
            timeout=timeout,
            cancel=cancel,
            actor=actor,
        )
        rows = commit_rows, max_rows, max_failures
        request = fill_request(types, properties, branch, again, threads, *rows, engine)
        return self._run(request, omnigraph.EmbeddingReport, on_progress)
