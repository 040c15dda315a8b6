"""NVIDIA's `.run` file: inspect and verify it, install the driver with options it supports, check the result. No
package owns the files of that driver; its own uninstaller removes them.

The header is read, never run, before the file is verified. The file is unpacked and run in a folder that only root may
enter.
"""

import glob
import hashlib
import os
import re
import shutil
import stat
import tempfile
from typing import Any, Callable, Dict, List, Optional, Tuple

from ..gpu_probe.environment import changeable
from . import dkms, download, process, space
from .failure import HostFailure
from .journal import UNKNOWN, State, Thing

_HEADER = 64 * 1024
_BLOCK = 1 << 20
_FIELD = re.compile(r'^(version_string|label|script|TARGET_ARCH)="?([^"\n]*?)"?\s*$', re.MULTILINE)
_INSTALLER = "./nvidia-installer"
LOG = "/var/log/nvidia-installer.log"

Tell = Callable[..., None]
Log = Optional[Callable[[str], None]]
_UNINSTALLERS = ("/usr/bin/nvidia-uninstall", "/usr/local/bin/nvidia-uninstall", "/usr/bin/nvidia-installer")
_LEFT_OVERS = (
    "/etc/modprobe.d/nvidia-installer-disable-nouveau.conf",
    "/usr/lib/modprobe.d/nvidia-installer-disable-nouveau.conf",
)


def uninstaller(env: Dict[str, str]) -> Optional[str]:
    """Return the uninstaller of a .run installation, None without one or if a package owns it."""
    for path in _UNINSTALLERS:
        if os.access(path, os.X_OK):
            owners = (["dpkg-query", "-S", path], ["rpm", "-qf", path])
            return None if any(process.output(argv, env)[0] == 0 for argv in owners) else path
    return None


class Present(Thing):
    """The driver of a `.run` file on this host; its value is the path of its uninstaller."""

    kind = "driver of the"
    section = "runfile"
    whole = True

    def __init__(self, env: Dict[str, str], log: Log = None) -> None:
        super().__init__(".run installer")
        self.env = env
        self.log = log
        self.tail: List[str] = []

    def look(self) -> Optional[str]:
        return uninstaller(self.env)

    def make(self, wanted: Any) -> None:
        if wanted is not None:
            raise NotImplementedError
        code, self.tail = run_uninstaller(self.env, self.log)
        if code:
            raise self.failure(self.look(), None)

    def failure(self, now: Optional[str], _wanted: Any) -> HostFailure:
        return HostFailure(
            "GS-492", "the .run installation could not be removed", now or "", " | ".join(self.tail[-4:]),
            "see /var/log/nvidia-uninstall.log",
        )  # fmt: skip

    def aim(self, wanted: Any) -> str:
        return f"be {wanted}" if wanted else "go"

    def first(self, state: State) -> Any:
        """Report that there was none before us, as none could be restored."""
        return None if state[self.section] else UNKNOWN

    def forget(self, state: State) -> None:
        state[self.section] = {}


def remove(env: Dict[str, str], ledger: Any, tell: Tell, log: Log = None) -> bool:
    """Remove a .run installation. This cannot be undone, so it is done only on explicit request."""
    driver = Present(env, log)
    there = driver.look()
    if there is not None:
        tell("runfile", "removing the .run installation with its own uninstaller")
    known = bool(ledger.state["runfile"])
    ledger.undo(driver)
    if there is None:
        return False
    if not known:
        driver.make(None)
        if driver.look():
            raise driver.failure(driver.look(), None)
    for left in _LEFT_OVERS:
        ledger.delete(left)
    return True


def run_uninstaller(env: Dict[str, str], log: Log) -> Tuple[int, List[str]]:
    path = uninstaller(env)
    if path is None:
        return 0, []
    argv = [path, "--silent"] + (["--uninstall"] if path.endswith("nvidia-installer") else [])
    return process.stream(argv, env, log=log)


def _header_fields(path: str, first: bytes) -> Dict[str, str]:
    """Return the version, CPU and title in a `.run` file's header; fail if it is not NVIDIA's driver."""
    text = first.decode("latin-1")
    found = dict(_FIELD.findall(text))
    if not text.startswith("#!") or found.get("script", "").strip() != _INSTALLER or not found.get("version_string"):
        raise HostFailure(
            "GS-475",
            "this is not a .run installer of NVIDIA's driver",
            path,
            hint="download NVIDIA-Linux-<arch>-<version>.run; a CUDA .run file has the driver's inside: "
            "sh cuda_….run --extract=/root",
        )
    return {"version": found["version_string"], "arch": found.get("TARGET_ARCH", ""), "title": found.get("label", "")}


def prove(path: str, sha256: str, version: str, machine: str) -> None:
    """Fail on a file that others can change, that has another digest, or that is for another version or machine."""
    refuse_unproven(path, sha256, "GS-475", "the .run installer")
    with open(path, "rb") as stream:
        _fits(path, _header_fields(path, stream.read(_HEADER)), version, machine)


def refuse_unproven(path: str, sha256: str, reference: str, what: str) -> None:
    """Fail on a file that others can change or replace, so that they could run anything as root, or that has another
    digest.
    """
    try:
        regular = stat.S_ISREG(os.lstat(path).st_mode)
        theirs = changeable(path) if regular else path
        real = digest(path) if sha256 and not theirs else ""
    except OSError as error:
        hint = "copy it to the host, or correct gpusetup_source"
        raise HostFailure(reference, f"{what} cannot be read", path, error.strerror or "", hint) from error
    if theirs:
        hint = f"move it to a folder of root's, such as /root; chown root:root {path}; chmod 0644 {path}"
        note = f"others can change {theirs}" if regular else "it is not a regular file"
        raise HostFailure(reference, f"users other than root can change {what}", path, note, hint)
    if real != sha256.lower():
        raise HostFailure(
            reference, f"{what} is not the expected file", path, f"expected SHA-256 {sha256.lower()}, got {real}",
            "download it again; never take the new digest unchecked",
        )  # fmt: skip


def look(path: str, params: Dict[str, Any], machine: str) -> Dict[str, int]:
    """Verify an installer before any change, one not yet downloaded by its beginning; return the space in MiB that it
    needs, by folder.
    """
    version, folder = params["driver_version"], params["state_dir"]
    if os.statvfs(space.existing(folder)).f_flag & os.ST_NOEXEC:
        what = "no program may run from the folder of the .run installer"
        hint = f"mount -o remount,exec what findmnt -T {folder} shows, then run the same command again"
        raise HostFailure("GS-475", what, folder, "its file system is mounted noexec", hint)
    here = download.place(folder, path) if download.is_address(path) else path
    if here == path or os.path.isfile(here):
        prove(here, params["runfile_sha256"], version, machine)
        return {}
    first, length = download.start_of(path, params["network"])
    _fits(path, _header_fields(path, first), version, machine)
    return {folder: -(-length >> 20)}


def _fits(path: str, told: Dict[str, str], version: str, machine: str) -> None:
    if version and told["version"] != version:
        raise HostFailure(
            "GS-475", "the .run installer holds {}, not {}".format(told["version"], version), path, told["title"]
        )
    if told["arch"] and told["arch"] != machine:
        raise HostFailure("GS-475", "the .run installer is for {}, this host is {}".format(told["arch"], machine), path)


def digest(path: str) -> str:
    seen = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(_BLOCK), b""):
            seen.update(block)
    return seen.hexdigest()


def packaged(env: Dict[str, str]) -> str:
    """Return the package that owns the driver's nvidia-smi on this host, empty if none does."""
    path = process.which("nvidia-smi", env)
    if path is None:
        return ""
    code, text, _error = process.output(["dpkg-query", "-S", path], env)
    if code == 0 and ":" in text:
        return text.split(":")[0]
    code, text, _error = process.output(["rpm", "-qf", "--qf", "%{NAME}", path], env)
    return text.strip() if code == 0 else ""


class Driver(Present):
    """The driver of a `.run` file that is to be installed."""

    def __init__(self, installation: "Installation", path: str) -> None:
        super().__init__(installation.env, installation.log)
        self.installation = installation
        self.path = path
        self.known: Dict[str, Any] = dict(installation.ledger.state["runfile"])
        """The record before this call."""

    def fits(self, now: Optional[str], wanted: Any) -> bool:
        """Return whether the wanted version is completely installed."""
        return bool(now and self.known.get("version") == wanted and self.installation.is_complete())

    def make(self, wanted: Any) -> None:
        del wanted
        self.installation.install(self.path)

    def came_about(self, now: Optional[str], _wanted: Any) -> bool:
        """Return whether its uninstaller and all modules exist."""
        return bool(now) and self.installation.is_complete()

    def failure(self, _now: Optional[str], _wanted: Any) -> HostFailure:
        return HostFailure("GS-477", "the .run installer could not install the driver", LOG, "", "read the log")

    def note(self, state: State, before: Optional[str], wanted: Any) -> None:
        """Record the file, and whether a driver of another `.run` file was there before."""
        replaced = bool(self.known.get("replaced", before)) if self.known else before is not None
        state[self.section] = {"path": self.installation.request["path"], "version": wanted, "replaced": replaced}


class Installation:
    """One run of the installer."""

    def __init__(self, request: Dict[str, Any], machine: Any, ledger: Any, tell: Tell, log: Log) -> None:
        self.request = request
        self.machine = machine
        self.ledger = ledger
        self.tell = tell
        self.log = log
        self.env = process.environment(request["network"])

    def is_installed(self) -> bool:
        """Return whether this very driver is installed, by its uninstaller and its modules."""
        known = self.ledger.state["runfile"]
        same = known.get("version") == self.request["version"] and not self.ledger.opened(Driver.kind, ".run installer")
        return bool(same and uninstaller(self.env) and self.is_complete())

    def run(self) -> Dict[str, Any]:
        """Install; after a failure nothing of it stays, unless a driver of another `.run` file was there."""
        request, path = self.request, self._brought()
        try:
            prove(path, request["sha256"], request["version"], os.uname().machine)
        except HostFailure:
            self._forget(path)
            raise
        owner = packaged(self.env)
        if owner:
            raise HostFailure(
                "GS-476",
                f"a driver from packages is installed ({owner}): a .run installer would overwrite its files",
                request["path"], hint="remove the packages first: gpusetup apply --replace",
            )  # fmt: skip
        for left in glob.glob(os.path.join(request["state_dir"], "runfile-*")):  # of an interrupted call
            shutil.rmtree(left)
        return {"changed": self.ledger.change(Driver(self, path), request["version"])}

    def install(self, path: str) -> None:
        folder = tempfile.mkdtemp(prefix="runfile-", dir=self.request["state_dir"])
        try:
            self._install(path, os.path.join(folder, "driver"), uninstaller(self.env) is not None)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def is_complete(self) -> bool:
        """Return whether every relevant kernel has its module."""
        return not dkms.missing(self.machine, self._wish())

    def _brought(self) -> str:
        path: str = self.request["path"]
        if not download.is_address(path):
            return path
        self.tell("download", "downloading the .run installer")
        return download.bring(path, self.request["network"], self.request["state_dir"], self.tell)

    def _forget(self, path: str) -> None:
        """Delete a downloaded file that is wrong, so that the next run downloads it again; others are not ours."""
        if path != self.request["path"]:
            os.unlink(path)

    def _install(self, path: str, folder: str, was: bool) -> None:
        self.tell("check", "checking the .run installer")
        code, out, error = process.output(["sh", path, "--check"], self.env, 600)
        if code:
            self._forget(path)
            raise HostFailure("GS-475", "the .run installer is damaged", path, (out + error).strip()[-300:])
        self.tell("unpack", "unpacking the .run installer")
        code, tail = process.stream(["sh", path, "--extract-only", "--target", folder], self.env, log=self.log)
        if code or not os.access(os.path.join(folder, "nvidia-installer"), os.X_OK):
            note = " | ".join(tail[-3:])
            raise HostFailure("GS-477", "the .run installer cannot be unpacked", path, note, "is there enough space?")
        for kernel in self.machine.wanted_kernels(self.request["kernels"]):
            self._for_kernel(folder, kernel, was)

    def _for_kernel(self, folder: str, kernel: str, was: bool) -> None:
        self.tell("install", "installing the driver for kernel " + kernel)
        argv = ["env", "-C", folder, _INSTALLER, *self._flags(folder, kernel)]
        code, tail = process.stream(argv, self.env, lambda line: self.tell("install", line.strip()[:80]), log=self.log)
        problem = dkms.missing(self.machine, self._wish())
        if code == 0 and not problem and uninstaller(self.env):
            return
        built = dkms.build_error()
        note = " | ".join(part for part in (built["error"] if built else "", problem or "", *tail[-3:]) if part)
        if not was:
            run_uninstaller(self.env, self.log)
        left = uninstaller(self.env)
        note += "" if left else "; gpusetup removed all of it"
        raise HostFailure("GS-477", "the .run installer could not install the driver", LOG, note[:900], "read the log")

    def _flags(self, folder: str, kernel: str) -> List[str]:
        """Return the arguments, only such as this installer lists."""
        _code, listed, _error = process.output(["env", "-C", folder, _INSTALLER, "--advanced-options"], self.env, 60)
        flags = ["--silent", "--kernel-name=" + kernel]
        if self.request["dkms"]:
            flags.append("--dkms")
        flavour = self.request["flavour"]
        if flavour and "--kernel-module-type" in listed:
            flags.append("--kernel-module-type=" + flavour)
        elif flavour == "open" and "--kernel-module-build-directory" in listed:
            flags.append("--kernel-module-build-directory=kernel-open")
        elif flavour == "open":
            raise HostFailure(
                "GS-477", "this .run installer has no open kernel modules", self.request["path"],
                hint="take a newer one, or proprietary modules",
            )  # fmt: skip
        # The next step loads the module, with the options of modprobe.d, and knows what uses the GPU.
        more = ("--skip-module-load", "--allow-installation-with-running-driver", "--no-x-check")
        return flags + [flag for flag in more if flag in listed]

    def _wish(self) -> Dict[str, Any]:
        request = self.request
        return {
            "driver_version": request["version"],
            "driver_module": request["flavour"],
            "kernels": request["kernels"],
        }
