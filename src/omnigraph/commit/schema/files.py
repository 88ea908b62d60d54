"""The three schema files under a graph's root, and their consistency.

``_schema.pg`` is the text as given, ``_schema.ir.json`` its canonical form, and
``__schema_state.json`` the hash that was accepted. Only ``init`` and a schema apply change them,
all three together. Files that disagree were changed from outside, and the graph is refused until
they agree again.

An apply renames the new files over the old ones one after the other, the source first
(``schema.staging``). From that first step on the new schema is the accepted one: a reader in
between takes the rest from the staged files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from omnigraph.errors import (
    FormatRefused,
    InputError,
    SchemaChanging,
    SchemaDrift,
    SchemaError,
    StorageCorrupt,
    StorageMissing,
)
from omnigraph.lang.diagnostics import Source
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.lang.schema.ir import IR_VERSION, SchemaIR
from omnigraph.lang.schema.ir_json import parse_json, pretty_json
from omnigraph.records import dataclass
from omnigraph.storage.objects.store import ObjectStore

SOURCE = "_schema.pg"
IR = "_schema.ir.json"
STATE = "__schema_state.json"
FILES = (SOURCE, IR, STATE)

STAGED_SOURCE = f"{SOURCE}.staging"
STAGED_IR = f"{IR}.staging"
STAGED_STATE = f"{STATE}.staging"
STAGED = {SOURCE: STAGED_SOURCE, IR: STAGED_IR, STATE: STAGED_STATE}

STATE_FORMAT_VERSION = 1
IDENTITY_VERSION = 1

# Retries when the files change during the read; an apply changes each of them once.
_ATTEMPTS = 5

_RESTORE = (
    "restore the schema files as they were; a schema is changed with `omnigraph schema apply`, "
    "never by editing these files"
)
_UPGRADE = "upgrade omnigraph before opening this graph"
_START_ANEW = "export the graph with `omnigraph export`, then init a new one and load the export"


@dataclass(frozen=True, slots=True)
class SchemaState:
    """The content of ``__schema_state.json``: the hash of the accepted schema.

    >>> state = SchemaState("sha256:00")
    >>> print(state.text())
    {
      "format_version": 1,
      "schema_ir_hash": "sha256:00",
      "schema_identity_version": 1
    }
    >>> SchemaState.parse(state.text()) == state
    True
    """

    schema_ir_hash: str

    def text(self) -> str:
        """The text of the file, which ends without a line break."""
        return pretty_json(
            {
                "format_version": STATE_FORMAT_VERSION,
                "schema_ir_hash": self.schema_ir_hash,
                "schema_identity_version": IDENTITY_VERSION,
            }
        )

    @staticmethod
    def parse(text: str, name: str = STATE) -> SchemaState:
        """The inverse of ``text``; ``name`` is the file that an error names."""
        value = _object(text, name)
        _check_version(value, "format_version", STATE_FORMAT_VERSION, name)
        _check_version(value, "schema_identity_version", IDENTITY_VERSION, name)
        schema_hash = value.get("schema_ir_hash")
        if not isinstance(schema_hash, str):
            raise _damaged(name)
        return SchemaState(schema_hash)


@dataclass(frozen=True, slots=True)
class Contract:
    """The schema of a graph, and the signatures of the files it was read from."""

    source: str
    catalog: Catalog
    signatures: tuple[str | None, ...]

    @property
    def schema_hash(self) -> str:
        return self.catalog.schema_hash

    @property
    def missing(self) -> tuple[str, ...]:
        """The missing files: none, except in a graph from before they existed."""
        return tuple(
            name for name, seen in zip(FILES, self.signatures, strict=True) if seen is None
        )


class SchemaFiles:
    """The schema files of one graph."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    # -- writing -------------------------------------------------------------------------

    def claim(self, source_text: str, *, force: bool = False) -> bool:
        """Claim the root for a new graph by writing its source: one caller wins, or ``force``."""
        if force:
            self._objects.write(SOURCE, source_text)
            return True
        return self._objects.create(SOURCE, source_text)

    def write_contract(self, catalog: Catalog) -> None:
        """Write the derived files, the state last: it accepts the rest."""
        for name in (IR, STATE):
            self._objects.write(name, contract_text(name, catalog))

    def present(self) -> list[str]:
        """Which of the three files exist."""
        signatures = self._objects.signatures(FILES)
        return [name for name, seen in zip(FILES, signatures, strict=True) if seen is not None]

    def remove(self) -> list[str]:
        """Delete the three files, best effort; returns the names of those that stayed.

        Called while another error is raised, so nothing is raised here. The source is deleted
        last: it is the claim, and the next claimant must not lose files.
        """
        failed = []
        for name in reversed(FILES):
            try:
                self._objects.delete(name)
            except Exception:
                failed.append(name)
        return failed

    # -- reading -------------------------------------------------------------------------

    def load(self, *, allow_missing: bool = False) -> Contract:
        """Read the three files and check that they agree.

        Raises ``SchemaDrift`` when they do not, and ``FormatRefused`` when a newer program wrote
        them. With ``allow_missing`` the two derived files may be absent, as in graphs from before
        they existed: so a read-only handle opens such a graph if it has no branch but main.
        """
        return self._read_consistent(self._objects.signatures(FILES), allow_missing)

    def check(self, contract: Contract) -> Contract:
        """The current contract; the same object unless the file signatures changed.

        Another schema is returned when all three files agree on it, since only an apply does
        that; anything else raises ``SchemaDrift``, on every call until the files agree.
        """
        seen = self._objects.signatures(FILES)
        if seen == contract.signatures:
            return contract
        current = self._read_consistent(seen, allow_missing=bool(contract.missing))
        if current.schema_hash != contract.schema_hash:
            return current
        # Plans and caches depend on the catalog; a changed comment must not drop them.
        return replace(current, catalog=contract.catalog)

    def are_unchanged(self, contract: Contract) -> bool:
        """Whether ``check`` would return the same contract without reading a file."""
        return self._objects.signatures(FILES) == contract.signatures

    def bootstrap(self, only_main: bool) -> Contract:
        """Load the contract, writing the derived files first if the graph never had them.

        A graph with other branches than main is refused then: they may have been written under
        another schema than ``_schema.pg`` has today.
        """
        contract = self.load(allow_missing=True)
        if not contract.missing:
            return contract
        if not only_main:
            raise SchemaDrift(
                f"missing: {_quoted(contract.missing)}, in a graph with other branches than main",
                hint=_START_ANEW,
                details={"files": list(contract.missing)},
            )
        for name in contract.missing:
            self._objects.write(name, contract_text(name, contract.catalog))
        return self.load()

    def _read_consistent(self, seen: tuple[str | None, ...], allow_missing: bool) -> Contract:
        """Read files that may be changing; retries on a mix of old and new."""
        drift: SchemaDrift | None = None
        for _ in range(_ATTEMPTS):
            try:
                return self._read(seen, allow_missing)
            except SchemaDrift as error:
                now = self._objects.signatures(FILES)
                if now == seen:
                    raise
                seen, drift = now, error
        raise SchemaChanging(
            "the schema files keep changing", hint="try again when the schema apply is done"
        ) from drift

    def _read(self, signatures: tuple[str | None, ...], allow_missing: bool) -> Contract:
        source, catalog = read_source(self._objects, SOURCE)
        recorded = {name: recorded_hash(self._objects, name, catalog) for name in (IR, STATE)}
        absent = tuple(name for name, digest in recorded.items() if digest is None)
        if absent and not allow_missing:
            raise _absent(absent)
        hashes = {name: digest for name, digest in recorded.items() if digest is not None}
        # An apply that is being promoted still has the successor of a file staged.
        if any(
            digest != catalog.schema_hash
            and recorded_hash(self._objects, STAGED[name]) != catalog.schema_hash
            for name, digest in hashes.items()
        ):
            raise _disagreement({SOURCE: catalog.schema_hash, **hashes})
        return Contract(source, catalog, signatures)


# -- one file ---------------------------------------------------------------------------------


def contract_text(name: str, catalog: Catalog) -> str:
    """The content of a file that is derived from the source."""
    return catalog.ir.pretty() if name == IR else SchemaState(catalog.schema_hash).text()


def read_source(objects: ObjectStore, name: str) -> tuple[str, Catalog]:
    """A source, staged or not, and its catalog."""
    text = _text(objects, name)
    if text is None:
        raise _absent((name,))
    try:
        return text, compile_schema(Source(name, text))
    except SchemaError as error:
        raise SchemaDrift(
            f"'{name}' is not a valid schema: {error.message}",
            hint=_RESTORE,
            details={"files": [name], **error.details},
        ) from error


def recorded_hash(objects: ObjectStore, name: str, expected: Catalog | None = None) -> str | None:
    """The schema hash in a derived file, staged or not; none when missing.

    A file that has exactly the text of the expected schema is not decoded.
    """
    text = _text(objects, name)
    if text is None:
        return None
    if expected is not None and text == contract_text(name, expected):
        return expected.schema_hash
    if name in (STATE, STAGED_STATE):
        return SchemaState.parse(text, name).schema_ir_hash
    value = _object(text, name)
    _check_version(value, "ir_version", IR_VERSION, name)
    try:
        return SchemaIR.from_json(value).hash()
    except InputError:
        raise _damaged(name) from None


def _text(objects: ObjectStore, name: str) -> str | None:
    try:
        return objects.read(name)
    except StorageMissing:
        return None
    except StorageCorrupt:
        raise _damaged(name) from None


def _object(text: str, name: str) -> dict[str, Any]:
    try:
        value = parse_json(text)
    except InputError:
        raise _damaged(name) from None
    if not isinstance(value, dict):
        raise _damaged(name)
    return value


def _check_version(value: Mapping[str, Any], key: str, supported: int, name: str) -> None:
    version = value.get(key)
    if isinstance(version, bool) or not isinstance(version, int):
        raise _damaged(name)
    if version != supported:
        raise FormatRefused(
            f"'{name}' has {key} {version}; this program supports {supported}",
            hint=_UPGRADE if version > supported else _START_ANEW,
            details={"file": name, "found": version, "known": supported},
        )


# -- errors ----------------------------------------------------------------------------------


def _damaged(name: str) -> SchemaDrift:
    return SchemaDrift(f"'{name}' cannot be read", hint=_RESTORE, details={"files": [name]})


def _absent(names: tuple[str, ...]) -> SchemaDrift:
    return SchemaDrift(f"missing: {_quoted(names)}", hint=_RESTORE, details={"files": list(names)})


def _disagreement(hashes: Mapping[str, str]) -> SchemaDrift:
    """Names the one file that differs from the others, or all of them."""
    values = list(hashes.values())
    odd = [name for name, digest in hashes.items() if values.count(digest) == 1]
    if len(odd) == 1:
        others = tuple(name for name in hashes if name != odd[0])
        message = f"'{odd[0]}' does not match {_quoted(others)}"
    else:
        message = f"{_quoted(tuple(odd))} do not match each other"
    return SchemaDrift(message, hint=_RESTORE, details={"files": odd, "hashes": dict(hashes)})


def _quoted(names: tuple[str, ...]) -> str:
    return " and ".join(f"'{name}'" for name in names)
