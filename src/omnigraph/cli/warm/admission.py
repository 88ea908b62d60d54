"""Decides whether the warm process runs a command; nothing is executed and nothing printed here.

It runs what works on one local graph, takes little time, reads only files that the command can open
for it, and writes only to the graph and the streams. Every doubt is a refusal: the command then
runs in its own process, which also words all errors about arguments, files and addresses.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from pathlib import PurePath

from omnigraph.cli import files
from omnigraph.cli.command_context import absolute
from omnigraph.cli.flags import check_flags, fill_global_flags
from omnigraph.cli.operator_config import load_operator_config
from omnigraph.cli.parser import build_parser, rewrite
from omnigraph.cli.scopes import resolve_scope
from omnigraph.cluster.location import refuse_inside_cluster
from omnigraph.errors import OmniGraphError
from omnigraph.records import dataclass
from omnigraph.settings import Settings

_QUERY = ("query", "params_file")
_READS: dict[str, tuple[str, ...]] = {
    "query": _QUERY,
    "explain": _QUERY,
    "lint": ("query",),
    "schema plan": ("schema",),
    **dict.fromkeys(
        (
            "snapshot",
            "export",
            "branch list",
            "commit list",
            "commit show",
            "commit changes",
            "log",
            "diff",
            "changes poll",
            "blame",
            "tag list",
            "blob get",
            "blob stat",
            "schema show",
            "index status",
        ),
        (),
    ),
}
_WRITES: dict[str, tuple[str, ...]] = {
    "mutate": _QUERY,
    "load": ("data",),
    "blob put": ("file",),
    "schema apply": ("schema",),
    **dict.fromkeys(
        (
            "branch create",
            "branch delete",
            "branch merge",
            "revert",
            "cherry-pick",
            "tag create",
            "tag delete",
            "blob delete",
        ),
        (),
    ),
}
INPUTS = {**_READS, **_WRITES}
"""The commands that may run here, with the arguments that name their input files."""

REFUSED_OPTIONS = (
    *("out", "rejects", "conflicts", "queries", "allow_local_files"),
    *("master", "follow"),
)
"""Options with which a command reads or writes other files, or takes as long as the user likes."""

_PAGED = ("log", "diff")
_LOADED = (".jsonl", ".ndjson", ".json")
_MOST_LOADED = 64 << 20
"""Larger loads take long anyway, and may be for Spark."""

# Read by libraries or by Python itself, whatever thread asks: they must be as here.
_SHARED = ("HOME", "TMPDIR", "TZ", "no_proxy", "http_proxy", "https_proxy", "all_proxy")
_SHARED_PREFIXES = (
    *(
        "PYTHON",
        "LD_",
        "LC_",
        "LANG",
        "MALLOC_",
        "OMP_",
        "OPENBLAS_NUM_",
        "ARROW_",
        "LANCE_",
        "RUST",
    ),
    *("SSL_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "OBJECT_STORE_", "TOKIO_"),
)


class NotAdmitted(Exception):
    """The command must run in its own process."""


@dataclass(frozen=True, slots=True)
class AdmittedCommand:
    """A command that may run here, and the files that it reads."""

    is_write: bool
    inputs: tuple[str, ...]


def shared_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that cannot differ between commands of one process.

    >>> shared_variables({"TZ": "UTC", "LANCE_LOG": "warn", "EDITOR": "vi"})
    {'TZ': 'UTC', 'LANCE_LOG': 'warn'}
    """
    return {
        name: value
        for name, value in environ.items()
        if name in _SHARED or name.startswith(_SHARED_PREFIXES)
    }


def admit(arguments: list[str], *, is_terminal: bool) -> AdmittedCommand:
    """Look at a command, in its environment and with silent streams; ``NotAdmitted`` if in doubt.

    ``is_terminal`` is whether its stdout is one.
    """
    try:
        words = rewrite(arguments)
        parsed = build_parser(words).parse_args(words)
        fill_global_flags(parsed)
        name = getattr(parsed, "command", None)
        if name not in INPUTS or Settings.from_environ().debug:
            raise NotAdmitted
        check_flags(parsed)
        _refuse_options(parsed, is_terminal)
        paths = _input_paths(parsed)
        # A relative directory of the configuration would be looked for here.
        if not os.path.isabs(Settings.from_environ().operator_directory() or ""):
            raise NotAdmitted
        scope = resolve_scope(parsed, load_operator_config())
    except (Exception, SystemExit) as error:
        raise NotAdmitted from error
    if scope.kind != "store" or "://" in scope.target:
        raise NotAdmitted
    if name == "schema apply":
        _refuse_cluster(scope.target)
    return AdmittedCommand(name in _WRITES, paths)


def _refuse_options(parsed: argparse.Namespace, is_terminal: bool) -> None:
    values = vars(parsed)
    if any(values.get(option) for option in REFUSED_OPTIONS) or values.get("engine") == "spark":
        raise NotAdmitted
    if values.get("resolve") not in (None, "ours", "theirs"):
        raise NotAdmitted
    # Instead of a graph.
    if parsed.command in ("lint", "explain") and parsed.schema is not None:
        raise NotAdmitted
    if parsed.command == "schema plan" and (parsed.uri or "").endswith(".pg"):
        raise NotAdmitted
    is_paged = parsed.command in _PAGED and not (parsed.no_pager or parsed.json)
    if is_paged and is_terminal:
        raise NotAdmitted


def _refuse_cluster(path: str) -> None:
    """Leave the error about a graph of a cluster to the process that knows its path."""
    try:
        refuse_inside_cluster(absolute(path), Settings.from_environ())
    except OmniGraphError as error:
        raise NotAdmitted from error


def _input_paths(parsed: argparse.Namespace) -> tuple[str, ...]:
    paths: list[str] = []
    for option in INPUTS[parsed.command]:
        value = getattr(parsed, option)
        paths += value if isinstance(value, list) else [] if value is None else [value]
    paths = [path for path in paths if path != files.STDIN]
    if parsed.command == "load":
        if parsed.format not in (None, "ndjson") or parsed.type:
            raise NotAdmitted
        if any(PurePath(path).suffix.lower() not in _LOADED for path in paths):
            raise NotAdmitted
    return tuple(paths)


def take_inputs(
    admission: AdmittedCommand, open_file: Callable[[str], int | None]
) -> dict[str, files.InputFile]:
    """Have the command open its files; ``NotAdmitted`` unless all of them can be handed over."""
    taken: dict[str, files.InputFile] = {}
    try:
        for path in admission.inputs:
            number = open_file(path)
            if number is None:
                raise NotAdmitted
            file = files.InputFile.of(path, number)
            close_inputs({key: kept for key, kept in taken.items() if key == str(file)})
            taken[str(file)] = file
            if os.fstat(number).st_size > _MOST_LOADED:
                raise NotAdmitted
    except BaseException:
        close_inputs(taken)
        raise
    return taken


def close_inputs(inputs: Mapping[str, files.InputFile]) -> None:
    for file in inputs.values():
        os.close(file.descriptor)
