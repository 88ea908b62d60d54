"""Pending rows: whole rows by id, the last one wins, however they came."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.lang.schema.compile import compile_schema
from omnigraph.lang.values.arrow import from_millis, to_timestamp
from omnigraph.write.mutation import PendingTable

KIND = compile_schema(
    """node T {
      k: String @key  n: I32?  words: [String]?  at: DateTime?  v: Vector(2)?  body: Blob?
    }"""
).node("T")
SCHEMA = KIND.arrow_schema()
NOTHING = {field.name: None for field in SCHEMA}


def column(name, values):
    """Values as the column has them; moments are given in milliseconds."""
    type_ = SCHEMA.field(name).type
    if name == "at":
        return from_millis(pa.array(values, pa.int64()))
    return pa.array(values, type_)


def one(**values):
    """What an insert hands over: arrays of one."""
    return {name: column(name, [value]) for name, value in values.items()}


def table(*rows):
    return pa.table([column(n, [row[n] for row in rows]) for n in SCHEMA.names], schema=SCHEMA)


def shown(pending):
    """The pending rows by id, moments in milliseconds; an id twice is an error."""
    image = pending.image()
    position = image.schema.get_field_index("at")
    if position >= 0:
        moments = to_timestamp(image["at"].combine_chunks()).cast(pa.int64())
        image = image.set_column(position, "at", moments)
    rows = image.to_pylist()
    actual = {row["id"]: row for row in rows}
    assert len(actual) == len(rows)
    assert sorted(actual) == sorted(pending.ids().to_pylist())
    return actual


def test_an_insert_is_a_whole_row():
    pending = PendingTable(KIND)
    pending.insert("a", one(k="a", n=1, at=1_714_557_600_123, body=b"x", v=[1.0, 2.0]))
    pending.insert("b", one(k="b"))
    assert shown(pending) == {
        "a": {
            "id": "a",
            "k": "a",
            "n": 1,
            "words": None,
            "at": 1_714_557_600_123,
            "v": [1.0, 2.0],
            "body": b"x",
        },
        "b": {**NOTHING, "id": "b", "k": "b"},
    }
    assert pending.image().schema == SCHEMA


def test_nothing_is_pending_at_first():
    pending = PendingTable(KIND)
    assert shown(pending) == {}
    assert pending.image().schema == SCHEMA


def test_some_columns_may_be_left_out():
    """An update that leaves a Blob alone does not carry it."""
    pending = PendingTable(KIND, ("n", "id", "k"))
    assert pending.schema.names == ["id", "k", "n"]
    pending.put(table({**NOTHING, "id": "a", "k": "a", "n": 3, "body": b"left alone"}))
    assert shown(pending) == {"a": {"id": "a", "k": "a", "n": 3}}


def test_a_look_in_between_changes_nothing():
    looked, blind = PendingTable(KIND), PendingTable(KIND)
    for pending in (looked, blind):
        for number, row_id in enumerate("abca"):
            pending.insert(row_id, one(k=row_id, n=number))
            if pending is looked:
                assert row_id in shown(pending)
    assert shown(looked) == shown(blind)
    assert {row_id: row["n"] for row_id, row in shown(blind).items()} == {"a": 3, "b": 1, "c": 2}


ids = st.sampled_from("abcde")
moments = st.integers(-(10**12), 10**12)
values = st.fixed_dictionaries(
    {},
    optional={
        "n": st.none() | st.integers(-5, 5),
        "words": st.none() | st.lists(st.sampled_from(["", "x"]), max_size=2),
        "at": st.none() | moments,
        "v": st.none() | st.just([0.5, 1.0]),
        "body": st.none() | st.binary(max_size=3),
    },
)
steps = st.lists(
    st.tuples(st.just("insert"), st.tuples(ids, values).map(lambda pair: [pair]))
    | st.tuples(
        st.just("put"), st.dictionaries(ids, values, max_size=3).map(lambda d: [*d.items()])
    )
    | st.tuples(st.just("look"), st.just([])),
    max_size=12,
)


@given(steps)
def test_pending_rows_are_a_dict_by_id(steps):
    pending, model = PendingTable(KIND), {}
    for step, rows in steps:
        whole = {i: {**NOTHING, "id": i, "k": i, **given} for i, given in rows}
        if step == "insert":
            ((row_id, given_values),) = rows
            pending.insert(row_id, one(k=row_id, **given_values))
        elif step == "put":
            pending.put(table(*whole.values()))
        else:
            assert shown(pending) == model
        model.update(whole)
    assert shown(pending) == model
