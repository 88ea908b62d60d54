"""The input of the shell: from a terminal, with editing and history, or from a pipe.

Editing needs ``readline``, which some Python builds lack; without it, plain lines are read.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Protocol

from omnigraph.cli import files
from omnigraph.cli.output import terminal
from omnigraph.cli.shell.interrupts import ShellInterrupts
from omnigraph.cli.shell.statements import is_blank, is_complete
from omnigraph.errors import InputError

MAX_ENTRIES = 1_000
CONTINUATION = "      ...> "
SIGNS = (".", "\\")
"""The first character of a shell command; a statement never starts with one."""

BARE = ("help", "quit", "exit")
"""Commands that also work without a sign."""

_DELIMITERS = " \t\n{}()[],:=<>\"'"
"""Word separators for completion; dots, signs and slashes are part of a word."""

Candidates = Callable[[str, str], Sequence[str]]
"""From the text before the cursor, and the word at it, to the completions of the word."""


class LineSource(Protocol):
    """A source of input lines."""

    is_live: bool
    """Whether a user types them."""

    def read(self, prompt: str) -> str | None:
        """The next line; ``None`` at the end."""

    def keep(self, lines: Sequence[str]) -> None:
        """Add a statement to the history."""


class StatementReader:
    """Assembles lines into commands and statements."""

    def __init__(self, lines: LineSource) -> None:
        self._lines = lines
        self._waiting: deque[str] = deque()
        self.pending: list[str] = []
        """The lines of an incomplete statement."""

    def next(self, prompt: str) -> str | None:
        """The next command or statement; ``None`` at the end."""
        self.pending = []
        while True:
            is_typed = not self._waiting and self._lines.is_live
            line = self._line(CONTINUATION if self.pending else prompt)
            if line is None:
                return self._rest()
            blank = not line.strip()
            if not self.pending:
                if blank:
                    continue
                if is_command(line):
                    self._lines.keep([line.rstrip()])
                    return line.strip()
            self.pending.append(line)
            text = "\n".join(self.pending)
            # A blank line ends a typed statement; in files, queries contain blank lines.
            if (blank and is_typed) or is_complete(text):
                if is_blank(text):
                    self.pending = []
                    continue
                self._lines.keep([line for line in self.pending if line.strip()])
                return text

    def _line(self, prompt: str) -> str | None:
        if not self._waiting:
            line = self._lines.read(prompt)
            if line is None:
                return None
            # Pasted text arrives as one line that contains newlines.
            self._waiting.extend(line.split("\n"))
        return self._waiting.popleft()

    def _rest(self) -> str | None:
        """An incomplete statement at the end of a script; at a terminal it is dropped."""
        text = "\n".join(self.pending)
        return None if self._lines.is_live or is_blank(text) else text


def is_command(line: str) -> bool:
    """Whether a line is a shell command.

    >>> is_command(r"\\branch dev"), is_command("quit"), is_command("match { $p: Person }")
    (True, True, False)
    """
    text = line.strip()
    return text.startswith(SIGNS) or text.removesuffix(";").rstrip() in BARE


class PipedLines:
    """Lines from a file or a pipe."""

    is_live = False

    def read(self, prompt: str) -> str | None:
        line = files.stdin_stream().readline()
        if not line:
            return None
        try:
            return line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            raise InputError(
                f"{files.STDIN_NAME}: not UTF-8 text", hint="save the file as UTF-8"
            ) from None

    def keep(self, lines: Sequence[str]) -> None:
        """Scripts have no history."""


class TerminalLines:
    """Lines typed at a terminal."""

    is_live = True

    def __init__(
        self, history: ShellHistory | None, candidates: Candidates, interrupts: ShellInterrupts
    ) -> None:
        self._history = history
        self._interrupts = interrupts
        self._candidates = candidates
        self._matches: Sequence[str] = ()
        self._readline = _readline() if terminal.is_terminal(sys.stdout) else None
        if self._readline is not None:
            self._readline.set_auto_history(False)
            self._readline.set_completer_delims(_DELIMITERS)
            self._readline.set_completer(self._complete)
            is_libedit = "libedit" in (self._readline.__doc__ or "")
            self._readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")
            for entry in [] if history is None else history.entries():
                self._readline.add_history(entry)

    def read(self, prompt: str) -> str | None:
        if not terminal.is_terminal(sys.stdout):
            # Results are redirected; the prompt is not part of them.
            terminal.prompt(prompt)
            line = self._interrupts.read(sys.stdin.readline)
            return line.rstrip("\r\n") if line else None
        try:
            line = self._interrupts.read(partial(input, prompt))
            # Python passes undecodable bytes through.
            line.encode("utf-8")
            return line
        except EOFError:
            return None
        except UnicodeError:
            terminal.warn("the line is not UTF-8 text and was ignored")
            return ""

    def keep(self, lines: Sequence[str]) -> None:
        """One entry per statement; one with a line comment keeps its lines."""
        if not lines or lines[0].startswith(" "):
            return
        entries = (
            lines if any("//" in line for line in lines) else [" ".join(map(str.strip, lines))]
        )
        for entry in entries:
            if self._readline is not None:
                self._readline.add_history(entry)
            if self._history is not None:
                self._history.add(entry)

    def _complete(self, text: str, state: int) -> str | None:
        """The completer protocol of readline: one candidate per call."""
        if self._readline is None:
            return None
        if state == 0:
            before = self._readline.get_line_buffer()[: self._readline.get_begidx()]
            self._matches = self._candidates(before, text)
        return self._matches[state] if state < len(self._matches) else None


def _readline() -> ModuleType | None:
    try:
        import readline
    except ImportError:
        return None
    return readline


class ShellHistory:
    """The history file: one line per entry, readable by its owner only, bounded in length."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: str | None = None
        self._is_on = True

    def entries(self) -> list[str]:
        """The newest entries, oldest first."""
        try:
            lines = self._path.read_text("utf-8", "replace").splitlines()
        except OSError:
            return []
        return [line for line in lines if line][-MAX_ENTRIES:]

    def add(self, entry: str) -> None:
        if entry == self._last or not self._is_on:
            return
        self._last = entry
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.chmod(self._path, 0o600)
                os.write(handle, f"{entry}\n".encode("utf-8", "surrogateescape"))
            finally:
                os.close(handle)
        except OSError as error:
            self._is_on = False
            terminal.warn(f"the history cannot be written: {terminal.describe_os_error(error)}")

    def trim(self) -> None:
        """Drop entries beyond the limit."""
        with suppress(OSError, InputError):
            count = len(self._path.read_bytes().splitlines())
            if count > MAX_ENTRIES:
                text = "".join(f"{entry}\n" for entry in self.entries())
                files.replace_text(str(self._path), text)
