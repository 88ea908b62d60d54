"""Translates the errors of Lance.

Lance distinguishes most failures only by their text, and raises different exceptions for the same
failure. The patterns are defined only here; tests pin each of them, so a release with another
wording fails them.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from lance.commit import CommitConflictError

from omnigraph.errors import (
    AlreadyExists,
    Conflict,
    InternalError,
    OmniGraphError,
    StorageCorrupt,
    StorageError,
    StorageMissing,
    StorageUnavailable,
)
from omnigraph.exhaustion import as_memory_exceeded
from omnigraph.storage.objects.failures import (
    denied,
    disk_refusal,
    system_code,
    system_failure,
    translate,
    unanswered,
)

# Patterns are compiled when an error is translated: importing this module compiles none.

# File names, which may contain anything, and source locations of the library.
_BUILD_PATH = r"\S*/\S*"

_CONFLICT = (
    "Commit conflict|commit conflict|Incompatible transaction|Too many concurrent writers"
    "|Ref conflict error"
)
_EXISTS = "already exists|Clone operation should not enter"
_DENIED = "403 Forbidden|401 Unauthorized|lacked the necessary privileges"
_CORRUPT = (
    "(?i)Encountered corrupt|failed to decode|invalid magic|magic number|file size is too small"
    "|Invalid range|out of range for slice|sufficient data|correct footer"
)
# These parts of Lance refuse only what they read from a file, never an argument of ours.
_READER = r"/lance-(file|encoding)/src/"
_REFUSED = (
    "Invalid user input|with different schema|No match for FieldRef|no kernel matching"
    "|(found|exist) in schema"
)
_GONE = "404 Not Found"
_TRANSIENT = r"(?i)503|429|SlowDown|timed? ?out|connection|error sending request|Generic S3 error"
_MISSING = "(?i)not found|does not exist"
# Also raised for a directory that is removed while a file is written into it.
_NO_FILE = r"\(os error 2\)"
_PANIC = "PanicException"
_UNPROCESSABLE = r"\AUnprocessable: "
_NO_FILTER = (
    "not yet supported by Substrait|Unsupported Substrait|representing unsafe casts"
    "|__unlikely_name_placeholder"
)


@contextmanager
def lance_call(action: str, target: str, *, writes: bool = False) -> Iterator[None]:
    """Translate what a call of Lance raises into errors of this package."""
    try:
        yield
    except OmniGraphError:
        raise
    except Exception as error:
        raise translate_lance(error, action, target, writes=writes) from error
    except BaseException as error:
        # Lance panics on some damaged files and full disks; a panic is not an ``Exception``.
        if type(error).__name__ != _PANIC:
            raise
        raise translate_lance(error, action, target, writes=writes) from error


def translate_lance(
    error: BaseException, action: str, target: str, *, writes: bool = False
) -> OmniGraphError:
    text = f"cannot {action} '{target}'"
    shortage = None if writes else as_memory_exceeded(error)
    if shortage is not None:
        return shortage
    message = re.sub(_BUILD_PATH, " ", str(error))
    if isinstance(error, CommitConflictError) or re.search(_CONFLICT, message):
        return Conflict(f"{text}: another writer was faster", hint="refresh and retry")
    if isinstance(error, OSError) and error.errno is not None:
        return translate(error, action, target, writes=writes)
    code = system_code(message)
    definite = disk_refusal(code, text)
    if definite is not None:
        return definite
    if re.search(_DENIED, message):
        return denied(text)
    # Lance also reports a file as damaged that merely could not be opened.
    failed = None if writes else system_failure(code, text)
    if failed is not None:
        return failed
    if re.search(_CORRUPT, message) or (not writes and re.search(_READER, str(error))):
        return _damaged(text)
    # By type where there is one: a missing column is not a missing object.
    if re.search(_REFUSED, message) or isinstance(
        error, TypeError | KeyError | NotImplementedError
    ):
        return InternalError(f"{text}: the call was refused")
    if re.search(_EXISTS, message):
        return AlreadyExists(f"{text}: it exists already")
    if not re.search(_GONE, message) and re.search(_TRANSIENT, message):
        return unanswered(text, writes)
    if re.search(_MISSING, message) or (re.search(_NO_FILE, message) and not writes):
        return StorageMissing(f"{text}: it does not exist")
    if isinstance(error, pa.ArrowInvalid):
        return _damaged(text)
    if code == errno.EEXIST and not writes:
        # Lance creates directories that exist, and says so if it cannot look at one.
        hint = "check its permissions, and the disk"
        return StorageUnavailable(f"{text}: a directory cannot be read", hint=hint)
    return unanswered(text, writes) if writes else StorageError(text)


class UnfitValues(Exception):
    """Lance cannot build an index from the values of a column."""


@contextmanager
def index_build(index: str, table: str) -> Iterator[None]:
    """Translate what an index build raises into errors of this package.

    Only a definite refusal of the values is ``UnfitValues``. Everything else, including unknown
    errors, is a failure of the store and must not be mistaken for a property of the data.
    """
    action = f"build the {index} index of"
    try:
        yield
    except OmniGraphError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
            raise
        failure = translate_lance(error, action, table)
        if type(failure) not in (StorageError, InternalError, AlreadyExists):
            raise failure from error
        # Failures of the store or the disk are ``OSError``, whatever their text.
        is_call = isinstance(error, TypeError | ValueError | NotImplementedError)
        if not isinstance(error, OSError) and (is_call or re.search(_UNPROCESSABLE, str(error))):
            raise UnfitValues(str(failure)) from error
        raise StorageUnavailable(
            f"cannot {action} '{table}': a request of the build failed", hint="repeat later"
        ) from error


def is_unsupported_filter(error: Exception) -> bool:
    """Whether Lance refused a condition only because it cannot express it."""
    return re.search(_NO_FILTER, str(error)) is not None


def _damaged(text: str) -> StorageCorrupt:
    return StorageCorrupt(
        f"{text}: its data is damaged",
        hint="verify_graph() names the files; restore them from a backup",
    )
