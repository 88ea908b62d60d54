"""Run the slow tests suite by suite: ``make test-slow``.

A suite is a directory below ``tests``; the files that lie in ``tests`` itself are the suite
``top``. A suite that fails does not keep the others from running. What has passed is remembered
test by test for the files as they are now, so that an interrupted run goes on with
``make test-slow RESUME=1``; ``make test-slow SUITE="crash soak"`` runs some of them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parent.parent
STATE = ROOT / ".venv" / "slow-suites"
SELECTION = ("-m", "slow or sampled")
TOP = "top"
TESTED = ("src", "tests", "demo", "docs", "tools", "pyproject.toml", "requirements.lock")
NO_TESTS = 5  # pytest's exit code


@dataclass(frozen=True)
class Outcome:
    """How a suite ended."""

    tests: int
    passed: int
    skipped: int
    failed: tuple[str, ...]
    seconds: float
    cpu: float
    """Seconds of the processors, of all processes that were waited for."""
    code: int
    earlier: bool = False

    @property
    def is_good(self) -> bool:
        return self.code in (0, NO_TESTS) and not self.failed

    def __str__(self) -> str:
        verdict = "passed" if self.is_good else f"FAILED ({len(self.failed) or 'pytest'})"
        when = ", in an earlier run" if self.earlier else ""
        return (
            f"{verdict}: {self.passed} of {self.tests} tests, {self.skipped} skipped, "
            f"{self.seconds / 60:.1f} min, {self.cpu / 60:.1f} min of processors{when}"
        )


class Passed:
    """What has passed with the files as they are now: suites, and the tests of each."""

    def __init__(self, folder: Path, tree: str) -> None:
        self._folder = folder / tree[:16]
        self._folder.mkdir(parents=True, exist_ok=True)

    def tests_of(self, suite: str) -> Path:
        """The file of the tests of a suite that have passed, one a line."""
        return self._folder / f"{suite}.passed"

    def count(self, suite: str) -> int:
        path = self.tests_of(suite)
        return len(set(path.read_text("utf-8").splitlines())) if path.exists() else 0

    def forget(self, suite: str) -> None:
        self.tests_of(suite).unlink(missing_ok=True)
        self._whole(suite).unlink(missing_ok=True)

    def get(self, suite: str) -> Outcome | None:
        """How a whole suite ended, if it has passed."""
        path = self._whole(suite)
        if not path.exists():
            return None
        existing = json.loads(path.read_text("utf-8"))
        tests, skipped = int(existing["tests"]), int(existing["skipped"])
        seconds, cpu = existing["seconds"], existing["cpu"]
        return Outcome(tests, tests - skipped, skipped, (), seconds, cpu, 0, earlier=True)

    def add(self, suite: str, outcome: Outcome) -> None:
        state = {
            "tests": outcome.passed + outcome.skipped,
            "skipped": outcome.skipped,
            "seconds": outcome.seconds,
            "cpu": outcome.cpu,
        }
        self._whole(suite).write_text(json.dumps(state), "utf-8")

    def _whole(self, suite: str) -> Path:
        return self._folder / f"{suite}.json"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="only these")
    parser.add_argument("--resume", action="store_true", help="leave out what has passed already")
    parser.add_argument("--workers", default="2", help="processes of pytest")
    given = parser.parse_args(argv)
    say("collecting")
    counts = collected()
    unknown = set(given.suites) - set(counts)
    if unknown:
        parser.error(f"unknown suite {', '.join(sorted(unknown))}; there are {', '.join(counts)}")
    wanted = [suite for suite in counts if suite in (given.suites or counts)]
    passed = Passed(STATE, tree_digest())
    outcomes: dict[str, Outcome] = {}
    for number, suite in enumerate(wanted, 1):
        title = f"[{number} of {len(wanted)}] {suite}"
        outcome = passed.get(suite) if given.resume else None
        if outcome is None:
            if not given.resume:
                passed.forget(suite)
            earlier = passed.count(suite)
            say(f"{title}: {counts[suite]} tests, {earlier} have passed before")
            outcome = run(suite, counts[suite], given.workers, passed.tests_of(suite), earlier)
            if outcome.is_good:
                passed.add(suite, outcome)
        outcomes[suite] = outcome
        say(f"{title} {outcome}")
    summarize(outcomes)
    return 0 if all(outcome.is_good for outcome in outcomes.values()) else 1


def collected() -> Counter[str]:
    """The suites that have slow tests, and how many, in the order of their names."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *SELECTION]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode not in (0, NO_TESTS):
        sys.exit(done.stdout + done.stderr)
    tests = [line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line]
    return Counter(sorted(suite_of(Path(path)) for path in tests))


def suite_of(path: Path) -> str:
    """The suite of a test file.

    >>> suite_of(Path("tests/crash/test_crash.py")), suite_of(Path("tests/test_docs.py"))
    ('crash', 'top')
    """
    return path.parts[1] if path.parts[0] == "tests" and len(path.parts) > 2 else TOP


def paths_of(suite: str) -> list[str]:
    if suite == TOP:
        return [str(path.relative_to(ROOT)) for path in (ROOT / "tests").glob("test_*.py")]
    return [f"tests/{suite}"]


def run(suite: str, tests: int, workers: str, passed: Path, earlier: int) -> Outcome:
    """Run what is left of a suite; pytest shows its own progress."""
    report = STATE / f"{suite}.xml"
    report.unlink(missing_ok=True)
    start, cpu = time.monotonic(), cpu_of_children()
    command = [sys.executable, "-m", "pytest", "-n", workers, *SELECTION]
    command += [f"--passed={passed}", f"--junitxml={report}"]
    code = subprocess.run([*command, *paths_of(suite)], cwd=ROOT, check=False).returncode
    seconds = time.monotonic() - start
    ends = list(reported(report))
    return Outcome(
        tests,
        earlier + sum(end == "passed" for end, _ in ends),
        sum(end == "skipped" for end, _ in ends),
        tuple(name for end, name in ends if end in ("failure", "error")),
        seconds,
        cpu_of_children() - cpu,
        code,
    )


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def reported(report: Path) -> Iterable[tuple[str, str]]:
    """How each test of a report ended, and its name."""
    if report.exists():
        for case in ElementTree.parse(report).iter("testcase"):
            ends = {child.tag for child in case} & {"failure", "error", "skipped"}
            yield min(ends, default="passed"), f"{case.get('classname')}::{case.get('name')}"


def tree_digest() -> str:
    """What was tested: a digest of every file that a test can depend on."""
    digest = hashlib.sha256()
    for top in (ROOT / name for name in TESTED):
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and "__pycache__" not in path.parts:
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                digest.update(f"{path.relative_to(ROOT)} {content}\n".encode())
    return digest.hexdigest()


def summarize(outcomes: dict[str, Outcome]) -> None:
    say("summary")
    for suite, outcome in outcomes.items():
        print(f"  {suite:12} {outcome}")
        for name in outcome.failed:
            print(f"    {name}")
    minutes = sum(outcome.seconds for outcome in outcomes.values()) / 60
    cpu = sum(outcome.cpu for outcome in outcomes.values()) / 60
    print(f"  {'in all':12} {minutes:.1f} min, {cpu:.1f} min of processors", flush=True)


def say(text: str) -> None:
    print(f"== {time.strftime('%H:%M:%S')} {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
