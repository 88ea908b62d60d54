"""Disks that look alike: what comes after a fault is the same on each of them.

Thousands of faults leave a few hundred different disks. Names, ids and times differ from run to
run, so files are not compared byte by byte. Two disks are alike if the same files came, changed
and went: by the shape of their names, their size, and the places where they have zeros, which is
how a write shows that was lost in the middle. A file that tells itself that it is whole may differ
by the few bytes that a time takes. Files that are locked count too: whoever locks them lives.
"""

from __future__ import annotations

import json
import os
import re
import struct
from pathlib import Path

from tests.crash.harness import DIRECTORY, Entries, entries_of
from tests.crash.steps import shape_of

Disk = tuple[tuple[object, ...], ...]

_ZEROS = re.compile(rb"\0{16,}")
_FOOTER = struct.Struct("<Q4s4s")
_ROUNDED = 64


def disk_of(root: Path, before: Entries, process: int) -> Disk:
    """What differs from the files before, with the locks of a process that has stopped."""
    now = entries_of(root)
    changed = [
        (shape_of(path), *_content(root / path, entry))
        for path, entry in now.items()
        if before.get(path) != entry
    ]
    gone = [(shape_of(path), "gone") for path in before.keys() - now.keys()]
    locked = [(shape_of(path), "locked") for path in _locked(root, now, process)]
    return tuple(sorted((*changed, *gone, *locked), key=repr))


def _content(path: Path, entry: tuple[int, ...]) -> tuple[object, ...]:
    if entry == DIRECTORY:
        return ("directory",)
    content = path.read_bytes()
    zeros = tuple(match.span() for match in _ZEROS.finditer(content))
    if path.suffix == ".manifest" and _is_whole_version(content):
        return ("whole", len(content) // _ROUNDED, len(zeros))
    if path.suffix == ".json" and _is_whole_json(content):
        return ("whole", len(content) // _ROUNDED)
    return (len(content), zeros)


def _is_whole_version(content: bytes) -> bool:
    """Whether a version file ends where its footer says that its message ends."""
    if len(content) < _FOOTER.size:
        return False
    position, _, magic = _FOOTER.unpack_from(content, len(content) - _FOOTER.size)
    if magic != b"LANC" or position + 4 > len(content):
        return False
    (length,) = struct.unpack_from("<I", content, position)
    return bool(position + 4 + length + _FOOTER.size == len(content))


def _is_whole_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except ValueError:
        return False
    return True


def _locked(root: Path, now: Entries, process: int) -> list[str]:
    """The files below a root that a process has locked."""
    inodes = set()
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if "->" not in fields and int(fields[4]) == process:
            inodes.add(int(fields[5].rpartition(":")[2]))
    if not inodes:
        return []
    return [
        path for path, entry in now.items() if entry != DIRECTORY and _inode(root / path) in inodes
    ]


def _inode(path: Path) -> int:
    return os.lstat(path).st_ino
