"""What is wrong with a cluster: stable codes, all problems at once."""

from __future__ import annotations

from collections.abc import Sequence
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


def not_ready(source: str, diagnostics: Sequence[ClusterDiagnostic]) -> ServerNotReady:
    """The error of a cluster that cannot be served: one line per problem."""
    lines = "\n".join(f"  {diagnostic}" for diagnostic in diagnostics)
    return ServerNotReady(
        f"'{escape(source)}' is not ready to serve:\n{lines}",
        details={
            "diagnostics": [
                {
                    "code": diagnostic.code,
                    "severity": diagnostic.severity,
                    "path": diagnostic.path,
                    "message": diagnostic.message,
                }
                for diagnostic in diagnostics
            ]
        },
    )
