"""The page of systemd units: each with its `systemd-analyze security` exposure, what it runs, and why it needs that.

`python -m tools.units` measures the exposures; a test compares them.
"""

# ruff: noqa: SLF001 - the text of a unit is private to the module that writes it

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

from gpusetup.content import host_code

ROOT = Path(__file__).resolve().parents[1]
PLACE = Path(__file__).with_suffix(".json")
TOLD = json.loads(PLACE.read_text(encoding="utf-8"))
EMPTY = ("credentials", "groups", "requires", "after", "environment", "codes", "tls")
"""Parts of templates that a plain machine lacks."""


def texts() -> dict[str, str]:
    """Return the template of every service that gpusetup installs, by name."""
    desktops, monitoring, judge = (
        host_code(name) for name in ("gpu_host.desktop_texts", "gpu_host.monitoring", "gpu_judge.names")
    )
    return {
        "gpusetup-collector.service": _text("gpusetup_fleet/pull/collector.service"),
        "gpusetup-gpu-textfile.service": monitoring._LOOK,
        "gpusetup-desktop-page-NAME.service": desktops.PAGE,
        "gpusetup-desktop-of-NAME.service": desktops.DESKTOP,
        "gpusetup-desktop-x.service": desktops.X,
        "gpusetup-cdi.service": host_code("gpu_host.cdi")._UNIT,
        "gpusetup-imex-channels.service": judge._IMEX_UNIT,
        "gpusetup-mig.service": host_code("gpu_host.mig_kept")._UNIT,
        "gpusetup-health.service": _text("gpusetup/cli/data/command.service"),
        "gpusetup-drift.service": _text("gpusetup/cli/data/command.service"),
        "gpusetup-resume.service": _constant("plugins/modules/gpu_reboot_stage.py", "_TEXT"),
        "gpusetup-bootstrap.service": _text("gpusetup/bootstrap/instance/gpusetup-bootstrap.service"),
    }


def _text(place: str) -> str:
    """Return a unit from a file of its own."""
    return (ROOT / place).read_text(encoding="utf-8")


def _constant(place: str, name: str) -> str:
    """Return a string constant of a module that only Ansible can import."""
    found = re.search(rf'^{name} = """(.*?)"""', (ROOT / place).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None, place
    return found[1]


def filled(template: str) -> str:
    """Return a unit template with a value for each placeholder."""
    programs = dict.fromkeys(("command", "program", "python", "tool", "launcher", "websockify"), "/usr/bin/true")
    values = defaultdict(
        lambda: "/srv",
        programs
        | dict.fromkeys(EMPTY, "")
        | {"user": "gpusetup", "longest": "1h", "port": "CapabilityBoundingSet=\nPrivateUsers=yes\n"},
    )
    return template.format_map(values)


def exposure(name: str, template: str) -> float:
    """Return the exposure of a unit by systemd-analyze: 0 is best, 10 is worst."""
    with tempfile.TemporaryDirectory() as folder:
        unit = Path(folder) / name
        unit.write_text(filled(template), encoding="utf-8")
        argv = ["systemd-analyze", "security", "--offline=true", str(unit)]
        told = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    found = re.search(r"exposure level for .*: ([0-9.]+)", told)
    assert found is not None, told
    return float(found[1])


def pages() -> dict[str, str]:
    """Return the page by its file name."""
    rows = [f"| `{name}` | {one['exposure']} | {one['runs']} | {one['why']} |" for name, one in TOLD.items()]
    text = "\n".join([
        "# Services that gpusetup writes",
        "",
        "Most of gpusetup runs once and ends. These services stay on machines that asked for them.",
        "",
        "The figure is what `systemd-analyze security` of systemd 252 says: 0 is safest, 10 is open.",
        "A service that installs drivers, or may do what its user may, cannot have a sandbox.",
        "",
        "| unit | exposure | runs | why not less |",
        "|---|---|---|---|",
        *rows,
        "",
        "DCGM and exporters have units of their own packages; gpusetup adds the command and the credentials.",
        "",
    ])  # fmt: skip
    return {"services.md": text}


if __name__ == "__main__":
    for name, template in texts().items():
        TOLD[name]["exposure"] = exposure(name, template)
    PLACE.write_text(json.dumps(TOLD, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
