"""What the object store gives back, and the names that it keeps for itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

PIECE = 8 << 20
"""How much of a file is in memory at once: on S3 a piece has to arrive before a request ends."""
TEMPORARY = ".tmp~"
LOCK = ".lock~"


class Versioned(NamedTuple):
    """A text and the identity of this state of it."""

    text: str
    version: str


class Stamped(NamedTuple):
    """A text with its version, and when the store received it by its own clock."""

    text: str
    version: str
    modified: datetime


class StoredBytes(NamedTuple):
    """The content of an object, its version, and when the store received it."""

    data: bytes
    version: str
    modified: datetime


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a store knows of an object without its content."""

    size: int
    e_tag: str
    modified: datetime


@dataclass(slots=True)
class Traffic:
    """How many calls of each kind a store made."""

    reads: int = 0
    writes: int = 0
    lists: int = 0
    deletes: int = 0

    @property
    def total(self) -> int:
        return self.reads + self.writes + self.lists + self.deletes


def is_internal(name: str) -> bool:
    """Whether a file is a temporary or a lock of the object store."""
    return TEMPORARY in name or name.endswith(LOCK)
