"""Print what this host, or a folder that stands in for one, is: python3 …/gpu_probe/program.py [--root DIR]."""

import argparse
import importlib
import json
import os
import sys
from typing import Any


def main(arguments: Any) -> None:
    """Print the facts as JSON."""
    parser = argparse.ArgumentParser(prog="gpu_probe", description=__doc__.partition(":")[0])
    parser.add_argument("--root", default="/", help="a folder that holds a captured machine")
    parser.add_argument("--simulated-root", help="take the machine from this capture, the rest from the host")
    parser.add_argument(
        "--no-candidates", action="store_true", help="do not ask the package manager what it could install"
    )
    options = parser.parse_args(arguments)
    if not os.path.isdir(options.root):
        parser.error("no such folder: " + options.root)
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, os.path.dirname(here))
    name = os.path.basename(here)
    probe, machine = importlib.import_module(name + ".facts"), importlib.import_module(name + ".host")
    simulated = machine.FolderHost(options.simulated_root) if options.simulated_root else None
    facts = probe.collect(machine.open_host(options.root), simulated, not options.no_candidates)
    print(json.dumps(facts, indent=2, sort_keys=True))  # noqa: T201 - a program of its own


if __name__ == "__main__":
    main(sys.argv[1:])
