"""What a cluster of many graphs costs: requests to the store, requests in sequence, cpu and memory.

Run it with ``make bench`` or ``python bench/cluster.py``. The store is SeaweedFS on loopback,
behind a proxy that counts requests and adds 30 ms to each. Every operation is run through the proxy
for its requests, and once more without it for the processor time of this process. With 10 and 1,000
graphs, each with a query and a policy, all graphs exist, as copies of one. With 100,000 there are
the ledger and each text once, on local disk, where the calls of the object store are counted; what
looks at every graph or text is calculated from the size before. That size runs with ``--large``
only.

Goal: the requests of a plan, of an apply of one changed query, of a look for news and of a reload
do not depend on the number of graphs.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import obstore
from commit import folder
from obstore.store import S3Store

from omnigraph.cluster.apply import apply_cluster
from omnigraph.cluster.bundle import CONFIG, MemoryBundle
from omnigraph.cluster.drift import cluster_drift
from omnigraph.cluster.location import LEDGER
from omnigraph.cluster.plan import plan_cluster
from omnigraph.cluster.state_commands import (
    cluster_status,
    import_cluster,
    refresh_cluster,
    validate_cluster,
)
from omnigraph.cluster.state_file import read_ledger
from omnigraph.cluster.storage import ClusterStorage
from omnigraph.server.access import Access
from omnigraph.server.config import ServerConfig, ServerSource
from omnigraph.server.generation import Generation, GenerationSource
from omnigraph.server.opening import open_graphs
from omnigraph.server.state import ServedGraph
from omnigraph.settings import Settings
from omnigraph.storage.objects.traffic import thread_traffic

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.cluster.lab import DUE
from tests.cluster.many import many_graphs, record_as_applied, record_many
from tests.s3.proxy import S3Proxy
from tests.s3.server import BUCKET, S3Server, options_for
from tests.server.processes import ServerUnderTest, until

LATENCY = 0.03
SMALL, MIDDLE, LARGE = 10, 1_000, 100_000
IDLE_SECONDS = 10
NAMES = {
    "aws_access_key_id": "AWS_ACCESS_KEY_ID",
    "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "aws_region": "AWS_REGION",
    "aws_endpoint": "AWS_ENDPOINT_URL_S3",
}
FLAT = (
    "plan",
    "apply, nothing changed",
    "apply, one query",
    "look for news",
    "reload, one query",
)
OLD_LOOKS = 2
"""Requests that a reload may make for a graph that was not looked at for some seconds."""
READ = """
import re, sys
from omnigraph.cluster.ledger import read_state
read_state(open(sys.argv[1]).read(), "")
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""
TOKENS = '{"ana": "a-secret-of-ana"}'


@dataclass(frozen=True)
class Cost:
    """What an operation took."""

    requests: float
    sequence: float
    cpu: float

    @property
    def seconds(self) -> float:
        return self.cpu + self.sequence * LATENCY

    def scaled(self, factor: float) -> Cost:
        return Cost(self.requests * factor, self.sequence * factor, self.cpu * factor)


class Cluster:
    """One cluster in the store, and the operations on it."""

    def __init__(
        self, count: int, server: S3Server, proxy: S3Proxy, root: Path | None = None
    ) -> None:
        self._count = count
        self.root = f"s3://{BUCKET}/{count}" if root is None else str(root)
        self._server = server
        self._proxy = proxy
        self._edits = 0
        self._generation = b""
        self._opened: dict[str, ServedGraph] = {}
        self._access: Access | None = None
        self._has_graphs = False

    # -- the store ---------------------------------------------------------------------------

    @contextmanager
    def _at(self, endpoint: str) -> Iterator[Settings]:
        options = options_for(endpoint)
        environ = {name: options[option] for option, name in NAMES.items()}
        environ |= {"AWS_ALLOW_HTTP": "true", "AWS_S3_FORCE_PATH_STYLE": "yes"}
        environ["OMNIGRAPH_SERVER_BEARER_TOKENS_JSON"] = TOKENS
        with mock.patch.dict(os.environ, environ):
            yield Settings.from_environ()

    def measure(
        self, operation: Callable[[Settings], Any], first: Callable[[Settings], Any] | None = None
    ) -> Cost:
        """Run an operation twice: for its processor time, and for its requests.

        ``first`` is run before each, and not measured.
        """
        with self._at(self._server.endpoint) as settings:
            if first is not None:
                first(settings)
            started = time.process_time()
            operation(settings)
            cpu = time.process_time() - started
            if first is not None:
                first(settings)
        self._proxy.latency = LATENCY
        self._proxy.reset()
        with self._at(self._proxy.endpoint) as settings:
            operation(settings)
        self._proxy.latency = 0.0
        return Cost(len(self._proxy.log), self._proxy.depth, cpu)

    def measure_calls(self, operation: Callable[[Settings], Any]) -> Cost:
        """Run an operation on local disk, where each call stands for a request."""
        with self._at(self._server.endpoint) as settings:
            before, started = thread_traffic(), time.process_time()
            operation(settings)
            cpu = time.process_time() - started
        calls = thread_traffic().since(before).total
        return Cost(calls, calls, cpu)

    @contextmanager
    def served(self, log: Path) -> Iterator[ServerUnderTest]:
        """A server of the cluster, with a latency for its requests."""
        program = str(Path(sys.executable).parent / "omnigraph-server")
        command = [program, "--cluster", self.root, "--bind", "127.0.0.1:0", "--workers", "2"]
        self._proxy.latency = LATENCY
        with self._at(self._proxy.endpoint), ServerUnderTest(command, log) as server:
            yield server.await_listening()
        self._proxy.latency = 0.0

    def requests_in(self, seconds: float) -> int:
        """The requests through the proxy: in a time from now on, or since the last count."""
        if seconds:
            self._proxy.reset()
            time.sleep(seconds)
        requests = len(self._proxy.log)
        self._proxy.reset()
        return requests

    def change(self) -> int:
        """Apply a changed query, not through the proxy; returns the revision."""
        with self._at(self._server.endpoint) as settings:
            self.apply_one(settings)
            ledger = read_ledger(ClusterStorage(self.root, settings))
        return ledger.state.state_revision

    def bundle(self) -> MemoryBundle:
        bundle = many_graphs(self._count, DUE + "\n" * self._edits)
        config = f"storage: {self.root}\n".encode() + bundle.contents[CONFIG]
        return MemoryBundle("many", {**bundle.contents, CONFIG: config})

    def import_(self, settings: Settings) -> None:
        with suppress(FileNotFoundError):
            self._delete()
        assert import_cluster(self.bundle(), settings).ok

    def _delete(self) -> None:
        store = S3Store(BUCKET, config=options_for(self._server.endpoint))
        for page in obstore.list(store, f"{self._count}/"):
            obstore.delete(store, [entry["path"] for entry in page])

    def create(self, settings: Settings) -> None:
        """The first apply, which creates the graphs."""
        report = apply_cluster(self.bundle(), settings)
        assert report.is_converged, report.diagnostics

    def fill(self, copies: str) -> None:
        """The ledger and the texts as after an apply; graphs as copies of another one."""
        with self._at(self._server.endpoint) as settings:
            record_as_applied(self.bundle(), self.root, settings)
        self._has_graphs = True
        store = S3Store(BUCKET, config=options_for(self._server.endpoint))
        names = [entry["path"] for page in obstore.list(store, copies) for entry in page]
        objects = {name: bytes(obstore.get(store, name).bytes()) for name in names}
        for number in range(self._count):
            base = f"{self._count}/graphs/g{number}.omni/"
            for name, content in objects.items():
                obstore.put(store, base + name.removeprefix(copies), content)

    def fill_ledger(self) -> None:
        """The ledger as after an apply, and the texts of the first graph."""
        with self._at(self._server.endpoint) as settings:
            record_many(self._count, self.root, settings)

    # -- the control plane -------------------------------------------------------------------

    def validate(self, _: Settings) -> None:
        assert validate_cluster(self.bundle()).ok

    def read_ledger(self, settings: Settings) -> None:
        assert read_ledger(ClusterStorage(self.root, settings)).exists

    def ledger_size(self) -> int:
        with self._at(self._server.endpoint) as settings:
            ledger = ClusterStorage(self.root, settings).objects.head(LEDGER)
        assert ledger is not None
        return ledger.size

    def plan(self, settings: Settings) -> None:
        self._edits += 1
        report, _ = plan_cluster(self.bundle(), settings)
        assert len(report.changes) == 2, report.diagnostics
        self._edits -= 1

    def apply_nothing(self, settings: Settings) -> None:
        report = apply_cluster(self.bundle(), settings)
        assert (report.ok, report.is_written) == (True, False), report.diagnostics

    def apply_one(self, settings: Settings) -> None:
        self._edits += 1
        report = apply_cluster(self.bundle(), settings)
        assert report.is_converged, report.diagnostics

    def status(self, settings: Settings) -> None:
        report = cluster_status(self.bundle(), settings)
        assert not report.diagnostics, report.diagnostics[:3]

    def drift(self, settings: Settings) -> None:
        report = cluster_drift(self.bundle(), settings)
        assert report.ok, report.diagnostics[:3]
        assert not report.findings, report.findings[:3]

    def refresh(self, settings: Settings) -> None:
        report = refresh_cluster(self.bundle(), settings)
        assert report.ok, report.diagnostics[:3]

    # -- the server --------------------------------------------------------------------------

    def _config(self) -> ServerConfig:
        return ServerConfig(source=ServerSource("cluster", self.root))

    def look(self, settings: Settings) -> None:
        GenerationSource(self._config(), settings).signature()

    def boot(self, settings: Settings) -> None:
        """What a supervisor reads at its start."""
        self._generation = GenerationSource(self._config(), settings).read()

    def open(self, settings: Settings) -> None:
        """What a worker opens at its start."""
        self.close()
        self._take_over(settings)

    def reload(self, settings: Settings) -> None:
        """What a supervisor and a worker do when there is news."""
        self._generation = GenerationSource(self._config(), settings).read(self._generation)
        self._take_over(settings)

    def _take_over(self, settings: Settings) -> None:
        generation = Generation.decode(self._generation)
        self._access = generation.access(self._config(), self._access)
        access = self._access
        if self._has_graphs:
            opened = open_graphs(generation.plan, "r", settings, lambda: access, self._opened)
            assert not opened.unserved, list(opened.unserved.values())[:3]
            self._opened = dict(opened.graphs)

    def close(self) -> None:
        for served in self._opened.values():
            served.graph.close()
        self._opened = {}


def memory() -> int:
    """The resident memory of this process, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() >> 20


class Report:
    """The rows of all sizes."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[int, Cost]] = {}

    def add(self, name: str, count: int, cost: Cost, *, note: str = "") -> None:
        self._rows.setdefault(name, {})[count] = cost
        print(
            f"{count:7} {name:24} {cost.requests:9.0f} {cost.sequence:9.0f} {cost.cpu:9.2f} "
            f"{cost.seconds:9.2f} {note}",
            flush=True,
        )

    def extend(self, name: str, count: int) -> None:
        """A row that is calculated from the largest one that was measured."""
        before = max(self._rows[name])
        self.add(name, count, self._rows[name][before].scaled(count / before), note="calculated")

    def growing(self) -> list[str]:
        """The operations whose requests depend on the number of graphs, though they must not."""
        rows = {name: [cost.requests for cost in self._rows[name].values()] for name in FLAT}
        return [
            f"{name}: {counts}"
            for name, counts in rows.items()
            if max(counts) > min(counts) + OLD_LOOKS
        ]


def serve(cluster: Cluster, count: int, directory: Path) -> None:
    """Start a real server, and let it notice an apply of one query."""
    started = time.monotonic()
    with cluster.served(directory / f"server-{count}.log") as server:
        print(f"{count:7} a server of three processes starts in {time.monotonic() - started:.1f} s")
        idle = cluster.requests_in(IDLE_SECONDS)
        print(f"{count:7} it makes {idle / IDLE_SECONDS:.1f} requests in a second without a change")
        revision = cluster.change()
        written = time.monotonic()
        until(lambda: server.ask("GET", "/readyz").json["revision"] == revision)
        seconds, requests = time.monotonic() - written, cluster.requests_in(0)
        print(
            f"{count:7} {seconds:.1f} s after the apply of one query it serves it, by {requests} "
            "requests"
        )


def run(cluster: Cluster, count: int, report: Report) -> None:
    """Every operation, with all graphs."""
    report.add("validate", count, cluster.measure(cluster.validate))
    report.add("read the ledger", count, cluster.measure(cluster.read_ledger))
    print(f"{count:7} the ledger has {cluster.ledger_size() / (1 << 20):.2f} MB")
    report.add("plan", count, cluster.measure(cluster.plan))
    report.add("apply, nothing changed", count, cluster.measure(cluster.apply_nothing))
    report.add("apply, one query", count, cluster.measure(cluster.apply_one))
    for name in ("status", "drift", "refresh"):
        report.add(name, count, cluster.measure(getattr(cluster, name)))
    report.add("look for news", count, cluster.measure(cluster.look))
    report.add("boot: read", count, cluster.measure(cluster.boot))
    before = memory()
    report.add("boot: open all graphs", count, cluster.measure(cluster.open))
    print(f"{count:7} an open graph takes {(memory() - before) / count:.2f} MB")
    report.add("reload, one query", count, cluster.measure(cluster.reload, cluster.apply_one))
    cluster.close()


def run_large(cluster: Cluster, count: int, report: Report) -> None:
    """What needs no graph, once; the rest is calculated."""
    report.add("read the ledger", count, cluster.measure_calls(cluster.read_ledger))
    print(f"{count:7} the ledger has {cluster.ledger_size() / (1 << 20):.2f} MB")
    done = subprocess.run(
        [sys.executable, "-c", READ, str(Path(cluster.root, LEDGER))],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    print(f"{count:7} a process that reads it takes {int(done.stdout) >> 10} MB")
    report.add("look for news", count, cluster.measure_calls(cluster.look))
    report.add("boot: read", count, cluster.measure_calls(cluster.boot))
    report.add("apply, one query", count, cluster.measure_calls(cluster.apply_one))
    report.add("reload, one query", count, cluster.measure_calls(cluster.reload))
    report.add("validate", count, cluster.measure_calls(cluster.validate))
    report.add("plan", count, cluster.measure_calls(cluster.plan))
    report.add("apply, nothing changed", count, cluster.measure_calls(cluster.apply_nothing))
    for name in ("status", "drift", "refresh", "boot: open all graphs"):
        report.extend(name, count)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{count:7} this process had at most {most} MB")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--large", action="store_true", help="100,000 graphs too")
    parser.add_argument("--middle", type=int, default=MIDDLE, help="graphs of the second size")
    arguments = parser.parse_args()
    report = Report()
    with folder() as directory:
        server = S3Server(directory / "s3")
        try:
            with S3Proxy(server.port) as proxy:
                print(
                    f" graphs {'':24}  requests  sequence       cpu   seconds  (with {LATENCY} s "
                    "for each request)"
                )
                one = Cluster(1, server, proxy)
                report.add("create a graph", 1, one.measure(one.create, one.import_))
                for count in (SMALL, arguments.middle):
                    cluster = Cluster(count, server, proxy)
                    cluster.fill(copies="1/graphs/g0.omni/")
                    run(cluster, count, report)
                    serve(cluster, count, directory)
                if arguments.large:
                    cluster = Cluster(LARGE, server, proxy, directory / "large")
                    cluster.fill_ledger()
                    run_large(cluster, LARGE, report)
        finally:
            server.stop()
    growing = report.growing()
    for line in growing:
        print(f"missed: the requests depend on the number of graphs: {line}")
    return 1 if growing else 0


if __name__ == "__main__":
    sys.exit(main())
