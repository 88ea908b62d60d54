"""Writes docs/codes.md from the tables of codes, so that no code goes undocumented.

Usage: python tools/codes_page.py > docs/codes.md
"""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.lang.query import codes as query
from omnigraph.lang.schema.codes import SCHEMA_CODES
from omnigraph.lang.schema.lint_codes import LINT_CODES

INTRO = """\
# Codes of the languages

Every finding about a `.pg` or `.gq` text has a stable code, a place in the text and, where there
is something to do, a hint. A code never changes its meaning; messages may get better. Errors stop
the work, warnings do not.
"""

SECTIONS: tuple[tuple[str, str, Mapping[str, str]], ...] = (
    ("Reading a text", "Both languages. The text starts with `parse error: `.", query.SYNTAX),
    (
        "Schemas",
        "`S0` codes are about one declaration (`parse error: `), `S1` codes about how\n"
        "declarations fit together (`catalog error: `).",
        SCHEMA_CODES,
    ),
    ("Checking a query", "The text starts with `type error: `.", query.TYPES),
    ("Planning a query", "The text starts with `plan error: `.", query.PLAN),
    ("Query files", "Found when a whole file is read.", query.FILE),
    ("Query lint", "Warnings of `omnigraph lint --query`.", query.LINT),
)


def page() -> str:
    """The whole page."""
    parts = [INTRO]
    for title, intro, codes in SECTIONS:
        rows = "".join(f"| `{code}` | {meaning} |\n" for code, meaning in codes.items())
        parts.append(f"## {title}\n\n{intro}\n\n| Code | Meaning |\n|---|---|\n{rows}")
    rows = "".join(
        f"| `{entry.code}` | {entry.tier} | {entry.severity} | {entry.title} |\n"
        for entry in LINT_CODES
    )
    parts.append(
        "## Schema changes and schema lint\n\n"
        "The tier says what a change needs: nothing (safe), a look at the rows (validated) or\n"
        "your word that data may go (destructive).\n\n"
        f"| Code | Tier | Severity | Meaning |\n|---|---|---|---|\n{rows}"
    )
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(), end="")
