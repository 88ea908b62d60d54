"""Which engine a load or an export runs on, and the work itself: for the handle."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
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
from omnigraph.write.load.files import SourceOptions, source_files
from omnigraph.write.load.run import LoadMode, LoadOptions
from omnigraph.write.load.sources import LoadData
from omnigraph.write.load.target import LoadTarget, load_into
from omnigraph.write.reentrancy import guard_callback

if TYPE_CHECKING:
    from omnigraph.spark.session.handed import Handed

_LOG = logger("omnigraph")

SPARK_BYTES = 1 << 30
"""From so many bytes of files on, a load that may choose runs on Spark."""


@dataclass(frozen=True, slots=True)
class Loading:
    """Everything about a load but the engine."""

    store: GraphStore
    catalog: Catalog
    data: LoadData
    mode: LoadMode
    options: LoadOptions
    target: LoadTarget


def run_load(loading: Loading, engine: str, spark: Handed) -> LoadReceipt:
    """Load on the engine that was asked for, or on the one that suits."""
    if engine not in ENGINES:
        raise InputError(f"'{engine}' is no load engine", hint=f"use one of {', '.join(ENGINES)}")
    tell = loading.options.progress
    if tell is not None:
        guarded = replace(loading.options, progress=guard_callback(loading.store.root.uri, tell))
        loading = replace(loading, options=guarded)
    frames = _spark_frames(loading.data)
    if engine == "auto":
        engine = "spark" if frames else _chosen(loading, spark is not None)
    each = (loading.store, loading.catalog, loading.data, loading.mode, loading.options)
    if engine == "local":
        if frames:
            raise InputError(
                "a DataFrame of Spark is read by Spark",
                hint="use engine='spark', or pass what toArrow() gives",
            )
        return load_into(*each, loading.target)
    from omnigraph.spark.load.frames import asking, frame_reading
    from omnigraph.spark.load.joined_keys import KeyJoins
    from omnigraph.spark.load.run import shared_reading, task_runner
    from omnigraph.spark.session.handed import opened_spark

    progress = loading.options.progress
    if spark is None and frames:
        spark = frames[0].sparkSession
    settings = Settings.from_environ()
    with opened_spark(spark, settings.spark_options()) as running:
        run = task_runner(running, progress)
        joins = KeyJoins.from_text(running, settings.spark_key_bytes)
        if isinstance(loading.data, Mapping):
            reader = frame_reading(asking(progress), run, joins=joins)
        else:
            reader = shared_reading(run, joins=joins)
        return load_into(*each, loading.target, reader)


def run_export(
    export: Export,
    catalog: Catalog,
    dest: str | os.PathLike[str] | None,
    form: str,
    spark: Handed,
) -> int:
    """Write a snapshot out by tasks of Spark."""
    from omnigraph.spark.export import export_parts
    from omnigraph.spark.load.run import task_runner
    from omnigraph.spark.session.handed import opened_spark

    if dest is None:
        raise InputError("Spark needs a directory to write to", hint="pass dest")
    with opened_spark(spark, Settings.from_environ().spark_options()) as running:
        return export_parts(export, catalog, Path(dest), form, task_runner(running))


def _spark_frames(data: LoadData) -> list[Any]:
    """The DataFrames of Spark among the data."""
    if not isinstance(data, Mapping):
        return []
    from omnigraph.spark.load.frames import spark_frames

    return spark_frames(data)


def _chosen(loading: Loading, has_spark: bool) -> str:
    """Spark for many bytes of files, if it is there; that it starts is said in one line."""
    size = _bytes_of(loading)
    if size is None or size < SPARK_BYTES:
        return "local"
    from omnigraph.spark.session.handed import is_installed

    if not has_spark and not is_installed():
        _LOG.warning(
            f"{format_bytes(size)} of files; Spark is not installed, so one process loads them"
        )
        return "local"
    _LOG.warning(
        f"{format_bytes(size)} of files, so Spark loads them (from {format_bytes(SPARK_BYTES)} on)"
    )
    return "spark"


def _bytes_of(loading: Loading) -> int | None:
    """How large the files of a load are, none when they are not all files."""
    data = loading.data
    paths = [data] if isinstance(data, str | os.PathLike) else data
    if isinstance(paths, Mapping) or hasattr(paths, "read") or not isinstance(paths, list | tuple):
        return None
    try:
        return sum(
            os.path.getsize(file.path)
            for path in paths
            for file in source_files(
                os.fspath(path), SourceOptions(loading.options.form), loading.catalog
            )
        )
    except (OmniGraphError, OSError, TypeError, ValueError):
        # What is wrong with it, the load itself says.
        return None
