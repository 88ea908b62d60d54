"""Positions in source texts, and diagnostics about them.

Every message about a schema or query text is a ``Diagnostic``: a stable code, a location, the
source line with a caret and, where useful, a hint.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import field
from enum import StrEnum
from typing import Any, NamedTuple

from omnigraph.escaping import escape
from omnigraph.records import dataclass

TAB_WIDTH = 4
MAX_SHOWN_LINE = 160
MAX_REPORTED = 50


class Span(NamedTuple):
    """A half-open range of character offsets in one source text."""

    start: int
    end: int


NOWHERE = Span(0, 0)


@dataclass(frozen=True, slots=True)
class SyntaxNode:
    """A part of a syntax tree, with its span in the source."""

    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


class Severity(StrEnum):
    """The severity of a finding; only an error aborts."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Phase(StrEnum):
    """The reporting phase of the compiler; errors start with ``<phase> error: ``."""

    PARSE = "parse"
    CATALOG = "catalog"
    TYPE = "type"
    PLAN = "plan"
    LINT = "lint"


@dataclass(frozen=True, slots=True)
class Source:
    """A text with its display name.

    >>> Source("a.pg", "node A {\\n}").position(9)
    (2, 1)
    """

    name: str
    text: str
    _line_starts: list[int] = field(default_factory=list, repr=False, compare=False)

    def line_starts(self) -> list[int]:
        """Offsets at which the lines of the text begin."""
        if not self._line_starts:
            starts = [0]
            at = self.text.find("\n")
            while at >= 0:
                starts.append(at + 1)
                at = self.text.find("\n", at + 1)
            self._line_starts[:] = starts  # at once, since threads share a source
        return self._line_starts

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, both counted from 1, in characters."""
        starts = self.line_starts()
        line = bisect_right(starts, offset) - 1
        return line + 1, offset - starts[line] + 1

    def line(self, number: int) -> str:
        """The text of line ``number`` (from 1) without its line end."""
        starts = self.line_starts()
        start = starts[number - 1]
        end = starts[number] if number < len(starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")

    def byte_span(self, span: Span) -> tuple[int, int]:
        """The span in UTF-8 bytes; an empty one is widened to one byte."""
        if self.text.isascii():
            return span.start, max(span.end, span.start + 1)
        start = len(self.text[: span.start].encode("utf-8", "surrogatepass"))
        length = len(self.text[span.start : span.end].encode("utf-8", "surrogatepass"))
        return start, start + max(length, 1)


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding about a source text."""

    phase: Phase
    code: str
    message: str
    source: Source
    span: Span
    hint: str | None = None
    severity: Severity = Severity.ERROR

    @property
    def text(self) -> str:
        """The finding without its location: ``type error: T1: unknown node type `Foo```."""
        label = f"{self.phase} error" if self.severity is Severity.ERROR else str(self.severity)
        return f"{label}: {self.code}: {self.message}"

    @property
    def location(self) -> str:
        """``file:line:column``."""
        line, column = self.source.position(self.span.start)
        return f"{self.source.name}:{line}:{column}"

    def render(self) -> str:
        """The finding for people: location, text, source line, caret, hint.

        Control characters are escaped; in the source line each is one character, so that the caret
        points at the right column.
        """
        line, column = self.source.position(self.span.start)
        shown, before, marked = _excerpt(self.source.line(line), column - 1, self.span)
        gutter = " " * len(str(line))
        parts = [
            escape(f"{self.location}: {self.text}"),
            f" {line} | {shown}",
            f" {gutter} | {' ' * before}{'^' * marked}",
        ]
        if self.hint:
            parts.append(f" {gutter} = hint: {escape(self.hint)}")
        return "\n".join(parts)

    def to_json(self) -> dict[str, Any]:
        """The finding as plain data, keys in a fixed order."""
        line, column = self.source.position(self.span.start)
        end_line, end_column = self.source.position(self.span.end)
        start_byte, end_byte = self.source.byte_span(self.span)
        return {
            "severity": str(self.severity),
            "phase": str(self.phase),
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "file": self.source.name,
            "line": line,
            "column": column,
            "end_line": end_line,
            "end_column": end_column,
            "span": {"start": start_byte, "end": end_byte},
        }


def render_all(diagnostics: Iterable[Diagnostic]) -> str:
    """All findings in the order given, separated by blank lines."""
    return "\n\n".join(diagnostic.render() for diagnostic in diagnostics)


def in_source_order(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Findings sorted by location, so that reports do not depend on checking order."""
    return sorted(diagnostics, key=lambda d: (d.source.name, d.span, d.code, d.message))


def first_in_source(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """As ``in_source_order``, limited to ``MAX_REPORTED``."""
    return in_source_order(diagnostics)[:MAX_REPORTED]


def _excerpt(line: str, column: int, span: Span) -> tuple[str, int, int]:
    """The displayed part of a line, with the caret's indent and width in it.

    Tabs are widened and control characters replaced, so that the caret is in the right
    column in any terminal.
    """
    column = min(column, len(line))
    width = max(min(span.end - span.start, len(line) - column), 1)
    first = max(column - MAX_SHOWN_LINE // 2, 0) if len(line) > MAX_SHOWN_LINE else 0
    last = min(first + MAX_SHOWN_LINE, len(line))
    width = max(min(width, last - column), 1)
    before = _visible(line[first:column])
    marked = _visible(line[column : column + width])
    after = _visible(line[column + width : last])
    prefix = "…" if first else ""
    suffix = "…" if last < len(line) else ""
    shown = f"{prefix}{before}{marked}{after}{suffix}".rstrip()
    return shown, len(prefix) + len(before), max(len(marked), 1)


def _visible(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        " " * TAB_WIDTH if char == "\t" else char if char.isprintable() else "�" for char in text
    )


class SchemaReport:
    """The findings of one run over one source."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.diagnostics: list[Diagnostic] = []

    def parse(self, code: str, message: str, span: Span, hint: str | None = None) -> None:
        """Add a finding about one declaration."""
        self.diagnostics.append(Diagnostic(Phase.PARSE, code, message, self.source, span, hint))

    def catalog(self, code: str, message: str, span: Span, hint: str | None = None) -> None:
        """Add a finding about several declarations."""
        self.diagnostics.append(Diagnostic(Phase.CATALOG, code, message, self.source, span, hint))

    def warn(self, code: str, message: str, span: Span, hint: str | None = None) -> None:
        """Add a warning about something legal but probably unintended."""
        finding = Diagnostic(Phase.LINT, code, message, self.source, span, hint, Severity.WARNING)
        self.diagnostics.append(finding)
