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


def test_s3_settings_become_storage_options():
    settings = Settings.from_environ(
        {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "very-secret",
            "AWS_SESSION_TOKEN": "session",
            "AWS_REGION": "eu-central-1",
            "AWS_ENDPOINT_URL": "http://localhost:8333",
            "AWS_ALLOW_HTTP": "1",
            "AWS_S3_FORCE_PATH_STYLE": "on",
        }
    )
    assert settings.storage_options() == {
        "aws_access_key_id": "key",
        "aws_secret_access_key": "very-secret",
        "aws_session_token": "session",
        "aws_region": "eu-central-1",
        "aws_endpoint": "http://localhost:8333",
        "allow_http": "true",
        "aws_virtual_hosted_style_request": "false",
    }


@pytest.mark.parametrize(
    ("environ", "options"),
    [
        ({}, {}),
        ({"AWS_ALLOW_HTTP": "0", "AWS_S3_FORCE_PATH_STYLE": "no"}, {}),
        ({"AWS_REGION": " "}, {}),
        ({"AWS_DEFAULT_REGION": "b"}, {"aws_region": "b"}),
        ({"AWS_REGION": "a", "AWS_DEFAULT_REGION": "b"}, {"aws_region": "a"}),
        (
            {"AWS_ENDPOINT_URL": "http://any", "AWS_ENDPOINT_URL_S3": "http://s3"},
            {"aws_endpoint": "http://s3"},
        ),
    ],
)
def test_the_more_specific_variable_counts_and_empty_ones_do_not(environ, options):
    assert Settings.from_environ(environ).storage_options() == options


@pytest.mark.parametrize(
    "variable", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"]
)
def test_credentials_are_not_shown(variable):
    assert "very-secret" not in repr(Settings.from_environ({variable: "very-secret"}))
