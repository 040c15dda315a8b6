"""What became of machines whose first boot went wrong: the fault tests leave a row each, this writes them down.

`./dev test lab-slow` runs the tests; `python -m tests.lab.bootstrap_page` then writes docs/reference/bootstrap-faults.md.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.lab.faults.page import clean
from tests.lab.places import STATE, locked

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/bootstrap-faults.md"
ROWS = STATE / "bootstrap-faults.json"
HEAD = """# Bootstraps that were disturbed

Written by `python -m tests.lab.bootstrap_page` from what `tests/lab/test_bootstrap_faults.py` saw; do not edit. Each row is a
throw-away machine of its own (Debian 12 in a container, real systemd, cloud-init, apt, dpkg and DKMS; stand-in packages, a
simulated T4) that was made with user-data of `gpusetup cloud-init` and disturbed in its first boot. A row is there only when
its test passed: the machine came to its end by itself, or, where it says so, after `systemctl restart gpusetup-bootstrap`.

| fault | what the status said meanwhile | end | reboots of its own | another boot |
|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Row:
    fault: str
    said: str
    end: str
    reboots: int
    again: str = "changes nothing"


def keep(row: Row) -> None:
    """Put a row beside those of earlier runs."""
    with locked("bootstrap-faults"):
        rows = json.loads(ROWS.read_text()) if ROWS.exists() else {}
        rows[row.fault] = asdict(row)
        new = ROWS.with_suffix(".new")
        new.write_text(json.dumps(rows, indent=1))
        new.replace(ROWS)


def main() -> None:
    rows = [Row(**row) for _, row in sorted(json.loads(ROWS.read_text()).items())]
    lines = [f"| {row.fault} | {clean(row.said)} | {row.end} | {row.reboots} | {row.again} |\n" for row in rows]
    PAGE.write_text(HEAD + "".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
