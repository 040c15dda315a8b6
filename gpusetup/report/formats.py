"""From a report to text in a format that was asked for by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpusetup.report.model import Report

__all__ = ["FORMATS", "render"]

FORMATS = ("text", "json", "junit", "html", "prometheus")


def render(report: Report, name: str, *, watched: bool = False) -> str:
    """Return the report; each format's module is imported when it is used."""
    if name == "junit":
        from gpusetup.report.junit import to_junit

        return to_junit(report)
    if name == "html":
        from gpusetup.report.html import to_html

        return to_html(report)
    if name == "prometheus":
        from gpusetup.report.prometheus import to_prometheus

        return to_prometheus(report)
    if name == "json":
        import msgspec

        from gpusetup.report.document import to_document

        return msgspec.json.format(msgspec.json.encode(to_document(report)), indent=2).decode() + "\n"
    from gpusetup.report.text import to_text

    return to_text(report, watched=watched)
