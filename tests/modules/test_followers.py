"""What must follow a file is due until the host shows that it came about; a module that stays in stops the exchange."""

import os
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import (
    boot_image,
    followers,
    kernel_module,
    process,
)
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import driver, gpudirect, names
from ansible_collections.gpusetup.stack.plugins.modules import gpu_kernel_module, gpu_nouveau

from tests.modules.stand_ins import below, refused, replace, write
from tests.stored import stored_rows
from tests.unit.facts.test_probe_initramfs import cpio

KERNEL = "6.8.0"


class Host:
    """A host with GRUB, one initramfs, and the tools that make them; each can be told to fail."""

    def __init__(self, root, monkeypatch):
        self.root = root
        self.modules = ["nouveau", "nvidia", "nvme_core"]
        self.broken: set[str] = set()
        self.did: list[str] = []
        below(root, monkeypatch, {
            names: "NOUVEAU_FILE", gpu_nouveau: "NOUVEAU_FILE GRUB_DROP_IN", gpudirect: "OPTIONS MANAGER",
            kernel_module: "OPTIONS PARAMETERS _MODULE_PARAMETERS",
        })  # fmt: skip
        settings = (f"{root}/etc/default/grub", f"{root}/etc/default/grub.d/*.cfg")
        replace(monkeypatch, followers, MENUS=(f"{root}/boot/grub/grub.cfg",), GRUB_SETTINGS=settings)
        replace(monkeypatch, boot_image, path_of=lambda _kernel: str(root / "boot/initrd.img"))
        replace(monkeypatch, process, stream=self.stream)
        replace(monkeypatch, shutil, which=lambda name, path: None if name in ("pbl", "grubby") else name)
        replace(monkeypatch, os.path, isdir=lambda path: path == "/etc/default/grub.d" or Path(path).is_dir())
        for folder in ("boot/grub", "etc/default/grub.d", "etc/modprobe.d"):
            (root / folder).mkdir(parents=True)
        (root / "etc/default/grub").write_text('GRUB_CMDLINE_LINUX="quiet"\n')
        self.menu()
        self.image()

    def menu(self):
        settings = [self.root / "etc/default/grub", *sorted((self.root / "etc/default/grub.d").glob("*.cfg"))]
        words = " ".join(path.read_text() for path in settings)
        self.file("boot/grub/grub.cfg").write_text("linux /vmlinuz " + words.replace("\n", " ") + "\n")

    def image(self):
        members: dict[str, bytes] = {f"usr/lib/modules/{KERNEL}/{name}.ko": b"x" for name in self.modules}
        for path in sorted((self.root / "etc/modprobe.d").iterdir()):
            members[str(path).lstrip("/")] = path.read_bytes()
        self.file("boot/initrd.img").write_bytes(cpio(members))

    def file(self, name):
        return self.root / name

    def stream(self, argv, *_more, **_named):
        self.did.append(argv[0])
        if argv[0] in self.broken:
            return 1, ["no space left on device"]
        {"update-grub": self.menu, "update-initramfs": self.image}[argv[0]]()
        return 0, []

    def nouveau(self, state="present", **more):
        params = {
            "state": state, "state_dir": str(self.root / "state"), "simulated_root": "", "kernel_argument": True,
            "kernels": [KERNEL], **more,
        }  # fmt: skip
        self.did = []
        return gpu_nouveau.Nouveau(params).run()


@pytest.mark.parametrize("tool", ["update-grub", "update-initramfs"])
@pytest.mark.parametrize("state", ["present", "absent"])
def test_what_failed_once_is_tried_again_by_the_same_command(host, tool, state):
    if state == "absent":
        host.nouveau()
    host.broken = {tool}
    for _time in range(2):
        with refused(tool):
            host.nouveau(state)
    host.broken = set()
    assert host.nouveau(state)["changed"]
    assert tool in host.did
    assert (gpu_nouveau.ARGUMENT in host.file("boot/grub/grub.cfg").read_text()) == (state == "present")
    assert (b"blacklist nouveau" in host.file("boot/initrd.img").read_bytes()) == (state == "present")
    again = host.nouveau(state)
    assert (again["changed"], host.did) == (False, [])


def test_an_image_without_the_module_or_with_anothers_blacklist_is_left(host):
    host.modules = ["nvidia"]
    host.image()
    host.nouveau()
    assert host.did == ["update-grub"]
    host.modules = ["nouveau"]
    host.file("etc/modprobe.d/theirs.conf").write_text("blacklist nouveau\n")
    host.image()
    Path(names.NOUVEAU_FILE).write_text("# Written by gpusetup: older words.\n")
    assert not followers.BootImage(KERNEL, {}).due()


def test_a_menu_that_another_file_spoils_is_told_and_no_change_each_time(host):
    host.file("etc/default/grub.d/zz.cfg").write_text("GRUB_CMDLINE_LINUX=quiet\n")
    host.menu = lambda: host.file("boot/grub/grub.cfg").write_text("linux /vmlinuz quiet\n")
    host.nouveau()
    again = host.nouveau()
    assert again["changed"] is False
    assert "another file in /etc/default/grub.d" in again["warnings"][0]


# --- options of the loaded module ----------------------------------------------------------------------------------


class Kernel:
    """A machine whose driver runs; its module shows options in the driver's way, and gets those of the file when loaded."""

    simulated = None
    obstacle = ""
    takes = True

    def __init__(self, host):
        self.host, self.loads = host, 0
        self.show(RmProfilingAdminOnly=1, NvLinkDisable=0, RegistryDwords='""')
        Path(kernel_module._MODULE_PARAMETERS).mkdir(parents=True)

    def show(self, **options):
        path = Path(kernel_module.PARAMETERS)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{name}: {value}\n" for name, value in options.items()))

    def wanted_kernels(self, _given):
        return [KERNEL]

    def facts(self):
        return {}

    def load(self):
        self.loads += 1
        given = kernel_module.written()
        if self.takes:
            self.show(RmProfilingAdminOnly=given.get("NVreg_RestrictProfilingToAdminUsers", 1), NvLinkDisable=0)


@pytest.fixture
def kernel(host, monkeypatch):
    made = Kernel(host)
    replace(monkeypatch, gpu_kernel_module, Machine=lambda _root: made)
    replace(monkeypatch, kernel_module, Loader=lambda *_words: made, _booted=lambda: 1000.0)
    replace(monkeypatch, driver, reboot_reasons=lambda *_more: [], obstacle=lambda *_more: made.obstacle)
    replace(monkeypatch, process, output=lambda *_more: (0, Path(kernel_module.OPTIONS).read_text(), ""))
    return made


@pytest.fixture
def configure(host, kernel, run_module):
    given = {"host": {"state_dir": str(host.root / "state")}, "version": "580.95.05"}
    return lambda **more: run_module(gpu_kernel_module, **{**given, "reload": True, "options": FREE, **more})


FREE = {"NVreg_RestrictProfilingToAdminUsers": 0}


def test_a_changed_option_is_in_effect_or_told(configure, kernel):
    for options, changed, loads in ((FREE, True, 1), (FREE, False, 1), ({}, True, 2)):
        told = configure(options=options)
        assert (told["changed"], told["options_waiting"], kernel.loads) == (changed, [], loads)


def test_the_initramfs_gets_the_options_also_when_that_failed_before(configure, host):
    host.broken = {"update-initramfs"}
    configure(fails="update-initramfs failed")
    host.broken = set()
    configure()
    assert b"NVreg_RestrictProfilingToAdminUsers=0" in host.file("boot/initrd.img").read_bytes()


@pytest.mark.parametrize("why", ["another file", "the driver"])
def test_what_no_reload_brings_is_told_and_no_reason_to_reboot_for_ever(configure, kernel, monkeypatch, why):
    configure()
    kernel.show(RmProfilingAdminOnly=1)
    if why == "another file":
        said = "".join(f"options nvidia NVreg_RestrictProfilingToAdminUsers={value}\n" for value in (0, 1))
        monkeypatch.setattr(process, "output", lambda *_more: (0, said, ""))
    else:
        monkeypatch.setattr(kernel_module, "_booted", lambda: time.time() + 100)
    loads = kernel.loads
    assert configure()["options_waiting"] == []
    assert kernel.loads == loads
    waiting, (refused,) = followers.options(kernel, FREE, [])
    assert waiting == []
    assert ("something beside" if why == "another file" else "at the last boot") in refused


# --- the service manager and what it started ------------------------------------------------------------------------


@pytest.fixture
def limits(host, monkeypatch):
    """Write the limit of locked memory of processes: {pid: limit}."""
    monkeypatch.setattr(followers, "_LIMITS", str(host.file("limits-{}")))

    def write(of):
        for pid, limit in of.items():
            line = f"Max locked memory         {limit}              {limit}              bytes\n"
            host.file(f"limits-{pid}").write_text(line)

    return write


# A later file of another folder counts, and an empty one hides one of the same name in a later folder.
@pytest.mark.parametrize(("ours", "theirs", "has", "pid1", "due"), stored_rows("memlock-limits.json"))
def test_systemd_is_executed_again_where_its_limit_is_not_its_settings(
    limits, host, monkeypatch, ours, theirs, has, pid1, due
):
    replace(monkeypatch, followers, _SYSTEMD=tuple(f"{host.root}{folder}" for folder in followers._SYSTEMD))
    files = {f"{host.root}/{name.replace('/', '/systemd/system.conf.d/', 1)}": value for name, value in theirs.items()}
    for path, value in {**files, **({gpudirect.MANAGER: "infinity"} if ours else {})}.items():
        write(Path(path).parent, {Path(path).name: f"[Manager]\n{'DefaultLimitMEMLOCK=' * bool(value)}{value}\n"})
    limits({1: pid1})
    monkeypatch.setattr(process, "output", lambda *_more: (0, f"DefaultLimitMEMLOCK={has}\n" if has else "", ""))
    assert followers.LockedMemory({}).due() is due


def test_services_that_were_started_with_the_old_limit_are_named(limits, monkeypatch):
    block = "Id=docker.service\nActiveState=active\nMainPID=11\nLimitMEMLOCK=infinity\n"
    limits({11: "8388608"})
    monkeypatch.setattr(process, "output", lambda *_more: (0, block, ""))
    assert followers.with_old_limit({}) == ["docker"]


USERS = {
    "nvidia": ["nvidia_uvm", "nvidia_modeset"],
    "nvidia_modeset": ["nvidia_drm"],
    "nvidia_drm": [],
    "nvidia_uvm": [],
}


def load(**counts):
    """Exchange the module of a kernel with the whole driver in it."""
    users = {name: {"references": len(holders), "holders": holders} for name, holders in USERS.items()}
    machine = SimpleNamespace(loaded=lambda: sorted(users), module_users=lambda: {**users, **counts})
    return kernel_module.Loader(machine, None).load()


@pytest.fixture
def said(monkeypatch):
    """Every command; each does as it is told but those of `stuck`, and all of the driver's services run."""
    commands, stuck = [], {}

    def output(argv, *_more):
        commands.append(argv)
        return stuck.get(" ".join(argv), (0, "", ""))

    replace(monkeypatch, kernel_module.process, output=output, environment=dict)
    replace(monkeypatch, kernel_module.time, sleep=lambda _seconds: None)
    return lambda **answers: stuck.update(answers) or commands


@pytest.fixture
def willing(said):
    return said()


def test_what_came_out_goes_back_when_the_next_one_stays(said):
    commands = said(**{"rmmod nvidia_uvm": (1, "", "rmmod: ERROR: Module nvidia_uvm is in use")})
    assert load() == "rmmod: ERROR: Module nvidia_uvm is in use"
    done = {verb: [argv[1] for argv in commands if argv[0] == verb] for verb in ("rmmod", "modprobe")}
    assert done["rmmod"] == ["nvidia_drm", "nvidia_modeset", "nvidia_uvm"]
    assert {"nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm"} == set(done["modprobe"])
    assert done["modprobe"].index("nvidia-modeset") < done["modprobe"].index("nvidia-drm")
    units = [argv[1:] for argv in commands if argv[0] == "systemctl" and argv[1] != "is-active"]
    stopped = [unit for verb, unit in units if verb == "stop"]
    assert stopped
    assert [unit for verb, unit in units if verb == "start"] == stopped[::-1]


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ({"nvidia_uvm": {"references": 2, "holders": []}}, "nvidia_uvm is used 2 times"),
        ({"nvidia_drm": {"references": 1, "holders": []}}, "nvidia_drm is in use"),
        ({"nvidia": {"references": 3, "holders": ["nvidia_uvm", "nvidia_modeset", "gdrdrv"]}}, "the module gdrdrv"),
    ],
)
def test_what_no_list_of_programs_shows_is_seen_in_the_counts_and_nothing_is_unloaded(willing, counts, told):
    assert told in load(**counts)
    assert not [argv for argv in willing if argv[0] in {"rmmod", "modprobe"}]
    started = [argv[-1] for argv in willing if argv[:2] == ["systemctl", "start"]]
    assert started[-1] == "gpusetup-gpu-textfile.timer", "what was stopped for it runs again"
