"""Runs a load on the requested engine, or on the one that suits its size."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from omnigraph.api.engines import LOAD_BYTES, Engine, SparkLike, runs_on_spark
from omnigraph.api.handle import Handle
from omnigraph.commit.receipts import LoadReceipt
from omnigraph.errors import InputError, OmniGraphError
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.write.load.job import LoadDestination, LoadJob
from omnigraph.write.load.run import load_into
from omnigraph.write.load.sources import Sources
from omnigraph.write.reentrancy import guard_callback


def run_load(
    handle: Handle,
    catalog: Catalog,
    job: LoadJob,
    destination: LoadDestination,
    engine: Engine,
    spark: SparkLike,
) -> LoadReceipt:
    if job.on_progress is not None:
        job = replace(job, on_progress=guard_callback(handle.uri, job.on_progress))
    frames: list[Any] = []
    if isinstance(job.data, Mapping):
        from omnigraph.spark.load.frames import spark_frames

        frames = spark_frames(job.data)
    if spark is None and frames and engine != "local":
        spark = frames[0].sparkSession
    size = _input_bytes(catalog, job) if engine == "auto" and spark is None else None
    if not runs_on_spark(engine, spark, size, LOAD_BYTES, "files"):
        if frames:
            raise InputError(
                "only Spark reads a Spark DataFrame",
                hint="use engine='spark', or pass the result of toArrow()",
            )
        return load_into(handle.store, catalog, job, destination)
    from omnigraph.spark.load.frames import frame_evaluator, frame_reader
    from omnigraph.spark.load.joined_keys import KeyJoins
    from omnigraph.spark.load.run import split_reader
    from omnigraph.spark.session.tasks import SparkExecutor

    with handle.spark.start(spark) as running:
        executor = SparkExecutor(running, job.report_tasks)
        joins = None
        if job.security is None:
            # The finder of the joins knows no hidden rows.
            joins = KeyJoins(running, handle.settings.spark_key_bytes)
        if isinstance(job.data, Mapping):
            reader = frame_reader(frame_evaluator(job.on_progress), executor, joins=joins)
        else:
            reader = split_reader(executor, joins=joins)
        return load_into(handle.store, catalog, job, destination, reader)


def _input_bytes(catalog: Catalog, job: LoadJob) -> int | None:
    """The total size of the files of a load; ``None`` if some data is not in files."""
    data = job.data
    paths = [data] if isinstance(data, str | os.PathLike) else data
    if isinstance(paths, Mapping) or hasattr(paths, "read") or not isinstance(paths, list | tuple):
        return None
    try:
        return sum(
            os.path.getsize(file.path)
            for path in paths
            for file in Sources(catalog, job.format, local_files=job.local_files).files(
                os.fspath(path)
            )
        )
    except (OmniGraphError, OSError, TypeError, ValueError):
        # The load itself reports the error.
        return None
