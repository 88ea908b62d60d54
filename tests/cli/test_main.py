"""What the command does when OmniGraph itself fails."""

from __future__ import annotations

import pytest

from omnigraph import cli
from omnigraph.cli.commands import configuration


@pytest.fixture
def broken_version(monkeypatch):
    def fail(arguments):
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(configuration, "run_version", fail)


@pytest.mark.usefixtures("broken_version")
def test_a_bug_is_one_line_and_a_hint(capsys, monkeypatch):
    monkeypatch.delenv("OMNIGRAPH_DEBUG", raising=False)
    assert cli.main(["version", "--quiet"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Error: internal error (ZeroDivisionError): a bug in OmniGraph")
    assert "OMNIGRAPH_DEBUG=1" in err
    assert "Traceback" not in err


@pytest.mark.usefixtures("broken_version")
def test_a_bug_shows_its_traceback_on_request(monkeypatch):
    monkeypatch.setenv("OMNIGRAPH_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli.main(["version", "--quiet"])


def test_a_failure_of_the_system_is_one_line(capsys, monkeypatch):
    def fail(arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(configuration, "run_version", fail)
    assert cli.main(["version", "--quiet"]) == 1
    assert capsys.readouterr().err == "Error: no space left on device\n"
