"""Reads JSON records: usually one per line, but any white space may separate them.

Text is read in blocks of whole lines. Blocks of lines that are alike, and other regular blocks, are
decoded as columns by the decoders of the types; all others are read here, and errors are reported
only here. A block in which every line is one object is parsed at once; any other is read line by
line, and a record over several lines is gathered until its brackets are closed. After an unreadable
record the next line that starts with a bracket begins a new one. A name that appears twice in one
object is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, BinaryIO

import numpy as np

from omnigraph.lang.values.spelling import show
from omnigraph.records import dataclass
from omnigraph.write.conform import first_repeated
from omnigraph.write.load.decoders import Decoders
from omnigraph.write.load.intake import Intake
from omnigraph.write.load.records import Records
from omnigraph.write.load.rejects import source_line

_BLOCK = 1 << 20
_MOST_UNTRIED = 32
_MARK = b"\xef\xbb\xbf"
# Without possessive quantifiers the search needs many bytes of memory per byte of input.
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"')
_SEVERAL = re.compile(rb"\}\s*,\s*\{")
_SPACE = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Extent:
    """The lines and records read so far; the next split is numbered from here."""

    lines: int
    records: int
    is_open: bool = False
    """Whether the stream ended inside a record, which may continue in the next split."""


def read_records(
    stream: BinaryIO, intake: Intake, name: str, *, is_first: bool = True, is_last: bool = True
) -> Extent:
    """Read every record of a stream: a file, or whole lines from the middle of one.

    Lines and records are numbered from 1. Only the first lines of a file may begin with a byte
    order mark, and an incomplete record is an error only in the last ones.
    """
    return _NdjsonReader(intake, name).run(stream, is_first, is_last)


class _Refused(ValueError):
    """Well-formed JSON that is not accepted."""


class _NdjsonReader:
    """One stream; ``_gathered`` are the lines of a record that is not complete yet."""

    def __init__(self, intake: Intake, name: str) -> None:
        self._intake = intake
        self._file = intake.open_file(name)
        self._records = Records(intake, self._file)
        self._line = 0
        self._gathered: list[str] = []
        self._start = self._depth = self._size = 0
        self._unusual = _Unusual()
        self._mixed = _Unusual()

    def run(self, stream: BinaryIO, is_first: bool = True, is_last: bool = True) -> Extent:
        for block in self._blocks(stream, is_first):
            self._take_block(block)
            self._intake.count_bytes(len(block))
        is_open = bool(self._gathered)
        if is_open and is_last:
            self._finish()
        return Extent(self._line, self._records.count, is_open)

    def _blocks(self, stream: BinaryIO, is_first: bool) -> Iterator[bytes]:
        """Blocks of whole lines, without the byte order mark."""
        parts: list[bytes] = []
        size = 0
        while piece := stream.read(_BLOCK):
            if is_first:
                piece, is_first = piece.removeprefix(_MARK), False
            cut = piece.rfind(b"\n") + 1
            if not cut:
                parts.append(piece)
                size += len(piece)
                self._intake.check_length(self._file, self._line + 1, size)
                continue
            yield b"".join((*parts, piece[:cut]))
            parts, size = [piece[cut:]], len(piece) - cut
        if rest := b"".join(parts):
            yield rest

    # -- many lines at once ----------------------------------------------------------------

    def _take_block(self, block: bytes) -> None:
        """Read whole lines: at once, around the few unusual ones, or one by one."""
        decoders = self._intake.decoders
        if decoders is None or self._gathered or self._unusual.is_expected():
            self._take_lines(block)
        elif not self._take_uniform(decoders, block) and not self._take_decoded(decoders, block):
            runs = decoders.runs(block)
            self._unusual.was(runs is None)
            for run in (block,) if runs is None else runs:
                if runs is None or self._gathered or not self._take_decoded(decoders, run):
                    self._take_lines(run)

    def _take_decoded(self, decoders: Decoders, block: bytes) -> bool:
        """Read a block by the decoders of the types; false if they do not accept it."""
        by_type = decoders.decode(block)
        if by_type is None:
            return False
        self._unusual.was(False)
        first = source_line(self._file, self._line + 1)
        for decoded in by_type:
            self._intake.gatherer(decoded.entity_type).add_all(
                decoded.columns, decoded.lines + first
            )
            self._line += len(decoded.lines)
            self._records.count += len(decoded.lines)
        self._intake.check()
        return True

    def _take_uniform(self, decoders: Decoders, block: bytes) -> bool:
        """Read a block of lines that are alike; false if they are not."""
        if self._mixed.is_expected():
            return False
        uniform = decoders.uniform.decode(block)
        self._mixed.was(uniform is None)
        if uniform is None:
            return False
        self._unusual.was(False)
        first = source_line(self._file, self._line + 1)
        lines = np.arange(first, first + uniform.rows)
        self._intake.gatherer(uniform.entity_type).add_typed(uniform.columns, uniform.given, lines)
        self._line += uniform.rows
        self._records.count += uniform.rows
        self._intake.check()
        return True

    def _take_lines(self, block: bytes) -> None:
        lines = block.count(b"\n") + (not block.endswith(b"\n"))
        values = None if self._gathered else _whole(block, lines)
        if values is None:
            for line in block.removesuffix(b"\n").split(b"\n"):
                self._take_line(line)
        else:
            self._records.text_of = _line_of(block, self._line + 1)
            self._records.take_all(values, self._line + 1)
            self._line += lines

    # -- line by line --------------------------------------------------------------------

    def _take_line(self, line: bytes) -> None:
        self._line += 1
        text: str | None = None
        with suppress(UnicodeDecodeError):
            text = line.decode("utf-8")
        if text is None:
            self._gathered = []
            self._invalid(self._line, "the text is not UTF-8")
            return
        if self._gathered and text.startswith("{") and not self._may_go_on():
            self._finish()
        if not self._gathered:
            self._take_text(text, self._line)
            return
        self._gathered.append(text)
        self._depth += _opened(text)
        self._size += len(line) + 1
        self._intake.check_length(self._file, self._start, self._size)
        if self._depth <= 0:
            self._finish()

    def _take_text(self, text: str, first: int, *, is_whole: bool = False) -> None:
        """Read all values of a text; an incomplete object is gathered, unless ``is_whole``."""
        position = 0
        while True:
            while position < len(text) and text[position] in _SPACE:
                position += 1
            if position == len(text):
                return
            value, end = _parse(text, position)
            if isinstance(value, _Bad):
                if not is_whole and value.is_begun and text[position] == "{":
                    self._begin(text[position:])
                else:
                    self._invalid(first + text.count("\n", 0, end), value.reason)
                return
            record = text[position:end]
            self._records.text_of = lambda _, record=record: record
            self._records.take(value, first + text.count("\n", 0, position))
            position = end

    def _begin(self, text: str) -> None:
        self._gathered = [text]
        self._start, self._depth, self._size = self._line, _opened(text), len(text)

    def _may_go_on(self) -> bool:
        """Whether the record may continue with an object here; if not, a new record begins."""
        text = "\n".join(self._gathered) + "\n{"
        position = 0
        # A line may end one record and begin the next: the last one counts.
        while True:
            while text[position] in _SPACE:
                position += 1
            value, end = _parse(text, position)
            if isinstance(value, _Bad):
                return value.is_begun and position < len(text) - 1
            position = end

    def _finish(self) -> None:
        text, start = "\n".join(self._gathered), self._start
        self._gathered = []
        self._take_text(text, start, is_whole=True)

    def _invalid(self, line: int, reason: str) -> None:
        self._records.count += 1
        counted = ("invalid JSON at record", self._records.count)
        self._intake.reject(self._file, line, reason, counted=counted)


class _Unusual:
    """Predicts unusual blocks from recent ones, so that decoding is attempted less often."""

    def __init__(self) -> None:
        self._next = 1
        self._left = 0

    def is_expected(self) -> bool:
        self._left -= 1
        return self._left >= 0

    def was(self, so: bool) -> None:
        """Record what a block turned out to be."""
        self._left = self._next if so else 0
        self._next = min(2 * self._next, _MOST_UNTRIED) if so else 1


def _whole(block: bytes, lines: int) -> list[Any] | None:
    """The objects of a block in which each line is one; ``None`` for any other block.

    Lines are parsed as the items of one array. No line has a comma between two objects, so there
    are as many objects as lines only if each line is one.
    """
    if _SEVERAL.search(block) is not None:
        return None
    try:
        text = block.removesuffix(b"\n").decode("utf-8").replace("\n", ",")
        values: list[Any] = _DECODER.decode(f"[{text}]")
    except (ValueError, RecursionError):
        return None
    return values if len(values) == lines and set(map(type, values)) == {dict} else None


def _line_of(block: bytes, first: int) -> Callable[[int], str]:
    """The texts of a block by the numbers of their lines."""
    lines: list[bytes] = []

    def text_of(line: int) -> str:
        if not lines:
            lines.extend(block.split(b"\n"))
        return lines[line - first].decode("utf-8").strip()

    return text_of


def _opened(text: str) -> int:
    """The number of brackets outside of strings that a line opens and does not close."""
    bare = _STRING.sub("", text)
    return bare.count("{") + bare.count("[") - bare.count("}") - bare.count("]")


@dataclass(frozen=True, slots=True)
class _Bad:
    """Text that is not a JSON value; ``is_begun`` if it may be the beginning of one."""

    reason: str
    is_begun: bool = False


def _parse(text: str, position: int) -> tuple[Any, int]:
    """The value at a position and its end, or ``_Bad`` and the position of the error."""
    try:
        return _DECODER.raw_decode(text, position)
    except json.JSONDecodeError as error:
        is_begun = error.pos >= len(text.rstrip(_SPACE))
        return _Bad(f"syntax error at column {error.colno}", is_begun), error.pos
    except _Refused as error:
        return _Bad(str(error)), position
    except RecursionError:
        return _Bad("the value is nested too deeply"), position
    except ValueError:
        return _Bad("a number has too many digits"), position


def _refuse_constant(name: str) -> Any:
    raise _Refused(f"{name} is not a JSON number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        repeated = first_repeated(name for name, _ in pairs)
        raise _Refused(f"the name '{show(repeated)}' appears twice")
    return members


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique)
