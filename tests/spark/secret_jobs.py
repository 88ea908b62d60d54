"""Everything that Spark shows of work on a graph, as texts: for the search after secrets."""

from __future__ import annotations

import io
import logging
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

from omnigraph.spark import SparkGraph, register
from omnigraph.spark.export import ExportTask
from omnigraph.spark.source.datasource import source_class
from omnigraph.spark.source.writer import plan_write
from omnigraph.storage.tables.fragments import locate_table
from omnigraph.write.load.job import LoadDestination, LoadJob, LoadMode
from tests.spark import cluster_jobs as jobs


def everything_shown(
    location: tuple[str, dict[str, str]], lines: Path, dest: Path
) -> dict[str, str]:
    """Load, export, ask, read and write; and gather plans, settings, logs, names and errors."""
    uri, options = location
    log = _listen()
    session = jobs.running().session
    context = session.sparkContext
    context.setLogLevel("DEBUG")
    shown = {}
    try:
        jobs.load_files(location, lines)
        jobs.export_to(location, dest, "ndjson")
        jobs.ask(location, jobs.LONG_QUERY)
        jobs.write_frames(location, ["x", "y"])
        register(session, storage_options=options)
        frame = session.read.format("omnigraph").option("type", "Person").load(uri)
        frame.count()
        shown["explain"] = _explained(frame)
        shown["execution"] = str(frame._jdf.queryExecution().toString())
        shown["frame of a graph"] = _explained(
            SparkGraph(uri, spark=session, storage_options=options).read("Person")
        )
        shown["failure"] = _failure(session, uri)
    finally:
        context.setLogLevel("ERROR")
    scratch = jobs.running().jvm.scratch  # type: ignore[union-attr]
    assert scratch is not None
    shown["log of Java"] = (scratch / "spark.log").read_text("utf-8", "replace")
    assert " DEBUG " in shown["log of Java"]
    shown["log of Python"] = log.getvalue()
    shown["configuration"] = repr(context.getConf().getAll())
    shown["settings of the session"] = repr(session.conf.getAll)
    shown["files of Spark"] = "".join(
        path.read_text("utf-8", "replace")
        for path in scratch.iterdir()
        if path.is_file() and path.name != "spark.log"
    )
    shown["reprs"] = _reprs(location)
    return shown


def _listen() -> io.StringIO:
    log = io.StringIO()
    logging.getLogger().addHandler(logging.StreamHandler(log))
    logging.getLogger().setLevel(logging.DEBUG)
    # What passes between Python and Java as bytes is the work itself.
    logging.getLogger("py4j").setLevel(logging.INFO)
    return log


def _explained(frame: Any) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        for mode in ("extended", "formatted", "codegen", "cost"):
            with suppress(Exception):
                frame.explain(mode)
    assert "omnigraph" in out.getvalue()
    return out.getvalue()


def _failure(session: Any, uri: str) -> str:
    """What Spark says of a source that fails."""
    try:
        session.read.format("omnigraph").option("type", "Nobody").load(uri).count()
    except Exception as error:
        return f"{error!r} {error}"
    raise AssertionError("a type that is not there was read")


def _reprs(location: tuple[str, dict[str, str]]) -> str:
    uri, options = location
    with jobs.opened(location) as graph:
        plan = plan_write(
            uri,
            "Person",
            LoadJob({"Person": None}, LoadMode.APPEND),
            LoadDestination("main"),
            storage=options,
        )
        store = graph._handle.store
        pin = store.manifest(None).current().pin("node:Person")
        assert pin is not None
        version = locate_table(store.datasets, store.table(pin))
        task = ExportTask("", "node:Person", "ndjson", version, (0,), "", "")
        every = [graph, store.root, plan, plan.task, version, task, source_class(options)]
        every += [SparkGraph(graph), jobs.running()]
        return " ".join(f"{item!r} {item}" for item in every)
