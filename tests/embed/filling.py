"""A process that fills vectors, for tests that kill it, or in which it kills itself.

Arguments: the graph, the address of the provider, the folder, rows for a commit, and a boundary.
"""

from __future__ import annotations

import os
import signal
import sys

from omnigraph import Batching, Graph
from omnigraph.commit.failpoints import Failpoint, install
from tests.embed.graphs import remote


def die_at(name: str) -> None:
    """End this process when it passes a boundary."""

    def hook(point: Failpoint) -> None:
        if point == name:
            os.kill(os.getpid(), signal.SIGKILL)

    install(hook)


if __name__ == "__main__":
    path, url, folder, commit_rows, boundary = sys.argv[1:]
    die_at(boundary)
    with Graph.open(path, embedding=remote(url)) as graph:
        graph.embeddings.fill(
            resume=folder,
            threads=1,
            commit_rows=int(commit_rows) or None,
            batching=Batching(texts=5),
        )
