"""A process that refreshes a cluster many times: ``python -m tests.cluster.racing DIRECTORY N``.

It prints how many of its refreshes were recorded. A refresh that lost to another one is repeated.
"""

from __future__ import annotations

import sys

from omnigraph.cluster.bundle import DirectoryBundle
from omnigraph.cluster.state_commands import refresh_cluster
from omnigraph.settings import Settings


def main(directory: str, count: str) -> None:
    recorded = 0
    for _ in range(int(count)):
        report = refresh_cluster(DirectoryBundle(directory), Settings())
        problems = {entry.code for entry in report.diagnostics if entry.severity == "error"}
        assert problems <= {"state_cas_mismatch"}, report.diagnostics
        recorded += report.ok
    print(recorded)


if __name__ == "__main__":
    main(*sys.argv[1:])
