"""Every cell of the tables that decide about an interrupted write."""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.commit.classify import (
    Classification,
    ClassifyMode,
    RecoveryDecision,
    classify,
    classify_exact,
    decide,
    mode_of,
)
from omnigraph.commit.rows import WriterKind
from omnigraph.commit.sidecar import Sidecar, SidecarPin
from omnigraph.errors import InternalError

NONE = Classification.NO_MOVEMENT
PAST = Classification.ROLLED_PAST_EXPECTED
AT_P1 = Classification.UNEXPECTED_AT_P1
MULTI = Classification.UNEXPECTED_MULTISTEP
PART = Classification.INCOMPLETE_PHASE_B
BROKEN = Classification.INVARIANT_VIOLATION

STRICT, LOOSE, CONFIRMED = ClassifyMode.STRICT, ClassifyMode.LOOSE, ClassifyMode.CONFIRMED


def pin_of(
    expected: int, post: int = 0, confirmed: int | None = None, planned: int = 0
) -> SidecarPin:
    names = tuple(f"t{at}" for at in range(1, planned + 1))
    return SidecarPin("node:Person", "/g/nodes/p", expected, post, confirmed, None, names)


# -- modes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "version", "mode"),
    [
        (WriterKind.MUTATION, 2, STRICT),
        (WriterKind.MUTATION, 1, STRICT),
        (WriterKind.LOAD, 2, STRICT),
        (WriterKind.SCHEMA_APPLY, 2, LOOSE),
        (WriterKind.ENSURE_INDICES, 2, LOOSE),
        (WriterKind.OPTIMIZE, 2, LOOSE),
        (WriterKind.BRANCH_MERGE, 2, CONFIRMED),
        (WriterKind.BRANCH_MERGE, 1, LOOSE),
        (WriterKind.BRANCH_MERGE, 0, LOOSE),
    ],
)
def test_the_mode_follows_from_the_writer_and_the_version(kind, version, mode):
    sidecar = Sidecar("01A", "0", None, None, kind, (), schema_version=version)
    assert mode_of(sidecar) is mode


# -- by versions ------------------------------------------------------------------------------

# head, pin, expected, post, confirmed → class, per mode
BY_VERSION = [
    # h < p
    (4, 5, 5, 6, None, BROKEN, BROKEN, BROKEN),
    (4, 5, 4, 5, 4, BROKEN, BROKEN, BROKEN),
    (0, 1, 0, 1, None, BROKEN, BROKEN, BROKEN),
    # h = p
    (5, 5, 5, 6, None, NONE, NONE, NONE),
    (6, 6, 5, 6, 6, NONE, NONE, NONE),
    (0, 0, 0, 1, None, NONE, NONE, NONE),
    # h = p + 1 = q, e = p
    (6, 5, 5, 6, 6, PAST, PAST, PAST),
    (6, 5, 5, 6, 7, PAST, PAST, MULTI),
    (6, 5, 5, 6, None, PAST, PAST, PART),
    (1, 0, 0, 1, None, PAST, PAST, PART),
    # h = p + 1, e = p, q elsewhere
    (6, 5, 5, 7, 6, AT_P1, PAST, PAST),
    (6, 5, 5, 7, 7, AT_P1, PAST, MULTI),
    (6, 5, 5, 7, None, AT_P1, PAST, PART),
    # h > p + 1, e = p, whatever q
    (8, 5, 5, 6, 8, MULTI, PAST, PAST),
    (8, 5, 5, 8, 8, MULTI, PAST, PAST),
    (8, 5, 5, 6, 7, MULTI, PAST, MULTI),
    (8, 5, 5, 6, None, MULTI, PAST, PART),
    # h > p, e ≠ p
    (6, 5, 4, 6, 6, AT_P1, AT_P1, MULTI),
    (6, 5, 6, 6, 6, AT_P1, AT_P1, MULTI),
    (6, 5, 4, 5, None, AT_P1, AT_P1, PART),
    (8, 5, 4, 5, 8, MULTI, MULTI, MULTI),
    (8, 5, 7, 8, 8, MULTI, MULTI, MULTI),
    (8, 5, 7, 8, None, MULTI, MULTI, PART),
]


@pytest.mark.parametrize(
    ("head", "pin", "expected", "post", "confirmed", "strict", "loose", "confirming"), BY_VERSION
)
def test_versions_alone_are_judged_by_the_table(
    head, pin, expected, post, confirmed, strict, loose, confirming
):
    sidecar_pin = pin_of(expected, post, confirmed)
    actual = [classify(head, pin, sidecar_pin, mode) for mode in (STRICT, LOOSE, CONFIRMED)]
    assert actual == [strict, loose, confirming]


VERSIONS = st.integers(0, 6)


def rows_of_the_table(
    h: int, p: int, e: int, q: int, c: int | None, mode: ClassifyMode
) -> list[object]:
    """The table once more, as conditions that stand side by side instead of one after another."""
    up, off, one = h > p, e != p, h == p + 1
    planned = one and q == h
    strict, loose, confirmed = (mode is candidate for candidate in (STRICT, LOOSE, CONFIRMED))
    conditions = {
        BROKEN: [h < p],
        NONE: [h == p],
        PAST: [
            up and not off and strict and planned,
            up and not off and loose,
            up and not off and confirmed and c == h,
        ],
        AT_P1: [
            up and one and strict and not off and not planned,
            up and one and (strict or loose) and off,
        ],
        MULTI: [
            up and not one and strict and not off,
            up and not one and (strict or loose) and off,
            up and confirmed and c is not None and (off or c != h),
        ],
        PART: [up and confirmed and c is None],
    }
    return [actual for actual, cells in conditions.items() for cell in cells if cell]


@given(VERSIONS, VERSIONS, VERSIONS, VERSIONS, st.none() | VERSIONS, st.sampled_from(ClassifyMode))
def test_every_input_has_exactly_one_class(head, pin, expected, post, confirmed, mode):
    cells = rows_of_the_table(head, pin, expected, post, confirmed, mode)
    assert cells == [classify(head, pin, pin_of(expected, post, confirmed), mode)]


# -- by transactions --------------------------------------------------------------------------

# head, pin, expected, planned, landed → class
BY_TRANSACTION = [
    # the head is below the pin, or below what is said to have landed
    (4, 5, 5, 1, 0, BROKEN),
    (5, 6, 5, 1, 1, BROKEN),
    (5, 5, 5, 1, 1, BROKEN),
    (6, 5, 5, 3, 2, BROKEN),
    # nothing landed, whoever moved the table and whatever is pinned
    (5, 5, 5, 1, 0, NONE),
    (6, 5, 5, 1, 0, NONE),
    (9, 5, 5, 3, 0, NONE),
    (7, 7, 5, 1, 0, NONE),
    (8, 7, 5, 1, 0, NONE),
    (6, 0, 5, 1, 0, NONE),
    # everything landed and is pinned, or something later is
    (6, 6, 5, 1, 1, NONE),
    (7, 7, 5, 1, 1, NONE),
    (9, 7, 5, 1, 1, NONE),
    (8, 8, 5, 3, 3, NONE),
    # a part landed, was undone, and the undone state is pinned
    (7, 7, 5, 3, 1, NONE),
    (6, 6, 5, 3, 1, NONE),
    (9, 7, 5, 3, 1, NONE),
    # everything landed and waits
    (6, 5, 5, 1, 1, PAST),
    (8, 5, 5, 3, 3, PAST),
    (1, 0, 0, 1, 1, PAST),
    # a part landed, and nothing else
    (6, 5, 5, 3, 1, PART),
    (7, 5, 5, 3, 2, PART),
    # somebody committed on top
    (7, 5, 5, 1, 1, MULTI),
    (9, 5, 5, 3, 3, MULTI),
    (9, 5, 5, 3, 1, MULTI),
    # the pin is below what was expected: the table was dropped meanwhile
    (6, 0, 5, 1, 1, MULTI),
    (6, 4, 5, 3, 1, MULTI),
    # the pin lies inside the planned sequence
    (8, 6, 5, 3, 3, MULTI),
    (7, 6, 5, 3, 2, MULTI),
]


@pytest.mark.parametrize(
    ("head", "pin", "expected", "planned", "landed", "outcome"), BY_TRANSACTION
)
def test_known_transactions_are_judged_by_what_landed(
    head, pin, expected, planned, landed, outcome
):
    assert classify_exact(head, pin, pin_of(expected, planned=planned), landed) is outcome


@given(VERSIONS, VERSIONS, VERSIONS, st.integers(1, 3), st.data())
def test_every_evidence_has_exactly_one_class(head, pin, expected, planned, data):
    landed = data.draw(st.integers(0, planned))
    top = expected + landed
    conditions = {
        BROKEN: head < pin or (landed > 0 and head < top),
        NONE: head >= pin and (landed == 0 or (head >= top and pin >= top)),
        PAST: landed == planned and head == top and pin == expected,
        PART: 0 < landed < planned and head == top and pin == expected,
        MULTI: landed > 0 and head >= top > pin and (pin != expected or head != top),
    }
    cells = [actual for actual, holds in conditions.items() if holds]
    assert cells == [classify_exact(head, pin, pin_of(expected, planned=planned), landed)]


@given(VERSIONS, VERSIONS, VERSIONS)
def test_with_one_commit_that_landed_or_not_the_two_ways_of_judging_agree(head, pin, expected):
    """Evidence only adds to versions: what it rolls forward, versions alone would too."""
    sidecar_pin = pin_of(expected, expected + 1, planned=1)
    for landed in (0, 1):
        if classify_exact(head, pin, sidecar_pin, landed) is PAST:
            assert classify(head, pin, sidecar_pin, STRICT) is PAST


@pytest.mark.parametrize(("planned", "landed"), [(0, 0), (1, 2), (2, -1)])
def test_evidence_about_transactions_that_were_not_planned_is_a_bug(planned, landed):
    with pytest.raises(InternalError, match="node:Person"):
        classify_exact(6, 5, pin_of(5, planned=planned), landed)


# -- decisions --------------------------------------------------------------------------------

WAITING = (5, 5)
ADVANCED = (6, 5)

DECISIONS = [
    ([], [], RecoveryDecision.ROLL_FORWARD),
    ([PAST], [WAITING], RecoveryDecision.ROLL_FORWARD),
    ([PAST, PAST], [WAITING, WAITING], RecoveryDecision.ROLL_FORWARD),
    ([NONE], [WAITING], RecoveryDecision.ROLL_BACK),
    ([AT_P1], [WAITING], RecoveryDecision.ROLL_BACK),
    ([MULTI], [WAITING], RecoveryDecision.ROLL_BACK),
    ([PART], [WAITING], RecoveryDecision.ROLL_BACK),
    ([PAST, NONE], [WAITING, WAITING], RecoveryDecision.ROLL_BACK),
    ([BROKEN], [WAITING], RecoveryDecision.ABORT),
    ([PAST, BROKEN], [WAITING, WAITING], RecoveryDecision.ABORT),
    ([NONE, BROKEN], [ADVANCED, ADVANCED], RecoveryDecision.ABORT),
    # the sidecar of a publish that went through
    ([NONE], [ADVANCED], RecoveryDecision.COMPLETED),
    ([NONE, NONE], [WAITING, ADVANCED], RecoveryDecision.COMPLETED),
    ([NONE, PAST], [ADVANCED, WAITING], RecoveryDecision.ROLL_BACK),
    ([NONE, PART], [ADVANCED, ADVANCED], RecoveryDecision.ROLL_BACK),
    # a pin that went down is no publish
    ([NONE], [(0, 5)], RecoveryDecision.ROLL_BACK),
]


@pytest.mark.parametrize(("classes", "pins", "decision"), DECISIONS)
def test_one_decision_covers_all_tables(classes, pins, decision):
    assert decide(classes, pins) is decision


SETS = [
    candidate
    for size in range(4)
    for candidate in combinations_with_replacement(Classification, size)
]


@pytest.mark.parametrize("published", [True, False, None])
@pytest.mark.parametrize("pair", [WAITING, ADVANCED])
def test_a_table_that_cannot_be_published_is_never_rolled_forward(pair, published):
    for classes in SETS:
        decision = decide(classes, [pair] * len(classes), published=published)
        if BROKEN in classes:
            assert decision is RecoveryDecision.ABORT
        elif set(classes) - {PAST}:
            assert decision in (RecoveryDecision.ROLL_BACK, RecoveryDecision.COMPLETED)
        if decision is RecoveryDecision.COMPLETED:
            assert set(classes) <= {NONE}


def test_the_order_of_tables_does_not_matter():
    for classes in SETS:
        pairs = [WAITING] * len(classes)
        assert decide(classes, pairs) is decide(classes[::-1], pairs)


@pytest.mark.parametrize(
    ("classes", "pins", "published", "decision"),
    [
        ([NONE], [ADVANCED], False, RecoveryDecision.ROLL_BACK),
        ([NONE], [ADVANCED], True, RecoveryDecision.COMPLETED),
        ([NONE], [WAITING], True, RecoveryDecision.COMPLETED),
        ([], [], True, RecoveryDecision.COMPLETED),
        ([], [], False, RecoveryDecision.ROLL_FORWARD),
        ([PAST], [WAITING], False, RecoveryDecision.ROLL_FORWARD),
        ([BROKEN], [ADVANCED], True, RecoveryDecision.ABORT),
    ],
)
def test_what_the_history_says_about_the_commit_beats_the_guess(classes, pins, published, decision):
    assert decide(classes, pins, published=published) is decision
