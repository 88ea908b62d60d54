"""``omnigraph shell``: a prompt on one graph, or a script of what would be typed there."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.cli.operator_config import TEXT_FORMATS
from omnigraph.cli.output import terminal
from omnigraph.cli.registry import Capability, Commands, add_uri, command
from omnigraph.cli.targets import opened
from omnigraph.settings import Settings

if TYPE_CHECKING:
    from omnigraph.cli.shell.input import History, Lines, Reader
    from omnigraph.cli.shell.session import Session


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "shell",
        run,
        Capability.ANY,
        "work with a graph at a prompt",
        description="Opens a prompt on a graph: queries and changes as they are written in .gq "
        "files, whole or without their first line, and commands such as .help, .types and "
        "\\branch. Reads a script from a pipe in the same way; it stops at the first failure.",
        writes=True,
    )
    add_uri(parser)
    parser.add_argument("--branch", default="main", metavar="B", help="where to start")
    parser.add_argument(
        "--queries",
        action="append",
        default=[],
        metavar="FILE",
        help="a .gq file whose queries .call runs by name; again for more",
    )
    parser.add_argument("--format", choices=TEXT_FORMATS, help="how rows are shown at first")
    parser.add_argument(
        "--read-only", action="store_true", help="open the graph for reading; refuse changes"
    )
    parser.add_argument(
        "--keep-going",
        action="store_true",
        help="in a script, go on after a statement that failed, and end with 0",
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--history", metavar="FILE", help="where what is typed is kept, instead of the usual file"
    )
    group.add_argument("--no-history", action="store_true", help="keep nothing of what is typed")


def run(arguments: argparse.Namespace) -> int:
    """Talk until there is nothing more to say."""
    is_live = terminal.is_terminal(sys.stdin)
    with opened(arguments, "r" if arguments.read_only else "rw") as (graph, target):
        from omnigraph.cli.output.rows import layout_of
        from omnigraph.cli.shell.input import Piped, Reader
        from omnigraph.cli.shell.session import Session

        layout = layout_of(target.operator)
        session = Session(graph, target, arguments, layout, is_live=is_live)
        session.format = arguments.format or target.operator.defaults.output
        for path in arguments.queries:
            session.add_queries(path)
        if arguments.branch != "main":
            graph.snapshot(arguments.branch)
            session.branch = arguments.branch
        if not is_live:
            return _script(session, Reader(Piped()), arguments.keep_going)
        history = _history(arguments)
        _greet(arguments, target.uri)
        try:
            return _talk(session, history)
        finally:
            if history is not None:
                history.trim()


def _greet(arguments: argparse.Namespace, uri: str) -> None:
    from omnigraph import __version__

    if not arguments.quiet:
        terminal.note(f"omnigraph {__version__} on {uri}; .help lists the commands, .quit ends")


def _talk(session: Session, history: History | None) -> int:
    from omnigraph.cli.shell.completion import Completion
    from omnigraph.cli.shell.input import Reader, Typed
    from omnigraph.cli.shell.interrupts import Interrupts

    completion = Completion(session)
    with Interrupts() as interrupts:
        session.interrupts = interrupts
        lines: Lines = Typed(
            history,
            lambda before, word: completion.find(reader.pending, before, word),
            interrupts,
        )
        reader = Reader(lines)
        while not session.is_over:
            try:
                text = reader.next(session.prompt)
                if text is None:
                    terminal.note("")
                    break
                with interrupts.running():
                    _perform(session, text)
            except KeyboardInterrupt:
                # What was typed, or what ran, is given up; the shell is not.
                terminal.note("")
                interrupts.give_up()
    return terminal.OK


def _script(session: Session, reader: Reader, keep_going: bool) -> int:
    while not session.is_over:
        text = reader.next("")
        if text is None:
            break
        if not _perform(session, text) and not keep_going:
            return terminal.FAILURE
    return terminal.OK


def _perform(session: Session, text: str) -> bool:
    from omnigraph.cli.shell.commands import run_command
    from omnigraph.cli.shell.input import is_command

    if is_command(text):
        return session.attempt(lambda: run_command(session, text))
    return session.attempt(lambda: session.run(text))


def _history(arguments: argparse.Namespace) -> History | None:
    from omnigraph.cli.shell.input import History

    if arguments.no_history:
        return None
    if arguments.history is not None:
        return History(Path(arguments.history))
    directory = Settings.from_environ().operator_directory()
    return None if directory is None else History(Path(directory, "history"))
