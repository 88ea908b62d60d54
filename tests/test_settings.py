"""The environment is read once, by name, and only what is known."""

from __future__ import annotations

import pytest

from omnigraph import Graph, InputError
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


@pytest.mark.parametrize(
    ("name", "variable", "text", "expected"),
    [
        ("maintenance_concurrency", "OMNIGRAPH_MAINTENANCE_CONCURRENCY", "4", 4),
        ("maintenance_concurrency", "OMNIGRAPH_MAINTENANCE_CONCURRENCY", "", 8),
        ("indexed_max_hops", "OMNIGRAPH_EXPAND_INDEXED_MAX_HOPS", "0", 0),
        ("spark_key_bytes", "OMNIGRAPH_SPARK_KEY_BYTES", "", 1 << 30),
        ("traversal_mode", "OMNIGRAPH_TRAVERSAL_MODE", "CSR", "csr"),
        ("traversal_mode", "OMNIGRAPH_TRAVERSAL_MODE", "", "auto"),
    ],
)
def test_a_setting_has_a_type_and_a_default(name, variable, text, expected):
    assert getattr(Settings.from_environ({variable: text}), name) == expected


@pytest.mark.parametrize(
    ("name", "variable", "text"),
    [
        ("maintenance_concurrency", "OMNIGRAPH_MAINTENANCE_CONCURRENCY", "0"),
        ("maintenance_concurrency", "OMNIGRAPH_MAINTENANCE_CONCURRENCY", "many"),
        ("indexed_max_hops", "OMNIGRAPH_EXPAND_INDEXED_MAX_HOPS", "-1"),
        ("indexed_max_frontier", "OMNIGRAPH_EXPAND_INDEXED_MAX_FRONTIER", "1.5"),
        ("spark_key_bytes", "OMNIGRAPH_SPARK_KEY_BYTES", "1 GB"),
        ("traversal_mode", "OMNIGRAPH_TRAVERSAL_MODE", "warp"),
    ],
)
def test_an_invalid_value_is_refused_by_the_name_of_its_variable(name, variable, text):
    settings = Settings.from_environ({variable: text})
    with pytest.raises(InputError, match=f"invalid {variable} '{text}'; expected"):
        getattr(settings, name)
    assert not settings.debug  # the others can be used


def test_a_graph_keeps_the_settings_it_was_opened_with(tmp_path, monkeypatch):
    with Graph.init(tmp_path / "g.omni", "node A { n: String @key }", durability="os") as graph:
        monkeypatch.setenv("OMNIGRAPH_MAINTENANCE_CONCURRENCY", "many")
        assert graph.maintenance.optimize().commit_id is None
