"""What a trace of system calls says: the steps that made something durable or visible.

A step is one successful call that changes or syncs a file below a root. Names that are random
differ from run to run; the *shape* of a path has a star in their place, so that a step of one run
can be found again in the next as the n-th call of its kind on its shape.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import PurePosixPath

WRITES = frozenset({"write", "writev", "pwrite64", "pwritev", "pwritev2"})
WRITES_BETWEEN_FILES = frozenset({"copy_file_range", "sendfile"})
SYNCS = frozenset({"fsync", "fdatasync", "msync", "sync_file_range", "syncfs"})
OPENS = frozenset({"open", "openat", "openat2", "creat"})
SIZES = frozenset({"truncate", "ftruncate"})
NAMES = frozenset(
    {
        "link",
        "linkat",
        "mkdir",
        "mkdirat",
        "rename",
        "renameat",
        "renameat2",
        "rmdir",
        "symlink",
        "symlinkat",
        "unlink",
        "unlinkat",
    }
)
CALLS = WRITES | WRITES_BETWEEN_FILES | SYNCS | OPENS | SIZES | NAMES

_RANDOM = re.compile(
    r"(?<=\.tmp)[0-9A-Za-z]{6}\b"  # temporary files
    r"|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"  # UUID
    r"|\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b"  # ULID
    r"|(?<![0-9a-f])[0-9a-f]{24,}(?![0-9a-f])"  # names of data files
    r"|(?<=-)[0-9]{12,20}(?=\.(?:arrow|bin)\b)"  # the random part of a deletion file
    r"|(?<=\b__checksums/)[0-9]{20}(?=-)"  # the time of a record of checksums
)
_LINE = re.compile(r"(\d+) +(.*)")
_RESUMED = re.compile(r"<\.\.\. \w+ resumed>(.*)")
_CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+)")
_UNFINISHED = "<unfinished ...>"
_PATH = re.compile(r'(?:AT_FDCWD|\d+)<(?P<open>[^>]*)>|"(?P<name>(?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Step:
    """The n-th successful call of one kind on paths of one shape, relative to the root.

    ``paths`` are those of this one run, in the order of the call's arguments.
    """

    call: str
    shape: str
    occurrence: int
    paths: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @property
    def syncs(self) -> bool:
        """Whether the call only syncs: a killed process leaves the same files without it."""
        return self.call in SYNCS

    def __str__(self) -> str:
        return f"{self.call} {self.shape} #{self.occurrence}"


@functools.lru_cache(maxsize=10_000)
def shape_of(path: str) -> str:
    """A path with a star for every part that is random.

    >>> shape_of("_transactions/1-48c2c2ae-247c-49f8-a0ca-1040eac0d14f.txn")
    '_transactions/1-*.txn'
    >>> shape_of("__checksums/01794961802363462471-01KABCDEFGHJKMNPQRSTVWXYZ0.json")
    '__checksums/*-*.json'
    """
    return _RANDOM.sub("*", path)


class Trace:
    """The text of ``strace -f -y``, folded into steps as it comes."""

    def __init__(self, root: str) -> None:
        self._root = PurePosixPath(root)
        self._seen: Counter[tuple[str, str]] = Counter()
        self._unfinished: dict[str, str] = {}
        self._rest = ""
        self.steps: list[Step] = []

    def feed(self, text: str) -> list[Step]:
        """Take further text; returns the steps that it completes."""
        existing = len(self.steps)
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._take(line)
        return self.steps[existing:]

    def _take(self, line: str) -> None:
        actual = _LINE.match(line)
        if actual is None:
            return
        thread, text = actual.groups()
        resumed = _RESUMED.match(text)
        if resumed is not None:
            text = self._unfinished.pop(thread, "") + resumed[1]
        if text.endswith(_UNFINISHED):
            self._unfinished[thread] = text.removesuffix(_UNFINISHED)
            return
        call = _CALL.match(text)
        if call is None or int(call[3]) < 0:
            return
        paths = self._paths_of(call[1], call[2])
        if not paths:
            return
        # The path that is changed: of two names, the new one.
        changed = paths[0] if call[1] in WRITES | {"sendfile"} else paths[-1]
        kind = (call[1], shape_of(changed))
        self._seen[kind] += 1
        self.steps.append(Step(*kind, self._seen[kind], paths))

    def _paths_of(self, call: str, arguments: str) -> tuple[str, ...]:
        """The paths below the root that a call is about; none when it changes nothing."""
        if call in OPENS and call != "creat" and not re.search("O_CREAT|O_TRUNC", arguments):
            return ()
        below = map(self._below_root, _paths(arguments))
        return tuple(path for path in below if path is not None)

    def _below_root(self, path: str) -> str | None:
        try:
            return str(PurePosixPath(path).relative_to(self._root))
        except ValueError:
            return None


def _paths(arguments: str) -> list[str]:
    """Every path among the arguments: of open files, and names joined to the directory before."""
    paths = []
    directory = "/"
    for actual in _PATH.finditer(arguments):
        if actual["open"] is not None:
            directory = actual["open"]
            paths.append(directory)
        else:
            paths.append(str(PurePosixPath(directory, actual["name"])))
    return paths
