"""Cursors: bound to what they were issued for, and signed by keys that are shared and replaced."""

from __future__ import annotations

import base64
import json
import stat
from dataclasses import replace
from datetime import date

import pytest

from omnigraph.api.cursor_keys import ACCEPTED_SECONDS, PATH, SIGNING_SECONDS, StoredCursorKeys
from omnigraph.api.cursors import UNSIGNED, CursorKey, CursorScope, PageCursor
from omnigraph.errors import ForeignCursor, InvalidCursor, StorageError, ViewChanged
from omnigraph.storage.objects.paths import parse_root
from omnigraph.storage.objects.store import ObjectStore

SCOPE = CursorScope.of("query q() {}", None, {"n": 1}, "ana", "", "main")


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def objects(tmp_path) -> ObjectStore:
    return ObjectStore(parse_root(str(tmp_path / "g.omni")))


@pytest.fixture
def keys(objects, clock) -> StoredCursorKeys:
    return StoredCursorKeys(objects, clock)


def position(offset: int = 5, scope: CursorScope = SCOPE) -> PageCursor:
    return PageCursor(scope, "01ABC", offset, 1_700_000_000_000, "")


# -- what a cursor is bound to ------------------------------------------------------------------


def test_a_cursor_is_read_back_with_everything_it_was_issued_for(keys):
    assert PageCursor.parse(position().text(keys), keys, SCOPE) == position()


@pytest.mark.parametrize(
    "scope",
    [
        CursorScope.of("query r() {}", None, {"n": 1}, "ana", "", "main"),
        CursorScope.of("query q() {}", "q", {"n": 1}, "ana", "", "main"),
        CursorScope.of("query q() {}", None, {"n": 2}, "ana", "", "main"),
        CursorScope.of("query q() {}", None, {"n": "1"}, "ana", "", "main"),
        CursorScope.of("query q() {}", None, None, "ana", "", "main"),
        CursorScope.of("query q() {}", None, {"n": 1}, "ana", "", "review"),
    ],
)
def test_a_cursor_is_for_its_text_name_parameters_and_branch_only(keys, scope):
    with pytest.raises(InvalidCursor, match="belongs to another query"):
        PageCursor.parse(position().text(keys), keys, scope)


@pytest.mark.parametrize("actor", ["bob", None, "Ana", "ana "])
def test_a_cursor_of_another_actor_is_denied(keys, actor):
    scope = CursorScope.of("query q() {}", None, {"n": 1}, actor, "", "main")
    with pytest.raises(ForeignCursor):
        PageCursor.parse(position().text(keys), keys, scope)


def test_a_cursor_of_another_policy_is_gone(keys):
    scope = CursorScope.of("query q() {}", None, {"n": 1}, "ana", "5f" * 32, "main")
    with pytest.raises(ViewChanged, match="the policy has changed"):
        PageCursor.parse(position().text(keys), keys, scope)
    cursor = replace(position(), scope=scope)
    assert PageCursor.parse(cursor.text(keys), keys, scope) == cursor


def test_parameters_of_any_type_have_a_digest():
    one = CursorScope.of("q", None, {"since": date(2026, 1, 31), "x": float("nan")}, None, "")
    same = {"x": float("nan"), "since": date(2026, 1, 31)}
    assert one == CursorScope.of("q", None, same, None, "")


# -- tampering ----------------------------------------------------------------------------------


def test_no_bit_of_a_cursor_can_be_changed(keys):
    text = position().text(keys)
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    for at in range(len(raw)):
        for bit in range(8):
            changed = bytearray(raw)
            changed[at] ^= 1 << bit
            forged = base64.urlsafe_b64encode(changed).decode().rstrip("=")
            with pytest.raises(InvalidCursor, match="invalid, or too old"):
                PageCursor.parse(forged, keys, SCOPE)


def test_no_letter_of_a_cursor_can_be_replaced(keys):
    text = position().text(keys)
    for at, letter in enumerate(text):
        for other in {"A", "z", "-", "_", "=", " ", "\n", "é", "\0"} - {letter}:
            with pytest.raises(InvalidCursor):
                PageCursor.parse(text[:at] + other + text[at + 1 :], keys, SCOPE)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: text[:-1],
        lambda text: text[1:],
        lambda text: text + "A",
        lambda text: text + "=",
        lambda text: f"{text}\n",
        lambda text: text * 2,
        lambda text: "A" * 100_000,
        lambda text: text.swapcase(),
    ],
)
def test_a_cursor_of_another_length_is_invalid(keys, change):
    with pytest.raises(InvalidCursor):
        PageCursor.parse(change(position().text(keys)), keys, SCOPE)


def test_a_cursor_of_another_graph_or_without_a_signature_is_invalid(keys, tmp_path):
    others = StoredCursorKeys(ObjectStore(parse_root(str(tmp_path / "h.omni"))))
    for foreign in (others, UNSIGNED):
        with pytest.raises(InvalidCursor):
            PageCursor.parse(position().text(foreign), keys, SCOPE)


def test_a_signature_with_the_wrong_secret_of_a_known_key_is_invalid(keys):
    class Forger:
        def signing(self) -> CursorKey:
            return CursorKey(keys.signing().key_id, b"guessed" * 5)

        def find(self, key_id: bytes) -> CursorKey | None:
            return None

    with pytest.raises(InvalidCursor):
        PageCursor.parse(position().text(Forger()), keys, SCOPE)


# -- keys ---------------------------------------------------------------------------------------


def test_the_keys_are_in_a_private_file_and_in_no_text(keys, objects, tmp_path):
    key = keys.signing()
    file = tmp_path / "g.omni" / PATH
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert key.secret.hex() not in f"{key!r} {key} {keys!r}"


def test_processes_that_start_at_the_same_time_sign_with_one_key(objects):
    processes = [StoredCursorKeys(objects) for _ in range(5)]
    assert len({keys.signing().key_id for keys in processes}) == 1


def test_a_cursor_is_accepted_by_other_processes_and_after_a_restart(keys, objects, clock):
    other = StoredCursorKeys(objects, clock)
    text = position().text(keys)
    assert PageCursor.parse(text, other, SCOPE) == position()
    assert PageCursor.parse(text, StoredCursorKeys(objects, clock), SCOPE) == position()


def test_a_key_is_replaced_and_accepted_for_a_bounded_time(keys, objects, clock):
    other = StoredCursorKeys(objects, clock)
    old = position().text(keys)
    assert PageCursor.parse(old, other, SCOPE) == position()
    clock.now += SIGNING_SECONDS
    new = position(6).text(keys)
    # The other process has not read the new key yet, and accepts it at once.
    assert PageCursor.parse(new, other, SCOPE) == position(6)
    assert other.signing().key_id == keys.signing().key_id
    clock.now += ACCEPTED_SECONDS - 1
    assert PageCursor.parse(old, other, SCOPE) == position()
    clock.now += 1
    for process in (keys, other):
        with pytest.raises(InvalidCursor):
            PageCursor.parse(old, process, SCOPE)
        assert PageCursor.parse(new, process, SCOPE) == position(6)


def test_a_process_that_slept_signs_with_a_key_that_all_accept(keys, objects, clock):
    sleeper = StoredCursorKeys(objects, clock)
    sleeper.signing()
    for _ in range(5):
        clock.now += SIGNING_SECONDS
        keys.signing()
    assert PageCursor.parse(position().text(sleeper), keys, SCOPE) == position()


def test_keys_that_are_not_accepted_any_more_are_not_kept(keys, objects, clock):
    for _ in range(9):
        keys.signing()
        clock.now += SIGNING_SECONDS
    assert len(json.loads(objects.read(PATH))["keys"]) <= 2


def test_a_removed_object_makes_all_cursors_invalid(keys, objects, clock):
    text = position().text(keys)
    objects.delete(PATH)
    clock.now += 60
    with pytest.raises(InvalidCursor):
        PageCursor.parse(text, keys, SCOPE)
    assert PageCursor.parse(position().text(keys), keys, SCOPE) == position()


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"keys": [{"id": "00", "secret": ""}]}'])
def test_a_damaged_object_is_replaced(keys, objects, damage):
    objects.write(PATH, damage)
    assert PageCursor.parse(position().text(keys), keys, SCOPE) == position()


def test_an_old_key_signs_where_nothing_can_be_written(keys, objects, clock, monkeypatch):
    before = keys.signing()

    def refuse(*_: object, **__: object) -> bool:
        raise StorageError("read-only")

    monkeypatch.setattr(objects, "replace", refuse)
    monkeypatch.setattr(objects, "create", refuse)
    clock.now += SIGNING_SECONDS
    assert keys.signing().key_id == before.key_id
    objects.delete(PATH)
    clock.now += 60
    with pytest.raises(StorageError):
        keys.signing()
