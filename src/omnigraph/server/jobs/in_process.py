"""Runs the work of a job in a process of its own, and follows it.

The record of the job names the process before it begins, so that nobody takes the job for dead
while it works, nor for alive once it has ended. A process that does not stop in time when it is
asked to is killed by its id, and Java below it; what it had begun to commit is recovered, and
then the record says whether that was done.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any

from omnigraph.api.graph import Graph
from omnigraph.errors import SparkUnavailable
from omnigraph.progress import Progress
from omnigraph.server.config import LogOptions
from omnigraph.server.jobs.owners import process_of
from omnigraph.server.jobs.process_tree import kill_descendants
from omnigraph.server.jobs.process_work import (
    STOP,
    Failed,
    Finished,
    GraphAddress,
    ProcessTask,
    ProcessWork,
)
from omnigraph.server.jobs.running import RunningJob
from omnigraph.spark.session.failures import unpack

MODULE = "omnigraph.server.jobs.process"
STOP_SECONDS = 10.0
"""How long a process that is asked to stop may take; then it is killed."""
_LOOK_SECONDS = 0.1
_END_SECONDS = 30.0


class ProcessLost(Exception):
    """The process ended without a word: it was killed, or broke."""


class WorkFailed(Exception):
    """An error in the process that is not typed; its trace is for the log only."""


def run_in_process(job: RunningJob, graph: Graph, work: ProcessWork, log: LogOptions) -> Any:
    """Run the work for a job, as the actor of the graph; returns what it returns.

    Raises the error of the work, or ``ProcessLost``.
    """
    task = ProcessTask(job.record.id, GraphAddress.of(graph), work, log)
    job.check()
    with _started(log) as (process, connection):
        # Before it begins: a process that nobody knows of would work for a job that looks dead.
        job.note(worker=process_of(process.pid))
        try:
            connection.send(task)
            return _follow(job, process, connection)
        except (EOFError, OSError):
            raise ProcessLost from None


@contextmanager
def _started(log: LogOptions) -> Iterator[tuple[subprocess.Popen[bytes], Connection]]:
    """A new interpreter, never a fork; when the block ends it has ended."""
    ours, theirs = socket.socketpair()
    descriptors = () if log.descriptor <= 2 else (log.descriptor,)
    try:
        with theirs:
            process = subprocess.Popen(
                # Without the current directory on its path: a server may be started anywhere.
                (sys.executable, "-P", "-m", MODULE),
                stdin=theirs.fileno(),
                pass_fds=descriptors,
                # The interrupt of a terminal is for the server only.
                start_new_session=True,
            )
    except OSError as error:
        ours.close()
        reason = (error.strerror or "unknown reason").lower()
        raise SparkUnavailable(
            f"the process of the job cannot be started: {reason}",
            hint="repeat it when the server has more memory and processes to spare",
        ) from error
    connection = Connection(ours.detach())
    try:
        yield process, connection
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
    finally:
        if process.poll() is None:
            _kill(process)
        process.wait()
        connection.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    # Below it first: the process is the way to find them.
    kill_descendants(process.pid)
    process.kill()


def _follow(job: RunningJob, process: subprocess.Popen[bytes], connection: Connection) -> Any:
    killed_at: float | None = None
    while True:
        if connection.poll(_LOOK_SECONDS):
            match connection.recv():
                case Finished(result):
                    return result
                case Failed(packed, trace):
                    raise WorkFailed(trace) if packed is None else unpack(packed)
                case Progress() as progress:
                    job.show(progress)
        if job.cancel.is_set:
            now = time.monotonic()
            if killed_at is None:
                connection.send(STOP)
                killed_at = now + STOP_SECONDS
            elif now >= killed_at:
                _kill(process)
