"""Classifies the tables of a sidecar, and decides between roll forward and roll back.

Pure functions: versions in, verdict out. Sidecars of the reference are classified by versions alone
(:func:`classify`); ours list their transactions, so the landed ones are known exactly
(:func:`classify_exact`). One decision covers all tables of a sidecar: :func:`decide`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from omnigraph.commit.rows import WriterKind
from omnigraph.commit.sidecar import Sidecar, SidecarPin
from omnigraph.errors import InternalError

CONFIRMATION_VERSION = 2
"""From this sidecar version on a merge records the versions it reached; not the newest version."""


class Classification(Enum):
    """The classification of one table of a sidecar."""

    NO_MOVEMENT = "NoMovement"
    """Nothing of the sidecar is above the pin."""
    ROLLED_PAST_EXPECTED = "RolledPastExpected"
    """Everything landed and is not published yet."""
    UNEXPECTED_AT_P1 = "UnexpectedAtP1"
    """One version above the pin that is not the planned one."""
    UNEXPECTED_MULTISTEP = "UnexpectedMultistep"
    """Versions above the pin that are not the planned ones."""
    INCOMPLETE_PHASE_B = "IncompletePhaseB"
    """Only a part of the planned commits landed."""
    INVARIANT_VIOLATION = "InvariantViolation"
    """The observations contradict each other; nothing may be touched."""


class ClassifyMode(Enum):
    """How much can be inferred from the versions alone, by kind of writer."""

    STRICT = "strict"
    """Exactly one commit per table."""
    LOOSE = "loose"
    """Several commits of derived state; any number of them may be published."""
    CONFIRMED = "confirmed"
    """Several commits that are valid only together; the writer confirms the versions it reached."""


class RecoveryDecision(Enum):
    """What to do about a sidecar, for all of its tables together."""

    ROLL_FORWARD = "RollForward"
    ROLL_BACK = "RollBack"
    ABORT = "Abort"
    COMPLETED = "Completed"
    """The publish succeeded; only the sidecar was left."""


def mode_of(sidecar: Sidecar) -> ClassifyMode:
    """The mode for :func:`classify` of the tables of a sidecar."""
    match sidecar.writer_kind:
        case WriterKind.MUTATION | WriterKind.LOAD:
            return ClassifyMode.STRICT
        case WriterKind.SCHEMA_APPLY | WriterKind.ENSURE_INDICES | WriterKind.OPTIMIZE:
            return ClassifyMode.LOOSE
        case WriterKind.BRANCH_MERGE:
            confirms = sidecar.schema_version >= CONFIRMATION_VERSION
            return ClassifyMode.CONFIRMED if confirms else ClassifyMode.LOOSE


def classify(head: int, pin: int, sidecar_pin: SidecarPin, mode: ClassifyMode) -> Classification:
    """Classify a table by versions alone.

    ``head`` is the newest version of the table on the sidecar's branch, ``pin`` the one that the
    manifest shows now, 0 when it shows none.
    """
    if head < pin:
        return Classification.INVARIANT_VIOLATION
    if head == pin:
        return Classification.NO_MOVEMENT
    as_expected = sidecar_pin.expected_version == pin
    unexpected = (
        Classification.UNEXPECTED_AT_P1 if head == pin + 1 else Classification.UNEXPECTED_MULTISTEP
    )
    match mode:
        case ClassifyMode.STRICT:
            planned = as_expected and head == pin + 1 == sidecar_pin.post_commit_pin
            return Classification.ROLLED_PAST_EXPECTED if planned else unexpected
        case ClassifyMode.LOOSE:
            return Classification.ROLLED_PAST_EXPECTED if as_expected else unexpected
        case ClassifyMode.CONFIRMED:
            if sidecar_pin.confirmed_version is None:
                return Classification.INCOMPLETE_PHASE_B
            if as_expected and sidecar_pin.confirmed_version == head:
                return Classification.ROLLED_PAST_EXPECTED
            return Classification.UNEXPECTED_MULTISTEP


def classify_exact(head: int, pin: int, sidecar_pin: SidecarPin, landed: int) -> Classification:
    """Classify a table of a sidecar that lists its transactions, by those that landed.

    ``landed`` counts the planned transactions found, in order, at the versions expected + 1,
    expected + 2, and so on. The result depends on whether any of them is above the pin:

    ===============================  =========  ====================
    landed, top = expected + landed  head       class
    ===============================  =========  ====================
    any                              below pin  INVARIANT_VIOLATION
    some or all                      below top  INVARIANT_VIOLATION
    none                             any other  NO_MOVEMENT
    some or all, top <= pin          any other  NO_MOVEMENT
    all, pin = expected              top        ROLLED_PAST_EXPECTED
    a part, pin = expected           top        INCOMPLETE_PHASE_B
    some or all, pin = expected      above top  UNEXPECTED_MULTISTEP
    some or all, another pin < top   any other  UNEXPECTED_MULTISTEP
    ===============================  =========  ====================

    With none landed a head above the pin belongs to another writer. With everything at
    or below the pin the table was published, or undone and published; either way another undo
    would only hit the next writer.
    """
    planned = len(sidecar_pin.transactions)
    if not planned or not 0 <= landed <= planned:
        raise InternalError(
            f"{landed} of {planned} planned transactions of '{sidecar_pin.table_key}' "
            "cannot be judged"
        )
    top = sidecar_pin.expected_version + landed
    if head < pin or (landed and head < top):
        return Classification.INVARIANT_VIOLATION
    if not landed or top <= pin:
        return Classification.NO_MOVEMENT
    if pin != sidecar_pin.expected_version or head > top:
        return Classification.UNEXPECTED_MULTISTEP
    if landed < planned:
        return Classification.INCOMPLETE_PHASE_B
    return Classification.ROLLED_PAST_EXPECTED


def decide(
    classifications: Sequence[Classification],
    pins: Sequence[tuple[int, int]],
    *,
    published: bool | None = None,
) -> RecoveryDecision:
    """All or nothing for one sidecar.

    ``pins`` has for each table the version that the manifest shows now and the one that the writer
    expected. ``published`` is whether the commit of the sidecar is in the history, ``None`` if
    unknown. If unknown, tables without movement count as published when one of them shows a version
    above the expected one. That guess mistakes a finished rollback for a publish.
    """
    if Classification.INVARIANT_VIOLATION in classifications:
        return RecoveryDecision.ABORT
    if published is None:
        published = any(now > expected for now, expected in pins)
    seen = set(classifications)
    if published and seen <= {Classification.NO_MOVEMENT}:
        return RecoveryDecision.COMPLETED
    if seen <= {Classification.ROLLED_PAST_EXPECTED}:
        return RecoveryDecision.ROLL_FORWARD
    return RecoveryDecision.ROLL_BACK
