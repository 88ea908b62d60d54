"""What happened to the tables of a sidecar, and what to do about it.

Nothing here reads or writes: versions in, verdict out. Sidecars of the reference are judged by
versions alone (:func:`classify`); ours name their transactions, so what landed is known exactly
(:func:`classify_exact`). One decision covers all tables of a sidecar: :func:`decide`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from omnigraph.commit.sidecar import Sidecar, SidecarPin, WriterKind
from omnigraph.errors import InternalError

CONFIRMATION_VERSION = 2
"""From this sidecar version on a merge says which versions it reached; not the newest version."""


class Classification(Enum):
    """What became of one table of a sidecar."""

    NO_MOVEMENT = "NoMovement"
    """Nothing of the sidecar lies above the pin."""
    ROLLED_PAST_EXPECTED = "RolledPastExpected"
    """Everything landed and waits to be published."""
    UNEXPECTED_AT_P1 = "UnexpectedAtP1"
    """One version above the pin that is not the planned one."""
    UNEXPECTED_MULTISTEP = "UnexpectedMultistep"
    """Versions above the pin that are not the planned ones."""
    INCOMPLETE_PHASE_B = "IncompletePhaseB"
    """Only a part of the planned commits landed."""
    INVARIANT_VIOLATION = "InvariantViolation"
    """The observations cannot be true together; nothing may be touched."""


class ClassifyMode(Enum):
    """How much can be inferred from the versions alone, by kind of writer."""

    STRICT = "strict"
    """Exactly one commit per table."""
    LOOSE = "loose"
    """Several commits of derived state; any number of them may be published."""
    CONFIRMED = "confirmed"
    """Several commits that only count together; the writer confirms the versions it reached."""


class Decision(Enum):
    """What to do about a sidecar, for all of its tables together."""

    ROLL_FORWARD = "RollForward"
    ROLL_BACK = "RollBack"
    ABORT = "Abort"
    COMPLETED = "Completed"
    """The publish went through; only the sidecar was left behind."""


def mode_of(sidecar: Sidecar) -> ClassifyMode:
    """The mode in which :func:`classify` judges the tables of a sidecar."""
    match sidecar.writer_kind:
        case WriterKind.MUTATION | WriterKind.LOAD:
            return ClassifyMode.STRICT
        case WriterKind.SCHEMA_APPLY | WriterKind.ENSURE_INDICES | WriterKind.OPTIMIZE:
            return ClassifyMode.LOOSE
        case WriterKind.BRANCH_MERGE:
            confirms = sidecar.schema_version >= CONFIRMATION_VERSION
            return ClassifyMode.CONFIRMED if confirms else ClassifyMode.LOOSE


def classify(head: int, pin: int, sidecar_pin: SidecarPin, mode: ClassifyMode) -> Classification:
    """Judge a table by versions alone.

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
    """Judge a table of a sidecar that names its transactions, by which of them are there.

    ``landed`` counts the planned transactions that are found, in order, at the versions
    expected + 1, expected + 2, and so on. What counts is whether any of them lies above the pin:

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
) -> Decision:
    """All or nothing for one sidecar.

    ``pins`` has for each table the version that the manifest shows now and the one that the
    writer expected. ``published`` says whether the commit of the sidecar is known to be in the
    history, or known not to be; when it is not known, tables without movement of which one shows
    more than expected count as published. That guess takes a finished roll-back for a publish.
    """
    if Classification.INVARIANT_VIOLATION in classifications:
        return Decision.ABORT
    if published is None:
        published = any(now > expected for now, expected in pins)
    seen = set(classifications)
    if published and seen <= {Classification.NO_MOVEMENT}:
        return Decision.COMPLETED
    if seen <= {Classification.ROLLED_PAST_EXPECTED}:
        return Decision.ROLL_FORWARD
    return Decision.ROLL_BACK
