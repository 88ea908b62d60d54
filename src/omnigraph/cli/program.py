"""One run of the command: parse, guard, do, and say what went wrong in words."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager, nullcontext

from omnigraph.cli.deprecated import rewrite
from omnigraph.cli.guard import check_flags
from omnigraph.cli.output import terminal
from omnigraph.cli.output.hints import in_options
from omnigraph.cli.parser import build_parser
from omnigraph.cli.registry import Capability, UsageError, fill_global_flags
from omnigraph.errors import (
    Conflict,
    LanguageError,
    MergeConflicts,
    OmniGraphError,
    PreconditionFailed,
)
from omnigraph.exhaustion import as_memory_exceeded
from omnigraph.settings import Settings

_SHOWN_CONFLICTS = 20


def run_program(given: list[str]) -> int:
    """Run one command and return its exit code."""
    terminal.speak_utf8()
    try:
        return _run(rewrite(given))
    except KeyboardInterrupt:
        return terminal.fail("interrupted", exit_code=terminal.INTERRUPTED)
    except (terminal.ReaderGone, terminal.OutputFailed) as error:
        return _tell_lost(error)


def lost_output(error: OSError) -> int:
    """The exit code when stdout failed, after saying so."""
    try:
        terminal.output_failed(error)
    except (terminal.ReaderGone, terminal.OutputFailed) as failure:
        return _tell_lost(failure)


def _tell_lost(error: terminal.ReaderGone | terminal.OutputFailed) -> int:
    if isinstance(error, terminal.ReaderGone):
        # As other programs: whoever reads has seen enough, and need not be told.
        return terminal.READER_GONE
    return terminal.fail(f"the result could not be written to stdout: {error}")


def _run(arguments: list[str]) -> int:
    try:
        parsed = build_parser(arguments).parse_args(arguments)
        fill_global_flags(parsed)
        if hasattr(parsed, "capability"):
            check_flags(parsed)
        with _warnings_of(parsed):
            exit_code = parsed.run(parsed)
        terminal.flush()
    except SystemExit as stop:
        # argparse has said what it had to say: help or version (0), wrong usage (2).
        terminal.flush()
        return stop.code if isinstance(stop.code, int) else terminal.USAGE
    except UsageError as error:
        return terminal.fail(
            str(error), hint=f"see omnigraph help {parsed.label}", exit_code=terminal.USAGE
        )
    except (KeyboardInterrupt, terminal.ReaderGone, terminal.OutputFailed):
        raise
    except BaseException as error:
        # Also a panic of a library below, which is no Exception.
        return tell(error)
    return int(exit_code)


def _warnings_of(parsed: argparse.Namespace) -> AbstractContextManager[None]:
    """What the engine logs is shown as warnings; a command without a graph loads no engine."""
    if getattr(parsed, "capability", Capability.LOCAL) is Capability.LOCAL:
        return nullcontext()
    from omnigraph.cli.output.logged import shown_warnings

    return shown_warnings()


def tell(error: BaseException) -> int:
    """Say what went wrong, and give the exit code that says so too."""
    terminal.flush()
    if isinstance(error, LanguageError):
        return terminal.fail(error.render().splitlines())
    if not isinstance(error, OmniGraphError):
        error = as_memory_exceeded(error) or error
    if isinstance(error, OmniGraphError):
        code = terminal.fail(
            error.message, hint=in_options(error.hint), code=error.code, exit_code=_exit_code(error)
        )
        if isinstance(error, MergeConflicts):
            _tell_conflicts(error)
        return code
    if isinstance(error, OSError):
        return terminal.fail(terminal.describe_os_error(error))
    if Settings.from_environ().debug:
        raise error
    return terminal.fail(
        f"internal error ({type(error).__name__}): a bug in OmniGraph, not in your input",
        hint="set OMNIGRAPH_DEBUG=1 to see the traceback",
    )


def _tell_conflicts(error: MergeConflicts) -> None:
    """Each conflict in a line, up to a screen of them."""
    found = error.details.get("conflicts", ())
    for conflict in found[:_SHOWN_CONFLICTS]:
        terminal.note(f"  {conflict['message']}")
    if len(found) > _SHOWN_CONFLICTS:
        terminal.note(f"  … and {len(found) - _SHOWN_CONFLICTS} more")


def _exit_code(error: OmniGraphError) -> int:
    if isinstance(error, PreconditionFailed):
        return terminal.PRECONDITION
    return terminal.CONFLICT if isinstance(error, Conflict) else terminal.FAILURE
