"""The files of a load, in order, with their formats and types."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from omnigraph.errors import InputError
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.values.spelling import show
from omnigraph.write.load.rejects_file import RejectsFile
from omnigraph.write.load.streams import uncompressed

FORMATS = ("ndjson", "csv", "parquet")
STREAM = "-"
"""How ``types`` names an open file."""
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
    ) -> None:
        if format is not None and format not in FORMATS:
            raise InputError(f"invalid format '{format}'", hint=f"use one of {', '.join(FORMATS)}")
        if types is not None and not isinstance(types, Mapping):
            raise InputError("types must be a mapping", hint="map paths to names of types")
        self.format = format
        self.types: dict[str, str] = {}
        self._catalog = catalog
        self._rejects = rejects
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
        """The file for rejected records cannot be loaded as well."""
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
    """Not a marker such as ``_SUCCESS`` or a checksum file of a distributed writer."""
    return file.is_file() and not any(map(_is_hidden, file.relative_to(top).parts))


def _is_hidden(path: str) -> bool:
    return os.path.basename(path).startswith(_HIDDEN)


def _absolute(path: str) -> str:
    return path if path == STREAM else os.path.abspath(path)
