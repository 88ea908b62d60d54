"""Programs that look like Java and never get as far as Spark."""

from __future__ import annotations

import shutil
from pathlib import Path

SLEEPER = "sleeper"
"""What such a Java becomes: its path is in the arguments of the process, for all to see."""


def make_java(home: Path, *before: str) -> Path:
    """A Java that does something and then sleeps, whatever happens to its parent."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    sleep = shutil.which("sleep")
    assert sleep is not None
    (home / SLEEPER).symlink_to(sleep)
    lines = ["#!/bin/sh", *before, f"exec '{home / SLEEPER}' 1000", ""]
    program.write_text("\n".join(lines), "utf-8")
    program.chmod(0o755)
    (home / "release").write_text('JAVA_VERSION="17.0.1"\n', "utf-8")
    return home
