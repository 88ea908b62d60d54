"""What a server counts, and the text that Prometheus reads.

Every process counts for itself. Their samples are merged by adding those of the same name and
labels, so any process can answer for all of them. No label has a value that a client chooses
freely: routes are templates, graphs are those that are served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from omnigraph.server.request_counts import RequestCounts

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

LaneName: TypeAlias = Literal["short", "long", "write"]
_SECONDS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0),
)
_JOB_SECONDS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0)
JobOutcome: TypeAlias = Literal["succeeded", "failed", "cancelled", "died"]


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """One value of a metric."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


class Family(msgspec.Struct, frozen=True, array_like=True):
    """A metric with its samples."""

    name: str
    text: str
    kind: str
    samples: tuple[Sample, ...]


class GraphCounts(msgspec.Struct, frozen=True):
    """What an open graph has counted since it was opened; see ``Metrics.on_collect``."""

    graph_id: str
    recoveries: int = 0
    cache: tuple[tuple[str, str, int], ...] = ()
    """Cache, outcome (``hit`` or ``miss``), count."""
    storage: tuple[tuple[str, int], ...] = ()
    """Kind of operation, count."""


class Metrics:
    """The counters of one process. Safe to share between threads, but for those of requests."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = RequestCounts(_SECONDS)
        registry.register(self._requests)
        self._queue = Histogram(
            "omnigraph_queue_seconds",
            "The wait for a thread, by lane.",
            ("lane",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._moved = Counter(
            "omnigraph_reads_moved",
            "Reads that moved to the long lane while they ran.",
            registry=registry,
        )
        self._refused = Counter(
            "omnigraph_admission_refused",
            "Requests refused by admission.",
            ("kind",),
            registry=registry,
        )
        self._commits = Counter(
            "omnigraph_commits", "Commits, by graph.", ("graph",), registry=registry
        )
        self._conflicts = Counter(
            "omnigraph_conflicts",
            "Writes that lost to another writer.",
            ("graph", "code"),
            registry=registry,
        )
        self._forwarded = Counter(
            "omnigraph_forwarded",
            "Requests forwarded to the writer.",
            ("outcome",),
            registry=registry,
        )
        self._key_fetches = Counter(
            "omnigraph_oidc_key_fetches",
            "Fetches of the keys of the identity provider.",
            ("outcome",),
            registry=registry,
        )
        self._jobs_started = Counter(
            "omnigraph_jobs_started", "Jobs that began to work.", ("kind",), registry=registry
        )
        self._jobs_ended = Counter(
            "omnigraph_jobs_ended",
            "Jobs that ended, also before they began.",
            ("kind", "outcome"),
            registry=registry,
        )
        self._jobs_running = Gauge(
            "omnigraph_jobs_running", "Jobs that work.", ("kind",), registry=registry
        )
        self._job_seconds = Histogram(
            "omnigraph_job_seconds",
            "From the start of the work of a job to its end.",
            ("kind",),
            buckets=_JOB_SECONDS,
            registry=registry,
        )
        self._process = {
            name: Gauge(f"omnigraph_{name}", text, registry=registry)
            for name, text in (
                ("reads_in_flight", "Admitted reads."),
                ("reads_waiting", "Reads that wait to be admitted."),
                ("requests_waiting", "Requests that wait for a commit."),
                ("writes_in_flight", "Admitted writes."),
                ("ledger_revision", "The revision of the ledger that is in force."),
                ("graphs_served", "Graphs that are served."),
                ("graphs_unserved", "Graphs that cannot be served."),
                ("graphs_kept", "Graphs that keep an earlier state than the applied one."),
            )
        }
        self._lanes = {lane: self._queue.labels(lane) for lane in ("short", "long", "write")}
        self._sources: list[Callable[[], Iterable[GraphCounts]]] = []
        self.counts_requests = True
        """Not in a writer: the reader that forwards a request counts it."""
        self._gauges: list[Callable[[], Mapping[str, int]]] = []

    # -- counting --------------------------------------------------------------------------

    def request_started(self) -> None:
        """A request has arrived; called by the event loop."""
        if self.counts_requests:
            self._requests.start()

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """A request was answered, or its client left; called by the event loop."""
        if self.counts_requests:
            self._requests.end(route, method, status, seconds)

    def waited(self, lane: str, seconds: float) -> None:
        self._lanes[lane].observe(seconds)

    def moved(self) -> None:
        self._moved.inc()

    def refused(self, kind: Literal["read", "write", "wait"]) -> None:
        """Admission refused a request."""
        self._refused.labels(kind).inc()

    def commit(self, graph_id: str) -> None:
        """A write made a commit."""
        self._commits.labels(graph_id).inc()

    def conflict(self, graph_id: str, code: str) -> None:
        """A write lost to another one."""
        self._conflicts.labels(graph_id, code).inc()

    def forwarded(self, outcome: Literal["answered", "unavailable", "pending", "left"]) -> None:
        """A request was forwarded to the writer."""
        self._forwarded.labels(outcome).inc()

    def fetched_keys(self, outcome: Literal["ok", "failed"]) -> None:
        """The keys of the identity provider were fetched, or could not be."""
        self._key_fetches.labels(outcome).inc()

    def job_started(self, kind: str) -> None:
        """A job began to work."""
        self._jobs_started.labels(kind).inc()
        self._jobs_running.labels(kind).inc()

    def job_ended(self, kind: str, outcome: JobOutcome, seconds: float | None) -> None:
        """A job ended; without ``seconds`` it never worked here."""
        self._jobs_ended.labels(kind, outcome).inc()
        if seconds is not None:
            self._jobs_running.labels(kind).dec()
            self._job_seconds.labels(kind).observe(seconds)

    def on_collect(self, counts: Callable[[], Iterable[GraphCounts]]) -> None:
        """Call ``counts`` whenever the metrics are read, for what the graphs count themselves."""
        self._sources.append(counts)

    def on_gauges(self, gauges: Callable[[], Mapping[str, int]]) -> None:
        """Call ``gauges`` whenever the metrics are read: ``reads_in_flight`` and its like."""
        self._gauges.append(gauges)

    # -- reading ---------------------------------------------------------------------------

    def snapshot(self) -> list[Family]:
        """All samples of this process."""
        for gauges in self._gauges:
            for name, value in gauges().items():
                self._process[name].set(value)
        families = [_family(metric) for metric in self._registry.collect()]
        counts = [graph for source in self._sources for graph in source()]
        return families + _graph_families(counts)

    def render(self) -> bytes:
        """The samples of this process alone, as Prometheus reads them."""
        return render(self.snapshot())


def _family(metric: Metric) -> Family:
    samples = tuple(
        Sample(sample.name, tuple(sample.labels.items()), sample.value)
        for sample in metric.samples
        # The time of creation: of no use after merging.
        if not sample.name.endswith("_created")
    )
    return Family(metric.name, metric.documentation, metric.type, samples)


def _graph_families(counts: Sequence[GraphCounts]) -> list[Family]:
    def total(name: str, text: str, samples: Iterable[tuple[dict[str, str], int]]) -> Family:
        return Family(
            name,
            text,
            "counter",
            tuple(
                Sample(f"{name}_total", tuple(labels.items()), float(value))
                for labels, value in samples
            ),
        )

    return [
        total(
            "omnigraph_recoveries",
            "Interrupted writes that were completed or rolled back, by graph.",
            (({"graph": graph.graph_id}, graph.recoveries) for graph in counts),
        ),
        total(
            "omnigraph_cache",
            "Look-ups in caches, by graph.",
            (
                ({"graph": graph.graph_id, "cache": cache, "outcome": outcome}, value)
                for graph in counts
                for cache, outcome, value in graph.cache
            ),
        ),
        total(
            "omnigraph_storage_operations",
            "Calls of the object store, by graph.",
            (
                ({"graph": graph.graph_id, "kind": kind}, value)
                for graph in counts
                for kind, value in graph.storage
            ),
        ),
    ]


# -- several processes -----------------------------------------------------------------------


def merge(snapshots: Iterable[Sequence[Family]]) -> list[Family]:
    """The sums of several processes."""
    texts: dict[str, Family] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for families in snapshots:
        for family in families:
            texts.setdefault(family.name, family)
            sums = values.setdefault(family.name, {})
            for sample in family.samples:
                key = sample.name, sample.labels
                sums[key] = sums.get(key, 0.0) + sample.value
    return [
        Family(
            family.name,
            family.text,
            family.kind,
            tuple(Sample(*key, value) for key, value in values[name].items()),
        )
        for name, family in texts.items()
    ]


def counters_only(families: Iterable[Family]) -> list[Family]:
    """What stays true of a process that has ended: its counts, not its gauges."""
    return [family for family in families if family.kind != "gauge"]


def gauge(name: str, text: str, values: Iterable[tuple[dict[str, str], float]]) -> Family:
    """A metric that whoever merges adds, such as which processes are up."""
    samples = tuple(Sample(name, tuple(labels.items()), value) for labels, value in values)
    return Family(name, text, "gauge", samples)


def counter(name: str, text: str, value: float) -> Family:
    """A count of whoever merges."""
    return Family(name, text, "counter", (Sample(f"{name}_total", (), value),))


class _Merged(Collector):
    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        for family in self._families:
            metric = Metric(family.name, family.text, family.kind)
            for sample in family.samples:
                metric.add_sample(sample.name, dict(sample.labels), sample.value)
            yield metric


def render(families: Iterable[Family]) -> bytes:
    """Families as Prometheus reads them."""
    registry = CollectorRegistry()
    registry.register(_Merged(families))
    return generate_latest(registry)
