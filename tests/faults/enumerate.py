"""Print what comes of failing calls: ``python -m tests.faults.enumerate [SCENARIO [ERRNO [K]]]``.

Without arguments every call of every scenario fails in turn, with each error; with a scenario its
calls; with all three one call, and the traceback of the operation is printed. ``--list`` names
the scenarios, or with a scenario its calls.
"""

from __future__ import annotations

import argparse
import errno
import signal
import sys
import time
from collections.abc import Sequence
from itertools import chain

from tests.faults.enumeration import (
    CODES,
    GOOD,
    LOOKS,
    SCENARIOS,
    Enumerated,
    Enumeration,
    Outcome,
    Verdict,
    codes_of,
    enumeration,
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", nargs="?")
    parser.add_argument("error", nargs="?", help="such as EIO; each that is usual without")
    parser.add_argument("number", nargs="?", type=int, help="of the call, from 1")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--all", action="store_true", help="print the good outcomes too")
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--calls", help="only these, by name")
    parser.add_argument("--reading", action="store_true", help="calls that only look fail")
    given = parser.parse_args(arguments)
    names = None if given.scenario in (None, "all") else given.scenario.split(",")
    chosen = [item for item in SCENARIOS if names is None or item.name in names]
    if given.list and given.scenario is None:
        print("\n".join(item.name for item in chosen))
        return
    # Whoever ends this ends its children too: one may be stopped, and would stay for ever.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    existing = sorted({errno.EIO, *chain(*LOOKS.values())}) if given.reading else list(CODES)
    codes = [getattr(errno, given.error)] if given.error else existing
    with enumeration() as runs:
        for scenario in chosen:
            try:
                actual = runs.ready(scenario, reading=given.reading)
            except Exception as error:
                print(f"{scenario}: cannot be built: {error!r}", flush=True)
                continue
            if given.list:
                for number, step in enumerate(actual.steps, 1):
                    print(f"{number:4} {step}")
            elif given.number is not None:
                one(runs, actual, codes[0], given.number)
            else:
                walk(runs, actual, codes, given)


def one(runs: Enumeration, actual: Enumerated, code: int, number: int) -> None:
    for retries in (True, False):
        verdict = runs.judge(actual, actual.steps[number - 1], code, retries=retries)
        print(f"{'same handle first' if retries else 'new handle first'}: {verdict}")
        print(runs.said, flush=True)


def walk(
    runs: Enumeration, actual: Enumerated, codes: list[int], given: argparse.Namespace
) -> None:
    started, counts = time.monotonic(), dict.fromkeys(Outcome, 0)
    for code in codes:
        for number, step in list(enumerate(actual.steps, 1))[:: given.stride]:
            if given.calls and step.call not in given.calls.split(","):
                continue
            if given.reading and code not in codes_of(step):
                continue
            retries = (number + codes.index(code)) % 2 == 1
            verdict = runs.judge(actual, step, code, retries=retries)
            counts[verdict.outcome] += 1
            if given.all or verdict.outcome not in GOOD or verdict.outcome is Outcome.PENDING:
                print(line(actual, number, verdict, retries), flush=True)
    total = sum(counts.values())
    said = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    item = (time.monotonic() - started) / max(total, 1)
    name = f"{actual.scenario}, {len(actual.steps)} calls"
    print(f"## {name}: {total} cases: {said} ({item:.2f} s each)", flush=True)


def line(actual: Enumerated, number: int, verdict: Verdict, retries: bool) -> str:
    first = "same" if retries else "new"
    return f"- {actual.scenario} · {errno.errorcode[verdict.code]} · {number} · {first} · {verdict}"


if __name__ == "__main__":
    main()
