"""Reads the data of a load: files with their formats and types, streams, tables, records."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from omnigraph.errors import InputError
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.values.spelling import show
from omnigraph.records import dataclass
from omnigraph.write.load.csv_files import read_csv
from omnigraph.write.load.intake import Intake
from omnigraph.write.load.job import LoadData
from omnigraph.write.load.ndjson import read_records
from omnigraph.write.load.records import take_records
from omnigraph.write.load.rejects import RejectsFile, file_number
from omnigraph.write.load.streams import as_bytes, opened, uncompressed
from omnigraph.write.load.tables import frame_batches, read_batches, read_parquet

FORMATS = ("ndjson", "csv", "parquet")
STREAM = "-"
"""The key of an open file in ``types``."""
_SUFFIXES = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}
_HIDDEN = ("_", ".")


@dataclass(frozen=True, slots=True)
class LoadFile:
    """One file of a load. NDJSON records name their own types, so ``type_name`` is none."""

    path: str
    format: str
    type_name: str | None = None


class Sources:
    """Resolves paths to files: their formats, and the types that the caller named for them."""

    def __init__(
        self,
        catalog: Catalog,
        format: str | None = None,
        types: Mapping[str, str] | None = None,
        rejects: RejectsFile | None = None,
        *,
        local_files: bool = True,
    ) -> None:
        if format is not None and format not in FORMATS:
            raise InputError(f"invalid format '{format}'", hint=f"use one of {', '.join(FORMATS)}")
        if types is not None and not isinstance(types, Mapping):
            raise InputError("types must be a mapping", hint="map paths to names of types")
        self.format = format
        self.types: dict[str, str] = {}
        self._catalog = catalog
        self._rejects = rejects
        self._local_files = local_files
        for path, name in (types or {}).items():
            if not isinstance(path, str | os.PathLike) or not isinstance(name, str):
                raise InputError(
                    f"types has {show(path)}: {show(name)}", hint="map paths to names of types"
                )
            self.types[_absolute(os.fspath(path))] = name
        self._unused = set(self.types)

    def declared_type(self, path: str) -> str | None:
        """The type that the caller named for a file, or for the directory that holds it."""
        self._unused.discard(_absolute(path))
        return self.types.get(_absolute(path))

    def reject_rejects_file(self, source: str | int) -> None:
        """Refuse to load the file for rejected records."""
        if self._rejects is not None:
            self._rejects.refuse_source(source)

    def check_used(self) -> None:
        """Raise if ``types`` names a path that is not loaded."""
        if self._unused:
            path = min(self._unused)
            raise InputError(
                f"types names '{path}', which is not loaded as CSV or Parquet",
                details={"file": path},
            )

    def files(self, path: str) -> Iterator[LoadFile]:
        """The files of a path: a file, a directory or a pattern."""
        if not self._local_files:
            raise InputError(
                "the data is a path, and this graph is open without local files",
                hint="pass a stream, tables or records",
            )
        self.reject_rejects_file(path)
        if os.path.isdir(path):
            yield from self._directory(path)
        elif glob.has_magic(path) and not os.path.exists(path):
            matches = sorted(
                name for name in glob.glob(path, recursive=True) if not _is_hidden(name)
            )
            if not matches:
                raise InputError(f"no file matches '{path}'", details={"file": path})
            for match in matches:
                yield from self.files(match)
        else:
            yield self._file(path, Path(uncompressed(path)).stem)

    def _file(self, path: str, default_type: str) -> LoadFile:
        suffix = Path(uncompressed(path)).suffix.lower()
        format = self.format or _SUFFIXES.get(suffix, "ndjson")
        if format == "ndjson":
            return LoadFile(path, format)
        return LoadFile(path, format, self.declared_type(path) or default_type)

    def _directory(self, path: str) -> Iterator[LoadFile]:
        """The files of an export, nodes before edges; otherwise every data file.

        The type of a data file is the one declared for it, or else the name of the file or of
        its directory.
        """
        exported = list(_exported(path))
        for type_name, file in exported:
            yield self._file(str(file), type_name)
        if exported:
            return
        files = sorted(file for file in Path(path).rglob("*") if _is_data(file, Path(path)))
        if not files:
            raise InputError(
                f"'{path}' is a directory without files to load",
                hint="pass a file, or a directory that an export wrote",
                details={"file": path},
            )
        declared = self.declared_type(path)
        for file in files:
            stem = Path(uncompressed(file.name)).stem
            is_type = stem in self._catalog.node_types or stem in self._catalog.edge_types
            default = stem if is_type else Path(uncompressed(str(file.parent))).stem
            yield self._file(str(file), declared or default)


def _exported(path: str) -> Iterator[tuple[str, Path]]:
    """Exported files with their types, by file name, or by directory where a type has several."""
    for folder_name, prefix in (("nodes", "node"), ("edges", "edge")):
        folder = Path(path, folder_name)
        for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
            if entry.is_dir():
                files = sorted(file for file in entry.iterdir() if not _is_hidden(str(file)))
                yield from ((f"{prefix}:{entry.name}", file) for file in files)
            else:
                yield f"{prefix}:{Path(uncompressed(entry.name)).stem}", entry


def _is_data(file: Path, top: Path) -> bool:
    """Whether a file is data, not a marker such as ``_SUCCESS`` or a checksum file."""
    return file.is_file() and not any(map(_is_hidden, file.relative_to(top).parts))


def _is_hidden(path: str) -> bool:
    return os.path.basename(path).startswith(_HIDDEN)


def _absolute(path: str) -> str:
    return path if path == STREAM else os.path.abspath(path)


def read_data(data: LoadData, intake: Intake, sources: Sources) -> None:
    """Read all data, of any supported kind."""
    for name in sources.types.values():
        intake.find(name)
    try:
        _read(data, intake, sources)
    except InputError:
        # Invalid records before the failure are reported first.
        intake.flush()
        raise
    intake.flush()
    sources.check_used()


def _read(data: LoadData, intake: Intake, sources: Sources) -> None:
    if isinstance(data, Mapping):
        for name, value in data.items():
            entity_type = intake.find(str(name))
            batches = frame_batches(value, entity_type, f"<{name}>")
            if batches is None:
                raise InputError(
                    f"the rows of '{name}' are {type(value).__name__}",
                    hint="pass an Arrow table or a frame of pandas or polars",
                )
            read_batches(batches, entity_type, intake, f"<{name}>")
    elif isinstance(data, str | os.PathLike):
        path = os.fspath(data)
        if not isinstance(path, str):
            raise InputError(f"the path {show(path)} is not a string")
        for file in sources.files(path):
            _read_file(file, intake)
    elif hasattr(data, "read"):
        _read_stream(data, intake, sources)
    elif isinstance(data, Iterable) and not isinstance(data, bytes | bytearray | memoryview):
        _read_many(data, intake, sources)
    else:
        raise InputError(
            f"cannot load from {type(data).__name__}",
            hint="pass a path, an open binary file, or a dict of tables by type name",
        )


def _read_many(data: Iterable[Any], intake: Intake, sources: Sources) -> None:
    """Read several sources, or plain records."""
    items = iter(data)
    for item in items:
        if isinstance(item, dict):
            take_records(chain([item], items), intake, "<records>")
            return
        _read(item, intake, sources)


def _read_file(file: LoadFile, intake: Intake) -> None:
    with opened(file.path) as stream:
        if file.type_name is None:
            read_records(stream, intake, file.path)
        elif file.format == "csv":
            read_csv(stream, intake.find(file.type_name), intake, file.path)
        else:
            read_parquet(file.path, intake.find(file.type_name), intake)


def _read_stream(data: Any, intake: Intake, sources: Sources) -> None:
    name = getattr(data, "name", None)
    shown = name if isinstance(name, str) else "<stream>"
    number = file_number(data)
    if number is not None:
        sources.reject_rejects_file(number)
    format = sources.format or "ndjson"
    if format == "parquet":
        raise InputError("Parquet cannot be read from a stream", hint="pass a path")
    stream = as_bytes(data.read, shown)
    if format == "ndjson":
        read_records(stream, intake, shown)
        return
    kind = sources.declared_type(STREAM)
    if kind is None:
        raise InputError(
            "the type of a CSV stream is unknown",
            hint=f"pass for example types={{'{STREAM}': 'Person'}}",
        )
    read_csv(stream, intake.find(kind), intake, shown)
