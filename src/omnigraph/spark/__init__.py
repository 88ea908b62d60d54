"""Bulk work on PySpark: the session, loads, queries, exports and the data source.

The rest of the package works without PySpark, which is imported when a session is opened. Modules
that work on graphs are imported on first use.
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
