"""The HTTP server against the engine it serves, and against a bare ASGI application.

Run it with ``make bench`` or ``python bench/server.py [part ...]``. Loads come from ``wrk``, never
from Python. Everything that is compared is measured in the same run; processor time is that of all
server processes. Parts: point, bare, workers, mixed, connections, writers, export, restart, pages,
streams, feed; the last three are read by one client in Python, beside whose work they are small.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph import Graph

ROOT = Path(__file__).parent.parent
PEOPLE, EDGES = 100_000, 1_000_000
SECONDS = int(os.environ.get("BENCH_SECONDS", "8"))
ROUNDS, MIXED_ROUNDS = 3, 5
TICK = os.sysconf("SC_CLK_TCK")
TOKEN = "bench-token"
SCHEMA = """
node Person { name: String @key  age: I32? }
node Event { label: String }
edge Knows: Person -> Person
"""
POINT = "query point($n: String) { match { $p: Person { name: $n } } return { $p.age } }"
NAMES = "query names() { match { $p: Person } return { $p.name, $p.age } }"
PAIRS = "query pairs() { match { $a: Person  $a knows $b } return { $a.name as a, $b.name as b } }"
RECORD = "query record($l: String) { insert Event { label: $l } }"
POLICY = """
version: 1
groups: { all: [default] }
rules:
  - id: all
    allow: { actors: { group: all }, actions: [read, export, change], branch_scope: any }
"""
CLUSTER = {
    "cluster.yaml": """
version: 1
graphs: { g: { schema: g.pg } }
policies:
  all: { file: all.policy.yaml, applies_to: [g] }
  server: { file: server.policy.yaml, applies_to: [cluster] }
""",
    "g.pg": SCHEMA,
    "all.policy.yaml": POLICY,
    "server.policy.yaml": """
version: 1
groups: { all: [default] }
rules:
  - id: list
    allow: { actors: { group: all }, actions: [graph_list] }
""",
}


# -- servers -------------------------------------------------------------------------------------


class Served:
    """A server process with its workers."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(b"OMNIGRAPH_LISTEN_ADDR="):
                self.url = f"http://{line.decode().partition('=')[2].strip()}"
                return
        raise SystemExit("the server did not start")

    @property
    def pids(self) -> list[int]:
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]

    def cpu(self) -> float:
        """Seconds of all processes."""
        total = 0.0
        for pid in self.pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / TICK
        return total

    def memory(self) -> int:
        """Private bytes of the largest process."""
        sizes = []
        for pid in self.pids:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            sizes.append(sum(int(n) for n in re.findall(r"Private_\w+:\s+(\d+) kB", text)) * 1024)
        return max(sizes)

    def post(self, path: str, body: Any) -> bytes:
        request = urllib.request.Request(
            self.url + path,
            json.dumps(body).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"},
        )
        with urllib.request.urlopen(request, timeout=120) as response:
            return bytes(response.read())


@contextmanager
def serve(root: Path, workers: int) -> Iterator[Served]:
    policy = root.parent / "policy.yaml"
    policy.write_text(POLICY)
    command = [sys.executable, "-m", "omnigraph.cli", "serve", str(root), "--bind", "127.0.0.1:0"]
    command += ["--workers", str(workers), "--policy", str(policy)]
    with _running(command) as server:
        yield server


@contextmanager
def serve_cluster(folder: Path) -> Iterator[Served]:
    """A server of a cluster with one graph, which may be listed."""
    folder.mkdir()
    for name, text in CLUSTER.items():
        (folder / name).write_text(text)
    omnigraph = [sys.executable, "-m", "omnigraph.cli"]
    for arguments in (["import"], ["apply", "--as", "default"]):
        command = [*omnigraph, "cluster", *arguments, "--config", str(folder)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
    program = "from omnigraph.cli.server_program import main; raise SystemExit(main())"
    command = [sys.executable, "-c", program, "--cluster", str(folder), "--workers", "1"]
    with _running([*command, "--bind", "127.0.0.1:0"]) as server:
        yield server


@contextmanager
def _running(command: list[str]) -> Iterator[Served]:
    environ = {**os.environ, "OMNIGRAPH_SERVER_BEARER_TOKEN": TOKEN}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT, env=environ
    )
    try:
        yield Served(process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        assert process.stdout is not None
        process.stdout.close()


def run_bare() -> None:
    """A bare ASGI application on the listener of the server."""
    from omnigraph.server.lifecycle import listen
    from omnigraph.server.listener import Listener

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})

    async def main() -> None:
        bound = socket.socket()
        bound.bind(("127.0.0.1", 0))
        print(f"OMNIGRAPH_LISTEN_ADDR={listen(bound)}", flush=True)
        Listener(app, [bound]).start()
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        await stop.wait()

    import uvloop

    uvloop.run(main())


# -- loads ---------------------------------------------------------------------------------------

LUA = """
wrk.headers["Authorization"] = "Bearer {token}"
wrk.headers["Content-Type"] = "application/json"
local threads, counter = {{}}, 1
function setup(thread)
  thread:set("id", counter)
  counter = counter + 1
  table.insert(threads, thread)
end
function init(args)
  done_here, number = 0, 0
  math.randomseed(os.time() + id)
  if prepare then prepare() end
end
{request}
{delay}
function done(summary, latency, requests)
  local counts = {{}}
  for _, thread in ipairs(threads) do table.insert(counts, thread:get("done_here")) end
  io.write("RESULT {{\\"requests\\": ", summary.requests,
    ", \\"seconds\\": ", summary.duration / 1e6,
    ", \\"p50\\": ", latency:percentile(50) / 1e3, ", \\"p99\\": ", latency:percentile(99) / 1e3,
    ", \\"bad\\": ", summary.errors.status, ", \\"broken\\": ",
    summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout,
    ", \\"counts\\": [", table.concat(counts, ","), "]}}\\n")
end
"""
# The requests are made before the load starts: the script must not take the time of the server.
POINT_LUA = f"""local texts = {{}}
function prepare()
  for place = 1, 4096 do
    local name = 'p' .. math.random(0, {PEOPLE - 1})
    local body = '{{"query": "{POINT}", "params": {{"n": "' .. name .. '"}}}}'
    texts[place] = wrk.format("POST", "/graphs/g/query", nil, body)
  end
end
function request()
  number = number % 4096 + 1
  return texts[number]
end"""
RECORD_LUA = f"""function request()
  number = number + 1
  local body = '{{"query": "{RECORD}", "params": {{"l": "' .. id .. '/' .. number .. '"}}}}'
  return wrk.format("POST", "/graphs/g/mutate", nil, body)
end
function response(status, headers, body) if status == 200 then done_here = done_here + 1 end end"""


def get_lua(path: str) -> str:
    return f'''local text
function prepare() text = wrk.format("GET", "{path}") end
function request() return text end'''


def start_wrk(
    url: str,
    request: str,
    connections: int,
    *,
    threads: int = 1,
    delay: float = 0,
    seconds: int = 0,
) -> Callable[[], dict[str, Any]]:
    """Start a load; the returned function waits for its result."""
    pause = f"function delay() return {delay:.3f} end" if delay else ""
    with tempfile.NamedTemporaryFile("w", suffix=".lua", delete=False) as script:
        script.write(LUA.format(token=TOKEN, request=request, delay=pause))
    command = ["wrk", f"-t{threads}", f"-c{connections}", f"-d{seconds or SECONDS}s"]
    command += ["--timeout", "30s", "-s", script.name, url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None

    def wait() -> dict[str, Any]:
        with process.stdout:
            output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        os.unlink(script.name)
        result: dict[str, Any] = json.loads(output.rpartition("RESULT ")[2])
        used = usage.ru_utime + usage.ru_stime
        result["load_cpu"] = used / max(result["requests"], 1) * 1e6
        return result

    return wait


def load(served: Served, request: str, connections: int, **options: Any) -> dict[str, Any]:
    """Run a load; the result has the rate and the processor times per request too, in µs."""
    before = served.cpu()
    result = start_wrk(served.url, request, connections, **options)()
    result["rate"] = result["requests"] / result["seconds"]
    result["cpu"] = (served.cpu() - before) / max(result["requests"], 1) * 1e6
    return result


# -- parts ---------------------------------------------------------------------------------------


def report(what: str, value: str, wanted: str, is_met: bool) -> None:
    print(f"{what:48} {value:>34}   goal {wanted:18} {'ok' if is_met else 'MISSED'}", flush=True)


def make_graph(folder: Path) -> Path:
    root = folder / "g.omni"
    names = [f"p{number}" for number in range(PEOPLE)]
    chosen = np.random.default_rng(7).integers(0, PEOPLE, (2, EDGES))
    with Graph.init(root, SCHEMA, durability="os") as graph:
        graph.append(
            {"Person": pa.table({"name": names, "age": pa.array(range(PEOPLE), pa.int32())})}
        )
        ids = pa.array(names)
        ends = {"src": ids.take(pa.array(chosen[0])), "dst": ids.take(pa.array(chosen[1]))}
        graph.append({"Knows": pa.table(ends)})
        graph.maintenance.optimize()
    return root


def embedded(root: Path, seconds: float = 4.0) -> tuple[float, float]:
    """Processor time and median of a point look-up in this process, in µs and ms."""
    with Graph.open(root, "r", local_files=False) as graph:
        for number in range(200):
            graph.query(POINT, params={"n": f"p{number}"}).rows()
        times, end = [], time.perf_counter() + seconds
        cpu = time.process_time()
        while (now := time.perf_counter()) < end:
            graph.query(POINT, params={"n": f"p{len(times) * 7919 % PEOPLE}"}).rows()
            times.append(time.perf_counter() - now)
        return (time.process_time() - cpu) / len(times) * 1e6, statistics.median(times) * 1e3


def part_point(root: Path) -> None:
    with serve(root, 1) as served:
        load(served, POINT_LUA, 4, seconds=2)
        cpu, median = embedded(root)
        busy = load(served, POINT_LUA, 8)
        single = load(served, POINT_LUA, 1)
        extra = busy["cpu"] - cpu
        text = f"{busy['cpu']:.0f} µs, embedded {cpu:.0f} µs"
        report("point look-up, CPU per request", text, "≤ + 250 µs", extra <= 250)
        text = f"{single['p50']:.2f} ms, embedded {median:.2f} ms"
        report(
            "point look-up, median of 1 connection",
            text,
            "≤ + 0.6 ms",
            single["p50"] - median <= 0.6,
        )


def part_bare(root: Path) -> None:
    """With tokens, policy, metrics and request ids; the list of queries asks the engine too."""
    targets = {"/healthz": 3, "/graphs": 3, "/graphs/g/queries": 4}
    with (
        serve_cluster(root.parent / "lab") as served,
        _running([sys.executable, __file__, "--bare"]) as bare,
    ):
        for path, target in targets.items():
            rounds = [
                (load(served, get_lua(path), 8)["cpu"], load(bare, get_lua("/"), 8)["cpu"])
                for _ in range(ROUNDS)
            ]
            ours, raw = (statistics.median(cpu) for cpu in zip(*rounds, strict=True))
            ratio = ours / raw
            text = f"{ours:.0f} µs, bare {raw:.0f} µs, {ratio:.1f} ×"
            report(f"GET {path}, CPU per request", text, f"≤ {target} × bare", ratio <= target)


def part_workers(root: Path) -> None:
    """The load has its part of the two cores too, so two workers cannot be twice as fast as one.

    The most is what two cores could do if they never idled: two seconds divided by the processor
    time of a request, that of the load included.
    """
    with serve(root, 1) as one, serve(root, 2) as two:
        for served in (one, two):
            load(served, POINT_LUA, 16, seconds=2)
        rounds = [(load(one, POINT_LUA, 16), load(two, POINT_LUA, 16)) for _ in range(ROUNDS)]
    ratio = statistics.median(second["rate"] / first["rate"] for first, second in rounds)
    most = statistics.median(
        2e6 / (second["cpu"] + second["load_cpu"]) / first["rate"] for first, second in rounds
    )
    first, second = rounds[-1]
    text = f"{first['rate']:.0f} and {second['rate']:.0f} /s, {ratio:.2f} ×, most {most:.2f} ×"
    wanted = min(1.7, 0.95 * most)
    report("point look-ups, 1 and 2 workers", text, f"≥ {wanted:.2f} ×", ratio >= wanted)
    text = f"{second['cpu']:.0f} µs, of the load {second['load_cpu']:.0f} µs"
    print(f"{'the same, CPU per request':48} {text:>34}", flush=True)


def part_mixed(root: Path) -> None:
    """Short rounds with and without writers alternate, so that noise of the machine hits both.

    Two cores are few for readers, load and a writer: in each round reads are also measured beside
    a process that only counts, scheduled as the writer is: the least that a busy core costs.
    """
    seconds = max(SECONDS, int(os.environ.get("BENCH_MIXED_SECONDS", "60"))) // MIXED_ROUNDS
    with serve(root, 2) as served:
        load(served, POINT_LUA, 16, seconds=2)
        capacity = load(served, POINT_LUA, 16)["rate"]
        options = {"delay": 16 / (capacity / 2) * 1e3, "seconds": seconds}
        rounds: dict[str, list[dict[str, Any]]] = {"alone": [], "counting": [], "writers": []}
        bad = writes = 0
        for _ in range(MIXED_ROUNDS):
            rounds["alone"].append(load(served, POINT_LUA, 16, **options))
            with counting():
                rounds["counting"].append(load(served, POINT_LUA, 16, **options))
            writers = start_wrk(served.url, RECORD_LUA, 8, threads=8, seconds=seconds)
            beside = load(served, POINT_LUA, 16, **options)
            written = writers()
            rounds["writers"].append(beside)
            bad += beside["bad"] + beside["broken"] + written["broken"]
            writes += written["requests"]
    for name, wanted in (("p50", 1.5), ("p99", 5)):
        alone, least, after = (
            statistics.median(result[name] for result in results) for results in rounds.values()
        )
        text = f"{alone:.2f} → {least:.2f} ms, {least / alone:.2f} ×"
        print(f"{f'reads beside a process that counts, {name}':48} {text:>34}", flush=True)
        text = f"{alone:.2f} → {after:.2f} ms, {after / alone:.2f} ×"
        report(f"reads beside 8 writers, {name}", text, f"≤ {wanted} ×", after / alone <= wanted)
    report("errors", f"{bad}; {writes} writes", "0", bad == 0)


_COUNTING = """
import os
os.nice(10)
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
while True:
    pass
"""


@contextmanager
def counting() -> Iterator[None]:
    """A process that keeps a core busy, as nice as the writer of a server."""
    process = subprocess.Popen([sys.executable, "-c", _COUNTING])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def part_connections(root: Path) -> None:
    with serve(root, 2) as served:
        result = load(served, POINT_LUA, 200, threads=2)
        bad = result["bad"] + result["broken"]
        text = f"{bad} of {result['requests']} failed, p99 {result['p99']:.0f} ms"
        report("200 connections at once", text, "0 failed", bad == 0)


def part_writers(root: Path) -> None:
    with serve(root, 2) as served:
        load(served, RECORD_LUA, 8, threads=8, seconds=2)
        ratios, spreads = [], []
        for _ in range(ROUNDS):
            one = load(served, RECORD_LUA, 1)
            eight = load(served, RECORD_LUA, 8, threads=8)
            ratios.append(eight["rate"] / one["rate"])
            spreads.append(max(eight["counts"]) / max(min(eight["counts"]), 1))
        ratio, spread = statistics.median(ratios), statistics.median(spreads)
        text = f"{one['rate']:.0f} and {eight['rate']:.0f} /s, {ratio:.2f} ×"
        report("1 and 8 writers on a branch", text, "≥ 3 ×", ratio >= 3)
        report("writes of the 8 writers, most / fewest", f"{spread:.2f}", "≤ 2", spread <= 2)


def part_export(root: Path) -> None:
    with serve(root, 2) as served:
        served.post("/graphs/g/export", {"type_names": ["Event"]})
        before, peak, stop = served.memory(), [0], threading.Event()

        def sample() -> None:
            while not stop.wait(0.05):
                peak[0] = max(peak[0], served.memory())

        sampler = threading.Thread(target=sample)
        sampler.start()
        request = urllib.request.Request(
            f"{served.url}/graphs/g/export",
            json.dumps({"type_names": ["Knows"]}).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"},
        )
        start = time.perf_counter()
        with urllib.request.urlopen(request, timeout=600) as response:
            response.read(1)
            first = (time.perf_counter() - start) * 1e3
            lines = 0
            while piece := response.read(1 << 20):
                lines += piece.count(b"\n")
        stop.set()
        sampler.join()
        growth = max(peak[0] - before, 0) / 1e6
        report(f"export of {lines} edges, first byte", f"{first:.0f} ms", "≤ 200 ms", first <= 200)
        report("export, growth of memory", f"{growth:.0f} MB", "≤ 100 MB", growth <= 100)


def part_restart(root: Path) -> None:
    with serve(root, 2) as served:
        served.post("/graphs/g/mutate", {"query": RECORD, "params": {"l": "before"}})
        times = []
        for number in range(3):
            os.kill(served.pids[1], signal.SIGKILL)
            start = time.perf_counter()
            body = {"query": RECORD, "params": {"l": f"after {number}"}}
            while True:
                try:
                    served.post("/graphs/g/mutate", body)
                    break
                except OSError:
                    time.sleep(0.02)
            times.append(time.perf_counter() - start)
            # A worker that dies too often is restarted later each time.
            time.sleep(1)
        worst = max(times)
        report("writer killed, next write answered", f"{worst:.2f} s", "≤ 2 s", worst <= 2)


class Reader:
    """One client with one connection, which reads answers and looks at nothing in them."""

    def __init__(self, served: Served) -> None:
        self._connection = http.client.HTTPConnection(served.url.removeprefix("http://"))
        self._headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}

    def ask(self, path: str, body: Any = None, accept: str = "*/*") -> tuple[Any, int]:
        """The headers of an answer, and the bytes of its body."""
        method = "GET" if body is None else "POST"
        sent = None if body is None else json.dumps(body)
        self._connection.request(method, path, sent, {**self._headers, "Accept": accept})
        response = self._connection.getresponse()
        size = 0
        while piece := response.read(1 << 18):
            size += len(piece)
        if response.status != 200:
            raise SystemExit(f"{path}: {response.status}")
        return response.headers, size


NDJSON, ARROW = "application/x-ndjson", "application/vnd.apache.arrow.stream"


def part_pages(root: Path) -> None:
    with serve(root, 1) as served:
        reader, size = Reader(served), 1_000
        body: dict[str, Any] = {"query": NAMES}
        for _ in range(2):
            started, cpu = time.perf_counter(), served.cpu()
            reader.ask("/graphs/g/query", body, NDJSON)
            stream, stream_cpu = time.perf_counter() - started, served.cpu() - cpu
            started, cpu, pages, cursor = time.perf_counter(), served.cpu(), 0, None
            while pages == 0 or cursor is not None:
                more = {} if cursor is None else {"cursor": cursor}
                headers, _ = reader.ask(
                    "/graphs/g/query", {**body, "page_size": size, **more}, NDJSON
                )
                pages, cursor = pages + 1, headers.get("omnigraph-cursor")
            seconds, page_cpu = time.perf_counter() - started, served.cpu() - cpu
        text = f"{pages / seconds:.0f} /s, {seconds / pages * 1e3:.1f} ms each"
        report(f"{pages} pages of {size} rows", text, "≥ 100 /s", pages / seconds >= 100)
        ratio = page_cpu / stream_cpu
        text = f"{page_cpu:.2f} s, stream {stream_cpu:.2f} s, {ratio:.1f} ×"
        report("all pages against one stream, CPU", text, "≤ 3 ×", ratio <= 3)
        text = f"{seconds:.2f} s, stream {stream:.2f} s"
        report("all pages against one stream, time", text, "≤ 3 ×", seconds <= 3 * stream)


def part_streams(root: Path) -> None:
    body = {"query": PAIRS}
    with serve(root, 1) as served, Graph.open(root, "r", local_files=False) as graph:
        reader = Reader(served)
        for kind, accept in (("Arrow", ARROW), ("NDJSON", NDJSON)):
            for _ in range(2):
                started = time.perf_counter()
                with graph.query(PAIRS, max_memory=None) as result:
                    if accept == ARROW:
                        rows = sum(batch.num_rows for batch in result.batches())
                    else:
                        rows = sum(len(part) for part in result.json_batches("native"))
                own = time.perf_counter() - started
                started = time.perf_counter()
                reader.ask("/graphs/g/query", body, accept)
                seconds = time.perf_counter() - started
            text = f"{rows / seconds / 1e3:.0f}k rows/s, embedded {rows / own / 1e3:.0f}k"
            report(f"{rows} rows as {kind}", text, "≥ embedded / 3", seconds <= 3 * own)


def part_feed(root: Path) -> None:
    with serve(root, 2) as served:
        follower, writer = Reader(served), Reader(served)
        times: list[float] = []
        for number in range(40):
            answered: list[float] = []

            def follow(answered: list[float] = answered) -> None:
                follower.ask("/graphs/g/changes?start=now&wait=30s")
                answered.append(time.perf_counter())

            waiting = threading.Thread(target=follow)
            waiting.start()
            # The poll has to wait before the commit is made.
            time.sleep(0.1)
            body = {"query": RECORD, "params": {"l": f"feed {number}"}}
            writer.ask("/graphs/g/mutate", body)
            committed = time.perf_counter()
            waiting.join()
            times.append((answered[0] - committed) * 1e3)
        middle, worst = statistics.median(times), sorted(times)[-3]
        text = f"p50 {middle:.0f} ms, p95 {worst:.0f} ms"
        report("from a commit to the answer of a long poll", text, "≤ 100 ms", worst <= 100)


PARTS = {
    name.removeprefix("part_"): part
    for name, part in list(globals().items())
    if name.startswith("part_")
}


def main() -> None:
    if sys.argv[1:] == ["--bare"]:
        run_bare()
        return
    if subprocess.run(["bash", ROOT / "tools" / "ensure-wrk"], check=False).returncode:
        print("bench/server.py needs wrk; nothing was measured")
        return
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        root = make_graph(Path(folder))
        for name in sys.argv[1:] or PARTS:
            PARTS[name](root)


if __name__ == "__main__":
    main()
