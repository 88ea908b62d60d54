"""Old spellings of commands, rewritten before the arguments are parsed.

Only the first two words are looked at, so an option in front of them defeats the rewrite.
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
    """The arguments in today's spelling, with a warning when that differs.

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
