"""Server tokens: the credentials file, and the choice of a token for a request.

Only the user may read the file. It is replaced atomically, and unrelated lines are kept verbatim.
A token is never printed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from omnigraph.cli import files
from omnigraph.cli.operator_config import OperatorConfig
from omnigraph.cli.output import terminal
from omnigraph.errors import InputError
from omnigraph.settings import Settings

_OTHERS = 0o077
_IS_POSIX = os.name == "posix"
_HEADER = re.compile(r"\s*\[([^\]]*)\]\s*$")


def credentials_path() -> Path:
    """The path of the credentials file."""
    directory = Settings.from_environ().operator_directory()
    if directory is None:
        raise InputError("no home directory for the credentials file", hint="set OMNIGRAPH_HOME")
    return Path(directory, "credentials")


# -- choosing a token -----------------------------------------------------------------------------


def find_token(base: str, operator: OperatorConfig) -> str:
    """The token for requests to an address; empty if there is none."""
    name = match_server(base, operator)
    if name is not None:
        token = Settings.server_token(name) or read_token(name)
        if token:
            return token
    return Settings.from_environ().bearer_token


def match_server(base: str, operator: OperatorConfig) -> str | None:
    """The configured server with the longest URL that is a prefix of an address.

    >>> two = OperatorConfig(servers={"a": "http://h:80", "b": "http://h:8080/"})
    >>> match_server("http://h:8080/graphs/kb", two), match_server("http://h:8081", two)
    ('b', None)
    """
    address = base.rstrip("/")
    matches = [
        (len(url), name)
        for name, url in ((name, url.rstrip("/")) for name, url in operator.servers.items())
        if address == url or address.startswith(f"{url}/")
    ]
    return max(matches)[1] if matches else None


def read_token(name: str) -> str:
    """The stored token of a server; empty if there is none."""
    if Settings.from_environ().operator_directory() is None:
        return ""
    is_inside = False
    for line in _read(credentials_path()).split("\n"):
        header = _HEADER.match(line)
        if header:
            is_inside = header[1].strip() == name
        elif is_inside and not line.lstrip().startswith("#"):
            key, sign, value = line.partition("=")
            if sign and key.strip() == "token":
                return _unquote(value.strip())
    return ""


def _unquote(value: str) -> str:
    """
    >>> _unquote('"a b"'), _unquote("'a"), _unquote('""')
    ('a b', "'a", '')
    """
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1].strip()
    return value


# -- changing the file ----------------------------------------------------------------------------


def store_token(name: str, token: str) -> Path:
    """Store the token of a server, replacing an older one."""
    path = credentials_path()
    with _locked(path):
        kept = drop_section(_read(path), name)
        if kept and not kept.endswith("\n"):
            kept += "\n"
        if kept.strip() and not kept.endswith(("\n\n", "\n\r\n")):
            kept += "\n"
        # Reading strips one pair of quotes.
        value = f'"{token}"' if _unquote(token) != token else token
        _write(path, f"{kept}[{name}]\ntoken = {value}\n")
    return path


def remove_token(name: str) -> Path:
    """Delete the token of a server, if there is one."""
    path = credentials_path()
    if path.exists():
        with _locked(path):
            text = _read(path)
            kept = drop_section(text, name)
            if kept != text:
                _write(path, kept)
    return path


def drop_section(text: str, name: str) -> str:
    """The text without one section; a comment above the next section is kept.

    >>> print(drop_section("[a]\\ntoken = 1\\n# of b\\n[b]\\ntoken = 2\\n", "a"), end="")
    # of b
    [b]
    token = 2
    """
    kept: list[str] = []
    comments: list[str] = []
    is_inside = False
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        header = _HEADER.match(line)
        if header:
            kept += comments
            comments = []
            is_inside = header[1].strip() == name
        if not is_inside:
            kept.append(line)
        elif line.lstrip().startswith("#"):
            comments.append(line)
        elif line.strip():
            # Earlier comments belong to this section.
            comments = []
        elif comments:
            comments.append(line)
    return "".join(kept + comments)


def _read(path: Path) -> str:
    """Read the file, including invalid UTF-8; refuse it if others could read it."""
    try:
        with path.open("rb") as file:
            if _IS_POSIX and os.fstat(file.fileno()).st_mode & _OTHERS:
                raise InputError(
                    f"the credentials file '{path}' is group/world-accessible",
                    hint=f"run: chmod 600 {path}",
                )
            return file.read().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise InputError(f"could not read {terminal.describe_os_error(error)}") from None


def _write(path: Path, text: str) -> None:
    try:
        files.replace_bytes(path.resolve(), text.encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise _unwritable(path, error) from None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Create and lock the directory of the file."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path.parent, os.O_RDONLY)
    except OSError as error:
        raise _unwritable(path, error) from None
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _unwritable(path: Path, error: OSError) -> InputError:
    reason = (error.strerror or type(error).__name__).lower()
    return InputError(f"could not write the credentials file '{path}': {reason}")
