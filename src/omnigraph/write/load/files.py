"""Which files a load reads, in which order, and what each of them holds."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from omnigraph.errors import InputError
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.write.convert import show
from omnigraph.write.load.rejects_file import RejectsFile
from omnigraph.write.load.streams import uncompressed

FORMATS = ("ndjson", "csv", "parquet")
STREAM = "-"
"""How ``types`` names an open file."""
_ENDINGS = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}
_HIDDEN = ("_", ".")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a load; records of NDJSON say themselves of which type they are."""

    path: str
    form: str
    type_name: str | None = None


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

    def said(self, path: str) -> str | None:
        """The type that the caller named for a file, or for the directory that holds it."""
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


def source_files(path: str, options: SourceOptions, catalog: Catalog) -> Iterator[SourceFile]:
    """The files that a path names: itself, those in a directory, or those of a pattern."""
    options.refuse_written(path)
    if os.path.isdir(path):
        yield from _in_folder(path, options, catalog)
    elif glob.has_magic(path) and not os.path.exists(path):
        found = sorted(each for each in glob.glob(path, recursive=True) if not _is_hidden(each))
        if not found:
            raise InputError(f"no file matches '{path}'", details={"file": path})
        for each in found:
            yield from source_files(each, options, catalog)
    else:
        yield _file(path, options, Path(uncompressed(path)).stem)


def _file(path: str, options: SourceOptions, usual: str) -> SourceFile:
    form = options.form or _ENDINGS.get(Path(uncompressed(path)).suffix.lower(), "ndjson")
    if form == "ndjson":
        return SourceFile(path, form)
    return SourceFile(path, form, options.said(path) or usual)


def _in_folder(path: str, options: SourceOptions, catalog: Catalog) -> Iterator[SourceFile]:
    """What an export wrote, nodes before edges; else every file, as distributed programs write.

    There the type of a file is that of its own name, of the directory, or as the caller says.
    """
    exported = list(_exported(path))
    for type_name, file in exported:
        yield _file(str(file), options, type_name)
    if exported:
        return
    files = sorted(file for file in Path(path).rglob("*") if _is_data(file, Path(path)))
    if not files:
        raise InputError(
            f"'{path}' is a directory without files to load",
            hint="pass a file, or a directory that an export wrote",
            details={"file": path},
        )
    said = options.said(path)
    for file in files:
        stem = Path(uncompressed(file.name)).stem
        is_type = stem in catalog.node_types or stem in catalog.edge_types
        usual = stem if is_type else Path(uncompressed(str(file.parent))).stem
        yield _file(str(file), options, said or usual)


def _exported(path: str) -> Iterator[tuple[str, Path]]:
    """Each file with its type: that of its name, or of its directory where a type has several."""
    for part, prefix in (("nodes", "node"), ("edges", "edge")):
        folder = Path(path, part)
        for found in sorted(folder.iterdir()) if folder.is_dir() else ():
            if found.is_dir():
                files = sorted(each for each in found.iterdir() if not _is_hidden(str(each)))
                yield from ((f"{prefix}:{found.name}", each) for each in files)
            else:
                yield f"{prefix}:{Path(uncompressed(found.name)).stem}", found


def _is_data(file: Path, top: Path) -> bool:
    """Markers such as ``_SUCCESS`` and checksums lie beside what distributed programs write."""
    return file.is_file() and not any(map(_is_hidden, file.relative_to(top).parts))


def _is_hidden(path: str) -> bool:
    return os.path.basename(path).startswith(_HIDDEN)


def _absolute(path: str) -> str:
    return path if path == STREAM else os.path.abspath(path)
