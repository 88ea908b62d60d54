"""Numbers of ids never change, whatever is asked for in between."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.topology.nodes import Ids

TEXTS = st.lists(st.text(max_size=4), max_size=20)


@given(st.lists(st.tuples(TEXTS, st.booleans()), max_size=6))
def test_an_id_keeps_the_number_it_was_given_first(batches):
    ids = Ids()
    existing = {}
    for texts, look_up_one in batches:
        for text, number in zip(texts, ids.numbers(pa.array(texts, pa.string())), strict=True):
            assert existing.setdefault(text, int(number)) == number
        if look_up_one and texts:
            assert ids.number(texts[0]) == existing[texts[0]]
        assert ids.number("not among them") is None
    assert sorted(existing.values()) == list(range(len(existing)))
    assert len(ids) == len(existing)
    order = sorted(existing, key=existing.get)
    assert ids.array().to_pylist() == order
    assert ids.texts(np.arange(len(order))).to_pylist() == order


def test_threads_that_number_the_same_ids_agree():
    ids = Ids()
    texts = pa.array([str(n) for n in range(2_000)])
    matches = []

    def number():
        matches.append(ids.numbers(texts).tolist())

    threads = [threading.Thread(target=number) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(item == matches[0] for item in matches)
    assert len(ids) == 2_000
