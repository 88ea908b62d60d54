"""Vectors that a provider was paid for, in a directory, until a commit has them.

Every answer becomes one Arrow file at once: written beside, synced, and renamed to the SHA-256 of
its bytes. Nothing is ever changed, so any number of processes may write into one directory and a
process that is killed leaves whole files only. A vector is found by its key: the hash of provider,
model, dimension and text. No text and no key of a provider is kept.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.ulid import new_ulid
from omnigraph.errors import InputError, StorageCorrupt
from omnigraph.storage.durable import sync_directory
from omnigraph.storage.objects.failures import translate

UNKNOWN = -1
KEY_TYPE = pa.binary(32)
_ENDING, _HALF, _LOCK = ".vectors.arrow", ".half", ".lock"


def key_of(provider: str, model: str, dimension: int, text: str) -> bytes:
    """What a vector is found by.

    >>> key_of("mock", "", 4, "a") == key_of("mock", "", 8, "a")
    False
    """
    said = f"{provider}\0{model}\0{dimension}\0".encode()
    return hashlib.sha256(said + text.encode("utf-8")).digest()


class Spool:
    """One directory of vectors. Safe to share between threads and processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._names: list[str] = []
        self._keys: list[pa.Array] = []
        self._known: set[str] = set()
        self._whole: set[str] = set()
        self._lock = threading.Lock()

    # -- writing -------------------------------------------------------------------------

    def keep(self, keys: Sequence[bytes], vectors: npt.NDArray[np.float32]) -> None:
        """Put vectors on the disk; when this returns they stay there."""
        if not len(keys):
            return
        dimension = vectors.shape[1]
        flat = pa.array(np.ascontiguousarray(vectors).reshape(-1), pa.float32())
        batch = pa.record_batch(
            {
                "key": pa.array(keys, KEY_TYPE),
                "vector": pa.FixedSizeListArray.from_arrays(flat, dimension),
            }
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        content = sink.getvalue()
        name = hashlib.sha256(content).hexdigest() + _ENDING
        half = self.folder / f".{new_ulid()}{_HALF}"
        try:
            with half.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            half.replace(self.folder / name)
            sync_directory(self.folder)
        except OSError as error:
            half.unlink(missing_ok=True)
            raise translate(error, "keep embeddings in", str(self.folder)) from error
        with self._lock:
            self._whole.add(name)
            self._add(name, batch["key"])

    # -- reading -------------------------------------------------------------------------

    def refresh(self) -> None:
        """Learn what other processes have put here."""
        try:
            names = sorted(name for name in os.listdir(self.folder) if name.endswith(_ENDING))
        except OSError as error:
            raise translate(error, "read embeddings of", str(self.folder)) from error
        for name in names:
            with self._lock:
                if name in self._known:
                    continue
            with self._opened(name) as rows:
                # A copy: the file is not kept open for its keys.
                keys = pa.concat_arrays([rows["key"], pa.array([], KEY_TYPE)])
            with self._lock:
                self._add(name, keys)

    def _add(self, name: str, keys: pa.Array) -> None:
        if name not in self._known:
            self._known.add(name)
            self._names.append(name)
            self._keys.append(keys)

    def find(self, keys: pa.Array) -> npt.NDArray[np.int64]:
        """For each key a number to read its vector by, or ``UNKNOWN``. Keys may repeat."""
        found = np.full(len(keys), UNKNOWN, np.int64)
        with self._lock:
            stored = list(self._keys)
        if not stored or not len(keys):
            return found
        distinct = keys.unique()
        places = np.full(len(distinct), UNKNOWN, np.int64)
        hits = pc.index_in(pa.chunked_array(stored, KEY_TYPE), value_set=distinct)
        there = np.flatnonzero(hits.is_valid().to_numpy())
        places[hits.drop_null().to_numpy()] = there
        found[:] = places[pc.index_in(keys, value_set=distinct).to_numpy()]
        return found

    def read(self, places: npt.NDArray[np.int64], dimension: int) -> npt.NDArray[np.float32]:
        """The vectors of numbers that ``find`` gave, in their order."""
        found = np.empty((len(places), dimension), np.float32)
        with self._lock:
            ends = np.cumsum([len(keys) for keys in self._keys], dtype=np.int64)
        files = np.searchsorted(ends, places, side="right")
        for number in np.unique(files).tolist():
            mine = files == number
            rows = places[mine] - (ends[number - 1] if number else 0)
            with self._opened(self._names[number], whole=True) as batch:
                column = batch["vector"]
                if column.type != pa.list_(pa.float32(), dimension):
                    raise self._damaged(self._names[number])
                found[mine] = column.flatten().to_numpy().reshape(-1, dimension)[rows]
        return found

    @contextmanager
    def _opened(self, name: str, *, whole: bool = False) -> Iterator[pa.RecordBatch]:
        path = self.folder / name
        try:
            with pa.memory_map(str(path)) as source:
                if whole and name not in self._whole:
                    digest = hashlib.sha256(source.read_buffer()).hexdigest()
                    if not name.startswith(digest):
                        raise self._damaged(name)
                    with self._lock:
                        self._whole.add(name)
                    source.seek(0)
                yield pa.ipc.open_file(source).get_batch(0)
        except FileNotFoundError as error:
            raise translate(error, "read embeddings of", str(path)) from error
        except (OSError, KeyError, pa.ArrowInvalid) as error:
            raise self._damaged(name) from error

    def _damaged(self, name: str) -> StorageCorrupt:
        return StorageCorrupt(
            f"'{name}' in the directory of kept embeddings is damaged",
            hint="remove that file and repeat; what it held is embedded again",
            details={"folder": str(self.folder), "file": name},
        )


@contextmanager
def opened_folder(folder: Path, *, is_ours: bool) -> Iterator[Path]:
    """The directory of a spool while a job uses it; what is ours is emptied when all went well."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"resume must name a directory, and '{folder}' is none") from None
    except OSError as error:
        raise translate(error, "keep embeddings in", str(folder)) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield folder
        if is_ours:
            _empty(folder, descriptor)
    finally:
        os.close(descriptor)


def is_seen(folder: Path) -> bool:
    """Whether this process sees a directory that another one opened."""
    return (folder / _LOCK).exists()


def _empty(folder: Path, descriptor: int) -> None:
    """Remove the vectors, unless another job uses them."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    for path in folder.iterdir():
        if path.name.endswith((_ENDING, _HALF)):
            path.unlink(missing_ok=True)
