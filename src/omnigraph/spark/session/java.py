"""The Java that runs Spark, and its class-data archive for faster starts.

The archive has the classes of Spark in Java's memory format. It is a cache: if it cannot be built
or read, Spark starts without it. Java writes it at exit, which takes about ten seconds, so it is
built by the third session of this user with the same Java and PySpark: a container that starts
Spark once never pays for it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from glob import glob
from pathlib import Path

from omnigraph.errors import SparkUnavailable
from omnigraph.records import dataclass
from omnigraph.spark.session.config import BUILD, OFF
from omnigraph.spark.session.interrupts import deferred_interrupts

LEAST = 17

_USUAL = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)
_RELEASE = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)
_SAID = re.compile(r'version "([^"]+)"')
_PATIENCE_SECONDS = 30.0
_STARTS_BEFORE = 2
_STALE_SECONDS = 3600.0
_SUFFIX, _UNFINISHED = ".jsa", ".building"


@dataclass(frozen=True, slots=True)
class Java:
    """An installed Java."""

    home: Path
    version: str
    """Its version string, such as ``17.0.15``."""

    @property
    def major(self) -> int:
        """The major version; the oldest ones called themselves ``1.8``.

        >>> Java(Path("/opt/jdk"), "17.0.15").major, Java(Path("/opt/jdk"), "1.8.0_312").major
        (17, 8)
        """
        numbers = [int(number) for number in re.findall(r"\d+", self.version)[:2]]
        return numbers[-1] if numbers[:1] == [1] else numbers[0]


def find_java(java_home: str = "", usual: tuple[str, ...] = _USUAL) -> Java:
    """The first Java that is new enough; ``java_home`` has priority."""
    too_old: list[Java] = []
    for java in _installed(java_home, usual):
        if java.major >= LEAST:
            return java
        too_old.append(java)
    if not too_old:
        raise SparkUnavailable(
            "Java is not installed", hint=f"install Java {LEAST} or newer, or set JAVA_HOME"
        )
    newest = max(too_old, key=lambda java: java.major)
    raise SparkUnavailable(
        f"Spark needs Java {LEAST} or newer, and the newest here is {newest.version}",
        hint=f"install Java {LEAST} or newer, or set JAVA_HOME",
        details={"too_old": [java.version for java in too_old]},
    )


def _installed(java_home: str, usual: tuple[str, ...]) -> Iterator[Java]:
    """Every working Java, in order of preference."""
    for home in (java_home, _on_the_path()):
        java = _java_at(home) if home else None
        if java is not None:
            yield java
    homes = {
        os.path.realpath(home) for pattern in usual for home in glob(os.path.expanduser(pattern))
    }
    others = [java for home in sorted(homes) if (java := _java_at(home)) is not None]
    # Of the others, the oldest that is new enough: Spark is tested most with that one.
    yield from sorted(others, key=lambda java: java.major)


def _on_the_path() -> str:
    program = shutil.which("java")
    return os.path.dirname(os.path.dirname(os.path.realpath(program))) if program else ""


def _java_at(home: str) -> Java | None:
    """The Java of a directory; ``None`` if it has no executable."""
    program = os.path.join(home, "bin", "java")
    if not os.access(program, os.X_OK):
        return None
    try:
        # Running the program takes a tenth of a second.
        said = Path(home, "release").read_text("utf-8")
        version = _RELEASE.search(said)
    except (OSError, UnicodeDecodeError):
        version = None
    if version is None:
        version = _SAID.search(_version_output(program))
    if version is None or not re.match(r"\d", version.group(1)):
        return None
    return Java(Path(home), version.group(1))


def _version_output(program: str) -> str:
    try:
        process = subprocess.Popen(
            [program, "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
    except OSError:
        return ""
    with process, deferred_interrupts(process.kill) as interrupts:
        try:
            _, output = process.communicate(timeout=_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            output = b""
        finally:
            process.kill()
        interrupts.check()
    return output.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """Whether one start of Java uses the archive, builds it, or neither."""

    archive: Path | None = None
    building: Path | None = None
    """The path that Java writes; it is renamed after a successful exit."""
    lock: int | None = None
    """The file that is locked while this process builds."""

    @property
    def is_used(self) -> bool:
        return self.archive is not None and self.building is None

    def java_options(self) -> list[str]:
        if self.building is not None:
            return [f"-XX:ArchiveClassesAtExit={self.building}"]
        if self.archive is not None:
            # Verification takes a tenth of a second; without it a damaged file would crash Java.
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
        """Release the build lock, after Java has ended. Called once."""
        if self.lock is not None:
            os.close(self.lock)


NO_ARCHIVE = ArchivePlan()


def plan_archive(
    cache_dir: str, wish: str, java: Java, spark_home: str, spark_version: str
) -> ArchivePlan:
    """The plan for the next start of Java; of several concurrent processes one builds."""
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
    """Whether this start should build; every start appends one byte."""
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
    """Delete the archives of other versions in the same location, and abandoned ones."""
    before = time.time() - _STALE_SECONDS
    with suppress(OSError):
        for path in folder.glob(f"{location}-*{_SUFFIX}"):
            path.unlink(missing_ok=True)
        for path in folder.glob(f"*{_UNFINISHED}"):
            if path.stat().st_mtime < before:
                path.unlink()
