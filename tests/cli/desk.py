"""An operator's directory, and the command run in this process: for the many small cases."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.warm_commands import main


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    def fails(self, *texts: str, code: int = 1) -> None:
        """It failed as a failure should, and said these things."""
        assert (self.code, self.out) == (code, ""), self
        assert "Error: " in self.err
        for text in texts:
            assert text in self.err

    def works(self) -> str:
        assert self.code == 0, self
        return self.out


class Desk:
    """A directory to work in, with a configuration in ``home``."""

    def __init__(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.directory = directory
        self.home = directory / "home"
        self._patch = monkeypatch
        self._capsys = capsys
        monkeypatch.chdir(directory)
        monkeypatch.setenv("OMNIGRAPH_HOME", str(self.home))
        for name in ("OMNIGRAPH_PROFILE", "OMNIGRAPH_BEARER_TOKEN", "OMNIGRAPH_DEBUG"):
            monkeypatch.delenv(name, raising=False)

    @property
    def credentials(self) -> Path:
        return self.home / "credentials"

    def config(self, text: str) -> Path:
        return self.write("home/config.yaml", text)

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8") if isinstance(text, str) else text)
        return path

    def environ(self, **values: str) -> None:
        for name, value in values.items():
            self._patch.setenv(name, value)

    def run(self, *arguments: str, stdin: str = "") -> Done:
        piped = io.TextIOWrapper(io.BytesIO(stdin.encode("utf-8")), "utf-8")
        self._patch.setattr("sys.stdin", piped)
        self._capsys.readouterr()
        code = main(list(arguments))
        out, err = self._capsys.readouterr()
        assert "internal error" not in err, err
        return Done(code, out, err)
