"""Vectors on disk until a commit has them: found again, whole or not at all."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.embed.job.spool import KEY_TYPE, UNKNOWN, VectorSpool, open_spool, vector_key
from omnigraph.errors import StorageCorrupt


def key(text: str, dimension: int = 3) -> bytes:
    return vector_key("mock", "m", dimension, text)


def keys(*texts: str | None) -> pa.Array:
    return pa.array([None if text is None else key(text) for text in texts], KEY_TYPE)


def some(count: int, seed: int = 0, dimension: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).random((count, dimension), np.float32)


def files(folder):
    return sorted(name for name in os.listdir(folder) if name.endswith(".arrow"))


def test_what_was_kept_is_found_by_another_process(tmp_path):
    first, vectors = VectorSpool(tmp_path), some(3)
    first.add([key("a"), key("b")], vectors[:2])
    first.add([key("c")], vectors[2:])
    for spool in (first, VectorSpool(tmp_path)):
        spool.refresh()
        locations = spool.find(keys("c", "nobody", "a", None, "c", "b"))
        assert (locations == UNKNOWN).tolist() == [False, True, False, True, False, False]
        there = locations[locations != UNKNOWN]
        assert np.array_equal(spool.read(there, 3), vectors[[2, 0, 2, 1]])


def test_what_was_found_stays_when_more_comes(tmp_path):
    spool, vectors = VectorSpool(tmp_path), some(2)
    spool.add([key("a")], vectors[:1])
    location = spool.find(keys("a"))
    VectorSpool(tmp_path).add([key("b")], vectors[1:])
    spool.refresh()
    assert np.array_equal(spool.read(location, 3), vectors[:1])


def test_providers_models_and_sizes_are_kept_apart():
    names = {
        vector_key(provider, model, size, text)
        for provider in ("a", "b")
        for model in ("", "m")
        for size in (3, 4)
        for text in ("x", "y")
    }
    assert len(names) == 16


def test_nothing_in_a_spool_shows_a_text(tmp_path):
    VectorSpool(tmp_path).add([key("confidential")], some(1))
    (name,) = files(tmp_path)
    assert b"confidential" not in (tmp_path / name).read_bytes()


def test_a_file_that_was_damaged_is_never_used(tmp_path):
    VectorSpool(tmp_path).add([key("a")], some(1))
    (name,) = files(tmp_path)
    content = bytearray((tmp_path / name).read_bytes())
    at = content.find(some(1).tobytes())
    content[at] ^= 1
    (tmp_path / name).write_bytes(content)
    spool = VectorSpool(tmp_path)
    spool.refresh()
    with pytest.raises(StorageCorrupt, match="damaged") as caught:
        spool.read(spool.find(keys("a")), 3)
    assert caught.value.details["file"] == name


def test_a_file_that_was_cut_off_is_a_typed_error(tmp_path):
    VectorSpool(tmp_path).add([key("a")], some(1))
    (name,) = files(tmp_path)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(StorageCorrupt):
        VectorSpool(tmp_path).refresh()


def test_half_a_file_of_a_process_that_died_is_not_looked_at(tmp_path):
    (tmp_path / ".01ABC.half").write_bytes(b"ARROW1")
    spool = VectorSpool(tmp_path)
    spool.refresh()
    assert spool.find(keys("a")).tolist() == [UNKNOWN]


def test_our_own_folder_is_emptied_when_all_went_well(tmp_path):
    folder = tmp_path / "ours"

    def fail():
        with open_spool(folder, is_ours=True):
            VectorSpool(folder).add([key("a")], some(1))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert len(files(folder)) == 1
    with open_spool(folder, is_ours=True):
        with open_spool(folder, is_ours=True):
            pass
        assert len(files(folder)) == 1, "another job still uses it"
    assert files(folder) == []


def test_a_folder_of_the_caller_is_left_as_it_is(tmp_path):
    with open_spool(tmp_path / "kept", is_ours=False) as folder:
        VectorSpool(folder).add([key("a")], some(1))
    assert len(files(folder)) == 1
    assert folder.stat().st_mode & 0o077 == 0


@given(st.lists(st.lists(st.text(max_size=3), min_size=1, max_size=6, unique=True), max_size=5))
def test_any_number_of_answers_is_found_again(tmp_path_factory, responses):
    folder = tmp_path_factory.mktemp("spool")
    expected = {}
    for number, texts in enumerate(responses):
        vectors = some(len(texts), seed=number)
        VectorSpool(folder).add([key(text) for text in texts], vectors)
        expected.update({text: vectors[position] for position, text in enumerate(texts)})
    spool = VectorSpool(folder)
    spool.refresh()
    wanted = sorted(expected)
    locations = spool.find(pa.array([key(text) for text in wanted], KEY_TYPE))
    assert (locations != UNKNOWN).all()
    actual = spool.read(locations, 3)
    for position, text in enumerate(wanted):
        stored = [some(len(t), seed=n)[t.index(text)] for n, t in enumerate(responses) if text in t]
        assert any(np.array_equal(actual[position], item) for item in stored)
