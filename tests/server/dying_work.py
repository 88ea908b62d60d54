"""Works of jobs whose process ends in a way that a test asks for."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any

from omnigraph import Cancel, Graph
from omnigraph.commit.failpoints import Failpoint, hooked
from omnigraph.progress import OnProgress, Progress


@dataclass(frozen=True)
class DyingWork:
    """A commit, whose process dies at a boundary; after it without one."""

    name: str
    point: Failpoint | None

    def run(self, graph: Graph, on_progress: OnProgress, cancel: Cancel) -> Any:
        def die(passed: Failpoint) -> None:
            if passed is self.point:
                os.kill(os.getpid(), signal.SIGKILL)

        on_progress(Progress("writing", 1, 2))
        with hooked(die):
            graph.load([{"type": "Person", "data": {"name": self.name}}])
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class BrokenWork:
    """An error that is not typed."""

    def run(self, graph: Graph, on_progress: OnProgress, cancel: Cancel) -> Any:
        raise ZeroDivisionError(graph.uri)
