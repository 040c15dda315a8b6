"""The documentation's pages of the doctor: one per cause of its catalogue, one per reference of gpusetup's own."""

from collections.abc import Iterator

from gpusetup.doctor import references
from gpusetup.doctor.catalogue import catalogue, explained
from gpusetup.model.diagnosis import Cause, Reference


def causes() -> dict[str, str]:
    """Return the page of every cause by its file name, and the list of all."""
    known = sorted(catalogue().causes.values(), key=lambda cause: cause.id)
    return {f"{name}.md": page() for name, page in explained().items()} | {"README.md": "\n".join(_list(known)) + "\n"}


def _list(known: list[Cause]) -> Iterator[str]:
    yield "# Messages and what they mean"
    yield ""
    yield "One page per cause that `gpusetup doctor` knows, written from its catalogue."
    for area in dict.fromkeys(sorted(cause.area for cause in known)):
        yield from ("", f"## {area}", "")
        for cause in known:
            if cause.area == area:
                yield f"- [{cause.title}]({cause.id}.md)"


def errors() -> dict[str, str]:
    """Return the page of every reference by its file name, and the list of all."""
    found = {f"{reference}.md": "\n".join(_page(reference, entry)) for reference, entry in references.listed().items()}
    lines = ["# gpusetup's own messages", "", "`gpusetup doctor GS-324` prints a page.", ""]
    lines += [f"- [{reference}]({reference}.md): {entry.title}" for reference, entry in references.listed().items()]
    found["README.md"] = "\n".join(lines) + "\n"
    return found


def _page(reference: str, entry: Reference) -> Iterator[str]:
    yield f"# {reference}: {entry.title}"
    if entry.meaning:
        yield from ("", entry.meaning)
    yield from ("", f"What helps: {entry.fix}", "")
