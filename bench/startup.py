"""How long commands take to start, against the floor of the same machine at the same time.

`omnigraph version` against a bare interpreter, `omnigraph query` on a small graph against a bare
`import lance` without pandas, which comes along where it is installed and which no query loads,
and the same query through a server against that import: it loads neither Lance nor Arrow.
Goals: at most 4, 1.6 and 0.5 times, in seconds of cpu. Runs alternate, and the least of each
counts: what else the machine does only ever adds. Compiled files are kept, as after
every installation.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from opening import NO_PANDAS

from omnigraph import Graph

ROUNDS = 15
QUERY = "query q() { match { $p: Person } return { $p.name } }"


def cpu(command: list[str], folder: str) -> float:
    kept = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": f"{folder}/compiled",
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, env=kept, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


@contextmanager
def small_server() -> Iterator[str]:
    """Answers every query with one row, in a thread of this process."""
    read = {"query_name": "q", "target": {"branch": "main", "snapshot": None}, "row_count": 1}
    content = json.dumps({**read, "columns": ["p.name"], "rows": [{"p.name": "Ana"}]}).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, small_server() as url:
        with Graph.init(Path(folder, "g.omni"), "node Person { name: String @key }") as graph:
            graph.load([{"type": "Person", "data": {"name": "Ana"}}])
        program = [sys.executable, "-m", "omnigraph.cli"]
        commands = {
            "bare interpreter": [sys.executable, "-c", "pass"],
            "omnigraph version": [*program, "version"],
            "import lance, pandas": [sys.executable, "-c", "import lance"],
            "import lance": [sys.executable, "-c", f"{NO_PANDAS}import lance"],
            "omnigraph query": [*program, "query", "--store", "g.omni", "-e", QUERY],
            "query, served": [*program, "query", "--server", url, "--graph", "g", "-e", QUERY],
        }
        least = {name: float("inf") for name in commands}
        for command in commands.values():
            cpu(command, folder)
        for _ in range(ROUNDS):
            for name, command in commands.items():
                least[name] = min(least[name], cpu(command, folder))
    for name, seconds in least.items():
        print(f"{name:20} {seconds * 1000:8.0f} ms of cpu")
    goals = (
        ("omnigraph version", "bare interpreter", 4.0),
        ("omnigraph query", "import lance", 1.6),
        ("query, served", "import lance", 0.5),
    )
    missed = 0
    for name, floor, target in goals:
        ratio = least[name] / least[floor]
        missed += ratio > target
        print(
            f"{name} / {floor}: {ratio:.2f} (goal {target}) {'MISSED' if ratio > target else 'ok'}"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
