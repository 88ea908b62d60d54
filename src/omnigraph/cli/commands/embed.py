"""``omnigraph embed``: vectors for the rows of a seed file, without a graph."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from omnigraph.cli import files
from omnigraph.cli.output import terminal
from omnigraph.cli.output.progress import Bar, bar
from omnigraph.cli.registry import Capability, Commands, UsageError, add_json, command
from omnigraph.errors import EmbeddingError, InputError
from omnigraph.settings import Settings

if TYPE_CHECKING:
    from omnigraph.cli.seed_files import Choice, Counts, SeedSpec, Selector, Wanted
    from omnigraph.embed import EmbeddingConfig


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "embed",
        run,
        Capability.LOCAL,
        "give the rows of a seed file vectors",
        description="Gives a vector to every row of a JSONL file that has none yet, by the "
        "embedding provider of the environment. Rows that have one keep it, unless they are "
        "selected or --reembed-all is given. No graph is needed; `load` takes what comes out.",
    )
    parser.add_argument(
        "--seed", metavar="MANIFEST", help="a YAML file that names input, output and embeddings"
    )
    parser.add_argument("--input", metavar="FILE", help="the JSONL file; - reads stdin")
    parser.add_argument("--output", metavar="FILE", help="where the filled one goes")
    parser.add_argument(
        "--spec", metavar="FILE", help="a JSON file: dimension, and target and fields per type"
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--clean", action="store_true", help="remove vectors instead")
    group.add_argument("--reembed-all", action="store_true", help="also where there is a vector")
    parser.add_argument(
        "--type", action="append", default=[], metavar="T", help="only this type; again for more"
    )
    parser.add_argument(
        "--select",
        action="append",
        default=[],
        type=_selector,
        metavar="[TYPE:]FIELD=VALUE",
        help="only rows with this value, anew if need be; again for more",
    )
    add_json(parser)


def _selector(text: str) -> Selector:
    from omnigraph.cli.seed_files import Selector

    try:
        return Selector.parse(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{text}' is no selector; write it as [Type:]field=value"
        ) from None


def run(arguments: argparse.Namespace) -> int:
    """Fill, and tell what was done."""
    from omnigraph.cli.seed_files import Counts, Mode, fill
    from omnigraph.embed.providers.config import EmbeddingConfig

    spec, source, output = _named(arguments)
    choice = _choice(arguments, spec)
    config = EmbeddingConfig.from_options(Settings.from_environ().embedding_options())
    model = "" if choice.mode is Mode.CLEAN else config.completed().model
    counts = Counts()
    with bar("embed") as line, _opened(source) as seed, _replaced(Path(output)) as out:
        provider = _Provider(config, spec.dimension, source)
        total = _lines(source)
        for text in fill(seed, source, spec, choice, provider.embed, counts):
            out.write(f"{text}\n".encode())
            _draw(line, counts, total)
    told = {
        "input": source,
        "output": output,
        "rows": counts.rows,
        "selected_rows": counts.selected,
        "embedded_rows": counts.embedded,
        "cleaned_rows": counts.cleaned,
        "mode": choice.mode.value,
        "dimension": spec.dimension,
        "model": model,
    }
    if arguments.json:
        terminal.show_json(told)
    else:
        terminal.show(
            f"embedded {counts.embedded} rows (selected {counts.selected}, cleaned "
            f"{counts.cleaned}) from {source} -> {output} [{choice.mode.value} {spec.dimension}d]"
        )
    return terminal.OK


def _named(arguments: argparse.Namespace) -> tuple[SeedSpec, str, str]:
    """The specification, the input and the output."""
    from omnigraph.cli.seed_files import read_manifest, read_spec

    three = (arguments.input, arguments.output, arguments.spec)
    if arguments.seed is not None:
        if three != (None, None, None):
            raise UsageError("--seed names all files, so --input, --output and --spec do not go")
        return read_manifest(arguments.seed)
    if None in three:
        raise UsageError("pass --seed MANIFEST, or --input, --output and --spec together")
    return read_spec(arguments.spec), arguments.input, arguments.output


def _choice(arguments: argparse.Namespace, spec: SeedSpec) -> Choice:
    from omnigraph.cli.seed_files import Choice, Mode

    if arguments.clean:
        mode = Mode.CLEAN
    elif arguments.reembed_all:
        mode = Mode.ALL
    else:
        mode = Mode.SELECTED if arguments.select else Mode.FILL
    for name in (*arguments.type, *(s.type_name for s in arguments.select if s.type_name)):
        if name not in spec.types:
            raise InputError(
                f"type '{name}' is not among the types to embed",
                hint=f"they are: {', '.join(spec.types) or 'none'}",
            )
    return Choice(mode, frozenset(arguments.type), tuple(arguments.select))


class _Provider:
    """The provider, made when the first text needs it; its errors name the lines."""

    def __init__(self, config: EmbeddingConfig, dimension: int, source: str) -> None:
        from omnigraph.embed import Embedders

        self._embedders = Embedders(config)
        self._dimension = dimension
        self._source = source

    def embed(self, wanted: Sequence[Wanted]) -> list[list[float]]:
        embedder = self._embedders.get()
        found: list[list[float]] = []
        for start in range(0, len(wanted), embedder.max_texts):
            piece = wanted[start : start + embedder.max_texts]
            try:
                batch = embedder.embed([each.text for each in piece], self._dimension)
            except EmbeddingError as error:
                raise EmbeddingError(
                    f"{self._place(piece)}: {error.message}", hint=error.hint, details=error.details
                ) from None
            if batch.without_direction:
                failed = [piece[at] for at in batch.without_direction]
                raise EmbeddingError(
                    f"{self._place(failed)}: the embedding is zero or not finite",
                    hint="give the row words that the model knows",
                )
            # The shortest spelling that means the same number of 32 bits.
            found += [[float(str(value)) for value in vector] for vector in batch.vectors]
        return found

    def _place(self, piece: Sequence[Wanted]) -> str:
        first, last = piece[0].line, piece[-1].line
        return f"{self._source}, line {first}" + (f" to {last}" if last > first else "")


# -- files ----------------------------------------------------------------------------------------


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    if path == files.STDIN:
        if sys.stdin is None:
            raise InputError(f"{files.STDIN_NAME}: closed")
        yield sys.stdin.buffer
        return
    try:
        file = open(path, "rb")  # noqa: SIM115
    except OSError as error:
        raise InputError(terminal.describe_os_error(error)) from None
    with file:
        yield file


@contextmanager
def _replaced(path: Path) -> Iterator[Any]:
    """The output, which takes the place of an older one when it is whole."""
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                yield file
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise InputError(f"cannot write '{path}': {reason}") from None


def _lines(path: str) -> int:
    """How many lines there are, where somebody looks at the bar."""
    if path == files.STDIN or not terminal.is_live(sys.stderr):
        return 0
    with open(path, "rb") as file:
        return sum(piece.count(b"\n") for piece in iter(lambda: file.read(1 << 20), b""))


def _draw(line: Bar, counts: Counts, total: int) -> None:
    line.show("embedding", min(counts.rows, total), total, f"{counts.rows} rows")
