"""JSON records, one after the other: usually one a line, but any white space may part them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from omnigraph.write.load.intake import Intake, Reject

_LONGEST_RECORD = 256 << 20
_MARK = b"\xef\xbb\xbf"
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')


def read_records(lines: Iterable[bytes], intake: Intake, name: str) -> None:
    """Take every record of a stream of lines in."""
    file = intake.open_file(name)
    for line, value in _values(lines, intake, file):
        _take(value, intake, file, line)


def take_records(records: Iterable[Any], intake: Intake, name: str) -> None:
    """Take records in that are Python values already; they count from 1."""
    file = intake.open_file(name)
    for number, record in enumerate(records, 1):
        _take(record, intake, file, number)


def _values(lines: Iterable[bytes], intake: Intake, file: int) -> Iterator[tuple[int, Any]]:
    """JSON values with the line that each begins on.

    A line that is one value is the usual case. Otherwise lines are gathered until every bracket
    is closed again, and then read as one text.
    """
    waiting: list[bytes] = []
    size = depth = start = 0
    for number, line in enumerate(lines, 1):
        if not waiting:
            if line.isspace() or not line:
                continue
            try:
                value = _parse(line.removeprefix(_MARK) if number == 1 else line)
            except json.JSONDecodeError:
                start, size, depth = number, 0, 0
            except ValueError as error:
                intake.reject(file, number, f"invalid JSON at record {number}: {error}")
                continue
            else:
                yield number, value
                continue
        waiting.append(line)
        size += len(line)
        depth += _opened(line)
        if size > _LONGEST_RECORD:
            raise Reject(intake.files[file], start, "the record is too long").error()
        if depth <= 0:
            yield from _gathered(waiting, intake, file, start)
            waiting = []
    if waiting:
        yield from _gathered(waiting, intake, file, start)


def _opened(line: bytes) -> int:
    """How many brackets a line opens and does not close, texts aside."""
    bare = _STRING.sub(b"", line)
    return bare.count(b"{") + bare.count(b"[") - bare.count(b"}") - bare.count(b"]")


def _gathered(
    waiting: list[bytes], intake: Intake, file: int, start: int
) -> Iterator[tuple[int, Any]]:
    try:
        found = list(_several(b"".join(waiting).removeprefix(_MARK), start))
    except json.JSONDecodeError as error:
        at = start + error.lineno - 1
        intake.reject(file, at, f"invalid JSON at record {start}: {error.msg.lower()}")
    except ValueError as error:
        intake.reject(file, start, f"invalid JSON at record {start}: {error}")
    else:
        yield from found


def _parse(line: bytes) -> Any:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("the text is not UTF-8") from None
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("the value is nested too deeply") from None


def _several(text: bytes, start: int) -> Iterator[tuple[int, Any]]:
    """All values of a text; a ``JSONDecodeError`` when it does not end with a whole one."""
    try:
        document = text.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("the text is not UTF-8") from None
    position = 0
    while True:
        while position < len(document) and document[position] in " \t\r\n":
            position += 1
        if position == len(document):
            return
        line = start + document.count("\n", 0, position)
        try:
            value, position = _DECODER.raw_decode(document, position)
        except RecursionError:
            raise ValueError("the value is nested too deeply") from None
        yield line, value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _take(value: Any, intake: Intake, file: int, line: int) -> None:
    if not isinstance(value, dict):
        intake.reject(file, line, "a record is a JSON object")
        return
    data = value.get("data", _EMPTY)
    if not isinstance(data, dict):
        intake.reject(file, line, "'data' is not an object", field="data")
        return
    name = value.get("type")
    if name is not None:
        kind = intake.catalog.node_types.get(name) if isinstance(name, str) else None
        if kind is None:
            reason = f"record {line}: unknown node type '{name}'"
            intake.reject(file, line, reason, field="type", value=str(name))
            return
        intake.gatherer(kind).add(data, None, file, line)
        return
    name = value.get("edge")
    if name is None:
        intake.reject(file, line, f"record {line}: expected 'type' or 'edge' field")
        return
    edge = intake.catalog.edge_types.get(name) if isinstance(name, str) else None
    if edge is None:
        reason = f"record {line}: unknown edge type '{name}'"
        intake.reject(file, line, reason, field="edge", value=str(name))
        return
    ends = (value.get("from"), value.get("to"))
    if None in ends:
        missing = "from" if ends[0] is None else "to"
        intake.reject(file, line, f"record {line}: edge missing '{missing}'", field=missing)
        return
    intake.gatherer(edge).add(data, ends, file, line)


_EMPTY: dict[str, Any] = {}
