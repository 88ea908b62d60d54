"""Where work runs: in this process, or on Spark."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from omnigraph.errors import InputError
from omnigraph.settings import Settings

if TYPE_CHECKING:
    from omnigraph.spark.session.config import SparkConfig


def add_engine(parser: argparse.ArgumentParser, engines: Sequence[str]) -> None:
    parser.add_argument(
        "--engine", choices=engines, default=engines[0], help="where it runs; the same answer"
    )
    parser.add_argument(
        "--master", metavar="URL", help="where Spark runs, such as spark://host:7077"
    )


def chosen_spark(arguments: argparse.Namespace) -> SparkConfig | None:
    """How to start Spark, when the command line says so; the environment's way otherwise."""
    if arguments.master is None:
        return None
    if arguments.engine == "local":
        raise InputError("--master says where Spark runs, and --engine local does without it")
    from omnigraph.spark.session.config import SparkConfig

    usual = Settings.from_environ().spark_options()
    usual.pop("remote", None)
    return SparkConfig.from_options({**usual, "master": arguments.master})
