"""Compare the size of the project with limits that may only fall: `python -m tools.house [--lower]`.

tools/house.json has a limit and a goal for each figure. Exit 9 if a figure is above both. `--lower` lowers the limits
to today's figures.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from pathlib import Path

from gpusetup.cli.commands import COMMANDS, first_words

ROOT = Path(__file__).resolve().parents[1]
LIMITS = Path(__file__).with_name("house.json")
DONE, PENDING = 0, 9


def tracked(*places: str) -> list[Path]:
    """Return the existing files in these places that git tracks."""
    listed = subprocess.run(["git", "ls-files", "--", *places], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for name in listed.stdout.splitlines() if (path := ROOT / name).is_file()]


def lines(paths: list[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8", errors="replace").splitlines()) for path in paths)


def is_python(path: Path) -> bool:
    """Return whether a file is Python, by its suffix or its first line."""
    if path.suffix == ".py":
        return True
    with path.open("rb") as file:
        return not path.suffix and bool(re.match(rb"#!.*python", file.readline()))


def figures() -> dict[str, int]:
    """Return the figures by the names of their limits."""
    program = [path for path in tracked("gpusetup", "plugins") if path.suffix == ".py"]
    fleet = [path for path in tracked("gpusetup_fleet") if path.suffix == ".py"]
    shipped = [path for path in tracked("gpusetup", "plugins", "roles", "playbooks") if is_python(path)]
    tests = {path: path.parts[len(ROOT.parts) + 1] for path in tracked("tests") if path.suffix == ".py"}
    pages = [path for path in tracked("docs", "README.md", "CONTRIBUTING.md") if path.suffix == ".md"]
    return {
        "Python lines in gpusetup and plugins": lines(program),
        "shipped Python lines, with the roles' files": lines(shipped),
        "modules": len([path for path in program if path.name != "__init__.py"]),
        "lines of tests": lines([path for path, part in tests.items() if part != "fleet"]),
        "Python lines in gpusetup-fleet": lines(fleet),
        "lines of gpusetup-fleet's tests": lines([path for path, part in tests.items() if part == "fleet"]),
        "first words of the command line": len(first_words()),
        "commands": len(COMMANDS),
        "words of documentation": sum(len(path.read_text(encoding="utf-8").split()) for path in pages),
        "decision records": len(tracked("docs/decisions/*.md")),
    }


def main(argv: list[str] | None = None, limits: Path = LIMITS) -> int:
    """Print each figure with its limit; with --lower write lower limits."""
    parser = argparse.ArgumentParser(prog="python -m tools.house", description=__doc__.partition("\n")[0])
    parser.add_argument("--lower", action="store_true", help="make today's figures the limits where they are lower")
    arguments = parser.parse_args(argv)
    bounds, found = json.loads(limits.read_text(encoding="utf-8")), figures()
    above = [name for name, figure in found.items() if figure > max(bounds[name].values())]
    for name, figure in found.items():
        limit, goal = bounds[name]["limit"], bounds[name]["goal"]
        more = f"  {figure - limit:+,} too many" if name in above else ""
        print(f"{name:<44}{figure:>8,}  limit {limit:>8,}  goal {goal:>8,}{more}")
    if arguments.lower:
        lower = {name: {**bounds[name], "limit": min(figure, bounds[name]["limit"])} for name, figure in found.items()}
        limits.write_text(json.dumps(lower, indent=1) + "\n", encoding="utf-8")
    if above:
        print("\nmake it smaller, or say in the commit that raises tools/house.json why the project needs more")
    return PENDING if above else DONE


if __name__ == "__main__":
    raise SystemExit(main())
