"""``omnigraph shell``: an interactive prompt on one graph, or a script from a pipe."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.cli.about import PROGRAM
from omnigraph.cli.operator_config import TEXT_FORMATS
from omnigraph.cli.options import add_branch, add_repeatable, add_switch
from omnigraph.cli.output import terminal
from omnigraph.cli.targets import open_graph
from omnigraph.settings import Settings

if TYPE_CHECKING:
    from omnigraph.cli.shell.input import LineSource, ShellHistory, StatementReader
    from omnigraph.cli.shell.session import Session


def add_shell(parser: argparse.ArgumentParser) -> None:
    add_branch(parser, "initial branch")
    add_repeatable(parser, "--queries", "FILE", ".gq file with queries for .call; repeatable")
    parser.add_argument("--format", choices=TEXT_FORMATS, help="initial output format")
    add_switch(parser, "--read-only", "open the graph read-only")
    add_switch(
        parser, "--keep-going", "in a script, continue after a failed statement and exit with 0"
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--history", metavar="FILE", help="history file, instead of the default")
    add_switch(group, "--no-history", "keep no history")


def run_shell(arguments: argparse.Namespace) -> int:
    r"""Opens a prompt on a graph. It takes queries and mutations as in .gq files, with or without
    the `query` line, and commands such as .help, .types and \branch. A script can be piped in; it
    stops at the first failure.
    """
    is_live = terminal.is_terminal(sys.stdin)
    with open_graph(arguments, "r" if arguments.read_only else "rw") as (graph, target):
        from omnigraph.cli.output.rows import layout_of
        from omnigraph.cli.shell.input import PipedLines, StatementReader
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
            return _run_script(session, StatementReader(PipedLines()), arguments.keep_going)
        history = _history(arguments)
        if not arguments.quiet:
            about = ".help lists the commands, .quit exits"
            terminal.note(f"{PROGRAM} on {target.uri}; {about}")
        try:
            return _run_interactive(session, history)
        finally:
            if history is not None:
                history.trim()


def _run_interactive(session: Session, history: ShellHistory | None) -> int:
    from omnigraph.cli.shell.completion import Completion
    from omnigraph.cli.shell.input import StatementReader, TerminalLines
    from omnigraph.cli.shell.interrupts import ShellInterrupts

    completion = Completion(session)
    with ShellInterrupts() as interrupts:
        session.interrupts = interrupts
        lines: LineSource = TerminalLines(
            history, lambda before, word: completion.find(reader.pending, before, word), interrupts
        )
        reader = StatementReader(lines)
        while not session.is_over:
            try:
                text = reader.next(session.prompt)
                if text is None:
                    terminal.note("")
                    break
                with interrupts.running():
                    _execute(session, text)
            except KeyboardInterrupt:
                # Abandons the line or statement, not the shell.
                terminal.note("")
                interrupts.clear()
    return terminal.OK


def _run_script(session: Session, reader: StatementReader, keep_going: bool) -> int:
    while not session.is_over:
        text = reader.next("")
        if text is None:
            break
        if not _execute(session, text) and not keep_going:
            return terminal.FAILURE
    return terminal.OK


def _execute(session: Session, text: str) -> bool:
    from omnigraph.cli.shell.commands import run_command
    from omnigraph.cli.shell.input import is_command

    if is_command(text):
        return session.attempt(lambda: run_command(session, text))
    return session.attempt(lambda: session.run(text))


def _history(arguments: argparse.Namespace) -> ShellHistory | None:
    from omnigraph.cli.shell.input import ShellHistory

    if arguments.no_history:
        return None
    if arguments.history is not None:
        return ShellHistory(Path(arguments.history))
    directory = Settings.from_environ().operator_directory()
    return None if directory is None else ShellHistory(Path(directory, "history"))
