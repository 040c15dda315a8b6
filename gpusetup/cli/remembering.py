"""Keep each verification in the host's history, and add to the report what only the history shows."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from typing import TYPE_CHECKING, Any

import msgspec

from gpusetup.cli import output

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpusetup.report.model import HostReport, Report

__all__ = ["remembered"]


def remembered(report: Report, documents: Mapping[str, dict[str, Any]], *, here: bool, pictures: bool) -> Report:
    """Return the report with figures that fall, and with pictures where it is drawn; a history that cannot be written
    is a warning: the verification stands.
    """
    hosts = [
        _host(host, report, documents[host.name], here=here, pictures=pictures) if host.name in documents else host
        for host in report.hosts
    ]
    return msgspec.structs.replace(report, hosts=tuple(hosts))


def _host(host: HostReport, report: Report, document: dict[str, Any], *, here: bool, pictures: bool) -> HostReport:
    from gpusetup.health import history
    from gpusetup.verify.decay import judged

    if host.simulated:
        return host
    path = history.file_of(host.name, os.environ, here=here)
    try:
        said = history.append(path, host, report, boards(document))
    except (OSError, sqlite3.Error) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        output.warn(f"this verification is not in the history: {path}: {why}")
        return host
    if said:
        output.warn(said)
    measured = any(result.unit and result.level != "quick" for result in host.results)
    figures = history.series(path) if measured or pictures else ()
    fallen = judged(figures) if measured else None
    return msgspec.structs.replace(
        host,
        results=(*host.results, fallen) if fallen is not None else host.results,
        trends=history.pictures(figures) if pictures else (),
    )


def boards(document: dict[str, Any]) -> str:
    """Return what tells one set of GPUs from another: a board that was exchanged begins anew."""
    names = sorted(str(gpu.get("uuid")) for gpu in document.get("gpus") or () if gpu.get("uuid"))
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16] if names else ""
