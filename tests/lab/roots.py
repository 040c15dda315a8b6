"""Root file systems: made once by mmdebstrap from the machine's own Debian mirror, cached, shared read-only by all hosts."""

import hashlib
import os
import re
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.lab import mirror
from tests.lab.machine import emulate
from tests.lab.places import CACHE, SOURCE, LabError, locked
from tests.lab.process import run

HOOKS = SOURCE / "rootfs"
MAX_AGE_DAYS = 14  # then the mirror has moved on: kernels of the cached root may have no headers there any more

COMMON = [
    "systemd", "systemd-sysv", "dbus", "openssh-server", "python3", "python3-apt", "iproute2", "ca-certificates", "sudo",
    "procps", "kmod", "zstd", "linux-image-amd64",
]  # fmt: skip
BUILD_TOOLS = ["dkms", "linux-headers-amd64", "python3-venv", "gnupg"]
RPM_DRESSING = "dressing/rpm-family.sh"
RPM_TOOLS = ["rpm", "linux-headers-amd64", "make", "patch", "kmod", "python3-venv"]


@dataclass(frozen=True, kw_only=True)
class Root:
    """One root file system; "bare" ones have no compiler and no kernel headers, as a fresh cloud image."""

    name: str
    suite: str
    packages: tuple[str, ...]
    hook: str = ""  # one more script after customize.sh, for hosts with rpm
    older: tuple[str, ...] = ()  # a suite, then source packages that come from it whatever the other one has
    architecture: str = "amd64"  # qemu runs the programs of another one

    @property
    def digest(self) -> str:
        """Changes with the packages and with everything that is put into the root."""
        seen = hashlib.sha256(repr((self.suite, self.packages, *self.older)).encode())
        for path in sorted(HOOKS.iterdir()):
            seen.update(path.name.encode() + b"\0" + path.read_bytes())
        if self.hook:
            seen.update((SOURCE / self.hook).read_bytes() + (SOURCE / RPM_DRESSING).read_bytes())
        return seen.hexdigest()[:12]

    @property
    def tar(self) -> Path:
        return CACHE / "tars" / f"{self.name}-{self.digest}.tar.zst"

    @property
    def folder(self) -> Path:
        """Unpacked; a newer tar gets a folder of its own, because hosts may still stand on the old one."""
        return CACHE / "roots" / f"{self.name}-{self.digest}-{int(self.tar.stat().st_mtime)}"

    def ready(self) -> Path:
        """The unpacked root, built or unpacked first when needed."""
        with locked(f"root-{self.name}"):
            if self.architecture != "amd64":
                emulate(self.architecture)
            if not self._fresh():
                print(f"lab: making the root file system {self.name}, a minute or two", file=sys.stderr, flush=True)
                try:
                    self._build()
                except LabError as error:
                    if not self.tar.exists():
                        raise
                    print(f"lab: {error}\nlab: the older root file system is taken", file=sys.stderr)
            if not self.folder.is_dir():
                self._unpack()
                self._forget_older()
            return self.folder

    def _fresh(self) -> bool:
        return self.tar.exists() and time.time() - self.tar.stat().st_mtime < MAX_AGE_DAYS * 86400

    def _build(self) -> None:
        self.tar.parent.mkdir(parents=True, exist_ok=True)
        part = self.tar.with_name(f"part-{os.getpid()}-{self.tar.name}")
        sources = [line for suite in (self.suite, *self.older[:1]) for line in mirror.sources(suite)]
        argv = [
            "mmdebstrap", "--variant=minbase", "--components=main,non-free-firmware",
            f"--architectures={self.architecture}",
            f"--include={','.join(self.packages)}",
            f"--customize-hook={HOOKS / 'customize.sh'}",
            *([f'--customize-hook=sh {SOURCE / self.hook} "$1"'] if self.hook else []),
            *mirror.apt_options(), *self._pinned(),
            self.suite, part, *(["-"] if sources else []),
        ]  # fmt: skip
        # The initramfs is made by the hook, after the pruning of modules.
        env = {**os.environ, "INITRD": "No", "TMPDIR": os.environ.get("TMPDIR", "/tmp")}
        try:
            run(argv, timeout=3600, env=env, text="\n".join(sources) + "\n" if sources else None)
            part.rename(self.tar)
        except LabError as error:
            reason = f"the root file system {self.name} could not be made from the Debian mirror:\n{error}"
            raise LabError(reason) from None
        finally:
            part.unlink(missing_ok=True)

    def _pinned(self) -> list[str]:
        """What the older suite has to give; the newer one is a moving one, of which a mirror may be a copy of some weeks ago."""
        if not self.older:
            return []
        suite, *names = self.older
        pin = "".join(f"Package: src:{name}\\nPin: release n={suite}\\nPin-Priority: 1001\\n\\n" for name in names)
        into = '"$1/etc/apt/preferences.d'
        return [
            f"--setup-hook=mkdir -p {into}\" && printf '{pin}' > {into}/lab\"",
            '--aptopt=Acquire::Check-Valid-Until "false"',
        ]

    def _unpack(self) -> None:
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        part = self.folder.with_name(f"part-{os.getpid()}-{self.folder.name}")
        part.mkdir()
        try:
            run(["tar", "-C", part, "--zstd", "--numeric-owner", "-xpf", self.tar], timeout=300)
            part.rename(self.folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def _forget_older(self) -> None:
        mounted = Path("/proc/self/mounts").read_text()
        mine = re.compile(rf"{self.name}-[0-9a-f]{{12}}(-\d+|\.tar\.zst)?")
        for path in [*self.folder.parent.iterdir(), *self.tar.parent.iterdir()]:
            if mine.fullmatch(path.name) and path not in {self.folder, self.tar} and str(path) not in mounted:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _root(name: str, suite: str, *packages: str, architecture: str = "amd64") -> Root:
    own = (package.replace("amd64", architecture) for package in (*COMMON, *packages))
    return Root(name=name, suite=suite, packages=tuple(own), architecture=architecture)


def _rpm_root(name: str, suite: str, *packages: str, wears: str, older: tuple[str, ...] = ()) -> Root:
    """A host with rpm: its script says which kernel and which image's name, and has what is that family's own."""
    packages = (*COMMON, "dracut", *packages, *RPM_TOOLS)
    return Root(name=name, suite=suite, packages=packages, hook=f"dressing/{wears}.sh", older=older)


OLDER = ("trixie", "systemd", "linux", "linux-signed-amd64")
ROOTS = {
    root.name: root
    for root in (
        _root("debian12-bare", "bookworm", "initramfs-tools"),
        _root("debian12", "bookworm", "initramfs-tools", *BUILD_TOOLS),
        _root("debian12-arm64", "bookworm", "initramfs-tools", *BUILD_TOOLS, architecture="arm64"),
        _root("debian12-cloud", "bookworm", "initramfs-tools", *BUILD_TOOLS, "cloud-init"),
        _root("debian13-bare", "trixie", "initramfs-tools"),
        _root("debian13", "trixie", "initramfs-tools", *BUILD_TOOLS),
        _rpm_root("el", "bookworm", "dnf", "dnf-plugins-core", wears="enterprise-linux"),
        # No release of Debian has dnf 5 yet; the systemd of the next one does not start where cgroups are of version 1.
        _rpm_root("el-dnf5", "forky", "dnf5", wears="enterprise-linux", older=OLDER),
        _rpm_root("suse", "bookworm", "zypper", wears="suse"),
    )
}
