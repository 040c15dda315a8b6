"""Observations captured on real machines, and how to break them."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from gpusetup.model.applied import Applied
from gpusetup.model.plan import Package, PackageSet
from gpusetup.model.request import PACKAGES
from gpusetup.model.settings import AppliedWanted
from gpusetup.model.stack import CupyChoice, JaxChoice, PackageChoice, Stack, TensorflowChoice, TorchChoice
from gpusetup.model.verdict import Result
from gpusetup.verify.machine import Machine, Wanted
from gpusetup.verify.registry import judge

FILES = Path(__file__).resolve().parents[3] / "roles/gpu_verify/files/gpu_measure"
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
Document = dict[str, Any]


def captured(name: str) -> Document:
    document: Document = json.loads((FIXTURES / "observations" / f"{name}.json").read_text(encoding="utf-8"))
    return document


def set_smi(document: Document, gpu: int, path: str, value: str) -> None:
    """Change one text of nvidia-smi's XML."""
    root = ET.fromstring(document["quick"]["smi"]["stdout"])
    element = root.findall("gpu")[gpu].find(path)
    assert element is not None, path
    element.text = value
    document["quick"]["smi"]["stdout"] = ET.tostring(root, encoding="unicode")


def drop_gpu(document: Document, gpu: int) -> None:
    """Take a GPU out of nvidia-smi's list, as one that fell off the bus."""
    root = ET.fromstring(document["quick"]["smi"]["stdout"])
    root.remove(root.findall("gpu")[gpu])
    document["quick"]["smi"]["stdout"] = ET.tostring(root, encoding="unicode")


def smi_says(document: Document, text: str, code: int, *, error: str | None = None) -> None:
    """Let nvidia-smi answer with a message instead of a document."""
    for name in ("smi", "smi_query", "smi_list", "topology", "nvlink_status", "nvlink_errors"):
        document["quick"][name] |= {"stdout": text, "stderr": "", "rc": code, "error": error}
    document["gpus"] = []


ASKED = Wanted(
    Applied(
        stack=Stack(
            torch=TorchChoice(version="", variant="", cuda="", relation="native", index_url=""),
            tensorflow=TensorflowChoice(version="", cuda="", cudnn="", relation="native"),
            jax=JaxChoice(version="", cuda="", relation="native", extra=""),
            cupy=CupyChoice(version="", package="", ctk=False),
            **{name.replace("-", "_"): PackageChoice(version="") for name in PACKAGES},
        ),
        wanted=AppliedWanted(
            packages=PackageSet(
                manager="apt", cuda=(Package(name="cuda-toolkit-13-0"),), cudnn=(Package(name="libcudnn9-cuda-13"),)
            ),
            manage_driver=False,
            requirements=(),
            adopted=(),
            services=(),
        ),
    )
)
"""Somebody asked for every framework and package, in whatever version, and for the toolkit and cuDNN."""


def results(document: Document, wanted: Wanted | None = None) -> dict[str, Result]:
    return {result.id: result for result in judge(Machine(document, wanted))}


def verdicts(document: Document, wanted: Wanted | None = None) -> dict[str, str]:
    return {name: result.verdict for name, result in results(document, wanted).items()}


def differences(healthy: Document, broken: Document, wanted: Wanted | None = None) -> dict[str, str]:
    """Which verdicts a fault changed: everything else must stay as it was."""
    before, after = verdicts(healthy, wanted), verdicts(broken, wanted)
    return {name: after[name] for name in after if after[name] != before[name]}
