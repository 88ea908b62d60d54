"""Standard layout, comments kept."""

from __future__ import annotations

import pytest

from omnigraph.errors import SchemaError
from omnigraph.lang.diagnostics import Source
from omnigraph.lang.schema.format import format_schema
from omnigraph.lang.schema.parser import parse_schema

UGLY = """

/* header
   text */
// ── banner ── "quotes' { }

interface Named{name:String@key}// named


node   Author implements Named @description("x \\"y\\"") /* odd */ { // head

  // first
  born: Date?   genre: enum(fiction, // one
     essay  /* two */, phase-1 // three
     // four
  )? /* five */ @index // six

  name /* seven */ : String



  @range(born, -1.50..) // eight
  // last

}
node E { }
node F { // c
}
edge Knows: Author -> Author // nine
edge W:Author->E@card(0..1)@x(1,b="z",a=true){} // ten
// end
"""

NEAT = """\
/* header
   text */
// ── banner ── "quotes' { }

interface Named {
  name: String @key
} // named

/* odd */
node Author @description("x \\"y\\"") implements Named { // head
  // first
  born: Date?
  genre: enum(
    fiction, // one
    essay, /* two */
    phase-1 // three
    // four
    /* five */
  )? @index // six

  /* seven */
  name: String

  @range(born, -1.5..) // eight
  // last
}
node E {}
node F { // c
}
edge Knows: Author -> Author // nine
edge W: Author -> E @card(0..1) @x(1, a=true, b="z") {} // ten
// end
"""


def formatted(text: str) -> str:
    return format_schema(Source("s.pg", text))


def test_a_text_gets_the_standard_layout_and_keeps_its_comments() -> None:
    assert formatted(UGLY) == NEAT


def test_a_text_in_standard_layout_stays_as_it_is() -> None:
    assert formatted(NEAT) == NEAT


def test_formatting_does_not_change_the_tree() -> None:
    assert parse_schema(Source("a", UGLY))[0] == parse_schema(Source("b", NEAT))[0]


def test_long_enums_are_wrapped() -> None:
    values = ", ".join(f"value-{number}" for number in range(30))
    text = formatted(f"node A {{ s: enum({values})? @index }}")
    lines = text.splitlines()
    assert lines[1] == "  s: enum("
    assert lines[-2] == "  )? @index"
    assert all(len(line) <= 100 for line in lines)
    assert formatted(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("// only\r\n", "// only\n"),
        ("node A { a: I32 }\r\n\r\n\r\nnode B { }", "node A {\n  a: I32\n}\n\nnode B {}\n"),
        ("node A { /* x */ }", "node A { /* x */\n}\n"),
        ("node A {\n\n// x\n\n\n// y\n\n}", "node A {\n  // x\n\n  // y\n}\n"),
        ("node A { a: I32 /* x */ b: I32 }", "node A {\n  a: I32 /* x */\n  b: I32\n}\n"),
        ("node A { a: F64 @range(a, ..100000000000000000000000.0) }",
         "node A {\n  a: F64\n  @range(a, ..100000000000000000000000.0)\n}\n"),
        ('node A @x("a\\tb\\\\") { }', 'node A @x("a\\tb\\\\") {}\n'),
    ],
)  # fmt: skip
def test_small_texts(text: str, expected: str) -> None:
    assert formatted(text) == expected
    assert formatted(expected) == expected


def test_a_text_that_does_not_parse_is_refused() -> None:
    with pytest.raises(SchemaError):
        formatted("node A { a: }")
