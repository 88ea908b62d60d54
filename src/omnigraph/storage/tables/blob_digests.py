"""The digests of Blobs: they change with the content, and with nothing else.

A digest is computed from the bytes, piece by piece, because a Blob that is moved to another file
stays the same. Digests of table versions are immutable, so some are remembered.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable

from omnigraph.storage.tables.table import Table

DIGEST_LENGTH = 32
"""The number of hexadecimal digits: 128 bits of a SHA-256."""
_PIECE = 4 << 20
_REMEMBERED = 4096


def digest_of(data: bytes) -> str:
    """The digest of the content of a Blob.

    >>> digest_of(b"hi")
    '8f434346648f6b96df89dda901c5176b'
    """
    return hashlib.sha256(data).hexdigest()[:DIGEST_LENGTH]


class BlobDigests:
    """The digests of the Blobs of one graph. Safe to share between threads."""

    def __init__(self) -> None:
        self._digests: OrderedDict[tuple[object, ...], str] = OrderedDict()
        self._lock = threading.Lock()

    def digest(
        self,
        table: Table,
        column: str,
        row_id: int,
        size: int,
        life: object = None,
        check: Callable[[], None] = lambda: None,
    ) -> str:
        """The digest of a Blob of a size in bytes.

        ``life`` tells a branch from an earlier one of its name. ``check`` is called before each
        piece that is read, and may raise.
        """
        key = (table.ref, table.version, table.e_tag, life, column, row_id)
        with self._lock:
            digest = self._digests.get(key)
            if digest is not None:
                self._digests.move_to_end(key)
                return digest
        content = hashlib.sha256()
        for start in range(0, size, _PIECE):
            check()
            content.update(table.read_blob(column, row_id, start, min(_PIECE, size - start)) or b"")
        digest = content.hexdigest()[:DIGEST_LENGTH]
        with self._lock:
            self._digests[key] = digest
            while len(self._digests) > _REMEMBERED:
                self._digests.popitem(last=False)
        return digest
