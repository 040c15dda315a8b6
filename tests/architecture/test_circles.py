"""No two files need each other, however hidden: what only the type checker sees and what is imported late counts too."""

import ast

from tests.architecture.files import files
from tests.architecture.imports import PACKAGE

ROOT = PACKAGE.parent
COLLECTION = "ansible_collections.gpusetup.stack."


def statements(node):
    """Yield every statement, however deep; expressions, most of a tree, hold no import."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from statements(child)


def named(module, path):
    """Yield what an import may mean, the likeliest first: a file, or a name inside a file."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    # Files of a folder that is no package run by themselves and find their neighbours by their bare names.
    beside = "" if (path.parent / "__init__.py").exists() else f"{package}."
    for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name.removeprefix(COLLECTION), beside + alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = (node.module or "").removeprefix(COLLECTION)
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            for alias in node.names:
                yield f"{base}.{alias.name}", base, beside + base


def graph(root):
    """Return the files that each file imports."""
    known = files(root)
    found = {}
    for module, path in known.items():
        needed = (next((name for name in names if name in known), module) for names in named(module, path))
        found[module] = set(needed) - {module}
    return found


def circles(needs):
    """Return each circle once: what is left when files that need nothing more are taken away again and again."""
    left = {module: set(needed) for module, needed in needs.items()}
    while free := {module for module, needed in left.items() if not needed & left.keys()}:
        left = {module: needed for module, needed in left.items() if module not in free}
    found = {}
    for start in left:
        way = [start]
        while (step := min(left[way[-1]] & left.keys())) not in way:
            way.append(step)
        circle = way[way.index(step) :]
        first = circle.index(min(circle))
        found[frozenset(circle)] = " -> ".join([*circle[first:], *circle[:first], circle[first]])
    return sorted(found.values())


def test_no_two_files_import_each_other_in_a_circle():
    assert circles(graph(ROOT)) == []


def test_a_circle_is_seen_however_it_is_hidden(tmp_path):
    for name, text in {
        "gpusetup/__init__.py": "",
        "gpusetup/a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from gpusetup.b import B\n",
        "gpusetup/b.py": "def f():\n    from gpusetup import c\n",
        "gpusetup/c.py": "import gpusetup.a\n",
        "gpusetup/d.py": "import gpusetup.a\n",
        "plugins/module_utils/one/__init__.py": "from . import x\n",
        "plugins/module_utils/one/x.py": "from .y import z\n",
        "plugins/module_utils/one/y.py": f"from {COLLECTION}plugins.module_utils import one\n",
        "plugins/module_utils/two/p.py": "import q\n",
        "plugins/module_utils/two/q.py": "from p import what\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    one, two = "plugins.module_utils.one", "plugins.module_utils.two"
    assert circles(graph(tmp_path)) == [
        "gpusetup.a -> gpusetup.b -> gpusetup.c -> gpusetup.a",
        f"{one} -> {one}.x -> {one}.y -> {one}",
        f"{two}.p -> {two}.q -> {two}.p",
    ]
