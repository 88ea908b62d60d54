"""Looks up recorded checksums by path, without reading all records.

A graph has one record per publish until they are folded, so there may be thousands, or one of many
megabytes. A record is written shortly after its files, and its name contains the time: the first
few records after the mtime of the file are read first, the others only if the file is in none of
them. Small records are cached, large ones are searched as bytes. Results are not verified: a record
may be damaged. A caller that finds a difference consults ``read_records``.
"""

from __future__ import annotations

import json
import os
import re
import threading
from bisect import bisect_left
from collections.abc import Mapping
from contextlib import suppress

from omnigraph.errors import StorageCorrupt
from omnigraph.storage.checksums import FOLDER, FileSum, recorded_at, sums_of_record
from omnigraph.storage.objects.store import ObjectStore

_SMALL = 256 << 10
_NEXT = 8
"""The number of other records that may come between the files of a writer and its record."""
_SUM = re.compile(rb' ?\[(\d+), "([^"\\]+)"\]')


class RecordedSums:
    """The records of one graph on local disk. Thread-safe."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._folder = objects.root.path(FOLDER)
        self._lock = threading.Lock()
        self._times: dict[str, float] = {}
        self._parsed: set[str] = set()
        self._sums: dict[str, FileSum] = {}

    def find(self, files: Mapping[str, float]) -> dict[str, FileSum]:
        """The recorded sums of files, given with their mtimes."""
        with self._lock:
            missing = {path: written for path, written in files.items() if path not in self._sums}
            if missing:
                self._search(missing)
            return {path: self._sums[path] for path in files if path in self._sums}

    def _search(self, missing: dict[str, float]) -> None:
        self._read_next(missing)
        if missing:
            self._list()
            self._read_next(missing)
        # The rest is only needed for files that were copied later or are not recorded.
        for name in sorted(self._times, key=self._times.__getitem__, reverse=True):
            if not missing:
                return
            self._read(name, missing)

    def _read_next(self, missing: dict[str, float]) -> None:
        """Read the listed records that directly follow the mtimes of the files."""
        records = sorted((at, name) for name, at in self._times.items())
        for path, written in list(missing.items()):
            first = bisect_left(records, (written, ""))
            for _, name in records[first : first + _NEXT]:
                if path in missing:
                    self._read(name, missing)

    def _list(self) -> None:
        try:
            folder = self._objects.address(FOLDER)
            names = [name for name in os.listdir(folder) if name.endswith(".json")]
        except (OSError, StorageCorrupt):
            names = []
        self._times = {name: self._times.get(name) or self._time_of(name) for name in names}
        self._parsed.intersection_update(names)

    def _time_of(self, name: str) -> float:
        recorded = recorded_at(name)
        if recorded is None:
            with suppress(OSError):
                return os.stat(f"{self._folder}/{name}").st_mtime
        return recorded or 0.0

    def _read(self, name: str, missing: dict[str, float]) -> None:
        """Read a record: all of a small one, only the missing paths of a large one."""
        if name in self._parsed:
            return
        try:
            descriptor = os.open(f"{self._folder}/{name}", os.O_RDONLY | os.O_NOFOLLOW)
            with open(descriptor, "rb", buffering=0) as file:
                raw = file.read()
        except OSError:
            return
        if len(raw) <= _SMALL:
            self._parsed.add(name)
            self._sums |= _all_sums(raw)
        else:
            self._sums |= _some_sums(raw, missing)
        for path in [path for path in missing if path in self._sums]:
            del missing[path]


def _all_sums(raw: bytes) -> dict[str, FileSum]:
    try:
        return sums_of_record(json.loads(raw)["files"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _some_sums(raw: bytes, paths: Mapping[str, float]) -> dict[str, FileSum]:
    sums = {}
    for path in paths:
        key = json.dumps(path).encode() + b":"
        at = raw.find(key)
        match = None if at < 0 else _SUM.match(raw, at + len(key))
        if match is not None:
            sums[path] = FileSum(int(match[1]), match[2].decode())
    return sums
