"""``graph.embeddings``: which vectors are there, and the job that makes those that are not."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from omnigraph.api.arguments import ENGINES, public
from omnigraph.commit.names import normal_branch
from omnigraph.commit.schema.history import schema_at
from omnigraph.embed.job.pace import RateLimit
from omnigraph.embed.job.requests import Batching
from omnigraph.embed.job.run import (
    Crew,
    EmbeddingReport,
    EmbeddingStatus,
    Fill,
    Goal,
    LocalCrew,
    Progress,
    status_of,
)
from omnigraph.embed.job.splits import Setup, Tools
from omnigraph.embed.job.spool import opened_folder
from omnigraph.embed.job.targets import Target, all_targets, chosen_targets, refuse_other_models
from omnigraph.errors import Cancelled, Conflict, InputError, LimitExceeded
from omnigraph.read.limits import Cancel
from omnigraph.settings import Settings

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.spark.embedding import SparkEmbedExecutor
    from omnigraph.spark.session.resolve import SparkLike


class GraphEmbeddings:
    """``graph.embeddings``"""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @public
    def status(self, branch: str = "main") -> list[EmbeddingStatus]:
        """For every property with ``@embed``: how many rows have a vector, and how many lack it."""
        contract = self._graph._checked()
        store = self._graph._store
        snapshot = store.manifest(normal_branch(branch)).current()
        catalog = schema_at(store, contract, snapshot)
        return status_of(store, all_targets(catalog), snapshot)

    @public
    def fill(
        self,
        types: Sequence[str] | None = None,
        properties: Sequence[str] | None = None,
        branch: str = "main",
        *,
        again: bool = False,
        engine: Literal["auto", "local", "spark"] = "auto",
        spark: SparkLike = None,
        resume: str | PathLike[str] | None = None,
        commit_rows: int | None = None,
        max_rows: int | None = None,
        max_failures: int = 0,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        batch_texts: int = 128,
        batch_characters: int = 100_000,
        threads: int = 4,
        timeout: float | None = None,
        cancel: Cancel | None = None,
        progress: Progress | None = None,
        actor: str | None = None,
    ) -> EmbeddingReport:
        """Embed the texts of rows that have no vector yet; with ``again`` of all rows.

        ``types``, or ``properties`` as ``Type.property``, say which; without them it is every
        property with ``@embed``. All vectors come in one commit, or in one for about every
        ``commit_rows`` rows. Vectors are kept in the directory ``resume`` as they come, so that a
        run which is repeated pays only for what is missing there; without it in a directory of the
        user's cache, which is emptied when the job has ended well.

        A text that the provider refuses ends the job, unless ``max_failures`` lets some pass.
        ``engine`` is ``local`` (this process, as is ``auto``) or ``spark``; ``auto`` is Spark when
        a session is handed over.
        """
        _at_least(1, commit_rows=commit_rows, batch_texts=batch_texts, threads=threads)
        _at_least(1, max_rows=max_rows, batch_characters=batch_characters)
        _at_least(0, max_failures=max_failures)
        if engine not in ENGINES:
            raise InputError(f"'{engine}' is no engine", hint=f"use one of {', '.join(ENGINES)}")
        rate = RateLimit(requests_per_minute, tokens_per_minute)
        check = _checking(timeout, cancel)
        contract = self._graph._writable()
        targets = chosen_targets(contract.catalog, types, properties)
        embedder = self._graph._embedders.get()
        refuse_other_models(targets, embedder)
        config = replace(self._graph._embedders.config.completed(), model=embedder.model)
        known = contract.schema_hash
        goal = Goal(branch, actor or self._graph._actor, commit_rows, max_rows, known)
        with opened_folder(self._folder(resume), is_ours=resume is None) as folder:
            setup = Setup(
                config,
                str(folder),
                again,
                rate,
                Batching(batch_texts, batch_characters),
                threads,
                max_failures,
            )

            def job(setup: Setup, crew: Crew) -> Fill:
                return Fill(
                    self._graph._store,
                    targets,
                    setup,
                    crew,
                    goal,
                    check=check,
                    before_commit=lambda: self._refuse_other_schema(targets),
                    progress=progress,
                )

            if engine == "spark" or (engine == "auto" and spark is not None):
                with _spark_crew(spark, check) as crew:
                    spread = job(replace(setup, rate=rate.shared(crew.width)), crew)
                    crew.report = spread.worked
                    return spread.run()
            tools = Tools(setup, embedder, check)
            alone = job(setup, LocalCrew(tools))
            tools.tell = alone.answered
            return alone.run()

    def _refuse_other_schema(self, targets: Sequence[Target]) -> None:
        """A job takes long: what it fills may not be there any more."""
        known = all_targets(self._graph._writable().catalog)
        for target in targets:
            if target not in known:
                raise Conflict(
                    f"the schema of {target.label} was changed while its texts were embedded",
                    hint="repeat the job; what was embedded is kept",
                )

    def _folder(self, resume: str | PathLike[str] | None) -> Path:
        if resume is not None:
            return Path(os.path.abspath(resume))
        name = hashlib.sha256(self._graph.uri.encode("utf-8")).hexdigest()[:32]
        return Path(Settings.from_environ().cache_dir(), "embeddings", name)


@contextmanager
def _spark_crew(spark: SparkLike, check: Callable[[], None]) -> Iterator[SparkEmbedExecutor]:
    from omnigraph.spark.embedding import SparkEmbedExecutor
    from omnigraph.spark.session.resolve import resolve_spark

    with resolve_spark(spark, Settings.from_environ().spark_options()) as running:
        yield SparkEmbedExecutor(running, check)


def _checking(timeout: float | None, cancel: Cancel | None) -> Callable[[], None]:
    """What ends a job from outside, or by the clock."""
    if cancel is not None and not isinstance(cancel, Cancel):
        raise InputError(f"cancel must be a Cancel, not {type(cancel).__name__}")
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


def _at_least(least: int, **values: int | None) -> None:
    for name, value in values.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise InputError(f"{name} must be a whole number, not {type(value).__name__}")
        if value < least:
            raise InputError(f"{name} must be at least {least}")
