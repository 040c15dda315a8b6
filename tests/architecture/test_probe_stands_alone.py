"""The probe runs on hosts as a package of its own too: what it imports is in it, or in the standard library."""

import ast
from pathlib import Path

import pytest

PROBE = Path(__file__).parents[2] / "plugins/module_utils/gpu_probe"


@pytest.mark.parametrize("path", sorted(PROBE.glob("*.py")), ids=lambda path: path.name)
def test_nothing_of_the_probe_comes_from_beside_it(path):
    found = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    assert [ast.unparse(node) for node in found if node.level > 1] == []
