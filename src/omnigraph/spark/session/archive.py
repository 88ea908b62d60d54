"""A class-data archive: the classes of Spark as Java holds them in memory, for faster starts.

It is derived and only a matter of speed: what cannot be built or read is left out without a word.
Java writes it when it exits, and a session that writes one starts and ends some ten seconds more
slowly. So it is built by the third session that this user starts with the same Java and PySpark:
a container that starts Spark once never pays for it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from omnigraph.spark.session.config import BUILD, OFF
from omnigraph.spark.session.java import Java

_STARTS_BEFORE = 2
_STALE_SECONDS = 3600.0
_SUFFIX, _UNFINISHED = ".jsa", ".building"


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """What one start of Java does about the archive: use it, build it, or neither."""

    archive: Path | None = None
    building: Path | None = None
    """Where Java writes it; it is renamed when Java has ended well."""
    lock: int | None = None
    """A file that is locked while this process builds."""

    @property
    def is_used(self) -> bool:
        return self.archive is not None and self.building is None

    def java_options(self) -> list[str]:
        if self.building is not None:
            return [f"-XX:ArchiveClassesAtExit={self.building}"]
        if self.archive is not None:
            # Java checks the sums of the parts, which takes a tenth of a second: it would crash on
            # a damaged file, and goes on without it once it knows.
            return [
                f"-XX:SharedArchiveFile={self.archive}",
                "-Xshare:auto",
                "-XX:+VerifySharedSpaces",
            ]
        return []

    def discard(self) -> None:
        """Remove an archive that Java did not start with."""
        if self.archive is not None:
            with suppress(OSError):
                self.archive.unlink()

    def release(self) -> None:
        """Java has ended: others may build. Called once."""
        if self.lock is not None:
            os.close(self.lock)


NO_ARCHIVE = ArchivePlan()


def plan_archive(
    cache_dir: str, wish: str, java: Java, spark_home: str, spark_version: str
) -> ArchivePlan:
    """What the next start of Java does; of several processes at once, one builds."""
    if wish == OFF or not cache_dir:
        return NO_ARCHIVE
    location = hashlib.sha256(f"{java.home}\n{spark_home}".encode()).hexdigest()[:12]
    name = f"{location}-spark-{spark_version}-java-{java.version}"
    folder = Path(cache_dir, "spark")
    archive = folder / f"{name}{_SUFFIX}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if archive.exists():
            return ArchivePlan(archive)
        if not _is_due(folder / f"{name}.starts", wish):
            return NO_ARCHIVE
        lock = _locked(folder / f"{location}.lock")
    except OSError:
        return NO_ARCHIVE
    if lock is None:
        return NO_ARCHIVE
    _sweep(folder, location)
    return ArchivePlan(archive, folder / f"{name}-{uuid.uuid4().hex}{_UNFINISHED}", lock)


def _is_due(starts: Path, wish: str) -> bool:
    """Whether this start should build; every start leaves one byte."""
    with open(starts, "ab") as file:
        before = file.tell()
        file.write(b".")
    return wish == BUILD or before >= _STARTS_BEFORE


def _locked(path: Path) -> int | None:
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def _sweep(folder: Path, location: str) -> None:
    """Remove the archives of other versions in the same location, and what was never finished."""
    before = time.time() - _STALE_SECONDS
    with suppress(OSError):
        for path in folder.glob(f"{location}-*{_SUFFIX}"):
            path.unlink(missing_ok=True)
        for path in folder.glob(f"*{_UNFINISHED}"):
            if path.stat().st_mtime < before:
                path.unlink()
