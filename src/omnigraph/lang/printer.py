"""Prints a text in standard layout without losing comments.

Independent of the language. A formatter describes its text as ``PrintItem`` values in source
order: the text to print and its span in the source. ``weave`` prints them and puts every comment
where a reader expects it:

* comments before an item become lines above it;
* a comment after an item on the same source line stays after it;
* comments before a closing bracket stay inside the block;
* a comment inside the text of an item (``name: /* why */ String``) moves to a line above it;
* of several blank lines one is kept; none after an opening or before a closing bracket.

Weaving is stable: formatting the result again gives the same text, as long as the formatter
prints the same items for it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence

from omnigraph.lang.diagnostics import Source, Span
from omnigraph.lang.lexer import Comment
from omnigraph.records import dataclass

_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")


@dataclass(frozen=True, slots=True)
class PrintBlock:
    """The bracketed part of an item: inner items, one per line, indented.

    ``span`` includes the opening and the closing bracket. ``close`` is printed at the end: the
    bracket and everything after it, such as ``}`` or ``)? @index``. With ``fill`` the items share
    lines as far as they fit, unless there are comments among them.
    """

    span: Span
    items: tuple[PrintItem, ...]
    close: str = "}"
    fill: bool = False


@dataclass(frozen=True, slots=True)
class PrintItem:
    """One item to print.

    ``span`` is the whole source text of the item, including its block. ``text`` is the first
    part, up to and including the opening bracket if there is a block; further lines in it are
    indented like the first. ``flat`` is the whole item on one line, used instead when it fits
    and has no comment inside; an item without ``flat`` and with a block is always broken up,
    except that an empty block stays on the line.
    """

    span: Span
    text: str
    block: PrintBlock | None = None
    flat: str | None = None


def weave(
    source: Source,
    comments: Sequence[Comment],
    items: Sequence[PrintItem],
    *,
    width: int = 100,
    indent: str = "  ",
) -> str:
    r"""Print items in order with the comments of their source.

    >>> source = Source("x", "b { a // why\n } // end")
    >>> inner = PrintItem(Span(4, 5), "a")
    >>> outer = PrintItem(Span(0, 15), "b {", PrintBlock(Span(2, 15), (inner,)))
    >>> print(weave(source, [Comment("// why", 6, 12), Comment("// end", 16, 22)], [outer]), end="")
    b {
      a // why
    } // end
    """
    printer = _Weaver(source, comments, width, indent)
    printer.print_items(items, len(source.text) + 1, 0)
    return "".join(f"{line}\n" for line in printer.lines)


class _Weaver:
    def __init__(
        self, source: Source, comments: Sequence[Comment], width: int, indent: str
    ) -> None:
        self.lines: list[str] = []
        self._source = source
        self._comments = comments
        self._next = 0
        self._width = width
        self._indent = indent
        # The end in the source of the last printed item; ``None`` at the start of a block.
        self._printed: int | None = None

    def print_items(self, items: Sequence[PrintItem], limit: int, depth: int) -> None:
        """Print items, then the remaining comments before ``limit``."""
        for index, item in enumerate(items):
            following = items[index + 1].span.start if index + 1 < len(items) else limit
            self._item(item, following, depth)
        while self._pending(limit):
            self._comment(depth)

    def _item(self, item: PrintItem, following: int, depth: int) -> None:
        pad = self._indent * depth
        start, end = item.span
        while self._pending(start):
            self._comment(depth)
        flat = item.flat
        if flat is not None and not self._commented(item) and len(pad) + len(flat) <= self._width:
            item = PrintItem(item.span, flat)
        head_end = item.block.span.start + 1 if item.block is not None else end
        if self._pending(head_end):
            # Comments in the middle of the text are moved above it.
            self._separate(start)
            while self._pending(head_end):
                self._line(pad, self._take().text)
            self._printed = start
        else:
            self._separate(start)
        self._line(pad, item.text)
        if item.block is not None:
            self._block(item.block, end, depth)
        self._printed = end
        self._trailing(end, following)

    def _block(self, block: PrintBlock, end: int, depth: int) -> None:
        pad = self._indent * depth
        inner_end = block.span.end - 1
        if not block.items and not self._pending(end):
            self.lines[-1] += block.close
            return
        first = block.items[0].span.start if block.items else inner_end
        commented = self._pending(end)
        self._trailing(block.span.start + 1, first)
        self._printed = None
        if block.fill and not commented:
            self._fill([item.text for item in block.items], depth + 1)
        else:
            self.print_items(block.items, end, depth + 1)
        self._line(pad, block.close)

    def _fill(self, texts: Sequence[str], depth: int) -> None:
        pad = self._indent * depth
        line = pad
        for text in texts:
            if line != pad and len(line) + 1 + len(text) > self._width:
                self.lines.append(line)
                line = pad
            line += text if line == pad else f" {text}"
        self.lines.append(line)

    # -- comments ------------------------------------------------------------------------

    def _pending(self, limit: int) -> bool:
        """Whether an unprinted comment starts before ``limit``."""
        return self._next < len(self._comments) and self._comments[self._next].start < limit

    def _commented(self, item: PrintItem) -> bool:
        """Whether a comment stays inside the item; one in its head moves above it."""
        inside = item.block.span.start if item.block is not None else item.span.end
        index = bisect_left(self._comments, inside, key=lambda comment: comment.start)
        return index < len(self._comments) and self._comments[index].start < item.span.end

    def _take(self) -> Comment:
        comment = self._comments[self._next]
        self._next += 1
        return comment

    def _comment(self, depth: int) -> None:
        comment = self._take()
        self._separate(comment.start)
        self._line(self._indent * depth, comment.text)
        self._printed = comment.end

    def _trailing(self, end: int, following: int) -> None:
        """Print the comments on the same line after an item that ended at ``end``."""
        while self._pending(following):
            comment = self._comments[self._next]
            if comment.start < end or "\n" in self._source.text[end : comment.start]:
                return
            self._take()
            first, *rest = _comment_lines(comment.text)
            self.lines[-1] += f" {first}"
            self.lines.extend(rest)
            self._printed = end = comment.end

    # -- lines ---------------------------------------------------------------------------

    def _separate(self, start: int) -> None:
        """Print one blank line if the source has some before ``start``."""
        if self._printed is not None and _BLANK_LINE.search(
            self._source.text, self._printed, max(start, self._printed)
        ):
            self.lines.append("")

    def _line(self, pad: str, text: str) -> None:
        if text.startswith("/*"):
            first, *rest = _comment_lines(text)
            self.lines.append(pad + first)
            self.lines.extend(rest)
        else:
            self.lines.extend((pad + line).rstrip() for line in text.split("\n"))


def _comment_lines(text: str) -> list[str]:
    """The lines of a comment without trailing white space; inner lines keep their indent."""
    return [line.rstrip() for line in text.split("\n")]
