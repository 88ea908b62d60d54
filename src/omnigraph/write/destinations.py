"""Destinations of an export: a file or directory that appears only when complete."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from omnigraph.commit.ulid import new_ulid
from omnigraph.errors import InputError

_COMPRESSED = {".gz": "gzip", ".zst": "zstd"}


@contextmanager
def replaced_file(path: Path, *, compress: bool = True) -> Iterator[Callable[[bytes], Any]]:
    """A file to be written; it replaces an existing one at the end.

    It is compressed according to its suffix, unless ``compress`` is false.
    """
    with _written(path):
        is_stream = path.exists() and not path.is_file()
    if is_stream:
        # A pipe or a terminal cannot be replaced.
        with _written(path), path.open("wb") as file:
            yield file.write
        return
    with _written(path), tempfile.TemporaryDirectory(prefix=".export-", dir=path.parent) as folder:
        made = Path(folder, "export")
        codec = _COMPRESSED.get(path.suffix.lower()) if compress else None
        with made.open("wb", buffering=1 << 18) as file:
            if codec is None:
                yield file.write
            else:
                with pa.CompressedOutputStream(file, codec) as compressed:
                    yield compressed.write
        made.replace(path)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A directory to be filled; it must not exist or be empty."""
    with _written(path):
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise InputError(
                f"'{path}' is not an empty directory", hint="choose another, or empty it"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.parent / f".export-{new_ulid()}"
        made.mkdir()
        try:
            yield made
            made.replace(path)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise


@contextmanager
def _written(path: Path) -> Iterator[None]:
    if "\0" in str(path):
        raise InputError("a path cannot hold a zero character")
    try:
        yield
    except OSError as error:
        reason = (error.strerror or "it cannot be written").lower()
        raise InputError(f"cannot write '{path}': {reason}", details={"file": str(path)}) from None
