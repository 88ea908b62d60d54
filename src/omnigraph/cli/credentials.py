"""The tokens of servers: the file that keeps them, and which of them goes with a request.

The file is the user's alone. It is replaced as a whole, and what is not changed in it stays as it
was written. A token is never shown.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from omnigraph.cli.operator_config import Operator
from omnigraph.cli.output import terminal
from omnigraph.errors import InputError
from omnigraph.settings import Settings

_OTHERS = 0o077
_IS_POSIX = os.name == "posix"
_HEADER = re.compile(r"\s*\[([^\]]*)\]\s*$")


def credentials_path() -> Path:
    """Where the tokens are kept."""
    directory = Settings.from_environ().operator_directory()
    if directory is None:
        raise InputError(
            "there is no home directory to keep credentials in", hint="set OMNIGRAPH_HOME"
        )
    return Path(directory, "credentials")


# -- which token ----------------------------------------------------------------------------------


def token_for(base: str, operator: Operator) -> str:
    """The token for requests to an address; empty where there is none."""
    name = server_of(base, operator)
    if name is not None:
        found = Settings.server_token(name) or stored_token(name)
        if found:
            return found
    return Settings.from_environ().bearer_token


def server_of(base: str, operator: Operator) -> str | None:
    """The server of the configuration that an address belongs to: the longest that fits.

    >>> two = Operator(servers={"a": "http://h:80", "b": "http://h:8080/"})
    >>> server_of("http://h:8080/graphs/kb", two), server_of("http://h:8081", two)
    ('b', None)
    """
    address = base.rstrip("/")
    fitting = [
        (len(url), name)
        for name, url in ((name, url.rstrip("/")) for name, url in operator.servers.items())
        if address == url or address.startswith(f"{url}/")
    ]
    return max(fitting)[1] if fitting else None


def stored_token(name: str) -> str:
    """The token that the file has for a server; empty where it has none."""
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
                return _unquoted(value.strip())
    return ""


def _unquoted(value: str) -> str:
    """
    >>> _unquoted('"a b"'), _unquoted("'a"), _unquoted('""')
    ('a b', "'a", '')
    """
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1].strip()
    return value


# -- changing the file ----------------------------------------------------------------------------


def store_token(name: str, token: str) -> Path:
    """Keep a token for a server, in place of an older one."""
    path = credentials_path()
    with _alone(path):
        kept = without_section(_read(path), name)
        if kept and not kept.endswith("\n"):
            kept += "\n"
        if kept.strip() and not kept.endswith(("\n\n", "\n\r\n")):
            kept += "\n"
        # One pair of quotes is taken off when it is read.
        value = f'"{token}"' if _unquoted(token) != token else token
        _write(path, f"{kept}[{name}]\ntoken = {value}\n")
    return path


def remove_token(name: str) -> Path:
    """Forget the token of a server; nothing happens where there is none."""
    path = credentials_path()
    if path.exists():
        with _alone(path):
            text = _read(path)
            kept = without_section(text, name)
            if kept != text:
                _write(path, kept)
    return path


def without_section(text: str, name: str) -> str:
    """The other lines of the file, as they are; a remark above the next section stays with it.

    >>> print(without_section("[a]\\ntoken = 1\\n# of b\\n[b]\\ntoken = 2\\n", "a"), end="")
    # of b
    [b]
    token = 2
    """
    kept: list[str] = []
    held: list[str] = []
    is_inside = False
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        header = _HEADER.match(line)
        if header:
            kept += held
            held = []
            is_inside = header[1].strip() == name
        if not is_inside:
            kept.append(line)
        elif line.lstrip().startswith("#"):
            held.append(line)
        elif line.strip():
            # What stood before it was about this section.
            held = []
        elif held:
            held.append(line)
    return "".join(kept + held)


def _read(path: Path) -> str:
    """The text of the file, odd bytes and all; refused when others could have read it."""
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
    target = path.resolve()
    try:
        # Such a file is readable by its owner only from its first moment.
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".credentials.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text.encode("utf-8", "surrogateescape"))
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise _unwritable(path, error) from None


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """The directory of the file, for one who changes it at a time."""
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
