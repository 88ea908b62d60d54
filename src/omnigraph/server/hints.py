"""Hints of the engine for clients of a server, who cannot pass arguments to a Python call."""

from __future__ import annotations

_PHRASES = {
    "pass allow_local_files=True to store the content of files that the data names": "send the "
    "content of the file itself, as 'base64:…'",
    "add a limit to the query, or raise max_rows": "add a limit to the query, or read it in pages "
    "with page_size; who may `export` gets more rows as NDJSON or Arrow",
    "filter earlier, return less, or raise max_memory": "filter earlier, or return less",
    "narrow the pattern, or allow more time": "narrow the pattern; the operator of the server "
    "sets the time",
    "open it again with Graph.open": "repeat the request",
    "run it as a mutation": "send it to /mutate",
}


def hint_for_clients(hint: str) -> str:
    """A hint without arguments and methods of the library.

    >>> hint_for_clients("filter earlier, return less, or raise max_memory")
    'filter earlier, or return less'
    """
    for python, words in _PHRASES.items():
        hint = hint.replace(python, words)
    return hint
