"""The errors of the object store, translated once.

No text of a library is shown: it would name build paths, and it changes with every release. The
original is kept as the cause, for ``--debug``.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from obstore import exceptions as store_errors

from omnigraph.errors import (
    OmniGraphError,
    StorageDenied,
    StorageError,
    StorageFull,
    StorageMissing,
    StorageUnavailable,
    StorageUnknown,
)

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextmanager
def translated(action: str, target: str, *, writes: bool = False) -> Iterator[None]:
    """Turn what a storage call raises into our errors.

    A write that failed on the way may have arrived: its outcome is unknown, and it is for the
    caller to look, never to repeat it blindly.
    """
    try:
        yield
    except OmniGraphError:
        raise
    except Exception as error:
        raise translate(error, action, target, writes=writes) from error


def translate(error: Exception, action: str, target: str, *, writes: bool = False) -> StorageError:
    """The typed error for a failure of the object store or the file system."""
    text = f"cannot {action} '{target}'"
    if isinstance(error, FileNotFoundError | store_errors.NotFoundError):
        return StorageMissing(f"{text}: it does not exist")
    denied = (
        PermissionError,
        store_errors.PermissionDeniedError,
        store_errors.UnauthenticatedError,
    )
    if isinstance(error, denied):
        return StorageDenied(f"{text}: access is denied", hint="check permissions and credentials")
    if isinstance(error, OSError):
        return _system(error, text, writes)
    if isinstance(error, store_errors.GenericError):
        return _remote(text, writes)
    return StorageError(text)


def _system(error: OSError, text: str, writes: bool) -> StorageError:
    if error.errno in _FULL:
        return StorageFull(f"{text}: no space is left", hint="free space and repeat")
    if error.errno in _DENIED:
        return StorageDenied(f"{text}: access is denied", hint="check permissions and credentials")
    if error.errno is None:
        return _remote(text, writes)
    name = errno.errorcode.get(error.errno, str(error.errno))
    return StorageError(f"{text}: {name}")


def _remote(text: str, writes: bool) -> StorageError:
    if writes:
        return StorageUnknown(f"{text}: no answer, the outcome is unknown")
    return StorageUnavailable(f"{text}: the store does not answer", hint="repeat later")
