"""A copy of a graph that is kept by its change feed, and knows nothing but ``docs/changes.md``.

It is plain dicts: types by name, each with the types of its properties and its rows by id. Every
image of a row as it was is compared with the copy, so that a change which does not fit what was
told before is found where it happens.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass
class TypeCopy:
    type_id: int
    kind: str
    properties: dict[str, Json] = field(default_factory=dict)
    """By name: ``property_type`` and ``property_id``."""
    rows: dict[str, Json] = field(default_factory=dict)


class Copy:
    """The types of a graph with their rows."""

    def __init__(self, schema: Json, lines: Iterable[str] = ()) -> None:
        self.types: dict[tuple[str, str], TypeCopy] = {}
        for entry in schema["types"]:
            self._add_type(entry)
        for line in lines:
            self._add_line(json.loads(line))

    @staticmethod
    def of_baseline(text: str) -> tuple[Copy, str]:
        """A copy of what a baseline holds, and the cursor to go on from."""
        *lines, last = text.splitlines()
        end = json.loads(last)["baseline"]
        return Copy(end["schema"], lines), end["resume_cursor"]

    def _add_line(self, record: Json) -> None:
        key = ("node", record["type"]) if "type" in record else ("edge", record["edge"])
        kind = self.types[key]
        row = dict(record["data"])
        for name, value in row.items():
            if name in kind.properties:
                row[name] = _as_reported(kind.properties[name]["property_type"], value)
        if "edge" in record:
            row |= {"src": record["from"], "dst": record["to"]}
        assert row["id"] not in kind.rows
        kind.rows[row["id"]] = row

    # -- events --------------------------------------------------------------------------

    def _add_type(self, entry: Json) -> None:
        key = entry["type_kind"], entry["name"]
        assert key not in self.types
        properties = {item["name"]: item for item in entry["properties"]}
        self.types[key] = TypeCopy(entry["type_id"], entry["type_kind"], properties)

    def apply_events(self, events: Iterable[Json]) -> None:
        """In their order, but renames that follow each other at once."""
        waiting: list[Json] = []
        for event in [*events, {"kind": ""}]:
            if waiting and event["kind"] != waiting[0]["kind"]:
                self._rename(waiting)
                waiting = []
            if event["kind"].startswith("rename_"):
                waiting.append(event)
            elif event["kind"]:
                self._apply(event)

    def _rename(self, events: list[Json]) -> None:
        if events[0]["kind"] == "rename_type":
            taken = [(item, self.types.pop((item["type_kind"], item["from"]))) for item in events]
            for item, kind in taken:
                assert kind.type_id == item["type_id"]
                assert (item["type_kind"], item["to"]) not in self.types
                self.types[item["type_kind"], item["to"]] = kind
            return
        by_type: dict[tuple[str, str], list[Json]] = {}
        for item in events:
            by_type.setdefault((item["type_kind"], item["type_name"]), []).append(item)
        for key, some in by_type.items():
            kind = self.types[key]
            names = {item["from"]: item["to"] for item in some}
            for item in some:
                assert kind.properties[item["from"]]["property_id"] == item["property_id"]
            kind.properties = _renamed(kind.properties, names)
            kind.rows = {row_id: _renamed(row, names) for row_id, row in kind.rows.items()}

    def _apply(self, event: Json) -> None:
        what = event["kind"]
        if what == "add_type":
            self._add_type(event)
            return
        key = event["type_kind"], event.get("type_name") or event.get("name")
        kind = self.types[key]
        assert kind.type_id == event["type_id"]
        name = event.get("property_name")
        if what == "drop_type":
            del self.types[key]
        elif what == "drop_property":
            assert kind.properties.pop(name)["property_id"] == event["property_id"]
            for row in kind.rows.values():
                del row[name]
        elif what == "add_property":
            assert name not in kind.properties
            kind.properties[name] = {
                "property_type": event["property_type"],
                "property_id": event["property_id"],
            }
            for row in kind.rows.values():
                row[name] = event.get("value")
        elif what == "change_nullability" and "value" in event:
            for row in kind.rows.values():
                row[name] = event["value"] if row[name] is None else row[name]

    # -- rows ----------------------------------------------------------------------------

    def apply_changes(self, changes: Iterable[Json]) -> None:
        for change in changes:
            rows = self.types[change["kind"], change["type_name"]].rows
            row_id, before, after = change["id"], change["before"], change["after"]
            assert rows.get(row_id) == before, (change, rows.get(row_id))
            assert (before is None) == (change["op"] == "insert")
            assert (after is None) == (change["op"] == "delete")
            if after is None:
                del rows[row_id]
            else:
                rows[row_id] = dict(after)

    # -- looking at it -------------------------------------------------------------------

    def content(self) -> Json:
        """The rows of everything that has some, and what properties there are."""
        return {
            f"{kind.kind}:{name}": (kind.type_id, sorted(kind.properties), kind.rows)
            for (_, name), kind in sorted(self.types.items())
            if kind.kind != "interface"
        }

    def of_type(self, type_id: int) -> Json:
        """The content of one type, or nothing."""
        return {key: actual for key, actual in self.content().items() if actual[0] == type_id}

    def copied(self) -> Copy:
        other = Copy({"types": []})
        other.types = {
            key: TypeCopy(
                kind.type_id,
                kind.kind,
                dict(kind.properties),
                {row_id: dict(row) for row_id, row in kind.rows.items()},
            )
            for key, kind in self.types.items()
        }
        return other


def _renamed(values: Json, names: dict[str, str]) -> Json:
    return {names.get(name, name): value for name, value in values.items()}


def _as_reported(kind: Json, value: Any) -> Any:
    """An export has days as numbers, a change as dates."""
    if kind["scalar"] != "Date" or value is None:
        return value
    if isinstance(value, list):
        return [_as_reported(kind, item) for item in value]
    return str(datetime.date(1970, 1, 1) + datetime.timedelta(days=value))
