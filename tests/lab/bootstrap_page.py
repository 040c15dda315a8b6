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
HEAD = """# Faults during a first boot in containers

Each row is a Debian 12 container (real systemd, cloud-init, apt, dpkg and DKMS; stand-in packages, a simulated T4), disturbed on its first
boot with user-data of `gpusetup cloud-init`. `python -m tests.lab.bootstrap_page` writes this page from passed runs of
`tests/lab/test_bootstrap_faults.py`. *Started again*: `systemctl restart gpusetup-bootstrap`.

| fault | status meanwhile | end | reboots by gpusetup | one more boot |
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
