"""Observations captured on real machines, and how to break them."""

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpusetup.model.applied import SCHEMA, Applied
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


def found_at(document: Any, path: str) -> Any:
    """What stands at a path of names and numbers."""
    for name in path.split("/") if path else ():
        document = document[int(name) if isinstance(document, list) else name]
    return document


def places(part: Any, names: Sequence[str], before: str = "") -> list[str]:
    """The paths of a place with `*` or `+` for each name or number there."""
    if not names:
        return [before]
    keys = part if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ()
    mine = [key for key in keys if names[0] in (str(key), "*", "+")]
    return [found for key in mine for found in places(part[key], names[1:], f"{before}/{key}".strip("/"))]


def put(document: Document, edits: Document, gone: Sequence[str] = ()) -> None:
    """Set these values at their paths, and take away what is gone."""
    for path in (*edits, *gone):
        folder, _, last = path.rpartition("/")
        at = found_at(document, folder)
        key = int(last) if isinstance(at, list) else last
        if path in edits:
            at[key] = edits[path]
        else:
            del at[key]


def broken(name: str, edits: Document | None = None, gone: Sequence[str] = ()) -> Document:
    """Return a capture with other values at these paths, and without what is gone."""
    document = captured(name)
    put(document, edits or {}, gone)
    return document


@contextmanager
def smi_tree(document: Document) -> Iterator[ET.Element]:
    """Give nvidia-smi's XML as a tree; it is written back as it is then."""
    root = ET.fromstring(document["quick"]["smi"]["stdout"])
    yield root
    document["quick"]["smi"]["stdout"] = ET.tostring(root, encoding="unicode")


def set_smi(document: Document, gpu: int, path: str, value: str) -> None:
    """Change one text of nvidia-smi's XML."""
    with smi_tree(document) as root:
        element = root.findall("gpu")[gpu].find(path)
        assert element is not None, path
        element.text = value


def drop_gpu(document: Document, gpu: int) -> None:
    """Take a GPU out of nvidia-smi's list, as one that fell off the bus."""
    with smi_tree(document) as root:
        root.remove(root.findall("gpu")[gpu])


def smi_says(document: Document, text: str, code: int, *, error: str | None = None) -> None:
    """Let nvidia-smi answer with a message instead of a document."""
    for name in ("smi", "smi_query", "smi_list", "topology", "nvlink_status", "nvlink_errors"):
        document["quick"][name] |= {"stdout": text, "stderr": "", "rc": code, "error": error}
    document["gpus"] = []


def applied(**wanted: Any) -> Wanted:
    """Return what was asked for, beside no package of a stack."""
    none: Document = {"packages": None, "manage_driver": False, "requirements": (), "adopted": (), "services": ()}
    return Wanted(Applied(schema=SCHEMA, key="k", stack=Stack(), wanted=AppliedWanted(**none, **wanted)))


ASKED = Wanted(
    Applied(
        stack=Stack(
            torch=TorchChoice(version="", variant="", cuda="", relation="native", index_url=""),
            tensorflow=TensorflowChoice(version="", cuda="", cudnn="", relation="native"),
            jax=JaxChoice(version="", cuda="", relation="native", extra=""), cupy=CupyChoice(version="", package="", ctk=False),
            **{name.replace("-", "_"): PackageChoice(version="") for name in PACKAGES},
        ),
        wanted=AppliedWanted(
            packages=PackageSet(manager="apt", cuda=(Package(name="cuda-toolkit-13-0"),), cudnn=(Package(name="libcudnn9-cuda-13"),)),
            manage_driver=False, requirements=(), adopted=(), services=(),
        ),
    )
)  # fmt: skip
"""Somebody asked for every framework and package, in whatever version, and for the toolkit and cuDNN."""


def results(document: Document, wanted: Wanted | None = None) -> dict[str, Result]:
    return {result.id: result for result in judge(Machine(document, wanted))}


def verdicts(document: Document, wanted: Wanted | None = None) -> dict[str, str]:
    return {name: result.verdict for name, result in results(document, wanted).items()}


def differences(healthy: Document, broken: Document, wanted: Wanted | None = None) -> dict[str, str]:
    """Which verdicts a fault changed: everything else must stay as it was."""
    before, after = verdicts(healthy, wanted), verdicts(broken, wanted)
    return {name: after[name] for name in after if after[name] != before[name]}
