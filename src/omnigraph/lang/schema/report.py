"""Collecting findings about one schema text."""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.lang.closest import closest
from omnigraph.lang.diagnostics import Diagnostic, Phase, Severity, Source, Span


class SchemaReport:
    """The findings of one run over one source."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.diagnostics: list[Diagnostic] = []

    def parse(self, code: str, message: str, span: Span, hint: str | None = None) -> None:
        """A finding about one declaration."""
        self._add(Phase.PARSE, code, message, span, hint)

    def catalog(self, code: str, message: str, span: Span, hint: str | None = None) -> None:
        """A finding about several declarations."""
        self._add(Phase.CATALOG, code, message, span, hint)

    def warn(self, code: str, message: str, span: Span, hint: str | None = None) -> None:
        """A warning about something legal but probably unintended."""
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
        diagnostic = Diagnostic(phase, code, message, self.source, span, hint, severity)
        self.diagnostics.append(diagnostic)


def did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    """A hint with the candidate most similar to a name.

    >>> did_you_mean("Persn", ["Person", "Company"])
    'did you mean `Person`?'
    """
    close = closest(name, candidates)
    return f"did you mean `{close}`?" if close else None
