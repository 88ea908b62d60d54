"""Collecting findings about one schema text."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from omnigraph.diagnostics import Diagnostic, Phase, Severity, Source, Span


class Report:
    """The findings of one run over one source."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.diagnostics: list[Diagnostic] = []

    def parse(self, code: str, message: str, span: Span, hint: str | None = None) -> None:
        """Something about one declaration."""
        self._add(Phase.PARSE, code, message, span, hint)

    def catalog(self, code: str, message: str, span: Span, hint: str | None = None) -> None:
        """Something about how declarations fit together."""
        self._add(Phase.CATALOG, code, message, span, hint)

    def warn(self, code: str, message: str, span: Span, hint: str | None = None) -> None:
        """Something legal that is probably not meant."""
        self._add(Phase.LINT, code, message, span, hint, Severity.WARNING)

    def _add(
        self,
        phase: Phase,
        code: str,
        message: str,
        span: Span,
        hint: str | None,
        severity: Severity = Severity.ERROR,
    ) -> None:
        found = Diagnostic(phase, code, message, self.source, span, hint, severity)
        self.diagnostics.append(found)


MAX_COMPARED = 500


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A hint with the known name that looks most like this one.

    >>> did_you_mean("Persn", ["Person", "Company"])
    'did you mean `Person`?'
    """
    folded = {word.lower(): word for word in sorted(known)}
    if len(folded) > MAX_COMPARED:
        return None
    close = get_close_matches(name.lower(), list(folded), 1, 0.6)
    return f"did you mean `{folded[close[0]]}`?" if close else None
