"""Work that must follow a change of files: rebuild a boot menu or an initramfs, have a service manager read its
settings again, restart a unit.

Whether it is due is read from the host, never from what a call changed: work that failed or was interrupted is still
due when the same command runs again, or on removal.
"""

import glob
import os
import re
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from ..gpu_judge import gpudirect, names
from ..gpu_probe import initramfs
from . import boot_image, files, kernel_module, process, systemd
from .machine import Machine

MENUS = ("/boot/grub/grub.cfg", "/boot/grub2/grub.cfg")
GRUB_SETTINGS = ("/etc/default/grub", "/etc/default/grub.d/*.cfg")
_LIMITS = "/proc/{}/limits"
_SYSTEMD = ("/usr/lib/systemd", "/usr/local/lib/systemd", "/run/systemd", "/etc/systemd")
"""The folders of systemd's settings; a file hides one of the same name in an earlier folder."""
_HOLD_LIMITS = ("docker", "containerd", "crio", "kubelet", "slurmd")
"""Services that pass their limits on to programs that use RDMA."""
Env = Dict[str, str]


class Follower:
    """One piece of such work. `run` may fail; `due` shows afterwards whether it worked."""

    what = ""

    def due(self) -> bool:
        """Return whether the host still needs it."""
        raise NotImplementedError

    def run(self) -> None:
        raise NotImplementedError


def settle(followers: Iterable[Follower], check: bool) -> List[str]:
    """Run those that are due; return which took effect (in a check: which would run)."""
    done = []
    for follower in (one for one in followers if one.due()):
        if not check:
            follower.run()
        if check or not follower.due():
            done.append(follower.what)
    return done


class BootMenu(Follower):
    """GRUB's menu, which must contain a kernel argument exactly if GRUB's settings do.

    Without a menu nothing is due: whoever makes the first one reads the settings.
    """

    def __init__(self, argument: str, env: Env, log: boot_image.Log = None) -> None:
        self.what = "the boot menu"
        self.argument = re.compile(r"(?<![\w.,])" + re.escape(argument) + r"(?![\w,])")
        self.env, self.log = env, log

    def due(self) -> bool:
        menus = [text for text in map(files.read_text, MENUS) if text]
        paths = [path for pattern in GRUB_SETTINGS for path in sorted(glob.glob(pattern))]
        lines = [line for path in paths for line in (files.read_text(path) or "").splitlines()]
        wanted = any(self.argument.search(line) for line in lines if not line.lstrip().startswith("#"))
        return any(bool(self.argument.search(menu)) != wanted for menu in menus)

    def run(self) -> None:
        boot_image.command(["update-grub"], self.env, self.log)


class BootImage(Follower):
    """The initramfs of a kernel, which must contain our module settings as they are on the host.

    `forgets` says that settings of ours may have been removed. `seen` caches the contents of images, because reading
    one takes a second or two.
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
        """Return the contents of the image."""
        path = self.path or ""
        if path not in self.seen:
            self.seen[path] = initramfs.contents(path, 60)
        return self.seen[path]

    def loads_nouveau(self) -> bool:
        return bool(self.path and self.look()["nouveau"] and not self.look()["blacklist"])

    def due(self) -> bool:
        """Compare it with the host, file by file; an image that cannot be read must be newer than the files."""
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
        if path == names.NOUVEAU_FILE and found["blacklist"]:  # by any file
            return False
        return bool(there != wanted and found["modules"] & set(modules))

    def run(self) -> None:
        boot_image.rebuild(self.kernel, self.path or "", self.env, self.log)
        self.seen.pop(self.path or "", None)


def check_room(kernels: Iterable[str], env: Env, seen: Optional[Dict[str, Dict[str, Any]]] = None) -> None:
    """Fail if an initramfs must be rebuilt to keep nouveau off, and there is too little space for it."""
    for image in [BootImage(kernel, env, seen=seen) for kernel in kernels]:
        if image.loads_nouveau():
            boot_image.check_room(image.path or "")


def _module_settings() -> Dict[str, Sequence[str]]:
    return {
        names.NOUVEAU_FILE: ("nouveau", "nova_core"),
        kernel_module.OPTIONS: ("nvidia",),
        gpudirect.OPTIONS: ("nvme_core", "nvidia"),
    }


def options(machine: Machine, wanted: Dict[str, Any], given: Sequence[str]) -> Tuple[List[str], List[str]]:
    """Return the options that need the module to be loaded again, and those that it refuses."""
    if not wanted or machine.simulated is not None:
        return [], []
    images = [boot_image.path_of(kernel) for kernel in machine.wanted_kernels(given)]
    return kernel_module.otherwise(wanted, [path for path in images if path], process.environment())


class LockedMemory(Follower):
    """systemd's default limit of locked memory, which takes effect when systemd re-executes itself."""

    what = "systemd's limit of locked memory"
    _LIMIT = re.compile(r"^\s*DefaultLimitMEMLOCK\s*=\s*(\S+)", re.MULTILINE)

    def __init__(self, env: Env) -> None:
        self.env = env

    def due(self) -> bool:
        """Compare the limit in force with the settings, of which the last one counts."""
        has = systemd.shown((), "DefaultLimitMEMLOCK", self.env)[0].get("DefaultLimitMEMLOCK", "")
        named = {}
        for folder in _SYSTEMD:
            named.update({os.path.basename(path): path for path in glob.glob(folder + "/system.conf.d/*.conf")})
        main = [path for path in (f"{folder}/system.conf" for folder in _SYSTEMD) if os.path.exists(path)][-1:]
        paths = main + [named[name] for name in sorted(named)]
        if [limit for path in paths for limit in self._LIMIT.findall(files.read_text(path) or "")][-1:] == ["infinity"]:
            return has not in ("", "infinity")
        return has == "infinity" and not _unlimited(1)  # an unlimited systemd has its own limit as default

    def run(self) -> None:
        """Re-execute systemd; services keep running."""
        boot_image.command(["systemctl", "daemon-reexec"], self.env)


def with_old_limit(env: Env) -> List[str]:
    """Return the services that were started before the limit of locked memory was lifted."""
    found = []
    units = [name + ".service" for name in _HOLD_LIMITS]
    for fields in systemd.shown(units, "Id,ActiveState,MainPID,LimitMEMLOCK", env):
        pid = int(fields.get("MainPID") or 0)
        if fields.get("ActiveState") == "active" and fields.get("LimitMEMLOCK") == "infinity" and pid:
            found += [] if _unlimited(pid) else [fields["Id"].rpartition(".")[0]]
    return found


def _unlimited(pid: int) -> bool:
    text = files.read_text(_LIMITS.format(pid))
    return text is None or bool(re.search(r"^Max locked memory\s+unlimited", text, re.MULTILINE))


class Restart(Follower):
    """A unit that has run since before its files were written or removed, by this apply or an interrupted one."""

    def __init__(self, unit: str, paths: Iterable[str], env: Env) -> None:
        self.what = self.unit = unit
        self.paths, self.env = list(paths), env

    def due(self) -> bool:
        started = systemd.active_since(self.unit, self.env)
        return started is not None and any(files.changed_at(path) > started for path in self.paths)

    def run(self) -> None:
        """Restart it; the caller proves that it works."""
        systemd.restart(self.unit, self.env)
