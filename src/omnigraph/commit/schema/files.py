"""The three files under a graph's root that say what its schema is, and whether they agree.

``_schema.pg`` is the text as it was given, ``_schema.ir.json`` its canonical form, and
``__schema_state.json`` the hash that was accepted. Only ``init`` and a schema apply change them,
all three together; files that disagree were changed by somebody else, and nothing is done with
such a graph until they agree again.

An apply puts the new files in place one after the other, the source first (``schema_staging``).
From that first step on the new schema is the accepted one: whoever reads in between finds the
rest beside the old files, and takes it from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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
from omnigraph.lang.schema import Catalog, SchemaIR, compile_schema
from omnigraph.lang.schema.ir import IR_VERSION
from omnigraph.lang.schema.ir_json import parse_json, pretty_json
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

# Reads again when the files change under it; an apply changes each of them once.
_ATTEMPTS = 5

_RESTORE = (
    "restore the schema files as they were; a schema is changed with `omnigraph schema apply`, "
    "never by editing these files"
)
_START_ANEW = "export the graph with `omnigraph export`, then init a new one and load the export"


@dataclass(frozen=True, slots=True)
class SchemaState:
    """What ``__schema_state.json`` says: the hash of the schema that was accepted.

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
        _refuse_other_version(value, "format_version", STATE_FORMAT_VERSION, name)
        _refuse_other_version(value, "schema_identity_version", IDENTITY_VERSION, name)
        found = value.get("schema_ir_hash")
        if not isinstance(found, str):
            raise _damaged(name)
        return SchemaState(found)


@dataclass(frozen=True, slots=True)
class Contract:
    """The schema that a graph has, and the state of the files in which it was found."""

    source: str
    catalog: Catalog
    signatures: tuple[str | None, ...]

    @property
    def schema_hash(self) -> str:
        return self.catalog.schema_hash

    @property
    def missing(self) -> tuple[str, ...]:
        """The files that were not there: none, except in a graph from before they existed."""
        return tuple(
            name for name, seen in zip(FILES, self.signatures, strict=True) if seen is None
        )

    def has_other_schema_than(self, earlier: Contract) -> bool:
        """Whether a schema apply lies between the two; new comments are no other schema."""
        return self.schema_hash != earlier.schema_hash


class SchemaFiles:
    """The schema files of one graph."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    # -- writing -------------------------------------------------------------------------

    def claim(self, source_text: str, *, force: bool = False) -> bool:
        """Take the root for a new graph by writing its source; of several only one gets it.

        ``force`` takes it in any case.
        """
        if force:
            self._objects.write(SOURCE, source_text)
            return True
        return self._objects.create(SOURCE, source_text)

    def write_contract(self, catalog: Catalog) -> None:
        """Write what is derived from the source. The state comes last: it accepts the rest."""
        for name in (IR, STATE):
            self._objects.write(name, contract_text(name, catalog))

    def present(self) -> list[str]:
        """Which of the three files exist."""
        return [
            name for name, seen in zip(FILES, self._signatures(), strict=True) if seen is not None
        ]

    def remove(self) -> list[str]:
        """Delete the three files as far as that goes; gives the names of those that stayed.

        Used while another error is on its way to the caller, so nothing is raised here. The
        source goes last: it is the claim, and who takes it next must not lose files to us.
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
        """Read the three files and make sure that they agree.

        Raises ``SchemaDrift`` when they do not, and ``FormatRefused`` when a newer program wrote
        them. With ``allow_missing`` the two derived files may be absent, as in graphs from before
        they existed; those that are there must still agree. Nothing is ever written: this is how
        a read-only handle opens such a graph, on the condition of ``bootstrap``, that there is no
        branch but main.
        """
        return self._settled(self._signatures(), allow_missing)

    def check(self, contract: Contract) -> Contract:
        """The contract as it is now, for a handle that lives long; the same object mostly.

        Costs one look at the files unless they changed. Another schema is handed out when all
        three files agree on it, since only an apply does that (``has_other_schema_than`` tells);
        anything else raises ``SchemaDrift``, and again on every call until the files agree.
        """
        seen = self._signatures()
        if seen == contract.signatures:
            return contract
        found = self._settled(seen, allow_missing=bool(contract.missing))
        if found.has_other_schema_than(contract):
            return found
        # Plans and caches hang on the catalog, and a comment is no reason to drop them.
        return replace(found, catalog=contract.catalog)

    def bootstrap(self, only_main: bool) -> Contract:
        """Load the contract, writing the derived files first if the graph never had them.

        A graph with more branches than main is refused then: nothing says that its branches were
        written under the schema that ``_schema.pg`` has today.
        """
        found = self.load(allow_missing=True)
        if not found.missing:
            return found
        if not only_main:
            raise SchemaDrift(
                f"missing: {_quoted(found.missing)}, in a graph with other branches than main",
                hint=_START_ANEW,
                details={"files": list(found.missing)},
            )
        for name in found.missing:
            self._objects.write(name, contract_text(name, found.catalog))
        return self.load()

    def _signatures(self) -> tuple[str | None, ...]:
        return self._objects.signatures(FILES)

    def _settled(self, seen: tuple[str | None, ...], allow_missing: bool) -> Contract:
        """The contract of files that may be changing: a mix of old and new is read again."""
        drift: SchemaDrift | None = None
        for _ in range(_ATTEMPTS):
            try:
                return self._read(seen, allow_missing)
            except SchemaDrift as error:
                now = self._signatures()
                if now == seen:
                    raise
                seen, drift = now, error
        raise SchemaChanging(
            "the schema files keep changing", hint="try again when the schema apply is done"
        ) from drift

    def _read(self, signatures: tuple[str | None, ...], allow_missing: bool) -> Contract:
        source, catalog = read_source(self._objects, SOURCE)
        recorded = {name: recorded_hash(self._objects, name) for name in (IR, STATE)}
        absent = tuple(name for name, found in recorded.items() if found is None)
        if absent and not allow_missing:
            raise _absent(absent)
        hashes = {name: found for name, found in recorded.items() if found is not None}
        if any(
            found != catalog.schema_hash and not self._is_being_replaced(name, catalog)
            for name, found in hashes.items()
        ):
            raise _disagreement({SOURCE: catalog.schema_hash, **hashes})
        return Contract(source, catalog, signatures)

    def _is_being_replaced(self, name: str, catalog: Catalog) -> bool:
        """Whether the successor of a file stands ready, and is what the source asks for."""
        return recorded_hash(self._objects, STAGED[name]) == catalog.schema_hash


# -- one file ---------------------------------------------------------------------------------


def contract_text(name: str, catalog: Catalog) -> str:
    """What a file that is derived from the source contains."""
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
            f"'{name}' is no valid schema: {error.message}",
            hint=_RESTORE,
            details={"files": [name], **error.details},
        ) from error


def recorded_hash(objects: ObjectStore, name: str) -> str | None:
    """The hash of the schema that a derived file stands for, staged or not; none when missing."""
    text = _text(objects, name)
    return None if text is None else _HASH_OF[name](text, name)


def _text(objects: ObjectStore, name: str) -> str | None:
    try:
        return objects.read(name)
    except StorageMissing:
        return None
    except StorageCorrupt:
        raise _damaged(name) from None


def _ir_hash(text: str, name: str) -> str:
    value = _object(text, name)
    _refuse_other_version(value, "ir_version", IR_VERSION, name)
    try:
        return SchemaIR.from_json(value).hash()
    except InputError:
        raise _damaged(name) from None


def _state_hash(text: str, name: str) -> str:
    return SchemaState.parse(text, name).schema_ir_hash


_HASH_OF: Mapping[str, Callable[[str, str], str]] = {
    IR: _ir_hash,
    STATE: _state_hash,
    STAGED_IR: _ir_hash,
    STAGED_STATE: _state_hash,
}


def _object(text: str, name: str) -> dict[str, Any]:
    try:
        value = parse_json(text)
    except InputError:
        raise _damaged(name) from None
    if not isinstance(value, dict):
        raise _damaged(name)
    return value


def _refuse_other_version(value: Mapping[str, Any], key: str, known: int, name: str) -> None:
    found = value.get(key)
    if isinstance(found, bool) or not isinstance(found, int):
        raise _damaged(name)
    if found != known:
        raise FormatRefused(
            f"'{name}' has {key} {found}; this program knows {known}",
            hint="upgrade omnigraph before opening this graph" if found > known else _START_ANEW,
            details={"file": name, "found": found, "known": known},
        )


# -- what is wrong ----------------------------------------------------------------------------


def _damaged(name: str) -> SchemaDrift:
    return SchemaDrift(f"'{name}' cannot be read", hint=_RESTORE, details={"files": [name]})


def _absent(names: tuple[str, ...]) -> SchemaDrift:
    return SchemaDrift(f"missing: {_quoted(names)}", hint=_RESTORE, details={"files": list(names)})


def _disagreement(hashes: Mapping[str, str]) -> SchemaDrift:
    """Names the one file that stands against the others, or all of them."""
    values = list(hashes.values())
    odd = [name for name, found in hashes.items() if values.count(found) == 1]
    if len(odd) == 1:
        others = tuple(name for name in hashes if name != odd[0])
        message = f"'{odd[0]}' does not match {_quoted(others)}"
    else:
        message = f"{_quoted(tuple(odd))} do not match each other"
    return SchemaDrift(message, hint=_RESTORE, details={"files": odd, "hashes": dict(hashes)})


def _quoted(names: tuple[str, ...]) -> str:
    return " and ".join(f"'{name}'" for name in names)
