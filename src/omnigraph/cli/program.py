"""One run of the command: parse, check, execute, and report errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from omnigraph.cli.command_context import current, query_cancel
from omnigraph.cli.flags import Capability, UsageError, check_flags, fill_global_flags
from omnigraph.cli.output import terminal
from omnigraph.cli.output.hints import hint_for_options, message_for_options
from omnigraph.cli.parser import build_parser, rewrite
from omnigraph.errors import (
    Cancelled,
    Conflict,
    LanguageError,
    MergeConflicts,
    OmniGraphError,
    PreconditionFailed,
    ServerNotReady,
)
from omnigraph.exhaustion import as_memory_exceeded
from omnigraph.settings import Settings

_SHOWN_CONFLICTS = 20


def run_program(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    terminal.use_utf8()
    try:
        return _run(rewrite(arguments))
    except KeyboardInterrupt:
        return terminal.fail("interrupted", exit_code=terminal.INTERRUPTED)
    except (terminal.ReaderGone, terminal.OutputFailed) as error:
        return _report_lost(error)


def report_lost_output(error: OSError) -> int:
    """Report that stdout failed, and return the exit code."""
    try:
        terminal.output_failed(error)
    except (terminal.ReaderGone, terminal.OutputFailed) as failure:
        return _report_lost(failure)


def _report_lost(error: terminal.ReaderGone | terminal.OutputFailed) -> int:
    if isinstance(error, terminal.ReaderGone):
        # Silent like other programs: the reader closed the pipe on purpose.
        return terminal.READER_GONE
    return terminal.fail(f"the result could not be written to stdout: {error}")


def _run(arguments: list[str]) -> int:
    try:
        parsed = build_parser(arguments).parse_args(arguments)
        fill_global_flags(parsed)
        if hasattr(parsed, "capability"):
            check_flags(parsed)
        # A command without a graph imports no engine that could log.
        is_local = getattr(parsed, "capability", Capability.LOCAL) is Capability.LOCAL
        with nullcontext() if is_local else show_engine_warnings():
            exit_code = parsed.run(parsed)
        terminal.flush()
    except SystemExit as stop:
        # argparse has printed help or version (0), or a usage error (2).
        terminal.flush()
        return stop.code if isinstance(stop.code, int) else terminal.USAGE
    except UsageError as error:
        return terminal.fail(
            str(error), hint=f"see omnigraph help {parsed.label}", exit_code=terminal.USAGE
        )
    except (KeyboardInterrupt, terminal.ReaderGone, terminal.OutputFailed):
        raise
    except Cancelled as error:
        if query_cancel() is None:
            return report_error(error)
        raise KeyboardInterrupt from error
    except BaseException as error:
        # Includes a panic of a Rust library, which is not an Exception.
        return report_error(error)
    return int(exit_code)


@contextmanager
def show_engine_warnings() -> Iterator[None]:
    """Print warnings that the engine logs while a command runs."""
    import logging

    own = current()

    def emit(record: logging.LogRecord) -> None:
        # A process that runs several commands logs for all of them.
        if current() is own:
            terminal.warn(record.getMessage())

    handler = logging.Handler(logging.WARNING)
    handler.emit = emit  # type: ignore[method-assign]
    engine = logging.getLogger("omnigraph")
    engine.addHandler(handler)
    try:
        yield
    finally:
        engine.removeHandler(handler)


def report_error(error: BaseException) -> int:
    """Print an error on stderr and return its exit code."""
    terminal.flush()
    if isinstance(error, LanguageError):
        return terminal.fail(error.render().splitlines())
    if not isinstance(error, OmniGraphError):
        error = as_memory_exceeded(error) or error
    if isinstance(error, OmniGraphError):
        message = message_for_options(error)
        code = terminal.fail(
            # Each line is one diagnostic.
            message.splitlines() if isinstance(error, ServerNotReady) else message,
            hint=hint_for_options(error.hint),
            code=error.code,
            exit_code=_exit_code(error),
        )
        if isinstance(error, MergeConflicts):
            _print_conflicts(error)
        return code
    if isinstance(error, OSError):
        return terminal.fail(terminal.describe_os_error(error))
    if Settings.from_environ().debug:
        raise error
    return terminal.fail(
        f"internal error ({type(error).__name__}): a bug in OmniGraph, not in your input",
        hint="set OMNIGRAPH_DEBUG=1 to see the traceback",
    )


def _print_conflicts(error: MergeConflicts) -> None:
    """Print one line per conflict, up to a screenful."""
    conflicts = error.details.get("conflicts", ())
    for conflict in conflicts[:_SHOWN_CONFLICTS]:
        terminal.note(f"  {conflict['message']}")
    if len(conflicts) > _SHOWN_CONFLICTS:
        terminal.note(f"  … and {len(conflicts) - _SHOWN_CONFLICTS} more")


def _exit_code(error: OmniGraphError) -> int:
    if isinstance(error, PreconditionFailed):
        return terminal.PRECONDITION
    return terminal.CONFLICT if isinstance(error, Conflict) else terminal.FAILURE
