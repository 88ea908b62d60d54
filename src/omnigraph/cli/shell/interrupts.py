"""What Ctrl-C does in a shell: one handler for all of its life, which knows what the shell does.

Between two statements a Ctrl-C is only noted, and taken by what comes next. While a line is typed,
it gives up that line, and there Python needs help: a signal that comes after the prompt was drawn
and before ``readline`` waits for a key is noticed with the next key only, and what is raised while
Tab asks for candidates is dropped. So a thread sends it again until the handler could raise.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TypeVar

T = TypeVar("T")

_AGAIN_SECONDS = 0.02


class Interrupts:
    """The Ctrl-C of a shell at a terminal, also where a parent had it ignored."""

    def __init__(self) -> None:
        self._reading: FrameType | None = None
        """Where a line is waited for; only there the handler raises while it is typed."""
        self._repeater: _Repeater | None = None
        self._is_pending = False
        self._is_running = False
        self._react: Callable[[], None] | None = None

    def __enter__(self) -> Interrupts:
        self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    # -- what the shell does ---------------------------------------------------------------

    def read(self, line: Callable[[], T]) -> T:
        """Wait for a line; a Ctrl-C, now or since the last statement, gives it up.

        ``line`` is a built-in function: the handler raises in this frame only.
        """
        self._repeater = repeater = _Repeater()
        try:
            self._reading = sys._getframe()
            self._raise_pending()
            return line()
        finally:
            # From here on a signal is for what comes next.
            self._reading = None
            repeater.close()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run a statement; a Ctrl-C, now or since its line was read, breaks it off."""
        self._is_running = True
        try:
            self._raise_pending()
            yield
        finally:
            self._is_running = False

    @contextmanager
    def reacting(self, react: Callable[[], None]) -> Iterator[None]:
        """Call this for the first Ctrl-C; the second breaks off."""
        self._react = react
        try:
            yield
        finally:
            self._react = None

    def give_up(self) -> None:
        """What was typed or ran is given up, and every Ctrl-C until now was for that."""
        self._is_pending = False

    # -- the signal ------------------------------------------------------------------------

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._reading is not None:
            # Elsewhere than in its frame it would be dropped, and will be sent again.
            if frame is self._reading and self._repeater is not None:
                self._repeater.is_heard = True
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
    """Sends a Ctrl-C that comes while one line is read again, until it is heard."""

    def __init__(self) -> None:
        self.is_heard = False
        self._is_closed = False
        self._sending = threading.Lock()
        self._reader = threading.get_ident()
        self._receive, self._send = os.pipe()
        os.set_blocking(self._send, False)
        # Python writes the number of a signal there as it comes, long before the handler runs.
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
            while signal.SIGINT in received and self._is_wanted():
                time.sleep(_AGAIN_SECONDS)
                with self._sending:
                    if self._is_wanted():
                        signal.pthread_kill(self._reader, signal.SIGINT)

    def _is_wanted(self) -> bool:
        return not self.is_heard and not self._is_closed
