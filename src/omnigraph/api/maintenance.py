"""``graph.maintenance``: keeping a graph quick, on this machine or on Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from os import PathLike
from typing import TYPE_CHECKING, Literal, TypeAlias

from omnigraph.api.addresses import root_of
from omnigraph.api.arguments import ENGINES, public
from omnigraph.api.verify import VerifyProgress, run_verify
from omnigraph.commit.names import normal_branch
from omnigraph.commit.schema.history import schema_at
from omnigraph.errors import InputError
from omnigraph.logs import logger
from omnigraph.maintain.backup.copy import CopyProgress, ignore_progress
from omnigraph.maintain.backup.create import BackupReport, create_backup
from omnigraph.maintain.cleanup.report import CleanupReport
from omnigraph.maintain.cleanup.run import clean_up, policy_of
from omnigraph.maintain.doctor.examine import examine
from omnigraph.maintain.doctor.report import DoctorReport
from omnigraph.maintain.optimize.policy import DEFAULT_POLICY, MaintenancePolicy
from omnigraph.maintain.optimize.run import OptimizeReport, Optimizing
from omnigraph.maintain.optimize.upkeep import Survey, Tell, threads
from omnigraph.maintain.repair import RepairReport, repair
from omnigraph.maintain.units import format_bytes
from omnigraph.maintain.verify import VerifyReport
from omnigraph.settings import Settings
from omnigraph.write.reentrancy import guard_callback

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.spark.session.resolve import SparkLike

_LOG = logger("omnigraph")

SPARK_BYTES = 4 << 30
"""From so many bytes of tables on, an optimize that may choose runs on Spark."""
CONCURRENCY = 8


@dataclass(frozen=True, slots=True)
class OptimizeProgress:
    """How far an optimize is: of its present phase, so many shares of so many."""

    phase: str
    done: int
    total: int


Progress: TypeAlias = Callable[[OptimizeProgress], None]


class GraphMaintenance:
    """``graph.maintenance``"""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @public
    def optimize(
        self,
        branch: str = "main",
        *,
        engine: Literal["auto", "local", "spark"] = "auto",
        spark: SparkLike = None,
        if_needed: bool = False,
        policy: MaintenancePolicy | None = None,
        progress: Progress | None = None,
        actor: str | None = None,
    ) -> OptimizeReport:
        """Put small parts of tables together, remove deleted rows from them, complete indexes.

        What the graph holds stays the same, and so do its earlier versions. All tables that a
        branch owns are published in one commit; when there is nothing to do, there is none.
        ``if_needed`` leaves alone what would gain little, by a ``policy``.

        ``engine`` is ``local`` (this process), ``spark``, or ``auto``: Spark from 4 GiB of tables
        on. ``spark`` is a session to use, or how to start one.
        """
        if engine not in ENGINES:
            raise InputError(
                f"'{engine}' is no engine for this", hint=f"use one of {', '.join(ENGINES)}"
            )
        graph = self._graph
        contract = graph._writable()
        settings = Settings.from_environ()
        many = concurrency(settings)
        tell = None if progress is None else _told(graph.uri, progress)
        work = Optimizing(
            graph._store,
            contract.catalog,
            normal_branch(branch),
            actor=actor or graph._actor,
            if_needed=if_needed,
            policy=policy or DEFAULT_POLICY,
        )
        found = work.look()
        if engine == "auto":
            engine = _chosen(found, has_spark=spark is not None)
        if engine == "local" or not found:
            return work.run(found, threads(many, tell))
        from omnigraph.spark.optimize import executors
        from omnigraph.spark.session.resolve import resolve_spark

        with resolve_spark(spark, settings.spark_options()) as running:
            return work.run(found, executors(running, tell))

    @public
    def repair(
        self, branch: str = "main", *, confirm: bool = False, force: bool = False
    ) -> RepairReport:
        """Find tables that were written past the graph; ``confirm`` takes over what changed no row.

        What did change rows is refused, unless ``force`` is given too. Data is never rewritten.
        """
        self._graph._writable()
        return repair(self._graph._store, normal_branch(branch), confirm=confirm, force=force)

    @public
    def backup(
        self,
        dest: str | PathLike[str],
        *,
        storage_options: Mapping[str, str] | None = None,
        progress: Callable[[CopyProgress], None] | None = None,
    ) -> BackupReport:
        """Copy the graph as it is now, with its history and branches, to a directory or S3 prefix.

        Readers and writers are not blocked. A further backup to the same location adds a point and
        copies only new files; ``omnigraph.restore`` creates a graph from a point.
        """
        place = root_of(dest, storage_options)
        self._graph._writable()
        many = concurrency(Settings.from_environ())
        return create_backup(self._graph._store, place, many, progress or ignore_progress)

    @public
    def cleanup(
        self,
        keep_versions: int | None = None,
        older_than: timedelta | float | None = None,
        *,
        dry_run: bool = False,
        min_age: timedelta | float | None = None,
        feed_retention: timedelta | float | None = None,
        progress: Progress | None = None,
    ) -> CleanupReport:
        """Remove old versions of all tables on all branches, and what dead writers left.

        A version goes when it is not among the newest ``keep_versions`` of its table, is older
        than ``older_than`` (seconds, or a ``timedelta``), and nobody needs it: no branch, tag,
        merge, open snapshot, or running write. One of the two limits is enough; with both, it
        has to be behind both. ``dry_run`` removes nothing and tells what would go.

        Nothing goes that anybody may have read within ``min_age``: an hour, and a day for files
        that no version names. Zero is for a graph that nobody else has open.
        ``feed_retention`` keeps what a change feed tells of that time.
        """
        policy = policy_of(keep_versions, older_than, min_age, feed_retention)
        self._graph._writable()
        tell = None if progress is None else _told(self._graph.uri, progress)
        force = threads(concurrency(Settings.from_environ()), tell)
        return clean_up(self._graph._store, policy, force.run, dry_run=dry_run)

    @public
    def doctor(
        self, branch: str | None = None, *, policy: MaintenancePolicy | None = None
    ) -> DoctorReport:
        """How the graph is, on one page, and what to run; ``str()`` draws it.

        Changes nothing and reads no rows; for a graph that is open to read too.
        """
        graph = self._graph
        contract, store = graph._checked(), graph._store
        name = normal_branch(branch)
        catalog = schema_at(store, contract, store.manifest(name).current())
        return examine(store, catalog, name, policy or DEFAULT_POLICY)

    @public
    def verify(
        self,
        branch: str | None = None,
        *,
        checksums: bool = True,
        progress: Callable[[VerifyProgress], None] | None = None,
    ) -> VerifyReport:
        """Look whether the graph is what it says it is, down to its bytes; changes nothing.

        Without a ``branch`` all of them. ``checksums=False`` leaves the bytes of files alone and
        looks at tables, rows, indexes and history only.
        """
        self._graph._check_open()
        return run_verify(self._graph._store, branch, checksums=checksums, progress=progress)


def concurrency(settings: Settings) -> int:
    """How many shares of work this process does at once."""
    text = settings.maintenance_concurrency
    if not text:
        return CONCURRENCY
    if not text.isdecimal() or not int(text):
        raise InputError(
            f"OMNIGRAPH_MAINTENANCE_CONCURRENCY is '{text}'", hint="set it to a number above 0"
        )
    return int(text)


def _told(uri: str, progress: Progress) -> Tell:
    """A callback that may not write to the graph while it runs."""
    told = guard_callback(uri, progress)
    return lambda phase, done, total: told(OptimizeProgress(phase, done, total))


def _chosen(found: Sequence[Survey], *, has_spark: bool) -> Literal["local", "spark"]:
    """Spark for many bytes of tables, if it is there; that it starts is said in one line."""
    size = sum(each.size for each in found)
    if size < SPARK_BYTES:
        return "local"
    from omnigraph.spark.session.resolve import is_installed

    if not has_spark and not is_installed():
        _LOG.warning(
            f"{format_bytes(size)} of tables; Spark is not installed, so one process does the work"
        )
        return "local"
    _LOG.warning(
        f"{format_bytes(size)} of tables, so Spark does the work "
        f"(from {format_bytes(SPARK_BYTES)} on)"
    )
    return "spark"
