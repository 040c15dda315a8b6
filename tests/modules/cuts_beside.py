"""More hosts to cut: SUSE's packages and what stands beside a driver there, and Red Hat's packages with a driver of a
`.run` file under systemd-boot.
"""

import os
import re
from typing import Any

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import (
    boot_arguments,
    boot_image,
    desktops,
    dnf,
    followers,
    lifecycle,
    monitoring,
    ports,
    process,
    runfile,
    zypper,
)
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import gpudirect, names
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import kernels
from ansible_collections.gpusetup.stack.plugins.modules import gpu_imex, gpu_licence, gpu_rdma

from tests.modules.cuts import Host
from tests.modules.rpm_host import RpmHost
from tests.modules.stand_ins import below, replace, write
from tests.modules.zypper_host import ZypperHost

KERNELS = ("6.1", "6.2")
UNINSTALLER = "/usr/bin/nvidia-uninstall"


class Beside(Host):
    """Packages of zypper, RDMA, IMEX, a licence, figures, desktops; the kernel's argument by pbl."""

    what = "of packages of zypper and what stands beside a driver"
    manager = "zypper"
    lacks = ()
    wishes = (
        {"p2pdma": False, "nodes": ["127.0.0.1"], "channels": 1, "token": "one", "size": "1x1", "cuda": "0:12-1"},
        {"p2pdma": True, "nodes": ["127.0.0.1", "x"], "channels": 2, "token": "two", "size": "2x2", "cuda": "0:13-1"},
    )

    def _stand_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rpms = ZypperHost({"bash": "0:5-1"}, {"cuda": ["0:12-1", "0:13-1"], "libx": ["0:1-1"]})
        rpms.stand_in(monkeypatch)
        super()._stand_in(monkeypatch)
        self.memory.packages = rpms
        monkeypatch.setattr(zypper.probe_packages, "zypper_locks", lambda *_words: sorted(self.memory.packages.locked))
        self.programs.update({"pbl": self._pbl, "nvidia-smi": self._smi, "udevadm": lambda _words: (0, "", "")})
        self.memory.more.update(line={"quiet": ""}, limit="8388608")
        below(self.root, monkeypatch, {
            names: "IMEX_NODES IMEX_UNIT", gpu_licence: "TOKEN SETTINGS TOKENS", monitoring: "COLLECTOR WEB",
            desktops: "SYSTEMD FOLDER LAUNCHER XORG UDEV MODPROBE", gpudirect: "LOAD LIMITS MANAGER OPTIONS CUFILE",
        })  # fmt: skip
        replace(monkeypatch, gpu_imex, has_channels=lambda: True, addresses=lambda _env: set())
        replace(monkeypatch, followers, _unlimited=lambda _pid: False, with_old_limit=lambda _env: [])
        replace(monkeypatch, gpu_rdma, _load=lambda *_words: [], _waits=list)
        replace(monkeypatch, ports, listeners=lambda _place: [])
        replace(monkeypatch, desktops, _obfuscated=lambda word, _env: word.encode(), _await=lambda *_words: None)
        replace(monkeypatch, desktops.os, urandom=lambda count: b"x" * count)
        replace(monkeypatch, monitoring, _prove=lambda *_words: None)

    def _systemctl(self, words: list[str]) -> tuple[int, str, str]:
        if words == ["show", "--property=DefaultLimitMEMLOCK"]:
            return 0, "DefaultLimitMEMLOCK=" + self.memory.more["limit"], ""
        if words == ["daemon-reexec"]:
            self.memory.more["limit"] = "infinity" if os.path.exists(gpudirect.MANAGER) else "8388608"
        return super()._systemctl(words)

    def _pbl(self, words: list[str]) -> tuple[int, str, str]:
        key, _equals, value = words[1].partition("=")
        line = self.memory.more["line"]
        if words[0] == "--get-option":
            return 0, f"{key}={line[key]}\n" if key in line else "", ""
        line.pop(key, None)
        line.update({key: value} if words[0] == "--add-option" else {})
        return 0, "", ""

    def _smi(self, _words: list[str]) -> tuple[int, str, str]:
        licensed = os.path.exists(gpu_licence.TOKEN)
        return 0, "        License Status                    : Licensed\n" if licensed else "", ""

    def _files_of_others(self) -> None:
        super()._files_of_others()
        write(self.root, {"etc/nvidia/gridd.conf": "# theirs\n", "etc/cufile.json": '{"properties": {}}\n'})
        self.memory.active |= {"nvidia-gridd.service"}

    def work(self, wish: dict[str, Any]) -> None:
        """Do what the roles do, in their order."""
        env = process.environment()
        self.run_packages(("cuda", wish["cuda"]), ("libx", ""), hold=["cuda"])
        self._nouveau("present")._argument(True)
        ledger = Ledger(self.state)
        gpu_licence.write(ledger, wish["token"], 1)
        if gpu_licence.is_behind(env) or not gpu_licence.granted(gpu_licence.state(env)):
            gpu_licence.license_now(ledger, env, 0)
        looks = monitoring.Asked("textfile", "", str(self.root / "figures"), "", "", "", "")
        monitoring.set_up(ledger, looks, {"look.py": wish["token"]}, True, env)
        gpu_rdma.configure("inbox", ["nvidia_peermem"], wish["p2pdma"], ledger, lifecycle.Machine())
        gpu_imex.configure(wish["nodes"], wish["channels"], ledger, env, check=False)
        told = {"users": ["root"], "size": wish["size"], "listen": "127.0.0.1", "port": 6080, "backend": "egl"}
        desktops.configure(desktops.asked(told), ledger, env, check=False)

    def snapshot(self) -> dict[str, Any]:
        """Return all that a command leaves, with the units that run since before their files were written."""
        told, folder = super().snapshot(), self.root / "etc/systemd/system"
        written = {path.name: path.stat().st_mtime for path in folder.glob("*.service")}
        old = [unit for unit, at in written.items() if unit in self.memory.active and self.memory.since[unit] < at]
        return {**told, "old": [unit for unit in old if unit != desktops.unit_of("root")]}  # its user works in it


class RedHat(Host):
    """Packages of dnf with a module stream, a driver of a `.run` file, boot entries of systemd-boot."""

    what = "of packages of dnf, a driver of a .run file and boot entries"
    lacks = ("pbl", "grubby")
    wishes = ({"cuda": "12-1", "stream": "a", "driver": "1"}, {"cuda": "13-1", "stream": "b", "driver": "2"})
    manager = "dnf"

    def _stand_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rpms = RpmHost({"bash": "5-1"}, {"cuda": ["12-1", "13-1"]}, fresh=True)
        rpms.stand_in(monkeypatch)
        super()._stand_in(monkeypatch)
        self.memory.packages = rpms
        replace(monkeypatch, dnf.probe_packages, versionlocks=lambda _host: sorted(self.memory.packages.locked))
        replace(monkeypatch, dnf.Dnf, enabled_stream=lambda _self, name: self.memory.packages.enabled.get(name))
        self.programs["kernel-install"] = self._kernel_install
        self.memory.more.update(driver="", entries=dict.fromkeys(KERNELS, "root=1 quiet"))
        monkeypatch.setattr(kernels, "ROOTS", (str(self.root / "efi"),))
        below(self.root, monkeypatch, {boot_arguments: "CMDLINE"})
        replace(monkeypatch, boot_image, can_install=lambda *_words: True, _kernel_file="/boot/vmlinuz-{}".format)
        known = {"running": "6.1", "next": "6.1", "installed": [{"release": kernel} for kernel in KERNELS]}
        replace(monkeypatch, lifecycle.Machine, kernels=lambda _machine: known)
        replace(monkeypatch, runfile, uninstaller=lambda _env: UNINSTALLER if self.memory.more["driver"] else None)
        replace(monkeypatch, runfile, _LEFT_OVERS=(), prove=lambda *_words: None, packaged=lambda _env: "")
        complete = lambda one: self.memory.more["driver"] == one.request["version"]  # noqa: E731
        replace(monkeypatch, runfile.Installation, install=self._install, is_complete=complete)
        self.programs[UNINSTALLER] = self._uninstall

    def _files_of_others(self) -> None:
        super()._files_of_others()
        for kernel in KERNELS:
            self._kernel_install(["add", kernel, ""])

    def _kernel_install(self, words: list[str]) -> tuple[int, str, str]:
        path, kept = self.root / f"efi/loader/entries/{words[1]}.conf", boot_arguments.CMDLINE
        line = "root=1 quiet"
        if os.path.exists(kept):
            with open(kept, encoding="utf-8") as stream:
                line = stream.read().strip()
        text = f"version {words[1]}\noptions {line}\nlinux /x/{words[1]}/linux\ninitrd /x/{words[1]}/initrd\n"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return 0, "", ""

    def _install(self, path: str) -> None:
        version = re.sub(r".*-", "", path)
        failed = runfile.HostFailure("GS-477", "it cannot be installed")
        self._done(["sh", path], lambda: self.memory.more.update(driver=version), failed)

    def _uninstall(self, _words: list[str]) -> tuple[int, str, str]:
        self.memory.more["driver"] = ""
        return 0, "", ""

    def work(self, wish: dict[str, Any]) -> None:
        """Do what the roles do, in their order."""
        streams = [{"module": "nvidia", "stream": wish["stream"]}]
        self.run_packages(("cuda", wish["cuda"]), hold=["cuda"], streams=streams)
        request = {
            "path": f"/root/driver-{wish['driver']}", "sha256": "", "version": wish["driver"], "flavour": "open",
            "kernels": [], "dkms": True, "state_dir": self.state, "network": {},
        }  # fmt: skip
        job = self.job()
        made = runfile.Installation(request, lifecycle.Machine(), Ledger(self.state), job.tell, job.log)
        if not made.is_installed():
            made.run()
        self._nouveau("present")._argument(True)


WORLDS: tuple[type[Host], ...] = (Host, Beside, RedHat)
