"""Which program this is; answered before anything is loaded, since scripts ask it often."""

from __future__ import annotations

from omnigraph import __version__

INTERNAL_SCHEMA = 4
"""The number of the on-disk format, shared with the reference implementation."""

PROGRAM = f"omnigraph {__version__}"
VERSION = f"{PROGRAM}\ninternal-schema {INTERNAL_SCHEMA}\n"


def quick_answer(arguments: list[str]) -> str | None:
    """What is printed for a question that needs no parser.

    >>> quick_answer(["-v"])
    'omnigraph 0.1.0\\n'
    """
    if arguments == ["version"]:
        return VERSION
    if arguments in (["-v"], ["--version"]):
        return f"{PROGRAM}\n"
    return None
