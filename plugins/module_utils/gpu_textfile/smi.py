"""nvidia-smi, for where the driver's library cannot be loaded."""

import re
import subprocess
from typing import Dict, List, Optional, Sequence, Tuple

from .figures import FIGURES, Gpu, UnreadableError, fabric

_DEADLINE = 10
_INVALID = re.compile(r'Field "([^"]+)" is not a valid field')
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?$")
_HEAD = ("index", "uuid", "name", "pci.bus_id")
_FABRIC_STATUS = "fabric.status"
_WORDS = {
    "yes": 1, "no": 0, "enabled": 1, "disabled": 0, "not started": 1, "in progress": 2, "completed": 3,
    "none": 0, "reset": 1, "gpu reset": 1, "reboot": 2, "node reboot": 2, "drain p2p": 3, "drain and reset": 4,
}  # fmt: skip
"""What nvidia-smi says where NVML has a number."""


def by_smi(program: str = "nvidia-smi") -> List[Gpu]:
    """Return the GPUs as nvidia-smi tells them; a field that this version does not know is left out."""
    wanted = {figure.metric: list(figure.fields) for figure in FIGURES}
    extra = [_FABRIC_STATUS]
    while True:
        fields = [names[0] for names in wanted.values() if names]
        code, out = _run(
            [program, "--query-gpu=" + ",".join([*_HEAD, *fields, *extra]), "--format=csv,noheader,nounits"]
        )
        unknown = _INVALID.search(out)
        if code == 0 or not unknown:
            break
        extra = [name for name in extra if name != unknown.group(1)]
        for names in wanted.values():
            if names and names[0] == unknown.group(1):
                names.pop(0)
        if unknown.group(1) not in [*fields, _FABRIC_STATUS]:
            break  # it names a field that was not asked for: it would do so for ever
    if code:
        raise UnreadableError("nvidia-smi: " + (out.strip() or f"it ended with {code}")[:300])
    return [gpu for gpu in (_row(line, fields + extra, wanted) for line in out.splitlines()) if gpu]


def _row(line: str, fields: Sequence[str], wanted: Dict[str, List[str]]) -> Optional[Gpu]:
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(_HEAD) + len(fields) or not cells[0].isdigit():
        return None
    told = dict(zip(fields, cells[len(_HEAD) :]))
    values = {}
    for figure in FIGURES:
        name = (wanted[figure.metric] or [""])[0]
        value = _read(told.get(name, ""))
        if value is not None:
            values[figure.metric] = value * figure.scale
    if values.get("nvidia_smi_fabric_state") and told.get(_FABRIC_STATUS):
        state = int(values["nvidia_smi_fabric_state"])
        values["nvidia_smi_fabric_state"] = fabric(state, told[_FABRIC_STATUS].lower() == "success")
    domain, bus, device = cells[3].lower().split(".")[0].split(":")
    return Gpu(int(cells[0]), cells[1], cells[2], f"{domain[-4:]}:{bus}:{device}", values)


def _read(text: str) -> Optional[float]:
    if text.startswith("0x"):
        return float(int(text, 16))
    if _NUMBER.match(text):
        return float(text)
    known = _WORDS.get(text.lower())
    return None if known is None else float(known)


def _run(argv: Sequence[str]) -> Tuple[int, str]:
    try:
        done = subprocess.run(
            list(argv), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_DEADLINE, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnreadableError(f"{argv[0]}: {error}") from None
    return done.returncode, done.stdout.decode("utf-8", "replace")
