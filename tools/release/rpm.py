"""A package for Enterprise Linux, Fedora and SUSE, made by rpmbuild: also on Debian, which packages it."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup import __version__
from tools.release import front
from tools.release.tree import ROOT

if TYPE_CHECKING:
    from tools.release.tree import Target

_SPEC = """\
# What is packed was laid out before: nothing is built, stripped or byte-compiled here.
%global __os_install_post %{{nil}}
%global debug_package %{{nil}}
%global _build_id_links none
%global _python_bytecompile_errors_terminate_build 0

Name: gpusetup
Version: {version}
Release: 1.py{python}
Summary: Installer and prover of NVIDIA GPU stacks
License: Apache-2.0
{url}AutoReqProv: no
Requires: /usr/bin/python{python}
Requires: /usr/bin/ssh
Recommends: pciutils

%description
Resolves one driver, CUDA, cuDNN, NCCL and framework that fit each other and
the GPUs, installs them on one machine or many with Ansible, and proves on
the GPU that they work. The package has the Python libraries that it needs
below /usr/lib/gpusetup.

%install
cp -a {root}/. %{{buildroot}}/

%post
python{python} -m compileall -q -j 0 /usr/lib/gpusetup/lib || :

%preun
find /usr/lib/gpusetup/lib -name __pycache__ -type d -prune -exec rm -rf {{}} +

%files
/usr/bin/gpusetup
/usr/lib/gpusetup
/usr/share/man/man1/*
/usr/share/bash-completion/completions/gpusetup
/usr/share/zsh/site-functions/_gpusetup
/usr/share/fish/vendor_completions.d/gpusetup.fish
"""


def build(laid_out: Path, out: Path, target: Target, *, moment: int) -> Path:
    """Build the package; its bytes depend only on the content and on `moment`."""
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder) / "rpm"
        spec = Path(folder) / "gpusetup.spec"
        url = f"URL: {home}\n" if (home := front.repository(ROOT)) else ""
        spec.write_text(_SPEC.format(version=__version__, python=target.python, root=laid_out, url=url))
        defines = {
            "_topdir": str(top), "_build_name_fmt": "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
            "_buildhost": "localhost", "use_source_date_epoch_as_buildtime": "1",
            "clamp_mtime_to_source_date_epoch": "1",
            "_binary_payload": "w6.xzdio",
        }  # fmt: skip
        words = [word for name, value in defines.items() for word in ("--define", f"{name} {value}")]
        argv = ["rpmbuild", "-bb", "--quiet", "--nodeps", "--target", target.machine, *words, str(spec)]
        env = {"SOURCE_DATE_EPOCH": str(moment), "PATH": "/usr/bin:/bin", "HOME": folder}
        subprocess.run(argv, check=True, env=env)
        (built,) = (top / "RPMS").rglob("*.rpm")
        made = out / built.name
        made.write_bytes(built.read_bytes())
    return made
