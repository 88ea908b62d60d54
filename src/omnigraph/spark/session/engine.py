"""The Spark of this process: started on first use, shared, and stopped with its last handle.

A driver is either a Java child process (classic, on this machine or for a cluster) or on a Spark
Connect server. For a session of the user we open another one with our own settings; stopping ours
does not stop theirs.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from omnigraph.errors import Closed, SparkError, SparkUnavailable
from omnigraph.logs import logger
from omnigraph.spark.session.classic import start_classic
from omnigraph.spark.session.config import SparkConfig
from omnigraph.spark.session.connect import beside, connected, disconnect, is_connect
from omnigraph.spark.session.failures import spark_call
from omnigraph.spark.session.interrupts import deferred_interrupts
from omnigraph.spark.session.jobs import Report, run_watched
from omnigraph.spark.session.launch import Jvm
from omnigraph.spark.session.tasks import in_task_order, task_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnigraph.read.limits import Cancel

    SparkLike: TypeAlias = SparkSession | SparkConfig | None

A = TypeVar("A")
R = TypeVar("R")
T = TypeVar("T")

_LOG = logger(__name__)

_LEAST = (4, 3)
_INSTALL = "pip install 'omnigraph[spark]'"


class _Driver:
    """A session and the resources to release with it, shared by all handles."""

    def __init__(
        self, session: SparkSession, config: SparkConfig, end: Callable[[], None], owned: bool
    ) -> None:
        self.session = session
        self.config = config
        self.is_connect = is_connect(session)
        self.owned = owned
        self.jvm: Jvm | None = None
        self.users = 0
        self._end = end
        self._process = os.getpid()
        self._has_ended = False

    def is_alive(self) -> bool:
        """Whether it can still be used: not stopped, and its Java is alive."""
        return not self._has_ended and (self.jvm is None or self.jvm.is_alive())

    def end(self) -> None:
        # A forked child inherits the handles, but not Spark.
        if self._has_ended or self._process != os.getpid():
            return
        self._has_ended = True
        self._end()


_guard = threading.RLock()
_driver: _Driver | None = None
"""The driver that we started in this process: Spark allows one."""


class SparkEngine:
    """A handle of Spark. Use it as a context manager, or call ``close``."""

    def __init__(self, driver: _Driver) -> None:
        self._driver: _Driver | None = driver
        self._slots: int | None = None

    # -- state ---------------------------------------------------------------------------

    @property
    def session(self) -> SparkSession:
        """The PySpark session: in UTC, and with checked schemas."""
        return self._open().session

    @property
    def is_connect(self) -> bool:
        """Whether the driver is on a Spark Connect server."""
        return self._open().is_connect

    @property
    def owns(self) -> bool:
        """Whether we started Spark, and stop it."""
        return self._open().owned

    @property
    def jvm(self) -> Jvm | None:
        """The Java child process, if we started it."""
        return self._open().jvm

    @property
    def is_alive(self) -> bool:
        """Whether it can be used: false after ``close``, or if its Java has died."""
        return self._driver is not None and self._driver.is_alive()

    @property
    def slots(self) -> int:
        """The number of tasks that run in parallel."""
        if self._slots is None:
            session = self.session
            # Spark splits a range into this many partitions; Spark Connect has no other way to
            # query it.
            parts = session.range(1 << 20).selectExpr("spark_partition_id() AS part").distinct()
            self._slots = self.run(parts.count, "counting the cores")
        return self._slots

    # -- work ----------------------------------------------------------------------------

    def run(
        self,
        action: Callable[[], T],
        label: str,
        *,
        cancel: Cancel | None = None,
        check: Callable[[], None] | None = None,
        report: Report | None = None,
    ) -> T:
        """Run an action of PySpark, such as ``frame.count``; see ``run_watched``."""
        driver = self._open()
        return run_watched(
            driver.session,
            driver.is_connect,
            action,
            label,
            cancel=cancel,
            check=check,
            report=report,
        )

    def tasks(
        self,
        function: Callable[[A], R],
        tasks: Sequence[A],
        label: str,
        *,
        cancel: Cancel | None = None,
        check: Callable[[], None] | None = None,
        report: Report | None = None,
    ) -> list[R]:
        """Run a function on many tasks, one Spark task each; returns the results in task order.

        ``function`` should be in a module that the workers have. Tasks and results are pickled;
        they are small, and may contain secrets. A typed error of the function is raised here.
        """
        count = len(tasks)
        if not count:
            return []

        def progress(done: int, _: int) -> None:
            # The last one is reported when the results are here.
            if report is not None and done < count:
                report(done, count)

        def ask() -> Any:
            return task_frame(self.session, function, tasks, label).toArrow()

        table = self.run(ask, label, cancel=cancel, check=check, report=report and progress)
        results = [answer.result() for answer in in_task_order(table, label, count)]
        if report is not None:
            report(count, count)
        return results

    # -- the end -------------------------------------------------------------------------

    def close(self) -> None:
        """Release the handle; the last one stops what we started. A failure to stop is logged."""
        with _guard, deferred_interrupts():
            driver, self._driver = self._driver, None
            if driver is None:
                return
            driver.users -= 1
            if driver.users == 0:
                try:
                    _end(driver)
                except Exception as error:
                    _LOG.warning("Spark did not stop cleanly: %s", error)

    def __enter__(self) -> SparkEngine:
        self._open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _open(self) -> _Driver:
        if self._driver is None:
            raise Closed("this handle of Spark is closed")
        return self._driver


def open_spark(
    config: SparkConfig | None = None, *, session: SparkSession | None = None
) -> SparkEngine:
    """A handle of the given session, of the Spark running in this process, or of a new one."""
    _refuse_without_pyspark()
    requested = config or SparkConfig()
    with _guard:
        if _driver is not None and not _driver.is_alive():
            _end(_driver)
        if session is not None:
            driver = _beside(session, requested)
        elif _driver is not None:
            _refuse_another(_driver, requested)
            driver = _driver
        else:
            active = _active_session()
            if active is None and not requested.remote:
                return _start(requested)
            driver = _connect(requested) if active is None else _beside(active, requested)
        driver.users += 1
        return SparkEngine(driver)


# -- sessions -------------------------------------------------------------------------------------


def require_pyspark() -> None:
    """Raise ``SparkUnavailable`` unless PySpark is installed; nothing of it is imported."""
    for package in ("pyspark", "pandas"):
        if importlib.util.find_spec(package) is None:
            name = "PySpark" if package == "pyspark" else "pandas, which PySpark needs,"
            raise SparkUnavailable(f"{name} is not installed", hint=_INSTALL)


def _refuse_without_pyspark() -> None:
    require_pyspark()
    import pyspark

    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < _LEAST:
        least = ".".join(map(str, _LEAST))
        raise SparkUnavailable(
            f"PySpark {least} or newer is needed, and {pyspark.__version__} is installed",
            hint=_INSTALL,
        )


def _refuse_another(running: _Driver, requested: SparkConfig) -> None:
    """Refuse other settings than those of the running driver; without settings it is shared."""
    plain = SparkConfig()
    wanted = (requested.master, requested.remote, requested.settings)
    has = (running.config.master, running.config.remote, running.config.settings)
    if wanted not in ((plain.master, plain.remote, plain.settings), has):
        raise SparkError(
            "Spark runs in this process already, with other settings",
            hint="close its handles first, or request no settings",
        )


def _active_session() -> SparkSession | None:
    """A session that other code opened in this process."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    with suppress(PySparkException):
        session = SparkSession.active()
        # PySpark also returns one whose context was stopped, or whose Java died.
        if is_connect(session) or session.sparkContext._jsc is not None:
            return session
    return None


def _beside(given: SparkSession, requested: SparkConfig) -> _Driver:
    """A new session on another owner's driver."""
    with spark_call("using the given Spark session"):
        if is_connect(given):
            ours = beside(given)
            driver = _Driver(ours, requested, lambda: disconnect(ours), owned=False)
        else:
            runs = given.sparkContext.master
            if requested.remote or (requested.master and requested.master != runs):
                raise SparkError(
                    f"Spark runs in this process already, with master '{runs}'",
                    hint="stop that session first, or request no other master",
                )
            ours = given.newSession()
            # A new session has the settings from the start of Spark, not later changes.
            has = ours.conf.getAll
            for name, value in given.conf.getAll.items():
                if has.get(name) != value and given.conf.isModifiable(name):
                    ours.conf.set(name, value)
            driver = _Driver(ours, requested, lambda: None, owned=False)
        for name, value in requested.session_settings().items():
            ours.conf.set(name, value)
    return driver


def _connect(config: SparkConfig) -> _Driver:
    session = connected(config)
    driver = _Driver(session, config, lambda: disconnect(session), owned=True)
    _register(driver)
    return driver


def _start(config: SparkConfig) -> SparkEngine:
    """Start Java and return its first handle; an interrupt leaves neither."""
    with deferred_interrupts() as interrupts:
        classic = start_classic(config)
        driver = _Driver(classic.session, config, classic.end, owned=True)
        driver.jvm = classic.jvm
        driver.users = 1
        _register(driver)
        engine = SparkEngine(driver)
        if interrupts.raised is not None:
            engine.close()
    return engine


def _register(driver: _Driver) -> None:
    global _driver
    _driver = driver
    atexit.register(_end, driver)


def _end(driver: _Driver) -> None:
    global _driver
    with _guard, deferred_interrupts():
        if driver is _driver:
            _driver = None
            atexit.unregister(_end)
        driver.end()


def resolve_spark(spark: SparkLike, usual: Mapping[str, str]) -> SparkEngine:
    """A handle of the given session or configuration, or one with the default options."""
    if spark is None:
        return open_spark(SparkConfig.from_options(usual))
    if isinstance(spark, SparkConfig):
        return open_spark(spark)
    return open_spark(session=spark)


def is_installed() -> bool:
    """Whether PySpark is installed."""
    return importlib.util.find_spec("pyspark") is not None
