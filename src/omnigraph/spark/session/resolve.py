"""Spark as a caller hands it over: a session, how to start one, or nothing."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from omnigraph.spark.session.config import SparkConfig
from omnigraph.spark.session.engine import SparkEngine, open_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    SparkLike: TypeAlias = SparkSession | SparkConfig | None


def resolve_spark(spark: SparkLike, usual: Mapping[str, str]) -> SparkEngine:
    """A handle of what was handed over; if that is nothing, by the usual options."""
    if spark is None:
        return open_spark(SparkConfig.from_options(usual))
    if isinstance(spark, SparkConfig):
        return open_spark(spark)
    return open_spark(session=spark)


def is_installed() -> bool:
    """Whether there is a PySpark at all."""
    return importlib.util.find_spec("pyspark") is not None
