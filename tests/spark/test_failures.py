"""Errors of ours travel whole; errors of Spark are told apart by its words and never shown."""

from __future__ import annotations

import pickle
import threading

import pyarrow as pa
import pytest

from omnigraph import errors
from omnigraph.errors import (
    Cancelled,
    InputError,
    InternalError,
    MemoryExceeded,
    OmniGraphError,
    SparkError,
    SparkUnavailable,
    StorageFull,
    UniqueViolation,
)
from omnigraph.lang.diagnostics import Diagnostic, Severity, Source, Span
from omnigraph.spark.session.failures import (
    Carried,
    Remote,
    launch_failure,
    pack,
    spark_call,
    translated,
    unpack,
)
from omnigraph.spark.session.tasks import Tasks
from tests.spark import work

STACK = """
	at org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1097)
	... 12 more
Caused by: java.io.EOFException
	at java.base/java.io.DataInputStream.readInt(DataInputStream.java:381)
"""

ERRORS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, OmniGraphError)
]


def example(kind: type[OmniGraphError]) -> OmniGraphError:
    if issubclass(kind, errors.LanguageError):
        source = Source("a.pg", "node Person {}")
        return kind([Diagnostic(Severity.ERROR, "S001", "it is wrong", source, Span(5, 11))])
    return kind("it is wrong", hint="do better", details={"table": "Person", "count": 3})


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("way", ["data", "text"])
def test_every_error_of_ours_travels_with_its_fields(kind, way):
    error = example(kind)
    if way == "data":
        actual = unpack(pack(error))
    else:
        actual = translated(
            RuntimeError(f"x\n{Carried(error)}\n SQLSTATE: 38000{STACK}"), "loading"
        )
    assert type(actual) is kind
    assert actual.to_json() == error.to_json()
    assert str(actual) == str(error)
    assert getattr(actual, "diagnostics", None) == getattr(error, "diagnostics", None)


def test_an_error_with_a_detail_that_cannot_travel_travels_without_it():
    actual = unpack(pack(UniqueViolation("twice", hint="h", details={"lock": threading.Lock()})))
    assert (type(actual), actual.message, actual.hint, actual.details) == (
        UniqueViolation,
        "twice",
        "h",
        {},
    )


@pytest.mark.parametrize(
    ("said", "kind", "message"),
    [
        ("[OPERATION_CANCELED] Operation has been canceled.", Cancelled, "was cancelled"),
        ("Job 3 cancelled part of cancelled job group g", Cancelled, "was cancelled"),
        ("[SPARK_JOB_CANCELLED] Job 6 cancelled", Cancelled, "was cancelled"),
        (
            "ModuleNotFoundError: No module named 'omnigraph.spark'",
            SparkUnavailable,
            "cannot import omnigraph",
        ),
        ("[PYTHON_VERSION_MISMATCH] Python in worker", SparkUnavailable, "does not match this one"),
        (
            'java.io.IOException: Cannot run program "py"',
            SparkUnavailable,
            "does not match this one",
        ),
        ("java.io.IOException: No space left on device", StorageFull, "no space is left"),
        ("is bigger than spark.driver.maxResultSize (1024.0 MiB)", SparkError, "exceed the limit"),
        ("java.lang.OutOfMemoryError: Java heap space", MemoryExceeded, "ran out of memory"),
        ("Python worker exited unexpectedly (crashed)", SparkError, "a worker process died"),
        ("ExecutorLostFailure (executor 1 exited", SparkError, "executors of the cluster"),
        ("All masters are unresponsive! Giving up.", SparkUnavailable, "does not answer"),
        ("Could not parse Master URL: 'locl'", InputError, "invalid master"),
        ("status = StatusCode.UNAUTHENTICATED", SparkUnavailable, "refuses the credentials"),
        ("Py4JNetworkError: Answer from Java side is empty", SparkError, "Spark has ended"),
        ("Cannot call methods on a stopped SparkContext.", SparkError, "Spark has ended"),
        ("Traceback (most recent call last):\nKeyError: 3", InternalError, "failed unexpectedly"),
        ("something that nobody has seen", SparkError, "Spark failed"),
    ],
)
def test_words_of_spark_become_an_error_of_ours(said, kind, message):
    actual = translated(RuntimeError(f"An error occurred.\n: {said}{STACK}"), "loading")
    assert type(actual) is kind
    assert actual.message.startswith("loading: ")
    assert message in actual.message
    assert isinstance(actual.__cause__, Remote)
    assert "scala:" not in f"{actual} {actual.hint} {actual.__cause__}"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("UniqueViolation", UniqueViolation),
        ("Nonsense", InternalError),
        ("QueryError", InternalError),
    ],
)
def test_a_class_of_ours_in_a_traceback_is_recognised(name, kind):
    said = (
        f"Traceback (most recent call last):\nomnigraph.errors.{name}: two\nlines\n SQLSTATE: 38000"
    )
    actual = translated(RuntimeError(said + STACK), "loading")
    assert type(actual) is kind
    assert actual.message == ("two\nlines" if kind is UniqueViolation else actual.message)


def test_a_call_without_any_answer_means_that_spark_has_ended():
    class Py4JError(Exception):
        pass

    actual = translated(Py4JError("An error occurred while calling o135.getResult"), "loading")
    assert actual.message == "loading: Spark has ended"


def test_an_error_of_ours_stays_what_it_is():
    error = UniqueViolation("twice")
    with pytest.raises(UniqueViolation) as caught, spark_call("loading"):
        raise error
    assert caught.value is error


def test_an_error_whose_text_cannot_be_had_is_translated_too():
    class Broken(Exception):
        def __str__(self) -> str:
            raise OSError("Java is gone")

    assert translated(Broken(), "loading").message == "loading: Spark failed"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("java.lang.UnsupportedClassVersionError: org/apache/spark", "this Java is too old"),
        ("Invalid maximum heap size: -Xmx99999g", "cannot take the memory"),
        ("Could not reserve enough space for object heap", "cannot take the memory"),
        ("Unrecognized VM option 'Nonsense'", "refuses an option"),
        ("env: 'bash': No such file or directory", "needs bash"),
        ("", "ended before Spark could start"),
    ],
)
def test_a_java_that_does_not_start_is_one_clear_line(said, message):
    failure = launch_failure(f"{said}{STACK}")
    assert message in failure.message
    assert failure.hint
    assert "\n" not in failure.message
    assert "scala:" not in "".join(failure.__notes__)


# -- in a worker ----------------------------------------------------------------------------------


def answer(function: object, split: object) -> pa.RecordBatch:
    """What a worker gives for one share."""
    tasks = Tasks(str(id(split)), pickle.dumps((function, [split])), "working")
    (batch,) = tasks([pa.record_batch([[0]], names=["id"])])
    return batch


def test_an_answer_is_a_row():
    assert pickle.loads(answer(work.double, 4).column("answer")[0].as_py()) == 8


def test_an_error_that_cannot_pass_is_a_row():
    row = answer(work.refuse_odd, 3)
    assert row.column("failed").to_pylist() == [True]
    assert unpack(row.column("answer")[0].as_py()).details == {"number": 3}


@pytest.mark.parametrize(
    ("raised", "kind", "message"),
    [
        (MemoryError(), MemoryExceeded, "working: a worker ran out of memory"),
        (OSError(28, "No space left on device"), StorageFull, "no space is left"),
        (KeyError("x"), InternalError, "working: a worker failed unexpectedly (KeyError)"),
        (errors.StorageUnavailable("away"), errors.StorageUnavailable, "away"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_that_may_pass_is_raised_for_spark_to_try_again(raised, kind, message):
    with pytest.raises(Carried) as caught:
        answer(work.raise_it, raised)
    actual = translated(caught.value, "loading")
    assert type(actual) is kind
    assert message in actual.message
