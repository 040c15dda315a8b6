"""A host below a folder, with stand-ins for nvidia-ctk, systemctl and the container runtimes."""

import os
import stat
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import cdi, systemd
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import containers, modules
from ansible_collections.gpusetup.stack.plugins.modules import gpu_container_runtime

from tests.stored import stored

_CTK = Path(__file__).parents[1] / "lab/repository/stand_in/nvidia-ctk"
_CONTAINERD = Path(__file__).with_name("stand_in_containerd.py")
_DOCKERD = """#!/bin/sh
# Its version is in a file; since 23 it judges settings.
version=$(cat "$STAND_IN_ROOT/docker-version" 2>/dev/null || echo 20.10.24)
case "$*" in
--version) echo "Docker version $version, build 1" ;;
--help) [ "${version%%.*}" -lt 23 ] || echo "      --validate   Validate daemon configuration and exit" ;;
*--validate*) ! grep -q refused "${2#--config-file=}" || { echo "unable to configure the Docker daemon" >&2; exit 1; } ;;
esac
"""
_DOCKER = """#!/bin/sh
case "$1" in
ps) cat "$STAND_IN_ROOT/containers" 2>/dev/null; [ ! -e "$STAND_IN_ROOT/deaf" ] ;;
info) cat "$STAND_IN_ROOT/knows" 2>/dev/null || echo "runc nvidia " ;;
esac
"""
_CTR = """#!/bin/sh
case "$*" in
*namespaces*) echo moby; echo k8s.io ;;
*k8s.io*) cat "$STAND_IN_ROOT/containers" 2>/dev/null; true ;;
esac
"""
_SYSTEMCTL = stored("container_host_systemctl.txt")


class Host:
    """A host below a folder, with a stand-in nvidia-ctk and systemctl."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.monkeypatch = monkeypatch
        settings = {name: tuple(f"{root}{path}" for path in paths) for name, paths in containers.SETTINGS.items()}
        (root / "bin").mkdir()
        (root / "units").mkdir()
        monkeypatch.setenv("PATH", f"{root}/bin:{os.environ['PATH']}")
        monkeypatch.setenv("STAND_IN_ROOT", str(root))
        monkeypatch.setattr(containers, "SETTINGS", settings)
        monkeypatch.setattr(containers, "CDI_FOLDERS", (f"{root}/etc/cdi", f"{root}/run/cdi"))
        monkeypatch.setattr(cdi, "PLACE", f"{root}/run/cdi/nvidia.yaml")
        monkeypatch.setattr(cdi, "UNIT", f"{root}/etc/systemd/system/gpusetup-cdi.service")
        monkeypatch.setattr(modules, "loaded_nvidia", lambda _host: {"version": self.driver} if self.driver else None)
        monkeypatch.setattr(systemd, "FOLDER", f"{root}/etc/systemd/system")
        self.driver = ""
        self.program("systemctl", _SYSTEMCTL)
        self.program("containerd", f'#!/bin/sh\nexec {sys.executable} {_CONTAINERD} "$@"\n')
        for name, text in (("dockerd", _DOCKERD), ("docker", _DOCKER), ("ctr", _CTR), ("crio", ""), ("podman", "")):
            self.program(name, text)
        self.toolkit("1.20.0")

    def program(self, name: str, text: str) -> None:
        path = self.root / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def toolkit(self, version: str) -> None:
        self.program("nvidia-ctk", _CTK.read_text().replace("@VERSION@", version))

    def load(self, driver: str) -> None:
        """Have a driver's libraries and its module."""
        for old in self.root.glob("usr/lib/x86_64-linux-gnu/libcuda.so.*"):
            old.unlink()
        self.file(f"usr/lib/x86_64-linux-gnu/libcuda.so.{driver}", "")
        self.driver = driver

    def units(self) -> None:
        """Have the units that the toolkit brings since 1.18."""
        for unit in cdi.REFRESH:
            (self.root / "units" / unit).write_text("inactive")

    def file(self, path: str, text: str | None = None, mode: int = 0o644) -> Path:
        found = self.root / path
        if text is not None:
            found.parent.mkdir(parents=True, exist_ok=True)
            found.write_text(text)
            found.chmod(mode)
        return found

    def running(self, runtime: str, since: float) -> None:
        """Have a runtime that has been active since some seconds before now."""
        (self.root / f"units/{runtime}.service").write_text("active")
        (self.root / "since").write_text(str(int((time.monotonic() - since) * 1e6)))

    @property
    def did(self) -> str:
        return (self.root / "did").read_text() if (self.root / "did").exists() else ""

    def tree(self) -> dict[str, tuple[bytes, int]]:
        """Return every file below etc, with its mode."""
        return {
            str(path.relative_to(self.root)): (path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
            for path in sorted((self.root / "etc").rglob("*"))
            if path.is_file()
        }

    def folders(self) -> list[Path]:
        return sorted(path for path in (self.root / "etc").rglob("*") if path.is_dir())

    def remove(self) -> None:
        """Do with the recorded files what removal does."""
        ledger = Ledger(str(self.root / "state"))
        for path in sorted(ledger.state["files"], reverse=True):
            ledger.restore(path)


@pytest.fixture(name="host")
def made_host(tmp_path, monkeypatch):
    return Host(tmp_path, monkeypatch)


@pytest.fixture(name="call")
def made_call(run_module, host):
    def told(*runtimes: str, check: bool = False, fails: bool = False, **more: Any) -> dict[str, Any]:
        options = {"cdi": False, "restart": "never", **more}
        given = {"state_dir": str(host.root / "state")}
        failed, result = run_module(gpu_container_runtime, check=check, host=given, runtimes=list(runtimes), **options)
        assert failed == fails, result
        return dict(result)

    return told
