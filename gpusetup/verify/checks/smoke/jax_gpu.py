"""JAX finds its CUDA plugin and every GPU; a product and a convolution come out right on each.

JAX without a working plugin (`jax[cuda12]`, `jax[cuda13]`) imports well and quietly computes on the CPU: here the GPUs
are asked for by name, so that the plugin's own reason is seen.

To do: the text names what JAX said; install `jax[cuda13]` (or `[cuda12]`, by the driver) into the environment that
apply made, and remove plugins of another version than jaxlib's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding
from gpusetup.verify.checks.smoke import _framework
from gpusetup.verify.registry import check, from_items, in_stack

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


def _seconds(machine: Machine) -> float:
    return float((machine.sections.get("jax") or {}).get("seconds", 0))


@check(
    "jax.gpu",
    "JAX computes on every GPU",
    needs=("gpu",),
    seconds=_seconds,
    asked=in_stack("jax"),
)
def judge(machine: Machine) -> Finding:
    """Judge the plugin, the version and the operations."""
    missing = _framework.absent(machine, "jax", "JAX")
    if missing is not None:
        return missing
    answer = machine.sections["jax"]
    version, wanted = str(answer.get("version")), machine.wanted.version("jax")
    plugins = [name for name in answer.get("plugins") or {} if name.endswith("-plugin")]
    if not plugins:
        return Finding("fail", f"JAX {version} has no CUDA plugin (jax[cuda13] or jax[cuda12])", version, wanted)
    if wanted and version != wanted:
        return Finding("fail", f"JAX is {version}, the lock says {wanted}", version, wanted)
    if answer.get("why_not"):
        return Finding("fail", f"JAX {version} finds no GPU: {answer['why_not'].splitlines()[0][:300]}", version)
    items = _framework.operations(answer, machine.busy)
    if len(items) < len(machine.gpus) and not any(map(machine.mig, machine.gpus)):
        return Finding(
            "fail", f"JAX {version} sees {len(items)} of {len(machine.gpus)} GPUs", len(items), len(machine.gpus)
        )
    return from_items(items, f"{version}, {', '.join(plugins)}: product and convolution correct on every GPU")
