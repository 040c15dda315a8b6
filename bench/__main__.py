"""`python -m bench [NAME …]`: every module of this folder with a `main()`, or those that are named."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def found() -> dict[str, str]:
    """Return the benchmarks: name → the first line of what they say about themselves."""
    told = {}
    for path in sorted(FOLDER.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        runs = any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body)
        if runs and not path.stem.startswith("_"):
            told[path.stem] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return told


def run(names: list[str]) -> int:
    """Run benchmarks one after the other; the exit code says whether every bound was kept."""
    known = found()
    if "--list" in names:
        width = max(map(len, known))
        print("\n".join(f"{name:<{width}}  {what}" for name, what in known.items()))
        return 0
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"bench: no benchmark is called {', '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    missed = 0
    for name in names or known:
        print(f"\n== {name}: {known[name]}", flush=True)
        argv, sys.argv = sys.argv, [f"bench/{name}.py"]
        try:
            missed |= int(importlib.import_module(f"bench.{name}").main() or 0)
        finally:
            sys.argv = argv
    return missed


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
