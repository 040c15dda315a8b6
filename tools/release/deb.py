"""A package for Debian and Ubuntu, made by dpkg-deb."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from email.utils import formatdate
from pathlib import Path

from gpusetup import __version__
from tools.release import front
from tools.release.tree import HOME, ROOT, Target, packed

MAINTAINER = "{} <{}>".format(
    os.environ.get("DEBFULLNAME", "The gpusetup authors"), os.environ.get("DEBEMAIL", "gpusetup@example.org")
)
"""The maintainer, from the variables of Debian's own tools."""
_CONTROL = """\
Package: gpusetup
Version: {version}
Architecture: {arch}
Maintainer: {maintainer}
Installed-Size: {size}
Depends: python3, python{python}, openssh-client, libc6 (>= 2.34)
Recommends: sshpass, pciutils
Section: admin
Priority: optional
{homepage}Description: installer and prover of NVIDIA GPU stacks
 Resolves one driver, CUDA, cuDNN, NCCL and framework that fit each other and
 the GPUs, installs them on one machine or many with Ansible, and proves on
 the GPU that they work.
 .
 The package has the Python libraries that it needs below /usr/lib/gpusetup.
"""
_COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: gpusetup

Files: *
Copyright: 2026 The gpusetup authors
License: Apache-2.0
 On Debian systems the text of this licence is in
 /usr/share/common-licenses/Apache-2.0.

Files: usr/lib/gpusetup/lib/*
Copyright: 2004-2026 the authors of the libraries
License: as-told-by-each
 The licence of each library is in the folder of its .dist-info beside it.
"""
_POSTINST = """\
#!/bin/sh
set -e
if [ "$1" = configure ]; then
	python{python} -m compileall -q -j 0 /{home}/lib || true
fi
"""
_PRERM = """\
#!/bin/sh
set -e
find /{home}/lib -name __pycache__ -type d -prune -exec rm -rf {{}} +
"""
_OVERRIDES = """\
# The libraries are those of the Python index, as their authors built them, in a folder of this package alone.
gpusetup: embedded-library libyaml *
gpusetup: wrong-path-for-interpreter *
gpusetup: unusual-interpreter *
"""


def build(laid_out: Path, out: Path, target: Target, *, moment: int) -> Path:
    """Build the package; its bytes depend only on the content and on `moment`."""
    version = f"{__version__}-1~py{target.python}"
    made = out / f"gpusetup_{version}_{target.arch}.deb"
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        shutil.copytree(laid_out, root, symlinks=True)
        zsh = root / "usr/share/zsh"
        (zsh / "site-functions").rename(zsh / "vendor-completions")  # the other one is the administrator's
        docs = root / "usr/share/doc/gpusetup"
        docs.mkdir(parents=True)
        (docs / "copyright").write_text(_COPYRIGHT)
        packed(docs / "changelog.Debian.gz", _changelog(version, moment))
        overrides = root / "usr/share/lintian/overrides"
        overrides.mkdir(parents=True)
        (overrides / "gpusetup").write_text(_OVERRIDES)
        _control(root, version, target)
        argv = ["dpkg-deb", "--build", "--root-owner-group", "-Zxz", str(root), str(made)]
        for path in (root, *root.rglob("*")):
            os.utime(path, (moment, moment), follow_symlinks=False)
        subprocess.run(
            argv, check=True, stdout=subprocess.DEVNULL, env={"SOURCE_DATE_EPOCH": str(moment), "PATH": "/usr/bin:/bin"}
        )
    return made


def _control(root: Path, version: str, target: Target) -> None:
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    sums = [f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(root)}" for path in files]
    size = sum(path.stat().st_size for path in files) // 1024
    control = root / "DEBIAN"
    control.mkdir()
    texts = {
        "control": _CONTROL.format(
            version=version,
            arch=target.arch,
            maintainer=MAINTAINER,
            size=size,
            python=target.python,
            homepage=f"Homepage: {home}\n" if (home := front.repository(ROOT)) else "",
        ),
        "md5sums": "\n".join(sums) + "\n",
        "postinst": _POSTINST.format(python=target.python, home=HOME),
        "prerm": _PRERM.format(home=HOME),
    }
    for name, text in texts.items():
        (control / name).write_text(text)
        (control / name).chmod(0o755 if name in {"postinst", "prerm"} else 0o644)


def _changelog(version: str, moment: int) -> str:
    return (
        f"gpusetup ({version}) unstable; urgency=medium\n\n  * Release {__version__}.\n\n"
        f" -- {MAINTAINER}  {formatdate(moment)}\n"
    )
