"""What runs on hosts imports nothing that a host may lack; the probe, alone, is a package of its own."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What measures GPUs asks for frameworks where they are there.
MEASURES = ROOT / "roles/gpu_verify/files/gpu_measure"
FRAMEWORKS = {"torch", "cupy", "cupy_backends", "numpy", "tensorflow", "jax"}
SHARED = "ansible_collections.gpusetup.stack.plugins.module_utils."
IMPORTED = [path for part in ("module_utils", "modules") for path in sorted((ROOT / "plugins" / part).rglob("*.py"))]
PROGRAMS = sorted((ROOT / "roles").glob("*/files/**/*.py"))


def imports(path):
    """Return the full names that a file imports, without those relative to it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(str(node.module))
    return found


def test_the_oldest_python_of_a_host_can_read_it():
    for path in (*IMPORTED, *PROGRAMS):
        ast.parse(path.read_text(encoding="utf-8"), filename=str(path), feature_version=(3, 6))


@pytest.mark.parametrize("path", IMPORTED, ids=lambda path: path.stem)
def test_modules_import_only_the_standard_library_ansible_and_each_other(path):
    allowed = {*sys.stdlib_module_names, "ansible", "ansible_collections"}
    assert {name for name in imports(path) if name.partition(".")[0] not in allowed} == set()


@pytest.mark.parametrize(
    "path",
    # A smoke test of a package is run by the Python that has the package.
    [path for path in PROGRAMS if "smoke" not in path.stem or path.stem == "smoke"],
    ids=lambda path: path.stem,
)
def test_programs_import_only_the_standard_library_their_neighbours_and_what_modules_share(path):
    files = next(folder for folder in path.parents if folder.name == "files")
    allowed = {*sys.stdlib_module_names, *(beside.stem for beside in files.iterdir())}
    if MEASURES in path.parents:
        allowed |= FRAMEWORKS | {beside.stem for beside in MEASURES.glob("*.py")}
    others = {name for name in imports(path) if name.partition(".")[0] not in allowed}
    assert {name for name in others if not name.startswith(SHARED)} == set()


PROBE = Path(__file__).parents[2] / "plugins/module_utils/gpu_probe"


@pytest.mark.parametrize("path", sorted(PROBE.glob("*.py")), ids=lambda path: path.name)
def test_nothing_of_the_probe_comes_from_beside_it(path):
    found = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    assert [ast.unparse(node) for node in found if node.level > 1] == []
