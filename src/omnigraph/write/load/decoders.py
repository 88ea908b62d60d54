"""Decoders built from the catalog: convert blocks of JSON lines to columns of Python values.

They decode a block only if the result equals that of the plain reader in every value and type, and
leave all other blocks and all error messages to it. So their types are strict: an integer is not a
float, and unknown names are refused. Fast parsers accept several records on a line, records over
several lines, and the last of two equal names: lines and names are therefore counted here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from types import GenericAlias
from typing import Any, Literal, Union

import msgspec
import numpy as np
from msgspec import UNSET, Raw, UnsetType

from omnigraph.lang.schema.catalog import Catalog, EdgeType, EntityType
from omnigraph.lang.types import PropType
from omnigraph.lang.values.codecs import CODECS
from omnigraph.records import dataclass
from omnigraph.storage.tables.store import KEY
from omnigraph.write.load.uniform import UniformDecoder

_ENDS = {"src": "from", "dst": "to"}
# Only a block with a single long line is larger, and inspecting it takes as much memory.
_LARGEST = 16 << 20
# Lines per unusual line below which decoding whole blocks does not pay.
_LINES_PER_UNUSUAL = 64
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_LINE_END, _RETURN = ord("\n"), ord("\r")
_QUOTE, _COLON = ord('"'), ord(":")
_OPEN, _CLOSE = ord("{"), ord("}")
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"([ \t\r\n]*+:)?', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Decoded:
    """The records of one type in a block, and their lines, counted from 0."""

    entity_type: EntityType
    columns: Mapping[str, list[Any]]
    lines: np.ndarray


class Decoders:
    """One decoder for each type of a catalog, created on first use."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.uniform = UniformDecoder(catalog)
        self._decoders: dict[tuple[Any, Any], _KindDecoder] = {}
        self._envelope = msgspec.json.Decoder(_ENVELOPE).decode_lines

    def decode(self, block: bytes) -> list[Decoded] | None:
        """The records of a block by type; ``None`` if the plain reader has to read it."""
        count = records_by_look(block) if len(block) <= _LARGEST else None
        if count is None:
            return None
        try:
            return self._of_one_type(block, count) or self._of_several(block, count)
        except _UNREADABLE:
            return None

    def _of_one_type(self, block: bytes, count: int) -> list[Decoded] | None:
        """All records, if all have the type of the first."""
        head = self._envelope(block[: block.find(b"\n") + 1 or None])[0]
        decoder = self._find(head)
        if decoder is None:
            return None
        try:
            records = decoder.records(block)
        except _UNREADABLE:
            return None
        batch = decoder.columns(records, np.arange(count))
        return _complete(block, [batch]) if len(records) == count else None

    def _of_several(self, block: bytes, count: int) -> list[Decoded] | None:
        """All records of mixed types: the heads are parsed first, then the data."""
        heads = self._envelope(block)
        groups: dict[tuple[Any, Any], list[int]] = {}
        for line, head in enumerate(heads):
            groups.setdefault((head.type, head.edge), []).append(line)
        if len(groups) == 1:
            # This was tried already.
            return None
        batches = []
        for lines in groups.values():
            of_type = [heads[line] for line in lines]
            decoder = self._find(of_type[0])
            if decoder is None:
                return None
            batch = decoder.columns_of_heads(of_type, np.array(lines))
            if batch is None:
                return None
            batches.append(batch)
        return _complete(block, batches) if len(heads) == count else None

    def runs(self, block: bytes) -> list[bytes] | None:
        """The block split at its unusual lines; ``None`` if there are many of them.

        Decoding a run may still fail: some lines are unusual only in context.
        """
        lines = block.removesuffix(b"\n").split(b"\n")
        kinds = [self._is_usual(line) for line in lines]
        unusual = kinds.count(False)
        if not unusual or unusual * _LINES_PER_UNUSUAL > len(lines):
            return None
        cuts = [n for n in range(1, len(lines)) if kinds[n] is not kinds[n - 1]]
        parts = [lines[a:b] for a, b in zip([0, *cuts], [*cuts, len(lines)], strict=True)]
        *first, last = (b"\n".join(part) for part in parts)
        return [*(part + b"\n" for part in first), last + b"\n" * block.endswith(b"\n")]

    def _is_usual(self, line: bytes) -> bool:
        """Whether a line is one record that its decoder accepts."""
        try:
            (head,) = self._envelope(line)
            decoder = self._find(head)
            return decoder is not None and len(decoder.records(line)) == 1
        except (*_UNREADABLE, ValueError):
            return False

    def _find(self, head: Any) -> _KindDecoder | None:
        """The decoder for the type that a record names."""
        name = (head.type, head.edge)
        if name not in self._decoders:
            types: Mapping[Any, EntityType] = {}
            if head.edge is UNSET:
                types = self._catalog.node_types
            elif head.type is UNSET:
                types = self._catalog.edge_types
            entity_type = types.get(name[0] if head.edge is UNSET else name[1])
            if entity_type is None:
                return None
            self._decoders[name] = _KindDecoder(entity_type)
        return self._decoders[name]


class _KindDecoder:
    """Records of one type."""

    def __init__(self, entity_type: EntityType) -> None:
        self.entity_type = entity_type
        self._is_edge = isinstance(entity_type, EdgeType)
        fields = {prop.name: _field(prop.type) for prop in entity_type.properties.values()}
        fields[KEY] = _OPTIONAL_ID
        data = _struct(fields)
        self._data = msgspec.json.Decoder(data).decode_lines
        self._getters: list[tuple[str, Callable[[Any], Any], bool]] = [
            (name, attrgetter(f"f{number}"), len(field) > 1)
            for number, (name, field) in enumerate(fields.items())
            if name != KEY
        ]
        self._get_id = attrgetter(f"f{len(fields) - 1}")
        # Without required properties, ``data`` may be absent.
        self._empty = data() if all(is_free for *_, is_free in self._getters) else None
        word = "edge" if self._is_edge else "type"
        record: dict[str, Any] = {
            word: (Literal[entity_type.name],),
            "data": (data,) if self._empty is None else (data | UnsetType, UNSET),
            KEY: (str | UnsetType, UNSET),
        }
        if self._is_edge:
            record |= dict.fromkeys(_ENDS.values(), (str,))
        whole = _struct(record, names=(word, "data", KEY, *_ENDS)[: len(record)])
        self.records: Callable[[bytes], list[Any]] = msgspec.json.Decoder(whole).decode_lines
        """All records of a block, if all have this type and none is unusual."""

    def columns(self, records: Sequence[Any], lines: np.ndarray) -> _Batch:
        """The columns of parsed records."""
        return self._columns(records, [record.data for record in records], lines)

    def columns_of_heads(self, heads: Sequence[Any], lines: np.ndarray) -> _Batch | None:
        """The columns of records whose data is not parsed; none for unusual ones."""
        ends = {type(end) for head in heads for end in (head.src, head.dst)}
        if ends != ({str} if self._is_edge else {UnsetType}):
            return None
        texts = [head.data for head in heads]
        missing = texts.count(UNSET)
        if missing and self._empty is None:
            return None
        data = self._data(b"\n".join(text for text in texts if text is not UNSET))
        if missing:
            parsed = iter(data)
            data = [UNSET if text is UNSET else next(parsed) for text in texts]
        return self._columns(heads, data, lines)

    def _columns(self, heads: Sequence[Any], data: list[Any], lines: np.ndarray) -> _Batch:
        columns: dict[str, list[Any]] = {}
        rows = len(heads)
        names = (4 if self._is_edge else 2) * rows
        if self._empty is not None and (missing := data.count(UNSET)):
            names -= missing
            data = [self._empty if members is UNSET else members for members in data]
        if self._is_edge:
            columns["src"] = [head.src for head in heads]
            columns["dst"] = [head.dst for head in heads]
        for name, get, is_free in self._getters:
            values = list(map(get, data))
            absent = values.count(UNSET) if is_free else 0
            if absent:
                values = [None if value is UNSET else value for value in values]
            columns[name] = values
            names += rows - absent
        columns[KEY] = [None] * rows
        return _Batch(Decoded(self.entity_type, columns, lines), names, heads, data, self._get_id)


@dataclass(slots=True)
class _Batch:
    """The columns of parsed records of one type; their ids are read only if they have any."""

    decoded: Decoded
    names: int
    """The number of names in the records; ids are included once they are read."""
    heads: Sequence[Any]
    data: list[Any]
    get_id: Callable[[Any], Any]

    def read_ids(self) -> bool:
        """Read the ids beside and inside the data; false if a record has both."""
        beside = [head.id for head in self.heads]
        inside = list(map(self.get_id, self.data))
        rows = len(beside)
        self.names += 2 * rows - beside.count(UNSET) - inside.count(UNSET)
        ids: list[Any] = []
        for outer, inner in zip(beside, inside, strict=True):
            if outer is not UNSET and inner is not UNSET:
                return False
            given = inner if outer is UNSET else outer
            ids.append(None if given is UNSET else given)
        self.decoded.columns[KEY][:] = ids
        return True


def _complete(block: bytes, batches: Sequence[_Batch]) -> list[Decoded] | None:
    """The decoded records of a block; ``None`` if a name or an id is given twice.

    If the block has no more names than were read, no record has an id, and none is looked for.
    """
    if most_names(block) != sum(batch.names for batch in batches):
        if not all(batch.read_ids() for batch in batches):
            return None
        if not has_names(block, sum(batch.names for batch in batches)):
            return None
    return [batch.decoded for batch in batches]


def _field(type_: PropType) -> tuple[Any, ...]:
    """The type of a property, and its default if it is absent."""
    # An integer is accepted as a float; the conversion checks whether it is exact.
    scalar: Any = Union[CODECS[type_.scalar].json_types]  # noqa: UP007
    is_nested = type_.is_list or type_.is_vector
    wanted: Any = GenericAlias(list, (scalar,)) if is_nested else scalar
    return (wanted | None | UnsetType, UNSET) if type_.nullable else (wanted,)


_OPTIONAL_ID = (str | int | None | UnsetType, UNSET)


def _struct(fields: Mapping[str, tuple[Any, ...]], names: Iterable[str] = ()) -> Any:
    """A class for objects with exactly these fields."""
    called = [*names] or [f"f{number}" for number in range(len(fields))]
    return msgspec.defstruct(
        "Record",
        [(mine, *field) for mine, field in zip(called, fields.values(), strict=True)],
        rename=dict(zip(called, fields, strict=True)),
        forbid_unknown_fields=True,
        kw_only=True,
        # They cannot form cycles, so the garbage collector can skip them.
        gc=False,
    )


_ENVELOPE = _struct(
    {
        "type": (str | UnsetType, UNSET),
        "edge": (str | UnsetType, UNSET),
        "from": (str | UnsetType, UNSET),
        "to": (str | UnsetType, UNSET),
        "data": (Raw | UnsetType, UNSET),
        KEY: (str | UnsetType, UNSET),
    },
    names=("type", "edge", "src", "dst", "data", KEY),
)


def records_by_look(block: bytes) -> int | None:
    """The number of lines of a block if each looks like a record, else ``None``.

    Inside a record no opening bracket directly follows a closing one. If every line but the last
    ends with a closing bracket and the next begins with an opening one, all line ends are between
    records; if there are as many records as lines, each line is one record.

    >>> records_by_look(b'{"a":1}\\n{"a":2}\\n'), records_by_look(b'{"a":\\n1}')
    (2, None)
    """
    content = np.frombuffer(block, dtype=np.uint8)
    if not len(content) or content[0] != _OPEN:
        return None
    ends = np.flatnonzero(content == _LINE_END)
    is_ended = bool(content[-1] == _LINE_END)
    inner = ends[:-1] if is_ended else ends
    before = content[inner - 1]
    is_closed = before == _CLOSE
    if not is_closed.all():
        is_closed |= (before == _RETURN) & (content[inner - 2] == _CLOSE)
    if not (is_closed.all() and (content[inner + 1] == _OPEN).all()):
        return None
    return len(ends) + (not is_ended)


def most_names(block: bytes) -> int | None:
    """An upper bound of the number of names in the objects of valid JSON; ``None`` if unknown.

    >>> most_names(b'{"a":{"b":":"}}'), most_names(b'{"a" :1}')
    (3, None)
    """
    content = np.frombuffer(block, dtype=np.uint8)
    before = content[np.flatnonzero(content == _COLON) - 1]
    # Every name has a quote before its colon, unless there is a space; strings only add to the
    # count.
    return int(np.count_nonzero(before == _QUOTE)) if (before > ord(" ")).all() else None


def has_names(block: bytes, count: int) -> bool:
    """Whether the objects of valid JSON have exactly ``count`` names, of which that many differ.

    So there may be more of them, never fewer.

    >>> has_names(b'{"a":{"b":":"}}', 2), has_names(b'{"a":1,"a":2}', 1)
    (True, False)
    """
    return most_names(block) == count or sum(map(bool, _STRING.findall(block))) == count
