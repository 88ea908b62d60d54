"""Which engine a load or an export runs on, and the work itself: for the handle."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.api.arguments import ENGINES
from omnigraph.commit.receipts import LoadReceipt
from omnigraph.commit.store import GraphStore
from omnigraph.errors import InputError, OmniGraphError
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.logs import logger
from omnigraph.maintain.units import format_bytes
from omnigraph.settings import Settings
from omnigraph.write.export import Export
from omnigraph.write.load.commit import load_into
from omnigraph.write.load.files import Sources
from omnigraph.write.load.job import LoadData, LoadDestination, LoadJob
from omnigraph.write.reentrancy import guard_callback

if TYPE_CHECKING:
    from omnigraph.spark.session.resolve import SparkLike

_LOG = logger("omnigraph")

SPARK_BYTES = 1 << 30
"""From so many bytes of files on, a load that may choose runs on Spark."""


def run_load(
    store: GraphStore,
    catalog: Catalog,
    job: LoadJob,
    destination: LoadDestination,
    engine: str,
    spark: SparkLike,
) -> LoadReceipt:
    """Load on the requested engine; ``auto`` chooses by the size of the files."""
    if engine not in ENGINES:
        raise InputError(f"invalid load engine '{engine}'", hint=f"use one of {', '.join(ENGINES)}")
    if job.on_progress is not None:
        job = replace(job, on_progress=guard_callback(store.root.uri, job.on_progress))
    frames = _spark_frames(job.data)
    if engine == "auto":
        engine = "spark" if frames else _choose_engine(catalog, job, spark is not None)
    if engine == "local":
        if frames:
            raise InputError(
                "a DataFrame of Spark is read by Spark",
                hint="use engine='spark', or pass what toArrow() gives",
            )
        return load_into(store, catalog, job, destination)
    from omnigraph.spark.load.frames import frame_evaluator, frame_reader
    from omnigraph.spark.load.joined_keys import KeyJoins
    from omnigraph.spark.load.run import split_reader, task_executor
    from omnigraph.spark.session.resolve import resolve_spark

    if spark is None and frames:
        spark = frames[0].sparkSession
    settings = Settings.from_environ()
    with resolve_spark(spark, settings.spark_options()) as running:
        run = task_executor(running, job.on_progress)
        joins = KeyJoins.from_text(running, settings.spark_key_bytes)
        if isinstance(job.data, Mapping):
            reader = frame_reader(frame_evaluator(job.on_progress), run, joins=joins)
        else:
            reader = split_reader(run, joins=joins)
        return load_into(store, catalog, job, destination, reader)


def run_export(
    export: Export,
    catalog: Catalog,
    dest: str | os.PathLike[str] | None,
    form: str,
    spark: SparkLike,
) -> int:
    """Write a snapshot out by tasks of Spark."""
    from omnigraph.spark.export import export_files
    from omnigraph.spark.load.run import task_executor
    from omnigraph.spark.session.resolve import resolve_spark

    if dest is None:
        raise InputError("Spark needs a directory to write to", hint="pass dest")
    with resolve_spark(spark, Settings.from_environ().spark_options()) as running:
        return export_files(export, catalog, Path(dest), form, task_executor(running))


def _spark_frames(data: LoadData) -> list[Any]:
    """The DataFrames of Spark among the data."""
    if not isinstance(data, Mapping):
        return []
    from omnigraph.spark.load.frames import spark_frames

    return spark_frames(data)


def _choose_engine(catalog: Catalog, job: LoadJob, has_spark: bool) -> str:
    """Spark for many bytes of files, if it is installed; its start is logged."""
    size = _input_bytes(catalog, job)
    if size is None or size < SPARK_BYTES:
        return "local"
    from omnigraph.spark.session.resolve import is_installed

    if not has_spark and not is_installed():
        _LOG.warning(
            f"{format_bytes(size)} of files; Spark is not installed, so one process loads them"
        )
        return "local"
    _LOG.warning(
        f"{format_bytes(size)} of files, so Spark loads them (from {format_bytes(SPARK_BYTES)} on)"
    )
    return "spark"


def _input_bytes(catalog: Catalog, job: LoadJob) -> int | None:
    """The total size of the files of a load; none if some data is not in files."""
    data = job.data
    paths = [data] if isinstance(data, str | os.PathLike) else data
    if isinstance(paths, Mapping) or hasattr(paths, "read") or not isinstance(paths, list | tuple):
        return None
    try:
        return sum(
            os.path.getsize(file.path)
            for path in paths
            for file in Sources(catalog, job.format).files(os.fspath(path))
        )
    except (OmniGraphError, OSError, TypeError, ValueError):
        # The load itself reports the error.
        return None
