"""The rules that keep the program one-way: who may import whom, who may touch the world, how long a module may be."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from tests.architecture.files import files
from tests.architecture.imports import PACKAGE, imports, modules, name_of, tree

if TYPE_CHECKING:
    from pathlib import Path

LAYERS = (
    ("errors",),
    ("versions",),
    ("content",),
    ("model",),
    ("matrix",),
    ("resolve",),
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
INSIDE_ANSIBLE = ("gpusetup.drive.callback",)
"""What the adapter calls there: to leave that process with a code is its way to refuse a run."""
IMPURE = {
    "os",
    "subprocess",
    "socket",
    "time",
    "random",
    "requests",
    "yaml",
    "io",
    "pathlib",
    "datetime",
    "shutil",
    "sys",
}
LONGEST = 400
ALL = pytest.mark.parametrize("path", modules(), ids=name_of)


def part_of(module: str) -> str:
    """Return the part of the package that a module belongs to: `resolve` for gpusetup.resolve.search."""
    return module.split(".")[1] if "." in module else ""


@ALL
def test_imports_point_left(path: Path) -> None:
    mine = part_of(name_of(path))
    if mine in OUTSIDE | {""}:
        return
    assert mine in LEVEL, f"gpusetup.{mine} has no place in the order of the architecture"
    for found in imports(path):
        other = part_of(found.module) if found.module.startswith("gpusetup.") else ""
        if other in ("", "__version__") or other == mine:
            continue
        assert LEVEL[other] < LEVEL[mine] or (LEVEL[other] == LEVEL[mine] and found.typing_only), (
            f"{path}:{found.line}: {mine} imports {found.module}"
        )


@ALL
def test_resolve_and_plan_are_pure(path: Path) -> None:
    if part_of(name_of(path)) not in ("resolve", "plan"):
        return
    for found in imports(path):
        assert found.typing_only or found.module.split(".")[0] not in IMPURE, f"{path}:{found.line}: {found.module}"
    for node in ast.walk(tree(path)):
        called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        assert called not in ("open", "input", "exec", "eval", "__import__"), f"{path}:{node.lineno}: {called}()"


@ALL
def test_only_the_command_line_prints_or_exits(path: Path) -> None:
    if part_of(name_of(path)) in ("cli", *OUTSIDE) or name_of(path) in INSIDE_ANSIBLE:
        return
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            target = next((ast.unparse(word.value) for word in node.keywords if word.arg == "file"), "sys.stdout")
            handed = called == "print" and not target.startswith("sys.")  # a stream that the command line handed in
            allowed = handed or called not in ("print", "sys.exit", "exit", "quit", "os._exit", "sys.stdout.write")
            assert allowed, f"{path}:{node.lineno}: {called}()"
        if isinstance(node, ast.Raise) and node.exc is not None:
            assert "SystemExit" not in ast.unparse(node.exc), f"{path}:{node.lineno}: SystemExit"


@ALL
def test_processes_start_in_the_runner_only(path: Path) -> None:
    if name_of(path) == "gpusetup.drive.runner":
        return
    for found in imports(path):
        assert found.typing_only or found.module.split(".")[0] != "subprocess", f"{path}:{found.line}: {found.module}"
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert not called.startswith(("os.system", "os.popen", "os.exec", "os.spawn")), (
                f"{path}:{node.lineno}: {called}()"
            )


def test_no_file_is_long() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files(PACKAGE.parent).values()}
    assert {str(path): lines for path, lines in lengths.items() if lines > LONGEST} == {}


@ALL
def test_every_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(tree(path)), path


def test_nothing_is_called_utils() -> None:
    assert not [path for path in modules() if path.stem in ("utils", "helpers", "common", "misc")]


def test_every_part_of_the_package_has_its_place() -> None:
    parts = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert parts - {"__init__"} <= set(LEVEL) | OUTSIDE
