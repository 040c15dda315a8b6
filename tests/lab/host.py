"""One lab host: a booted systemd container with its own address, and the ways to hurt it."""

import contextlib
import dataclasses
import json
import os
import shlex
import shutil
import signal
import sys
import time
from functools import cache
from itertools import starmap
from pathlib import Path
from subprocess import DEVNULL, CompletedProcess, Popen
from typing import Any

from typing_extensions import Self

from tests.lab import dress, network
from tests.lab.flavours import FLAVOURS
from tests.lab.places import HOSTS, KNOWN_HOSTS, SSH_KEY, LabError, locked
from tests.lab.process import run, until
from tests.lab.repository.build import Repositories
from tests.lab.roots import ROOTS
from tests.lab.spec import HostSpec

BOOTED = "gpusetup-lab-simulated-boot.service"
CGROUPS = [Path("/sys/fs/cgroup/systemd"), Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")]

# Runs as the parent of the container: systemd-nspawn leaves with 133 when the host reboots.
# Each host gets a control group of its own, else all their systemds would share the outer one.
SUPERVISE = (
    'groups=$1; lost=$2; shift 2; for group in $groups; do echo $$ >"$group/cgroup.procs"; done; '
    'while "$@"; [ $? = 133 ] && [ ! -e "$lost" ]; do :; done'
)


class Host:
    """A host that exists: mounted, running or switched off."""

    BACK = f"systemctl is-active -q {BOOTED}"
    """True on the host once a boot has come to its end."""

    def __init__(self, spec: HostSpec) -> None:
        self.spec = spec
        self.name = spec.name
        self.address = spec.address
        self.folder = HOSTS / spec.name
        self.root = self.folder / "root"

    # -- life -----------------------------------------------------------------------------------------------------

    @classmethod
    def reserve(cls, spec: HostSpec) -> Self:
        """Give it its name, its address and its folder; one of that name must not exist."""
        with locked("addresses"):
            present = _documents()
            taken = {told.get("address", "") for told in present.values()}
            if any(told.get("name") == spec.name for told in present.values()):
                raise LabError(
                    f"a lab host named {spec.name} exists already: python -m tests.lab down --host {spec.name}"
                )
            address = spec.address or network.free_address(taken)
            if address in taken:
                raise LabError(f"host {spec.name}: the address {address} belongs to another lab host")
            spec = dataclasses.replace(spec, address=address)
            host = cls(spec)
            host.folder.mkdir(parents=True)
            (host.folder / "host.new").write_text(json.dumps(dataclasses.asdict(spec)))
            (host.folder / "host.new").rename(host.folder / "host.json")
        return host

    @classmethod
    def create(cls, spec: HostSpec) -> "Host":
        host = cls.reserve(spec)
        try:
            network.bridge_up()
            host._mount()
            dress.dress(host.root, host.spec)
            host.pin_host_key(host.path("/etc/ssh/ssh_host_ed25519_key.pub").read_text())
            host.power_on()
        except BaseException:
            host.destroy()
            raise
        return host

    @staticmethod
    def all_specs() -> list[HostSpec]:
        """Return the hosts that are there; one that another checkout left, and this one cannot know, is passed over."""
        return [spec for spec in starmap(_spec, _documents().items()) if spec is not None]

    @classmethod
    def existing(cls, name: str) -> "Host":
        for spec in cls.all_specs():
            if spec.name == name:
                return cls(spec)
        raise LabError(f"no lab host is named {name}; python -m tests.lab status lists them")

    def power_on(self, *, wait: bool = True) -> None:
        if self.running:
            return
        network.plug_in(self.name, self.address)
        argv = [
            "systemd-nspawn", "--keep-unit", "-q", "--register=no", "-D", str(self.root), f"--machine={self.name}", f"--hostname={self.name}",
            f"--network-namespace-path=/run/netns/{network.namespace(self.name)}", "--resolv-conf=off", "--timezone=off",
            "--console=pipe", *self._disk_binds(), "--boot",
        ]  # fmt: skip
        # Where systemd runs this machine it gives each host a control group; elsewhere we do.
        by_systemd = Path("/run/systemd/system").exists()
        scope = ["systemd-run", "--scope", "--quiet", "--collect", "-p", "Delegate=yes", "--"] if by_systemd else []
        groups = [] if by_systemd else self._cgroups(make=True)
        with (self.folder / "console.log").open("ab") as console:
            parent = Popen(
                [*scope, "sh", "-c", SUPERVISE, "gpusetup-lab", " ".join(map(str, groups)), str(self.folder / "lost"), *argv],
                stdin=DEVNULL, stdout=console, stderr=console, start_new_session=True,
            )  # fmt: skip
        (self.folder / "parent.pid").write_text(f"{parent.pid} {started(parent.pid)}")
        if wait:
            self.wait()

    def power_cut(self) -> None:
        """Everything on the host ends this instant; what was written to its disk stays."""
        pid = self._parent()
        if pid:
            os.killpg(pid, signal.SIGKILL)
        self._signal(signal.SIGKILL)
        deadline = time.monotonic() + 60
        while (self.running or network.processes(self.name)) and time.monotonic() < deadline:
            _reap(pid)
            time.sleep(0.01)
        if self.running or network.processes(self.name):
            raise LabError(f"processes of the lab host {self.name} survive SIGKILL: {network.processes(self.name)}")
        _reap(pid)
        (self.folder / "parent.pid").unlink(missing_ok=True)

    def reboot(self, timeout: float = 180) -> None:
        """An orderly reboot from within, until SSH answers again and the simulated kernel has done its part."""
        before = self.boot_id()
        self.ssh("systemctl", "reboot", check=False)

        def back() -> bool:
            with contextlib.suppress(LabError):
                return self.boot_id() != before and self.ssh("sh", "-c", self.BACK, check=False).returncode == 0
            return False

        until(back, f"{self.name} is back from its reboot; its console: {self.folder / 'console.log'}", timeout)

    def destroy(self) -> None:
        """Leave nothing of it: processes, mounts, network, files."""
        self.power_cut()
        network.unplug(self.name, self.address)
        for mount in sorted(_mounts_under(self.folder), reverse=True):
            run(["umount", mount], check=False)
        still = _mounts_under(self.folder)
        if still:
            raise LabError(f"still mounted, so the files of {self.name} stay: {', '.join(still)}")
        shutil.rmtree(self.folder, ignore_errors=True)
        (network.MIRROR_CLIENTS / self.address).unlink(missing_ok=True)
        for group in self._cgroups():
            _remove_group(group)
        _write_known_hosts()
        network.bridge_down_if_unused()

    # -- use ------------------------------------------------------------------------------------------------------

    def ssh(
        self, *argv: str, user: str = "root", check: bool = True, timeout: float = 120, text: str | None = None
    ) -> CompletedProcess[str]:
        """Run a command as a person would, over SSH; arguments are quoted for the remote shell."""
        return run([*self.ssh_argv(user), shlex.join(argv)], check=check, timeout=timeout, text=text)

    def ssh_argv(self, user: str = "root") -> list[str]:
        options = ["-F", "/dev/null", "-i", str(SSH_KEY), *SSH_COMMON.split(), "-oLogLevel=ERROR"]
        return ["ssh", *options, f"{user}@{self.address}"]

    def boot_id(self) -> str:
        return self.ssh("cat", "/proc/sys/kernel/random/boot_id", timeout=30).stdout.strip()

    def wait(self, timeout: float = 180) -> None:
        """Until SSH answers and systemd has started everything."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if not self.running:
                break
            state = self.ssh("systemctl", "is-system-running", "--wait", check=False, timeout=timeout).stdout.strip()
            if state in {"running", "degraded"}:
                return
            time.sleep(0.05)
        console = (self.folder / "console.log").read_text(errors="replace")[-1500:]
        raise LabError(f"{self.name} does not answer on SSH; the end of its console:\n{console}")

    def path(self, inside: str) -> Path:
        """The host's file, seen from outside; right while it runs and while it is off."""
        return self.root / inside.lstrip("/")

    def use(self, repositories: Repositories, distro: str = "ubuntu2404") -> None:
        """Add NVIDIA's repository to apt as a person does."""
        key = "/usr/share/keyrings/cuda.asc"
        self.path(key).write_text(repositories.armored)
        line = f"deb [signed-by={key}] {repositories.url(distro)} /\n"
        self.path("/etc/apt/sources.list.d/cuda.list").write_text(line)

    @property
    def running(self) -> bool:
        return self._parent() is not None

    @property
    def mounted(self) -> bool:
        return bool(_mounts_under(self.folder))

    # -- harm -----------------------------------------------------------------------------------------------------

    def cut_network(self) -> None:
        network.set_cable(self.address, connected=False)

    def restore_network(self) -> None:
        network.set_cable(self.address, connected=True)

    def fill_disk(self, mount: str = "/", *, leave_mib: int = 0) -> None:
        """Fill a disk that the spec gave a size of its own; `free_disk` undoes it."""
        if mount not in self.spec.disks:
            raise LabError(
                f"{mount} of {self.name} is no disk of its own (spec: disks={{{mount!r}: MiB}}): filling it would fill this machine's"
            )
        folder = self.folder / "disk" if mount == "/" else self.path(mount)
        status = os.statvfs(folder)
        size = status.f_bavail * status.f_frsize - leave_mib * 1024**2
        if size > 0:
            with (folder / ".lab-filler").open("wb") as stream:
                os.posix_fallocate(stream.fileno(), 0, size)

    def free_disk(self, mount: str = "/") -> None:
        folder = self.folder / "disk" if mount == "/" else self.path(mount)
        (folder / ".lab-filler").unlink(missing_ok=True)

    def break_packages(self, name: str, how: str) -> None:
        """What the stand-in package NAME does at its installation from now on: "fail", "sleep SECONDS", or "" for nothing."""
        folder = self.path("/var/lib/gpusetup-lab/faults")
        folder.mkdir(parents=True, exist_ok=True)
        if how:
            (folder / name).write_text(how + "\n")
        else:
            (folder / name).unlink(missing_ok=True)

    def freeze(self) -> None:
        """It hangs: connections stay open and nothing answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def lose_at_reboot(self, *, lost: bool = True) -> None:
        """The next reboot does not come back; `power_on` brings it up again."""
        if lost:
            (self.folder / "lost").touch()
        else:
            (self.folder / "lost").unlink(missing_ok=True)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _mount(self) -> None:
        disk = self._layers()
        if "/" in self.spec.disks:
            disk.mkdir()
            run(["mount", "-t", "tmpfs", "-o", f"size={self.spec.disks['/']}m,mode=755", "gpusetup-lab", disk])
        for folder in (disk / "upper", disk / "work", self.root):
            folder.mkdir()
        self.mount_layers()
        for number, (mount, size) in enumerate(sorted(self.spec.disks.items())):
            if mount == "/":
                continue
            disk, content = self.folder / f"disk{number}", self.path(mount)
            disk.mkdir()
            run(["mount", "-t", "tmpfs", "-o", f"size={size}m,mode=755", "gpusetup-lab", disk])
            content.mkdir(parents=True, exist_ok=True)
            run(["cp", "-a", f"{content}/.", disk])
            run(["mount", "--bind", disk, content])

    def _layers(self) -> Path:
        return self.folder / "disk" if "/" in self.spec.disks else self.folder

    def mount_layers(self) -> None:
        """Put what the host wrote over the root file system that it shares with others."""
        lower, own = ROOTS[FLAVOURS[self.spec.flavour].root].ready(), self._layers()
        layers = f"lowerdir={lower},upperdir={own / 'upper'},workdir={own / 'work'}"
        # dpkg waits for the disk after each file; a host that is thrown away need not: half the time of a package.
        quick = [f"{layers},volatile"] if self.spec.disk == "quick" else []
        for options in (*quick, layers):  # kernels before 5.10 refuse the first
            done = run(["mount", "-t", "overlay", "gpusetup-lab", "-o", options, self.root], check=options == layers)
            if done.returncode == 0:
                break

    def _disk_binds(self) -> list[str]:
        others = ((number, mount) for number, mount in enumerate(sorted(self.spec.disks)) if mount != "/")
        return [f"--bind={self.folder / f'disk{number}'}:{mount}" for number, mount in others]

    def pin_host_key(self, public: str) -> None:
        """From now on only a host that has this key is taken for it."""
        kind, key = public.split()[:2]
        (self.folder / "known_host").write_text(f"{self.address} {kind} {key}\n")
        _write_known_hosts()

    def _parent(self) -> int | None:
        """The supervising shell, if it is still the process we started: a number may be used again."""
        try:
            pid, then = (self.folder / "parent.pid").read_text().split()
        except (OSError, ValueError):
            return None
        return int(pid) if started(int(pid)) == then else None

    def _cgroups(self, *, make: bool = False) -> list[Path]:
        groups = []
        for top in CGROUPS:
            group = top / "gpusetup-lab" / self.name
            if make and (top / "cgroup.procs").exists():
                group.mkdir(parents=True, exist_ok=True)
            if group.is_dir():
                groups.append(group)
        return groups

    def _signal(self, number: int) -> None:
        for pid in network.processes(self.name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


_OPTIONS = (
    "IdentitiesOnly=yes", "BatchMode=yes", "StrictHostKeyChecking=yes", f"UserKnownHostsFile={KNOWN_HOSTS}",
    "GlobalKnownHostsFile=/dev/null", "ConnectTimeout=5",
)  # fmt: skip
SSH_COMMON = " ".join(f"-o {option}" for option in _OPTIONS)
"""What an inventory says of SSH."""


def _write_known_hosts() -> None:
    with locked("known_hosts"):
        KNOWN_HOSTS.parent.mkdir(parents=True, exist_ok=True)
        new = KNOWN_HOSTS.with_name("known_hosts.new")
        new.write_text("".join(map(_text, sorted(HOSTS.glob("*/known_host")))))
        new.replace(KNOWN_HOSTS)


def _text(path: Path) -> str:
    """Its content; nothing when another process has just removed the host."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def _remove_group(group: Path) -> None:
    """A control group can go when its last process has been buried, which may take a moment after its end."""
    deadline = time.monotonic() + 60
    while True:
        try:
            for folder in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
                folder.rmdir()
            return group.rmdir()
        except OSError as error:  # noqa: PERF203
            if time.monotonic() > deadline:
                raise LabError(f"the control group {group} cannot be removed: {error}") from None
            time.sleep(0.05)


def _mounts_under(folder: Path) -> list[str]:
    mounts = (line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines())
    return [mount for mount in mounts if mount.startswith(f"{folder}/")]


def _documents() -> dict[Path, dict[str, Any]]:
    texts = {path.parent: _text(path) for path in sorted(HOSTS.glob("*/host.json"))}
    return {folder: json.loads(text) for folder, text in texts.items() if text}  # one may just be made or removed


def _spec(folder: Path, told: dict[str, Any]) -> HostSpec | None:
    try:
        return HostSpec(**told)
    except (LabError, TypeError) as error:
        _left_alone(folder, str(error))
        return None


@cache
def _left_alone(folder: Path, why: str) -> None:
    print(f"lab: {folder} is left alone, it is not of this checkout: {why}", file=sys.stderr)


def started(pid: int) -> str | None:
    """When the process started, in ticks; None when there is none, or only a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def _reap(pid: int | None) -> None:
    """The supervisor may be our own child; a zombie would look alive to the next one who asks."""
    if pid:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
