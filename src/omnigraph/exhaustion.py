"""When the machine has no more memory or threads to give: how libraries say so, recognised once.

Python says ``MemoryError``, the loader of shared libraries ``ImportError``, Arrow an exception of
its own, Rust a panic, and the operating system an error number. All of them are one thing to a
user, and none is a fault of the program.
"""

from __future__ import annotations

import errno
import re

from omnigraph.errors import MemoryExceeded

_TEXT = re.compile(
    "cannot allocate memory|failed to map segment|cannot map zero-fill|cannot create shared object"
    "|failed to allocate|out of memory|memory allocation|std::bad_alloc|can't start new thread"
    rf"|\(os error {errno.ENOMEM}\)"
    "|failed to spawn|can't spawn|cannot spawn|unable to spawn|Resource temporarily unavailable",
    re.IGNORECASE,
)
# How Rust libraries word it.
_NUMBER = re.compile(rf"\(os error {errno.ENOMEM}\)")
_PANIC = "PanicException"


def as_memory_exceeded(error: BaseException) -> MemoryExceeded | None:
    """The typed error for a failure that is a lack of memory or threads; none for any other.

    >>> as_memory_exceeded(MemoryError()).code
    'memory_exceeded'
    """
    if isinstance(error, MemoryExceeded):
        return error
    return _exceeded() if any(map(_is_shortage, _chain(error))) else None


def has_memory_limit() -> bool:
    """Whether this process may take only so much memory (``ulimit -v`` or ``-d``)."""
    import resource

    kinds = (resource.RLIMIT_AS, resource.RLIMIT_DATA)
    return any(resource.getrlimit(kind)[0] != resource.RLIM_INFINITY for kind in kinds)


def _exceeded() -> MemoryExceeded:
    return MemoryExceeded(
        "the process ran out of memory or threads",
        hint="raise its limits (ulimit -v, ulimit -u, or those of the container), or ask for less",
    )


def _chain(error: BaseException) -> list[BaseException]:
    """An error and what caused it, outermost first."""
    errors: list[BaseException] = []
    step: BaseException | None = error
    while step is not None and step not in errors:
        errors.append(step)
        step = step.__cause__ or (None if step.__suppress_context__ else step.__context__)
    return errors


def _is_shortage(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError):
        # The number decides; the text may quote a value, which can spell anything.
        match = _NUMBER.search(str(error)) if error.errno is None else None
        return error.errno == errno.ENOMEM or match is not None
    if isinstance(error, SystemError):
        # An extension failed and could not even make the exception that would say why.
        return has_memory_limit()
    is_library = isinstance(error, ImportError | RuntimeError) or type(error).__name__ == _PANIC
    return is_library and _TEXT.search(str(error)) is not None
