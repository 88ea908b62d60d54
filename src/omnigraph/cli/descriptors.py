"""The standard streams of the process, prepared once before anything else runs.

Only the main program does this; a caller of ``main`` with arguments keeps its own streams.

Lance writes panics and warnings to file descriptor 2, whatever ``sys.stderr`` is, with paths of the
machine that built it; the failure itself arrives as a typed error. So this program's own messages
get a separate descriptor, and the output of libraries is dropped unless ``OMNIGRAPH_DEBUG`` is set.
"""

from __future__ import annotations

import os
import sys
import warnings

STDERR = 2


def occupy_closed() -> None:
    """Open the null device in place of a closed standard stream.

    Otherwise the next opened file, perhaps of a graph, would get its number, and library output
    would be written into that file.
    """
    for number in (0, 1, STDERR):
        try:
            os.fstat(number)
        except OSError:
            _discard(number)


def separate_stderr() -> None:
    """Reserve stderr for this program; drop what libraries write to descriptor 2."""
    from omnigraph.settings import Settings

    if sys.stderr is None or Settings.from_environ().debug:
        return
    if not sys.warnoptions:
        # Library warnings are for developers.
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
