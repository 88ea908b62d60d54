"""System calls of another process, answered by us: seccomp's user notifications.

A process installs a filter over all its threads. From then on a thread that makes one of the
chosen calls waits until the holder of the *listener* has looked at the call and lets it go on, or
answers it with an error. Nothing is traced or stopped, so the process keeps its own timing, and
there is one order over all threads: that of the answers.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

NUMBERS: Mapping[str, int] = {
    "write": 1,
    "close": 3,
    "pwrite64": 18,
    "writev": 20,
    "sendfile": 40,
    "fsync": 74,
    "fdatasync": 75,
    "ftruncate": 77,
    "rename": 82,
    "mkdir": 83,
    "rmdir": 84,
    "link": 86,
    "unlink": 87,
    "openat": 257,
    "mkdirat": 258,
    "unlinkat": 263,
    "renameat": 264,
    "linkat": 265,
    "fallocate": 285,
    "pwritev": 296,
    "renameat2": 316,
    "copy_file_range": 326,
    "pwritev2": 328,
}
"""The calls of x86-64 that change files; of ``openat`` only those that may create one."""

READING: Mapping[str, int] = {
    "read": 0,
    "stat": 4,
    "fstat": 5,
    "lstat": 6,
    "mmap": 9,
    "pread64": 17,
    "readv": 19,
    "access": 21,
    "getdents64": 217,
    "openat": 257,
    "newfstatat": 262,
    "faccessat": 269,
    "preadv": 295,
    "statx": 332,
}
"""The calls that only look: of ``openat`` those that create nothing, of ``mmap`` those of files."""

NAMES = {number: name for name, number in (*NUMBERS.items(), *READING.items())}

_MACHINE = "x86_64"
_AUDIT_ARCH = 0xC000003E
_PR_SET_NO_NEW_PRIVS = 38
_SYS_SECCOMP = 317
_SYS_PIDFD_GETFD = 438
_SET_MODE_FILTER = 1
_GET_NOTIF_SIZES = 3
_FOR_ALL_THREADS = 1 | 16  # TSYNC, which tells a failure by an error of its own
_NEW_LISTENER = 8
_ALLOW = 0x7FFF0000
_NOTIFY = 0x7FC00000

_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_INSTRUCTION = struct.Struct("HBBI")
_AT_NUMBER, _AT_ARCH = 0, 4
_AT_ARGUMENT = (16 + 2 * 8, 16 + 3 * 8)
_MAP_ANONYMOUS = 0x20

_NOTIFICATION = struct.Struct("QIIiIQ6Q")
_ANSWER = struct.Struct("QqiI")
_ADDFD = struct.Struct("QIIII")
_SIZES = struct.Struct("HHH")
_RECEIVE = 0xC0502100
_SEND = 0xC0182101
_ADD_DESCRIPTOR = 0x40182103
_SET_FLAGS = 0x40082104
_SYNC_WAKE_UP = 1
_CONTINUE = 1
_AT_THIS_NUMBER = 1

_libc = ctypes.CDLL(None, use_errno=True)


def unusable() -> str | None:
    """Why this machine cannot do it, or ``None``."""
    if platform.system() != "Linux" or platform.machine() != _MACHINE:
        return f"the calls are numbered for Linux on {_MACHINE}"
    sizes = ctypes.create_string_buffer(_SIZES.size)
    if _libc.syscall(_SYS_SECCOMP, _GET_NOTIF_SIZES, 0, sizes):
        return "this kernel has no user notifications of seccomp"
    expected = (_NOTIFICATION.size, _ANSWER.size, 64)
    if _SIZES.unpack(sizes.raw) != expected:
        return f"this kernel has other sizes of notifications than {expected}"
    return None


# -- in the process that is watched ---------------------------------------------------------------


def install(*, reading: bool = False) -> None:
    """Catch the calls of every thread of this process, present and future, without an end.

    Those that change files, or those that only look at them.
    """
    program = _program(reading)
    code = ctypes.create_string_buffer(program)
    header = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(program) // _INSTRUCTION.size, ctypes.addressof(code))
    )
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "cannot give up new privileges")
    flags = _FOR_ALL_THREADS | _NEW_LISTENER
    if _libc.syscall(_SYS_SECCOMP, _SET_MODE_FILTER, flags, header) < 0:
        raise OSError(ctypes.get_errno(), "cannot install a filter")


def _program(reading: bool) -> bytes:
    """Notify of the calls by number; of some only with a bit of an argument, or without it."""
    numbers = READING if reading else NUMBERS
    # Where the argument lies, the bit, and whether the call is meant that has it.
    bits = {"openat": (_AT_ARGUMENT[0], os.O_CREAT, not reading)}
    if reading:
        bits["mmap"] = (_AT_ARGUMENT[1], _MAP_ANONYMOUS, False)
    plain = [number for name, number in numbers.items() if name not in bits]
    body: list[tuple[int, int, int, int]] = []
    end = len(plain) + 3 * len(bits)
    for number in plain:
        # A comparison skips so many instructions if it holds, and so many if not.
        body.append((_EQUAL, end - len(body), 0, number))
    for name, (argument, bit, is_meant) in bits.items():
        body.append((_EQUAL, 0, 2, numbers[name]))
        body.append((_LOAD, 0, 0, argument))
        allow, notify = end - len(body) - 1, end - len(body)
        actual, missing = (notify, allow) if is_meant else (allow, notify)
        body.append((_ANY_BIT, actual, missing, bit))
    instructions = (
        (_LOAD, 0, 0, _AT_ARCH),
        (_EQUAL, 0, end + 1, _AUDIT_ARCH),
        (_LOAD, 0, 0, _AT_NUMBER),
        *body,
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _NOTIFY),
    )
    return b"".join(_INSTRUCTION.pack(*instruction) for instruction in instructions)


# -- in the process that watches ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Notification:
    """A thread that waits in one of the calls."""

    id: int
    call: str
    arguments: tuple[int, ...]


class Listener:
    """The other end of a filter: receives calls and answers them."""

    def __init__(self, pid: int) -> None:
        self._descriptor = _take_listener(pid)
        # The two take turns, so they need not wake each other on another core; since Linux 6.6.
        with suppress(OSError):
            fcntl.ioctl(self._descriptor, _SET_FLAGS, _SYNC_WAKE_UP)
        self._memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
        self._pid = pid

    def close(self) -> None:
        """Calls that wait fail with ENOSYS from now on: the process should be at its end."""
        os.close(self._memory)
        os.close(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def receive(self) -> Notification | None:
        """The next call; ``None`` when its thread was killed meanwhile."""
        buffer = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(self._descriptor, _RECEIVE, buffer)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):
                return None
            raise
        number, _, _, call, _, _, *arguments = _NOTIFICATION.unpack(buffer)
        return Notification(number, NAMES[call], tuple(arguments))

    def proceed(self, notification: Notification) -> None:
        self._answer(_ANSWER.pack(notification.id, 0, 0, _CONTINUE))

    def fail(self, notification: Notification, code: int) -> None:
        """Let a call fail; a close that fails still closes, as it does on Linux."""
        if notification.call == "close":
            self._replace(notification)
        self._answer(_ANSWER.pack(notification.id, 0, -code, 0))

    def text_at(self, address: int) -> str:
        """A path in the memory of the process."""
        actual = os.pread(self._memory, 4096, address)
        return os.fsdecode(actual.partition(b"\0")[0])

    def target_of(self, descriptor: int) -> str:
        """What a descriptor of the process leads to."""
        try:
            return os.readlink(f"/proc/{self._pid}/fd/{descriptor}")
        except OSError:
            return ""

    def is_writable(self, descriptor: int) -> bool:
        """Whether a descriptor was opened for writing."""
        try:
            with open(f"/proc/{self._pid}/fdinfo/{descriptor}") as lines:
                flags = next(line for line in lines if line.startswith("flags"))
        except OSError:
            return False
        return bool(int(flags.split()[1], 8) & os.O_ACCMODE)

    def _replace(self, notification: Notification) -> None:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            target = notification.arguments[0] & 0xFFFFFFFF
            order = _ADDFD.pack(notification.id, _AT_THIS_NUMBER, null, target, os.O_CLOEXEC)
            fcntl.ioctl(self._descriptor, _ADD_DESCRIPTOR, order)
        finally:
            os.close(null)

    def _answer(self, answer: bytes) -> None:
        try:
            fcntl.ioctl(self._descriptor, _SEND, answer)
        except OSError as error:
            if error.errno != errno.ENOENT:  # its thread was killed meanwhile
                raise


def _take_listener(pid: int) -> int:
    """Our own descriptor of the listener that a process has."""
    folder = f"/proc/{pid}/fd"
    theirs = next(
        int(name)
        for name in os.listdir(folder)
        if os.readlink(f"{folder}/{name}") == "anon_inode:seccomp notify"
    )
    process = os.pidfd_open(pid)
    try:
        ours = _libc.syscall(_SYS_PIDFD_GETFD, process, theirs, 0)
    finally:
        os.close(process)
    if ours < 0:
        raise OSError(ctypes.get_errno(), "cannot take over the listener")
    return int(ours)
