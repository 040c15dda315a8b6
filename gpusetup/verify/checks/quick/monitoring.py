"""The exporter of the GPUs' figures answers, and agrees with nvidia-smi.

The host's record names the exporter and its address (`gpusetup_monitoring`); the host itself reads it. Behind a
password the figures cannot be compared. A textfile must be younger than a minute: one that nothing renews shows its
last figures for ever. The set of GPUs, their memory and power limit must be nvidia-smi's; temperature, clock and power
must be of the same size, which finds a wrong unit.

To do: `systemctl status nvidia-dcgm nvidia-dcgm-exporter`, or `gpusetup-gpu-textfile.timer` and
`prometheus-node-exporter`; `gpusetup doctor` finds causes; `gpusetup apply` sets them up again.
"""

import re
from collections.abc import Iterator
from typing import Any

from gpusetup.drive.causes import counted
from gpusetup.model.verdict import Finding
from gpusetup.verify.answers import meanings
from gpusetup.verify.machine import Machine
from gpusetup.verify.registry import check
from gpusetup.verify.smi import SmiGpu

_OLDEST = 60.0
"""Seconds; the timer writes the file every 15 seconds."""
_SAMPLE = re.compile(r"(\w+)\{(.*)\} (\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@check("monitoring.exporter", "The exporter of the GPUs' figures answers", needs=("gpu",), took="exporter")
def judge(machine: Machine) -> Finding:
    """Judge whether the exporter answers, and how old its figures are."""
    found = machine.collected("exporter")
    if not found:
        return Finding("skip", "the host's record has no exporter (gpusetup_monitoring)")
    if found.get("error") and "kind" not in found:
        return Finding("fail", f"the exporter did not answer: {found['error']}")
    kind, listen, status = found["kind"], found["listen"], found["status"]
    if listen and status not in (200, 401):
        return Finding("fail", f"{kind} does not answer on {listen}: {found['error'] or status}", status, 200)
    if kind == "textfile":
        stale = _textfile(found)
        if stale is not None:
            return stale
    where = f" on {listen}" if listen else ""
    how = ", and asks for a password" if status == 401 else ""
    return Finding("pass", f"{kind} answers{where}{how}", status)


def _textfile(found: dict[str, Any]) -> Finding | None:
    """Return what is wrong with the file that node_exporter reads; None if it is fine."""
    age = found["age"]
    if age is None:
        return Finding("fail", f"there is no textfile of the GPUs: {found['error']}")
    if age > _OLDEST:
        text = f"the textfile of the GPUs is {age:.0f} s old: gpusetup-gpu-textfile.timer does not renew it"
        return Finding("fail", text, age, limit=_OLDEST, unit="s")
    if "gpusetup_textfile_up 0" in found["lines"]:
        return Finding("fail", "the driver did not answer when the textfile was written")
    if "node_textfile_scrape_error 1" in found["lines"]:
        return Finding("warn", "node_exporter cannot read one of its textfiles: its log names it")
    return None


@check("monitoring.figures", "The exporter agrees with nvidia-smi", needs=("gpu", "smi"))
def compare(machine: Machine) -> Finding:
    """Compare the exported figures of each GPU with those of nvidia-smi."""
    found = machine.collected("exporter")
    if found.get("status") == 200 and not found.get("lines"):
        return Finding("fail", f"{found['kind']} answers, but exports no figure of a GPU", 0, len(machine.gpus))
    if not found.get("lines"):
        why = (
            "it asks for a password" if found.get("status") == 401 else "nothing is exported (see monitoring.exporter)"
        )
        return Finding("skip", f"not compared: {why}")
    told = _figures_by_gpu(found["lines"])
    here = {_bare(gpu.text("uuid") or ""): gpu for gpu in machine.gpus}
    lacking = sorted(gpu.label for uuid, gpu in here.items() if uuid not in told)
    strange = sorted(set(told) - set(here))
    if lacking or strange:
        parts = [f"nothing of {', '.join(lacking)}"] if lacking else []
        parts += [f"figures of {', '.join(strange)}, which is not here"] if strange else []
        return Finding("fail", "the exporter has " + " and ".join(parts), len(told), len(here))
    wrong = [text for uuid, gpu in here.items() for text in _differences(gpu, told[uuid])]
    if wrong:
        return Finding("fail", "; ".join(wrong[:3]), len(wrong), 0)
    return Finding("pass", f"{counted(len(here), 'GPU')} as in nvidia-smi", len(told), len(here))


def _figures_by_gpu(lines: list[str]) -> dict[str, dict[str, float]]:
    told: dict[str, dict[str, float]] = {}
    for line in lines:
        match = _SAMPLE.match(line)
        labels = dict(_LABEL.findall(match[2])) if match else {}
        uuid = labels.get("UUID") or labels.get("uuid")
        if match and uuid:
            of_gpu = told.setdefault(_bare(uuid), {})
            if not labels.get("GPU_I_ID"):  # a MIG slice has a part of the memory
                of_gpu[match[1]] = float(match[3])
    return told


def _differences(gpu: SmiGpu, told: dict[str, float]) -> Iterator[str]:
    for title, path, unit, names, apart in map(dict.values, meanings()["exporter_figures"]):
        here = gpu.number(path)
        name = next((name for name in names if name in told), "")
        if here is None or not name:
            continue
        ours, theirs = here * unit, told[name] * names[name]
        low, high = sorted((abs(ours), abs(theirs)))
        if high - low > 1 and (high - low) / high > apart:
            yield f"{gpu.label}: {title} is {theirs:g} by {name}, and {ours:g} by nvidia-smi"


def _bare(uuid: str) -> str:
    return uuid.removeprefix("GPU-").lower()
