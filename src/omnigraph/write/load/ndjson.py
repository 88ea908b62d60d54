"""JSON records, one after the other: usually one a line, but any white space may part them.

Text is read in blocks of whole lines. The usual ones go through the decoders of the types; what
they leave alone is read here, and only here is said what is wrong with it. Where every line of a
block is one object, all of it is parsed at once; any other block is read line by line, and a record
that goes on over several lines is gathered until its brackets are closed. After a record that
cannot be read the next line that starts with a bracket begins a new one. A name that appears twice
in one object is refused: which of its values counts is nowhere said.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from omnigraph.lang.values.spelling import show
from omnigraph.write.column_names import first_repeated
from omnigraph.write.load.decoders import Decoders
from omnigraph.write.load.intake import Intake
from omnigraph.write.load.records import Records
from omnigraph.write.load.rejects import source_line

_BLOCK = 1 << 18
_MOST_UNTRIED = 32
_MARK = b"\xef\xbb\xbf"
# Without possessive repeats the search takes many bytes for each that it has passed.
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"')
_SEVERAL = re.compile(rb"\}\s*,\s*\{")
_SPACE = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Extent:
    """How much was read: what follows in the same file counts on from here."""

    lines: int
    records: int
    is_open: bool = False
    """Whether the stream ended inside a record, which may go on in what follows."""


def read_records(
    stream: BinaryIO, intake: Intake, name: str, *, is_first: bool = True, is_last: bool = True
) -> Extent:
    """Take every record of a stream in.

    The stream is a file, or whole lines out of the midst of one: then lines and records count from
    1 all the same, a byte order mark is no mark, and a record that is not ended is left alone.
    """
    return _NdjsonReader(intake, name).run(stream, is_first, is_last)


class _Refused(ValueError):
    """JSON that is right in form and cannot be taken."""


class _NdjsonReader:
    """One stream, line by line; what is gathered is the beginning of a record."""

    def __init__(self, intake: Intake, name: str) -> None:
        self._intake = intake
        self._file = intake.open_file(name)
        self._records = Records(intake, self._file)
        self._line = 0
        self._gathered: list[str] = []
        self._start = self._depth = self._size = 0
        self._unusual = _Unusual()

    def run(self, stream: BinaryIO, is_first: bool = True, is_last: bool = True) -> Extent:
        for block in self._blocks(stream, is_first):
            self._take_block(block)
            self._intake.count_bytes(len(block))
        is_open = bool(self._gathered)
        if is_open and is_last:
            self._finish()
        return Extent(self._line, self._records.count, is_open)

    def _blocks(self, stream: BinaryIO, is_first: bool) -> Iterator[bytes]:
        """Pieces of whole lines, without the mark at the beginning."""
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
        """Take whole lines: at once, around the few that are not usual, or one by one."""
        decoders = self._intake.decoders
        if decoders is None or self._gathered or self._unusual.is_expected():
            self._take_lines(block)
        elif not self._take_decoded(decoders, block):
            runs = decoders.runs(block)
            self._unusual.was(runs is None)
            for run in (block,) if runs is None else runs:
                if runs is None or self._gathered or not self._take_decoded(decoders, run):
                    self._take_lines(run)

    def _take_decoded(self, decoders: Decoders, block: bytes) -> bool:
        """Take a block by the decoders of the types; false when that may not be right for it."""
        by_type = decoders.decode(block)
        if by_type is None:
            return False
        self._unusual.was(False)
        first = source_line(self._file, self._line + 1)
        for decoded in by_type:
            self._intake.gatherer(decoded.kind).add_all(decoded.columns, decoded.lines + first)
            self._line += len(decoded.lines)
            self._records.count += len(decoded.lines)
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
        text = _decoded(line)
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
        """Take all values of a text; an object that is only begun is gathered, unless whole."""
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
        """Whether an object may stand here inside the record, or a new one begins."""
        text = "\n".join(self._gathered) + "\n{"
        position = 0
        # A line may end one record and begin the next: it is the last that counts.
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
    """Whether blocks are likely to be unusual, as all were of late; some are tried all the same."""

    def __init__(self) -> None:
        self._next = 1
        self._left = 0

    def is_expected(self) -> bool:
        self._left -= 1
        return self._left >= 0

    def was(self, so: bool) -> None:
        """What a block that was tried turned out to be."""
        self._left = self._next if so else 0
        self._next = min(2 * self._next, _MOST_UNTRIED) if so else 1


def _whole(block: bytes, lines: int) -> list[Any] | None:
    """The objects of a block in which each line is one; none when that is not so.

    Lines are parsed as the items of one array. As no line has a comma between two objects, there
    can be as many objects as lines only when each line is one by itself.
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


def _decoded(line: bytes) -> str | None:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _opened(text: str) -> int:
    """How many brackets a line opens and does not close, texts aside."""
    bare = _STRING.sub("", text)
    return bare.count("{") + bare.count("[") - bare.count("}") - bare.count("]")


@dataclass(frozen=True, slots=True)
class _Bad:
    """Text that is no JSON value; ``is_begun`` when it is one up to its end."""

    reason: str
    is_begun: bool = False


def _parse(text: str, position: int) -> tuple[Any, int]:
    """The value that starts at a position, and where it ends; else what is wrong, and where."""
    try:
        return _DECODER.raw_decode(text, position)
    except json.JSONDecodeError as error:
        is_begun = error.pos >= len(text.rstrip(_SPACE))
        return _Bad(f"cannot read on from column {error.colno}", is_begun), error.pos
    except _Refused as error:
        return _Bad(str(error)), position
    except RecursionError:
        return _Bad("the value is nested too deeply"), position
    except ValueError:
        return _Bad("a number has too many digits"), position


def _refuse_constant(name: str) -> Any:
    raise _Refused(f"{name} is no JSON number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        repeated = first_repeated(name for name, _ in pairs)
        raise _Refused(f"the name '{show(repeated)}' appears twice")
    return members


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique)
