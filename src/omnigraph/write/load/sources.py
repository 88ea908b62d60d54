"""Where the data of a load comes from, and in which form: files, streams, tables, records."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import pyarrow as pa

from omnigraph.errors import InputError
from omnigraph.write.delta import Kind
from omnigraph.write.load.csv_files import read_csv
from omnigraph.write.load.intake import Intake
from omnigraph.write.load.ndjson import read_records, take_records
from omnigraph.write.load.tables import as_arrow, read_parquet, read_table

LoadData: TypeAlias = Any
"""A path, several paths, an open binary file, tables or frames by type name, or records."""

_COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
_JSON = {".jsonl", ".ndjson", ".json"}
FORMATS = ("ndjson", "csv", "parquet")
_CHUNK = 1 << 20


def read_data(data: LoadData, intake: Intake, options: SourceOptions) -> None:
    """Take everything in, whatever it is."""
    if isinstance(data, Mapping):
        for name, value in data.items():
            _read_named(str(name), value, intake)
        return
    if isinstance(data, str | os.PathLike):
        _read_path(os.fspath(data), intake, options)
        return
    if hasattr(data, "read"):
        _read_stream(data, getattr(data, "name", "<stream>"), intake, options)
        return
    if isinstance(data, Iterable):
        _read_many(data, intake, options)
        return
    raise InputError(
        f"cannot load from {type(data).__name__}",
        hint="pass a path, an open binary file, or a dict of tables by type name",
    )


class SourceOptions:
    """What a caller says about the sources: their format, and the types of files."""

    def __init__(self, form: str | None = None, types: Mapping[str, str] | None = None) -> None:
        if form is not None and form not in FORMATS:
            raise InputError(f"'{form}' is no format", hint=f"use one of {', '.join(FORMATS)}")
        self.form = form
        self._types = {os.path.abspath(path): name for path, name in (types or {}).items()}

    def type_of(self, path: str, intake: Intake) -> Kind:
        """The type whose rows a file holds: as said, or after the name of the file."""
        named = self._types.get(os.path.abspath(path))
        return intake.find(named or Path(_uncompressed(path)).stem)


def _read_many(data: Iterable[Any], intake: Intake, options: SourceOptions) -> None:
    """Several sources, or plain records."""
    items = iter(data)
    for item in items:
        if isinstance(item, dict):
            take_records(chain([item], items), intake, "<records>")
            return
        read_data(item, intake, options)


def _read_named(name: str, value: Any, intake: Intake) -> None:
    kind = intake.find(name)
    table = as_arrow(value)
    if table is None:
        raise InputError(
            f"the rows of '{name}' are {type(value).__name__}",
            hint="pass an Arrow table or a frame of pandas or polars",
        )
    read_table(table, kind, intake, f"<{name}>")


def _read_path(path: str, intake: Intake, options: SourceOptions) -> None:
    if os.path.isdir(path):
        _read_folder(path, intake, options)
        return
    form = options.form or _form(path)
    if form == "parquet":
        read_parquet(path, options.type_of(path, intake), intake)
        return
    with _opened(path) as stream:
        if form == "csv":
            kind = options.type_of(path, intake)
            text = io.TextIOWrapper(stream, "utf-8-sig", newline="")
            read_csv(text, kind, intake, path)
        else:
            read_records(_lines(stream), intake, path)


def _read_folder(path: str, intake: Intake, options: SourceOptions) -> None:
    """What an export wrote: nodes and edges, one file for each type."""
    found = False
    for part, prefix in (("nodes", "node"), ("edges", "edge")):
        folder = Path(path, part)
        for file in sorted(folder.iterdir()) if folder.is_dir() else ():
            found = True
            kind = intake.find(f"{prefix}:{Path(_uncompressed(file.name)).stem}")
            types = {str(file): kind.table_key}
            _read_path(str(file), intake, SourceOptions(options.form, types))
    if not found:
        raise InputError(
            f"'{path}' is a directory without nodes or edges",
            hint="pass a file, or a directory that an export wrote",
        )


def _read_stream(stream: Any, name: str, intake: Intake, options: SourceOptions) -> None:
    if options.form in ("csv", "parquet"):
        raise InputError(f"a stream of {options.form} says nothing about its type")
    data: BinaryIO = stream
    if isinstance(stream, io.TextIOBase):
        read_records((line.encode("utf-8", "surrogatepass") for line in stream), intake, str(name))
        return
    read_records(_lines(data), intake, str(name))


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """A file as bytes, decompressed by its ending."""
    codec = _COMPRESSED.get(Path(path).suffix.lower())
    try:
        plain = open(path, "rb")  # noqa: SIM115
    except OSError as error:
        reason = (error.strerror or "it cannot be read").lower()
        raise InputError(f"cannot read '{path}': {reason}") from None
    with plain:
        if codec is None:
            yield plain
            return
        try:
            with pa.CompressedInputStream(plain, codec) as stream:
                yield io.BufferedReader(_Raw(stream), _CHUNK)
        except (pa.ArrowException, OSError):
            raise InputError(f"'{path}' is not {codec} data, or damaged") from None


class _Raw(io.RawIOBase):
    """Arrow's decompressing stream as a file of Python."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    yield from stream


def _form(path: str) -> str:
    suffix = Path(_uncompressed(path)).suffix.lower()
    if suffix in _JSON:
        return "ndjson"
    if suffix == ".csv":
        return "csv"
    if suffix in (".parquet", ".pq"):
        return "parquet"
    return "ndjson"


def _uncompressed(path: str) -> str:
    return path.rsplit(".", 1)[0] if Path(path).suffix.lower() in _COMPRESSED else path
