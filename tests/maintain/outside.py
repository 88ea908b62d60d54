"""A directory beside a graph that nobody may touch, and everything that is done to it.

The kernel tells of each access, whoever makes it: Python, Lance or the object store.
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

_OPEN, _ACCESS, _MODIFY, _ATTRIB, _CREATE, _DELETE, _MOVED = 0x20, 1, 2, 4, 0x100, 0x200, 0xC0
_EVENTS = _OPEN | _ACCESS | _MODIFY | _CREATE | _DELETE | _MOVED
_HEAD = struct.Struct("iIII")
_LIBRARY = ctypes.CDLL(None, use_errno=True)

HOSTILE_PATHS = (
    "",
    ".",
    "..",
    "../outside/canary",
    "../../outside/canary",
    "../../../outside/canary",
    "nodes/../../outside/canary",
    "nodes/{t}/../../../outside/canary",
    "nodes/{t}/data/../../../../outside/canary",
    "nodes/{t}/tree/../../../../outside/data/canary",
    "nodes/{t}/../../../outside/data/canary",
    "{outside}/canary",
    "//outside/canary",
    "nodes//{t}/data/x.lance",
    "nodes/{t}/./data/x.lance",
    "nodes/{t}/data/x.lance/",
    "..\\outside\\canary",
    "nodes\\{t}\\data\\x.lance",
    "C:\\outside\\canary",
    "C:/outside/canary",
    "file://{outside}/canary",
    "s3://bucket/outside/canary",
    "~/outside/canary",
    "~root/x",
    "%2e%2e/outside/canary",
    "..%2Foutside%2Fcanary",
    "nodes/{t}/_refs/branches/..%2F..%2Foutside.json",
    "nodes/{t}/data/x\0.lance",
    "nodes/{t}/data/x\n.lance",
    "nodes/{t}/data/x.lance\n",
    "nodes/{t}/data/x\x7f.lance",
    "nodes/{t}/data/\u2025/canary",
    "\uff0e\uff0e\uff0foutside\uff0fcanary",
    "nodes/{t}/data/\u202ecanary",
    "nodes/{t}/data/e\u0301.lance",
    "nodes/{t}/data/\ud800.lance",
    "nodes/{t}/data/" + "a" * 256,
    "nodes/{t}/tree/" + "b/" * 600 + "data/x.lance",
    "nodes/{t}/data",
    "nodes/{t}",
    "nodes/{t}/other/x.lance",
    "nodes/.hidden/data/x.lance",
    "outside/canary",
    "etc/passwd",
)
"""Paths that no file of a graph has; ``{t}`` stands for the directory of one of its tables."""


class Outside:
    """The directory ``outside`` beside the graphs of a test, with a canary in it."""

    def __init__(self, top: Path) -> None:
        self.folder = top / "outside"
        for name in ("canary", "data/canary", "_refs/branches/x.json"):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text("mine")
        self._before = self._content()
        self._observe = _LIBRARY.inotify_init1(os.O_NONBLOCK)
        folders = [self.folder, *(path for path in self.folder.rglob("*") if path.is_dir())]
        for folder in folders:
            assert _LIBRARY.inotify_add_watch(self._observe, os.fsencode(folder), _EVENTS) >= 0

    def path(self, form: str, table: str) -> str:
        """One of the hostile paths for this directory."""
        return form.replace("{t}", table).replace("{outside}", str(self.folder))

    def touched(self) -> list[str]:
        """What happened to the files there since the last look; looking at a directory counts."""
        matches = []
        while True:
            try:
                raw = os.read(self._observe, 1 << 16)
            except BlockingIOError:
                return matches
            at = 0
            while at < len(raw):
                _, mask, _, length = _HEAD.unpack_from(raw, at)
                name = raw[at + _HEAD.size : at + _HEAD.size + length].rstrip(b"\0").decode()
                matches.append(f"{mask:#x} {name}")
                at += _HEAD.size + length

    def must_be_untouched(self) -> None:
        assert self.touched() == []
        assert self._content() == self._before
        # That look was ours.
        self.touched()

    def _content(self) -> dict[str, bytes]:
        files = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        return {str(path): path.read_bytes() for path in files}

    def close(self) -> None:
        os.close(self._observe)
