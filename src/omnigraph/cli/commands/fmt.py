"""``omnigraph fmt``: schema and query files in canonical layout."""

from __future__ import annotations

import argparse
from pathlib import PurePath

from omnigraph.cli import files
from omnigraph.cli.output import terminal
from omnigraph.cli.registry import Capability, Commands, command
from omnigraph.errors import InputError, LanguageError
from omnigraph.lang.diagnostics import Source

KINDS = ("pg", "gq")


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "fmt",
        run,
        Capability.LOCAL,
        "format .pg and .gq files",
        description="Rewrites .pg and .gq files in their canonical layout, in place.",
    )
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="files to format; - reads stdin and writes stdout"
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--check",
        action="store_true",
        help="change nothing; list the files that would change, and exit with 1 if there are any",
    )
    action.add_argument(
        "--stdout", action="store_true", help="print the result instead of rewriting the file"
    )
    parser.add_argument("--kind", choices=KINDS, help="language, if the file name does not show it")


def run(arguments: argparse.Namespace) -> int:
    """Format every file; one that does not parse does not stop the rest."""
    exit_code = terminal.OK
    for path in arguments.files:
        try:
            changed = _format_one(path, arguments)
        except LanguageError as error:
            exit_code = terminal.fail(error.render().splitlines())
        except InputError as error:
            exit_code = terminal.fail(error.message, hint=error.hint)
        else:
            if changed and arguments.check:
                terminal.show(path)
                exit_code = terminal.FAILURE
    return exit_code


def format_text(source: Source, kind: str) -> str:
    """The canonical layout of a schema or query text."""
    if kind == "pg":
        from omnigraph.lang.schema.format import format_schema

        return format_schema(source)
    from omnigraph.lang.query.format import format_queries

    return format_queries(source)


def _format_one(path: str, arguments: argparse.Namespace) -> bool:
    """Format one file; returns whether its text changes."""
    source = files.read_text(path)
    kind = arguments.kind or _kind_of(path)
    formatted = format_text(source, kind)
    changed = formatted != source.text
    if arguments.stdout or (path == files.STDIN and not arguments.check):
        terminal.show_source(formatted)
    elif changed and not arguments.check:
        files.replace_text(path, formatted)
    return changed


def _kind_of(path: str) -> str:
    suffix = PurePath(path).suffix.lower().lstrip(".")
    if suffix in KINDS:
        return suffix
    name = files.STDIN_NAME if path == files.STDIN else path
    raise InputError(
        f"{name}: neither a .pg nor a .gq file", hint="choose the language with --kind pg|gq"
    )
