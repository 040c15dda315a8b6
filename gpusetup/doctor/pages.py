"""Write one page of documentation per cause from the catalogue."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gpusetup.doctor.builds import filled
from gpusetup.doctor.catalogue import catalogue, cuda_errors, statuses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpusetup.model.diagnosis import Cause

_KIND = {
    "root": "a cause",
    "symptom": "a symptom: something is wrong, and the cause is elsewhere",
    "notice": "harmless",
}


def pages() -> dict[str, str]:
    """Return every page by its file name, including the list of all pages."""
    causes = sorted(catalogue().causes.values(), key=lambda cause: cause.id)
    found = {f"{cause.id}.md": _text(cause) for cause in causes}
    found["README.md"] = "\n".join(_list(causes)) + "\n"
    return found


def explained() -> dict[str, Callable[[], str]]:
    """Return, for each cause id, a function that writes its page."""
    return {cause.id: partial(_text, cause) for cause in catalogue().causes.values()}


def _text(cause: Cause) -> str:
    return "\n".join(_page(cause)) + "\n"


def _page(cause: Cause) -> Iterator[str]:
    yield f"# {cause.title}"
    yield ""
    yield f"`{cause.id}` · {cause.area} · {_KIND[cause.kind]}"
    yield ""
    yield filled(cause.explanation)
    texts = [find for pattern in cause.patterns for find in pattern.find]
    numbers = [error for error in cuda_errors() if error.cause == cause.id]
    names = [
        status.name
        for family in statuses().families
        for status in family.statuses
        if status.cause == cause.id != "cuda-error"
    ]
    if texts or numbers or names or cause.xids:
        yield from ("", "## Messages", "", "The doctor searches further after one of:", "")
        for text in dict.fromkeys(texts):
            yield f"    {text}"
        for error in numbers:
            yield f"    CUDA error {error.number}: {' / '.join(name for name in (error.runtime, error.driver) if name)}"
        for name in names:
            yield f"    {name}"
        for number in cause.xids:
            yield f"    NVRM: Xid (PCI:…): {number}"
    if cause.checks:
        yield from ("", "## To confirm it", "", "```sh", *cause.checks, "```")
    yield from ("", "## What helps", "")
    for fix in cause.fixes:
        yield f"{fix.text}"
        yield ""
        if fix.commands:
            yield from ("```sh", *fix.commands, "```", "")
    if cause.hides:
        yield f"When it is found, these count as its consequences: {', '.join(_link(name) for name in cause.hides)}."
        yield ""
    yield from ("## Sources", "")
    for source in cause.sources:
        yield f"- {source}"


def _link(name: str) -> str:
    return f"[{name}]({name}.md)"


def _list(causes: list[Cause]) -> Iterator[str]:
    yield "# Messages and what they mean"
    yield ""
    yield "One page per cause that `gpusetup doctor` knows, written from its catalogue."
    for area in dict.fromkeys(sorted(cause.area for cause in causes)):
        yield from ("", f"## {area}", "")
        for cause in causes:
            if cause.area == area:
                yield f"- [{cause.title}]({cause.id}.md)"
