"""The rules that keep the program one-way: who may import whom, who may touch the world, how long a module may be."""

import ast

import pytest

from tests.architecture import imports as layout
from tests.architecture.files import files
from tests.architecture.imports import PACKAGE, imports, modules, name_of, tree

LAYERS = (
    ("errors",),
    ("versions",),
    ("content",),
    ("model",),
    ("matrix",),
    ("resolve",),
    ("components",),  # below plan, which knows none of them by its name; above resolve, whose stack they stand beside
    ("plan",),
    ("drive",),
    ("recovery",),
    ("facts", "verify", "doctor"),
    ("report",),
    ("monitoring", "watch"),
    ("health",),
    ("compare", "handover"),
    ("rollout",),
    ("bootstrap",),
    ("supply",),
    ("pull",),
    ("cli", "api"),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
OUTSIDE = {"__main__", "callback_plugins", "inventory_plugins"}
"""The program's door, and the adapters that Ansible loads inside its own processes."""
INSIDE_ANSIBLE = ("gpusetup.drive.callback", "gpusetup.drive.forked")
"""What is Ansible's process: to leave it with a code is its way to refuse a run, and to end one."""
IMPURE = {
    "os", "subprocess", "socket", "time", "random", "requests", "yaml", "io", "pathlib", "datetime", "shutil", "sys",
}  # fmt: skip
LONGEST = 500
"""An alarm, not a shape to cut files to."""


def part_of(module):
    """Return the part of the package that a module belongs to: `resolve` for gpusetup.resolve.search."""
    return module.split(".")[1] if "." in module else ""


def calls(path):
    """Return every call of a module, with the words of what is called."""
    nodes = (node for node in ast.walk(tree(path)) if isinstance(node, ast.Call))
    return [(node, ast.unparse(node.func)) for node in nodes]


def pointing_right(path):
    """Imports of what stands to the right in the order of the layers."""
    mine = part_of(name_of(path))
    if mine in OUTSIDE | {""}:
        return
    for found in imports(path):
        other = part_of(found.module) if found.module.startswith("gpusetup.") else ""
        if other in ("", "__version__") or other == mine:
            continue
        if LEVEL[other] > LEVEL[mine] or (LEVEL[other] == LEVEL[mine] and not found.typing_only):
            yield f"{path}:{found.line}: {mine} imports {found.module}"


def impure(path):
    """What touches the world where answers are worked out."""
    if part_of(name_of(path)) not in ("resolve", "components", "plan"):
        return
    for found in imports(path):
        if not found.typing_only and found.module.split(".")[0] in IMPURE:
            yield f"{path}:{found.line}: {found.module}"
    for node, called in calls(path):
        if called in ("open", "input", "exec", "eval", "__import__"):
            yield f"{path}:{node.lineno}: {called}()"


def printing(path):
    """What prints or exits outside the command line; a stream that the command line handed in may be written to."""
    if part_of(name_of(path)) in ("cli", *OUTSIDE) or name_of(path) in INSIDE_ANSIBLE:
        return
    for node, called in calls(path):
        target = next((ast.unparse(word.value) for word in node.keywords if word.arg == "file"), "sys.stdout")
        handed = called == "print" and not target.startswith("sys.")
        if not handed and called in ("print", "sys.exit", "exit", "quit", "os._exit", "sys.stdout.write"):
            yield f"{path}:{node.lineno}: {called}()"
    for raised in ast.walk(tree(path)):
        if isinstance(raised, ast.Raise) and raised.exc is not None and "SystemExit" in ast.unparse(raised.exc):
            yield f"{path}:{raised.lineno}: SystemExit"


def starting_processes(path):
    """What starts a process outside the runner."""
    if name_of(path) == "gpusetup.drive.runner":
        return
    for found in imports(path):
        if not found.typing_only and found.module.split(".")[0] == "subprocess":
            yield f"{path}:{found.line}: {found.module}"
    for node, called in calls(path):
        if called.startswith(("os.system", "os.popen", "os.exec", "os.spawn")):
            yield f"{path}:{node.lineno}: {called}()"


def taking_the_command_line(path):
    """What reads the command line's arguments below the command line: there they are frozen options."""
    if part_of(name_of(path)) in ("cli", *OUTSIDE):
        return
    for node in ast.walk(tree(path)):
        named = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if named == "Namespace" or (isinstance(node, ast.alias) and node.name.startswith("argparse")):
            yield f"{path}: {named or 'argparse'}"


def silent(path):
    """A module that does not say what it is for."""
    if not ast.get_docstring(tree(path)):
        yield str(path)


@pytest.mark.parametrize(
    "rule", [pointing_right, impure, printing, starting_processes, taking_the_command_line, silent]
)
def test_every_module_keeps_the_rule(rule):
    assert [broken for path in modules() for broken in rule(path)] == []


@pytest.mark.parametrize(
    ("rule", "place", "text"),
    [
        (pointing_right, "model/x.py", "import gpusetup.cli.main"),
        (pointing_right, "model/x.py", "from gpusetup.plan import host"),
        (pointing_right, "verify/x.py", "import gpusetup.doctor.scan"),
        (impure, "resolve/x.py", "import os"),
        (impure, "plan/x.py", "def f():\n    return open('x')"),
        (printing, "drive/x.py", "print('x')"),
        (printing, "drive/x.py", "import sys\nprint('x', file=sys.stderr)"),
        (printing, "drive/x.py", "raise SystemExit(1)"),
        (starting_processes, "supply/x.py", "def f():\n    import subprocess"),
        (starting_processes, "supply/x.py", "import os\nos.execvp('x', [])"),
        (taking_the_command_line, "rollout/x.py", "def f(arguments: argparse.Namespace) -> None: ..."),
        (taking_the_command_line, "rollout/x.py", "import argparse"),
        (silent, "supply/x.py", "x = 1"),
    ],
)
def test_each_rule_sees_what_breaks_it(rule, place, text, tmp_path, monkeypatch):
    path = tmp_path / "gpusetup" / place
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    monkeypatch.setattr(layout, "PACKAGE", tmp_path / "gpusetup")
    assert list(rule(path)) != []


def test_no_file_is_long():
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files(PACKAGE.parent).values()}
    assert {str(path): lines for path, lines in lengths.items() if lines > LONGEST} == {}


def test_nothing_is_called_utils():
    assert not [path for path in modules() if path.stem in ("utils", "helpers", "common", "misc")]


def test_every_part_of_the_package_has_its_place():
    parts = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert parts - {"__init__"} <= set(LEVEL) | OUTSIDE
