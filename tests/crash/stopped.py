"""A writer that stops itself at a boundary: ``python -m tests.crash.stopped ROOT POINT``.

It stands still like any process that is suspended or starved, with its leases held, until
somebody continues or kills it.
"""

from __future__ import annotations

import os
import signal
import sys

from omnigraph import Graph
from omnigraph.commit.failpoints import Failpoint, install
from tests.crash.operations import rows


def main(root: str, point: str) -> None:
    waiting = [Failpoint(point)]

    def stop(reached: Failpoint) -> None:
        if waiting == [reached]:
            waiting.clear()
            os.kill(os.getpid(), signal.SIGSTOP)

    install(stop)
    with Graph.open(root, actor="ana") as graph:
        graph.append(rows("Person", "Grace") | rows("Knows", "loop"))


if __name__ == "__main__":
    main(*sys.argv[1:])
