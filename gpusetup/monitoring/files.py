"""What `gpusetup export monitoring` writes, by file name: the files in `data`; and what one alert means."""

import json
import re
from pathlib import Path

from gpusetup.content import host_code
from gpusetup.model.examined import DoctorAlert

_DATA = Path(__file__).parent / "data"
_ALERTS = "rules/gpusetup-alerts.yml"
_RUNBOOK = re.compile(r"^( +)runbook: gpusetup doctor (\w+)$", re.MULTILINE)


def files(runbook: str = "") -> dict[str, str]:
    """Return each file's text by its name; `runbook`: the address of the page that explains the alerts."""
    paths = sorted(path for path in _DATA.rglob("*") if path.is_file())
    found = {str(path.relative_to(_DATA)): path.read_text(encoding="utf-8") for path in paths}
    boards = [json.loads(text) for name, text in found.items() if name.startswith("dashboards/")]
    told = json.dumps(boards, separators=(",", ":")).replace("</", "<\\/")
    found["dashboards.html"] = found["dashboards.html"].replace("@DASHBOARDS@", told)
    if runbook:
        found[_ALERTS] = _RUNBOOK.sub(
            lambda line: f"{line[0]}\n{line[1]}runbook_url: {json.dumps(f'{runbook}#{line[2].lower()}')}",
            found[_ALERTS],
        )
    counters = host_code("gpu_host.dcgm_counters")
    return found | {"dcgm-counters.csv": counters.of("4.6"), "dcgm-4.7-counters.csv": counters.of("4.7")}


def meaning_of(name: str) -> DoctorAlert | None:
    """Return what an alert means, from its section in alerts.md; None if no alert has this name."""
    text = (_DATA / "alerts.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {name}\n\n`(\w+)`(?:(?!\n## )(?s:.))*", text, re.MULTILINE)
    if found is None:
        return None
    cause = re.search(r"doctor --explain ([a-z0-9-]+)`\Z", page := found[0].rstrip())
    return DoctorAlert(alert=name, severity=found[1], cause=cause[1] if cause else "", page=page + "\n")
