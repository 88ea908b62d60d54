"""A classic driver: Java beside this process, and what PySpark keeps about it in this one."""

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
    """A session that we started, and its Java."""

    def __init__(self, session: SparkSession, jvm: Jvm, path: list[str]) -> None:
        self.session = session
        self.jvm = jvm
        self._path = path

    def end(self) -> None:
        """Stop Spark, and its Java when we started that too; the second interrupt kills that."""
        with deferred_interrupts(_second(self.jvm.kill)):
            try:
                _stop(self.session.stop, self.session.sparkContext.stop)
            finally:
                _forget(self.jvm, self._path)


def start_classic(config: SparkConfig) -> Classic:
    """Start Spark for a configuration, in a Java of its own unless there is one that waits.

    An interrupt ends that Java at once, and is raised when it is gone.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    if is_remote():
        raise SparkError(
            "a process that has used Spark Connect cannot start Spark itself",
            hint="ask the Spark Connect server, or start another process",
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
                    # It was started for something, maybe a cluster; only what is asked for changes.
                    conf.setIfMissing("spark.master", config.effective_master)
                    conf.setIfMissing("spark.app.name", "omnigraph")
                    conf.setAll(list(config.session_settings().items()))
                    if config.master:
                        conf.setMaster(config.master)
                # A cluster may take its time.
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
            # What fails in a Java that was killed for an interrupt is no failure of its own.
            interrupts.check()
            raise
    return Classic(session, jvm, path)


def _in_thread(work: Callable[[], T], jvm: Jvm, interrupts: Interrupts) -> T:
    """Run something in another thread than the main one, and wait for it.

    A context that starts in the main thread takes over Ctrl-C: PySpark's own handler would cancel
    everybody's jobs, also after the end. For a Java that is not ours nobody waits after an
    interrupt, since that does not end it.
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
    """Let PySpark end what it started.

    An end without Java is not clean; what PySpark then leaves open, a second call closes.
    """
    for stop in stops:
        with catch_warnings(), quiet_py4j(), suppress(Exception):
            simplefilter("ignore", RuntimeWarning)
            stop()


def _second(react: Callable[[], None]) -> Callable[[], None]:
    """React to every interrupt but the first: that waits for what is under way."""
    calls = count()

    def called() -> None:
        if next(calls):
            react()

    return called


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
