"""The shell's own commands: ``.help`` and the like, with a dot or a backslash."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omnigraph.cli.operator_config import TEXT_FORMATS
from omnigraph.cli.output import terminal
from omnigraph.cli.output.change_lines import change_text, counts_text
from omnigraph.cli.shell.input import SIGNS
from omnigraph.cli.shell.statements import parse_parameter, parse_value
from omnigraph.cli.targets import snapshot_named
from omnigraph.errors import BranchNotFound, InputError, MergeConflicts, NotFound
from omnigraph.lang.closest import closest

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
    """One command: what may follow it, what it does, and what Tab offers for each word."""

    usage: str
    text: str
    run: Callable[[Session, str], None]
    words: tuple[str | tuple[str, ...], ...] = ()
    """For each word what it is: branch, state, file or query, or the words themselves."""


def run_command(session: Session, line: str) -> None:
    """Do what a command line says."""
    name, rest = split_command(line)
    found = COMMANDS.get(name)
    if found is None:
        close = closest(name, COMMANDS)
        hint = f"did you mean {line[0]}{close}?" if close else ".help lists the commands"
        raise InputError(f"there is no command '{line.split()[0]}'", hint=hint)
    found.run(session, rest)


def split_command(line: str) -> tuple[str, str]:
    r"""The name of a command and what follows it.

    >>> split_command(r"\branch -c dev"), split_command("quit;")
    (('branch', '-c dev'), ('quit', ''))
    """
    head, _, rest = line.strip().partition(" ")
    name = head[1:] if head.startswith(SIGNS) else head
    if name not in _OTHER_NAMES:
        name = name.removesuffix(";")
    return _OTHER_NAMES.get(name, name), rest.strip()


def words_of(rest: str, least: int, most: int, name: str) -> list[str]:
    """The words after a command; quotes hold one together."""
    try:
        words = shlex.split(rest)
    except ValueError:
        raise InputError("a quote is not closed") from None
    if not least <= len(words) <= most:
        raise InputError(f"that is no way to use .{name}", hint=f".{COMMANDS[name].usage}")
    return words


# -- help and settings ----------------------------------------------------------------------------


def _help(session: Session, rest: str) -> None:
    width = max(len(command.usage) for command in COMMANDS.values()) + 3
    lines = [
        "A statement is match { … } return { … }, insert, update or delete, or a whole",
        "query name() { … }. It is run when its braces are closed, or at an empty line.",
        "Ctrl-C gives up what is typed or asked, Ctrl-D ends the shell, Tab completes.",
        "",
        *(f".{command.usage:{width}}{command.text}" for command in COMMANDS.values()),
        "",
        "A backslash does for the dot. A line that starts with a blank leaves no history.",
    ]
    terminal.show_lines(lines)


def _quit(session: Session, rest: str) -> None:
    session.is_over = True


def _switch(name: str, attribute: str) -> Callable[[Session, str], None]:
    def run(session: Session, rest: str) -> None:
        (word,) = words_of(rest, 0, 1, name) or [""]
        if word not in ("", *_SWITCH):
            raise InputError(f"'{word}' is neither on nor off", hint=f".{name} on")
        if word:
            setattr(session, attribute, word == "on")
        terminal.show(f"{name} is {'on' if getattr(session, attribute) else 'off'}")

    return run


def _format(session: Session, rest: str) -> None:
    (word,) = words_of(rest, 0, 1, "format") or [session.format]
    if word not in TEXT_FORMATS:
        raise InputError(
            f"'{word}' is no format of the shell", hint=f"use one of {', '.join(TEXT_FORMATS)}"
        )
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


# -- looking --------------------------------------------------------------------------------------


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
    moment = session.moment or {"branch": session.branch}
    tables = session.graph.snapshot(**moment).tables
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
    from omnigraph.cli.commands.commit import commit_line

    (word,) = words_of(rest, 0, 1, "commits") or [str(_SHOWN)]
    if not word.isdecimal():
        raise InputError(f"'{word}' is no number", hint=".commits 20")
    found = session.graph.commits(session.branch)
    for commit in found[: int(word)]:
        terminal.show(commit_line(commit))
    if len(found) > int(word):
        terminal.note(f"note: {len(found) - int(word)} earlier commits; .commits {len(found)}")


def _queries(session: Session, rest: str) -> None:
    for path in words_of(rest, 0, 1, "queries"):
        session.add_queries(path)
    if not session.queries:
        terminal.show("(no stored queries; .queries FILE.gq reads some)")
    for stored in session.queries.values():
        terminal.show(f"{'mutation' if stored.writes else 'read'}  {stored.head}")


def _diff(session: Session, rest: str) -> None:
    before, after = [*words_of(rest, 1, 2, "diff"), session.branch][:2]
    diff = snapshot_named(session.graph, before).diff(snapshot_named(session.graph, after))
    if not diff.tables:
        terminal.show("no differences")
    for key, counts in diff.tables.items():
        terminal.show(counts_text(key, counts))
    for change in diff.changes[:_SHOWN_CHANGES]:
        terminal.show(change_text(change))
    left = len(diff.changes) - _SHOWN_CHANGES
    if left > 0:
        terminal.show(f"… and {left} more")


# -- moving ---------------------------------------------------------------------------------------


def _branch(session: Session, rest: str) -> None:
    words = words_of(rest, 0, 3, "branch")
    if words[:1] == ["-c"]:
        if len(words) == 1:
            raise InputError("the new branch needs a name", hint="\\branch -c NAME")
        base = words[2] if len(words) > 2 else session.branch
        with session.writing():
            session.graph.branches.create(words[1], base)
            _go(session, words[1])
            terminal.show(f"created branch {words[1]} from {base}")
        return
    if len(words) > 1:
        raise InputError("that is no way to use .branch", hint=".branch [-c] NAME")
    if not words:
        terminal.show(session.branch)
        return
    known = session.graph.branches.list()
    if words[0] not in known:
        close = closest(words[0], known)
        hint = f"did you mean {close}?" if close else f"\\branch -c {words[0]} makes it"
        raise BranchNotFound(f"there is no branch '{words[0]}'", hint=hint)
    _go(session, words[0])
    terminal.show(f"on branch {words[0]}")


def _go(session: Session, branch: str) -> None:
    session.branch, session.moment, session.moment_name = branch, {}, ""


def _at(session: Session, rest: str) -> None:
    (word,) = words_of(rest, 0, 1, "at") or [""]
    if word == "none":
        _go(session, session.branch)
    elif word:
        session.moment, session.moment_name = _moment(session, word), word
    place = session.moment_name or f"the newest state of {session.branch}"
    terminal.show(f"reading {place}")


def _moment(session: Session, word: str) -> dict[str, Any]:
    """A tag, a commit or a moment, looked for in this order."""
    choices: tuple[dict[str, Any], ...] = ({"tag": word}, {"commit": word})
    for choice in choices:
        try:
            session.graph.snapshot(**choice)
        except NotFound:
            continue
        return choice
    from omnigraph.cli.commands.query import parse_moment

    try:
        at = parse_moment(word)
    except InputError:
        raise NotFound(
            f"there is no tag or commit '{word}'", hint="see .tags and .commits, or \\at none"
        ) from None
    found: dict[str, Any] = {"at": at, "branch": session.branch}
    session.graph.snapshot(**found)
    return found


# -- changing -------------------------------------------------------------------------------------


def _load(session: Session, rest: str) -> None:
    from omnigraph.cli.output.progress import bar
    from omnigraph.cli.targets import consent
    from omnigraph.write.load.job import LoadMode

    path, mode = [*words_of(rest, 1, 2, "load"), MODES[0]][:2]
    if mode not in MODES:
        raise InputError(f"'{mode}' is no mode", hint=f"use one of {', '.join(MODES)}")
    session.check_newest()
    if mode == "overwrite":
        consent(session.arguments, session.target, "load with overwrite")
    with session.writing():
        with bar("load") as line:
            receipt = session.graph.load(
                path,
                LoadMode(mode),
                session.branch,
                on_progress=lambda told: line.show(told.phase, told.done, told.total),
            )
            if receipt.commit_id is not None:
                line.show("indexes")
                session.graph.indexes.ensure(session.branch)
        _show_load(session, path, mode, receipt)


def _show_load(session: Session, path: str, mode: str, receipt: LoadReceipt) -> None:
    from omnigraph.cli.commands.load import counts

    for warning in receipt.warnings:
        terminal.warn(warning)
    told = counts(receipt)
    terminal.show(
        f"loaded {path} on branch {session.branch} with {mode}: "
        f"{told['nodes_loaded']} nodes, {told['edges_loaded']} edges"
    )
    if receipt.commit_id is not None:
        terminal.show(f"commit_id: {receipt.commit_id}")


def _run(session: Session, rest: str) -> None:
    path, name = [*words_of(rest, 1, 2, "run"), None][:2]
    assert path is not None
    session.run_file(path, name)


def _call(session: Session, rest: str) -> None:
    name, *pairs = words_of(rest, 1, 100, "call")
    given = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign:
            raise InputError(f"'{pair}' sets no parameter", hint="write name=value")
        given[key.removeprefix("$")] = parse_value(value)
    session.call(name, given)


def _merge(session: Session, rest: str) -> None:
    from omnigraph.cli.commands.branch import show_merge

    source, resolve = [*words_of(rest, 1, 2, "merge"), None][:2]
    assert source is not None
    if resolve not in (None, "ours", "theirs"):
        raise InputError(f"'{resolve}' decides no conflict", hint="use ours or theirs")
    session.check_newest()
    with session.writing():
        try:
            report = session.graph.merge(source, session.branch, resolve=resolve)
        except MergeConflicts as error:
            hint = (
                f".merge {source} ours keeps {session.branch}, "
                f".merge {source} theirs takes {source}"
            )
            raise MergeConflicts(error.message, hint=hint, details=error.details) from None
        how = argparse.Namespace(json=False, dry_run=False)
        show_merge(how, report, session.target.actor)


COMMANDS: dict[str, ShellCommand] = {
    "help": ShellCommand("help", "show this", _help),
    "schema": ShellCommand("schema", "the schema as it was written", _schema),
    "types": ShellCommand("types", "the types and their properties", _types),
    "tables": ShellCommand("tables", "the tables, their versions and rows", _tables),
    "branches": ShellCommand("branches", "the branches", _branches),
    "branch": ShellCommand(
        "branch [-c] NAME", "go to a branch; -c makes it first", _branch, ("branch",)
    ),
    "at": ShellCommand(
        "at COMMIT|TAG|none", "read an earlier state; none for the newest", _at, ("state",)
    ),
    "tags": ShellCommand("tags", "the tags", _tags),
    "commits": ShellCommand("commits [N]", "the newest commits of the branch", _commits),
    "diff": ShellCommand("diff A [B]", "what differs between two states", _diff, ("state",) * 2),
    "merge": ShellCommand(
        "merge SOURCE [ours|theirs]",
        "bring a branch into this one",
        _merge,
        ("branch", ("ours", "theirs")),
    ),
    "load": ShellCommand(
        "load FILE [MODE]", "load a file; merge, append or overwrite", _load, ("file", MODES)
    ),
    "run": ShellCommand("run FILE.gq [NAME]", "run a query of a file", _run, ("file",)),
    "queries": ShellCommand(
        "queries [FILE.gq]", "the stored queries; more of a file", _queries, ("file",)
    ),
    "call": ShellCommand("call NAME [key=value …]", "run a stored query", _call, ("query",)),
    "param": ShellCommand(
        "param [name[:Type]=value]", "set $name, or show what is set; -d forgets", _param
    ),
    "format": ShellCommand("format FORMAT", "how rows are shown", _format, (TEXT_FORMATS,)),
    "explain": ShellCommand(
        "explain on|off", "show plans before answers", _switch("explain", "explains"), (_SWITCH,)
    ),
    "timing": ShellCommand(
        "timing on|off", "show how long it takes", _switch("timing", "times"), (_SWITCH,)
    ),
    "quit": ShellCommand("quit", "end the shell", _quit),
}
