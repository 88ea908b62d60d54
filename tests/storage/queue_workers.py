"""What other processes do in a queue for a lease. Light to import: each process does."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from omnigraph.storage.leases.local import LocalLeases
from omnigraph.storage.objects.paths import parse_root


def write_turn(uri: str, name: str, log: str, label: str) -> None:
    """Wait for a lease and write down that it was taken."""
    with LocalLeases(parse_root(uri)).acquire([name], timeout=60), open(log, "a") as file:
        file.write(f"{label}\n")


def die_in_turn(uri: str, name: str, log: str, label: str) -> None:
    """Wait for a lease and die with it."""
    with LocalLeases(parse_root(uri)).acquire([name], timeout=60):
        os.kill(os.getpid(), signal.SIGKILL)


def take_again_and_again(uri: str, name: str, log: str, label: str) -> None:
    """Take a lease as often as it can be had, until somebody writes a line."""
    leases = LocalLeases(parse_root(uri))
    Path(f"{log}.{label}").touch()
    while not Path(log).exists():
        with leases.acquire([name], timeout=60), open(f"{log}.{label}", "a") as file:
            file.write("x")
