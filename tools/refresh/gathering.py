"""Collect newer rows for a matrix: candidates with their source, and what was left out and why."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

from gpusetup.model.record import CANDIDATE
from gpusetup.versions import nv

_CLOCKS = dt.timedelta(days=2)
"""Allowed lead of a publisher's clock."""


_LONGEST = 300


class Publication:
    """A source document, as `sources` lists it."""

    def __init__(self, key: str, title: str, publisher: str, url: str) -> None:
        self.key, self.title, self.publisher, self.url = key, title, publisher, url

    def cited(self, seen: dt.date) -> dict[str, str]:
        """Return the record for `sources`."""
        return {"title": self.title, "publisher": self.publisher, "url": self.url, "seen": str(seen)}


class Gathering:
    """The documents of a matrix with additions; the original documents do not change."""

    def __init__(self, documents: Mapping[str, dict[str, Any]], today: dt.date) -> None:
        self.documents, self.today = dict(documents), today
        self.told: list[str] = []
        """What was left out, and why."""

    def rows(self, component: str, part: str) -> list[dict[str, Any]]:
        """Return the records in one part of a component."""
        found: list[dict[str, Any]] = self.documents[component][part]
        return found

    def versions(self, component: str, part: str = "releases") -> set[str]:
        """Return the known versions."""
        return {row["version"] for row in self.rows(component, part)}

    def add(
        self,
        component: str,
        part: str,
        record: dict[str, Any],
        source: Publication,
        *,
        why: str = "",
        order: Callable[[dict[str, Any]], Any] = lambda row: nv(row["version"]),
    ) -> None:
        """Insert a record in order; `why`: the reason if part of it is inferred."""
        head = {
            "sources": [source.key],
            "confidence": "inferred" if why else "vendor",
            "note": f"{CANDIDATE} {self.today}; {why or 'nobody of gpusetup has tried it'}",
        }
        rows = self.rows(component, part)
        place = next((number for number, row in enumerate(rows) if order(row) > order(record)), len(rows))
        self._write(component, {part: [*rows[:place], head | record, *rows[place:]]}, source)

    def change(self, component: str, part: str, version: str, source: Publication, **fields: Any) -> None:
        """Add fields to an existing record, and their source."""
        rows = [
            row | fields | {"sources": list(dict.fromkeys([*row["sources"], source.key]))}
            if row["version"] == version
            else row
            for row in self.rows(component, part)
        ]
        self._write(component, {part: rows}, source)

    def _write(self, component: str, parts: dict[str, Any], source: Publication) -> None:
        document = self.documents[component]
        sources = document["sources"] | {source.key: source.cited(self.today)}
        self.documents[component] = document | parts | {"date": str(self.today), "sources": sources}

    def leave_out(self, text: str) -> None:
        """Report what is left out, with control characters of the publisher's text removed."""
        self.told.append("".join(sign if sign.isprintable() else "?" for sign in text)[:_LONGEST])


def day_that_was(text: str, today: dt.date) -> str:
    """Return why a publication date is invalid, or an empty string."""
    try:
        day = dt.date.fromisoformat(text)
    except ValueError:
        return f"its day is {text[:40] or 'missing'}"
    return f"it is of {day}, which is still to come" if day > today + _CLOCKS else ""
