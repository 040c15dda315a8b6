"""What runs on hosts imports nothing that a host may lack."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from bench import modules

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


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return modules.archives(tmp_path_factory.mktemp("archives"))


@pytest.mark.parametrize("package", ["gpu_probe", "gpu_judge"])
def test_what_measures_finds_its_neighbours_on_a_host(package: str, archives: dict[str, Path]) -> None:
    """It runs beside what its module was brought with: no file of a package that nothing there imports."""
    brought = {Path(name) for name in modules.brought(archives["gpu_verify"])}
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
    assert used & files <= {path.stem for path in brought if path.parent.name == package}
