"""Ids that are made for whole columns are those that are made one by one."""

from __future__ import annotations

import re

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.commit import ulid
from omnigraph.lang.values.spelling import key_id
from omnigraph.write import ids as making
from omnigraph.write.ids import new_ids, spelled_keys

columns = st.sampled_from(
    [
        (pa.string(), st.text(st.characters(codec="utf-8"), max_size=4)),
        (pa.string(), st.text("ab,[]'é\x7f", max_size=4)),
        (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
        (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
        (pa.uint64(), st.integers(0, 2**64 - 1)),
        (pa.bool_(), st.booleans()),
    ]
)


_ESCAPED = re.compile(r'["\\\x00-\x1f]')


@given(st.data(), st.lists(columns, min_size=1, max_size=3))
def test_keys_are_spelled_as_one_by_one(data, kinds):
    rows = data.draw(st.lists(st.tuples(*(st.none() | values for _, values in kinds)), max_size=5))
    arrays = [pa.array([row[n] for row in rows], kind) for n, (kind, _) in enumerate(kinds)]
    actual = spelled_keys(arrays)
    if actual is None:
        assert len(kinds) > 1
        assert any(_ESCAPED.search(value) for row in rows for value in row if type(value) is str)
        return
    assert actual.to_pylist() == [None if None in row else key_id(row) for row in rows]


def test_keys_of_other_kinds_are_left_alone():
    assert spelled_keys([pa.array([0.5])]) is None
    assert spelled_keys([pa.array([1]), pa.array([0], pa.date32())]) is None


@given(st.integers(0, 2**128 - 100), st.integers(0, 90))
def test_ids_are_the_texts_of_consecutive_numbers(start, count):
    """Also where what they share changes on the way."""
    for bits in (10, 20, 40):
        for first in (start, start >> bits << bits, (start >> bits << bits) + (1 << bits) - 7):
            actual = [
                text for column in making._columns(first, count) for text in column.to_pylist()
            ]
            assert actual == [ulid.encode_ulid(number) for number in range(first, first + count)]


def test_new_ids_grow():
    ids = [*new_ids(1_000).to_pylist(), ulid.new_ulid(), *new_ids(2).to_pylist()]
    assert ids == sorted(set(ids))
    assert all(map(ulid.is_ulid, ids))
    assert new_ids(0).to_pylist() == []
