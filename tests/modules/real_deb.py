"""The real dpkg and apt over folders of their own: a root that holds nothing but an empty database, and a repository of
packages without files. Nothing of this machine's packages is read or changed, and nobody needs to be root."""

import hashlib
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import apt, process

from tests.modules.deb_host import Deb, DebHost
from tests.modules.stand_ins import write

TOOLS = {"apt-get": "apt", "apt-cache": "apt", "dpkg": "dpkg", "dpkg-deb": "dpkg"}
_LACKING = sorted({package for program, package in TOOLS.items() if shutil.which(program) is None})
NEEDED = pytest.mark.skipif(bool(_LACKING), reason=f"no {', '.join(_LACKING)}: this is no Debian and no Ubuntu")


class RealDeb:
    """The host that a stand-in describes, in the real programs. `process` runs them without knowing."""

    def __init__(self, folder: Path, like: DebHost, shelf: Path) -> None:
        like.native = native()
        self.shelf, self.cache = shelf, folder / "root/var/cache/apt/archives"
        self.root, self.pool, self.programs = folder / "root", folder / "pool", folder / "programs"
        for name in ("info", "updates", "triggers", "alternatives"):
            (self.root / "var/lib/dpkg" / name).mkdir(parents=True)
        for name in ("var/log/apt", "etc/apt/apt.conf.d", "etc/apt/preferences.d", "etc/apt/sources.list.d",
                     "var/lib/apt/lists/partial", "var/cache/apt/archives/partial"):  # fmt: skip
            (self.root / name).mkdir(parents=True)
        for name in ("status", "available"):
            (self.root / "var/lib/dpkg" / name).touch()
        (self.root / "var/lib/dpkg/arch").write_text(f"{native()}\n{foreign()}\n")
        self.programs.mkdir()
        self.pool.mkdir()
        words = f"--root={self.root} --log={self.root}/var/log/dpkg.log --force-not-root --force-bad-path"
        self._program("dpkg", f'exec {shutil.which("dpkg")} {words} --force-unsafe-io "$@"')
        self._program("dpkg-query", f'exec {shutil.which("dpkg-query")} --admindir={self.root}/var/lib/dpkg "$@"')
        (folder / "apt.conf").write_text(
            f'Dir "{self.root}/";\nDir::State::status "{self.root}/var/lib/dpkg/status";\n'
            f'Dir::Bin::dpkg "{self.programs}/dpkg";\nDir::Bin::methods "/usr/lib/apt/methods";\n'
            f'APT::Architecture "{native()}";\nAPT::Architectures {{ "{native()}"; "{foreign()}"; }};\n'
            'APT::Sandbox::User "root";\nAcquire::Languages "none";\n'
        )
        self.env = {"APT_CONFIG": str(folder / "apt.conf"), "PATH": f"{self.programs}:{os.environ['PATH']}"}
        for how, keys in (("--install", set(like.installed) - like.half), ("--unpack", like.half)):
            if files := [str(self.build(like.package(key, like.installed[key]))) for key in sorted(keys)]:
                self._run("dpkg", how, *files)
        self.offer([like.package(key, version) for key, several in like.offered.items() for version in several])
        for key, version in like.cached.items():
            (self.cache / like.file(key)).hardlink_to(self.build(like.package(key, version)))
        for name in like.torn:
            path, at = self.root / "var/lib/dpkg/status", f"(?<=Package: {name}\n)Status: install ok installed"
            path.write_text(re.sub(at, "Status: install reinstreq half-installed", path.read_text()))
        if like.journal:
            (self.root / "var/lib/dpkg/updates/0000").touch()
        if like.held:
            self._run("dpkg", "--set-selections", said="".join(f"{like.whole(name)} hold\n" for name in like.held))

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let every program that is started find these."""
        for name, value in self.env.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(apt.Apt, "caches", (str(self.cache),))

    @property
    def seen(self) -> tuple[dict[str, str], list[str]]:
        """What is installed, and what is held, as the package manager's own driver reads it."""
        host = apt.Apt()
        return host.installed(), host.held()

    def build(self, package: Deb) -> Path:
        made = self.shelf / f"{hashlib.sha256(f'{package} {native()}'.encode()).hexdigest()[:16]}.deb"
        if not made.exists():
            tree = self.shelf / "tree"
            write(tree, {"DEBIAN/control": package.control(native())})
            if package.fails:  # below a root of its own there is nothing that could run it
                write(tree, {"DEBIAN/preinst": "#!/bin/sh\nexit 1\n"}, 0o755)
            self._run("dpkg-deb", "-Znone", "--build", str(tree), str(made))
            shutil.rmtree(tree)
        return made

    def offer(self, packages: list[Deb]) -> None:
        """Make a repository of these packages and no others, and fetch its list."""
        stanzas = []
        for package in packages:
            file = self.pool / self.build(package).name
            file.hardlink_to(self.build(package))
            content = file.read_bytes()
            more = f"Filename: ./{file.name}\nSize: {len(content)}\n"
            stanzas.append(package.control(native()) + more + f"SHA256: {hashlib.sha256(content).hexdigest()}\n")
        (self.pool / "Packages").write_text("\n".join(stanzas))
        (self.root / "etc/apt/sources.list").write_text(f"deb [trusted=yes] file:{self.pool} ./\n")
        self._run("apt-get", "-qq", "update")

    def _program(self, name: str, line: str) -> None:
        write(self.programs, {name: f"#!/bin/sh\n{line}\n"}, 0o755)

    def _run(self, *argv: str, said: str | None = None) -> None:
        env = {**process.environment(), **self.env}
        done = subprocess.run(argv, env=env, input=said, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@cache
def native() -> str:
    return subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()


def foreign() -> str:
    return "i386" if native() != "i386" else "amd64"
