"""``omnigraph embed``: add vectors to the rows of a seed file, without a graph."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from omnigraph.cli import files
from omnigraph.cli.flags import UsageError
from omnigraph.cli.options import add_repeatable, add_switch
from omnigraph.cli.output import terminal
from omnigraph.cli.output.progress import progress_bar
from omnigraph.cli.output.report import show_report
from omnigraph.errors import EmbeddingError, InputError
from omnigraph.settings import Settings

if TYPE_CHECKING:
    from omnigraph.cli.seed_files import EmbedText, RowSelection, SeedSpec, Selector
    from omnigraph.embed import EmbeddingConfig


def add_embed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seed", metavar="MANIFEST", help="YAML file that names input, output and embeddings"
    )
    parser.add_argument("--input", metavar="FILE", help="JSONL file; - reads stdin")
    parser.add_argument("--output", metavar="FILE", help="file to write")
    parser.add_argument(
        "--spec", metavar="FILE", help="JSON file: dimension, and target and fields per type"
    )
    group = parser.add_mutually_exclusive_group()
    add_switch(group, "--clean", "remove vectors instead")
    add_switch(group, "--reembed-all", "replace existing vectors too")
    add_repeatable(parser, "--type", "T", "only this type; repeatable")
    parser.add_argument(
        "--select",
        action="append",
        default=[],
        type=_selector,
        metavar="[TYPE:]FIELD=VALUE",
        help="only rows with this value, replacing their vectors; repeatable",
    )


def _selector(text: str) -> Selector:
    from omnigraph.cli.seed_files import Selector

    try:
        return Selector.parse(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"invalid selector '{text}'; write it as [Type:]field=value"
        ) from None


def run_embed(arguments: argparse.Namespace) -> int:
    """Adds a vector to every row of a JSONL file that has none, using the embedding provider of the
    environment. Existing vectors are kept, unless their rows are selected or --reembed-all is
    given. No graph is needed; `load` reads the output.
    """
    from omnigraph.cli.seed_files import EmbedMode, SeedCounts, fill
    from omnigraph.embed.providers.config import EmbeddingConfig
    from omnigraph.write.destinations import replaced_file

    spec, source, output = _files(arguments)
    selection = _selection(arguments, spec)
    config = EmbeddingConfig.from_options(Settings.from_environ().embedding_options())
    model = "" if selection.mode is EmbedMode.CLEAN else config.completed().model
    counts = SeedCounts()
    with progress_bar("embed") as line, _open(source) as seed:
        provider = _Provider(config, spec.dimension, source)
        total = _count_lines(source)
        Path(output).parent.mkdir(parents=True, exist_ok=True)
        with replaced_file(Path(output), compress=False) as write:
            for text in fill(seed, source, spec, selection, provider.embed, counts):
                write(f"{text}\n".encode())
                line.show("embedding", min(counts.rows, total), total, f"{counts.rows} rows")
    mode = selection.mode.value
    document = {
        "input": source,
        "output": output,
        "rows": counts.rows,
        "selected_rows": counts.selected,
        "embedded_rows": counts.embedded,
        "cleaned_rows": counts.cleaned,
        "mode": mode,
        "dimension": spec.dimension,
        "model": model,
    }
    return show_report(
        arguments,
        document,
        f"embedded {counts.embedded} rows (selected {counts.selected}, cleaned {counts.cleaned}) "
        f"from {source} -> {output} [{mode} {spec.dimension}d]",
    )


def _files(arguments: argparse.Namespace) -> tuple[SeedSpec, str, str]:
    """The specification, the input and the output."""
    from omnigraph.cli.seed_files import read_manifest, read_spec

    paths = (arguments.input, arguments.output, arguments.spec)
    if arguments.seed is not None:
        if paths != (None, None, None):
            raise UsageError("--seed cannot be combined with --input, --output or --spec")
        return read_manifest(arguments.seed)
    if None in paths:
        raise UsageError("pass --seed MANIFEST, or --input, --output and --spec together")
    return read_spec(arguments.spec), arguments.input, arguments.output


def _selection(arguments: argparse.Namespace, spec: SeedSpec) -> RowSelection:
    from omnigraph.cli.seed_files import EmbedMode, RowSelection

    if arguments.clean:
        mode = EmbedMode.CLEAN
    elif arguments.reembed_all:
        mode = EmbedMode.ALL
    else:
        mode = EmbedMode.SELECTED if arguments.select else EmbedMode.FILL
    for name in (*arguments.type, *(s.type_name for s in arguments.select if s.type_name)):
        if name not in spec.types:
            raise InputError(
                f"type '{name}' is not among the types to embed",
                hint=f"types: {', '.join(spec.types) or 'none'}",
            )
    return RowSelection(mode, frozenset(arguments.type), tuple(arguments.select))


class _Provider:
    """The embedding provider, created for the first text; its errors name the lines."""

    def __init__(self, config: EmbeddingConfig, dimension: int, source: str) -> None:
        from omnigraph.embed import Embedders

        self._embedders = Embedders(config)
        self._dimension = dimension
        self._source = source

    def embed(self, texts: Sequence[EmbedText]) -> list[list[float]]:
        embedder = self._embedders.get()
        vectors: list[list[float]] = []
        for start in range(0, len(texts), embedder.max_texts):
            batch = texts[start : start + embedder.max_texts]
            try:
                result = embedder.embed([text.text for text in batch], self._dimension)
            except EmbeddingError as error:
                raise EmbeddingError(
                    f"{self._lines(batch)}: {error.message}", hint=error.hint, details=error.details
                ) from None
            if result.without_direction:
                failed = [batch[index] for index in result.without_direction]
                raise EmbeddingError(
                    f"{self._lines(failed)}: the embedding is zero or not finite",
                    hint="give the row words that the model knows",
                )
            # The shortest text that reads back as the same 32-bit float.
            vectors += [[float(str(value)) for value in vector] for vector in result.vectors]
        return vectors

    def _lines(self, batch: Sequence[EmbedText]) -> str:
        first, last = batch[0].line, batch[-1].line
        return f"{self._source}, line {first}" + (f" to {last}" if last > first else "")


# -- files ----------------------------------------------------------------------------------------


@contextmanager
def _open(path: str) -> Iterator[BinaryIO]:
    if path == files.STDIN:
        yield files.stdin_stream()
        return
    try:
        file = open(path, "rb")  # noqa: SIM115
    except OSError as error:
        raise InputError(terminal.describe_os_error(error)) from None
    with file:
        yield file


def _count_lines(path: str) -> int:
    """The number of lines, if a progress bar is shown."""
    if path == files.STDIN or not terminal.is_live(sys.stderr):
        return 0
    with open(path, "rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
