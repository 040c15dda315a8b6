"""A hand-over as files: values, labels, RuntimeClass, and a page that says what would be done twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.handover.kubernetes import label_script
from gpusetup.handover.text import yaml_text

if TYPE_CHECKING:
    from gpusetup.handover.kubernetes import Handover

__all__ = ["kubernetes_files"]

_MADE = "# Written by gpusetup from the hosts' facts.\n"


def kubernetes_files(found: Handover) -> dict[str, str]:
    """Return what is written, by name."""
    files = {"gpu-operator-values.yaml": yaml_text(found.values, made=_MADE), "README.md": _page(found)}
    if found.labels:
        files["label-nodes.sh"] = label_script(found.labels)
    if found.runtime_class is not None:
        files["runtimeclass.yaml"] = yaml_text(found.runtime_class, made=_MADE)
    return files


def _page(found: Handover) -> str:
    lines = ["# Hand-over to Kubernetes", "", "```bash"]
    if found.labels:
        lines.append("sh label-nodes.sh")
    lines += [
        "helm upgrade --install gpu-operator nvidia/gpu-operator -n gpu-operator --create-namespace \\",
        "    -f gpu-operator-values.yaml",
        "```",
        "",
        "## What host and operator would both do",
        "",
        *(f"- {text}" for text in found.twice or ("nothing: the hosts have no part of it yet",)),
    ]
    if found.warnings:
        lines += ["", "## To look at", "", *(f"- {text}" for text in found.warnings)]
    return "\n".join(lines) + "\n"
