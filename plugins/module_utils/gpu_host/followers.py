"""What must follow a file before it counts: a boot menu or an initramfs made anew, a service manager that reads its
settings again, a unit that is restarted.

Whether it is due is read from the host, never from what a call changed: what failed once, or was cut off before its
turn, is due still when the same command comes again, in removal too.
"""

import glob
import os
import re
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from ..gpu_judge import gpudirect, names
from ..gpu_probe import initramfs
from . import boot_image, files, kernel_module, process, systemd
from .failure import HostFailure
from .machine import Machine

MENUS = ("/boot/grub/grub.cfg", "/boot/grub2/grub.cfg")
GRUB_SETTINGS = ("/etc/default/grub", "/etc/default/grub.d/*.cfg")
_LIMITS = "/proc/{}/limits"
_HOLD_LIMITS = ("docker", "containerd", "crio", "kubelet", "slurmd")
"""Services that hand their limits on to programs that use RDMA."""
Env = Dict[str, str]


class Follower:
    """One of them. `run` may fail; whether it worked is told by the next look."""

    what = ""

    def due(self) -> bool:
        """Say whether the host still lacks it."""
        raise NotImplementedError

    def run(self) -> None:
        """Do it."""
        raise NotImplementedError


def settle(followers: Iterable[Follower], check: bool) -> List[str]:
    """Run those that are due; return which took effect (in a check: would be run)."""
    done = []
    for follower in followers:
        if not follower.due():
            continue
        if not check:
            follower.run()
        if check or not follower.due():
            done.append(follower.what)
    return done


class BootMenu(Follower):
    """GRUB's menu, which must have a kernel argument where GRUB's settings have it, and only there.

    Where there is no menu yet, whoever makes the first one reads the settings.
    """

    def __init__(self, argument: str, env: Env, log: boot_image.Log = None) -> None:
        self.what = "the boot menu"
        self.argument = re.compile(r"(?<![\w.,])" + re.escape(argument) + r"(?![\w,])")
        self.env, self.log = env, log

    def due(self) -> bool:
        """Compare the menus with the settings."""
        menus = [text for text in map(files.read_text, MENUS) if text]
        paths = [path for pattern in GRUB_SETTINGS for path in sorted(glob.glob(pattern))]
        lines = [line for path in paths for line in (files.read_text(path) or "").splitlines()]
        wanted = any(self.argument.search(line) for line in lines if not line.lstrip().startswith("#"))
        return any(bool(self.argument.search(menu)) != wanted for menu in menus)

    def run(self) -> None:
        """Have GRUB write it."""
        boot_image.command(["update-grub"], self.env, self.log)


class BootImage(Follower):
    """The initramfs of a kernel, which must carry our settings of the modules that lie in it as the host has them.

    `forgets` says that settings of ours may have gone. `seen` keeps what is in which image, from a look before to the
    work after it: to read one takes a second or two.
    """

    def __init__(
        self,
        kernel: str,
        env: Env,
        log: boot_image.Log = None,
        seen: Optional[Dict[str, Dict[str, Any]]] = None,
        forgets: bool = False,
    ) -> None:
        self.forgets = forgets
        self.what = "the initramfs of " + kernel
        self.kernel, self.env, self.log = kernel, env, log
        self.path = boot_image.path_of(kernel)
        self.seen = {} if seen is None else seen

    def look(self) -> Dict[str, Any]:
        """Return what is in it."""
        path = self.path or ""
        if path not in self.seen:
            self.seen[path] = initramfs.contents(path, 60)
        return self.seen[path]

    def due(self) -> bool:
        """Compare it with the host, file by file; one that cannot be read must be younger than them."""
        if self.path is None:
            return False
        found, ours = self.look(), _module_settings()
        if found["why"]:
            changes = [files.changed_at(path) for path in ours if self.forgets or os.path.exists(path)]
            return os.stat(self.path).st_mtime < max(changes, default=0)
        return any(self._stale(path, modules, found) for path, modules in ours.items())

    @staticmethod
    def _stale(path: str, modules: Sequence[str], found: Dict[str, Any]) -> bool:
        wanted, there = files.read_text(path), found["settings"].get(path)
        if wanted is None:
            return there is not None
        if path == names.NOUVEAU_FILE and found["blacklist"]:  # by whose file does not matter
            return False
        return bool(there != wanted and found["modules"] & set(modules))

    def run(self) -> None:
        """Make it anew."""
        boot_image.rebuild(self.kernel, self.path or "", self.env, self.log)
        self.seen.pop(self.path or "", None)


def _module_settings() -> Dict[str, Sequence[str]]:
    """Return our files of modprobe.d, each with the modules that it is for."""
    return {
        names.NOUVEAU_FILE: ("nouveau", "nova_core"),
        kernel_module.OPTIONS: ("nvidia",),
        gpudirect.OPTIONS: ("nvme_core", "nvidia"),
    }


def options(machine: Machine, wanted: Dict[str, Any], given: Sequence[str]) -> Tuple[List[str], List[str]]:
    """Return which options of the loaded module wait for its next loading, and which are refused."""
    if not wanted or machine.simulated is not None:
        return [], []
    images = [boot_image.path_of(kernel) for kernel in machine.wanted_kernels(given)]
    return kernel_module.otherwise(wanted, [path for path in images if path], process.environment())


class LockedMemory(Follower):
    """systemd's default limit of locked memory, which it reads from its settings when it is executed again."""

    what = "systemd's limit of locked memory"
    _UNLIMITED = re.compile(r"^\s*DefaultLimitMEMLOCK\s*=\s*infinity", re.MULTILINE)

    def __init__(self, env: Env) -> None:
        self.env = env

    def due(self) -> bool:
        """Compare what it says with its settings."""
        _code, has, _error = process.output(["systemctl", "show", "--property=DefaultLimitMEMLOCK"], self.env, 30)
        drop_ins = glob.glob(os.path.join(os.path.dirname(gpudirect.MANAGER), "*.conf"))
        settings = [files.read_text(path) or "" for path in ["/etc/systemd/system.conf", *drop_ins]]
        if any(map(self._UNLIMITED.search, settings)):
            return "=" in has and "infinity" not in has
        return "infinity" in has and not _unlimited(1)  # it would have its own limit for a default

    def run(self) -> None:
        """Have it read them; services go on meanwhile."""
        boot_image.command(["systemctl", "daemon-reexec"], self.env)


def with_old_limit(env: Env) -> List[str]:
    """Return the services that were started before the limit of locked memory was lifted."""
    wanted = ["systemctl", "show", "--property=Id,ActiveState,MainPID,LimitMEMLOCK"]
    _code, text, _error = process.output(wanted + [name + ".service" for name in _HOLD_LIMITS], env, 30)
    found = []
    for block in re.split(r"\n\s*\n", text.strip()):
        fields = dict(re.findall(r"^(\w+)=(.*)$", block, re.MULTILINE))
        pid = int(fields.get("MainPID") or 0)
        if fields.get("ActiveState") == "active" and fields.get("LimitMEMLOCK") == "infinity" and pid:
            found += [] if _unlimited(pid) else [fields["Id"].rpartition(".")[0]]
    return found


def _unlimited(pid: int) -> bool:
    text = files.read_text(_LIMITS.format(pid))
    return text is None or bool(re.search(r"^Max locked memory\s+unlimited", text, re.MULTILINE))


class Restart(Follower):
    """A unit that has run since before its files were written, or went, by this apply or by one that was cut."""

    def __init__(self, unit: str, paths: Iterable[str], env: Env) -> None:
        self.what = self.unit = unit
        self.paths, self.env = list(paths), env

    def due(self) -> bool:
        """Compare its start with its files."""
        started = systemd.active_since(self.unit, self.env)
        return started is not None and any(files.changed_at(path) > started for path in self.paths)

    def run(self) -> None:
        """Restart it; whether it serves then is for whoever set it up to prove."""
        code, _out, error = process.output(["systemctl", "restart", self.unit], self.env, 120)
        if code:
            said = systemd.last_words(self.unit, self.env)
            raise HostFailure("GS-487", f"{self.unit} did not start", error.strip(), said, "journalctl -u " + self.unit)
