"""Nothing that the matrix says is kept for nobody: some code reads every field of its records."""

import ast
import itertools
from pathlib import Path

import gpusetup

PACKAGE = Path(gpusetup.__file__).parent
READERS = (PACKAGE, PACKAGE.with_name("gpusetup_fleet"), PACKAGE.parent / "plugins/module_utils/gpu_judge")
"""The judge's rules, which hosts and plans share, read the rows of MIG profiles as dictionaries."""
MODELS = ("release", "platforms", "packages", "repos", "tables")


def _declared():
    """Return each field of a record with the class that declares it."""
    trees = (ast.parse((PACKAGE / "model" / f"{name}.py").read_text()) for name in MODELS)
    classes = (node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    return {
        part.target.id: owner.name
        for owner in classes
        for part in owner.body
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    }


def _read():
    """Return every attribute that code takes, and every name that it may pass to getattr."""
    paths = itertools.chain.from_iterable(folder.rglob("*.py") for folder in READERS)
    nodes = itertools.chain.from_iterable(ast.walk(ast.parse(path.read_text())) for path in paths)
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    return names


def test_every_field_of_the_matrix_is_read():
    read = _read()
    assert [f"{owner}.{name}" for name, owner in _declared().items() if name not in read] == []
