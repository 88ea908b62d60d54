"""``graph.maintenance`` and ``graph.indexes``; and verify for a graph that cannot be opened."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from omnigraph.api.arguments import Actor, Location, public
from omnigraph.api.engines import OPTIMIZE_BYTES, Engine, SparkLike, runs_on_spark
from omnigraph.api.handle import Namespace, parse_location
from omnigraph.api.row_access import require_whole_view
from omnigraph.commit.history import SnapshotRef
from omnigraph.commit.names import branch_label, normal_branch
from omnigraph.commit.store import GraphStore, detect_branch_deletion
from omnigraph.errors import GraphNotFound
from omnigraph.maintain.backup.create import BackupReport, create_backup
from omnigraph.maintain.cleanup.report import CleanupReport
from omnigraph.maintain.cleanup.retention import cleanup_policy
from omnigraph.maintain.cleanup.run import clean_up
from omnigraph.maintain.doctor.examine import examine
from omnigraph.maintain.doctor.report import DoctorReport
from omnigraph.maintain.optimize.indexes import (
    IndexReport,
    ensure_indexes,
    index_report,
    rebuild_indexes,
)
from omnigraph.maintain.optimize.plan import DEFAULT_POLICY, MaintenancePolicy
from omnigraph.maintain.optimize.run import OptimizeJob, OptimizeReport
from omnigraph.maintain.repair import RepairReport, repair
from omnigraph.maintain.verify import VerifyReport, verify
from omnigraph.progress import OnProgress, Progress
from omnigraph.settings import Settings
from omnigraph.storage.executor import TaskProgress, ThreadExecutor
from omnigraph.write.reentrancy import guard_callback


class GraphMaintenance(Namespace):
    """The maintenance of a graph, as ``graph.maintenance``."""

    @public
    def optimize(
        self,
        branch: str = "main",
        *,
        engine: Engine = "auto",
        spark: SparkLike = None,
        if_needed: bool = False,
        policy: MaintenancePolicy | None = None,
        on_progress: OnProgress | None = None,
        actor: Actor | None = None,
    ) -> OptimizeReport:
        """Compact small fragments, drop deleted rows from them, and complete indexes.

        The content of the graph and its earlier versions do not change. All tables that a branch
        owns are published in one commit; if there is nothing to do, there is no commit.
        ``if_needed`` skips tables that would gain little according to ``policy``.

        ``engine`` is ``local`` (this process), ``spark``, or ``auto``: Spark from 4 GiB of tables
        on, or if ``spark``, a session or a configuration to start one, is passed.

        Raises:
            NotFound: the branch does not exist, or it was deleted meanwhile.
            Conflict: writers kept changing the tables.
            ReadOnly: the graph is open for reading.

        >>> report = graph.maintenance.optimize()
        >>> graph.maintenance.optimize().commit_id is None
        True
        """
        author = self._handle.authorize(actor, "admin", branch)
        handle, name = self._handle, normal_branch(branch)
        contract = handle.write()
        require_whole_view(handle, author, "admin", branch, contract.catalog)
        report = None if on_progress is None else _task_progress(handle.uri, on_progress)
        job = OptimizeJob(
            handle.store,
            contract.catalog,
            name,
            actor=author,
            if_needed=if_needed,
            policy=policy or DEFAULT_POLICY,
        )
        with detect_branch_deletion(handle.store, name):
            surveys = job.survey()
            size = sum(survey.size for survey in surveys)
            if not surveys or not runs_on_spark(engine, spark, size, OPTIMIZE_BYTES, "tables"):
                threads = handle.settings.maintenance_concurrency
                return job.run(surveys, ThreadExecutor(threads, report))
            from omnigraph.spark.session.tasks import SEGMENT_ROWS, SparkExecutor

            with handle.spark.start(spark) as running:
                return job.run(surveys, SparkExecutor(running, report), SEGMENT_ROWS)

    @public
    def repair(
        self,
        branch: str = "main",
        *,
        confirm: bool = False,
        force: bool = False,
        actor: Actor | None = None,
    ) -> RepairReport:
        """Find tables with versions that the manifest does not have; ``confirm`` adopts them.

        Versions that changed rows are refused, unless ``force`` is set too. Data is never
        rewritten. ``actor`` is for the policy of the graph.

        Raises:
            ReadOnly: the graph is open for reading.

        >>> [table.action.value for table in graph.maintenance.repair().tables]
        ['no_op', 'no_op']
        """
        author = self._handle.authorize(actor, "admin", branch)
        catalog = self._handle.write().catalog
        require_whole_view(self._handle, author, "admin", branch, catalog)
        return repair(self._handle.store, normal_branch(branch), confirm=confirm, force=force)

    @public
    def backup(
        self,
        dest: Location,
        *,
        storage_options: Mapping[str, str] | None = None,
        on_progress: OnProgress | None = None,
        actor: Actor | None = None,
    ) -> BackupReport:
        """Copy the graph as it is now, with its history and branches, to a directory or S3 prefix.

        Readers and writers are not blocked. A further backup to the same destination adds a point
        and copies only new files; ``omnigraph.restore`` creates a graph from a point. ``actor`` is
        for the policy of the graph.

        Raises:
            InputError: there is something else at ``dest``.
            Conflict: another backup to the same destination is running.

        >>> report = graph.maintenance.backup(folder / "backup")
        >>> report.copied_files == report.files
        True
        """
        author = self._handle.authorize(actor, "admin")
        settings = self._handle.settings
        root = parse_location(dest, storage_options, settings)
        catalog = self._handle.write().catalog
        require_whole_view(self._handle, author, "admin", None, catalog)
        many = settings.maintenance_concurrency
        return create_backup(self._handle.store, root, many, on_progress)

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
    ) -> CleanupReport:
        """Remove old versions of all tables on all branches, and files of processes that died.

        A version is removed if it is not among the newest ``keep_versions`` of its table, is
        older than ``older_than`` (seconds, or a ``timedelta``), and no branch, tag, merge, open
        snapshot or running write needs it. One of the two limits is enough; with both, a version
        must exceed both. ``dry_run`` removes nothing and reports what would be removed.

        Versions that may have been read within ``min_age`` are kept: an hour by default, and a day
        for orphaned files. Use zero only if no other process has the graph open. ``feed_retention``
        keeps the change feed of that period. ``actor`` is for the policy of the graph.

        Raises:
            InputError: neither limit is given, or one is negative.
            ReadOnly: the graph is open for reading.

        >>> graph.maintenance.cleanup(keep_versions=1, dry_run=True).dry_run
        True
        """
        author = self._handle.authorize(actor, "admin")
        policy = cleanup_policy(keep_versions, older_than, min_age, feed_retention)
        catalog = self._handle.write().catalog
        require_whole_view(self._handle, author, "admin", None, catalog)
        report = None if on_progress is None else _task_progress(self._handle.uri, on_progress)
        executor = ThreadExecutor(self._handle.settings.maintenance_concurrency, report)
        return clean_up(self._handle.store, policy, executor, dry_run=dry_run)

    @public
    def doctor(
        self, branch: str = "main", *, policy: MaintenancePolicy | None = None
    ) -> DoctorReport:
        """The health of the graph on one page, and the commands to run; ``str()`` is a summary.

        Changes nothing and reads no rows; also works on a graph that is open for reading.

        Raises:
            NotFound: the branch does not exist.

        >>> str(graph.maintenance.doctor()).splitlines()[0].startswith(graph.uri)
        True
        """
        catalog = self._handle.read(SnapshotRef(branch)).catalog
        require_whole_view(self._handle, self._handle.actor, "admin", branch, catalog)
        policy = policy or DEFAULT_POLICY
        return examine(self._handle.store, catalog, normal_branch(branch), policy)

    @public
    def verify(
        self,
        branch: str | None = None,
        *,
        checksums: bool = True,
        on_progress: OnProgress | None = None,
    ) -> VerifyReport:
        """Check the integrity of one branch, or of all, down to the bytes; changes nothing.

        ``checksums=False`` does not read whole files and checks tables, rows, indexes and history
        only.

        Raises:
            NotFound: the branch does not exist.

        >>> graph.maintenance.verify().is_sound
        True
        """
        self._handle.check_open()
        if self._handle.policy is not None:
            catalog = self._handle.accepted().catalog
            require_whole_view(self._handle, self._handle.actor, "admin", branch, catalog)
        return _verify(self._handle.store, self._handle.settings, branch, checksums, on_progress)


@public
def verify_graph(
    uri: Location,
    branch: str | None = None,
    *,
    checksums: bool = True,
    storage_options: Mapping[str, str] | None = None,
    on_progress: OnProgress | None = None,
) -> VerifyReport:
    """``graph.maintenance.verify`` for a graph that is too damaged to be opened.

    Raises:
        NotFound: there is no graph at ``uri``.

    >>> verify_graph(graph.uri).is_sound
    True
    """
    settings = Settings.from_environ()
    store = GraphStore(parse_location(uri, storage_options, settings))
    if not store.schema_files.present() and not store.objects.exists("__manifest"):
        raise GraphNotFound(
            f"there is no graph at '{store.root.uri}'", hint="create one with Graph.init"
        )
    return _verify(store, settings, branch, checksums, on_progress)


def _verify(
    store: GraphStore,
    settings: Settings,
    branch: str | None,
    checksums: bool,
    on_progress: OnProgress | None,
) -> VerifyReport:
    def report(phase: str, done: int, total: int) -> None:
        if on_progress is not None:
            on_progress(Progress(phase, done, total))

    name = None if branch is None else branch_label(normal_branch(branch))
    return verify(
        store,
        name,
        checksums=checksums,
        concurrency=settings.maintenance_concurrency,
        on_progress=report,
    )


def _task_progress(uri: str, on_progress: OnProgress) -> TaskProgress:
    """A progress callback that raises if it writes to the graph."""
    guarded = guard_callback(uri, on_progress)
    return lambda phase, done, total: guarded(Progress(phase, done, total))


class GraphIndexes(Namespace):
    """The indexes of a graph, as ``graph.indexes``."""

    @public
    def status(self, branch: str = "main", *, measure_recall: bool = False) -> IndexReport:
        """The existing indexes, their coverage, and the missing ones.

        ``measure_recall`` searches for some stored vectors and reports the share of the nearest
        rows that each vector index finds; that reads the vectors of up to a million rows.

        Raises:
            NotFound: the branch does not exist.

        >>> graph.indexes.status().indexes[0].table_key
        'node:Person'
        """
        context = self._handle.read(SnapshotRef(branch))
        require_whole_view(self._handle, self._handle.actor, "read", branch, context.catalog)
        return index_report(
            self._handle.store, context.catalog, context.snapshot, with_recall=measure_recall
        )

    @public
    def ensure(
        self,
        branch: str = "main",
        *,
        policy: MaintenancePolicy | None = None,
        actor: Actor | None = None,
    ) -> IndexReport:
        """Build the missing indexes of the schema; if there are none, nothing is committed.

        A vector index is rebuilt if the schema has other parameters, if the table has outgrown it,
        or if its recall is below ``policy.recall``.

        Raises:
            NotFound: the branch does not exist.
            ReadOnly: the graph is open for reading.

        >>> report = graph.indexes.ensure()
        >>> graph.indexes.ensure().built
        ()
        """
        author = self._handle.authorize(actor, "admin", branch)
        contract = self._handle.write()
        require_whole_view(self._handle, author, "admin", branch, contract.catalog)
        return ensure_indexes(
            self._handle.store,
            contract.catalog,
            normal_branch(branch),
            author,
            (policy or DEFAULT_POLICY).recall,
        )

    @public
    def rebuild(
        self,
        what: str,
        column: str | None = None,
        *,
        branch: str = "main",
        actor: Actor | None = None,
    ) -> IndexReport:
        """Rebuild the indexes of a type, or of one of its columns, in one commit.

        ``what`` is a type or a table key such as ``node:Person``. Use it for damaged indexes, or to
        train vector indexes on the current rows.

        Raises:
            InputError: the type or column does not exist.

        >>> len(graph.indexes.rebuild("Person", "id").built)
        1
        """
        author = self._handle.authorize(actor, "admin", branch)
        contract = self._handle.write()
        require_whole_view(self._handle, author, "admin", branch, contract.catalog)
        return rebuild_indexes(
            self._handle.store,
            contract.catalog,
            normal_branch(branch),
            author,
            what,
            column,
        )
