"""Decodes blocks of JSON lines that are alike, without a Python object for each value.

Programs usually write the records of a type with the same names in the same order, so the lines of
a block differ only in their values. The first line tells where the values are; every other byte of
the block is compared with it, and the values are copied to Arrow columns. As with ``decoders``, a
block is decoded only if the result equals that of the plain reader; all others are left to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.schema.catalog import Catalog, EdgeType, EntityType
from omnigraph.lang.types import PropType, Scalar
from omnigraph.lang.values.arrow import arrow_type
from omnigraph.lang.values.columns import convert_column
from omnigraph.records import dataclass
from omnigraph.storage.tables.store import KEY

_QUOTE, _LINE_END, _SPACE = ord('"'), ord("\n"), ord(" ")
_TOKEN = re.compile(rb'"([^"]*)"|([{}:,])|(-?[0-9][0-9.eE+-]*|true|false|null)| +')
_ENDS = {"from": "src", "to": "dst"}
_WORDS = ("type", "edge")
# Nobody writes more names into one record than this; a longer line is read in another way.
_MOST_VALUES = 256
_INTEGER = r"^-?(?:0|[1-9][0-9]{0,19})$"
# Integers are floats up to the size at which several become the same float; minus zero would
# keep its sign.
_FLOAT = (
    r"^(?:-?(?:0|[1-9][0-9]*)(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)"
    r"|0|-?[1-9][0-9]{0,%d})$"
)
_FLOATS = {Scalar.F64: _FLOAT % 14, Scalar.F32: _FLOAT % 6}
_NULL, _TRUE, _FALSE = (pa.scalar(text, pa.string()) for text in ("null", "true", "false"))

_Positions: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Uniform:
    """The records of a block: all have one type, and each is one line."""

    entity_type: EntityType
    columns: Mapping[str, pa.Array]
    """The properties, and the ends of edges."""
    given: pa.Array | None
    """The ids, if the records have any."""
    rows: int


@dataclass(frozen=True, slots=True)
class _Value:
    """Where a value is in the first line, and relative to the quotes of every line."""

    path: tuple[str, ...]
    start: int
    end: int
    quote: int
    """The number of quotes before it in its line."""
    is_text: bool


class UniformDecoder:
    """Decodes the blocks of one stream."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def decode(self, block: bytes) -> Uniform | None:
        """The records of a block; ``None`` if its lines are not alike, or unusual."""
        line = block[: block.find(b"\n") + 1].removesuffix(b"\n") or block
        values = _values_of(line)
        record = None if values is None else self._record(values, line)
        if values is None or record is None or b"\\" in block:
            return None
        entity_type, constant, slots = record
        lines = _Lines.of(block, line, [value for value in values if value not in constant])
        if lines is None:
            return None
        columns: dict[str, pa.Array] = {}
        for name, prop in entity_type.properties.items():
            value = slots.get(name)
            column = _column(prop.type, value, lines)
            if column is None:
                return None
            columns[name] = column
        given = None
        for name in (*_ENDS.values(), KEY):
            if name in slots:
                texts = lines.texts(slots[name])
                if name == KEY:
                    given = texts
                else:
                    columns[name] = texts
        return Uniform(entity_type, columns, given, lines.rows)

    def _record(
        self, values: list[_Value], line: bytes
    ) -> tuple[EntityType, list[_Value], dict[str, _Value]] | None:
        """The type of a record, the values that all records share, and the others by column."""
        by_path = {value.path: value for value in values}
        words = [by_path[(word,)] for word in _WORDS if (word,) in by_path]
        if len(by_path) < len(values) or len(words) != 1 or not words[0].is_text:
            return None
        (word,) = words
        name = line[word.start : word.end].decode(errors="replace")
        catalog = self._catalog
        types: Mapping[str, EntityType] = (
            catalog.edge_types if word.path == ("edge",) else catalog.node_types
        )
        entity_type = types.get(name)
        if entity_type is None or not _is_flat(entity_type):
            return None
        ends = _ENDS if isinstance(entity_type, EdgeType) else {}
        slots: dict[str, _Value] = {}
        for path, value in by_path.items():
            match path:
                case (end,) if end in ends:
                    column = ends[end]
                case ("data", prop) if prop in entity_type.properties:
                    column = prop
                case (key,) | ("data", key) if key == KEY:
                    column = KEY
                case _ if value is word:
                    continue
                case _:
                    return None
            is_property = len(path) > 1 and column != KEY
            if column in slots or not (is_property or value.is_text):
                return None
            slots[column] = value
        missing = [name for name in ends.values() if name not in slots]
        return None if missing else (entity_type, [word], slots)


def _is_flat(entity_type: EntityType) -> bool:
    types = [prop.type for prop in entity_type.properties.values()]
    return not any(type_.is_list or type_.is_vector or type_.is_blob for type_ in types)


# -- the first line -------------------------------------------------------------------------------


def _values_of(line: bytes) -> list[_Value] | None:
    """The texts and literals of a record, with the names that lead to them; ``None`` if unusual."""
    tokens = _tokens(line)
    if tokens is None:
        return None
    values: list[_Value] = []
    rest = iter(tokens)
    is_read = _read_object(rest, (), values) and next(rest, None) is None
    return values if is_read and 0 < len(values) <= _MOST_VALUES else None


@dataclass(frozen=True, slots=True)
class _Token:
    mark: bytes
    """A bracket, colon or comma; empty for a text or a literal."""
    start: int
    end: int
    quote: int
    text: bytes | None = None


def _tokens(line: bytes) -> list[_Token] | None:
    tokens: list[_Token] = []
    position = quotes = 0
    for match in _TOKEN.finditer(line):
        if match.start() != position:
            return None
        position = match.end()
        text, mark, literal = match.groups()
        if text is not None:
            tokens.append(_Token(b"", match.start(1), match.end(1), quotes, text))
            quotes += 2
        elif mark is not None or literal is not None:
            tokens.append(_Token(mark or b"", match.start(), position, quotes))
    return tokens if position == len(line) else None


def _read_object(
    tokens: Iterator[_Token], names: tuple[str, ...], values: list[_Value], *, is_open: bool = False
) -> bool:
    """Read an object, its bracket included; false if it is none, or an empty or a deep one."""
    if not is_open and _next(tokens).mark != b"{":
        return False
    while True:
        name, colon, value = _next(tokens), _next(tokens), _next(tokens)
        if name.text is None or colon.mark != b":":
            return False
        try:
            path = (*names, name.text.decode())
        except UnicodeDecodeError:
            return False
        if value.mark == b"{":
            if names or not _read_object(tokens, path, values, is_open=True):
                return False
        elif value.mark:
            return False
        else:
            values.append(_Value(path, value.start, value.end, value.quote, value.text is not None))
        end = _next(tokens).mark
        if end != b",":
            return end == b"}"


_NOTHING = _Token(b"?", 0, 0, 0)


def _next(tokens: Iterator[_Token]) -> _Token:
    return next(tokens, _NOTHING)


# -- all lines ------------------------------------------------------------------------------------


class _Lines:
    """The lines of a block, each of which has its values at the same place among its quotes."""

    def __init__(self, block: bytes, quotes: _Positions, starts: _Positions, ends: _Positions):
        self._block = block
        self._quotes = quotes
        self._starts = starts
        self._ends = ends
        self.rows = len(starts)
        self._bounds: dict[_Value, tuple[_Positions, _Positions]] = {}

    @classmethod
    def of(cls, block: bytes, line: bytes, values: list[_Value]) -> _Lines | None:
        """The lines of a block; ``None`` if one differs from the first in more than its values."""
        content = np.frombuffer(block, dtype=np.uint8)
        ends = np.flatnonzero(content == _LINE_END)
        # A text has no line end, nor another control character.
        if np.count_nonzero(content < _SPACE) != len(ends):
            return None
        if content[-1] != _LINE_END:
            ends = np.append(ends, len(content))
        starts = np.concatenate([[0], ends[:-1] + 1])
        every = np.flatnonzero(content == _QUOTE)
        per_line = line.count(b'"')
        if len(every) != per_line * len(ends):
            return None
        quotes = every.reshape(len(ends), per_line)
        if (quotes[:, 0] < starts).any() or (quotes[:, -1] >= ends).any():
            return None
        if not block.isascii():
            try:
                block.decode()
            except UnicodeDecodeError:
                return None
        lines = cls(block, quotes, starts, ends)
        return lines if lines._is_alike(content, line, values) else None

    def _is_alike(self, content: npt.NDArray[np.uint8], line: bytes, values: list[_Value]) -> bool:
        """Whether all bytes outside of the values are those of the first line."""
        at, done = self._starts, 0
        template = content[: len(line)]
        ends = [(value, value.start) for value in values]
        for value, end in [*ends, (None, len(line))]:
            start = self._ends
            if value is not None:
                start, until = self._locate(value, line)
                self._bounds[value] = (start, until)
            length = end - done
            if (start - at != length).any():
                return False
            if length and (_pieces(content, at, length) != template[done:end]).any():
                return False
            if value is not None:
                at, done = until, value.end
                if (until < start).any() or (not value.is_text and (until == start).any()):
                    return False
        return True

    def _locate(self, value: _Value, line: bytes) -> tuple[_Positions, _Positions]:
        """Where a value starts and ends in each line, by the quotes around it."""
        quotes = self._quotes
        if value.is_text:
            return quotes[:, value.quote] + 1, quotes[:, value.quote + 1]
        start = quotes[:, value.quote - 1] + (value.start - _quote_before(line, value.start))
        if value.quote == quotes.shape[1]:
            return start, self._ends - (len(line) - value.end)
        return start, quotes[:, value.quote] - (line.find(b'"', value.end) - value.end)

    def texts(self, value: _Value) -> pa.Array:
        """The texts of a value in all lines."""
        starts, ends = self._bounds[value]
        length = int(ends[0] - starts[0])
        if length and (ends - starts == length).all():
            content = np.frombuffer(self._block, dtype=np.uint8)
            even = np.arange(0, (self.rows + 1) * length, length, dtype=np.int32)
            data = [pa.py_buffer(even), pa.py_buffer(_pieces(content, starts, length))]
            return pa.StringArray.from_buffers(self.rows, *data)
        bounds = np.empty(2 * self.rows, dtype=np.int32)
        bounds[0::2], bounds[1::2] = starts, ends
        data = [pa.py_buffer(bounds), pa.py_buffer(self._block)]
        with_gaps = pa.StringArray.from_buffers(2 * self.rows - 1, *data)
        return with_gaps.take(pa.array(np.arange(0, 2 * self.rows, 2)))


def _pieces(
    content: npt.NDArray[np.uint8], starts: _Positions, length: int
) -> npt.NDArray[np.uint8]:
    """Pieces of ``length`` bytes, one for each start, copied."""
    return np.lib.stride_tricks.sliding_window_view(content, length)[starts]


def _quote_before(line: bytes, position: int) -> int:
    return line.rfind(b'"', 0, position)


# -- columns --------------------------------------------------------------------------------------


def _column(type_: PropType, value: _Value | None, lines: _Lines) -> pa.Array | None:
    """The column of a property; ``None`` if some value is unusual."""
    target = arrow_type(type_)
    if value is None:
        return pa.nulls(lines.rows, target) if type_.nullable else None
    texts = lines.texts(value)
    if value.is_text:
        if type_.scalar is Scalar.STRING:
            return texts
        if type_.scalar not in (Scalar.DATE, Scalar.DATETIME):
            return None
        column, problems = convert_column("", type_, texts.to_pylist(), is_typed=True)
        return None if problems else column
    is_null = pc.equal(texts, _NULL)
    if pc.any(is_null).as_py():
        if not type_.nullable:
            return None
        texts = pc.if_else(is_null, pa.scalar(None, pa.string()), texts)
    if texts.null_count == len(texts):
        return pa.nulls(lines.rows, target)
    try:
        return _literals(type_.scalar, texts, target)
    except pa.ArrowInvalid:
        return None


def _literals(scalar: Scalar, texts: pa.Array, target: pa.DataType) -> pa.Array | None:
    if scalar is Scalar.BOOL:
        is_true = pc.equal(texts, _TRUE)
        return is_true if _all(pc.or_(is_true, pc.equal(texts, _FALSE))) else None
    if scalar.is_integer:
        return texts.cast(target) if _all(pc.match_substring_regex(texts, _INTEGER)) else None
    if scalar not in _FLOATS or not _all(pc.match_substring_regex(texts, _FLOATS[scalar])):
        return None
    numbers = texts.cast(pa.float64()).cast(target, safe=False)
    return numbers if _all(pc.is_finite(numbers)) else None


def _all(mask: Any) -> bool:
    return pc.all(mask).as_py() is not False
