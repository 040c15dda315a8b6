"""Write manual pages and completions in the layout of /usr/share: packages take them from the wheel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools.release import man

COMPLETION = {
    "bash": "bash-completion/completions/gpusetup",
    "zsh": "zsh/site-functions/_gpusetup",
    "fish": "fish/vendor_completions.d/gpusetup.fish",
}


def write(folder: Path) -> None:
    """Write the files into a folder."""
    pages = folder / "man/man1"
    pages.mkdir(parents=True)
    for name, text in man.pages().items():
        (pages / name).write_text(text, encoding="utf-8")
    for shell, place in COMPLETION.items():
        path = folder / place
        path.parent.mkdir(parents=True)
        argv = [sys.executable, "-m", "gpusetup", "export", "completion", shell]
        path.write_text(subprocess.run(argv, check=True, capture_output=True, text=True).stdout, encoding="utf-8")
