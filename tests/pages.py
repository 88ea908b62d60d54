"""The documentation as data: fenced blocks, and the dialogues in them.

Run as a program (`make docs`) it writes into every console block what its commands print now;
read the difference before you commit it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from omnigraph.cli import main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_ID = "01KAF2Q3V4W5X6Y7Z8A9B0C1D2"
_MOMENT = "2026-11-16 12:00:00 UTC"
_MICROS = "1763294400000000"
_LEDGER = f"sha256:{'5e' * 32}"
_SERVER = "from omnigraph.cli.server_program import main; raise SystemExit(main())"
_FENCE = re.compile(r"^```([\w-]*)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its file name (the second word after the fence), its text."""

    language: str
    file: str | None
    text: str
    line: int


@dataclass(frozen=True)
class Step:
    """One command of a console block, and what the page says it prints."""

    command: str
    output: str
    line: int


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text("utf-8")
    return [
        Block(match[1], match[2], match[3], text.count("\n", 0, match.start()) + 1)
        for match in _FENCE.finditer(text)
    ]


def steps(block: Block) -> Iterator[Step]:
    """The commands of a console block: ``$ command`` and the lines up to the next one."""
    command, output, start = "", [], block.line
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if line.startswith("$ "):
            if command:
                yield Step(command, "".join(output), start)
            command, output, start = line[2:], [], number
        else:
            output.append(f"{line}\n")
    if command:
        yield Step(command, "".join(output), start)


def query_names(text: str) -> list[str]:
    """The names of the queries declared in a text."""
    return re.findall(r"^query (\w+)", text, re.MULTILINE)


def run(command: str, directory: Path) -> str:
    """What a line of a shell prints, on both streams; the programs are those of this tree."""
    python = shlex.quote(sys.executable)
    start = r"(^|\| |; |^[A-Z_]+=\S+ )"
    line = re.sub(rf"{start}omnigraph-server\b", rf"\1{python} -c '{_SERVER}'", command)
    line = re.sub(rf"{start}omnigraph\b", rf"\1{python} -m omnigraph.cli", line)
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        env=environ(directory),
        check=False,
    )
    return steady(done.stdout)


def run_inside(command: str, directory: Path) -> str:
    """The same inside this process, which takes no time to start; what needs a shell gets one."""
    words = shlex.shlex(command, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    program, *arguments = words
    needs_shell = "$(" in command or any(set(word) <= set("();<>|&") for word in arguments)
    if program != "omnigraph" or needs_shell:
        return run(command, directory)
    both = io.BytesIO()
    # As in a process with a pipe: one stream is written when it is full, the other at once.
    out = io.TextIOWrapper(both, "utf-8", newline="")
    err = io.TextIOWrapper(both, "utf-8", newline="", write_through=True)
    with (
        contextlib.chdir(directory),
        mock.patch.dict(os.environ, environ(directory), clear=True),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(), "utf-8")),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        main(arguments)
        out.flush()
    return steady(both.getvalue().decode("utf-8"))


def environ(directory: Path) -> dict[str, str]:
    return {**os.environ, "OMNIGRAPH_HOME": str(directory / "operator"), "COLUMNS": "80"}


def steady(text: str) -> str:
    """The text with what is another each time written as on the pages: ids, moments, durations."""
    text = re.sub(r"\b01[0-9A-HJKMNP-TV-Z]{24}\b", _ID, text)
    text = re.sub(r"\b20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC", _MOMENT, text)
    text = re.sub(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00", _MOMENT, text)
    text = re.sub(r"\b\d{16}\b", _MICROS, text)
    text = re.sub(r"\bsha256:[0-9a-f]{64}\b", _LEDGER, text)
    return re.sub(r"\b\d+(\.\d+)? ms\b", "1.5 ms", text)


def refreshed(page: Path, directory: Path) -> str:
    """The text of a page with what its commands print now."""

    def block_again(match: re.Match[str]) -> str:
        block = Block(match[1], match[2], match[3], 1)
        if block.file:
            (directory / block.file).write_text(block.text, "utf-8")
        if block.language != "console":
            return match[0]
        dialogue = (f"$ {s.command}\n{run(s.command, directory)}" for s in steps(block))
        return f"```console\n{''.join(dialogue)}```"

    return _FENCE.sub(block_again, page.read_text("utf-8"))


if __name__ == "__main__":
    for one in PAGES:
        with tempfile.TemporaryDirectory() as location:
            one.write_text(refreshed(one, Path(location)), "utf-8")
