"""The ``omnigraph`` command.

This is the only part of the package that knows the terminal: it parses arguments, calls the
rooms below and shows what they answer. Results go to stdout, everything else to stderr; the
exit code is 0 for success, 1 for a failure, 2 for wrong usage, 3 for a conflict and 4 when
``--if-commit`` did not hold. Nothing that a user does shows a traceback. Each command loads what
it needs only when it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from omnigraph.cli import terminal
from omnigraph.cli.commands import UsageError, fill_global_flags
from omnigraph.cli.deprecated import rewrite
from omnigraph.cli.guard import check_flags
from omnigraph.cli.hints import in_options
from omnigraph.cli.parser import build_parser
from omnigraph.errors import (
    Conflict,
    LanguageError,
    MergeConflicts,
    OmniGraphError,
    PreconditionFailed,
)
from omnigraph.settings import Settings

__all__ = ["main"]

_SHOWN_CONFLICTS = 20


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    >>> main(["version"])
    omnigraph 0.1.0
    internal-schema 4
    0
    """
    terminal.speak_utf8()
    arguments = rewrite(list(sys.argv[1:] if argv is None else argv))
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return terminal.fail("interrupted", exit_code=terminal.INTERRUPTED)
    except BrokenPipeError:
        terminal.give_up_stdout()
        return terminal.fail("the reader of the output went away before the end")


def _run(arguments: list[str]) -> int:
    try:
        parsed = build_parser(arguments).parse_args(arguments)
        fill_global_flags(parsed)
        if hasattr(parsed, "capability"):
            check_flags(parsed)
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
    except LanguageError as error:
        return terminal.fail(error.render())
    except OmniGraphError as error:
        terminal.flush()
        code = terminal.fail(
            error.message, hint=in_options(error.hint), code=error.code, exit_code=_exit_code(error)
        )
        if isinstance(error, MergeConflicts):
            _tell_conflicts(error)
        return code
    except (KeyboardInterrupt, BrokenPipeError):
        raise
    except OSError as error:
        terminal.give_up_stdout()
        return terminal.fail(terminal.describe_os_error(error))
    except Exception as error:
        if Settings.from_environ().debug:
            raise
        return terminal.fail(
            f"internal error ({type(error).__name__}): a bug in OmniGraph, not in your input",
            hint="set OMNIGRAPH_DEBUG=1 to see the traceback",
        )
    return int(exit_code)


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
