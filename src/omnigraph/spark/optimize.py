"""The work of an optimize by tasks of Spark: parts are rewritten and indexed in executors.

Who commits is the driver, through the same steps; the plan, and so the statistics, are those of
any other optimize. An index of many rows is built in segments, one task each, that the driver
puts together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from omnigraph.maintain.optimize.upkeep import Tell, Workforce

if TYPE_CHECKING:
    from omnigraph.spark.session.engine import SparkEngine

SEGMENT_ROWS = 1_000_000
"""A task indexes about so many rows."""


def executors(
    engine: SparkEngine, tell: Tell | None = None, segment_rows: int = SEGMENT_ROWS
) -> Workforce:
    """The executors of Spark as those who do the work."""

    def run(work: Callable[[Any], Any], shares: Sequence[Any], label: str) -> list[Any]:
        report = None
        if tell is not None:

            def report(done: int, total: int) -> None:
                tell(label, done, total)

        return engine.tasks(work, shares, label, report=report)

    return Workforce(run, segment_rows)
