"""Known vulnerabilities: those of a release, the release of its branch that fixes them, and a page about each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from gpusetup.versions import nv

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusetup.matrix.load import Matrix
    from gpusetup.model.release import Bulletin

CVE = re.compile(r"CVE-\d{4}-\d{4,}", re.IGNORECASE)
_UPDATE = {
    "driver": "gpusetup apply inventory.ini --upgrade    (which hosts have it: gpusetup matrix eol inventory.ini)",
    "cuda": "gpusetup apply inventory.ini --upgrade -w 'cuda>={version}'",
    "container-toolkit": "gpusetup apply inventory.ini    (gpusetup_containers: it installs the newest toolkit)",
    "dcgm": "gpusetup apply inventory.ini    (gpusetup_monitoring: it installs a newer DCGM)",
    "dcgm-exporter": "gpusetup apply inventory.ini    (gpusetup_monitoring: it installs a newer exporter)",
}


class Vulnerable(NamedTuple):
    """A release's vulnerabilities, worst first, and the release of its branch that fixes all of them."""

    cves: tuple[tuple[str, float], ...]
    fixed: str

    def __str__(self) -> str:
        first, score = self.cves[0]
        more = f" and {len(self.cves) - 1} more" if len(self.cves) > 1 else ""
        return f"{first} (CVSS {score:g}){more}"


def floor(matrix: Matrix) -> float:
    """Return the score from which a vulnerable driver is chosen only when nothing else fits."""
    return next(float(str(rule.value)) for rule in matrix.security.rules if rule.id == "security-floor")


def vulnerable(matrix: Matrix, component: str, version: str, least: float = 0.0) -> Vulnerable | None:
    """Return a release's vulnerabilities of at least this score from NVIDIA's bulletins; None if there are none.

    A branch that a bulletin does not list counts as not affected: NVIDIA says only that it might be.
    """
    cves: dict[str, float] = {}
    fixed: list[str] = []
    for item in matrix.security.bulletins:
        first = item.fixed.get(_branch(item, version)) if item.component == component else None
        if first is not None and nv(version) < nv(first):
            cves |= {cve: score for cve, score in item.cves.items() if score >= least}
            fixed.append(first)
    if not cves:
        return None
    return Vulnerable(tuple(sorted(cves.items(), key=lambda pair: (-pair[1], pair[0]))), max(fixed, key=nv))


def _branch(item: Bulletin, version: str) -> str:
    return str(nv(version).major) if item.component == "driver" else ""


def rows(matrix: Matrix, wanted: str) -> Iterator[dict[str, Any]]:
    """Yield the vulnerabilities that a text names, newest first: one by its id, a component's, or a release's."""
    component, _, version = re.sub(r"[=\s]+", " ", wanted.strip()).partition(" ")
    named = CVE.fullmatch(wanted.strip())
    try:
        carried = vulnerable(matrix, component.lower(), version.removesuffix(".*"))
    except ValueError:  # not a version
        carried = None
    shown = dict(carried.cves) if carried else {}
    for item in sorted(matrix.security.bulletins, key=lambda item: item.date, reverse=True):
        for cve, score in item.cves.items():
            about = item.component == component.lower() and (not version or cve in shown)
            if cve == wanted.strip().upper() if named else about or not wanted:
                yield {
                    "cve": cve,
                    "score": score,
                    "component": item.component,
                    "fixed": [f"R{branch}: {first}" if branch else first for branch, first in item.fixed.items()],
                    "date": item.date,
                    "confidence": item.confidence,
                    "sources": [matrix.security.sources[name].url for name in item.sources],
                    "note": item.note,
                }


def page(matrix: Matrix, cve: str) -> str:
    """Return a page about a vulnerability; empty if it is unknown."""
    found = [item for item in matrix.security.bulletins if cve.upper() in item.cves]
    lines = [f"{cve.upper()}: CVSS {found[0].cves[cve.upper()]:g}"] if found else []
    for item in found:
        lines += ["", f"component    {item.component}, bulletin of {item.date}"]
        for branch, first in item.fixed.items():
            which = f"R{branch}" if branch else "every release"
            lines.append(f"  {which:<14}older than {first}: vulnerable; {first} and newer: not")
        if item.component == "driver":
            lines.append("  other branches are not listed; NVIDIA advises to move from an older one to a listed one")
        lines += [f"  note: {item.note}"] if item.note else []
        newest = max(item.fixed.values(), key=nv)
        lines += ["", "what to do", f"  {_UPDATE[item.component].format(version=newest)}"]
        lines += ["", *(f"source       {matrix.security.sources[name].url}" for name in item.sources)]
    return "\n".join(lines) + "\n" if lines else ""
