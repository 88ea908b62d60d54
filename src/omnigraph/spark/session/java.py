"""Which Java runs Spark: that of the setting, that of the search path, or one in a usual place."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from glob import glob
from pathlib import Path

from omnigraph.errors import SparkUnavailable
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


@dataclass(frozen=True, slots=True)
class Java:
    """An installed Java."""

    home: Path
    version: str
    """As it calls itself, such as ``17.0.15``."""

    @property
    def major(self) -> int:
        """The number that counts; the oldest ones called themselves ``1.8``.

        >>> Java(Path("/opt/jdk"), "17.0.15").major, Java(Path("/opt/jdk"), "1.8.0_312").major
        (17, 8)
        """
        numbers = [int(number) for number in re.findall(r"\d+", self.version)[:2]]
        return numbers[-1] if numbers[:1] == [1] else numbers[0]


def find_java(java_home: str = "", usual: tuple[str, ...] = _USUAL) -> Java:
    """The Java to use: the first that is new enough, what the user named before all others."""
    too_old: list[Java] = []
    for java in _installed(java_home, usual):
        if java.major >= LEAST:
            return java
        too_old.append(java)
    if not too_old:
        raise SparkUnavailable(
            "Java is not installed",
            hint=f"install Java {LEAST} or newer, or set JAVA_HOME to where it is",
        )
    newest = max(too_old, key=lambda java: java.major)
    raise SparkUnavailable(
        f"Spark needs Java {LEAST} or newer, and the newest here is {newest.version}",
        hint=f"install Java {LEAST} or newer, or set JAVA_HOME to where it is",
        details={"too_old": [java.version for java in too_old]},
    )


def _installed(java_home: str, usual: tuple[str, ...]) -> Iterator[Java]:
    """Every Java that answers, in the order of preference."""
    for home in (java_home, _on_the_path()):
        java = _java_at(home) if home else None
        if java is not None:
            yield java
    homes = {
        os.path.realpath(home) for pattern in usual for home in glob(os.path.expanduser(pattern))
    }
    others = [java for home in sorted(homes) if (java := _java_at(home)) is not None]
    # Of those that nobody named, the oldest that will do: Spark is tested most with that one.
    yield from sorted(others, key=lambda java: java.major)


def _on_the_path() -> str:
    program = shutil.which("java")
    return os.path.dirname(os.path.dirname(os.path.realpath(program))) if program else ""


def _java_at(home: str) -> Java | None:
    """The Java of a directory, or none when there is none that runs."""
    program = os.path.join(home, "bin", "java")
    if not os.access(program, os.X_OK):
        return None
    try:
        # Asking the program itself takes a tenth of a second.
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
