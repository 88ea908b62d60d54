"""Where a graph lies and how safe its writes are, from what callers say."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath

from omnigraph.errors import InputError
from omnigraph.settings import Settings
from omnigraph.storage.durable import Durability
from omnigraph.storage.objects.roots import Root, parse_root


def root_of(uri: str | PathLike[str], options: Mapping[str, str] | None) -> Root:
    address = fspath(uri)
    if address.startswith("s3://"):
        known = Settings.from_environ().storage_options()
        return parse_root(address, {**known, **(options or {})})
    return parse_root(address, options)


def durability_of(value: Durability | str) -> Durability:
    try:
        return Durability(value)
    except ValueError:
        raise InputError(f"'{value}' is no durability", hint="use 'disk' or 'os'") from None
