"""Configurations that travel to a server: which files are sent, and what a server accepts.

A sent configuration lives in memory only. Its names are compared with each other and never become
paths on the machine of the server.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from pathlib import Path

from omnigraph.cluster.bundle import CONFIG, DirectoryBundle, MemoryBundle
from omnigraph.cluster.config_reader import read_config
from omnigraph.cluster.desired import read_desired
from omnigraph.cluster.diagnostics import DiagnosticLog
from omnigraph.cluster.resources import key_variable
from omnigraph.errors import InputError
from omnigraph.escaping import escape

MOST_FILES = 5_000
LONGEST_NAME = 512
_OWN_VARIABLES = ("OMNIGRAPH_", "AWS_")
"""The settings of a server itself are not for embedding providers."""


def files_to_send(bundle: DirectoryBundle, directory: str, log: DiagnosticLog) -> dict[str, str]:
    """``cluster.yaml`` and every file that it names; their problems are noted in the log.

    Raises ``InputError`` for a file that lies outside of the directory, or is not text.
    """
    read_desired(bundle, log)
    if not log.ok:
        return {}
    top = Path(directory).resolve()
    files: dict[str, str] = {}
    for name, content in sorted(bundle.contents.items()):
        sent = posixpath.normpath(name)
        problem = name_problem(sent)
        if problem is None and not Path(directory, name).resolve().is_relative_to(top):
            problem = "it lies outside of the directory of the configuration"
        if problem is not None:
            raise InputError(
                f"'{escape(name)}' cannot be sent to a server: {problem}",
                hint="keep the files of a configuration in its directory",
                details={"file": name},
            )
        try:
            files[sent] = content.decode("utf-8")
        except UnicodeDecodeError:
            raise InputError(
                f"'{escape(name)}' is not UTF-8 text", details={"file": name}
            ) from None
    return files


def received_bundle(name: str, files: Mapping[str, str]) -> MemoryBundle:
    """The configuration that somebody has sent; raises ``InputError`` if its names are not valid.

    >>> received_bundle("sent", {"cluster.yaml": "version: 1", "../x.pg": ""})
    Traceback (most recent call last):
    ...
    omnigraph.errors.InputError: invalid file name '../x.pg': it leads out of the configuration
    """
    if CONFIG not in files:
        raise InputError(f"the configuration has no {CONFIG}", details={"field": "files"})
    if len(files) > MOST_FILES:
        raise InputError(
            f"the configuration has {len(files)} files, at most {MOST_FILES} are accepted",
            details={"field": "files"},
        )
    for file in files:
        problem = name_problem(file)
        if problem is not None:
            shown = escape(file)[:80]
            raise InputError(
                f"invalid file name '{shown}': {problem}",
                hint="names are relative to cluster.yaml, with '/' between their parts",
                details={"field": "files", "file": shown},
            )
    return MemoryBundle(name, {file: text.encode("utf-8") for file, text in files.items()})


def name_problem(name: str) -> str | None:
    """Why a file of a sent configuration cannot have this name.

    >>> name_problem("queries/due.gq"), name_problem("/etc/passwd")
    (None, 'it is not relative')
    """
    parts = name.split("/")
    if not name or len(name) > LONGEST_NAME:
        return f"it must have 1 to {LONGEST_NAME} characters"
    if not name.isprintable() or "\\" in name:
        return "it has characters that a name must not have"
    if name.startswith("/") or ":" in parts[0]:
        return "it is not relative"
    if ".." in parts:
        return "it leads out of the configuration"
    if "" in parts or "." in parts:
        return "it is not in its shortest form"
    return None


def check_references(bundle: MemoryBundle, storage: str, log: DiagnosticLog) -> None:
    """Note what a server must not take from others, although the file is valid.

    ``storage`` is the address of the cluster that the server serves.
    """
    # What is wrong with the file itself is reported by whoever applies it.
    config = read_config(bundle, DiagnosticLog())
    if config is None:
        return
    named = (config.storage or "").rstrip("/")
    if "://" in named and named.removeprefix("file://") != storage.removeprefix("file://"):
        log.error(
            "storage_root_mismatch",
            "storage",
            f"{config.at('storage')}: this is another storage than that of the server; nothing "
            "was changed",
        )
    for name, profile in config.providers.items():
        variable = key_variable(profile)
        if variable is not None and variable.upper().startswith(_OWN_VARIABLES):
            field = f"providers.embedding.{name}.api_key"
            log.error(
                "embedding_api_key_reserved",
                field,
                f"{config.at(field)}: the variable {variable} belongs to the server itself",
            )
