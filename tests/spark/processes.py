"""The processes of a program and whether they are gone; read from the system, by number."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

_SECONDS = 240.0
_PAUSE = 0.05


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for a condition; that it never comes is an error."""
    until = time.monotonic() + _SECONDS
    while not holds():
        assert time.monotonic() < until, "the condition never came"
        time.sleep(_PAUSE)


def alive(process: int) -> bool:
    """Whether a process runs; one that only waits for its parent to notice does not."""
    state = _state(process)
    return state is not None and state[0] != "Z"


def descendants(process: int) -> set[int]:
    """The children of a process, their children, and so on."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        state = _state(int(folder.name))
        if state is not None:
            parents.setdefault(state[1], []).append(int(folder.name))
    actual: set[int] = set()
    new = {process}
    while new:
        new = {child for item in new for child in parents.get(item, ())} - actual
        actual |= new
    return actual


def processes_with(text: str) -> set[int]:
    """The processes that have a text in one of their arguments."""
    return {
        int(folder.name)
        for folder in Path("/proc").glob("[0-9]*")
        if any(text in argument for argument in arguments_of(int(folder.name)))
    }


def name_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text("utf-8").strip()
    except OSError:
        return ""


def arguments_of(process: int) -> list[str]:
    try:
        return Path(f"/proc/{process}/cmdline").read_text("utf-8").split("\0")
    except OSError:
        return []


def _state(process: int) -> tuple[str, int] | None:
    """The state of a process and its parent."""
    try:
        text = Path(f"/proc/{process}/stat").read_text("utf-8")
    except OSError:
        return None
    state, parent = text.rpartition(")")[2].split()[:2]
    return state, int(parent)
