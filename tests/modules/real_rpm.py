"""The real rpm, dnf and zypper over folders of their own: a root with nothing but an empty database, and a repository of
packages without files."""

import os
import shutil
from pathlib import Path

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import package_manager

from tests.fleet.supply import rpms
from tests.modules.rpm_host import RpmHost

NEEDED = rpms.NEEDED


class RealRpm:
    """The host that a stand-in describes. `process` runs the programs without knowing."""

    def __init__(self, folder: Path, like: RpmHost) -> None:
        self.root, self.pool, self.programs = folder / "root", folder / "pool", folder / "programs"
        for name in ("etc/yum.repos.d", "etc/zypp/repos.d", "var/lib/rpm", "var/cache", "tmp"):
            (self.root / name).mkdir(parents=True)
        self.programs.mkdir()
        # Where SUSE has the database, which zypper looks for: Debian's rpm has it in the home of whoever calls.
        (self.programs / ".rpmmacros").write_text("%_dbpath /var/lib/rpm\n%_dbpath_rebuild /var/lib/rpm\n")
        bare = f"--installroot={self.root} --releasever=9 --setopt=reposdir={self.root}/etc/yum.repos.d"
        (self.root / "etc/dnf").mkdir()
        # As on Red Hat's: what is asked for is taken in its best version, or told.
        text = "[main]\nbest=True\nskip_if_unavailable=False\ninstallonly_limit=3\n"
        (self.root / "etc/dnf/dnf.conf").write_text(text)
        self._program(
            "dnf",
            f"-c {self.root}/etc/dnf/dnf.conf {bare} --setopt=cachedir={self.root}/var/cache/dnf --setopt=pluginpath=/nonexistent",
        )
        self._program("rpm", f"--root={self.root}")
        self._program("zypper", f"--root {self.root}")
        there = [like.package(name, version) for name, version in like.installed.items()]
        offered = [like.package(name, version) for name, several in like.offered.items() for version in several]
        rpms.build(folder / "there", there, None)
        rpms.build(self.pool, offered, None)
        rpms.run("createrepo_c", "--quiet", "--no-database", str(self.pool))
        text = f"[x]\nname=x\nbaseurl=file://{self.pool}\nenabled=1\ngpgcheck=0\nrepo_gpgcheck=0\n"
        for place in ("etc/yum.repos.d", "etc/zypp/repos.d"):
            (self.root / place / "x.repo").write_text(text)
        files = [str(file) for file in (folder / "there").glob("*.rpm")]
        if files:
            rpms.run(str(self.programs / "rpm"), "-i", "--nodeps", "--nosignature", *files)

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let every program that is started find these."""
        monkeypatch.setenv("PATH", f"{self.programs}:{os.environ['PATH']}")

    @property
    def seen(self) -> dict[str, str]:
        return package_manager.Rpm().installed()

    def _program(self, name: str, words: str) -> None:
        path = self.programs / name
        path.write_text(f'#!/bin/sh\nHOME={self.programs} exec {shutil.which(name)} {words} "$@"\n')
        path.chmod(0o755)
