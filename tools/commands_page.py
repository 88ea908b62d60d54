"""Writes docs/commands.md from the parsers, so that every command and option is documented.

Usage: python tools/commands_page.py > docs/commands.md
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from omnigraph.cli.flags import add_global_flags
from omnigraph.cli.parser import build_parser, meaning
from omnigraph.cli.parser_tree import leaves

INTRO = """\
# Commands

Every command with its arguments, as in `omnigraph help COMMAND`. [cli.md](cli.md) describes
addresses, output formats and exit codes.

The word in brackets is what a command works on: `any` a graph, on data and branches also
through a server; `served` a server; `direct` storage or files; `local` no graph.
"""


def page() -> str:
    """The whole page."""
    parser = build_parser()
    commands = [leaf for leaf in leaves(parser) if leaf.get_default("capability") is not None]
    parts = [INTRO, _contents(commands), _global()]
    parts += [_section(leaf) for leaf in commands]
    return "\n".join(parts)


def _contents(commands: list[argparse.ArgumentParser]) -> str:
    names = [
        f"[{leaf.prog.removeprefix('omnigraph ')}](#{_anchor(leaf.prog)})" for leaf in commands
    ]
    return f"{', '.join(names)}.\n"


def _anchor(text: str) -> str:
    return re.sub(r"[^a-z0-9-]", "", text.lower().replace(" ", "-"))


def _global() -> str:
    holder = argparse.ArgumentParser(add_help=False)
    add_global_flags(holder)
    return "\n".join(
        ["## Global options", "", "Allowed before or after the command.", "", *_table(holder), ""]
    )


def _section(leaf: argparse.ArgumentParser) -> str:
    capability = leaf.get_default("capability")
    lines = [
        f"## {leaf.prog}",
        "",
        f"`{_usage(leaf)}`",
        "",
        f"{leaf.description} ({capability.word})",
        "",
    ]
    rows = list(_table(leaf, without_global=True))
    return "\n".join([*lines, *rows, ""]) if len(rows) > 2 else "\n".join(lines)


def _usage(leaf: argparse.ArgumentParser) -> str:
    flags = _global_flags()
    parts = [leaf.prog]
    for action in leaf._actions:
        if set(action.option_strings) & flags or action.help == argparse.SUPPRESS:
            continue
        if isinstance(action, argparse._HelpAction):
            continue
        shown = _shown(action)
        is_optional = not action.required if action.option_strings else action.nargs in ("?", "*")
        parts.append(f"[{shown}]" if is_optional else shown)
    return " ".join(parts)


def _shown(action: argparse.Action) -> str:
    value = _value(action)
    if not action.option_strings:
        return f"{value}…" if action.nargs in ("+", "*") else value
    option = action.option_strings[-1]
    return f"{option} {value}" if value else option


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if action.metavar is not None:
        return str(action.metavar)
    if action.choices is not None:
        return "|".join(map(str, action.choices))
    return action.dest.upper()


def _global_flags() -> set[str]:
    holder = argparse.ArgumentParser(add_help=False)
    add_global_flags(holder)
    return {option for action in holder._actions for option in action.option_strings}


def _table(parser: argparse.ArgumentParser, *, without_global: bool = False) -> Iterator[str]:
    skipped = _global_flags() if without_global else set()
    yield "| Argument | Meaning |"
    yield "|---|---|"
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction) or action.help == argparse.SUPPRESS:
            continue
        if set(action.option_strings) & skipped:
            continue
        names = ", ".join(f"`{name}`" for name in action.option_strings[:-1])
        last = f"`{_shown(action)}`"
        cell = f"{names}, {last}" if names else last
        yield f"| {_escaped(cell)} | {_escaped(meaning(action, '`'))} |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
