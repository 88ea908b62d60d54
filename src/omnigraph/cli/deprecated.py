"""Deprecated spellings of commands, rewritten before the arguments are parsed.

Only the first two words are examined, so an option before them prevents the rewrite.
"""

from __future__ import annotations

from omnigraph.cli.output import terminal

_REPLACED = {
    ("query", "lint"): "lint",
    ("query", "check"): "lint",
    ("check",): "lint",
    ("read",): "query",
    ("change",): "mutate",
}
_SILENT = {("schema", "get"): ["schema", "show"]}


def rewrite(arguments: list[str]) -> list[str]:
    """The arguments in current spelling; warns about a deprecated one.

    >>> rewrite(["lint", "--query", "a.gq"])
    ['lint', '--query', 'a.gq']
    """
    for old, new in _REPLACED.items():
        if tuple(arguments[: len(old)]) == old:
            terminal.warn(
                f"`omnigraph {' '.join(old)}` is deprecated; use `omnigraph {new}` instead"
            )
            return [new, *arguments[len(old) :]]
    for old, words in _SILENT.items():
        if tuple(arguments[: len(old)]) == old:
            return [*words, *arguments[len(old) :]]
    return arguments
