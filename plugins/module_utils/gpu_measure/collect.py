"""What a machine says about its GPUs without opening a CUDA context: the `quick` half of the observations.

Standard library only, Python 3.6 syntax. Everything is read with a deadline and returned raw; nothing is judged here.
"""

import glob
import os
import re
import stat
import threading
import time

import child

SMI_DEADLINE = 30
TOOL_DEADLINE = 10
UNITS = (
    "nvidia-persistenced.service",
    "nvidia-fabricmanager.service",
    "nvidia-imex.service",
    "nvidia-cdi-refresh.path",
)
# By name, never the banner: its labels changed more than once.
QUERY_FIELDS = ("index", "uuid", "pci.bus_id", "compute_cap")
LOG_LINES = 400
_SUPPORTED_CLOCKS = re.compile(r"\s*<supported_clocks>.*?</supported_clocks>", re.DOTALL)


def _smi(*arguments):
    answer = child.run(["nvidia-smi", *list(arguments)], SMI_DEADLINE)
    answer["stdout"] = _SUPPORTED_CLOCKS.sub("", answer["stdout"])
    return answer


def read(path, limit=65536):
    """A small file's text, None when it is not there or not for us."""
    try:
        with open(path, "rb") as stream:
            return stream.read(limit).decode("utf-8", "replace").strip()
    except (OSError, ValueError):
        return None


def pci_devices(root="/"):
    """NVIDIA functions on the PCI bus as the kernel sees them, driver or not."""
    found = []
    for folder in sorted(glob.glob(os.path.join(root, "sys/bus/pci/devices/*"))):
        if read(os.path.join(folder, "vendor")) != "0x10de":
            continue
        device = {"address": os.path.basename(folder)}
        for name in (
            "class",
            "device",
            "subsystem_vendor",
            "subsystem_device",
            "numa_node",
            "current_link_speed",
            "current_link_width",
            "max_link_speed",
            "max_link_width",
        ):
            device[name] = read(os.path.join(folder, name))
        parent = os.path.dirname(os.path.realpath(folder))
        device["slot_max_link_speed"] = read(os.path.join(parent, "max_link_speed"))
        device["slot_max_link_width"] = read(os.path.join(parent, "max_link_width"))
        driver = os.path.join(folder, "driver")
        device["driver"] = os.path.basename(os.path.realpath(driver)) if os.path.exists(driver) else None
        found.append(device)
    return found


def module():
    """The kernel module that is loaded, the one on disk, and whether nouveau is there."""
    loaded = set()
    for line in (read("/proc/modules", 1 << 20) or "").splitlines():
        loaded.add(line.split()[0])
    loaded.update(
        name for name in ("nvidia", "nvidia_uvm", "nouveau", "nova_core") if os.path.isdir("/sys/module/" + name)
    )
    interesting = sorted(name for name in loaded if name.startswith(("nvidia", "nouveau", "nova", "gdrdrv")))
    on_disk = child.run(["modinfo", "nvidia"], TOOL_DEADLINE)
    fields = dict(line.split(":", 1) for line in on_disk["stdout"].splitlines() if ":" in line)
    return {
        "loaded": interesting,
        "proc_version": read("/proc/driver/nvidia/version"),
        "sys_version": read("/sys/module/nvidia/version"),
        "params": read("/proc/driver/nvidia/params"),
        "on_disk": {
            "version": fields.get("version", "").strip() or None,
            "license": fields.get("license", "").strip() or None,
        },
    }


def nouveau():
    """Is nouveau in the initramfs that boots next, and is it blacklisted there?"""
    kernel = os.uname().release
    default = next(
        (os.path.realpath(link) for link in ("/boot/initrd.img", "/initrd.img") if os.path.exists(link)), None
    )
    image = next(
        (
            path
            for path in (default, "/boot/initrd.img-" + kernel, f"/boot/initramfs-{kernel}.img")
            if path and os.path.exists(path)
        ),
        None,
    )
    answer = {"image": image, "files": None, "error": None}
    if image is None:
        return answer
    lister = "lsinitrd" if "initramfs-" in image else "lsinitramfs"
    listing = child.run([lister, image], 20)
    if listing["rc"] != 0:
        answer["error"] = listing["error"] or listing["stderr"][-300:]
        return answer
    names = listing["stdout"].split()
    answer["files"] = sorted({name for name in names if re.search(r"/(nouveau|nova.core)\.ko|modprobe\.d/", name)})
    return answer


def blacklists():
    """Lines of modprobe.d and of the kernel's command line that keep nouveau away."""
    lines = []
    for folder in ("/etc/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d", "/run/modprobe.d"):
        for path in sorted(glob.glob(folder + "/*.conf")):
            for line in (read(path) or "").splitlines():
                if "nouveau" in line and not line.lstrip().startswith("#"):
                    lines.append(path + ": " + line.strip())
    options = [
        word
        for word in (read("/proc/cmdline") or "").split()
        if re.match(r"(rd\.driver\.)?(rd|module_)?blacklist|nouveau|iommu|amd_iommu|intel_iommu|nomodeset|pci=", word)
    ]
    return {"modprobe": lines, "cmdline": options}


def libraries():
    """User-space driver libraries with the version their file name carries."""
    listing = child.run(["ldconfig", "-p"], TOOL_DEADLINE)
    found = {}
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        paths = re.findall(
            r"%s \([^)]*x86-64[^)]*\) => (\S+)|%s \([^)]*AArch64[^)]*\) => (\S+)|%s \(libc6\) => (\S+)"
            % ((re.escape(name),) * 3),
            listing["stdout"],
        )
        paths = [path for match in paths for path in match if path]
        for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
            if folder and os.path.exists(os.path.join(folder, name)):
                paths.insert(0, os.path.join(folder, name))
        found[name] = sorted({os.path.realpath(path) for path in paths})
    return found


def device_files():
    """Every /dev/nvidia* with mode, owner, number, and whether this user can open it."""
    found = []
    for path in sorted(glob.glob("/dev/nvidia*") + glob.glob("/dev/nvidia-caps/*")):
        try:
            status = os.stat(path)
        except OSError as failure:
            found.append({"path": path, "error": str(failure)})
            continue
        if stat.S_ISDIR(status.st_mode):
            continue
        found.append(
            {
                "path": path,
                "character": stat.S_ISCHR(status.st_mode),
                "mode": f"{stat.S_IMODE(status.st_mode):04o}",
                "uid": status.st_uid,
                "gid": status.st_gid,
                "major": os.major(status.st_rdev),
                "minor": os.minor(status.st_rdev),
                "access": os.access(path, os.R_OK | os.W_OK),
            }
        )
    majors = re.findall(r"^\s*(\d+) (nvidia\S*)$", read("/proc/devices") or "", re.MULTILINE)
    return {"files": found, "majors": {name: int(number) for number, name in majors}}


def proc_gpus():
    """What the driver itself lists, one entry per GPU it took."""
    found = {}
    for path in sorted(glob.glob("/proc/driver/nvidia/gpus/*/information")):
        found[path.split("/")[-2]] = read(path)
    return found


def nvswitches():
    """NVSwitch devices: the driver's list where it has one, else bridges of NVIDIA on PCI (class 0680)."""
    listed = sorted(os.path.basename(path) for path in glob.glob("/proc/driver/nvidia-nvswitch/devices/*"))
    return {
        "driver": listed,
        "pci": [device["address"] for device in pci_devices() if (device["class"] or "").startswith("0x0680")],
    }


def services():
    """State of the NVIDIA services, as systemd has it."""
    properties = "Id,LoadState,ActiveState,SubState,UnitFileState"
    answer = child.run(["systemctl", "show", "--property=" + properties, *list(UNITS)], TOOL_DEADLINE)
    if answer["rc"] != 0:
        return {"error": answer["error"] or answer["stderr"][-300:], "units": {}}
    units = {}
    for block in answer["stdout"].split("\n\n"):
        fields = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if fields.get("Id"):
            units[fields.pop("Id")] = fields
    return {"error": None, "units": units}


def fabric_manager():
    """The fabric manager's own version."""
    return child.run(["nv-fabricmanager", "--version"], TOOL_DEADLINE)


def kernel_log():
    """Lines of this boot's kernel log that speak of the driver."""
    for argv in (
        ["journalctl", "-k", "-b", "--no-pager", "-o", "short-iso", "-q"],
        ["dmesg", "--time-format=iso"],
        ["dmesg"],
    ):
        answer = child.run(argv, TOOL_DEADLINE)
        if answer["rc"] == 0 and answer["stdout"]:
            lines = [line for line in answer["stdout"].splitlines() if re.search(r"NVRM|nvidia|nouveau|\bXid\b", line)]
            return {"source": argv[0], "lines": lines[-LOG_LINES:], "error": None}
    return {
        "source": None,
        "lines": [],
        "error": answer["error"] or answer["stderr"][-300:] or "the kernel log is empty or not readable",
    }


def containers():
    """Container toolkit and CDI specification, when there."""
    version = child.run(["nvidia-ctk", "--version"], TOOL_DEADLINE)
    answer = {"ctk": version, "cdi": [], "runtimes": {}}
    if version["error"] == "missing":
        return answer
    for path in sorted(glob.glob("/etc/cdi/*") + glob.glob("/var/run/cdi/*")):
        text = read(path, 1 << 20) or ""
        answer["cdi"].append(
            {
                "path": path,
                "kind": (re.findall(r"kind: *\"?([\w./-]+)", text) or [None])[0],
                "devices": re.findall(r"^\s*-?\s*name: *\"?([\w:.-]+)", text, re.MULTILINE)[:200],
                "driver_versions": sorted(set(re.findall(r"libcuda\.so\.(\d[\d.]+\d)", text))),
            }
        )
    for name, path in (("docker", "/etc/docker/daemon.json"), ("containerd", "/etc/containerd/config.toml")):
        text = read(path)
        if text is not None:
            answer["runtimes"][name] = "nvidia" in text
    return answer


def machine():
    """Who and where we are."""
    try:
        user = os.geteuid()
    except AttributeError:
        user = None
    nodes = {}
    for path in sorted(glob.glob("/sys/devices/system/node/node[0-9]*")):
        nodes[os.path.basename(path)[4:]] = read(os.path.join(path, "cpulist"))
    return {
        "host": os.uname().nodename,
        "kernel": os.uname().release,
        "machine": os.uname().machine,
        "uid": user,
        "boot_id": read("/proc/sys/kernel/random/boot_id"),
        "time": time.time(),
        "cpus": os.cpu_count(),
        "numa_nodes": nodes,
        "environment": {
            key: value
            for key, value in os.environ.items()
            if key.startswith(("NCCL_", "CUDA_", "NVSHMEM_")) and len(value) < 200
        },
    }


def lock():
    """What apply recorded on this machine, if it did."""
    return read("/var/lib/gpusetup/lock.json", 1 << 20)


COLLECTORS = (
    ("smi", lambda: _smi("-q", "-x")),
    ("smi_query", lambda: _smi("--query-gpu=" + ",".join(QUERY_FIELDS), "--format=csv,noheader,nounits")),
    ("smi_list", lambda: _smi("-L")),
    ("topology", lambda: _smi("topo", "-m")),
    ("nvlink_status", lambda: _smi("nvlink", "-s")),
    ("nvlink_errors", lambda: _smi("nvlink", "-e")),
    ("pci", pci_devices),
    ("module", module),
    ("initramfs", nouveau),
    ("blacklists", blacklists),
    ("libraries", libraries),
    ("device_files", device_files),
    ("proc_gpus", proc_gpus),
    ("nvswitches", nvswitches),
    ("services", services),
    ("fabric_manager", fabric_manager),
    ("kernel_log", kernel_log),
    ("containers", containers),
    ("machine", machine),
    ("lock", lock),
)


class Collection:
    """All collectors at once, each in its thread; one that fails says so in its own place."""

    def __init__(self, names=None):
        self.values, self.seconds, self._threads = {}, {}, {}
        self._started = time.time()
        for name, collector in COLLECTORS:
            if names is None or name in names:
                thread = threading.Thread(target=self._one, args=(name, collector))
                thread.daemon = True
                self._threads[name] = thread
                thread.start()

    def _one(self, name, collector):
        started = time.time()
        try:
            self.values[name] = collector()
        except Exception as failure:  # a collector's bug must not hide the others
            self.values[name] = {"error": f"{type(failure).__name__}: {failure}"}
        self.seconds[name] = round(time.time() - started, 3)

    def wait(self, name):
        """One collector's value."""
        self._threads[name].join(SMI_DEADLINE + 10)
        return self.values.get(name)

    def finish(self):
        """All values."""
        for name in self._threads:
            self.wait(name)
        return dict(self.values)
