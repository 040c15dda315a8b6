"""Every desktop draws on the GPU: a program that VirtualGL starts in it, as its user, names NVIDIA as its renderer.

`vglrun glxinfo -B` is run in each session that the host's record names. llvmpipe and its kind are Mesa drawing on the
processor: everything works then, slowly, and nothing says so but this. The user must be able to open the GPU's device
files, and the page of noVNC must answer.

To do: the half of the driver that draws (libnvidia-gl, nvidia-driver-libs) must be installed, `vglrun -d egl0
/opt/VirtualGL/bin/eglinfo -e` lists the devices; `gpusetup doctor` finds causes in what the program printed.
"""

import re
from typing import Any

from gpusetup.model.verdict import Finding, Item
from gpusetup.verify.answers import explain
from gpusetup.verify.machine import Machine
from gpusetup.verify.registry import check, from_items

_SOFTWARE = re.compile(r"llvmpipe|softpipe|swrast|software rasterizer", re.IGNORECASE)
_NVIDIA = "NVIDIA"


def _answers(machine: Machine) -> dict[str, Any]:
    found = machine.sections.get("desktops")
    return found if isinstance(found, dict) else {}


@check("desktop.renderer", "Desktops draw on the GPU", needs=("gpu",), took="desktops/+/drawn")
def judge(machine: Machine) -> Finding:
    """Judge the renderer of each desktop."""
    answers = _answers(machine)
    if not answers:
        return Finding("unsupported", "no desktops here")
    if isinstance(answers.get("error"), str):
        return Finding("fail", f"not tried: {explain(answers)}", blame="gpusetup")
    items = [item(user, told) for user, told in answers.items()]
    return from_items(items, f"{len(items)} desktops draw on the GPU: {items[0].measured}")


def item(user: str, told: dict[str, Any], expected: str = _NVIDIA) -> Item:
    """Judge one desktop; `expected` is the vendor of the renderer."""
    drawn = told.get("drawn") or {}

    def fails(text: str, measured: str | None = None) -> Item:
        return Item(user, "fail", text, measured, expected)

    if told.get("active") != "active":
        return fails(f"the desktop is {told.get('active') or 'not known to systemd'}")
    if told.get("page") != "200":
        return fails(f"its page does not answer: {told.get('page')}")
    if told.get("denied"):
        return fails(f"may not open {', '.join(told['denied'][:3])}: which group may, and is it that of the desktops?")
    if drawn.get("error") or drawn.get("rc"):
        said = str(drawn.get("stderr") or drawn.get("error") or "").strip().splitlines()
        return fails(f"no program can draw: {said[-1][:160] if said else 'vglrun glxinfo gave no reason'}")
    vendor, renderer = (_opengl_string(drawn, name) for name in ("vendor", "renderer"))
    if expected.lower() not in f"{vendor} {renderer}".lower():
        if _SOFTWARE.search(renderer):
            return fails(f"the renderer is {renderer}: software on the processor, not the GPU", renderer)
        return fails(f"the renderer is {renderer or 'not named'} of {vendor or 'nobody'}, not {expected}'s", renderer)
    return Item(user, "pass", measured=renderer)


def _opengl_string(drawn: dict[str, Any], name: str) -> str:
    found = re.search(rf"^OpenGL {name} string: (.*)$", str(drawn.get("stdout", "")), re.MULTILINE)
    return found[1].strip() if found else ""
