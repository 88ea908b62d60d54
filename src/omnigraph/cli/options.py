"""Options that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from omnigraph.errors import InputError

if TYPE_CHECKING:
    from datetime import datetime


def add_uri(parser: argparse.ArgumentParser, *, positional: bool = True) -> None:
    text = "graph to open: a directory or s3://bucket/prefix"
    if positional:
        parser.add_argument("uri", nargs="?", metavar="URI", help=text)
    else:
        parser.add_argument("--uri", metavar="URI", help=text)


def add_json(parser: argparse.ArgumentParser, text: str = "print one JSON document") -> None:
    parser.add_argument("--json", action="store_true", help=text)


def add_switch(parser: argparse._ActionsContainer, name: str, text: str) -> None:
    parser.add_argument(name, action="store_true", help=text)


def add_repeatable(
    parser: argparse.ArgumentParser,
    name: str,
    metavar: str | None,
    text: str,
    choices: Sequence[str] | None = None,
) -> None:
    parser.add_argument(
        name, action="append", default=[], metavar=metavar, help=text, choices=choices
    )


def add_branch(parser: argparse.ArgumentParser, text: str = "branch to read") -> None:
    parser.add_argument("--branch", default="main", metavar="B", help=text)


def add_local_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow-local-files",
        action="store_true",
        help="store the content of local files that Blob values reference (file:///...)",
    )


def add_write_conditions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--if-commit", metavar="ID", help="fail with exit code 4 unless this is the branch head"
    )
    parser.add_argument(
        "--idempotency-key",
        metavar="KEY",
        help="apply at most once; a repeat returns the first result",
    )


def add_retention(parser: argparse.ArgumentParser, what: str) -> None:
    """The options of commands that delete old versions or backup points."""
    parser.add_argument("--keep", type=int, metavar="N", help=f"keep the N newest {what}")
    parser.add_argument(
        "--older-than",
        metavar="DUR",
        help="delete only what is older than this: 30m, 12h, 7d, 4w; "
        "combined with --keep, both limits must be exceeded",
    )
    parser.add_argument(
        "--confirm", action="store_true", help="delete; without this, only print a notice"
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="delete nothing; report what would be deleted and how many bytes",
    )


def add_snapshot(parser: argparse.ArgumentParser, *more: str) -> None:
    """The options that choose the state to read; ``more`` adds ``tag`` and ``at``."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--branch", metavar="B", help="read the head of this branch; default: main")
    group.add_argument("--snapshot", metavar="ID", help="read the state at this commit")
    if "tag" in more:
        group.add_argument("--tag", metavar="NAME", help="read the state at this tag")
    if "at" in more:
        group.add_argument(
            "--at",
            metavar="TIME",
            help="read main as of this time, such as 2026-01-31T12:00Z",
        )


def snapshot_arguments(arguments: argparse.Namespace) -> dict[str, Any]:
    """The chosen state, as keyword arguments of the engine."""
    if getattr(arguments, "at", None) is not None:
        return {"at": parse_time(arguments.at)}
    if getattr(arguments, "tag", None) is not None:
        return {"tag": arguments.tag}
    if arguments.snapshot is not None:
        return {"commit": arguments.snapshot}
    return {"branch": "main" if arguments.branch is None else arguments.branch}


def parse_time(text: str) -> datetime:
    """A point in time; UTC unless it has an offset."""
    from datetime import UTC, datetime

    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(
            f"invalid time '{text}'", hint="write it as 2026-01-31 or 2026-01-31T12:00:00Z"
        ) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
