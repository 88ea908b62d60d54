"""Translates hints of the engine from Python calls to command-line options."""

from __future__ import annotations

_WORDS = {
    "Graph.init": "`omnigraph init`",
    "with force=True": "with --force",
    "pass confirm=True too": "pass --confirm too",
    "pass move=True": "pass --move",
    "pass allow_empty=True": "pass --allow-empty",
    "allow_empty=True also": "--allow-empty also",
    "omnigraph.backup_points": "`omnigraph backup --list`",
    "pass dest": "pass --out",
    "pass allow_local_files=True": "pass --allow-local-files",
    "resolve='ours' or 'theirs', or one for each conflict by its id": "--resolve ours or theirs, "
    "or a file that --conflicts FILE wrote, with a choice for each",
    "engine='spark'": "--engine spark",
    "engine='local'": "--engine local",
    "open it with mode='rw'": "start the shell without --read-only",
    "graph.maintenance.repair": "`omnigraph repair`",
    "graph.maintenance.optimize": "`omnigraph optimize`",
    "graph.maintenance.cleanup": "`omnigraph cleanup`",
    "graph.maintenance.verify": "`omnigraph verify`",
    "verify_graph()": "`omnigraph verify`",
    "graph.indexes.rebuild": "`omnigraph index rebuild`",
    "graph.indexes.ensure": "`omnigraph index ensure`",
}


def hint_for_options(hint: str | None) -> str | None:
    """A hint with command-line options instead of Python calls.

    >>> hint_for_options("create one with Graph.init")
    'create one with `omnigraph init`'
    """
    if hint is None:
        return None
    for python, option in _WORDS.items():
        hint = hint.replace(python, option)
    return hint
