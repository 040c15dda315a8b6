"""Write down for hosts what dcgm-exporter collects: `python tools/counters.py` reads the tables of gpusetup/monitoring.

A test compares the file with the tables.
"""

from __future__ import annotations

from pathlib import Path

from gpusetup.monitoring.files import counters

FILE = Path(__file__).resolve().parents[1] / "plugins/module_utils/gpu_host/dcgm_counters.py"
_HEAD = '''"""What dcgm-exporter collects. Written by tools/counters.py from the tables of gpusetup/monitoring."""

# ruff: noqa: E501
_RENAMED_SINCE = (4, 7)


def of(dcgm: str) -> str:
    """Return the counters for a version of DCGM; without one, by their newest names."""
    numbers = tuple(int(part) for part in dcgm.split(".")[:2]) if dcgm else _RENAMED_SINCE
    return _RENAMED if numbers >= _RENAMED_SINCE else _OLD


'''


def written() -> str:
    """Return the file as it should be."""
    return f'{_HEAD}_OLD = """{_text(renamed=False)}"""\n\n_RENAMED = """{_text(renamed=True)}"""\n'


def _text(*, renamed: bool) -> str:
    return "\\\n" + "\n".join(counters(renamed=renamed)) + "\n"


if __name__ == "__main__":
    FILE.write_text(written(), encoding="utf-8")
