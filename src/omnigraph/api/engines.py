"""Chooses between this process and Spark, and manages the Spark session of a handle."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from omnigraph.logs import logger

if TYPE_CHECKING:
    from omnigraph.spark.session.engine import SparkEngine
    from omnigraph.spark.session.engine import SparkLike as SparkLike
else:
    # PySpark is optional: annotations resolve without it.
    SparkLike = Any

Engine: TypeAlias = Literal["auto", "local", "spark"]

LOAD_BYTES = 1 << 30
"""From this many bytes of files on, ``auto`` loads on Spark."""
OPTIMIZE_BYTES = 4 << 30
"""From this many bytes of tables on, ``auto`` optimizes on Spark."""

_LOG = logger("omnigraph")


def runs_on_spark(
    engine: Engine,
    spark: SparkLike,
    size: int | None = None,
    threshold: int = 0,
    content: str = "data",
) -> bool:
    """Whether to run on Spark: if ``spark`` is passed, or by size, which is logged."""
    if engine != "auto":
        return engine == "spark"
    if spark is not None:
        return True
    if size is None or size < threshold:
        return False
    from omnigraph.maintain.units import format_bytes
    from omnigraph.spark.session.engine import is_installed

    if not is_installed():
        _LOG.warning(
            f"{format_bytes(size)} of {content}; Spark is not installed, "
            "so one process does the work"
        )
        return False
    _LOG.warning(
        f"{format_bytes(size)} of {content}, so Spark does the work "
        f"(from {format_bytes(threshold)} on)"
    )
    return True


class WarmSpark:
    """The Spark session of a handle; one that it started runs until the handle is closed."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._engine: SparkEngine | None = None

    def start(self, spark: SparkLike) -> SparkEngine:
        """An engine for one call, to be closed by the caller; its session is not reused."""
        from omnigraph.spark.session.engine import resolve_spark

        return resolve_spark(spark, self._options)

    def open(self, spark: SparkLike) -> SparkEngine:
        """An engine for one query; the session is reused by the next one."""
        with self._lock:
            if self._engine is not None and not self._engine.is_alive:
                self._engine.close()
                self._engine = None
            engine = self.start(spark)
            if self._engine is None and engine.owns:
                self._engine = self.start(spark)
            return engine

    def close(self) -> None:
        with self._lock:
            engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()
