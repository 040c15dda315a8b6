"""Every Python file that is ours, tests and benchmarks too."""

from pathlib import Path


def files(root: Path) -> dict[str, Path]:
    """Return every Python file of the program, of what runs on hosts, and of what tries and measures them."""
    found = {}
    for folder in ("gpusetup", "gpusetup_fleet", "plugins", "roles", "tests", "bench"):
        for path in (root / folder).rglob("*.py"):
            if "_content" not in path.parts:
                parts = path.relative_to(root).with_suffix("").parts
                found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found
