"""Kernels that kernel-install brings to the boot loader: their initramfs is made anew by it, nouveau's argument comes and goes."""

import os

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import boot_arguments, boot_image
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import kernels
from ansible_collections.gpusetup.stack.plugins.modules import gpu_nouveau

from tests.modules.stand_ins import below, refused, replace, write
from tests.stored import stored

R, ID = "6.1.0-9-amd64", "0123456789abcdef0123456789abcdef"
OURS = gpu_nouveau.ARGUMENT
# As systemd's does with a plugin that makes an initramfs: a picture beside the kernel is taken as it is.
KERNEL_INSTALL = stored("boot_entries_kernel_install.txt")
UPDATE_INITRAMFS = stored("boot_entries_update_initramfs.txt")


class Host:
    """A host that systemd-boot starts, below a folder; its tools are stand-ins that really write."""

    def __init__(self, root, monkeypatch):
        self.root = root
        self.entry, self.cmdline = root / f"efi/loader/entries/{ID}-{R}.conf", root / "etc/kernel/cmdline"
        there = {f"lib/modules/{R}/vmlinuz": "kernel", f"efi/{ID}/{R}/linux": "old", f"efi/{ID}/{R}/initrd": "old"}
        write(root, {**there, "boot/x": "", "etc/kernel/install.conf": "", "state/x": ""})
        self.write_entry(f"root=UUID=1 quiet systemd.machine_id={ID}")
        self.tool("kernel-install", KERNEL_INSTALL)
        roots, images = (
            (f"{root}/efi", f"{root}/boot", f"{root}/boot/efi"),
            (f"{root}/boot/vmlinuz-{{}}", f"{root}/lib/modules/{{}}/vmlinuz"),
        )
        replace(monkeypatch, kernels, ROOTS=roots, NAMED=(f"{root}/boot/initrd.img-{{}}",), IMAGES=images)
        below(root, monkeypatch, {boot_arguments: "CMDLINE _VENDORS"})
        self.env = {"PATH": f"{root}/bin:/usr/bin:/bin", "ID": ID, "LC_ALL": "C"}

    def tool(self, name, text):
        write(self.root / "bin", {name: text.replace("@", str(self.root))}, 0o755)

    def write_entry(self, options):
        text = f"version {R}\noptions {options}\nlinux /{ID}/{R}/linux\ninitrd /{ID}/{R}/initrd\n"
        write(self.entry.parent, {self.entry.name: text})

    def ask(self, wanted=True, *, check=False):
        ledger = Ledger(str(self.root / "state"), check)
        entries = boot_arguments.Entries(OURS, ledger, ([R], [R]), self.env)
        assert entries.usable()
        changed = ledger.change(entries, entries.wanted()) if wanted else ledger.undo(entries)
        return changed, entries.warnings

    @property
    def options(self):
        return next(line.split()[1:] for line in self.entry.read_text().splitlines() if line.startswith("options"))

    @property
    def did(self):
        path = self.root / "did"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def image(self):
        return (self.root / f"efi/{ID}/{R}/initrd").read_text().strip()


@pytest.mark.parametrize("before", [None, "root=UUID=1 ro\n", "root=UUID=1 nouveau.modeset=0"])
def test_the_argument_comes_once_and_goes(host, before):
    if before is not None:
        host.cmdline.write_text(before)
    assert host.ask(check=True) == (True, [])
    assert (host.did, OURS in host.options) == ([], False)
    assert [host.ask(), host.ask()] == [(True, []), (False, [])]
    assert host.did == [f"kernel-install add {R} {host.root}/lib/modules/{R}/vmlinuz"]
    assert host.options[-1] == OURS
    assert host.options[0] == "root=UUID=1"
    assert not any(word.startswith("systemd.machine_id") for word in host.options)
    assert [host.ask(wanted=False), host.ask(wanted=False)] == [(True, []), (False, [])]
    assert OURS not in host.options
    assert host.options[0] == "root=UUID=1", "made while the file was there, else it would be the running system's"
    assert (host.cmdline.read_text() if host.cmdline.exists() else None) == before


def test_what_was_changed_by_hand_since_stays(host):
    host.cmdline.write_text("root=UUID=1\n")
    host.ask()
    host.cmdline.write_text(f"root=UUID=2 {OURS} debug\n")
    host.ask(wanted=False)
    assert host.cmdline.read_text() == "root=UUID=2 debug\n"
    assert host.options == ["root=UUID=2", "debug"]
    assert str(host.cmdline) not in Ledger(str(host.root / "state")).state["files"]


def test_the_initramfs_of_an_entry_is_made_by_kernel_install_and_without_a_tool_nothing_is_done(host):
    path = boot_image.path_of(R)
    assert path == f"{host.root}/efi/{ID}/{R}/initrd"
    boot_image.rebuild(R, path, host.env)
    assert (host.image, len(host.did)) == ("made 1", 1)
    (host.root / "bin/kernel-install").unlink()
    with refused("no tool to rebuild"):
        boot_image.rebuild(R, path, {**host.env, "PATH": f"{host.root}/bin"})
    assert host.image == "made 1"


@pytest.mark.parametrize("hook", [True, False])
def test_what_update_initramfs_makes_gets_to_where_it_boots_from(host, hook):
    host.tool("update-initramfs", UPDATE_INITRAMFS)
    (host.root / f"boot/initrd.img-{R}").write_text("old")
    if hook:
        (host.root / "hook").touch()
    path = boot_image.path_of(R)
    os.utime(path, (1, 1))
    boot_image.rebuild(R, path, host.env)
    assert [line.split()[0] for line in host.did] == ["update-initramfs", *(["kernel-install"] * (not hook))]
    assert host.image != "old"


def test_an_initramfs_that_is_nowhere_is_told(host):
    def images():
        given = {"state": "present", "state_dir": str(host.root / "state"), "simulated_root": "", "kernels": [R]}
        step = gpu_nouveau.Nouveau(given)
        return step._image(R, True)["path"], step.warnings

    assert images() == (f"{host.root}/efi/{ID}/{R}/initrd", [])
    (host.root / f"efi/{ID}/{R}/initrd").unlink()
    path, warnings = images()
    assert path is None
    assert R in warnings[0]
    (host.root / f"lib/modules/{R}/vmlinuz").unlink()
    (host.root / f"efi/{ID}/{R}/linux").unlink()
    assert images() == (None, [])  # a machine that is booted from outside


@pytest.mark.parametrize(("told", "runs"), [("systemd-boot 252.39", True), ("GRUB 2.12", False)])
def test_which_boot_loader_runs(host, monkeypatch, told, runs):
    path = host.root / "LoaderInfo"
    path.write_bytes(b"\6\0\0\0" + told.encode("utf-16-le"))
    monkeypatch.setattr(boot_arguments, "_LOADER_INFO", str(path))
    assert boot_arguments.systemd_boot_runs() is runs
