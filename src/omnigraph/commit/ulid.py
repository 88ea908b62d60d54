"""ULIDs, ids that sort by time: 48 bits of milliseconds, then 80 random bits, as 26 characters.

Commits and operations have ULIDs, so their files and rows sort by creation time.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
import time
from collections.abc import Callable

from omnigraph.errors import InputError

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LENGTH = 26
_RANDOM_BITS = 80
_RANDOM_LIMIT = 1 << _RANDOM_BITS
# 26 characters hold 130 bits, an id has 128: the first character cannot go beyond 7.
_SHAPE = re.compile(f"[0-7][{ALPHABET}]{{{_LENGTH - 1}}}")


def now_micros() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1_000


class UlidSource:
    """Generates strictly increasing ids, even if the clock steps back."""

    def __init__(
        self,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        entropy: Callable[[], int] = lambda: secrets.randbits(_RANDOM_BITS),
    ) -> None:
        self._clock = clock
        self._entropy = entropy
        self._lock = threading.Lock()
        self._millis = -1
        self._random = 0

    def new(self) -> str:
        """The next id.

        >>> first, second = new_ulid(), new_ulid()
        >>> len(first), first < second
        (26, True)
        """
        return encode_ulid(self.reserve(1))

    def reserve(self, count: int) -> int:
        """Reserve ``count`` consecutive ids; returns the first as a number."""
        with self._lock:
            now = self._clock()
            if now > self._millis:
                self._millis, first = now, self._entropy()
            else:
                first = self._random + 1
            while first + count > _RANDOM_LIMIT:
                self._millis, first = self._millis + 1, self._entropy()
            self._random = first + count - 1
            return self._millis << _RANDOM_BITS | first

    def forget(self) -> None:
        """Reset in a forked child, which would otherwise continue its parent's ids."""
        # A thread that does not exist in the child may have held the lock.
        self._lock = threading.Lock()
        self._millis = -1


_SOURCE = UlidSource()
os.register_at_fork(after_in_child=_SOURCE.forget)


new_ulid = _SOURCE.new
"""A new id, greater than all earlier ids of this process."""
reserve_ulids = _SOURCE.reserve
"""Reserve consecutive new ids; returns the first as a number."""


def is_ulid(text: str) -> bool:
    """Whether a text is a canonical ULID.

    >>> is_ulid("01ARZ3NDEKTSV4RRFFQ69G5FAV"), is_ulid("01arz3ndektsv4rrffq69g5fav")
    (True, False)
    """
    return _SHAPE.fullmatch(text) is not None


def ulid_time(text: str) -> int:
    """The timestamp of an id in milliseconds since 1970.

    >>> ulid_time("01ARZ3NDEKTSV4RRFFQ69G5FAV")
    1469922850259
    """
    if not is_ulid(text):
        raise InputError(
            f"'{text}' is not an id of a commit or operation",
            hint="an id has 26 characters, such as 01ARZ3NDEKTSV4RRFFQ69G5FAV",
        )
    value = 0
    for character in text:
        value = value << 5 | ALPHABET.index(character)
    return value >> _RANDOM_BITS


def encode_ulid(number: int) -> str:
    """The text of an id, given as a number."""
    return "".join(ALPHABET[number >> 5 * position & 31] for position in reversed(range(_LENGTH)))
