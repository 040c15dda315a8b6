"""One virtual machine on the lab's bridge: a lab host with a disk, a kernel and a power switch of its own."""

import contextlib
import json
import os
import socket
import time
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from tests.lab import machine as outer
from tests.lab import network
from tests.lab.dress import ssh_key
from tests.lab.host import Host, started
from tests.lab.places import LabError
from tests.lab.process import run
from tests.lab.spec import HostSpec
from tests.programs import VIRTUAL
from tests.vm import image
from tests.vm.emulator import accelerator, command, layer, start, tail
from tests.vm.seed import asset_tag, write_seed

MEMORY_MIB = 2048
SCALE = float(os.environ.get("GPUSETUP_VM_PATIENCE") or os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
"""Every deadline is multiplied by this: for machines that do other things meanwhile, such as other tests."""
STATUS = "/var/lib/gpusetup/status.json"


def prepare() -> None:
    outer.prepare(VIRTUAL)


class VirtualMachine(Host):
    """Made by `make`, then `power_on`; its disk is a layer over the image that all share."""

    BACK = "[ -e /run/cloud-init/result.json ]"
    user_data = ""
    faults: dict[str, str]

    @classmethod
    def make(cls, name: str, user_data: str, *, machine: str = "t4") -> "VirtualMachine":
        """A machine that was never switched on."""
        base = image.ready()
        host = cls.reserve(HostSpec(name=name, flavour="debian12", machine=machine))
        host.user_data, host.faults = user_data, {}
        try:
            network.bridge_up()
            layer(base, "raw", host.folder / "disk.qcow2")
            (host.folder / "image").symlink_to(base)
            ssh_key()
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab-host", "-f", host.folder / "host_key"])
            host.pin_host_key((host.folder / "host_key.pub").read_text())
        except BaseException:
            host.destroy()
            raise
        return host

    def power_on(self, *, wait: bool = True) -> None:
        """Press the switch. The seed is made anew: what `faults` holds now is what the machine finds."""
        if self.running:
            return
        write_seed(
            self.folder / "seed.iso", name=self.name, address=self.address, machine=self.spec.machine, faults=self.faults,
            user_data=self.user_data, host_key=self.folder / "host_key",
        )  # fmt: skip
        self._run()
        if wait:
            self.wait()

    def save(self, moment: str) -> None:
        """Keep disk and memory as they are now; the machine goes on."""
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as monitor:
            monitor.settimeout(600)
            monitor.connect(str(self.folder / "monitor"))
            stream = monitor.makefile("rw")
            stream.readline()  # its greeting
            for command, words in (
                ("qmp_capabilities", {}),
                ("human-monitor-command", {"command-line": f"savevm {moment}"}),
            ):
                stream.write(json.dumps({"execute": command, "arguments": words}) + "\n")
                stream.flush()
                while "event" in (answer := json.loads(stream.readline())):
                    pass
                if answer.get("return"):
                    raise LabError(f"{self.name} cannot be kept at {moment}: {answer}")

    def restore(self, moment: str) -> None:
        """Go on from a moment that was kept, as if nothing had happened since."""
        self.power_cut()
        self._run("-loadvm", moment)

    def _run(self, *more: str) -> None:
        network.plug_in_tap(self.address)
        argv = command(
            accelerator(image.kernel_of((self.folder / "image").resolve())), self.folder, self.folder / "disk.qcow2",
            memory_mib=MEMORY_MIB, hardware_address=network.hardware_address(self.address), asset=asset_tag(self.spec.machine),
            network=f"tap,ifname={network.outer_link(self.address)},script=no,downscript=no",
        )  # fmt: skip
        emulator = start([*argv, "-qmp", f"unix:{self.folder / 'monitor'},server=on,wait=off", *more], self.folder)
        (self.folder / "parent.pid").write_text(f"{emulator.pid} {started(emulator.pid)}")

    def ssh_argv(self, user: str = "root") -> list[str]:
        """As for any host; in emulation, on a busy machine, the handshake takes its time."""
        argv = super().ssh_argv(user)
        return [argv[0], "-o", "ConnectTimeout=60", "-o", "ServerAliveInterval=30", *argv[1:]]

    def ssh(
        self, *argv: str, user: str = "root", check: bool = True, timeout: float = 300, text: str | None = None
    ) -> CompletedProcess[str]:
        return super().ssh(*argv, user=user, check=check, timeout=timeout * SCALE, text=text)

    def path(self, inside: str) -> Path:
        raise LabError(f"{inside}: the disk of a virtual machine is its own, ask by SSH")

    def wait(self, timeout: float = 300) -> None:
        """Until SSH answers and systemd has started everything that it starts at boot."""
        self.until(self.BACK, timeout)

    def reboot(self, timeout: float = 300) -> None:
        super().reboot(timeout * SCALE)

    def until(self, condition: str, timeout: float = 600) -> None:
        """Until a shell condition is true on the machine, asked there every other second; boots in between are waited for."""
        end = time.monotonic() + timeout * SCALE
        words = f"while ! {{ {condition}; }}; do sleep 2; done"
        while (left := end - time.monotonic()) > 0 and self.running:
            try:
                if self.ssh("sh", "-c", words, check=False, timeout=left / SCALE + 1).returncode == 0:
                    return
            except LabError:
                break
            time.sleep(1)
        raise LabError(f"{self.name} did not come to: {condition}\n{self.evidence()}")

    def evidence(self) -> str:
        """What is left to look at: the ends of the console, the emulator's words, the record and its log."""
        parts = [tail(self.folder / name) for name in ("console.log", "emulator.log")]
        if self.running:
            look = f"cat {STATUS}; tail -n 40 /var/log/gpusetup-bootstrap.log"
            try:
                parts.append(self.ssh("sh", "-c", look, check=False, timeout=60).stdout)
            except LabError as error:
                parts.append(str(error))
        return "\n".join(parts)

    def status(self) -> dict[str, Any]:
        """What is on record; state none before there is a record or when nobody answers."""
        try:
            found: dict[str, Any] = json.loads(self.ssh("cat", STATUS, check=False, timeout=60).stdout)
        except (LabError, ValueError):
            return {"state": "none"}
        return found
