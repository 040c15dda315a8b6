"""Read package rows from YAML files instead of an index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from packaging.version import Version

from tools.refresh.asking import Fault
from tools.refresh.known_packages import PACKAGES
from tools.refresh.rows import assemble

_COMPILERS = ("cuda-bindings", "nvidia-cuda-nvcc", "nvidia-cuda-nvrtc", "nvidia-nvjitlink", "nvidia-nvvm")


def gathered(name: str, folder: Path) -> dict[str, Any]:
    """Return a package's file, built from YAML files of rows."""
    about = PACKAGES[name]
    if "table" not in about:
        raise Fault("its rows are read from the index only")
    table, seen = _table(folder, about["table"])
    kernels = {kernel: _table(folder, where)[0]["rows"] for kernel, where in about.get("kernels", {}).items()}
    found = assemble(name, table["rows"], kernels, title=table["source"], seen=seen)
    for release, names in _compilers(name, folder).items():
        next(item for item in found["releases"] if item["version"] == release)["compilers"] = names
    return found


def _compilers(name: str, folder: Path) -> dict[str, list[str]]:
    """Return, by release, the compiler wheels newer than the toolkit that a resolver chose for the package alone."""
    path = folder / "solves.yaml"
    if not path.exists():
        return {}
    found: dict[str, list[str]] = {}
    for solve in yaml.safe_load(path.read_text())["solves"]:
        alone, _, version = solve["requirements"][0].partition("==")
        if alone != name or len(solve["requirements"]) > 1 or solve["constraints"] != "none" or not version:
            continue
        chosen = solve.get("key_versions", {})
        toolkit = Version(chosen.get("cuda-toolkit", "99")).release[:2]
        above = [wheel for wheel in _COMPILERS if wheel in chosen and Version(chosen[wheel]).release[:2] > toolkit]
        if above:
            found[version] = above
    return found


def _table(folder: Path, where: str) -> tuple[dict[str, Any], str]:
    file, _, key = where.partition(".")
    facts = yaml.safe_load((folder / f"{file}.yaml").read_text())
    return facts[key], str(facts["seen"])
