"""`python -m bench [NAME …]`: run all modules of this folder with a `main()`, or the named ones.

--record writes the results to bench/results, from which the documentation is made.
"""

from __future__ import annotations

import ast
import importlib
import sys
from datetime import date
from pathlib import Path

import msgspec

from bench.found import RESULTS, Found, Record, machine, table

FOLDER = Path(__file__).resolve().parent


def found() -> dict[str, str]:
    """Return the benchmarks: name → first line of the docstring."""
    told = {}
    for path in sorted(FOLDER.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        runs = any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body)
        if runs and not path.stem.startswith("_"):
            told[path.stem] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return told


def run(names: list[str]) -> int:
    """Run benchmarks one after the other; return 0 if every bound was kept."""
    known = found()
    if "--list" in names:
        width = max(map(len, known))
        print("\n".join(f"{name:<{width}}  {what}" for name, what in known.items()))
        return 0
    keep = "--record" in names
    names = [name for name in names if name != "--record"]
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"bench: no benchmark is called {', '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    missed = 0
    for name in names or known:
        print(f"\n== {name}: {known[name]}", flush=True)
        argv, sys.argv = sys.argv, [f"bench/{name}.py"]
        try:
            missed |= _told(name, known[name], importlib.import_module(f"bench.{name}").main(), keep=keep)
        finally:
            sys.argv = argv
    return missed


def _told(name: str, about: str, found: Found | int | None, *, keep: bool) -> int:
    """Print and record the result of a benchmark; one that prints itself returns its exit code."""
    if not isinstance(found, Found):
        if keep:
            print(f"{name} left nothing to record")
        return int(found or 0)
    print(table(found), *found.faults, sep="\n", flush=True)
    if keep:
        day = date.today().isoformat()  # noqa: DTZ011 - a day
        record = Record(name=name, about=about, date=day, machine=machine(), found=found)
        (RESULTS / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
        print(f"recorded in bench/results/{name}.json; now: python -m tools.pictures")
    return int(found.missed)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
