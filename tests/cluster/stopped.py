"""A command on a cluster that stops itself at a boundary: ``python -m tests.cluster.stopped``.

Arguments: the directory, the command, and the boundary. It stands still like any process that is
suspended, with the lock taken, until somebody continues or kills it. Then it prints its report.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from omnigraph.cluster.apply import apply_cluster
from omnigraph.cluster.bundle import DirectoryBundle
from omnigraph.cluster.state_commands import import_cluster, refresh_cluster
from omnigraph.commit.failpoints import Failpoint, install
from omnigraph.settings import Settings

COMMANDS = {"apply": apply_cluster, "import": import_cluster, "refresh": refresh_cluster}


def main(directory: str, command: str, point: str) -> None:
    waiting = [Failpoint(point)]

    def stop(reached: Failpoint) -> None:
        if waiting == [reached]:
            waiting.clear()
            os.kill(os.getpid(), signal.SIGSTOP)

    install(stop)
    report = COMMANDS[command](DirectoryBundle(directory), Settings.from_environ())
    print(json.dumps(report.to_json()))


if __name__ == "__main__":
    main(*sys.argv[1:])
