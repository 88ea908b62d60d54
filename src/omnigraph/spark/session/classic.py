"""A classic driver: a Java process, and the state that PySpark keeps about it in this process."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, TypeVar
from warnings import catch_warnings, simplefilter

from omnigraph.errors import SparkError
from omnigraph.spark.session.config import SparkConfig
from omnigraph.spark.session.failures import spark_call
from omnigraph.spark.session.interrupts import Interrupts, deferred_interrupts
from omnigraph.spark.session.launch import Jvm, quiet_py4j, start_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

_POLL_SECONDS = 0.05


class Classic:
    """A session that we started, and its Java process."""

    def __init__(self, session: SparkSession, jvm: Jvm, path: list[str]) -> None:
        self.session = session
        self.jvm = jvm
        self._path = path

    def end(self) -> None:
        """Stop Spark, and its Java process if we started it; a second interrupt kills Java."""
        with deferred_interrupts(_second(self.jvm.kill)):
            try:
                _stop(self.session.stop, self.session.sparkContext.stop)
            finally:
                _forget(self.jvm, self._path)


def start_classic(config: SparkConfig) -> Classic:
    """Start Spark for a configuration, in a new Java process unless PySpark has one.

    An interrupt kills a new Java process immediately, and is raised after it has ended.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    if is_remote():
        raise SparkError(
            "a process that has used Spark Connect cannot start Spark itself",
            hint="use the Spark Connect server, or start another process",
        )
    path = list(sys.path)
    left = SparkContext._gateway
    context: SparkContext | None = None
    with deferred_interrupts() as interrupts:
        jvm = start_jvm(config) if left is None else Jvm(left)
        try:
            with spark_call("starting Spark"):
                conf = SparkConf(_jvm=jvm.gateway.jvm)
                if not jvm.is_ours:
                    # It may be configured for a cluster; only requested settings are changed.
                    conf.setIfMissing("spark.master", config.effective_master)
                    conf.setIfMissing("spark.app.name", "omnigraph")
                    conf.setAll(list(config.session_settings().items()))
                    if config.master:
                        conf.setMaster(config.master)
                # A cluster may take long to start.
                with interrupts.reacting(jvm.kill), quiet_py4j():
                    context = _in_thread(
                        lambda: SparkContext(conf=conf, gateway=jvm.gateway), jvm, interrupts
                    )
                context.pythonExec = config.worker_python(sys.executable)
                session = SparkSession(context)
            interrupts.check()
        except BaseException:
            if context is not None:
                _stop(context.stop)
            _forget(jvm, path)
            # The interrupt that killed Java is the error to raise, not its consequences.
            interrupts.check()
            raise
    return Classic(session, jvm, path)


def _in_thread(work: Callable[[], T], jvm: Jvm, interrupts: Interrupts) -> T:
    """Run a function outside of the main thread, and wait for it.

    A context that starts in the main thread installs PySpark's Ctrl-C handler, which would cancel
    all jobs, even after the end. An interrupt does not kill a Java process that is not ours, so it
    ends the wait.
    """
    outcome: list[T] = []
    failure: list[BaseException] = []

    def body() -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=body, name="spark start", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_POLL_SECONDS)
        if not jvm.is_ours:
            interrupts.check()
    if failure:
        raise failure[0]
    return outcome[0]


def _stop(*stops: Callable[[], None]) -> None:
    """Let PySpark stop what it started; without Java, only a second call closes everything."""
    for stop in stops:
        with catch_warnings(), quiet_py4j(), suppress(Exception):
            simplefilter("ignore", RuntimeWarning)
            stop()


def _second(react: Callable[[], None]) -> Callable[[], None]:
    """React to every interrupt but the first, which waits for running work."""
    calls = count()

    def called() -> None:
        if next(calls):
            react()

    return called


def _forget(jvm: Jvm, path: list[str]) -> None:
    """End Java, and reset PySpark so that it can start another."""
    from pyspark import SparkContext

    try:
        jvm.end()
    finally:
        if jvm.is_ours and SparkContext._gateway is jvm.gateway:
            SparkContext._gateway = None
            SparkContext._jvm = None
        # PySpark added its scratch directory, now removed, to the module path.
        sys.path[:] = [entry for entry in sys.path if entry in path or os.path.exists(entry)]
