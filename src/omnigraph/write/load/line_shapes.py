"""Checks on the bytes of a block of JSON lines before and after they are parsed.

Parsers that are fast take several records on a line, records over several lines, and the last of
two equal names. What they were given is therefore counted here, exactly.
"""

from __future__ import annotations

import re

import numpy as np

_LINE_END, _RETURN = ord("\n"), ord("\r")
_QUOTE, _COLON = ord('"'), ord(":")
_OPEN, _CLOSE = ord("{"), ord("}")
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"([ \t\r\n]*+:)?', re.DOTALL)


def records_by_look(block: bytes) -> int | None:
    """How many lines a block has, when each looks like a record; none when some does not.

    Inside a record nothing opens right after something closed. Where every line but the last ends
    with a bracket that closes, and the next begins with one that opens, all line ends lie between
    records; if there are as many records as lines, each line is one.

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
    """An upper bound of the number of names in the objects of valid JSON; none if unknown.

    >>> most_names(b'{"a":{"b":":"}}'), most_names(b'{"a" :1}')
    (3, None)
    """
    content = np.frombuffer(block, dtype=np.uint8)
    before = content[np.flatnonzero(content == _COLON) - 1]
    # Every name has a quote before its colon, unless there is space between; strings only add more.
    return int(np.count_nonzero(before == _QUOTE)) if (before > ord(" ")).all() else None


def has_names(block: bytes, count: int) -> bool:
    """Whether the objects of valid JSON have exactly ``count`` names, of which that many differ.

    So there may be more of them, never fewer.

    >>> has_names(b'{"a":{"b":":"}}', 2), has_names(b'{"a":1,"a":2}', 1)
    (True, False)
    """
    return most_names(block) == count or sum(map(bool, _STRING.findall(block))) == count
