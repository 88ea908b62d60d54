"""What a command costs with the warm process, against a bare interpreter at the same time.

A point look-up of one node by its key through the installed program: with the warm process, and in
its own process. The cpu is that of the command alone (user and system time of its process); what
the warm process itself needs is shown beside it. Goal: a warm look-up takes at most 2.5 times the
cpu of ``python -c pass``. Runs alternate, and the median counts; wall times are shown too.

The program is a script as installers write it. ``python`` is the same interpreter in the same
environment, so both pay for ``site`` and its ``.pth`` files; an editable install adds its own.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from omnigraph import Graph

ROUNDS = 41
TARGET = 2.5
NODES = 10_000
QUERY = "query q($name: String) { match { $p: Person { name: $name } } return { $p.name, $p.age } }"
SCRIPT = """\
#!{python}
import sys
from omnigraph.cli import main
if __name__ == "__main__":
    sys.argv[0] = sys.argv[0].removesuffix(".exe")
    sys.exit(main())
"""


def run(command: list[str], folder: str, environ: dict[str, str]) -> tuple[float, float]:
    """Seconds of cpu of one command, and seconds until it had ended."""
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} failed")
    return usage.ru_utime + usage.ru_stime, seconds


def own_cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        rows = [{"type": "Person", "data": {"name": f"p{n}", "age": n}} for n in range(NODES)]
        schema = "node Person { name: String @key\n age: I32? }"
        with Graph.init(Path(folder, "g.omni"), schema) as graph:
            graph.load(rows)
            graph.indexes.ensure()
        script = Path(folder, "omnigraph")
        script.write_text(SCRIPT.format(python=sys.executable), "utf-8")
        script.chmod(0o755)
        Path(folder, "run").mkdir(mode=0o700)
        environ = {
            **os.environ,
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": f"{folder}/compiled",
            "XDG_RUNTIME_DIR": f"{folder}/run",
            "OMNIGRAPH_HOME": f"{folder}/home",
            "OMNIGRAPH_WARM": "auto",
        }
        lookup = [str(script), "query", "--store", "g.omni", "-e", QUERY]
        lookup += ["--params", '{"name": "p77"}']
        commands = {
            "python -c pass": ([sys.executable, "-c", "pass"], environ),
            "look-up, warm": (lookup, environ),
            "look-up": (lookup, {**environ, "OMNIGRAPH_WARM": "off"}),
        }
        started = subprocess.run(
            [str(script), "warm", "start", "--json"],
            env=environ,
            capture_output=True,
            check=True,
        )
        pid = json.loads(started.stdout)["pid"]
        try:
            for command in commands.values():
                run(command[0], folder, command[1])
            before = own_cpu(pid)
            times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
            for _ in range(ROUNDS):
                for name, (command, variables) in commands.items():
                    times[name].append(run(command, folder, variables))
            served = (own_cpu(pid) - before) / ROUNDS
        finally:
            subprocess.run([str(script), "warm", "stop"], env=environ, check=True)
    medians = {
        name: [statistics.median(column) for column in zip(*values, strict=True)]
        for name, values in times.items()
    }
    for name, (cpu, seconds) in medians.items():
        print(f"{name:16} {cpu * 1000:7.1f} ms of cpu {seconds * 1000:8.1f} ms")
    print(f"the warm process {served * 1000:7.1f} ms of cpu for each look-up")
    ratio = medians["look-up, warm"][0] / medians["python -c pass"][0]
    print(f"warm look-up / python -c pass: {ratio:.2f} (goal {TARGET})")
    return int(ratio > TARGET)


if __name__ == "__main__":
    sys.exit(main())
