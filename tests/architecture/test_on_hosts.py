"""What runs on hosts imports nothing that a host may lack."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What measures GPUs is started as a program of its own beside its files, and asks for frameworks where they are there.
MEASURES = ROOT / "plugins" / "module_utils" / "gpu_measure"
BESIDE = {"torch", "cupy", "cupy_backends", "numpy", "tensorflow", "jax", "gpu_probe", "gpu_judge"}
ANSIBLE = {"ansible", "ansible_collections"}


def _code(*folders: str) -> list[Path]:
    """Return what hosts run; a smoke test of a package is run by the Python that has the package."""
    found = [path for folder in folders for path in sorted((ROOT / "plugins" / folder).rglob("*.py"))]
    return [path for path in found if "smoke" not in path.stem or path.stem == "smoke"]


@pytest.mark.parametrize("path", _code("module_utils", "modules"), ids=lambda path: path.stem)
def test_only_the_standard_library_is_imported_on_hosts(path: Path) -> None:
    allowed = (
        set(sys.stdlib_module_names)
        | ANSIBLE
        | (BESIDE | {file.stem for file in MEASURES.glob("*.py")} if MEASURES in path.parents else set())
    )
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [str(node.module)]
        assert {name.partition(".")[0] for name in names} <= allowed, f"{path}:{node.lineno}: {names}"


def _brought(package: Path) -> set[str]:
    """Return what Ansible brings along of a package: what its `__init__` imports, and what that imports in turn."""
    found: set[str] = set()
    left = ["__init__"]
    while left:
        tree = ast.parse((package / f"{left.pop()}.py").read_text(encoding="utf-8"))
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 1]
        for node in nodes:
            names = [node.module] if node.module else [alias.name for alias in node.names]
            fresh = [name for name in names if name not in found and (package / f"{name}.py").exists()]
            found.update(fresh)
            left.extend(fresh)
    return found


@pytest.mark.parametrize("package", ["gpu_probe", "gpu_judge"])
def test_what_measures_finds_its_neighbours_on_a_host(package: str) -> None:
    """It runs beside what its module was brought with: no file of a package that nothing there imports."""
    used = {
        name
        for path in MEASURES.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == package
        for name in (
            [str(node.module).partition(".")[2]] if "." in str(node.module) else [one.name for one in node.names]
        )
    }
    files = {path.stem for path in (MEASURES.parent / package).glob("*.py")}
    assert used & files <= _brought(MEASURES.parent / package)
