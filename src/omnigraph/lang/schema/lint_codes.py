"""The codes of schema lint.

The form is ``OG-<family>-<three digits>``; the families are DS (destructive), MF (maybe fails),
NM (naming), VE (vectors) and ED (edges). A code never changes its meaning.
"""

from __future__ import annotations

from enum import StrEnum

from omnigraph.lang.diagnostics import Severity
from omnigraph.records import dataclass


class Tier(StrEnum):
    """The precondition of a change: none, a check of existing rows, or consent to data loss."""

    SAFE = "safe"
    VALIDATED = "validated"
    DESTRUCTIVE = "destructive"


@dataclass(frozen=True, slots=True)
class LintCode:
    """One registered code."""

    code: str
    tier: Tier
    severity: Severity
    title: str


LINT_CODES: tuple[LintCode, ...] = (
    LintCode("OG-DS-101", Tier.DESTRUCTIVE, Severity.ERROR, "drop the graph"),
    LintCode("OG-DS-102", Tier.DESTRUCTIVE, Severity.ERROR, "drop node type"),
    LintCode("OG-DS-103", Tier.DESTRUCTIVE, Severity.ERROR, "drop edge type"),
    LintCode("OG-DS-104", Tier.DESTRUCTIVE, Severity.ERROR, "drop property"),
    LintCode("OG-DS-105", Tier.DESTRUCTIVE, Severity.ERROR, "drop populated vector column"),
    LintCode("OG-MF-103", Tier.VALIDATED, Severity.ERROR, "add required property without default"),
    LintCode("OG-MF-104", Tier.VALIDATED, Severity.ERROR, "tighten nullable to required"),
    LintCode("OG-MF-106", Tier.DESTRUCTIVE, Severity.ERROR, "narrowing/any type change"),
    LintCode(
        "OG-MF-201", Tier.SAFE, Severity.WARNING, "@check pattern is not a valid regular expression"
    ),
    LintCode("OG-MF-202", Tier.SAFE, Severity.WARNING, "@range that no value satisfies"),
    LintCode("OG-MF-203", Tier.SAFE, Severity.WARNING, "@range on a list is never evaluated"),
    LintCode("OG-NM-101", Tier.SAFE, Severity.WARNING, "constraint declared twice"),
    LintCode("OG-NM-102", Tier.SAFE, Severity.WARNING, "@rename_from names what still exists"),
    LintCode("OG-NM-103", Tier.SAFE, Severity.WARNING, "annotation that looks misspelt"),
    LintCode("OG-VE-101", Tier.SAFE, Severity.WARNING, "embedded vector without an index"),
    LintCode("OG-ED-101", Tier.SAFE, Severity.WARNING, "edge property hidden by an endpoint"),
)

_BY_CODE = {entry.code: entry for entry in LINT_CODES}


def lint_code(code: str) -> LintCode | None:
    """The registered code of that name.

    >>> lint_code("OG-MF-106").tier
    <Tier.DESTRUCTIVE: 'destructive'>
    """
    return _BY_CODE.get(code)
