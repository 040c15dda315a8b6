"""The dashboards as one page of our own, for where there is no Grafana: the same panels, asked of Prometheus."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gpusetup.monitoring.tables import dashboards

__all__ = ["page"]

_TEMPLATE = Path(__file__).parent / "data/page.html"


def page() -> str:
    """Return the page with every dashboard in it; it needs no other file and no network but Prometheus."""
    told = msgspec.json.encode(dashboards()).decode().replace("</", "<\\/")
    return _TEMPLATE.read_text(encoding="utf-8").replace("@DASHBOARDS@", told)
