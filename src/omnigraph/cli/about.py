"""The version of the program; printed before anything else is imported."""

from __future__ import annotations

from omnigraph import __version__

INTERNAL_SCHEMA = 4
"""Version of the on-disk format, shared with the reference implementation."""

PROGRAM = f"omnigraph {__version__}"
VERSION = f"{PROGRAM}\ninternal-schema {INTERNAL_SCHEMA}\n"


def version_text(arguments: list[str]) -> str | None:
    """The output of ``version``, ``-v`` and ``--version``; ``None`` for other arguments.

    >>> version_text(["-v"])
    'omnigraph 0.1.0\\n'
    """
    if arguments == ["version"]:
        return VERSION
    if arguments in (["-v"], ["--version"]):
        return f"{PROGRAM}\n"
    return None
