"""The ``omnigraph`` command.

This is the only part of the package that knows the terminal: it parses arguments, calls the
rooms below and shows what they answer. Results go to stdout, everything else to stderr; the
exit code is 0 for success, 1 for a failure, 2 for wrong usage, 3 for a conflict and 4 when
``--if-commit`` did not hold. Nothing that a user does shows a traceback. Each command loads what
it needs only when it runs, and this module loads nothing.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    >>> main(["version"])
    omnigraph 0.1.0
    internal-schema 4
    0
    """
    from omnigraph.cli.about import quick_answer

    arguments = list(sys.argv[1:] if argv is None else argv)
    told = quick_answer(arguments)
    if told is not None and sys.stdout is not None:
        try:
            sys.stdout.write(told)
            sys.stdout.flush()
            return 0
        except OSError as error:
            from omnigraph.cli.program import tell

            return tell(error)
    try:
        from omnigraph.cli.program import run_program
    except KeyboardInterrupt:
        if sys.stderr is not None:
            sys.stderr.write("Error: interrupted\n")
        return 130
    return run_program(arguments)
