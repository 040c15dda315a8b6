"""Build the site: ./dev site [FOLDER]. FOLDER, by default build/site, is replaced.

With --versions FOLDER has one site per version: this gpusetup's is replaced in FOLDER/VERSION, others stay, and
FOLDER/index.html links to all of them.

The build fails on every dead link inside the site, including links to headings.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.version import Version

from gpusetup import __version__
from tools.docs import LLMS
from tools.site.pages import ROOT, write

MARK = "objects.inv"
"""Files that Sphinx leaves in every folder that it writes."""

_VERSIONS = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>gpusetup</title>
<style>:root {{ color-scheme: light dark; }} body {{ font: 17px/1.6 system-ui, sans-serif; margin: 2em; }}</style>
</head>
<body><main>
<h1>gpusetup</h1>
<p>The documentation of each version, the newest first:</p>
<ul>
{items}
</ul>
</main></body>
</html>
"""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev site", description="Build the site, every link in it checked.")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build/site", help="default: build/site")
    parser.add_argument("--versions", action="store_true", help="one site for each version, side by side in the folder")
    given = parser.parse_args(arguments)
    whole, several = given.folder, given.versions
    folder = whole / __version__ if several else whole
    if folder.exists() and not (folder / MARK).exists() and any(folder.iterdir()):
        print(f"dev: {folder} holds something else; name an empty folder", file=sys.stderr)
        return 2
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as work:
        source, beside = Path(work) / "source", Path(work) / "explorer"
        explorer = subprocess.Popen([sys.executable, "-m", "tools.explorer", str(beside)], cwd=ROOT)
        try:
            write(source, versions=several)
            code = render(source, folder)
            shutil.copy(source / LLMS.name, folder)
        finally:
            failed = explorer.wait()
        if failed:
            return failed
        shutil.copytree(beside, folder / "explorer")
    if several:
        lead_to_versions(whole)
    if code == 0:
        print(f"written to {folder}: open {folder / 'index.html'}")
    return code


def lead_to_versions(whole: Path) -> None:
    """Write the page with links to every version in a folder, newest first."""
    names = [path.parent.name for path in whole.glob(f"*/{MARK}") if re.fullmatch(r"\d[\w.]*", path.parent.name)]
    items = "\n".join(
        f'<li><a href="{name}/index.html">{name}</a></li>' for name in sorted(names, key=Version, reverse=True)
    )
    (whole / "index.html").write_text(_VERSIONS.format(items=items), encoding="utf-8")


def render(source: Path, folder: Path) -> int:
    """Render a folder of Markdown as HTML; any warning, such as a dead link, is an error."""
    with tempfile.TemporaryDirectory() as work:
        sphinx = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-j", "auto"]
        places = ["-c", str(Path(__file__).parent), "-d", work, str(source), str(folder)]
        return subprocess.run([*sphinx, *places], check=False, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
