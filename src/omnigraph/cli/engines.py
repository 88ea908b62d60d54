"""The engine options: this process, or Spark."""

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
        "--engine", choices=engines, default=engines[0], help="where to run; the result is the same"
    )
    parser.add_argument("--master", metavar="URL", help="Spark master, such as spark://host:7077")


def spark_config(arguments: argparse.Namespace) -> SparkConfig | None:
    """The Spark configuration of the command line; none to use that of the environment."""
    if arguments.master is None:
        return None
    if arguments.engine == "local":
        raise InputError(
            "--master cannot be combined with --engine local, which does not use Spark"
        )
    from omnigraph.spark.session.config import SparkConfig

    options = Settings.from_environ().spark_options()
    options.pop("remote", None)
    return SparkConfig.from_options({**options, "master": arguments.master})
