"""Where the warm process of this user listens, and messages over its socket.

The directory belongs to the user alone, and no link leads to it: it is opened once, checked, and
used by its descriptor, so that it cannot be swapped in between. Each side asks the system which
user the other side is. One socket per installation: another interpreter or environment has its own.
Imported by every command, so this module imports hardly anything.
"""

from __future__ import annotations

import _socket
import binascii
import os
import sys

import omnigraph

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

STREAMS = 3
"""A request brings the descriptors of stdin, stdout and stderr along."""
_MOST_BYTES = 64 << 20
_CREDENTIALS = 12
_INT = 4


class Broken(Exception):
    """The other side has closed the connection, or sends something else."""


def installation() -> list[str]:
    """The program that both sides must be."""
    package = os.path.dirname(os.path.abspath(omnigraph.__file__))
    return [sys.version, sys.prefix, package, str(sys.flags.optimize)]


def socket_name() -> str:
    """The name of the socket of this installation; a collision is noticed by the process."""
    return f"warm-{binascii.crc32(chr(0).join(installation()).encode('utf-8', 'replace')):08x}"


def directory_path(runtime: str) -> str:
    """The directory of the sockets of this user.

    >>> directory_path("/run/user/7")
    '/run/user/7/omnigraph'
    """
    return f"{runtime}/omnigraph" if runtime else f"/tmp/omnigraph-{os.geteuid()}"


def open_directory(path: str) -> int:
    """A descriptor of the directory; ``PermissionError`` unless it is this user's alone."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    status = os.fstat(directory)
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        os.close(directory)
        raise PermissionError(f"{path} is not a private directory of this user")
    return directory


def path_in(directory: int, name: str) -> str:
    """The path of a file in an open directory, however long the path of that is."""
    return f"/proc/self/fd/{directory}/{name}"


def connect(runtime: str, patience: float) -> _socket.socket:
    """Connect to the warm process; ``OSError`` if there is none of this user."""
    directory = open_directory(directory_path(runtime))
    try:
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            connection.settimeout(patience)
            connection.connect(path_in(directory, socket_name()))
            check_peer(connection)
        except BaseException:
            connection.close()
            raise
    finally:
        os.close(directory)
    return connection


def check_peer(connection: _socket.socket) -> int:
    """The process on the other side; ``PermissionError`` if it is another user's."""
    raw = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _CREDENTIALS)
    pid, uid = (int.from_bytes(raw[at : at + _INT], sys.byteorder) for at in (0, _INT))
    if uid != os.geteuid():
        raise PermissionError("the other side of the socket is another user")
    return pid


# -- messages ---------------------------------------------------------------------------------


def send(
    connection: _socket.socket, kind: bytes, data: bytes = b"", descriptors: Sequence[int] = ()
) -> None:
    """Send one message: a letter, the length and the data."""
    message = kind + len(data).to_bytes(_INT, "big") + data
    if descriptors:
        packed = b"".join(number.to_bytes(_INT, sys.byteorder) for number in descriptors)
        rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)]
        message = message[connection.sendmsg([message], rights) :]
    connection.sendall(message)


def receive(connection: _socket.socket) -> tuple[bytes, bytes, list[int]]:
    """Receive one message, with the descriptors that came along; ``Broken`` at the end."""
    numbers: list[int] = []
    try:
        header = _receive_bytes(connection, 1 + _INT, numbers)
        size = int.from_bytes(header[1:], "big")
        if size > _MOST_BYTES:
            raise Broken
        return header[:1], _receive_bytes(connection, size, numbers), numbers
    except BaseException:
        for number in numbers:
            os.close(number)
        raise


def _receive_bytes(connection: _socket.socket, size: int, numbers: list[int]) -> bytes:
    received = b""
    space = _socket.CMSG_SPACE(STREAMS * _INT)
    while len(received) < size:
        data, control, _, _ = connection.recvmsg(size - len(received), space, _CLOSE_ON_EXEC)
        for level, kind, packed in control:
            if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                numbers += [
                    int.from_bytes(packed[at : at + _INT], sys.byteorder)
                    for at in range(0, len(packed) - _INT + 1, _INT)
                ]
        if not data:
            raise Broken
        received += data
    return received


_CLOSE_ON_EXEC = getattr(_socket, "MSG_CMSG_CLOEXEC", 0)
