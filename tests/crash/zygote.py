"""The process that child processes are born from: Lance imported, never used.

Importing Lance takes longer than the operations that the crash tests kill. So one fresh
interpreter imports everything and then forks a child for each run. A process that has used Lance
must never fork, because its threads and their locks do not survive that. This one has not: it
calls nothing of what it imported, and before every fork it proves that its only thread is its
own, so there is no lock that anybody could have held.

It obeys lines of JSON on a socket, one child at a time. A child prepares its operation, stops
itself at the gate, and goes on when someone continues it. The zygote answers with the child's
process id, then a line each time the child stops, then its exit code (negative for a signal);
who continues or kills the child is not its business.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import signal
import socket
import sys
import threading
import traceback
import warnings
from base64 import b64decode
from collections.abc import Callable, Iterator
from typing import Any

from omnigraph.commit.failpoints import Failpoint, install

IMPORTED = ("lance.fragment", "obstore", "omnigraph", "pyarrow.compute")

# Two libraries start a thread when they are imported, unless told not to.
ENVIRONMENT = {
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "OPENBLAS_NUM_THREADS": "1",
}

STOPPED = b"stopped"


def main(descriptor: int) -> None:
    """Serve until the other end of the socket is closed."""
    for name in IMPORTED:
        importlib.import_module(name)
    # Lance warns about every fork; the reason why it is allowed here stands above.
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    channel = socket.socket(fileno=descriptor)
    with channel, channel.makefile("r") as orders:
        for order in orders:
            run_one(json.loads(order), channel)


def run_one(order: dict[str, Any], channel: socket.socket) -> None:
    operation, root = pickle.loads(b64decode(order["operation"]))  # imports where it lives
    if len(os.listdir("/proc/self/task")) != 1:
        raise RuntimeError("the zygote has threads, so it must not fork")
    pid = os.fork()
    if not pid:
        os.close(channel.fileno())
        os._exit(child(operation(root), order))
    channel.sendall(b"%d\n" % pid)
    while True:
        _, status = os.waitpid(pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            channel.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
            return
        channel.sendall(STOPPED + b"\n")


def child(work: Iterator[None], order: dict[str, Any]) -> int:
    """Prepare, stop at the gate, operate. Everything said goes to the output file."""
    said = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    try:
        next(work)
        install(recorder(order["crossings"], order["point"], order["occurrence"], order["stops"]))
        os.kill(os.getpid(), signal.SIGSTOP)
        for _ in work:
            raise RuntimeError("an operation yields once, where its preparation ends")
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def recorder(
    path: str, point: str | None, occurrence: int, stops: bool
) -> Callable[[Failpoint], None]:
    """A hook that writes down each crossing, and dies at the one that was asked for or stops.

    Threads may cross at the same time. Two stops at once would count as one, so each crossing has
    its own: the thread that holds the lock stops the process before it can go on.
    """
    record = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    left = occurrence
    one_at_a_time = threading.Lock()

    def hook(reached: Failpoint) -> None:
        nonlocal left
        with one_at_a_time:
            os.write(record, f"{reached}\n".encode())
            if stops:
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        if reached == point:
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


if __name__ == "__main__":
    main(int(sys.argv[1]))
