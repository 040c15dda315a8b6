"""What a host gets before its first boot: identity, keys, another system's name, package sources, its simulated machine."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

from tests.lab import captures, mirror, network
from tests.lab.flavours import FLAVOURS
from tests.lab.places import SIMULATED_ROOT, SOURCE, SSH_KEY, STATE, locked
from tests.lab.process import run
from tests.lab.roots import ROOTS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.host import HostSpec

USERS = {"root": "root", "admin": "home/admin", "ops": "home/ops", "guest": "home/guest"}
CA_BUNDLE = "etc/ssl/certs/ca-certificates.crt"


def dress(root: Path, spec: HostSpec) -> None:
    flavour = FLAVOURS[spec.flavour]
    (root / "etc/hostname").write_text(spec.name + "\n")
    (root / "etc/hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {spec.name}\n")
    _keys(root)
    if flavour.os_release:
        text = "".join(f'{key}="{value}"\n' for key, value in flavour.os_release.items())
        (root / "etc/os-release").unlink(missing_ok=True)  # a link into usr/lib
        (root / "etc/os-release").write_text(text)
        (root / "usr/lib/os-release").write_text(text)
    for path, text in flavour.files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    for path in flavour.absent:
        (root / path).unlink(missing_ok=True)
    _sources(root, spec)
    _boot_tools(root)
    if spec.machine != "none":
        captures.write(captures.MACHINES[spec.machine], root / SIMULATED_ROOT.lstrip("/"))


def _keys(root: Path) -> None:
    with locked("ssh-key"):
        if not SSH_KEY.exists():
            SSH_KEY.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "gpusetup-lab", "-f", SSH_KEY])
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab-host", "-f", root / "etc/ssh/ssh_host_ed25519_key"])
    for user, home in USERS.items():
        folder = root / home / ".ssh"
        folder.mkdir(mode=0o700, exist_ok=True)
        shutil.copy(SSH_KEY.with_suffix(".pub"), folder / "authorized_keys")
        if user != "root":
            owner = (root / home).stat()
            for path in (folder, folder / "authorized_keys"):
                shutil.chown(path, owner.st_uid, owner.st_gid)


def _boot_tools(root: Path) -> None:
    """GRUB's own tools cannot run in a container; and somebody must do what the simulated kernel would at boot."""
    files = {
        "update-grub": ("usr/sbin/update-grub", 0o755),
        "default-grub": ("etc/default/grub", 0o644),
        "simulated-boot": ("usr/local/lib/gpusetup-lab/simulated-boot", 0o755),
        "simulated-boot.service": ("etc/systemd/system/gpusetup-lab-simulated-boot.service", 0o644),
    }
    for name, (place, mode) in files.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(SOURCE / "dressing" / name, root / place)
        (root / place).chmod(mode)
    wanted = root / "etc/systemd/system/sysinit.target.wants"
    wanted.mkdir(exist_ok=True)
    (wanted / "gpusetup-lab-simulated-boot.service").symlink_to("../gpusetup-lab-simulated-boot.service")
    (root / "boot/grub").mkdir(parents=True, exist_ok=True)
    run(["chroot", root, "update-grub"])


def _sources(root: Path, spec: HostSpec) -> None:
    if spec.network != "mirror":
        (root / "etc/apt/sources.list").write_text(f"# No network but the lab's: {network.REPOSITORY_URL}\n")
        return
    suite = ROOTS[FLAVOURS[spec.flavour].root].suite
    lines = mirror.sources(suite)
    if lines:
        (root / "etc/apt/sources.list").write_text("\n".join(lines) + "\n")
    (root / "etc/apt/apt.conf.d/80lab-proxy").write_text(
        f'Acquire::http::Proxy "{network.PROXY}";\nAcquire::https::Proxy "{network.PROXY}";\n'
        f'Acquire::http::Proxy::{network.GATEWAY} "DIRECT";\n',
    )
    settings = {**mirror.pip_settings(), "proxy": network.PROXY, "cert": f"/{CA_BUNDLE}"}
    (root / "etc/pip.conf").write_text("[global]\n" + "".join(f"{key} = {value}\n" for key, value in settings.items()))
    shutil.copy(f"/{CA_BUNDLE}", root / CA_BUNDLE)  # this machine may sit behind a proxy with its own authority
    allowed = STATE / "mirror-clients"
    allowed.mkdir(parents=True, exist_ok=True)
    (allowed / spec.address).touch()


def valid_name(name: str) -> bool:
    return re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?", name) is not None
