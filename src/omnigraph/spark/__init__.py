"""Bulk work through PySpark: the session, and what runs on it.

Everything else works without PySpark; it is imported when a session is opened. What works on
graphs is loaded when first used.
"""

from typing import TYPE_CHECKING, Any

from omnigraph.spark.session.config import SparkConfig
from omnigraph.spark.session.engine import SparkEngine, open_spark

if TYPE_CHECKING:
    from omnigraph.spark.load.graph_writer import SparkGraph
    from omnigraph.spark.source.datasource import register

__all__ = ["SparkConfig", "SparkEngine", "SparkGraph", "open_spark", "register"]


def __getattr__(name: str) -> Any:
    if name == "SparkGraph":
        from omnigraph.spark.load.graph_writer import SparkGraph

        return SparkGraph
    if name == "register":
        from omnigraph.spark.source.datasource import register

        return register
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
