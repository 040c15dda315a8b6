"""What `gpusetup export monitoring` writes, by file name: the files in `data`; and what one alert means."""

import json
import re
from pathlib import Path

from gpusetup.content import host_code

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


def alert_page(name: str) -> str:
    """Return the page of an alert; nothing if no alert has this name."""
    sections = (_DATA / "alerts.md").read_text(encoding="utf-8").split("\n## ")
    return next((f"## {text.rstrip()}\n" for text in sections if text.partition("\n")[0] == name), "")
