"""Where comments go, whatever the language."""

from __future__ import annotations

from omnigraph.lang.diagnostics import Source, Span
from omnigraph.lang.lexer import lex
from omnigraph.lang.printer import PrintBlock, PrintItem, weave


def at(text: str, part: str) -> Span:
    start = text.index(part)
    return Span(start, start + len(part))


def call(text: str, *, fill: bool = False, flat: str | None = None, width: int = 100) -> str:
    """Print the text ``f(a b c)`` as one item with a block of three items."""
    source = Source("x", text)
    items = tuple(PrintItem(at(text, name), name) for name in ("aa", "bb", "cc"))
    span = Span(text.index("("), text.index(")") + 1)
    item = PrintItem(Span(0, span.end), "f(", PrintBlock(span, items, ")", fill), flat)
    return weave(source, lex(source).comments, [item], width=width)


def test_a_block_has_one_item_per_line() -> None:
    assert call("f(aa bb cc)") == "f(\n  aa\n  bb\n  cc\n)\n"


def test_a_flat_form_is_used_when_it_fits_and_nothing_is_commented() -> None:
    assert call("f(aa bb cc)", flat="f(aa bb cc)") == "f(aa bb cc)\n"
    assert call("f(aa bb cc)", flat="f(aa bb cc)", width=8).count("\n") == 5
    assert call("f(aa /* x */ bb cc)", flat="f(aa bb cc)").count("\n") == 5


def test_a_comment_behind_the_item_does_not_break_the_flat_form() -> None:
    assert call("f(aa bb cc) // x", flat="f(aa bb cc)") == "f(aa bb cc) // x\n"


def test_filled_blocks_share_lines_until_a_comment_comes() -> None:
    assert call("f(aa bb cc)", fill=True, width=8) == "f(\n  aa bb\n  cc\n)\n"
    assert call("f(aa // x\n bb cc)", fill=True) == "f(\n  aa // x\n  bb\n  cc\n)\n"


def test_comments_stay_behind_brackets_before_items_and_before_the_end() -> None:
    text = "f( // open\n // own\n aa bb cc\n\n // last\n) // close"
    assert call(text) == "f( // open\n  // own\n  aa\n  bb\n  cc\n\n  // last\n) // close\n"


def test_a_comment_inside_the_head_moves_above_it() -> None:
    assert call("f /* x */ (aa bb cc)") == "/* x */\nf(\n  aa\n  bb\n  cc\n)\n"


def test_one_of_several_blank_lines_is_kept() -> None:
    text = "f(\n\n\naa\n\n\n\nbb\ncc\n\n)"
    assert call(text) == "f(\n  aa\n\n  bb\n  cc\n)\n"


def test_the_lines_of_a_block_comment_are_not_moved() -> None:
    text = "f(aa /* one  \n      two */ bb cc)"
    assert call(text) == "f(\n  aa /* one\n      two */\n  bb\n  cc\n)\n"
