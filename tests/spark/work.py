"""What tests let the workers do."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from omnigraph import compile_schema
from omnigraph.errors import StorageFull, StorageUnavailable, UniqueViolation
from omnigraph.lang.diagnostics import Source


def double(number: int) -> int:
    return 2 * number


def process_of(_: int) -> int:
    return os.getpid()


def refuse_odd(number: int) -> int:
    if number % 2:
        raise UniqueViolation(
            f"{number} is there twice", hint="give another", details={"number": number}
        )
    return number


def compile_wrong(text: str) -> None:
    compile_schema(Source("wrong.pg", text))


def divide_by_zero(number: int) -> float:
    return number / 0


@dataclass(frozen=True)
class Trial:
    """A share that fails the first times; every attempt leaves a file."""

    folder: Path
    number: int
    failures: int

    def attempts(self) -> int:
        return len(list(self.folder.glob(f"{self.number}-*")))


def _attempt(trial: Trial) -> int:
    attempt = trial.attempts()
    (trial.folder / f"{trial.number}-{attempt}").touch()
    return attempt


def be_away_at_first(trial: Trial) -> int:
    if _attempt(trial) < trial.failures:
        raise StorageUnavailable("the store does not answer", hint="repeat later")
    return trial.number


def be_full(trial: Trial) -> int:
    _attempt(trial)
    raise StorageFull("no space is left")


def die_at_first(trial: Trial) -> int:
    if _attempt(trial) < trial.failures:
        os.kill(os.getpid(), signal.SIGKILL)
    return trial.number


def wait_for_ever(mark: Path) -> None:
    (mark / str(os.getpid())).touch()
    while True:
        time.sleep(0.05)


def wait_for(mark: Path) -> str:
    while not mark.exists():
        time.sleep(0.02)
    return mark.name


@dataclass(frozen=True)
class Access:
    """A share that holds a secret."""

    uri: str
    options: dict[str, str] = field(default_factory=dict)


def use_secret(access: Access) -> int:
    return len(access.options["aws_secret_access_key"])


def raise_in_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        refuse_odd(batch.column(0)[0].as_py())
        yield batch


def raise_it(error: Exception) -> None:
    raise error
