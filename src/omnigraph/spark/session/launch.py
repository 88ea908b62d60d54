"""Starts and ends the Java process of the Spark driver.

A small script between this process and Java sets Java's environment, so that ours does not change,
and cleans up after Java has ended, even if this process has died: Java exits when the pipe from its
parent closes. The output of Java and the workers goes to a file.

No interrupt is raised from the start of the process until it is registered or has ended. An
interrupted start is cancelled by a protocol of two files: the script writes its process id and then
checks whether it was cancelled; we write the cancellation, and then kill the process id that we
read.
"""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from traceback import walk_tb
from typing import IO, Any
from warnings import catch_warnings, simplefilter

from omnigraph.errors import SparkUnavailable
from omnigraph.spark.session.config import SparkConfig
from omnigraph.spark.session.failures import launch_failure
from omnigraph.spark.session.interrupts import deferred_interrupts
from omnigraph.spark.session.java import NO_ARCHIVE, ArchivePlan, Java, find_java, plan_archive

_LOG_SETTINGS = """\
status = off
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c: %m%n%ex
"""
_LAST_WORDS_BYTES = 1 << 16
_END_SECONDS = 60.0
_BUILD_SECONDS = 300.0
_PID = "pid"
_UNWANTED = "unwanted"


class Jvm:
    """The Java process of a driver; one that we did not start is not ended."""

    def __init__(
        self,
        gateway: Any,
        process: subprocess.Popen[bytes] | None = None,
        scratch: Path | None = None,
        archive: ArchivePlan = NO_ARCHIVE,
    ) -> None:
        self.gateway = gateway
        self.scratch = scratch
        """The directory for everything that it writes; the script removes it."""
        self.builds_archive = archive.building is not None
        self.pid: int = gateway.jvm.java.lang.ProcessHandle.current().pid()
        self._archive = archive
        self._process = process

    @property
    def is_ours(self) -> bool:
        return self._process is not None

    def is_alive(self) -> bool:
        return self._process is None or self._process.poll() is None

    def kill(self) -> None:
        """Kill Java and its children, without waiting for them."""
        if self._process is not None:
            _kill(self._process)

    def end(self) -> None:
        """End Java and wait for it and all of its children; an interrupt kills them."""
        process = self._process
        if process is None:
            return
        with deferred_interrupts(self.kill):
            try:
                _close(process.stdin)
                try:
                    process.wait(_BUILD_SECONDS if self.builds_archive else _END_SECONDS)
                except subprocess.TimeoutExpired:
                    self.kill()
                    process.wait()
                # Close only our ends of the connections; a hanging Java would not answer.
                with suppress(Exception), quiet_py4j():
                    self.gateway.shutdown()
                # The script has done this already, unless it was killed.
                if self.scratch is not None:
                    shutil.rmtree(self.scratch, ignore_errors=True)
                _remove_unfinished(self._archive)
            finally:
                self._archive.release()


def start_jvm(config: SparkConfig) -> Jvm:
    """Start Java for a configuration."""
    import pyspark

    java = find_java(config.java_home)
    home = _spark_home()
    with deferred_interrupts():
        archive = plan_archive(config.cache_dir, config.archive, java, home, pyspark.__version__)
        try:
            return _start(config, java, home, archive)
        except SparkUnavailable:
            archive.release()
            if not archive.is_used:
                raise
            # The archive may be the reason; it is rebuilt later.
            archive.discard()
            return _start(config, java, home, NO_ARCHIVE)
        except BaseException:
            archive.release()
            raise


def _start(config: SparkConfig, java: Java, home: str, archive: ArchivePlan) -> Jvm:
    scratch = Path(tempfile.mkdtemp(prefix="omnigraph-spark-"))
    settings = config.classic_settings(str(scratch), _java_options(scratch, archive))
    environment = {
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": home,
        **config.launch_environment(sys.executable),
    }
    script = scratch / "launch"
    script.write_text(_script(home, scratch, environment, archive), "utf-8")
    script.chmod(0o700)
    (scratch / "log4j2.properties").write_text(_LOG_SETTINGS, "utf-8")
    # In a file that only we can read, unlike command line arguments.
    (scratch / "spark.properties").write_text(_properties(settings), "utf-8")
    return _launch(script, archive)


def _launch(script: Path, archive: ArchivePlan) -> Jvm:
    """Run the script and connect to its Java; on failure no process is left."""
    from pyspark.java_gateway import launch_gateway

    scratch = script.parent
    with (
        open(scratch / "spark.log", "w+b") as log,
        deferred_interrupts(lambda: _cancel_launch(scratch)) as interrupts,
    ):
        # In its own process group: Java gets no signals of our terminal, and all can be killed.
        process = {
            "executable": str(script),
            "stdout": log,
            "stderr": log,
            "start_new_session": True,
        }
        try:
            with catch_warnings(), quiet_py4j():
                # Lance warns about every fork; this child immediately executes another program.
                simplefilter("ignore")
                gateway = launch_gateway(None, process)  # type: ignore[no-untyped-call]
                started: subprocess.Popen[bytes] | None = gateway.proc
                if started is not None:
                    return Jvm(gateway, started, scratch, archive)
        except BaseException as error:
            _abandon(error)
            shutil.rmtree(scratch, ignore_errors=True)
            _remove_unfinished(archive)
            interrupts.check()
            if not isinstance(error, Exception):
                raise
            # Open files stay readable.
            log.seek(max(log.seek(0, os.SEEK_END) - _LAST_WORDS_BYTES, 0))
            raise launch_failure(log.read().decode("utf-8", "replace")) from error
    # Under ``spark-submit`` Java runs already, and PySpark uses it.
    archive.release()
    shutil.rmtree(scratch, ignore_errors=True)
    return Jvm(gateway)


def _cancel_launch(scratch: Path) -> None:
    """Cancel a launch from a signal handler: before, while or after its process starts."""
    with suppress(OSError):
        (scratch / _UNWANTED).touch()
    with suppress(OSError, ValueError):
        os.killpg(int((scratch / _PID).read_text("utf-8")), signal.SIGKILL)


def _abandon(error: BaseException) -> None:
    """Kill a Java that could not be reached, which would not exit by itself.

    PySpark drops the process; only the frames of the failed call still refer to it.
    """
    for frame, _ in walk_tb(error.__traceback__):
        for value in frame.f_locals.values():
            if isinstance(value, subprocess.Popen):
                _close(value.stdin)
                _kill(value)
                value.wait()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process with its group, without waiting: a signal handler may call this."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def quiet_py4j() -> Iterator[None]:
    """Suppress logs of Py4J about a Java that has ended; the caller gets an error."""
    root = logging.getLogger()
    root.addFilter(_is_not_from_py4j)
    try:
        yield
    finally:
        root.removeFilter(_is_not_from_py4j)


def _is_not_from_py4j(record: logging.LogRecord) -> bool:
    return f"{os.sep}py4j{os.sep}" not in record.pathname


def _remove_unfinished(archive: ArchivePlan) -> None:
    if archive.building is not None:
        with suppress(OSError):
            archive.building.unlink(missing_ok=True)


def _java_options(scratch: Path, archive: ArchivePlan) -> str:
    options = [
        f"-Dlog4j2.configurationFile=file:{scratch}/log4j2.properties",
        # No files in the working directory, and none readable for others.
        f"-XX:ErrorFile={scratch}/crash.log",
        "-XX:-CreateCoredumpOnCrash",
        "-XX:-UsePerfData",
        f"-Djava.io.tmpdir={scratch}",
        "-Xlog:disable",
        "-Xlog:all=off",
        *archive.java_options(),
    ]
    return " ".join(f'"{option}"' for option in options)


def _script(home: str, scratch: Path, environment: Mapping[str, str], archive: ArchivePlan) -> str:
    pid, unwanted = (shlex.quote(str(scratch / name)) for name in (_PID, _UNWANTED))
    lines = [
        "#!/bin/sh",
        f"echo $$ > {pid}",
        f"[ ! -e {unwanted} ] || exit 1",
        # On a signal it waits for Java, which gets the signal too; the children do not inherit the
        # trap.
        "trap : TERM HUP",
        # Force a classic session, whatever other programs use.
        "unset SPARK_REMOTE SPARK_CONNECT_MODE_ENABLED",
        *(f"export {name}={shlex.quote(value)}" for name, value in environment.items()),
        f"{shlex.quote(f'{home}/bin/spark-submit')} --load-spark-defaults "
        f'--properties-file {shlex.quote(str(scratch / "spark.properties"))} "$@"',
        "status=$?",
    ]
    if archive.building is not None:
        new, final = shlex.quote(str(archive.building)), shlex.quote(str(archive.archive))
        lines += [f"[ $status = 0 ] && mv -f {new} {final}", f"rm -f {new}"]
    # Java that exits before it was reached has failed; with status 0 PySpark would wait for it.
    return "\n".join([*lines, f"rm -rf {shlex.quote(str(scratch))}", "exit 1", ""])


def _properties(settings: Mapping[str, str]) -> str:
    r"""Settings in the format of Java properties files.

    >>> print(_properties({"spark.a": "x\\y", "spark.b": "two\nlines"}), end="")
    spark.a=x\\y
    spark.b=two\nlines
    """
    escapes = str.maketrans({"\\": r"\\", "\n": r"\n", "\r": r"\r"})
    return "".join(f"{name}={value.translate(escapes)}\n" for name, value in settings.items())


def _spark_home() -> str:
    from pyspark.find_spark_home import _find_spark_home

    return _find_spark_home()


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        with suppress(OSError):
            pipe.close()
