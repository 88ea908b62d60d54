"""Where the data of a load comes from, and in which form: files, streams, tables, records."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from omnigraph.errors import InputError
from omnigraph.write.convert import show
from omnigraph.write.delta import Kind
from omnigraph.write.load.csv_files import read_csv
from omnigraph.write.load.intake import Intake
from omnigraph.write.load.ndjson import read_records
from omnigraph.write.load.records import take_records
from omnigraph.write.load.rejects_file import RejectsFile, file_number
from omnigraph.write.load.streams import as_bytes, opened, uncompressed
from omnigraph.write.load.tables import read_frame, read_parquet

LoadData: TypeAlias = Any
"""A path, several paths, an open binary file, tables or frames by type name, or records."""

FORMATS = ("ndjson", "csv", "parquet")
STREAM = "-"
"""How ``types`` names an open file."""
_ENDINGS = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}


def read_data(data: LoadData, intake: Intake, options: SourceOptions) -> None:
    """Take everything in, whatever it is."""
    for name in options.types.values():
        intake.find(name)
    _read(data, intake, options)
    options.check_used()


class SourceOptions:
    """What a caller says about the sources: their format, and the types of files."""

    def __init__(
        self,
        form: str | None = None,
        types: Mapping[str, str] | None = None,
        rejects: RejectsFile | None = None,
    ) -> None:
        if form is not None and form not in FORMATS:
            raise InputError(f"'{form}' is no format", hint=f"use one of {', '.join(FORMATS)}")
        if types is not None and not isinstance(types, Mapping):
            raise InputError("types is no mapping", hint="pass the names of types by paths")
        self.form = form
        self.rejects = rejects
        self.types: dict[str, str] = {}
        for path, name in (types or {}).items():
            if not isinstance(path, str | os.PathLike) or not isinstance(name, str):
                raise InputError(
                    f"types has {show(path)}: {show(name)}", hint="map paths to names of types"
                )
            self.types[_absolute(os.fspath(path))] = name
        self._unused = set(self.types)

    def type_of(self, path: str, intake: Intake) -> Kind:
        """The type whose rows a file holds: as said, or after the name of the file."""
        named = self.said(path)
        return intake.find(named if named is not None else Path(uncompressed(path)).stem)

    def said(self, path: str) -> str | None:
        found = self.types.get(_absolute(path))
        self._unused.discard(_absolute(path))
        return found

    def refuse_written(self, source: str | int) -> None:
        """A file that rejected records go to cannot be loaded as well."""
        if self.rejects is not None:
            self.rejects.refuse_source(source)

    def check_used(self) -> None:
        """A path that names no file of the load is a slip of the pen."""
        if self._unused:
            path = min(self._unused)
            raise InputError(
                f"types names '{path}', which is not loaded as CSV or Parquet",
                details={"file": path},
            )


def _absolute(path: str) -> str:
    return path if path == STREAM else os.path.abspath(path)


def _read(data: LoadData, intake: Intake, options: SourceOptions) -> None:
    if isinstance(data, Mapping):
        for name, value in data.items():
            _read_named(str(name), value, intake)
    elif isinstance(data, str | os.PathLike):
        _read_path(os.fspath(data), intake, options)
    elif hasattr(data, "read"):
        _read_stream(data, intake, options)
    elif isinstance(data, Iterable) and not isinstance(data, bytes | bytearray | memoryview):
        _read_many(data, intake, options)
    else:
        raise InputError(
            f"cannot load from {type(data).__name__}",
            hint="pass a path, an open binary file, or a dict of tables by type name",
        )


def _read_many(data: Iterable[Any], intake: Intake, options: SourceOptions) -> None:
    """Several sources, or plain records."""
    items = iter(data)
    for item in items:
        if isinstance(item, dict):
            take_records(chain([item], items), intake, "<records>")
            return
        _read(item, intake, options)


def _read_named(name: str, value: Any, intake: Intake) -> None:
    if not read_frame(value, intake.find(name), intake, f"<{name}>"):
        raise InputError(
            f"the rows of '{name}' are {type(value).__name__}",
            hint="pass an Arrow table or a frame of pandas or polars",
        )


def _read_path(path: Any, intake: Intake, options: SourceOptions) -> None:
    if not isinstance(path, str):
        raise InputError(f"the path {show(path)} is no text")
    options.refuse_written(path)
    if os.path.isdir(path):
        _read_folder(path, intake, options)
        return
    form = options.form or _form(path)
    if form == "parquet":
        with opened(path):
            read_parquet(path, options.type_of(path, intake), intake)
        return
    with opened(path) as stream:
        _read_open(stream, path, form, intake, options)


def _read_open(
    stream: BinaryIO, name: str, form: str, intake: Intake, options: SourceOptions
) -> None:
    if form == "csv":
        read_csv(stream, options.type_of(name, intake), intake, name)
    else:
        read_records(stream, intake, name)


def _read_folder(path: str, intake: Intake, options: SourceOptions) -> None:
    """What an export wrote: nodes and edges, one file for each type."""
    files = list(_exported(path))
    if not files:
        raise InputError(
            f"'{path}' is a directory without nodes or edges",
            hint="pass a file, or a directory that an export wrote",
            details={"file": path},
        )
    for prefix, file in files:
        named = options.said(str(file)) or f"{prefix}:{Path(uncompressed(file.name)).stem}"
        named_so = SourceOptions(options.form, {str(file): named}, options.rejects)
        _read_path(str(file), intake, named_so)


def _exported(path: str) -> Iterator[tuple[str, Path]]:
    for part, prefix in (("nodes", "node"), ("edges", "edge")):
        folder = Path(path, part)
        for file in sorted(folder.iterdir()) if folder.is_dir() else ():
            yield prefix, file


def _read_stream(data: Any, intake: Intake, options: SourceOptions) -> None:
    name = getattr(data, "name", None)
    shown = name if isinstance(name, str) else "<stream>"
    number = file_number(data)
    if number is not None:
        options.refuse_written(number)
    form = options.form or "ndjson"
    if form == "parquet":
        raise InputError("Parquet cannot be read from a stream", hint="pass a path")
    with as_bytes(data, shown) as stream:
        if form == "ndjson":
            read_records(stream, intake, shown)
            return
        kind = options.said(STREAM)
        if kind is None:
            raise InputError(
                "a stream of CSV says nothing about its type",
                hint=f"pass types={{'{STREAM}': 'Person'}}, say",
            )
        read_csv(stream, intake.find(kind), intake, shown)


def _form(path: str) -> str:
    return _ENDINGS.get(Path(uncompressed(path)).suffix.lower(), "ndjson")
