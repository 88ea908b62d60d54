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
    from collections.abc import Callable, Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    >>> main(["version"])
    omnigraph 0.1.0
    internal-schema 4
    0
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        return _guarded(lambda: _run_as_program(arguments))
    return _guarded(lambda: _run(arguments))


def _run_as_program(arguments: list[str]) -> int:
    """Run in a process that is all ours, with its streams and limits."""
    from omnigraph.cli.descriptors import occupy_closed, separate_stderr

    occupy_closed()
    if _has_quick_answer(arguments):
        return _run(arguments)
    separate_stderr()
    from omnigraph.exhaustion import has_memory_limit

    if not has_memory_limit():
        return _run(arguments)
    from omnigraph.cli.limited import run_in_child
    from omnigraph.settings import save_memory

    save_memory()
    return run_in_child(lambda: _guarded(lambda: _run(arguments)))


def _has_quick_answer(arguments: list[str]) -> bool:
    from omnigraph.cli.about import quick_answer

    return quick_answer(arguments) is not None


def _run(arguments: list[str]) -> int:
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
    from omnigraph.cli.program import run_program

    return run_program(arguments)


def _guarded(work: Callable[[], int]) -> int:
    """Do something, also where it is broken off before the program is loaded that says so."""
    try:
        return work()
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
