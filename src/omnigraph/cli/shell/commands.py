"""The shell's own commands, such as ``.help``; a backslash works like the dot."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from omnigraph.cli.operator_config import TEXT_FORMATS
from omnigraph.cli.output import terminal
from omnigraph.cli.output.change_lines import change_text, counts_text
from omnigraph.cli.shell.input import SIGNS
from omnigraph.cli.shell.statements import parse_parameter, parse_value
from omnigraph.cli.targets import find_snapshot, take_snapshot
from omnigraph.errors import BranchNotFound, InputError, MergeConflicts, NotFound
from omnigraph.lang.closest import closest
from omnigraph.records import dataclass

if TYPE_CHECKING:
    from omnigraph.cli.shell.session import Session
    from omnigraph.commit.receipts import LoadReceipt

MODES = ("merge", "append", "overwrite")
_SWITCH = ("on", "off")
_SHOWN = 20
_SHOWN_CHANGES = 200
_OTHER_NAMES = {"q": "quit", "exit": "quit", "?": "help", "h": "help"}


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One command: its usage, help text, function, and completion of each word."""

    usage: str
    text: str
    run: Callable[[Session, str], None]
    words: tuple[str | tuple[str, ...], ...] = ()
    """For each argument: branch, state, file or query, or a tuple of choices."""


def run_command(session: Session, line: str) -> None:
    """Run one command line."""
    name, rest = split_command(line)
    command = COMMANDS.get(name)
    if command is None:
        close = closest(name, COMMANDS)
        hint = f"did you mean {line[0]}{close}?" if close else ".help lists the commands"
        raise InputError(f"unknown command '{line.split()[0]}'", hint=hint)
    command.run(session, rest)


def split_command(line: str) -> tuple[str, str]:
    r"""Split a line into the command name and its arguments.

    >>> split_command(r"\branch -c dev"), split_command("quit;")
    (('branch', '-c dev'), ('quit', ''))
    """
    head, _, rest = line.strip().partition(" ")
    name = head[1:] if head.startswith(SIGNS) else head
    if name not in _OTHER_NAMES:
        name = name.removesuffix(";")
    return _OTHER_NAMES.get(name, name), rest.strip()


def split_words(rest: str, least: int, most: int, name: str) -> list[str]:
    """Split the arguments of a command, respecting quotes, and check their number."""
    try:
        words = shlex.split(rest)
    except ValueError:
        raise InputError("unclosed quote") from None
    if not least <= len(words) <= most:
        raise InputError(f"invalid arguments for .{name}", hint=f"usage: .{COMMANDS[name].usage}")
    return words


# -- help and settings ----------------------------------------------------------------------------


def _help(session: Session, rest: str) -> None:
    width = max(len(command.usage) for command in COMMANDS.values()) + 3
    lines = [
        "A statement is match { … } return { … }, insert, update or delete, or a whole",
        "query name() { … }. It runs when its braces are closed, or at an empty line.",
        "Ctrl-C cancels the line or the query, Ctrl-D exits the shell, Tab completes.",
        "",
        *(f".{command.usage:{width}}{command.text}" for command in COMMANDS.values()),
        "",
        "A backslash works like the dot. A line that starts with a space is not remembered.",
    ]
    terminal.show_lines(lines)


def _quit(session: Session, rest: str) -> None:
    session.is_over = True


def _switch(name: str, attribute: str) -> Callable[[Session, str], None]:
    def run(session: Session, rest: str) -> None:
        (word,) = split_words(rest, 0, 1, name) or [""]
        if word not in ("", *_SWITCH):
            raise InputError(f"invalid value '{word}'; expected on or off", hint=f".{name} on")
        if word:
            setattr(session, attribute, word == "on")
        terminal.show(f"{name} is {'on' if getattr(session, attribute) else 'off'}")

    return run


def _format(session: Session, rest: str) -> None:
    (word,) = split_words(rest, 0, 1, "format") or [session.format]
    if word not in TEXT_FORMATS:
        raise InputError(f"invalid format '{word}'", hint=f"use one of {', '.join(TEXT_FORMATS)}")
    session.format = word
    terminal.show(f"format is {word}")


def _param(session: Session, rest: str) -> None:
    words = rest.split()
    if words[:1] == ["-d"]:
        for name in words[1:] or list(session.params):
            session.params.pop(name.removeprefix("$"), None)
    elif rest:
        name, param = parse_parameter(rest)
        session.params[name] = param
    import json

    for name, param in session.params.items():
        value = json.dumps(param.value, ensure_ascii=False)
        terminal.show(f"${name}: {param.declared} = {value}")


# -- inspection -----------------------------------------------------------------------------------


def _schema(session: Session, rest: str) -> None:
    terminal.show_source(session.graph.schema.text().rstrip("\n") + "\n")


def _types(session: Session, rest: str) -> None:
    catalog = session.catalog
    for node in catalog.node_types.values():
        terminal.show(terminal.paint(f"node {node.name}", "bold"))
        for prop in node.properties.values():
            key = " @key" if prop.name in node.key else ""
            terminal.show(f"  {prop.name}: {prop.type}{key}")
    for edge in catalog.edge_types.values():
        head = f"edge {edge.name}: {edge.from_type} -> {edge.to_type}"
        terminal.show(terminal.paint(head, "bold"))
        for prop in edge.properties.values():
            terminal.show(f"  {prop.name}: {prop.type}")


def _tables(session: Session, rest: str) -> None:
    tables = session.graph.snapshot(**session.snapshot_arguments).tables
    width = max(map(len, tables), default=0)
    for key, table in sorted(tables.items()):
        terminal.show(f"{key:{width}}  v{table['version']}  {table['rows']} rows")


def _branches(session: Session, rest: str) -> None:
    for name in session.graph.branches.list():
        terminal.show(f"{'*' if name == session.branch else ' '} {name}")


def _tags(session: Session, rest: str) -> None:
    for tag in session.graph.tags.list():
        terminal.show(f"{tag.name} {tag.commit_id}")


def _commits(session: Session, rest: str) -> None:
    from omnigraph.cli.commands.history import commit_line

    (word,) = split_words(rest, 0, 1, "commits") or [str(_SHOWN)]
    if not word.isdecimal():
        raise InputError(f"invalid number '{word}'", hint=".commits 20")
    commits = session.graph.commits(session.branch)
    terminal.show_lines(map(commit_line, commits[: int(word)]))
    hidden = len(commits) - int(word)
    if hidden > 0:
        terminal.note(f"note: {hidden} earlier commits; .commits {len(commits)}")


def _queries(session: Session, rest: str) -> None:
    for path in split_words(rest, 0, 1, "queries"):
        session.add_queries(path)
    if not session.queries:
        terminal.show("(no stored queries; .queries FILE.gq adds some)")
    for stored in session.queries.values():
        terminal.show(f"{'mutation' if stored.writes else 'read'}  {stored.head}")


def _diff(session: Session, rest: str) -> None:
    before, after = [*split_words(rest, 1, 2, "diff"), session.branch][:2]
    diff = find_snapshot(session.graph, before).diff(find_snapshot(session.graph, after))
    if not diff.tables:
        terminal.show("no differences")
    for key, counts in diff.tables.items():
        terminal.show(counts_text(key, counts))
    for change in diff.changes[:_SHOWN_CHANGES]:
        terminal.show(change_text(change))
    hidden = len(diff.changes) - _SHOWN_CHANGES
    if hidden > 0:
        terminal.show(f"… and {hidden} more")


# -- navigation -----------------------------------------------------------------------------------


def _branch(session: Session, rest: str) -> None:
    words = split_words(rest, 0, 3, "branch")
    if words[:1] == ["-c"]:
        if len(words) == 1:
            raise InputError("the new branch needs a name", hint="\\branch -c NAME")
        base = words[2] if len(words) > 2 else session.branch
        with session.writing():
            session.graph.branches.create(words[1], base)
            _switch_branch(session, words[1])
            terminal.show(f"created branch {words[1]} from {base}")
        return
    if len(words) > 1:
        raise InputError("invalid arguments for .branch", hint="usage: .branch [-c] NAME")
    if not words:
        terminal.show(session.branch)
        return
    branches = session.graph.branches.list()
    if words[0] not in branches:
        close = closest(words[0], branches)
        hint = f"did you mean {close}?" if close else f"\\branch -c {words[0]} creates it"
        raise BranchNotFound(f"branch '{words[0]}' not found", hint=hint)
    _switch_branch(session, words[0])
    terminal.show(f"on branch {words[0]}")


def _switch_branch(session: Session, branch: str) -> None:
    session.branch, session.pinned, session.pinned_name = branch, {}, ""


def _at(session: Session, rest: str) -> None:
    (word,) = split_words(rest, 0, 1, "at") or [""]
    if word == "none":
        _switch_branch(session, session.branch)
    elif word:
        session.pinned, session.pinned_name = _resolve_state(session, word), word
    terminal.show(f"reading {session.pinned_name or f'the head of {session.branch}'}")


def _resolve_state(session: Session, word: str) -> dict[str, Any]:
    """A tag, a commit or a time, in this order."""
    choices: tuple[dict[str, Any], ...] = ({"tag": word}, {"commit": word})
    for choice in choices:
        try:
            take_snapshot(session.graph, **choice)
        except NotFound:
            continue
        return choice
    from omnigraph.cli.options import parse_time

    try:
        at = parse_time(word)
    except InputError:
        raise NotFound(
            f"no tag or commit '{word}'", hint="see .tags and .commits, or \\at none"
        ) from None
    state: dict[str, Any] = {"at": at, "branch": session.branch}
    take_snapshot(session.graph, **state)
    return state


# -- changes --------------------------------------------------------------------------------------


def _load(session: Session, rest: str) -> None:
    from omnigraph.cli.output.progress import progress_bar
    from omnigraph.cli.targets import require_consent
    from omnigraph.write.load.job import LoadMode

    path, mode = [*split_words(rest, 1, 2, "load"), MODES[0]][:2]
    if mode not in MODES:
        raise InputError(f"invalid mode '{mode}'", hint=f"use one of {', '.join(MODES)}")
    session.require_head()
    if mode == "overwrite":
        require_consent(session.arguments, session.target, "load with overwrite")
    with session.writing():
        with progress_bar("load") as line:
            receipt = session.graph.load(
                path, LoadMode(mode), session.branch, on_progress=line.update
            )
            if receipt.commit_id is not None:
                line.show("indexes")
                session.graph.indexes.ensure(session.branch)
        _show_load(session, path, mode, receipt)


def _show_load(session: Session, path: str, mode: str, receipt: LoadReceipt) -> None:
    from omnigraph.cli.commands.load import counts

    for warning in receipt.warnings:
        terminal.warn(warning)
    loaded = counts(receipt)
    terminal.show(
        f"loaded {path} on branch {session.branch} with {mode}: "
        f"{loaded['nodes_loaded']} nodes, {loaded['edges_loaded']} edges"
    )
    if receipt.commit_id is not None:
        terminal.show(f"commit_id: {receipt.commit_id}")


def _run(session: Session, rest: str) -> None:
    path, name = [*split_words(rest, 1, 2, "run"), None][:2]
    assert path is not None
    session.run_file(path, name)


def _call(session: Session, rest: str) -> None:
    name, *pairs = split_words(rest, 1, 100, "call")
    given = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign:
            raise InputError(f"invalid parameter '{pair}'", hint="write name=value")
        given[key.removeprefix("$")] = parse_value(value)
    session.call(name, given)


def _merge(session: Session, rest: str) -> None:
    from omnigraph.cli.commands.branch import show_merge

    source, resolve = [*split_words(rest, 1, 2, "merge"), None][:2]
    assert source is not None
    if resolve not in (None, "ours", "theirs"):
        raise InputError(f"invalid resolution '{resolve}'", hint="use ours or theirs")
    session.require_head()
    with session.writing():
        try:
            report = session.graph.merge(source, session.branch, resolve=resolve)
        except MergeConflicts as error:
            hint = (
                f".merge {source} ours keeps {session.branch}, "
                f".merge {source} theirs takes {source}"
            )
            raise MergeConflicts(error.message, hint=hint, details=error.details) from None
        options = argparse.Namespace(json=False, dry_run=False)
        show_merge(options, report, session.target.actor)


COMMANDS: dict[str, ShellCommand] = {
    "help": ShellCommand("help", "show this help", _help),
    "schema": ShellCommand("schema", "print the schema", _schema),
    "types": ShellCommand("types", "list types and their properties", _types),
    "tables": ShellCommand("tables", "list tables, their versions and row counts", _tables),
    "branches": ShellCommand("branches", "list branches", _branches),
    "branch": ShellCommand(
        "branch [-c] NAME", "switch to a branch; -c creates it", _branch, ("branch",)
    ),
    "at": ShellCommand(
        "at COMMIT|TAG|none", "read an earlier state; none returns to the head", _at, ("state",)
    ),
    "tags": ShellCommand("tags", "list tags", _tags),
    "commits": ShellCommand("commits [N]", "list the newest commits of the branch", _commits),
    "diff": ShellCommand("diff A [B]", "compare two states", _diff, ("state",) * 2),
    "merge": ShellCommand(
        "merge SOURCE [ours|theirs]",
        "merge a branch into the current one",
        _merge,
        ("branch", ("ours", "theirs")),
    ),
    "load": ShellCommand(
        "load FILE [MODE]", "load a file; merge, append or overwrite", _load, ("file", MODES)
    ),
    "run": ShellCommand("run FILE.gq [NAME]", "run a query from a file", _run, ("file",)),
    "queries": ShellCommand(
        "queries [FILE.gq]", "list stored queries; add those of a file", _queries, ("file",)
    ),
    "call": ShellCommand("call NAME [key=value …]", "run a stored query", _call, ("query",)),
    "param": ShellCommand(
        "param [name[:Type]=value]", "set $name, or list parameters; -d deletes", _param
    ),
    "format": ShellCommand("format FORMAT", "set the output format", _format, (TEXT_FORMATS,)),
    "explain": ShellCommand(
        "explain on|off",
        "show the plan before each result",
        _switch("explain", "explains"),
        (_SWITCH,),
    ),
    "timing": ShellCommand(
        "timing on|off", "show the execution time", _switch("timing", "times"), (_SWITCH,)
    ),
    "quit": ShellCommand("quit", "exit the shell", _quit),
}
