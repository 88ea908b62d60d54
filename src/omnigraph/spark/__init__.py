"""Bulk work through PySpark: the session, and what runs on it.

Everything else works without PySpark; it is imported when a session is opened. What works on
graphs is loaded when first used.
"""

from typing import TYPE_CHECKING, Any

from omnigraph.spark.config import SparkConfig
from omnigraph.spark.session import SparkEngine, open_spark

if TYPE_CHECKING:
    from omnigraph.spark.graph_writer import SparkGraph
    from omnigraph.spark.source import register

__all__ = ["SparkConfig", "SparkEngine", "SparkGraph", "open_spark", "register"]


def __getattr__(name: str) -> Any:
    if name == "SparkGraph":
        from omnigraph.spark.graph_writer import SparkGraph

        return SparkGraph
    if name == "register":
        from omnigraph.spark.source import register

        return register
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
