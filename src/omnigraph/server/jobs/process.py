"""A job in a process of its own: ``python -m omnigraph.server.jobs.process``, started by a server.

Its standard input is the connection to the server: a ``ProcessTask`` comes in, progress and the
outcome go out, and another message asks it to stop. It ignores the signals of a terminal and of
service managers. If the server dies, the connection closes, and the process ends at once, and Java
with it; what was interrupted is recovered by whoever writes next.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import traceback
from multiprocessing.connection import Connection

from omnigraph.commit.job_ids import working_for
from omnigraph.errors import Cancelled, OmniGraphError
from omnigraph.progress import Progress
from omnigraph.read.limits import Cancel
from omnigraph.server.jobs.process_tree import kill_descendants
from omnigraph.server.jobs.process_work import STOP, Failed, Finished, Message, ProcessTask
from omnigraph.server.request_log import RequestLog, follow_engine
from omnigraph.spark.session.failures import pack

_INPUT = 0
_ORPHANED = 3


class _Server:
    """The server, seen from here."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self.cancel = Cancel()

    def task(self) -> ProcessTask:
        task: ProcessTask = self._connection.recv()
        threading.Thread(target=self._listen, name="omnigraph-server", daemon=True).start()
        return task

    def _listen(self) -> None:
        try:
            while True:
                if self._connection.recv() == STOP:
                    self.cancel.set()
        except (EOFError, OSError):
            kill_descendants(os.getpid())
            os._exit(_ORPHANED)

    def report(self, progress: Progress) -> None:
        """Tell how far the work is; raises ``Cancelled`` if it shall end."""
        self.check()
        self.send(progress)

    def check(self) -> None:
        if self.cancel.is_set:
            raise Cancelled(
                "the job was cancelled", hint="its record lists the commits that it made, if any"
            )

    def send(self, message: Message) -> None:
        with self._lock:
            self._connection.send(message)


def _outcome(server: _Server, task: ProcessTask) -> Message:
    try:
        follow_engine(RequestLog(task.log, "job"))
        server.check()
        with task.graph.open() as graph, working_for(task.job_id):
            return Finished(task.work.run(graph, server.report, server.cancel))
    except OmniGraphError as error:
        return Failed(pack(error))
    except BaseException as error:
        return Failed(None, "".join(traceback.format_exception(error)))


def main() -> int:
    """Do one job; returns the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Nobody who is started from here inherits the connection, or reads from it.
    connection = Connection(os.dup(_INPUT))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), _INPUT)
    server = _Server(connection)
    try:
        task = server.task()
    except EOFError:
        return _ORPHANED
    outcome = _outcome(server, task)
    try:
        server.send(outcome)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        server.send(Failed(None, "".join(traceback.format_exception(error))))
    return 0


if __name__ == "__main__":
    # Threads of libraries must not delay the end: everything that matters is closed.
    os._exit(main())
