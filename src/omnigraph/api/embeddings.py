"""``graph.embeddings``: the vectors of ``@embed`` properties, and the job that fills them."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path

from omnigraph.api.arguments import Actor, Location, Natural, Positive, public
from omnigraph.api.engines import Engine, SparkLike, runs_on_spark
from omnigraph.api.handle import Namespace
from omnigraph.api.row_access import whole_tables
from omnigraph.commit.history import SnapshotRef
from omnigraph.commit.names import normal_branch
from omnigraph.embed.job.rate_limit import RateLimit
from omnigraph.embed.job.requests import Batching, EmbedWorker, Setup
from omnigraph.embed.job.run import (
    EmbeddingReport,
    EmbeddingStatus,
    EmbedExecutor,
    Fill,
    FillDestination,
    LocalEmbedExecutor,
    embedding_status,
)
from omnigraph.embed.job.spool import open_spool
from omnigraph.embed.job.targets import (
    EmbedTarget,
    all_targets,
    by_table,
    refuse_other_models,
    select_targets,
)
from omnigraph.errors import Cancelled, Conflict, InputError, LimitExceeded
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.progress import OnProgress
from omnigraph.read.limits import Cancel


class GraphEmbeddings(Namespace):
    """The vectors of a graph, as ``graph.embeddings``."""

    @public
    def status(self, branch: str = "main") -> list[EmbeddingStatus]:
        """For every ``@embed`` property: the rows with a vector, and the rows without one.

        Raises:
            NotFound: the branch does not exist.

        >>> graph.embeddings.status()
        []
        """
        context = self._handle.read(SnapshotRef(branch))
        targets = all_targets(context.catalog)
        self._require_view(self._handle.actor, "read", branch, context.catalog, targets)
        return embedding_status(self._handle.store, targets, context.snapshot)

    @public
    def fill(
        self,
        types: Sequence[str] | None = None,
        properties: Sequence[str] | None = None,
        branch: str = "main",
        *,
        again: bool = False,
        rate: RateLimit = RateLimit(),  # noqa: B008 - frozen
        batching: Batching = Batching(),  # noqa: B008 - frozen
        threads: Positive = 4,
        resume: Location | None = None,
        commit_rows: Positive | None = None,
        max_rows: Positive | None = None,
        max_failures: Natural = 0,
        engine: Engine = "auto",
        spark: SparkLike = None,
        timeout: float | None = None,
        cancel: Cancel | None = None,
        on_progress: OnProgress | None = None,
        actor: Actor | None = None,
    ) -> EmbeddingReport:
        """Embed the texts of rows without a vector; with ``again`` of all rows.

        ``types``, or ``properties`` as ``Type.property``, select what to fill, by default every
        ``@embed`` property. ``rate`` limits the requests to the provider, ``batching`` their size.
        All vectors are written in one commit, or in one per about ``commit_rows`` rows.

        Vectors are stored in the directory ``resume`` as they arrive, so that a repeated run
        requests only the missing ones; by default in a directory of the user's cache, which is
        emptied when the job succeeds. A text that the provider refuses ends the job, unless
        ``max_failures`` allows some.

        ``engine`` is ``local`` (this process), ``spark``, or ``auto``: Spark if ``spark``, a
        session or a configuration to start one, is passed.

        Raises:
            EmbeddingError: the provider does not answer, or refuses a text.
            InputError: the ``@embed`` property does not exist.
            LimitExceeded: the ``timeout`` expired; the vectors received so far are stored.
            Cancelled: ``cancel`` was set; the vectors received so far are stored.
            Conflict: the schema was changed meanwhile.

        >>> from omnigraph import EmbeddingConfig, Graph
        >>> schema = 'node Doc { slug: String @key  text: String  v: Vector(8)? @embed("text") }'
        >>> docs = Graph.init(folder / "docs.omni", schema, embedding=EmbeddingConfig("mock"))
        >>> receipt = docs.load([{"type": "Doc", "data": {"slug": "a", "text": "hello"}}])
        >>> docs.embeddings.fill(resume=folder / "vectors").filled
        1
        """
        self._handle.check_local_file("resume", resume)
        check = _checking(timeout, cancel)
        writer = self._handle.authorize(actor, "change", branch)
        contract = self._handle.write()
        targets = select_targets(contract.catalog, types, properties)
        self._require_view(writer, "change", branch, contract.catalog, targets)
        embedder = self._handle.embedders.get()
        refuse_other_models(targets, embedder)
        config = replace(self._handle.embedders.config.completed(), model=embedder.model)
        dest = FillDestination(branch, writer, commit_rows, max_rows, contract.schema_hash)
        with open_spool(self._folder(resume), is_ours=resume is None) as folder:
            setup = Setup(config, str(folder), again, rate, batching, threads, max_failures)

            def job(setup: Setup, executor: EmbedExecutor) -> Fill:
                return Fill(
                    self._handle.store,
                    targets,
                    setup,
                    executor,
                    dest,
                    check=check,
                    before_commit=lambda: self._refuse_other_schema(targets),
                    on_progress=on_progress,
                )

            if runs_on_spark(engine, spark):
                from omnigraph.spark.embedding import SparkEmbedExecutor

                with self._handle.spark.start(spark) as running:
                    executor = SparkEmbedExecutor(running, check)
                    spread = job(replace(setup, rate=rate.split(executor.width)), executor)
                    executor.report = spread.on_splits
                    return spread.run()
            worker = EmbedWorker(setup, embedder, check)
            local = job(setup, LocalEmbedExecutor(worker))
            worker.on_usage = local.on_usage
            return local.run()

    def _require_view(
        self,
        actor: str | None,
        action: str,
        branch: str,
        catalog: Catalog,
        targets: Sequence[EmbedTarget],
    ) -> None:
        """Refuse an actor that does not see all rows of the properties: their counts are reported.

        The schema of the targets is that of the commit, so this decides for the whole job.
        """
        check = whole_tables(self._handle, actor, action, catalog, branch)
        if check is not None:
            check(normal_branch(branch), by_table(targets))

    def _refuse_other_schema(self, targets: Sequence[EmbedTarget]) -> None:
        """Raise if a property was changed or dropped during the job."""
        existing = all_targets(self._handle.write().catalog)
        for target in targets:
            if target not in existing:
                raise Conflict(
                    f"the schema of {target.label} was changed while its texts were embedded",
                    hint="repeat the job; what was embedded is kept",
                )

    def _folder(self, resume: str | PathLike[str] | None) -> Path:
        if resume is not None:
            return Path(os.path.abspath(resume))
        name = hashlib.sha256(self._handle.uri.encode("utf-8")).hexdigest()[:32]
        return Path(self._handle.settings.cache_dir(), "embeddings", name)


def _checking(timeout: float | None, cancel: Cancel | None) -> Callable[[], None]:
    """A check that raises if the job was cancelled or its timeout has expired."""
    if timeout is not None and not timeout >= 0:
        raise InputError("timeout cannot be negative")
    end = None if timeout is None else time.monotonic() + timeout

    def check() -> None:
        if cancel is not None and cancel.is_set:
            raise Cancelled("the embedding job was cancelled", hint="what was embedded is kept")
        if end is not None and time.monotonic() > end:
            raise LimitExceeded(
                f"the embedding job took longer than {timeout} seconds",
                hint="repeat it: what was embedded is kept",
                details={"timeout": timeout},
            )

    return check
