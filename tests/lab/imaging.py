"""Copy a lab host's disk to another one, as a cloud does with an image; who the copy is stays its own."""

import shutil
import subprocess

from tests.lab.flavours import FLAVOURS
from tests.lab.host import Host
from tests.lab.places import SIMULATED_ROOT
from tests.lab.process import run
from tests.lab.roots import ROOTS

# A cloud gives a machine its name and hardware; the lab's keys are pinned per address.
OWN = ("etc/hostname", "etc/hosts", "etc/ssh/ssh_host_ed25519_key", "etc/ssh/ssh_host_ed25519_key.pub",
       SIMULATED_ROOT.lstrip("/"))  # fmt: skip


def copy_disk(source: Host, target: Host) -> None:
    """Give TARGET the disk of SOURCE, both switched off and of one flavour."""
    if source.running or target.running or source.spec.flavour != target.spec.flavour:
        raise ValueError(f"{source.name}, {target.name}")
    own = target.folder / "own.tar"
    run(["tar", "-C", target.root, "-cf", own, *OWN])
    run(["umount", target.root])
    upper, work = target.folder / "upper", target.folder / "work"
    for folder in (upper, work):
        shutil.rmtree(folder)
    subprocess.run(["cp", "-a", source.folder / "upper", upper], check=True, timeout=300)
    work.mkdir()
    lower = ROOTS[FLAVOURS[target.spec.flavour].root].ready()
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    run(["mount", "-t", "overlay", "gpusetup-lab", "-o", options, target.root])
    shutil.rmtree(target.root / SIMULATED_ROOT.lstrip("/"))
    run(["tar", "-C", target.root, "-xpf", own])
