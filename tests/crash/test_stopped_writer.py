"""A writer that stands still is alive: nobody touches its work, and it may finish later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.commit.audit import RecoveryKind
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.store import Timeouts
from omnigraph.errors import Conflict
from tests.crash.operations import SCHEMA, rows
from tests.crash.survival import check_tidy

pytestmark = pytest.mark.rotates(3)

REPOSITORY = Path(__file__).parents[2]
POINTS = (
    Failpoint.WRITE_AFTER_SIDECAR,
    Failpoint.WRITE_BETWEEN_TABLES,
    Failpoint.WRITE_AFTER_TABLES,
)
every_point = pytest.mark.parametrize("point", POINTS)


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Graph.init(tmp_path / "graph", SCHEMA, durability="os") as graph:
        graph.append(rows("Person", "Ada") | rows("Company", "Acme"))
        graph._handle.store.timeouts = Timeouts(lease=0.1)
        yield graph


@contextmanager
def stopped(graph: Graph, point: Failpoint) -> Iterator[subprocess.Popen[bytes]]:
    """A writer of people and whom they know, in a process of its own that stands at a boundary."""
    paths = f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'src'}"
    writer = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.stopped", graph.uri, point],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": paths},
    )
    try:
        _, status = os.waitpid(writer.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        yield writer
    finally:
        writer.kill()
        writer.wait()


def names(graph: Graph) -> list[str]:
    return sorted(graph.snapshot().read("Person")["name"].to_pylist())


def work_left(graph: Graph) -> tuple[list[str], list[int]]:
    """What the writer has made so far: its sidecar, and the heads of its tables."""
    tables = graph._handle.store.tables
    pins = graph._handle.store.manifest(None).current().pins
    heads = [tables.head(pins[key].ref) for key in ("node:Person", "edge:Knows")]
    return graph._handle.store.sidecars.list(), heads


@every_point
def test_nobody_touches_the_work_of_a_stopped_writer(graph: Graph, point: Failpoint):
    with stopped(graph, point) as writer:
        left = work_left(graph)
        assert len(left[0]) == 1
        with Graph.open(graph.uri) as opened:
            assert opened.recovered == ()
            assert opened.refresh() == ()
        for rows_of_its_tables in (rows("Person", "Bob"), rows("Knows", "other")):
            with pytest.raises(Conflict) as refused:
                graph.append(rows_of_its_tables)
            assert refused.value.retryable
        graph.append(rows("Company", "Brim"))
        assert graph.refresh() == ()
        assert names(graph) == ["Ada"]
        assert work_left(graph) == left

        writer.send_signal(signal.SIGCONT)
        assert writer.wait() == 0
    assert names(graph) == ["Ada", "Grace"]
    assert graph._handle.store.audit.rows() == []
    graph.append(rows("Person", "Bob"))
    check_tidy(graph, Path(graph.uri))


@every_point
def test_a_stopped_writer_that_is_killed_is_repaired_by_the_next_write(
    graph: Graph, point: Failpoint
):
    with stopped(graph, point) as writer:
        writer.kill()
        writer.wait()
        graph.append(rows("Person", "Bob"))
    landed = point is Failpoint.WRITE_AFTER_TABLES
    assert names(graph) == (["Ada", "Bob", "Grace"] if landed else ["Ada", "Bob"])
    audited = graph._handle.store.audit.rows()
    kind = RecoveryKind.ROLLED_FORWARD if landed else RecoveryKind.ROLLED_BACK
    assert [(row.recovery_kind, row.recovery_for_actor) for row in audited] == [(kind, "ana")]
    check_tidy(graph, Path(graph.uri))
