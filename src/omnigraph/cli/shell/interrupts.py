"""Ctrl-C in the shell: one signal handler that depends on the state of the shell.

Between two statements a Ctrl-C is noted, and handled by the next step. While a line is typed it
cancels that line, but Python loses signals there: one that arrives after the prompt is drawn and
before ``readline`` waits for a key is noticed only with the next key, and an exception raised
during completion is dropped. So a thread resends the signal until the handler was able to raise.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import currentframe
from types import FrameType
from typing import TypeVar

T = TypeVar("T")

_RESEND_SECONDS = 0.02


class ShellInterrupts:
    """Handles Ctrl-C in an interactive shell, even if the parent process ignored it."""

    def __init__(self) -> None:
        self._reading: FrameType | None = None
        """The frame that waits for a line; while reading, the handler raises only there."""
        self._repeater: _Repeater | None = None
        self._is_pending = False
        self._is_running = False
        self._react: Callable[[], None] | None = None

    def __enter__(self) -> ShellInterrupts:
        self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    # -- states of the shell ---------------------------------------------------------------

    def read(self, line: Callable[[], T]) -> T:
        """Wait for a line; a Ctrl-C, now or since the last statement, cancels it.

        ``line`` must be a built-in function: the handler raises in this frame only.
        """
        self._repeater = repeater = _Repeater()
        try:
            self._reading = currentframe()
            self._raise_pending()
            return line()
        finally:
            # From here on, a signal belongs to the next step.
            self._reading = None
            repeater.close()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run a statement; a Ctrl-C, now or since its line was read, interrupts it."""
        self._is_running = True
        try:
            self._raise_pending()
            yield
        finally:
            self._is_running = False

    @contextmanager
    def reacting(self, react: Callable[[], None]) -> Iterator[None]:
        """Call ``react`` for the first Ctrl-C; the second interrupts."""
        self._react = react
        try:
            yield
        finally:
            self._react = None

    def clear(self) -> None:
        """Forget a pending Ctrl-C; it belonged to the cancelled line or statement."""
        self._is_pending = False

    # -- the signal ------------------------------------------------------------------------

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._reading is not None:
            # In another frame it would be lost; it will be sent again.
            if frame is self._reading and self._repeater is not None:
                self._repeater.is_handled = True
                raise KeyboardInterrupt
        elif self._react is not None:
            react, self._react = self._react, None
            react()
        elif self._is_running:
            raise KeyboardInterrupt
        else:
            self._is_pending = True

    def _raise_pending(self) -> None:
        if self._is_pending:
            self._is_pending = False
            raise KeyboardInterrupt


class _Repeater:
    """Resends a Ctrl-C that arrives while a line is read, until it is handled."""

    def __init__(self) -> None:
        self.is_handled = False
        self._is_closed = False
        self._sending = threading.Lock()
        self._reader = threading.get_ident()
        self._receive, self._send = os.pipe()
        os.set_blocking(self._send, False)
        # Python writes signal numbers there on arrival, long before the handler runs.
        self._before = signal.set_wakeup_fd(self._send, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._repeat, name="interrupts", daemon=True)
        self._thread.start()

    def close(self) -> None:
        signal.set_wakeup_fd(self._before)
        with self._sending:
            self._is_closed = True
        os.close(self._send)
        self._thread.join()
        os.close(self._receive)

    def _repeat(self) -> None:
        while received := os.read(self._receive, 64):
            while signal.SIGINT in received and self._is_unhandled():
                time.sleep(_RESEND_SECONDS)
                with self._sending:
                    if self._is_unhandled():
                        signal.pthread_kill(self._reader, signal.SIGINT)

    def _is_unhandled(self) -> bool:
        return not self.is_handled and not self._is_closed
