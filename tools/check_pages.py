"""The documentation's pages about checks: one per level, the tables, and the list of all."""

from gpusetup.verify.pages import LEVEL_TEXTS, TABLES, level_page
from gpusetup.verify.registry import LEVELS, checks


def pages() -> dict[str, str]:
    """Return every page by file name."""
    found = {f"{level}.md": level_page(level) for level in LEVELS}
    return found | {"README.md": _index()} | {f"{name}.md": write() for name, write in TABLES.items()}


def _index() -> str:
    """Return the page that lists all checks."""
    lines = [
        "# Checks",
        "",
        "What `gpusetup verify` looks at. Each level includes those before it. A check that could not run is skipped",
        "with the reason, never passed; `unsupported` means that this machine has no such part.",
        "",
    ]
    for level in LEVELS:
        lines += [
            f"## {level}",
            "",
            f"{LEVEL_TEXTS[level][:1].upper()}{LEVEL_TEXTS[level][1:]}.",
            "",
            "| check | what it proves |",
            "|---|---|",
        ]
        lines += [f"| [`{check.id}`]({level}.md) | {check.title} |" for check in checks() if check.level == level]
        lines.append("")
    lines += ["Figures that are judged, and why: [expectations](expectations.md). Xid numbers: [catalogue](xid.md)."]
    return "\n".join(lines) + "\n"
