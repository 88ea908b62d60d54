"""How many requests were answered, and how long that took: what every request counts.

Plain numbers in place of the metrics of ``prometheus_client``, whose locks and checks of labels
took a tenth of the time of a small request. Only the event loop counts; any thread may collect.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


class RequestCounts(Collector):
    """The requests of one process; ``seconds`` are the upper bounds of the histogram."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self._bounds = tuple(seconds)
        self._names = [*map(str, self._bounds), "+Inf"]
        self._running = 0
        self._answered: dict[tuple[str, str, int], int] = {}
        self._histograms: dict[str, list[int]] = {}
        """For each route how many requests took so long: one number for each bound, and above."""
        self._sums: dict[str, float] = {}

    def start(self) -> None:
        """A request has arrived."""
        self._running += 1

    def end(self, route: str, method: str, status: int, seconds: float) -> None:
        """A request was answered, or its client left."""
        self._running -= 1
        key = route, method, status
        answered = self._answered
        if key not in answered:
            answered[key] = 0
            if route not in self._sums:
                self._sums[route] = 0.0
                self._histograms[route] = [0] * len(self._names)
        answered[key] += 1
        self._sums[route] += seconds
        self._histograms[route][bisect_left(self._bounds, seconds)] += 1

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "omnigraph_http_requests",
            "Answered requests.",
            labels=("route", "method", "status"),
        )
        for (route, method, status), count in list(self._answered.items()):
            requests.add_metric((route, method, str(status)), count)
        yield requests
        seconds = HistogramMetricFamily(
            "omnigraph_http_request_seconds",
            "From the request line to the last byte of the answer.",
            labels=("route",),
        )
        for route, counts in list(self._histograms.items()):
            buckets = list(zip(self._names, map(float, accumulate(counts)), strict=True))
            seconds.add_metric((route,), buckets, self._sums[route])
        yield seconds
        yield GaugeMetricFamily(
            "omnigraph_http_requests_in_flight", "Requests in flight.", self._running
        )
