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
    if argv is None:
        from omnigraph.cli.descriptors import occupy_closed

        occupy_closed()
    try:
        return _run(list(sys.argv[1:] if argv is None else argv), is_program=argv is None)
    except KeyboardInterrupt:
        _say("Error: interrupted\n")
        return 130
    except (ImportError, MemoryError) as error:
        return _cannot_load(error)


def _run(arguments: list[str], *, is_program: bool) -> int:
    from omnigraph.cli.about import quick_answer

    answer = quick_answer(arguments)
    if answer is not None and sys.stdout is not None:
        try:
            sys.stdout.write(answer)
            sys.stdout.flush()
            return 0
        except OSError as error:
            from omnigraph.cli.program import lost_output

            return lost_output(error)
    if is_program:
        from omnigraph.cli.descriptors import separate_stderr
        from omnigraph.exhaustion import has_memory_limit

        separate_stderr()
        if has_memory_limit():
            from omnigraph.cli.limited import run_in_child
            from omnigraph.settings import save_memory

            save_memory()
            return run_in_child(lambda: _load_and_run(arguments))
    return _load_and_run(arguments)


def _load_and_run(arguments: list[str]) -> int:
    try:
        from omnigraph.cli.program import run_program

        return run_program(arguments)
    except KeyboardInterrupt:
        _say("Error: interrupted\n")
        return 130
    except (ImportError, MemoryError) as error:
        return _cannot_load(error)


def _cannot_load(error: ImportError | MemoryError) -> int:
    """The program itself did not load; there may be no memory left to say why in better words."""
    try:
        from omnigraph.exhaustion import as_memory_exceeded

        shortage = as_memory_exceeded(error)
    except (ImportError, MemoryError):
        shortage = None
    if shortage is None and isinstance(error, ImportError):
        raise error
    message = shortage.message if shortage else "the process ran out of memory"
    hint = f"hint: {shortage.hint}\n" if shortage else ""
    _say(f"Error: {message}\n{hint}code: memory_exceeded\n")
    return 1


def _say(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(text)
