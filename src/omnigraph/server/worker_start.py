"""The first moments of a worker process: ``python -m omnigraph.server.worker_start``.

Kept apart from ``worker``, whose imports take longer than a user needs to interrupt them.
"""

from __future__ import annotations

import os
import signal


def main() -> int:
    """Run one worker, started by the supervisor only; returns its exit code."""
    # What a terminal sends is for the supervisor. Not a session of its own: where the system gives
    # each session its part of the processors, niceness has no effect between sessions.
    os.setpgrp()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    from omnigraph.server.worker import main as run

    return run()


if __name__ == "__main__":
    # Threads of libraries must not delay the end: everything that matters is closed.
    os._exit(main())
