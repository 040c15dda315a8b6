"""What every module of gpusetup and gpusetup-fleet imports, read from its text."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parents[2] / "gpusetup"


class Import(NamedTuple):
    """An import: the module, its line, and whether only the type checker sees it."""

    module: str
    line: int
    typing_only: bool


def modules() -> list[Path]:
    """Return every module of both packages."""
    found = [*PACKAGE.rglob("*.py"), *PACKAGE.with_name("gpusetup_fleet").rglob("*.py")]
    return sorted(path for path in found if "_content" not in path.parts)


def name_of(path: Path) -> str:
    """Return the dotted name of a module."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree(path: Path) -> ast.Module:
    """Return a module's syntax."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(path: Path) -> Iterator[Import]:
    """Return everything that a module imports, at its top or inside functions."""
    yield from _walk(tree(path), typing_only=False)


def _walk(node: ast.AST, *, typing_only: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, child.lineno, typing_only) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are absolute"
            for alias in child.names:
                yield Import(f"{child.module}.{alias.name}", child.lineno, typing_only)
        elif isinstance(child, ast.If) and ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for statement in child.body:
                yield from _walk(ast.Module(body=[statement], type_ignores=[]), typing_only=True)
            for statement in child.orelse:
                yield from _walk(ast.Module(body=[statement], type_ignores=[]), typing_only=typing_only)
        else:
            yield from _walk(child, typing_only=typing_only)
