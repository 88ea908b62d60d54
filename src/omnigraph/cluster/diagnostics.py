"""What is wrong with a cluster: stable codes, all problems at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from omnigraph.errors import ServerNotReady
from omnigraph.escaping import escape
from omnigraph.records import dataclass


@dataclass(frozen=True, slots=True)
class ClusterDiagnostic:
    """One problem: a code, where it is, and a sentence."""

    code: str
    path: str
    message: str
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        return f"[{self.code}] {escape(self.path)}: {escape(self.message)}"

    @property
    def line(self) -> str:
        """One line of a report for people.

        >>> ClusterDiagnostic("state_missing", "__cluster/state.json", "no ledger", "warning").line
        'WARN  state_missing __cluster/state.json: no ledger'
        """
        label = "ERROR" if self.severity == "error" else "WARN "
        return f"{label} {self.code} {self.path}: {self.message}"

    def to_json(self) -> dict[str, str]:
        return {
            "code": self.code,
            "severity": self.severity,
            "path": self.path,
            "message": self.message,
        }


class DiagnosticLog:
    """Collects the problems of one command, in the order in which they are noticed."""

    def __init__(self) -> None:
        self._entries: list[ClusterDiagnostic] = []

    def error(self, code: str, path: str, message: str) -> None:
        self._entries.append(ClusterDiagnostic(code, path, message))

    def warning(self, code: str, path: str, message: str) -> None:
        self._entries.append(ClusterDiagnostic(code, path, message, "warning"))

    def add(self, diagnostics: Iterable[ClusterDiagnostic]) -> None:
        self._entries.extend(diagnostics)

    @property
    def entries(self) -> tuple[ClusterDiagnostic, ...]:
        return tuple(self._entries)

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return all(entry.severity != "error" for entry in self._entries)


class ClusterStop(Exception):
    """Ends a command early; the diagnostic is part of its report."""

    def __init__(self, code: str, path: str, message: str) -> None:
        super().__init__(message)
        self.diagnostic = ClusterDiagnostic(code, path, message)


def not_ready(source: str, diagnostics: Sequence[ClusterDiagnostic]) -> ServerNotReady:
    """The error of a cluster that cannot be served: one line per problem."""
    lines = "\n".join(f"  {diagnostic}" for diagnostic in diagnostics)
    return ServerNotReady(
        f"'{escape(source)}' is not ready to serve:\n{lines}",
        details={"diagnostics": [diagnostic.to_json() for diagnostic in diagnostics]},
    )
