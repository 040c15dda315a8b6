"""The files of a distribution's package: gpusetup in its own environment, with all its libraries.

The distributions' libraries are too old or too new (Debian 12 has Ansible 2.14), so each package has its own below
/usr/lib/gpusetup and shares only the interpreter. It is a real environment: Ansible and the timers that gpusetup starts
find the same libraries.
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
HOME = "usr/lib/gpusetup"
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
EXTRAS = ("collector",)
"""Extras of the wheel, gpusetup-fleet too; a package includes them, as nothing can be added later."""
_GLIBC = ("2_17", "2_28", "2_34")
"""Accepted wheel platforms: the oldest supported system has 2.34."""


_STARTER = """\
#!/usr/lib/gpusetup/bin/python3
# PYTHON_ARGCOMPLETE_OK
import sys

from gpusetup.__main__ import run

sys.exit(run())
"""


class Target(NamedTuple):
    """The target of a package: Python (3.11) and Debian's name of the CPU."""

    python: str
    arch: str

    @property
    def machine(self) -> str:
        """The kernel's name of the CPU."""
        return MACHINES[self.arch]

    def site(self, root: Path) -> Path:
        """Return the folder of its libraries below `root`."""
        return root / HOME / "lib" / f"python{self.python}" / "site-packages"


def lay_out(root: Path, wheel: Path, target: Target) -> None:
    """Write the package's files below `root`."""
    home = root / HOME
    site = target.site(root)
    site.mkdir(parents=True)
    argv = [sys.executable, "-m", "pip", "install", "-qq", "--no-compile", "--target", str(site)]
    subprocess.run([*argv, *pip_words(wheel, target)], check=True)
    shutil.rmtree(site / "bin", ignore_errors=True)
    without_origin(site)
    for library in site.rglob("*.so"):
        subprocess.run(["strip", "--strip-unneeded", str(library)], check=False, capture_output=True)
    _environment(home, target)
    _program(root, home)
    _read_by_people(root, site)
    for path in root.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.read_bytes()[:2] == b"#!" else 0o644)


def without_origin(site: Path) -> None:
    """Remove the build folder's path, which differs in each build, from the metadata.

    Manual pages and completions move to the system's folders, so they are removed from RECORD too.
    """
    for origin in site.glob("*.dist-info/direct_url.json"):
        origin.unlink()
        record = origin.with_name("RECORD")
        lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
        gone = (f"{origin.parent.name}/{origin.name},", "../../share/", "share/")
        kept = [line for line in lines if not line.startswith(gone)]
        record.write_text("".join(kept), encoding="utf-8")


def pip_words(wheel: Path, target: Target) -> list[str]:
    """Return pip's arguments to install a wheel and its requirements, gpusetup-fleet beside it, for another machine."""
    words = ["--disable-pip-version-check", "--python-version", target.python, "--implementation", "cp"]
    words += [word for glibc in _GLIBC for word in ("--platform", f"manylinux_{glibc}_{target.machine}")]
    words += [
        "--platform",
        "any",
        "--only-binary",
        ":all:",
        "--find-links",
        str(wheel.parent),
        f"{wheel}[{','.join(EXTRAS)}]",
    ]
    if target.python == "3.10":
        words.append("tomli")  # pip reads `python_version < "3.11"` as of the Python that it runs in
    return words


def _environment(home: Path, target: Target) -> None:
    (home / "bin").mkdir()
    for name in ("python3", "python"):
        (home / "bin" / name).symlink_to(f"../../../bin/python{target.python}")
    text = f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {target.python}\n"
    (home / "pyvenv.cfg").write_text(text)


def _program(root: Path, home: Path) -> None:
    (home / "bin" / "gpusetup").write_text(_STARTER)
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/gpusetup").symlink_to("../lib/gpusetup/bin/gpusetup")


def _read_by_people(root: Path, site: Path) -> None:
    """Move the wheel's manual pages and completions to the system's folders."""
    (site / "share").rename(root / "usr/share")
    for page in (root / "usr/share/man/man1").iterdir():
        packed(page.with_name(f"{page.name}.gz"), page.read_text(encoding="utf-8"))
        page.unlink()


def packed(path: Path, text: str) -> None:
    """Write a reproducible gzip file."""
    path.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))
