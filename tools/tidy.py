"""Format the files of the matrix canonically: `python -m tools.tidy [NAME …]`."""

from __future__ import annotations

import sys
from pathlib import Path

from gpusetup.matrix.load import NAMES, canonical, load_file

DATA = Path(__file__).resolve().parents[1] / "gpusetup/matrix/data"


def main(names: list[str]) -> int:
    for name in names or NAMES:
        path = DATA / f"{name}.json"
        before, after = path.read_bytes(), canonical(load_file(name, path))
        if before != after:
            path.write_bytes(after)
            print(f"printed anew: {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
