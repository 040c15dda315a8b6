"""Write down for hosts what dcgm-exporter collects: `python tools/counters.py` reads the tables of gpusetup/monitoring.

A test compares the file with the tables.
"""

from __future__ import annotations

from pathlib import Path

from gpusetup.monitoring.files import counters

FILE = Path(__file__).resolve().parents[1] / "plugins/module_utils/gpu_host/dcgm_counters.py"
_HEAD = '''"""What dcgm-exporter collects. Written by tools/counters.py from the tables of gpusetup/monitoring."""

# ruff: noqa: E501
import re

_RENAMED_SINCE = (4, 7)
_BOTH = re.compile(r"^(.*?)\\|(.*?)(?=[,;])", re.MULTILINE)


def of(dcgm: str) -> str:
    """Return the counters for a version of DCGM; without one, by their newest names."""
    numbers = tuple(int(part) for part in dcgm.split(".")[:2]) if dcgm else _RENAMED_SINCE
    return _BOTH.sub(r"\\2" if numbers >= _RENAMED_SINCE else r"\\1", _COUNTERS)


_COUNTERS = """\\
'''


def written() -> str:
    """Return the expected content of the file; a counter that DCGM renamed is `old|new`."""
    lines = [_both(*pair) for pair in zip(counters(renamed=False), counters(renamed=True), strict=True)]
    return _HEAD + "\n".join(lines) + '\n"""\n'


def _both(old: str, new: str) -> str:
    mark = ";" if old.startswith("#") else ","
    return old if old == new else f"{old.partition(mark)[0]}|{new}"


if __name__ == "__main__":
    FILE.write_text(written(), encoding="utf-8")
