"""What the system knows about a process: a command must have the same rights and limits here.

The warm process acts for others of its user. One of them may be in a sandbox, have other groups, a
memory limit, or another view of the file system; its commands must not get around that.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Literal

from omnigraph.records import dataclass

_RIGHTS = frozenset({"Uid", "Gid", "Groups", "Umask", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp"})
_VIEWS = ("ns/mnt", "ns/net", "ns/user", "root")


@dataclass(frozen=True, slots=True)
class ProcessTraits:
    """The rights, limits and file system of a process."""

    rights: tuple[str, ...]
    limits: str
    views: tuple[str, ...]
    label: str


def traits_of(pid: int | Literal["self"]) -> ProcessTraits:
    """The traits of a process; ``OSError`` if they cannot be read.

    >>> traits_of("self") == traits_of(os.getpid())
    True
    """
    folder = f"/proc/{pid}"
    lines = _read(f"{folder}/status").splitlines()
    return ProcessTraits(
        tuple(line for line in lines if line.partition(":")[0] in _RIGHTS),
        _read(f"{folder}/limits"),
        tuple(os.readlink(f"{folder}/{name}") for name in _VIEWS),
        _label(folder),
    )


def _label(folder: str) -> str:
    """The label that a security module gives to the process, if there is one."""
    with suppress(OSError):
        return _read(f"{folder}/attr/current")
    return ""


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
