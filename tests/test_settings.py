"""The environment is read once, by name, and only what is known."""

from __future__ import annotations

import pytest

from omnigraph.settings import Settings


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", True), ("true", True), (" Yes ", True), ("0", False), ("", False), ("maybe", False)],
)
def test_a_switch_is_read(text, expected):
    assert Settings.from_environ({"OMNIGRAPH_DEBUG": text}).debug is expected


def test_nothing_set_means_the_defaults():
    assert Settings.from_environ({}) == Settings()


def test_the_process_environment_is_the_default(monkeypatch):
    monkeypatch.setenv("OMNIGRAPH_DEBUG", "1")
    assert Settings.from_environ().debug
    monkeypatch.delenv("OMNIGRAPH_DEBUG")
    assert not Settings.from_environ().debug


def test_settings_do_not_change():
    with pytest.raises(AttributeError):
        Settings().debug = True
