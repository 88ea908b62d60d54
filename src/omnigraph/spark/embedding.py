"""The embedding job by tasks of Spark: each share is one task, which asks the provider itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from omnigraph.embed.job.splits import Embedded, Share, Staging, embed_remote, stage_remote
from omnigraph.storage.tables.columns import ColumnUpdate

if TYPE_CHECKING:
    from omnigraph.spark.session.engine import SparkEngine
    from omnigraph.spark.session.jobs import Report


class SparkEmbedExecutor:
    """Workers that all see the directory where vectors are kept."""

    def __init__(self, engine: SparkEngine, check: Callable[[], None]) -> None:
        self._engine = engine
        self._check = check
        self.report: Report | None = None
        """Gets how many tasks have embedded theirs, and how many there are."""

    @property
    def width(self) -> int:
        return self._engine.slots

    def embed(self, shares: Sequence[Share]) -> list[Embedded]:
        return self._engine.tasks(
            embed_remote, shares, "embedding", check=self._check, report=self.report
        )

    def stage(self, shares: Sequence[Staging]) -> list[list[ColumnUpdate]]:
        return self._engine.tasks(stage_remote, shares, "writing vectors", check=self._check)
