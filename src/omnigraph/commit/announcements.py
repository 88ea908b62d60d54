"""What the writer of a server has published, in memory that the readers beside it share.

A reader looks for a newer manifest before every read. Without announcements it reads each version
that it finds from storage, while its requests wait. The writer has the rows in memory: it hides a
version before it publishes it, and reveals it with its rows when it is durable, before anybody
learns of the commit. Until then all readers serve the version before. Which one is served changes
in all processes at the same moment, by one word of the memory.

Announcements only save work. A reader that finds none for a version, because another program has
published it, or too many since, reads it from storage. So it does if a writer died with a version
hidden: nothing is hidden for longer than a moment.
"""

from __future__ import annotations

import mmap
import struct
import threading
import time
import zlib
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec

_SLOTS: Final = 64
"""Branches whose announcements are kept; two that meet in a slot replace each other."""
_SLOT_BYTES: Final = 32 << 10
_SIZE: Final = _SLOTS * _SLOT_BYTES
_KEY, _CHANGES, _HIDDEN, _UNTIL, _LENGTH, _CHECKSUM = range(6)
"""The words at the start of a slot. ``_CHANGES`` is odd while the rest is written."""
_CONTENT: Final = 64
_CAPACITY: Final = _SLOT_BYTES - _CONTENT
_HIDDEN_NANOSECONDS: Final = 1_000_000_000
_PREFIX = struct.Struct("<QI")


class Announcement(msgspec.Struct, frozen=True, array_like=True):
    """A version of the manifest of a branch: what it added, and what it must follow."""

    version: int
    follows: str | None
    """The newest commit of the version before: versions of another graph are not mixed in."""
    fragments: list[int]
    records: list[dict[str, Any]]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Announcement)


def create_memory(path: Path) -> None:
    """Create the memory of a server; its processes open it.

    All of it is written: a process that writes to memory for which its disk has no space is killed.
    """
    with path.open("xb") as file:
        file.write(bytes(_SIZE))


class _Memory:
    """The memory as bytes, and as words that are read and written at once."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self.content = mmap.mmap(file.fileno(), _SIZE)
        self.words = memoryview(self.content).cast("Q")


class Announcer:
    """Announces what this process publishes. Safe to share between threads."""

    def __init__(self, path: Path) -> None:
        self._memory = _Memory(path)
        self._lock = threading.Lock()
        self._recent: dict[int, deque[bytes]] = {}
        words = self._memory.words
        for slot in range(_SLOTS):
            # The writer before this one may have died at any moment.
            start = _first_word(slot)
            words[start + _HIDDEN] = 0
            words[start + _KEY] = 0
            words[start + _CHANGES] = (words[start + _CHANGES] | 1) + 1

    def hide(self, key: int, version: int) -> None:
        """Let readers serve the version before this one, which is about to be published."""
        with self._lock:
            words, start = self._memory.words, _first_word(key % _SLOTS)
            if words[start + _KEY] != key:
                if words[start + _HIDDEN]:
                    return
                self._recent.pop(words[start + _KEY], None)
                words[start + _KEY] = 0
                self._write(key, deque())
                words[start + _KEY] = key
            words[start + _UNTIL] = time.monotonic_ns() + _HIDDEN_NANOSECONDS
            words[start + _HIDDEN] = version

    def reveal(self, key: int, announcement: Announcement | None = None) -> None:
        """Hide nothing any more; readers take the version over as announced."""
        with self._lock:
            words, start = self._memory.words, _first_word(key % _SLOTS)
            if words[start + _KEY] != key:
                return
            if announcement is not None:
                self._write(key, self._with(key, announcement))
            words[start + _HIDDEN] = 0

    def _with(self, key: int, announcement: Announcement) -> deque[bytes]:
        """The newest announcements that fit."""
        data = _ENCODER.encode(announcement)
        recent = self._recent.get(key, deque())
        recent.append(_PREFIX.pack(announcement.version, len(data)) + data)
        while sum(map(len, recent)) > _CAPACITY:
            recent.popleft()
        return recent

    def _write(self, key: int, recent: deque[bytes]) -> None:
        self._recent[key] = recent
        words, slot = self._memory.words, key % _SLOTS
        start = _first_word(slot)
        content = b"".join(recent)
        words[start + _CHANGES] += 1
        begin = slot * _SLOT_BYTES + _CONTENT
        self._memory.content[begin : begin + len(content)] = content
        words[start + _LENGTH] = len(content)
        words[start + _CHECKSUM] = zlib.crc32(content)
        words[start + _CHANGES] += 1


class Announced:
    """The announcements of the writer, as a reader sees them."""

    def __init__(self, path: Path) -> None:
        self._memory = _Memory(path)

    def follow(self, key: int) -> Follower:
        """Follow those for one branch."""
        return Follower(self._memory, key)


class Follower:
    """Follows the announcements for one branch; used under the lock of its manifest."""

    def __init__(self, memory: _Memory, key: int) -> None:
        self.key = key
        self._memory = memory
        self._start = _first_word(key % _SLOTS)
        self._changes = -1
        self._version = -1

    def hides(self, version: int) -> bool:
        """Whether a version is being published, and nobody has learned of it."""
        words, start = self._memory.words, self._start
        return (
            words[start + _KEY] == self.key
            and words[start + _HIDDEN] == version
            and time.monotonic_ns() < words[start + _UNTIL]
            and words[start + _KEY] == self.key
        )

    def after(self, version: int) -> Iterator[Announcement]:
        """What follows a version, one by one, as far as it is announced and not hidden."""
        words, start = self._memory.words, self._start
        changes = words[start + _CHANGES]
        if changes == self._changes and version == self._version:
            return
        content = self._content()
        # Read later than the content, which is written before its version is revealed.
        hidden = words[start + _HIDDEN]
        position = 0
        while position < len(content):
            announced, length = _PREFIX.unpack_from(content, position)
            position += _PREFIX.size + length
            if announced != version + 1:
                continue
            if announced == hidden:
                return
            yield _DECODER.decode(content[position - length : position])
            version = announced
        self._changes, self._version = changes, version

    def _content(self) -> bytes:
        """The content of the slot if it is that of this branch, and was not being changed."""
        words, start = self._memory.words, self._start
        changes = words[start + _CHANGES]
        begin, length = start * 8 + _CONTENT, words[start + _LENGTH]
        if words[start + _KEY] != self.key or changes % 2 or length > _CAPACITY:
            return b""
        content = self._memory.content[begin : begin + length]
        checksum = words[start + _CHECKSUM]
        is_whole = words[start + _CHANGES] == changes and words[start + _KEY] == self.key
        return content if is_whole and zlib.crc32(content) == checksum else b""


@lru_cache(maxsize=1024)
def key_of(uri: str, branch: str | None, life: str | None) -> int:
    """The number of a branch; ``life`` distinguishes it from earlier ones of its name.

    >>> key_of("/g", None, None) == key_of("/g", None, None) != key_of("/g", "b", "1")
    True
    """
    text = "\0".join((uri, branch or "", life or ""))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") | 1


def _first_word(slot: int) -> int:
    return slot * _SLOT_BYTES // 8
