"""A directory of computed vectors, until they are committed.

Every response becomes one Arrow file at once: written under a temporary name, synced, and renamed
to the SHA-256 of its bytes. Files never change, so any number of processes may write into one
directory, and a killed process leaves complete files only. A vector is found by its key: the hash
of provider, model, dimension and text. Neither texts nor provider keys are stored.
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


def vector_key(provider: str, model: str, dimension: int, text: str) -> bytes:
    """The key of a vector.

    >>> vector_key("mock", "", 4, "a") == vector_key("mock", "", 8, "a")
    False
    """
    prefix = f"{provider}\0{model}\0{dimension}\0".encode()
    return hashlib.sha256(prefix + text.encode("utf-8")).digest()


class VectorSpool:
    """A directory of vectors. Safe to share between threads and processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._names: list[str] = []
        self._keys: list[pa.Array] = []
        self._indexed: set[str] = set()
        self._verified: set[str] = set()
        self._lock = threading.Lock()

    # -- writing -------------------------------------------------------------------------

    def add(self, keys: Sequence[bytes], vectors: npt.NDArray[np.float32]) -> None:
        """Store vectors; they are durable when this returns."""
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
            self._verified.add(name)
            self._add(name, batch["key"])

    # -- reading -------------------------------------------------------------------------

    def refresh(self) -> None:
        """Index the files of other processes."""
        try:
            names = sorted(name for name in os.listdir(self.folder) if name.endswith(_ENDING))
        except OSError as error:
            raise translate(error, "read embeddings of", str(self.folder)) from error
        for name in names:
            with self._lock:
                if name in self._indexed:
                    continue
            with self._open(name) as rows:
                # A copy, so that the file is not kept open.
                keys = pa.concat_arrays([rows["key"], pa.array([], KEY_TYPE)])
            with self._lock:
                self._add(name, keys)

    def _add(self, name: str, keys: pa.Array) -> None:
        if name not in self._indexed:
            self._indexed.add(name)
            self._names.append(name)
            self._keys.append(keys)

    def find(self, keys: pa.Array) -> npt.NDArray[np.int64]:
        """For each key the number for ``read``, or ``UNKNOWN``. Keys may repeat."""
        numbers = np.full(len(keys), UNKNOWN, np.int64)
        with self._lock:
            stored = list(self._keys)
        if not stored or not len(keys):
            return numbers
        distinct = keys.unique()
        by_key = np.full(len(distinct), UNKNOWN, np.int64)
        hits = pc.index_in(pa.chunked_array(stored, KEY_TYPE), value_set=distinct)
        by_key[hits.drop_null().to_numpy()] = np.flatnonzero(hits.is_valid().to_numpy())
        numbers[:] = by_key[pc.index_in(keys, value_set=distinct).to_numpy()]
        return numbers

    def read(self, numbers: npt.NDArray[np.int64], dimension: int) -> npt.NDArray[np.float32]:
        """The vectors of numbers from ``find``, in their order."""
        vectors = np.empty((len(numbers), dimension), np.float32)
        with self._lock:
            ends = np.cumsum([len(keys) for keys in self._keys], dtype=np.int64)
        files = np.searchsorted(ends, numbers, side="right")
        for file in np.unique(files).tolist():
            is_here = files == file
            rows = numbers[is_here] - (ends[file - 1] if file else 0)
            with self._open(self._names[file], verify=True) as batch:
                column = batch["vector"]
                if column.type != pa.list_(pa.float32(), dimension):
                    raise self._damaged(self._names[file])
                vectors[is_here] = column.flatten().to_numpy().reshape(-1, dimension)[rows]
        return vectors

    @contextmanager
    def _open(self, name: str, *, verify: bool = False) -> Iterator[pa.RecordBatch]:
        path = self.folder / name
        try:
            with pa.memory_map(str(path)) as source:
                if verify and name not in self._verified:
                    digest = hashlib.sha256(source.read_buffer()).hexdigest()
                    if not name.startswith(digest):
                        raise self._damaged(name)
                    with self._lock:
                        self._verified.add(name)
                    source.seek(0)
                yield pa.ipc.open_file(source).get_batch(0)
        except FileNotFoundError as error:
            raise translate(error, "read embeddings of", str(path)) from error
        except (OSError, KeyError, pa.ArrowInvalid) as error:
            raise self._damaged(name) from error

    def _damaged(self, name: str) -> StorageCorrupt:
        return StorageCorrupt(
            f"'{name}' in the directory of kept embeddings is damaged",
            hint="remove that file and repeat; its texts are embedded again",
            details={"folder": str(self.folder), "file": name},
        )


@contextmanager
def open_spool(folder: Path, *, is_ours: bool) -> Iterator[Path]:
    """The directory of a spool during a job; our own directory is emptied after a success."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"resume must be a directory, but '{folder}' is not") from None
    except OSError as error:
        raise translate(error, "keep embeddings in", str(folder)) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield folder
        if is_ours:
            _empty(folder, descriptor)
    finally:
        os.close(descriptor)


def is_visible(folder: Path) -> bool:
    """Whether this process can see a spool that another process opened."""
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
