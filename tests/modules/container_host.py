"""A host below a folder, with stand-ins for nvidia-ctk, systemctl and the container runtimes."""

import stat
import sys
import time
from pathlib import Path

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import cdi, systemd
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import containers, modules
from ansible_collections.gpusetup.stack.plugins.modules import gpu_container_runtime

from tests.modules.stand_ins import below, programs, replace, write
from tests.stored import stored

_CTK = Path(__file__).parents[1] / "lab/repository/stand_in/nvidia-ctk"
_CONTAINERD = Path(__file__).with_name("stand_in_containerd.py")
_DOCKERD = stored("container_host_dockerd.txt")
_DOCKER = stored("container_host_docker.txt")
_CTR = stored("container_host_ctr.txt")
_SYSTEMCTL = stored("container_host_systemctl.txt")


class Host:
    def __init__(self, root, monkeypatch):
        self.root, self.monkeypatch, self.driver = root, monkeypatch, ""
        (root / "units").mkdir()
        known = {"systemctl": _SYSTEMCTL, "dockerd": _DOCKERD, "docker": _DOCKER, "ctr": _CTR, "crio": "", "podman": ""}
        containerd = f'#!/bin/sh\nexec {sys.executable} {_CONTAINERD} "$@"\n'
        programs(root, monkeypatch, {**known, "containerd": containerd})
        settings = {name: tuple(f"{root}{path}" for path in paths) for name, paths in containers.SETTINGS.items()}
        replace(monkeypatch, containers, SETTINGS=settings, CDI_FOLDERS=(f"{root}/etc/cdi", f"{root}/run/cdi"))
        replace(monkeypatch, cdi, PLACE=f"{root}/run/cdi/nvidia.yaml")
        below(root, monkeypatch, {cdi: "UNIT", systemd: "FOLDER"})
        replace(monkeypatch, modules, loaded_nvidia=lambda _host: {"version": self.driver} if self.driver else None)
        self.toolkit("1.20.0")

    def program(self, name, text):
        write(self.root / "bin", {name: text}, 0o755)

    def toolkit(self, version):
        self.program("nvidia-ctk", _CTK.read_text().replace("@VERSION@", version))

    def load(self, driver):
        for old in self.root.glob("usr/lib/x86_64-linux-gnu/libcuda.so.*"):
            old.unlink()
        if driver:
            self.file(f"usr/lib/x86_64-linux-gnu/libcuda.so.{driver}", "")
        self.driver = driver

    def units(self):
        """Have the units that the toolkit brings since 1.18."""
        for unit in cdi.REFRESH:
            (self.root / "units" / unit).write_text("inactive")

    def file(self, path, text=None, mode=0o644):
        found = self.root / path
        if text is not None:
            write(self.root, {path: text}, mode)
        return found

    def running(self, runtime, since):
        """Have a runtime that has been active since some seconds before now."""
        (self.root / f"units/{runtime}.service").write_text("active")
        (self.root / "since").write_text(str(int((time.monotonic() - since) * 1e6)))

    @property
    def did(self):
        return (self.root / "did").read_text() if (self.root / "did").exists() else ""

    def tree(self):
        """Return every file below etc, with its mode."""
        return {
            str(path.relative_to(self.root)): (path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
            for path in sorted((self.root / "etc").rglob("*"))
            if path.is_file()
        }

    def folders(self):
        return sorted(path for path in (self.root / "etc").rglob("*") if path.is_dir())

    def remove(self):
        """Do with the recorded files what removal does."""
        ledger = Ledger(str(self.root / "state"))
        for path in sorted(ledger.state["files"], reverse=True):
            ledger.restore(path)


@pytest.fixture(name="host")
def made_host(tmp_path, monkeypatch):
    return Host(tmp_path, monkeypatch)


@pytest.fixture(name="call")
def made_call(run_module, host):
    def told(*runtimes, **more):
        given = {"host": {"state_dir": str(host.root / "state")}, "cdi": False, "restart": "never", **more}
        return run_module(gpu_container_runtime, runtimes=list(runtimes), **given)

    return told
