"""The embedding job in Spark tasks, which call the provider."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from omnigraph.embed.job.splits import (
    EmbedResult,
    EmbedSplit,
    StagingSplit,
    embed_remote,
    stage_remote,
)
from omnigraph.storage.tables.columns import ColumnUpdate

if TYPE_CHECKING:
    from omnigraph.spark.session.engine import SparkEngine
    from omnigraph.spark.session.jobs import Report


class SparkEmbedExecutor:
    """Workers that share the directory of the vectors."""

    def __init__(self, engine: SparkEngine, check: Callable[[], None]) -> None:
        self._engine = engine
        self._check = check
        self.report: Report | None = None
        """Called with the number of finished tasks and the total."""

    @property
    def width(self) -> int:
        return self._engine.slots

    def embed(self, splits: Sequence[EmbedSplit]) -> list[EmbedResult]:
        return self._engine.tasks(
            embed_remote, splits, "embedding", check=self._check, report=self.report
        )

    def stage(self, splits: Sequence[StagingSplit]) -> list[list[ColumnUpdate]]:
        return self._engine.tasks(stage_remote, splits, "writing vectors", check=self._check)
