"""Build the site: ./dev site [FOLDER]. FOLDER is build/site when none is named; it is made anew.

Every link inside the site is checked, those to headings too: one that leads nowhere fails the build.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.site.pages import ROOT, write

MARK = "objects.inv"
"""What Sphinx leaves in every folder that it has written."""


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]) if arguments else ROOT / "build/site"
    if folder.exists() and not (folder / MARK).exists() and any(folder.iterdir()):
        print(f"dev: {folder} holds something else; name an empty folder", file=sys.stderr)
        return 2
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as work:
        source = Path(work) / "source"
        write(source)
        code = render(source, folder)
    if code == 0:
        print(f"written to {folder}: open {folder / 'index.html'}")
    return code


def render(source: Path, folder: Path) -> int:
    """Make HTML of a folder of Markdown; any warning, such as a link that leads nowhere, is a failure."""
    with tempfile.TemporaryDirectory() as work:
        sphinx = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-j", "auto"]
        places = ["-c", str(Path(__file__).parent), "-d", work, str(source), str(folder)]
        return subprocess.run([*sphinx, *places], check=False, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
