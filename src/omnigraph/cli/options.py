"""Options that several commands share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from omnigraph.cli.flags import UsageError
from omnigraph.errors import InputError
from omnigraph.settings import Settings

if TYPE_CHECKING:
    from datetime import datetime

    from omnigraph.spark.session.config import SparkConfig

_LONGEST = 40
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800, "": 1}


def whole_number(least: int) -> Callable[[str], int]:
    """A reader of whole numbers for the parser; another text is a usage error."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"invalid number '{_cut(text)}'") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}")
        return value

    return read


def seconds(text: str) -> float:
    """A reader of durations in seconds for the parser.

    >>> seconds("1.5")
    1.5
    """
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"invalid number '{_cut(text)}'") from None
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError("must be a number of at least 0")
    return value


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


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
    text = "store the content of local files that Blob values reference (file:///...)"
    add_switch(parser, "--allow-local-files", text)


def add_write_conditions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--if-commit", metavar="ID", help="fail with exit code 4 unless this is the branch head"
    )
    add_idempotency_key(parser)


def add_idempotency_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--idempotency-key",
        metavar="KEY",
        help="apply at most once; a repeat returns the first result",
    )


def add_retention(parser: argparse.ArgumentParser, what: str) -> None:
    """The options of commands that delete old versions or backup points."""
    parser.add_argument(
        "--keep", type=whole_number(0), metavar="N", help=f"keep the N newest {what}"
    )
    parser.add_argument(
        "--older-than",
        metavar="DUR",
        help="delete only what is older than this: 30m, 12h, 7d, 4w; "
        "combined with --keep, both limits must be exceeded",
    )
    add_switch(parser, "--confirm", "delete; without this, only print a notice")
    text = "delete nothing; report what would be deleted and how many bytes"
    add_switch(parser, "--dry-run", text)


def add_snapshot(parser: argparse.ArgumentParser, *more: str) -> None:
    """The options that choose the state to read; ``more`` adds ``tag`` and ``at``."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--branch", metavar="B", help="read the head of this branch; default: main")
    group.add_argument("--snapshot", metavar="ID", help="read the state at this commit")
    if "tag" in more:
        group.add_argument("--tag", metavar="NAME", help="read the state at this tag")
    if "at" in more:
        group.add_argument(
            "--at", metavar="TIME", help="read main as of this time, such as 2026-01-31T12:00Z"
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


def parse_duration(text: str | None) -> int | None:
    """A duration in seconds; ``None`` if none was given.

    >>> parse_duration("7d"), parse_duration("90"), parse_duration(None)
    (604800, 90, None)
    """
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,18})([A-Za-z]*)", text.strip())
    if match is None:
        raise InputError(f"invalid duration '{text}'", hint="write it as 30m, 12h or 7d")
    if match[2] not in _SECONDS:
        raise InputError(f"unknown duration unit '{match[2]}'", hint="use s, m, h, d or w")
    return int(match[1]) * _SECONDS[match[2]]


def add_engine(parser: argparse.ArgumentParser, engines: Sequence[str]) -> None:
    parser.add_argument(
        "--engine", choices=engines, default=engines[0], help="where to run; the result is the same"
    )
    parser.add_argument("--master", metavar="URL", help="Spark master, such as spark://host:7077")


def spark_config(arguments: argparse.Namespace) -> SparkConfig | None:
    """The Spark configuration of the command line; ``None`` to use that of the environment."""
    if arguments.master is None:
        return None
    if arguments.engine == "local":
        raise UsageError(
            "--master cannot be combined with --engine local, which does not use Spark"
        )
    from omnigraph.spark.session.config import SparkConfig

    options = Settings.from_environ().spark_options()
    options.pop("remote", None)
    return SparkConfig.from_options({**options, "master": arguments.master})
