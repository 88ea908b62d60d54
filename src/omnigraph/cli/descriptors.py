"""The standard streams of the process, put in order once, before anything else runs.

Only the program does this, never a caller of ``main`` with arguments: the streams of another
program are its own.

Lance reports panics and warnings on file descriptor 2, whatever Python's ``sys.stderr`` is, with
paths of the machine that built it. The failure itself arrives as a typed error. So our own remarks
get a descriptor of their own, and nobody sees the other; ``OMNIGRAPH_DEBUG`` shows it again.
"""

from __future__ import annotations

import os
import sys
import warnings

STDERR = 2


def occupy_closed() -> None:
    """Put the null device where a standard stream is closed.

    The next file to be opened, perhaps one of a graph, would get its number, and whatever a library
    prints would be written into that file.
    """
    for number in (0, 1, STDERR):
        try:
            os.fstat(number)
        except OSError:
            _discard(number)


def separate_stderr() -> None:
    """Keep stderr for what this program says; drop what libraries write to its descriptor."""
    from omnigraph.settings import Settings

    if sys.stderr is None or Settings.from_environ().debug:
        return
    if not sys.warnoptions:
        # Warnings of libraries name their files, and are for who writes programs.
        warnings.simplefilter("ignore")
    own = os.dup(STDERR)
    sys.stderr = open(  # noqa: SIM115
        own, "w", buffering=1, encoding="utf-8", errors="backslashreplace"
    )
    _discard(STDERR)


def _discard(number: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    if null == number:
        os.set_inheritable(number, True)
    else:
        os.dup2(null, number)
        os.close(null)
