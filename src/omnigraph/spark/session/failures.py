"""Translates failures of Spark to typed errors, and carries typed errors out of the workers.

A typed error that a worker raises arrives at the driver as the same class with the same fields. It
is pickled, as data or inside the text of an exception, because Spark transports only text. All
other failures are recognised by the messages of Spark; the patterns are defined only here.
"""

from __future__ import annotations

import base64
import pickle
import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TypeVar

from omnigraph.errors import (
    Cancelled,
    InputError,
    InternalError,
    MemoryExceeded,
    OmniGraphError,
    SparkError,
    SparkUnavailable,
    StorageFull,
)
from omnigraph.storage.objects.failures import translate

A = TypeVar("A")
B = TypeVar("B")

_BEGIN, _END = "<omnigraph-error:", ">"
_PACKED = re.compile(rf"{_BEGIN}([A-Za-z0-9+/=]+){_END}")
_JAVA_LINE = re.compile(r"^\s+(at |\.\.\. \d+ more)|^Caused by: |^JVM stacktrace:")
_NAMED = re.compile(r"^omnigraph\.errors\.(\w+): (.*?)(?=^ SQLSTATE|^\s*at |\Z)", re.M | re.S)

ROWS_LOST = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"
"""The message of Spark if rows were lost with their executor."""

_MORE_MEMORY = "raise the memory (OMNIGRAPH_SPARK_MEMORY), or let fewer tasks run at once"
_SAME_PYTHON = "give the workers the same version of Python, with omnigraph and its extra spark"


class Remote(Exception):
    """The text of an error in another process; kept as the cause, for debugging."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


class Carried(Exception):
    """A typed error inside the text of an exception, used where only text arrives."""

    def __init__(self, error: OmniGraphError) -> None:
        super().__init__(f"{_BEGIN}{base64.b64encode(pack(error)).decode('ascii')}{_END}")


# -- in a worker ----------------------------------------------------------------------------------


def pack(error: OmniGraphError) -> bytes:
    """An error as bytes, with the traceback of this process."""
    trace = "".join(traceback.format_exception(error))
    fields = {name: value for name, value in vars(error).items() if not name.startswith("__")}
    try:
        return pickle.dumps((type(error), error.args, fields, trace))
    except Exception:
        # Some details cannot be pickled; the message can.
        words: dict[str, object] = {"message": error.message, "hint": error.hint, "details": {}}
        return pickle.dumps((type(error), error.args, words, trace))


def typed(error: Exception, label: str) -> OmniGraphError:
    """The typed error for an exception raised in a worker."""
    if isinstance(error, OmniGraphError):
        return error
    if isinstance(error, MemoryError):
        failure: OmniGraphError = MemoryExceeded(
            f"{label}: a worker ran out of memory", hint=_MORE_MEMORY
        )
    elif isinstance(error, OSError):
        failure = translate(error, "run", label)
    else:
        failure = InternalError(f"{label}: a worker failed unexpectedly ({type(error).__name__})")
    failure.__cause__ = error
    return failure


def carrying(work: Callable[[Iterable[A]], Iterator[B]], label: str) -> Callable[..., Iterator[B]]:
    """A function for ``mapInArrow`` and similar calls whose typed errors reach the driver."""

    @wraps(work)
    def carried(parts: Iterable[A]) -> Iterator[B]:
        try:
            yield from work(parts)
        except Exception as error:
            raise Carried(typed(error, label)) from None

    return carried


# -- at the driver --------------------------------------------------------------------------------


def unpack(packed: bytes) -> OmniGraphError:
    """The packed error, with its traceback as the cause."""
    kind, args, fields, trace = pickle.loads(packed)
    error: OmniGraphError = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(fields)
    error.__cause__ = Remote(trace)
    return error


@contextmanager
def spark_call(label: str) -> Iterator[None]:
    """Translate errors of PySpark."""
    try:
        yield
    except Exception as error:
        failure = translated(error, label)
        raise failure from failure.__cause__


def translated(error: Exception, label: str) -> OmniGraphError:
    """The typed error for an exception of PySpark."""
    if isinstance(error, OmniGraphError):
        return error
    text = _words(error)
    packed = _PACKED.search(text)
    if packed is not None:
        try:
            return unpack(base64.b64decode(packed.group(1)))
        except Exception:
            text = _PACKED.sub("", text)
    failure = _recognised(text, label)
    failure.__cause__ = Remote(_without_java(text))
    return failure


def launch_failure(said: str) -> SparkUnavailable:
    """The error for a Java process that ended before Spark could be reached."""
    if re.search("UnsupportedClassVersionError", said):
        message, hint = "this Java is too old for Spark", "set JAVA_HOME to Java 17 or newer"
    elif re.search("heap size|reserve enough space|insufficient memory|Cannot allocate", said):
        message = "Java cannot take the memory that Spark was given"
        hint = "lower it (OMNIGRAPH_SPARK_MEMORY), or free some"
    elif re.search("Unrecognized (VM )?option|Error: Could not create the Java", said):
        message, hint = "Java refuses an option", "check spark.driver.extraJavaOptions"
    elif re.search("bash: not found|env: .*bash", said):
        message, hint = "Spark needs bash to start", "install bash"
    else:
        message, hint = "Java ended before Spark could start", "check JAVA_HOME and the settings"
    failure = SparkUnavailable(message, hint=hint)
    failure.add_note(_without_java(said))
    return failure


def _words(error: Exception) -> str:
    """The whole text of an error; reading it can fail after the JVM has ended."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _without_java(text: str) -> str:
    lines = [line for line in text.splitlines() if not _JAVA_LINE.search(line)]
    return "\n".join(lines).strip()


def _recognised(text: str, label: str) -> OmniGraphError:
    for pattern, error_class, message, hint in _PATTERNS:
        match = re.search(pattern, text)
        if match is not None:
            return error_class(f"{label}: {message.format(**match.groupdict())}", hint=hint)
    named = _NAMED.search(text)
    if named is not None:
        kind = _error_class(named.group(1))
        if kind is not None:
            return kind(named.group(2).strip())
    if "Traceback (most recent call last)" in text:
        return InternalError(f"{label}: a worker failed unexpectedly")
    return SparkError(f"{label}: Spark failed", hint="see the cause of this error for its message")


def _error_class(name: str) -> type[OmniGraphError] | None:
    """An error class that takes only a message, by name."""
    import omnigraph.errors as errors

    kind = getattr(errors, name, None)
    if not isinstance(kind, type) or not issubclass(kind, OmniGraphError):
        return None
    return None if issubclass(kind, errors.LanguageError) else kind


_PATTERNS: tuple[tuple[str, type[OmniGraphError], str, str | None], ...] = (
    (
        "OPERATION_CANCELED|SPARK_JOB_CANCELLED|cancelled part of|was cancelled|canceled the job",
        Cancelled,
        "the Spark job was cancelled",
        None,
    ),
    (
        r"ModuleNotFoundError: No module named '(?P<name>\w+)[\w.]*'",
        SparkUnavailable,
        "the Python of the Spark workers cannot import {name}",
        _SAME_PYTHON,
    ),
    (
        "PYTHON_VERSION_MISMATCH|Cannot run program",
        SparkUnavailable,
        "the Python of the Spark workers does not match this one",
        _SAME_PYTHON,
    ),
    ("No space left on device", StorageFull, "no space is left", "free space and repeat"),
    (
        "maxResultSize",
        SparkError,
        "the results exceed the limit of Spark",
        "raise spark.driver.maxResultSize",
    ),
    (
        "OutOfMemoryError|Java heap space|GC overhead limit",
        MemoryExceeded,
        "Spark ran out of memory",
        _MORE_MEMORY,
    ),
    (
        "Python worker exited unexpectedly|Python worker process terminated|worker.*crashed",
        SparkError,
        "a worker process died repeatedly",
        f"it may have run out of memory: {_MORE_MEMORY}",
    ),
    (
        f"ExecutorLostFailure|Executor heartbeat timed out|ExecutorDeadException|{ROWS_LOST}",
        SparkError,
        "executors of the cluster were lost",
        "see the logs of the cluster; the work can be repeated",
    ),
    (
        "(?i)all masters are unresponsive|master .* (was )?removed our application",
        SparkUnavailable,
        "the master of the cluster does not answer",
        "check its address and that it runs",
    ),
    (
        "Could not parse Master URL|ClassNotFoundException: Unable to load.*master",
        InputError,
        "invalid master",
        "use a master such as local[4,4] or spark://host:7077",
    ),
    (
        "UNAUTHENTICATED|PERMISSION_DENIED",
        SparkUnavailable,
        "the Spark Connect server refuses the credentials",
        "check the token in SPARK_REMOTE",
    ),
    (
        "Py4JNetworkError|Answer from Java side is empty|ConnectionRefusedError|Connection refused"
        "|ConnectionResetError|SparkContext was shut down|stopped SparkContext"
        "|StatusCode.UNAVAILABLE|SESSION_CLOSED|RETRIES_EXCEEDED"
        r"|^Py4JError: An error occurred while calling [\w.$]+$",
        SparkError,
        "Spark has ended",
        "start it again; if it ended by itself, it may have run out of memory",
    ),
)
