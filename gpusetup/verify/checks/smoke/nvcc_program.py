"""The toolkit's own path: nvcc compiles a small program for these GPUs, and it runs right on each.

Judged when a toolkit is installed: where the request says, in /usr/local/cuda, or as the distribution's own packages.
The toolkit's version and the driver's are reported. Of several toolkits side by side each is tried.

To do: install the host compiler that this toolkit supports; name the toolkit's folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding, Item
from gpusetup.verify.reasons import explain
from gpusetup.verify.registry import check, from_items, in_packages

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


def _seconds(machine: Machine) -> float:
    return float((machine.sections.get("nvcc") or {}).get("seconds", 0))


@check(
    "nvcc.program",
    "nvcc's program runs",
    needs=("gpu",),
    seconds=_seconds,
    asked=in_packages("cuda"),
)
def judge(machine: Machine) -> Finding:
    """Judge compiling and running."""
    others = {name: told for name, told in machine.sections.items() if name.startswith("nvcc-")}
    answer = machine.sections.get("nvcc")
    first = _judged(machine, answer)
    if not others or first.verdict == "skip":
        return first
    found = {"default": first, **{name.removeprefix("nvcc-"): _judged(machine, told) for name, told in others.items()}}
    items = [
        Item(subject=f"CUDA {name}", verdict=one.verdict, text="" if one.verdict == "pass" else one.text)
        for name, one in found.items()
    ]
    return from_items(items, f"{first.text}; beside it CUDA {', '.join(sorted(found)[:-1])}")


def _judged(machine: Machine, answer: object) -> Finding:
    if not isinstance(answer, dict):
        if machine.wanted.packages("cuda"):
            return Finding("fail", "the lock has the CUDA toolkit's packages, but nvcc is missing")
        return Finding("skip", "no CUDA toolkit is installed")
    if answer.get("error") == "compile":
        last = [line for line in str(answer.get("message")).splitlines() if "error" in line.lower()] or str(
            answer.get("message")
        ).splitlines()
        return Finding("fail", f"nvcc could not compile: {last[0][:160] if last else 'it printed nothing'}")
    if answer.get("error") and not answer.get("gpus"):
        return Finding(
            "fail", f"the program did not run: {answer['error'] if 'message' not in answer else explain(answer)}"
        )
    items = []
    for gpu in answer.get("gpus", []):
        well = gpu.get("error") is None and gpu.get("wrong") == 0
        items.append(
            Item(
                subject=f"GPU {gpu.get('index')}",
                verdict="pass" if well else "fail",
                text="" if well else str(gpu.get("error") or f"{gpu.get('wrong')} wrong elements"),
            )
        )
    compiled = answer.get("compile_seconds")
    runtime = int(answer.get("runtime_cuda") or 0)
    return from_items(
        items,
        f"CUDA {runtime // 1000}.{runtime % 1000 // 10}, compiled in {compiled} s, correct on every GPU",
        nothing="the program found no GPU",
    )
