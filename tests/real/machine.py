"""The host that is taken through: an image that is booted here, or one that answers to SSH already."""

import contextlib
import shlex
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess, Popen
from typing import Any, Protocol

from typing_extensions import Self

from tests.lab.places import LabError
from tests.lab.process import run
from tests.programs import SSH, lacking
from tests.vm.emulator import EMULATED, VIRTUALISED, accelerator, command, layer, start, tail
from tests.vm.seed import asset_tag, cloud_config, cloud_documents, fixed_address, write_image

from . import images

USER = "gpusetup-lab"
OUTSIDE = "10.0.2.2"
"""This machine, as a machine on QEMU's own network sees it: what listens on 127.0.0.1 here answers there."""
CARD = "02:4c:0a:00:02:0f"
SIMULATED = "/var/lib/gpusetup-lab/simulated"


class Machine(Protocol):
    """What the journey needs of a host."""

    name: str
    about: str
    """What it is, for the page: emulated, virtualised, or a host of somebody's."""

    def variables(self) -> dict[str, Any]:
        """How an inventory names it."""


def require(programs: dict[str, str]) -> None:
    if absent := sorted(set(lacking({**SSH, **programs}).values())):
        raise LabError(f"this needs {', '.join(absent)}: apt-get install {' '.join(absent)}")


@dataclass
class Remote:
    """A host that is there; it is changed, rebooted, and left as it was before as far as `remove` can."""

    address: str
    """[USER@]HOST[:PORT], reached with your own SSH settings and keys."""
    name: str = field(init=False)
    about: str = "a host reached by SSH"

    def __post_init__(self) -> None:
        self.user, self.host, self.port = parted(self.address)
        self.name = self.host

    def variables(self) -> dict[str, Any]:
        """How an inventory names it."""
        told = {"ansible_host": self.host, "ansible_become": self.user != "root"}
        return (
            told
            | ({"ansible_user": self.user} if self.user else {})
            | ({"ansible_port": self.port} if self.port else {})
        )


def parted(address: str) -> tuple[str, str, int]:
    user, _, rest = address.rpartition("@")
    host, colon, port = rest.rpartition(":") if rest.count(":") == 1 else (rest, "", "")
    host = host.strip("[]")
    if not host or host.startswith("-") or user.startswith("-") or (colon and not port.isdigit()):
        raise LabError(f"{address!r} is no host: write [USER@]HOST[:PORT]")
    return user, host, int(port) if port else 0


@dataclass
class Booted:
    """A machine that stands on an image and has QEMU's own network: no root, no bridge, a way out where there is one."""

    image: images.Image
    folder: Path
    simulates: str = "none"
    memory_mib: int = 2048
    disk: str = "24G"
    firmware: str = ""
    fast: str = ""
    name: str = "machine"
    user: str = "root"
    process: Popen[bytes] | None = None

    @property
    def about(self) -> str:
        how = "emulated" if self.fast_words() == EMULATED else "virtualised"
        return f"QEMU, {how}" + (f", simulated {self.simulates}" if self.simulates != "none" else "")

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("key", "host_key"):
            (self.folder / name).unlink(missing_ok=True)
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "gpusetup-lab", "-f", self.folder / name])
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = int(found.getsockname()[1])
        public = (self.folder / "host_key.pub").read_text().split()
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {public[0]} {public[1]}\n")
        layer(self.image.path, self.image.kind, self.folder / "disk.qcow2", self.disk)
        write_image(self.folder / "seed.iso", self._documents(), self.simulates)
        self._switch_on()
        return self

    def _documents(self) -> dict[str, str]:
        key = (self.folder / "key.pub").read_text().strip()
        # The lab's own image shows by itself the machine that its seed describes; it has no client for DHCP and no locales.
        simulates = self.simulates != "none" and not self.image.made_here
        documents = cloud_documents(self.name, USER, key, self.folder / "host_key", simulates=simulates)
        if self.image.made_here:
            documents["vendor-data"] = cloud_config({"locale": False, "apt": {"preserve_sources_list": True}})
            documents["network-config"] = fixed_address(CARD, "10.0.2.15/24", gateway=OUTSIDE)
        return documents

    def fast_words(self) -> tuple[str, ...]:
        """QEMU's words for how it runs: as asked, else the faster way that boots a kernel here."""
        if self.fast:
            return {"kvm": VIRTUALISED, "tcg": EMULATED}[self.fast]
        found = images.kernels()
        return accelerator(found[0]) if found else EMULATED

    def _switch_on(self) -> None:
        argv = command(
            self.fast_words(), self.folder, self.folder / "disk.qcow2", memory_mib=self.memory_mib,
            network=f"user,hostfwd=tcp:127.0.0.1:{self.port}-:22", hardware_address=CARD, asset=asset_tag(self.simulates),
        )  # fmt: skip
        self.process = start([*argv, *(["-bios", self.firmware] if self.firmware else [])], self.folder)

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            self.process.wait()
        (self.folder / "disk.qcow2").unlink(missing_ok=True)
        for secret in ("key", "host_key", "seed.iso"):
            (self.folder / secret).unlink(missing_ok=True)

    def ssh_options(self) -> list[str]:
        """For ssh and for Ansible: this key, this host key, nothing of the person who calls."""
        known = f"UserKnownHostsFile={self.folder / 'known_hosts'}"
        words = ("IdentitiesOnly=yes", "StrictHostKeyChecking=yes", known, "GlobalKnownHostsFile=/dev/null", "ConnectTimeout=60")  # fmt: skip
        return [word for option in words for word in ("-o", option)]

    def ssh(self, *argv: str, user: str = "", timeout: float = 120) -> CompletedProcess[str]:
        whole = ["ssh", "-F", "/dev/null", "-i", str(self.folder / "key"), "-p", str(self.port), "-o", "BatchMode=yes"]
        target = f"{user or self.user}@127.0.0.1"
        return run([*whole, *self.ssh_options(), target, shlex.join(argv)], check=False, timeout=timeout)

    def wait(self, timeout: float) -> float:
        """Until cloud-init is done and somebody with root's rights can log in; returns the seconds that it took."""
        began, condition = time.monotonic(), ("test", "-e", "/run/cloud-init/result.json")
        while time.monotonic() - began < timeout:
            if self.process is not None and self.process.poll() is not None:
                raise LabError(f"the emulator ended: {self.evidence()}")
            with contextlib.suppress(LabError):
                # As in a fleet: an ordinary user with sudo; where the image has no sudo, root.
                for user, words in ((USER, ("sudo", "-n", *condition)), ("root", condition)):
                    if self.ssh(*words, user=user).returncode == 0:
                        self.user = user
                        return time.monotonic() - began
            time.sleep(3)
        raise LabError(f"{self.image.name} did not come up within {timeout:.0f} s: {self.evidence()}")

    def evidence(self) -> str:
        return "\n".join(tail(self.folder / name) for name in ("console.log", "emulator.log"))

    def variables(self) -> dict[str, Any]:
        """How an inventory names it."""
        told: dict[str, Any] = {
            "ansible_host": "127.0.0.1", "ansible_port": self.port, "ansible_user": self.user,
            "ansible_become": self.user != "root", "ansible_ssh_private_key_file": str(self.folder / "key"),
            "ansible_ssh_common_args": shlex.join(["-F", "/dev/null", *self.ssh_options()]),
        }  # fmt: skip
        if self.simulates != "none":
            told["gpusetup_simulated_root"] = SIMULATED
        return told
