"""A container sees every GPU, in docker and in podman where gpusetup configured them.

gpusetup makes the image from this host's files, without a download, and runs it with the GPUs' CDI name; in docker, if
that fails, with NVIDIA's runtime. The container lists the devices and runs nvidia-smi; image and container are removed
afterwards. containerd and CRI-O are not tried: their clients run in Kubernetes.

To do: restart a runtime that was started before it was configured; write the CDI description again with `systemctl
restart nvidia-cdi-refresh.service`.
"""

from typing import Any

from gpusetup.drive.causes import counted
from gpusetup.model.verdict import Finding, Item
from gpusetup.verify.machine import Machine
from gpusetup.verify.registry import check, from_items

_RUNTIMES = ("docker", "podman")
_STEPS = {
    "import": "does not take an image",
    "run": "gives no GPU",
    "nvidia-smi": "gives devices, but nvidia-smi fails",
}
_NOT_RESTARTED = ("unknown or invalid runtime name: nvidia", 'could not select device driver "cdi"')


def _answers(machine: Machine) -> dict[str, dict[str, Any]]:
    found = {name: machine.sections.get(f"container-{name}") for name in _RUNTIMES}
    return {name: answer for name, answer in found.items() if isinstance(answer, dict)}


@check("container.gpu", "A container sees the GPUs", needs=("gpu", "smi"), took="container-docker container-podman")
def judge(machine: Machine) -> Finding:
    """Judge the GPUs that each runtime's container saw."""
    answers = _answers(machine)
    if not answers:
        if machine.wanted.packages("containers"):
            return Finding("skip", "neither docker nor podman is configured here")
        return Finding("skip", "gpusetup configured no container runtime here")
    items = [_item(name, answer, len(machine.gpus)) for name, answer in answers.items()]
    ways = ", ".join(f"{name} by {_way(answer)}" for name, answer in answers.items())
    return from_items(items, f"{counted(len(machine.gpus), 'GPU')} in a container: {ways}")


def _way(answer: dict[str, Any]) -> str:
    return "CDI" if answer.get("way") == "cdi" else "NVIDIA's runtime"


def _item(name: str, answer: dict[str, Any], count: int) -> Item:
    message = str(answer.get("message") or "")
    if any(text in message for text in _NOT_RESTARTED):
        return Item(name, "warn", f"it was configured and needs a restart: systemctl restart {name}")
    if answer.get("error"):
        step = _STEPS.get(str(answer["error"]), "was not tried")
        return Item(name, "fail", f"{step}: {message.splitlines()[-1][:160] if message else 'no word'}")
    devices, smi = len(answer.get("devices") or ()), answer.get("smi")
    if devices != count or smi not in {None, count}:
        seen = counted(devices, "device") + ("" if smi is None else f", nvidia-smi {counted(smi, 'GPU')}")
        return Item(name, "fail", f"a container sees {seen}; this machine has {count}")
    return Item(name, "pass")
