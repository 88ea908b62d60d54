"""A classic driver: Java beside this process, and what PySpark keeps about it in this one."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING
from warnings import catch_warnings, simplefilter

from omnigraph.errors import SparkError
from omnigraph.spark.config import SparkConfig
from omnigraph.spark.failures import spark_call
from omnigraph.spark.launch import Jvm, start_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Classic:
    """A session that we started, and its Java."""

    def __init__(self, session: SparkSession, jvm: Jvm, path: list[str]) -> None:
        self.session = session
        self.jvm = jvm
        self._path = path

    def end(self) -> None:
        """Stop Spark, and its Java when we started that too."""
        context = self.session.sparkContext
        try:
            # An end without Java is not clean; what PySpark then leaves open, a second call closes.
            for stop in (self.session.stop, context.stop):
                with catch_warnings(), suppress(Exception):
                    simplefilter("ignore", RuntimeWarning)
                    stop()
        finally:
            _forget(self.jvm, self._path)


def start_classic(config: SparkConfig) -> Classic:
    """Start Spark for a configuration, in a Java of its own unless there is one that waits."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    if is_remote():
        raise SparkError(
            "a process that has used Spark Connect cannot start Spark itself",
            hint="ask the Spark Connect server, or start another process",
        )
    path, handler = list(sys.path), signal.getsignal(signal.SIGINT)
    left = SparkContext._gateway
    jvm = start_jvm(config) if left is None else Jvm(left)
    try:
        with spark_call("starting Spark"):
            conf = SparkConf(_jvm=jvm.gateway.jvm)
            if not jvm.is_ours:
                # It was started for something, maybe a cluster; only what is asked for changes.
                conf.setIfMissing("spark.master", config.effective_master)
                conf.setIfMissing("spark.app.name", "omnigraph")
                conf.setAll(list(config.session_settings().items()))
                if config.master:
                    conf.setMaster(config.master)
            context = SparkContext(conf=conf, gateway=jvm.gateway)
            context.pythonExec = config.worker_python(sys.executable)
            session = SparkSession(context)
    except BaseException:
        _forget(jvm, path)
        raise
    finally:
        # PySpark's own handler would cancel everybody's jobs, also after the end.
        if threading.current_thread() is threading.main_thread() and handler is not None:
            signal.signal(signal.SIGINT, handler)
    return Classic(session, jvm, path)


def _forget(jvm: Jvm, path: list[str]) -> None:
    """End Java, and let PySpark start another one when it is asked again."""
    from pyspark import SparkContext

    try:
        jvm.end()
    finally:
        if jvm.is_ours and SparkContext._gateway is jvm.gateway:
            SparkContext._gateway = None
            SparkContext._jvm = None
        # PySpark lets Python look for modules in its scratch directory, which is gone.
        sys.path[:] = [entry for entry in sys.path if entry in path or os.path.exists(entry)]
