"""What is planned for a table: enough, never twice, and no index built anew without a reason."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from omnigraph.maintain.optimize.plan import (
    LARGE_SEGMENT,
    MAX_SEGMENTS,
    plan_table,
    reasons_for,
)
from omnigraph.storage.tables.segments import Segment
from omnigraph.storage.tables.store import ROWS_PER_FRAGMENT
from omnigraph.storage.tables.table import FragmentInfo
from omnigraph.storage.tables.types import IndexKind, IndexSpec

FULL = ROWS_PER_FRAGMENT
SPEC = IndexSpec("id", IndexKind.EQUALITY)


def parts(*rows, deleted=()):
    gone = dict(deleted)
    return [FragmentInfo(n, str(n), count, gone.get(n, 0)) for n, count in enumerate(rows)]


def segment(numbers, version=1, name=SPEC.name):
    return Segment(name, f"{name}-{sorted(numbers)}-{version}", frozenset(numbers), version)


def planned(actual, segments=(), ages=None, wanted=(SPEC,), others=()):
    existing = {SPEC.name: segments} if segments else {}
    for other in others:
        existing.setdefault(other.name, []).append(other)
    made = ages or {}
    return plan_table(
        actual, existing, wanted, lambda numbers: min(made.get(n, 1) for n in numbers)
    )


# -- which parts go together --------------------------------------------------------------------


def test_small_parts_become_one():
    assert planned(parts(10, 20, 30)).groups == ((0, 1, 2),)


def test_one_part_that_is_small_stays():
    assert planned(parts(10)).groups == ()


def test_full_parts_stay_whoever_stands_beside_them():
    assert planned(parts(10, FULL, 20, 3 * FULL)).groups == ((0, 2),)


def test_a_group_is_not_more_than_one_full_part():
    assert planned(parts(FULL - 9, 10, FULL - 9, 9)).groups == ((0, 3),)


def test_a_part_of_which_much_is_deleted_is_written_again():
    assert planned(parts(FULL, 80, FULL, deleted={1: 20}.items())).groups == ((1,),)
    assert planned(parts(FULL, 95, FULL, deleted={1: 5}.items())).groups == ()


def test_a_thin_giant_takes_its_small_neighbour_along():
    actual = parts(3 * FULL + 7, 10, deleted={0: FULL}.items())
    assert planned(actual).groups == ((0, 1),)


def test_parts_are_not_put_together_across_the_edge_of_a_foreign_segment():
    actual = parts(10, 10, 10, 10)
    assert planned(actual, others=[segment({0, 1}, name="theirs")]).groups == ((0, 1), (2, 3))


def test_nor_across_the_edge_of_a_large_one_of_ours():
    many = LARGE_SEGMENT // FULL
    actual = parts(*[FULL] * many, 10, 20, 30)
    large = segment(range(many + 1))
    ages = {many + 1: 2, many + 2: 2}
    plan = planned(actual, [large], ages)
    assert plan.groups == ((many + 1, many + 2),)
    assert plan.dropped == ()


def test_unless_it_goes_anyway():
    many = LARGE_SEGMENT // FULL
    actual = parts(*[FULL] * many, 10, 20, 30)
    large = segment(range(many + 1))
    plan = planned(actual, [large], ages={many + 1: 1, many + 2: 2})
    assert plan.groups == ((many, many + 1, many + 2),)
    assert plan.dropped == (large,)


# -- indexes --------------------------------------------------------------------------------------


def test_an_index_that_is_missing_gets_everything():
    (index,) = planned(parts(FULL, FULL)).indexes
    assert (index.fragments, index.is_new) == ({0, 1}, True)


def test_new_rows_get_a_segment_of_their_own():
    (index,) = planned(parts(FULL, FULL, FULL), [segment({0, 1})], ages={2: 2}).indexes
    assert (index.fragments, index.dropped) == ({2}, ())


def test_rows_that_an_older_segment_may_know_have_it_built_anew():
    """A row that was changed lies in a new part, and in the old segment with its old words."""
    old = segment({0, 1}, version=5)
    (index,) = planned(parts(FULL, FULL, FULL), [old], ages={2: 3}).indexes
    assert (index.fragments, index.dropped) == ({0, 1, 2}, (old,))


def test_only_the_segments_go_that_may_know_them():
    old, young = segment({0}, version=1), segment({1}, version=5)
    (index,) = planned(parts(FULL, FULL, FULL), [old, young], ages={1: 3, 2: 3}).indexes
    assert (index.fragments, index.dropped) == ({1, 2}, (young,))


def test_a_segment_that_knows_a_rewritten_part_goes():
    existing = segment({0, 1, 2})
    plan = planned(parts(FULL, 10, 10), [existing])
    assert plan.groups == ((1, 2),)
    assert (plan.indexes[0].fragments, plan.dropped) == ({0}, (existing,))


def test_too_many_segments_become_one():
    count = MAX_SEGMENTS
    segments = [segment({n}, version=n + 1) for n in range(count)]
    actual = parts(*[FULL] * (count + 1))
    ages = {n: n + 1 for n in range(count + 1)}
    (index,) = planned(actual, segments, ages).indexes
    assert index.fragments == set(range(count + 1))
    assert len(index.dropped) == count


def test_a_segment_under_the_name_of_another_column_is_built_anew():
    existing = replace(segment({0, 1}), is_misnamed=True)
    (index,) = planned(parts(FULL, FULL), [existing]).indexes
    assert (index.fragments, index.dropped) == ({0, 1}, (existing,))


def test_an_index_that_knows_everything_is_left_alone():
    assert planned(parts(FULL, 10), [segment({0, 1})]).is_empty


# -- when it is needed ------------------------------------------------------------------------


def needed(actual, segments, ages=None):
    plan = planned(actual, segments, ages)
    assert not plan.is_empty
    return reasons_for(plan, actual, {SPEC.name: segments})


def test_a_few_small_parts_are_not_worth_a_commit_and_many_are():
    assert not needed(parts(100, 1, 1), [segment({0, 1})], {2: 2})
    assert needed(parts(*[1] * 20), [segment(set(range(20)))])


def test_many_rows_without_an_index_are():
    assert needed(parts(FULL, FULL), [segment({0})], {1: 2})


# -- a second run -----------------------------------------------------------------------------

ROWS = st.one_of(st.integers(1, 200), st.integers(1, 3 * FULL), st.just(FULL))


@st.composite
def worn(draw):
    """A table in any state: parts of any size, thin ones, segments over some of them."""
    rows = draw(st.lists(ROWS, min_size=1, max_size=25))
    matches = []
    for number, count in enumerate(rows):
        deleted = draw(st.sampled_from([0, 0, 0, 1, count // 20, count]))
        matches.append(FragmentInfo(number, str(number), count, deleted))
    segments, free = [], list(range(len(rows)))
    for version in range(draw(st.integers(0, 4))):
        some = {n for n in free if draw(st.booleans())}
        free = [n for n in free if n not in some]
        segments.append(segment(some, version + 1))
    ages = {n: draw(st.integers(1, 6)) for n in range(len(rows))}
    return matches, segments, ages


@given(worn())
def test_a_second_run_finds_nothing_to_do_and_every_row_is_known(state):
    actual, segments, ages = state
    plan = planned(actual, segments, ages)
    again = {n for group in plan.groups for n in group}
    after, made = [part for part in actual if part.number not in again], set()
    numbers = iter(range(1000, 10_000))
    # Those that are written again come last.
    for group in plan.groups:
        left = sum(part.rows for part in actual if part.number in group)
        while left:
            take = min(left, FULL)
            after.append(FragmentInfo(number := next(numbers), str(number), take))
            made.add(number)
            left -= take
    live = {part.number for part in after}
    assert sum(part.rows for part in after) == sum(part.rows for part in actual)
    kept = list(segments)
    for index in plan.indexes:
        kept = [s for s in kept if s not in index.dropped]
        assert all(not s.fragments & (again | index.fragments) for s in kept)
        # No segment that stays can hold a row of the new one.
        oldest = min((ages[n] for n in index.fragments | again), default=99)
        assert all(s.version < oldest for s in kept)
        kept.append(segment(index.fragments | made, 7))
    assert live <= {n for s in kept for n in s.fragments}
    assert planned(after, kept, {**ages, **dict.fromkeys(made, 1)}).is_empty
