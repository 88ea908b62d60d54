"""One process of the soak: opens the graph once, plays one part or more in threads of its own.

Run as ``python -m tests.soak.process ARGUMENTS``, arguments as one JSON object. It says ``ready``
and waits for ``go``. A part that fails ends the process with its traceback. A signal has it write
down where all of its threads are.
"""

from __future__ import annotations

import faulthandler
import json
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

from omnigraph import Graph
from tests.soak.acting import Act, sooner
from tests.soak.parts import PARTS


def main(
    uri: str,
    folder: str,
    part: str,
    names: list[str],
    seed: int,
    seconds: float,
    min_age: float,
) -> int:
    over = threading.Event()
    failed: list[str] = []
    mode = "r" if part == "reader" else "rw"
    with (
        sooner(min_age),
        Graph.open(uri, mode, durability="os", auto_compact=part == "writer") as graph,
    ):
        print("ready", flush=True)
        if sys.stdin.readline().strip() != "go":
            return 3

        def play(name: str) -> None:
            try:
                log = Path(folder, f"{name}.log")
                PARTS[part](Act(graph, name, seed, log, seconds, min_age, over)).play()
            except BaseException:
                failed.append(name)
                print(f"{part} {name} failed:\n{traceback.format_exc()}", file=sys.stderr)
                over.set()

        threads = [threading.Thread(target=play, args=(name,), name=name) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return 1 if failed else 0


if __name__ == "__main__":
    arguments: dict[str, Any] = json.loads(sys.argv[1])
    with Path(arguments["folder"], f"{arguments['names'][0]}.stacks").open("w") as stacks:
        faulthandler.register(signal.SIGUSR1, stacks)
        sys.exit(main(**arguments))
