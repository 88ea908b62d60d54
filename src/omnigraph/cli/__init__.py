"""The ``omnigraph`` command.

Only this package uses the terminal: it parses arguments, calls the public API and prints the
result. Results are written to stdout, everything else to stderr. Exit codes: 0 success, 1 failure,
2 usage error, 3 conflict, 4 a failed ``--if-commit``. Users never see a traceback. Each command
imports what it needs when it runs; this module imports nothing.
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
    """Run as the main program of the process: set up its streams and memory limit."""
    from omnigraph.cli.about import version_text
    from omnigraph.cli.descriptors import occupy_closed, separate_stderr

    occupy_closed()
    if version_text(arguments) is not None:
        return _run(arguments)
    from omnigraph.cli.warm.client import run_warm

    code = run_warm(arguments)
    if code is not None:
        return code
    separate_stderr()
    import gc

    # Imports create many long-lived objects: garbage collection would take a tenth of a command.
    gc.set_threshold(20_000)
    try:
        return _run_within_memory(arguments)
    finally:
        # The process ends: searching all its objects for cycles would take another tenth.
        gc.freeze()


def _run_within_memory(arguments: list[str]) -> int:
    from omnigraph.exhaustion import has_memory_limit
    from omnigraph.settings import idle_threads_asleep

    if not has_memory_limit():
        with idle_threads_asleep():
            return _run(arguments)
    from omnigraph.cli.limited import run_in_child
    from omnigraph.settings import save_memory

    save_memory()
    return run_in_child(lambda: _guarded(lambda: _run(arguments)))


def _run(arguments: list[str]) -> int:
    from omnigraph.cli.about import version_text

    text = version_text(arguments)
    if text is not None and sys.stdout is not None:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
            return 0
        except OSError as error:
            from omnigraph.cli.program import report_lost_output

            return report_lost_output(error)
    from omnigraph.cli.program import run_program

    return run_program(arguments)


def _guarded(work: Callable[[], int]) -> int:
    """Report an interrupt or a failed import, even before the program is loaded."""
    try:
        return work()
    except KeyboardInterrupt:
        _print_error("Error: interrupted\n")
        return 130
    except (ImportError, MemoryError) as error:
        return _report_load_failure(error)


def _report_load_failure(error: ImportError | MemoryError) -> int:
    """Report that the program did not load; there may be too little memory for more."""
    try:
        from omnigraph.exhaustion import as_memory_exceeded

        shortage = as_memory_exceeded(error)
    except (ImportError, MemoryError):
        shortage = None
    if shortage is None and isinstance(error, ImportError):
        raise error
    message = shortage.message if shortage else "the process ran out of memory"
    hint = f"hint: {shortage.hint}\n" if shortage else ""
    _print_error(f"Error: {message}\n{hint}code: memory_exceeded\n")
    return 1


def _print_error(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(text)
