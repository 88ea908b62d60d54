"""Strict YAML for configuration files: every value keeps its line, nothing is ignored.

A document is read as a tree of nodes. Repeated keys, unknown keys and values of another type are
refused with the line. A scalar is text only if YAML takes it for text: ``no`` or ``123`` must be
quoted, because other readers of the same file may take them for something else.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, Literal

from omnigraph.escaping import escape
from omnigraph.records import dataclass

LARGEST = 4 * 1024 * 1024
"""The characters of a configuration file, at most."""

ProblemKind = Literal["syntax", "type", "unknown_key", "duplicate_key", "missing_key"]

_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_DECIMAL = re.compile(r"-?[0-9]{1,20}\.[0-9]{1,20}([eE][-+][0-9]{1,2})?")
_PREFIX = "tag:yaml.org,2002:"


class YamlProblem(Exception):
    """Why a document is refused; readers turn it into an error of their own."""

    def __init__(self, message: str, line: int, kind: ProblemKind = "type") -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.kind = kind


@dataclass(frozen=True, slots=True)
class YamlValue:
    """A value of a document, the path to it, and its line."""

    node: Any
    path: str
    line: int

    @property
    def is_null(self) -> bool:
        return self.node is None or self.node.tag == f"{_PREFIX}null"

    @property
    def is_list(self) -> bool:
        return self.node is not None and self.node.id == "sequence"

    def _refuse(self, wanted: str) -> YamlProblem:
        return YamlProblem(f"{self.path or 'the file'} must be {wanted}", self.line)

    def mapping(self, keys: Collection[str] | None = None) -> dict[str, YamlValue]:
        """The entries of a mapping by key; ``keys`` are the only ones allowed.

        >>> parse_yaml("a: 1").mapping(("a", "b"))["a"].whole()
        1
        """
        if self.is_null:
            return {}
        if self.node.id != "mapping":
            raise self._refuse("a mapping")
        entries: dict[str, YamlValue] = {}
        for key, value in self.node.value:
            line = key.start_mark.line + 1
            if key.id != "scalar":
                raise YamlProblem(f"a key of {self.path or 'the file'} must be text", line)
            name = str(key.value)
            dotted = f"{self.path}.{name}" if self.path else name
            if keys is not None and name not in keys:
                raise YamlProblem(f"unknown key '{escape(dotted)}'", line, "unknown_key")
            if name in entries:
                raise YamlProblem(f"duplicate key '{escape(dotted)}'", line, "duplicate_key")
            if keys is None and key.tag != f"{_PREFIX}str":
                raise YamlProblem(f"key '{escape(dotted)}' must be text; quote it", line)
            entries[name] = YamlValue(value, dotted, value.start_mark.line + 1)
        return entries

    def required(self, entries: dict[str, YamlValue], key: str) -> YamlValue:
        """An entry of this mapping that must be there."""
        if key not in entries:
            dotted = f"{self.path}.{key}" if self.path else key
            raise YamlProblem(f"missing key '{dotted}'", self.line, "missing_key")
        return entries[key]

    def items(self) -> Iterator[YamlValue]:
        """The entries of a list; none for null."""
        if self.is_null:
            return
        if self.node.id != "sequence":
            raise self._refuse("a list")
        for index, item in enumerate(self.node.value):
            yield YamlValue(item, f"{self.path}[{index}]", item.start_mark.line + 1)

    def text(self) -> str:
        """A text; never trimmed."""
        if self.node is None or self.node.id != "scalar":
            raise self._refuse("text")
        if self.node.tag != f"{_PREFIX}str":
            raise self._refuse("text; quote it")
        return str(self.node.value)

    def whole(self) -> int:
        """A whole number, in decimal digits."""
        if self.node is not None and self.node.tag == f"{_PREFIX}int":
            digits = str(self.node.value)
            if digits.isascii() and digits.isdecimal() and len(digits) < 19:
                return int(digits)
        raise self._refuse("a whole number")

    def atom(self) -> str | int | float | bool:
        """A text, a decimal number, ``true`` or ``false``.

        >>> [item.atom() for item in parse_yaml("[a, -1, 2.5, true]").items()]
        ['a', -1, 2.5, True]
        """
        if self.node is not None and self.node.id == "scalar":
            tag, written = self.node.tag.removeprefix(_PREFIX), str(self.node.value)
            if tag == "str":
                return written
            if tag == "bool" and written in ("true", "false"):
                return written == "true"
            if tag == "int" and _INTEGER.fullmatch(written):
                return int(written)
            if tag == "float" and _DECIMAL.fullmatch(written):
                return float(written)
        raise self._refuse("text, a decimal number, true or false; quote dates and other words")

    def choice(self, *choices: str) -> str:
        """One of some words."""
        text = self.text()
        if text not in choices:
            expected = f"{', '.join(choices[:-1])} or {choices[-1]}"
            raise YamlProblem(
                f"invalid {self.path} '{escape(text)}'; expected {expected}", self.line
            )
        return text


def parse_yaml(text: str, largest: int = LARGEST) -> YamlValue:
    """The one document of a text of so many characters at most.

    >>> parse_yaml("names: [ana, bo]").mapping()["names"].path
    'names'
    """
    import yaml

    if len(text) > largest:
        raise YamlProblem(f"the file has more than {largest} characters", 1, "syntax")
    try:
        # The parser in C has no limit for nested brackets.
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = escape(error.problem or error.context or "it cannot be parsed")
        line = mark.line + 1 if mark else 1
        raise YamlProblem(f"invalid YAML: {reason}", line, "syntax") from None
    except yaml.YAMLError:
        raise YamlProblem("invalid YAML: unexpected characters", 1, "syntax") from None
    except RecursionError:
        raise YamlProblem("invalid YAML: nested too deeply", 1, "syntax") from None
    return YamlValue(node, "", 1 if node is None else node.start_mark.line + 1)
