"""``omnigraph warm``: start, look at and stop the warm process of this user."""

from __future__ import annotations

import argparse
import json
import os
import select
import sys
import time
from collections.abc import Iterator
from typing import Any

from omnigraph.cli.output import terminal
from omnigraph.cli.output.report import field_lines, show_report
from omnigraph.cli.warm.address import (
    Broken,
    check_peer,
    connect,
    directory_path,
    receive,
    send,
)
from omnigraph.errors import InputError
from omnigraph.settings import Settings, environment

_PATIENCE = 10.0
_START_SECONDS = 120.0
"""A start imports Lance and Arrow, on a machine that may be busy."""
_STOP_SECONDS = 90.0
"""More than the process itself waits for running commands."""
_PAUSE_SECONDS = 0.05
_READY = b"ready"


def run_warm_start(arguments: argparse.Namespace) -> int:
    """Starts a process of this user that keeps Python, Lance and local graphs ready. Commands on
    local graphs then run in it, with the same output; it ends when it has had nothing to do for
    OMNIGRAPH_WARM_IDLE_SECONDS.
    """
    if sys.platform != "linux":
        raise InputError("the warm process needs Linux", hint="commands work without it")
    settings = Settings.from_environ()
    if settings.warm == "off":
        raise InputError("OMNIGRAPH_WARM is off", hint="unset it, or set it to auto")
    _ = settings.warm_idle_seconds
    deadline = time.monotonic() + _START_SECONDS
    is_new = False
    while (status := _status()) is None or status["ending"]:
        if time.monotonic() > deadline:
            raise InputError("the warm process did not start")
        if status is None and _start(deadline):
            is_new = True
        else:
            # Another one is about to end, or to be ready.
            time.sleep(_PAUSE_SECONDS)
    document = {"running": True, "started": is_new, **status}
    text = "started" if is_new else "already running"
    return show_report(arguments, document, f"warm process {status['pid']} {text}")


def run_warm_status(arguments: argparse.Namespace) -> int:
    """Shows the warm process of this user and this installation, if it runs."""
    status = _status()
    document: dict[str, Any] = {"running": status is not None, **(status or {})}
    lines = ["not running"] if status is None else _status_lines(status)
    return show_report(arguments, document, lines)


def _status_lines(status: dict[str, Any]) -> Iterator[str]:
    yield f"running{', about to end' if status['ending'] else ''}"
    yield from field_lines(status, *(name for name in status if name != "ending"))


def run_warm_stop(arguments: argparse.Namespace) -> int:
    """Ends the warm process of this user. Commands that run in it are finished first, for at most a
    minute; new ones run in their own processes.
    """
    is_stopped = _stop()
    text = "stopped" if is_stopped else "not running"
    return show_report(arguments, {"stopped": is_stopped}, text)


def _status() -> dict[str, Any] | None:
    """What the process says about itself; ``None`` if there is none."""
    try:
        connection = connect(Settings.from_environ().user_runtime, _PATIENCE)
        try:
            send(connection, b"S")
            status = json.loads(receive(connection)[1])
        finally:
            connection.close()
    except (OSError, Broken, ValueError):
        return None
    return status if isinstance(status, dict) else None


def _stop() -> bool:
    """Ask the process to end and wait until it has; whether there was one."""
    try:
        connection = connect(Settings.from_environ().user_runtime, _PATIENCE)
    except OSError:
        return False
    try:
        connection.settimeout(_STOP_SECONDS)
        send(connection, b"T")
        receive(connection)
    except TimeoutError:
        pid = check_peer(connection)
        raise InputError(
            f"the warm process {pid} does not end", hint=f"kill -9 {pid} ends it at once"
        ) from None
    except (OSError, Broken):
        # It has closed the connection by its end.
        pass
    finally:
        connection.close()
    return True


def _start(deadline: float) -> bool:
    """Start the process and wait until it listens; whether it is a new one."""
    _check_directory()
    receiving, sending = os.pipe()
    os.set_inheritable(sending, True)
    null = os.devnull
    try:
        os.posix_spawn(
            sys.executable,
            # Without the current directory among the places for modules.
            [sys.executable, "-P", "-m", "omnigraph.cli.warm.process", str(sending)],
            dict(environment()),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, null, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, null, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, null, os.O_WRONLY, 0),
            ],
            setsid=True,
        )
    finally:
        os.close(sending)
    try:
        ready, _, _ = select.select([receiving], [], [], max(deadline - time.monotonic(), 0.0))
        word = os.read(receiving, 64) if ready else b""
    finally:
        os.close(receiving)
    if not word:
        raise InputError(
            "the warm process could not be started",
            hint=f"see whether {directory_path(Settings.from_environ().user_runtime)} can be used",
        )
    return word == _READY


def _check_directory() -> None:
    """Name the reason if the directory of the socket cannot be used."""
    from omnigraph.cli.warm.process import make_directory

    try:
        os.close(make_directory(Settings.from_environ()))
    except OSError as error:
        path = directory_path(Settings.from_environ().user_runtime)
        reason = terminal.describe_os_error(error)
        raise InputError(
            f"the directory '{path}' cannot be used for the warm process: {reason}",
            hint="it must be a directory of this user alone, with mode 0700, and no link",
        ) from None
