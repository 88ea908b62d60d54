"""A standalone cluster of Spark on loopback: one master and two workers of one core each.

Every one of them is started from the package of PySpark, in a process group of its own, and ended
by its number. A shell stands before each, which ends the group when this process is gone.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from omnigraph.spark import SparkConfig
from omnigraph.spark.session.java import find_java
from omnigraph.spark.session.launch import _spark_home
from tests.spark.processes import alive, arguments_of, descendants, wait_until

ROOT = Path(__file__).parent.parent.parent
HOST = "127.0.0.1"
WORKERS = 2
_STARTS = 3
_DEPLOY = "org.apache.spark.deploy"
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_GUARDED = '"$@" & read -r _; kill -9 0'

SETTINGS = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    # The functions that tests send are in the modules of the tests.
    "spark.executorEnv.PYTHONPATH": str(ROOT),
}
"""For a driver that uses the cluster."""


class Process:
    """A process of the cluster, with all that it starts."""

    def __init__(self, folder: Path, name: str, host: str, *command: str) -> None:
        self.log = folder / f"{name}.log"
        environment = os.environ | {
            "JAVA_HOME": str(find_java("").home),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:-UsePerfData",
            "SPARK_NO_DAEMONIZE": "1",
        }
        start = [f"{_spark_home()}/bin/spark-class", f"{_DEPLOY}.{command[0]}", *command[1:]]
        with open(self.log, "wb") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _GUARDED, "sh", *start],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )

    def says(self, words: str) -> bool:
        """Wait until it says something, or has ended."""
        wait_until(lambda: words in self._said() or self._process.poll() is not None)
        return words in self._said()

    def _said(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def below(self) -> set[int]:
        return descendants(self._process.pid)

    def executors(self) -> list[int]:
        """The executors that run."""
        return [pid for pid in self.below() if _EXECUTOR in arguments_of(pid) and alive(pid)]

    def kill(self) -> None:
        """End it and its executors at once; the workers of Python notice and end too."""
        below = self.below()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        wait_until(lambda: not any(map(alive, below)))


class Cluster:
    """Runs until ``stop``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._workers = 0
        self.workers: list[Process] = []
        self.master, self.address = self._start_master()
        try:
            self.fill()
        except BaseException:
            self.stop()
            raise

    def _start_master(self) -> tuple[Process, str]:
        for _ in range(_STARTS):
            port = _free_port()
            given = ("--host", HOST, "--port", str(port), "--webui-port", "0")
            master = Process(self._folder, "master", HOST, "master.Master", *given)
            # If somebody took the port since, Spark takes the next one.
            if master.says(f"Starting Spark master at spark://{HOST}:{port}") and master.says(
                "I have been elected leader"
            ):
                return master, f"spark://{HOST}:{port}"
            master.kill()
        raise RuntimeError("the master of Spark does not start")

    def fill(self) -> None:
        """Let there be two workers, also after one was killed."""
        new = []
        while len(self.workers) < WORKERS:
            self._workers += 1
            name = f"worker-{self._workers}"
            # Spark lets a task run twice only on two machines, which it tells apart by address.
            host = f"127.0.0.{1 + self._workers}"
            given = ("--host", host, "--webui-port", "0", "-c", "1", "-m", "1g")
            location = ("-d", str(self._folder / name), self.address)
            worker = Process(self._folder, name, host, "worker.Worker", *given, *location)
            self.workers.append(worker)
            new.append(worker)
        for worker in new:
            assert worker.says("Successfully registered with master"), worker.log.read_text()

    def kill_worker(self, worker: Process) -> None:
        self.workers.remove(worker)
        worker.kill()

    def executors(self) -> list[int]:
        return [pid for worker in self.workers for pid in worker.executors()]

    def config(self, settings: Mapping[str, str] | None = None) -> SparkConfig:
        """For a driver on this cluster."""
        return SparkConfig(self.address, memory="1g", settings={**SETTINGS, **(settings or {})})

    def stop(self) -> None:
        for process in (*self.workers, self.master):
            process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _free_port() -> int:
    with socket.socket() as actual:
        actual.bind((HOST, 0))
        port: int = actual.getsockname()[1]
        return port
