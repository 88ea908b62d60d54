"""Sections in which signal handlers do not raise, so that started processes are never leaked.

A handler such as that of Ctrl-C raises between any two instructions: also between the start of a
process and its assignment to a variable, or during clean-up. Blocking the signal does not prevent
that, since another thread may receive it and the handler still runs in the main thread. Inside a
section the handlers run as usual, but their exceptions are deferred until the section checks for
them, or to its end. ``react`` is called immediately, to end what the section waits for: it runs
inside the handler, and must neither block nor wait for a process.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

React = Callable[[], None]


class Interrupts:
    """The exception raised by handlers in the current section."""

    def __init__(self) -> None:
        self.raised: BaseException | None = None
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._reactions: list[React] = []

    def check(self) -> None:
        """Raise the exception that a handler raised since the section began."""
        if self.raised is not None:
            raise self.raised

    @contextmanager
    def reacting(self, react: React) -> Iterator[None]:
        """Call ``react`` at every interrupt of a block, and immediately if there was one before."""
        self._reactions.append(react)
        try:
            if self.raised is not None:
                react()
            yield
        finally:
            self._reactions.remove(react)

    def install(self) -> None:
        for number in sorted(signal.valid_signals(), key=lambda number: number != signal.SIGINT):
            handler = signal.getsignal(number)
            if callable(handler):
                self._handlers[number] = handler
                signal.signal(number, self._run)

    def uninstall(self) -> None:
        """Restore the handlers, Ctrl-C last: from then on it may raise."""
        for number in reversed(self._handlers):
            if signal.getsignal(number) == self._run:
                signal.signal(number, self._handlers[number])

    def _run(self, number: int, frame: FrameType | None) -> None:
        try:
            self._handlers[number](number, frame)
        except BaseException as error:
            if self.raised is None:
                self.raised = error
            for react in reversed(self._reactions):
                react()


_current: Interrupts | None = None
"""The section of the main thread, the only one in which handlers run."""


@contextmanager
def deferred_interrupts(react: React | None = None) -> Iterator[Interrupts]:
    """A section in which no handler raises; a nested section joins the outer one.

    >>> try:
    ...     with deferred_interrupts() as interrupts:
    ...         signal.raise_signal(signal.SIGINT)
    ...         print(repr(interrupts.raised))
    ... except KeyboardInterrupt:
    ...     print("raised at the end")
    KeyboardInterrupt()
    raised at the end
    """
    global _current
    if threading.current_thread() is not threading.main_thread():
        yield Interrupts()
        return
    interrupts = outer = _current
    if interrupts is None:
        interrupts = Interrupts()
    try:
        if outer is None:
            interrupts.install()
            _current = interrupts
        with interrupts.reacting(react or (lambda: None)):
            yield interrupts
    finally:
        if outer is None:
            _current = None
            interrupts.uninstall()
            interrupts.check()
