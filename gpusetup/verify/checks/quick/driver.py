"""The driver: it answers, has the right version and licence, started cleanly, starts at the next boot, has no rival."""

import re
from collections import Counter
from typing import Any

from gpusetup.components import judge as verdicts
from gpusetup.drive.causes import counted
from gpusetup.matrix.load import matrix
from gpusetup.matrix.security import floor, vulnerable
from gpusetup.model.verdict import Finding, Item, Verdict
from gpusetup.recovery.table import Reset, meaning, of_xid, settled
from gpusetup.verify.answers import meanings
from gpusetup.verify.expected import product
from gpusetup.verify.machine import Machine
from gpusetup.verify.registry import check, from_items


@check("driver.responds", "nvidia-smi answers", needs=("gpu",), took="smi")
def driver_responds(machine: Machine) -> Finding:
    """nvidia-smi answers within its deadline.

    nvidia-smi is the first program that fails or hangs with a broken driver; gpusetup kills it at a deadline. It reads
    XML and named fields, never the banner, whose labels changed between releases.

    | what it says | what it means |
    |---|---|
    | Driver/library version mismatch | user space was upgraded under the loaded module: reboot, or unload and load it |
    | couldn't communicate with the NVIDIA driver | the module is not loaded: build failed, Secure Boot, or nouveau |
    | No devices were found | the module took no GPU: wrong flavour, unsupported GPU, or it fell off the bus |
    | Insufficient Permissions | this user may not open /dev/nvidia* |

    To do: follow the table; `gpusetup doctor` knows more causes.
    """
    answer = machine.command("smi")
    said = f"{answer.get('stdout', '')}\n{answer.get('stderr', '')}".strip()
    seconds = answer.get("seconds")
    if machine.gpus:
        slow = (seconds or 0) > 10
        persistence = "; persistence mode keeps the driver loaded" if slow else ""
        return Finding("warn" if slow else "pass", f"answered in {seconds:.1f} s{persistence}", seconds, None, 10, "s")
    if answer.get("error") in ("timeout", "timeout-unkillable"):
        deadline, hangs = answer.get("deadline"), answer["error"].endswith("unkillable")
        stuck = "; it is stuck in the driver and ends only with a reboot" if hangs else ""
        return Finding("fail", f"no answer within {deadline} s; killed{stuck}", seconds, None, deadline, "s")
    if answer.get("error") == "missing":
        return Finding("fail", "nvidia-smi not found: no driver is installed")
    if answer.get("rc") is None:
        return Finding("fail", f"nvidia-smi could not be run: {said or answer.get('error')}")
    if "version mismatch" in said:
        return Finding(
            "fail", "Driver/library version mismatch: reboot, or unload and load the module (see driver.version)"
        )
    if "couldn't communicate" in said or "not loaded" in said:
        module = "loaded" if "nvidia" in machine.facts.get("modules", ()) else "not loaded"
        return Finding("fail", f"the kernel module does not answer; it is {module} (see driver.module, nouveau.absent)")
    if "No devices were found" in said:
        return Finding("fail", "the driver is loaded but uses no GPU (see gpu.count, driver.flavour, kernel.xid)")
    if re.search("insufficient permissions", said, re.IGNORECASE):
        return Finding("fail", "this user may not open /dev/nvidia* (see device.files)")
    last = said.splitlines()[-1][:160] if said else "it printed nothing"
    return Finding("fail", f"nvidia-smi exited with {answer.get('rc')}: {last}")


@check("driver.version", "Module, libraries and lock agree", needs=("gpu",), took="facts")
def driver_version(machine: Machine) -> Finding:
    """The loaded module, the libraries on disk and the lock are one version.

    Unattended upgrades replace libraries under a module that stays loaded; every new program then fails with
    `Driver/library version mismatch` while programs already running go on. Compared here: the version that the loaded
    module reports in /proc, the version in the file names of libcuda and libnvidia-ml, the module on disk that loads at
    the next boot, the GSP firmware, and the driver that the lock names.

    To do: reboot, or stop everything that uses the GPU and reload the module; then hold the packages (`gpusetup apply`
    does).
    """
    loaded = machine.module_version
    wanted = machine.wanted.version("driver")
    libraries = {version for versions in machine.driver.get("libraries", {}).values() for version in versions}
    if loaded is None and machine.gpus and not machine.pci_gpus:
        return Finding("unsupported", "no kernel module of its own: the driver is the host system's (WSL)")
    if loaded is None:
        said = machine.command("smi").get("stdout", "") + machine.command("smi").get("stderr", "")
        problem = "the kernel module is not loaded" if "mismatch" not in said else "Driver/library version mismatch"
        return Finding("fail", problem, None, wanted)
    others = verdicts.driver.other_libraries(machine.facts, loaded)
    if others:
        both = f"libraries are {', '.join(others)}" + (" beside the right ones" if loaded in libraries else "")
        verdict: Verdict = "warn" if loaded in libraries else "fail"
        return Finding(
            verdict,
            f"the loaded module is {loaded}, {both}: Driver/library version mismatch; reboot or reload the module",
            loaded,
            wanted or others[0],
        )
    if wanted and verdicts.driver.loaded_problem(machine.facts, verdicts.driver.Wish(wanted)):
        return Finding("fail", f"the loaded module is {loaded}, the lock says {wanted}", loaded, wanted)
    on_disk = machine.driver.get("module")
    if on_disk and on_disk != loaded:
        return Finding(
            "warn", f"{loaded} is loaded, {on_disk} is on disk and will be loaded at the next boot", loaded, on_disk
        )
    firmware = {version for gpu in machine.gpus if (version := gpu.text("gsp_firmware_version"))}
    if firmware - {loaded}:
        return Finding(
            "warn", f"GSP firmware is {', '.join(sorted(firmware))}, the module {loaded}", loaded, wanted or loaded
        )
    parts = ["module"] + (["libraries"] if libraries else []) + (["lock"] if wanted else [])
    if not libraries:
        return Finding("warn", f"the module is {loaded}; no driver library found to compare with", loaded, wanted)
    return Finding("pass", f"{', '.join(parts)}: {loaded}", loaded, wanted or loaded)


@check("driver.flavour", "The module's flavour fits", needs=("gpu",), took="facts")
def driver_flavour(machine: Machine) -> Finding:
    """The kernel module has the flavour (open or proprietary) that this GPU and the lock call for.

    Blackwell and Grace Hopper work with the open modules alone, GPUs before Turing with the proprietary ones alone.
    With the wrong flavour the module loads and finds no device. The compatibility matrix lists what a GPU allows.

    To do: install the other flavour of the same version.
    """
    flavour = machine.module_flavour
    if flavour is None:
        return Finding("skip", "not checked: no module is loaded (see driver.version)")
    wanted = machine.wanted.flavour
    for device in machine.pci_gpus:
        known = product(device["pci_id"].partition(":")[2])
        if known is None:
            continue
        if known.module == "required" and flavour != "open":
            return Finding("fail", f"{known.label} works only with the open modules", flavour, "open")
        if known.module == "unsupported" and flavour == "open":
            return Finding("fail", f"{known.label} works only with the proprietary modules", flavour, "proprietary")
    wish = verdicts.driver.Wish(machine.module_version or "", wanted or "")
    if verdicts.driver.loaded_problem(machine.facts, wish):
        return Finding("fail", f"the {flavour} module is loaded, the lock says {wanted}", flavour, wanted)
    return Finding("pass", f"{flavour} module", flavour, wanted or flavour)


@check("driver.log", "The driver started cleanly", needs=("gpu",), took="kernel_log")
def driver_log(machine: Machine) -> Finding:
    """The driver started without complaints in the kernel log.

    Messages that explain a GPU that is not there: initialisation failed, GSP firmware did not start, the module and the
    GPU do not fit, another driver holds the device, I/O memory could not be mapped. Once nvidia-smi lists every GPU,
    they are a warning until the next boot, except those about the GSP firmware.

    To do: the message names the cause; `gpusetup doctor` looks it up.
    """
    log = machine.collected("kernel_log")
    if log.get("error") or log.get("source") is None:
        return Finding("skip", f"not checked: {log.get('error') or 'no kernel log'}")
    answered = machine.gpus and len(machine.gpus) >= len(machine.pci_gpus)
    past = []
    for row in meanings()["complaints"]:
        if found := [line for line in log.get("lines", []) if re.search(row["pattern"], line)]:
            text = f"{row['text']} ({counted(len(found), 'line')})"
            if not answered or row.get("lasting"):
                return Finding("fail", text)
            past.append(text)
    return Finding("warn", f"{past[0]}; every GPU answers now") if past else Finding("pass", "no known driver error")


XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]+)\): (\d+)")
_BY_PROGRAMS = (43, 45)
"""Xids that programs cause, although NVIDIA's catalogue does not ask to restart one."""
FELL_OFF = re.compile(r"NVRM: .*GPU.*(?:has )?fallen off the bus", re.IGNORECASE)


@check("kernel.xid", "No Xid in the kernel log", needs=("gpu",), took="kernel_log")
def kernel_xid(machine: Machine) -> Finding:
    """The kernel log of this boot holds no Xid that means trouble.

    An Xid is the driver's report of a GPU error. A catalogue has the meaning and the verdict of each number: hardware
    and driver errors fail, errors that applications cause (31, 13, 43, 45) warn. A log that cannot be read is a skip.
    Errors before gpusetup reset that GPU do not count.

    To do: follow the catalogue; the numbers and their sources are in the table below. `gpusetup doctor --apply` resets
    the GPU or reboots the host where that helps, after asking.
    """
    log = machine.collected("kernel_log")
    if log.get("error") or log.get("source") is None:
        return Finding("skip", f"not checked: {log.get('error') or 'no kernel log'}")
    seen: Counter[tuple[str, int]] = Counter()
    resets = {gpu: Reset(when["uptime"], when["time"]) for gpu, when in (log.get("resets") or {}).items()}
    for line in log.get("lines", []):
        if settled(line, resets):
            continue
        if found := XID.search(line):
            seen[found.group(1).lower(), int(found.group(2))] += 1
        elif FELL_OFF.search(line):
            seen["", 79] += 1
    items = []
    for (address, number), times in sorted(seen.items(), key=lambda entry: entry[0][1]):
        known, recovery = meaning(number), of_xid(number)
        often = f", {times} times" if times > 1 else ""
        needs = f"; it needs {recovery.text}" if recovery.steps else ""
        text = f"Xid {number}{often}: {known.text}; {known.action}{needs}"
        job = known.verdict == "warn" and (known.bucket == "RESTART_APP" or number in _BY_PROGRAMS)
        items.append(Item(address or "PCI", known.verdict, text, number, blame="job" if job else ""))
    if not items:
        since = "since boot" if log.get("whole", True) else "in what is kept of this boot"
        return Finding("pass", f"none {since} ({log['source']})", 0, 0)
    return from_items(items, "none that indicates a problem")


@check("driver.next_boot", "The next boot has the driver", needs=("gpu",), took="facts")
def driver_next_boot(machine: Machine) -> Finding:
    """The kernel that boots next has a module of the same driver.

    After a kernel update, DKMS must build the driver's modules for the new kernel, or a package must bring them.
    Without them everything works until the next boot. gpusetup reads that kernel's module file, not DKMS's status.

    To do: `gpusetup apply` builds it, or chooses prebuilt modules again; by hand `dkms autoinstall -k KERNEL` with that
    kernel's headers installed.
    """
    facts, loaded = machine.facts, machine.module_version
    kernel = facts.get("kernel") or {}
    following, installed = kernel.get("next"), kernel.get("installed") or ()
    if not following or not any(item["release"] == following for item in installed):
        return Finding("skip", "not checked: which kernel boots next, or its files, could not be read")
    found = verdicts.driver.module_of(facts, following)
    wanted = machine.wanted.version("driver") or loaded
    if found is None:
        if loaded is None and machine.wanted.version("driver") is None:
            return Finding("skip", "not checked: no driver is installed")
        return Finding(
            "fail", f"kernel {following} boots next and has no nvidia module: the GPU would not work", None, wanted
        )
    version = found.get("version")
    problem = verdicts.driver.module_problem(found, following, verdicts.driver.Wish(wanted or ""))
    if problem:
        return Finding("fail", f"{problem}; it is loaded at the next boot", version, wanted)
    same = "" if following == kernel.get("running") else f" (kernel {kernel.get('running')} runs now)"
    return Finding("pass", f"kernel {following} has {version or 'a module'}{same}", version, wanted or version)


@check("driver.security", "The driver has no known vulnerability", needs=("gpu",), took="facts")
def driver_security(machine: Machine) -> Finding:
    """The loaded driver has no vulnerability of high severity that a newer release of its branch fixes.

    NVIDIA's security bulletins are part of the matrix: `gpusetup matrix cve driver=VERSION` lists what a release has.

    To do: `gpusetup apply --upgrade`; `gpusetup doctor CVE-…` explains each one.
    """
    version = machine.module_version
    if version is None:
        return Finding("skip", "not checked: no driver is loaded")
    known = matrix()
    found = vulnerable(known, "driver", version, floor(known))
    if found is None:
        return Finding("pass", f"none is known of {version} (bulletins read on {known.security.date})", version)
    return Finding("warn", f"{version} has {found}; {found.fixed} fixes them", version, found.fixed)


RIVALS = ("nouveau", "nova_core")


@check("nouveau.absent", "nouveau is off", needs=("gpu",), took="facts")
def nouveau_absent(machine: Machine) -> Finding:
    """nouveau is not loaded, and not in the initramfs that boots next.

    A blacklist in /etc is not enough: when the initramfs was built before it, nouveau takes the GPU in early boot and
    the NVIDIA module finds it occupied. The check reads the loaded modules, the initramfs of the kernel that boots
    next, and the blacklists in it, in modprobe.d and on the kernel's command line.

    To do: `update-initramfs -u -k all` or `dracut --force --regenerate-all` after blacklisting, then reboot.
    """  # noqa: D403 - the module's name
    facts = machine.facts
    nouveau = facts.get("nouveau")
    if nouveau is None:
        return Finding("skip", "not checked: the list of loaded modules is missing")
    loaded = [name for name in RIVALS if name in facts.get("modules", ())]
    holding = [str(device["address"]) for device in machine.pci_gpus if device.get("bound") in RIVALS]
    if loaded or holding:
        return Finding(
            "fail",
            f"{', '.join(loaded) or 'nouveau'} is loaded" + (f" and holds {', '.join(holding)}" if holding else ""),
        )
    image = next((image for image in nouveau["initramfs"] if image["kernel"] == facts["kernel"]["next"]), None)
    if image is None:
        return Finding("pass", "not loaded; there is no initramfs in /boot")
    if image["nouveau"] is None:
        return Finding("warn", f"not loaded; the initramfs could not be listed: {str(image['why'])[:100]}")
    if not image["nouveau"]:
        return Finding("pass", f"not loaded, not in {image['path']}")
    if nouveau["cmdline_next"]:
        return Finding("pass", f"not loaded; in {image['path']}, but the kernel's command line blocks it")
    if any(way.id == "initramfs" for way in verdicts.driver.nouveau_ways(facts)):
        return Finding(
            "fail",
            f"not loaded now, but {image['path']} holds it without a blacklist: it will be loaded at the next boot",
        )
    return Finding("pass", f"not loaded; in {image['path']} beside a blacklist")


_STATUS = "vgpu_software_licensed_product/license_status"


@check("vgpu.licence", "The vGPU has its licence", needs=("gpu", "smi"), took="smi facts")
def vgpu_licence(machine: Machine) -> Finding:
    """A vGPU, or a GPU that a GRID driver runs, has its licence.

    Without one the driver works at first and is slowed down within a day, so that everything looks well on the day of
    the installation. `nvidia-smi -q` says whether a licence is granted and when it ends; `nvidia-gridd` renews it.

    To do: `gpusetup_vgpu_token` names the site's client configuration token, and `gpusetup apply` licenses the guest;
    `journalctl -u nvidia-gridd` says why a server refused.
    """
    items = []
    for gpu in machine.gpus:
        status = gpu.text(_STATUS)
        if status is None:
            continue
        if status.startswith("Licensed"):
            items.append(Item(gpu.label, "pass", measured=status))
            continue
        product = gpu.text("vgpu_software_licensed_product/licensed_product_name") or "the driver"
        text = f"{product} has no licence"
        items.append(Item(gpu.label, "fail", text, status, "Licensed"))
    if not items:
        return Finding(verdict="skip", text="no GPU here needs a licence")
    return from_items(items, "licensed")


@check("device.files", "Device files are usable", needs=("gpu",), took="device_files")
def device_files(machine: Machine) -> Finding:
    """The device files exist, are the driver's, and this user may open them.

    CUDA needs /dev/nvidiactl, /dev/nvidia-uvm and one /dev/nvidiaN per GPU. Without nvidia-uvm nvidia-smi works and
    every CUDA program ends with error 999 or 100. A file with another major number is a leftover or something put over
    it.

    To do: `nvidia-modprobe -u -c 0`, load nvidia_uvm at boot, add the user to the group that owns the files.
    """
    found = machine.collected("device_files")
    files: dict[str, dict[str, Any]] = {entry["path"]: entry for entry in found.get("files", [])}
    majors: dict[str, int] = found.get("majors", {})
    if not majors and not files:
        if machine.gpus:
            return Finding("unsupported", "this system has no NVIDIA device files, but the driver answers (WSL)")
        return Finding("fail", "no /dev/nvidia* file exists: the driver is not loaded")
    told = "".join(f"Device Minor: {gpu.text('minor_number')}\n" for gpu in machine.gpus)
    told += "\n".join(map(str, machine.collected("proc_gpus").values()))
    minors = sorted(set(map(int, re.findall(r"Device Minor:\s*(\d+)", told))))
    wanted = [
        ("/dev/nvidiactl", "nvidiactl"),
        ("/dev/nvidia-uvm", "nvidia-uvm"),
        *((f"/dev/nvidia{minor}", "nvidia") for minor in minors),
    ]
    items = [
        _device_file(path, files.get(path), majors.get(kind, majors.get("nvidia-frontend"))) for path, kind in wanted
    ]
    if not minors:
        items.append(Item("/dev/nvidiaN", "warn", "not checked: nothing told which file belongs to which GPU"))
    if any("name" in machine.opened(key) for key in machine.workers):
        items = [_made_since(item) if item.subject == "/dev/nvidia-uvm" else item for item in items]
    return from_items(items, f"{counted(len(items), 'file')}, usable by this user")


def _made_since(item: Item) -> Item:
    """Return a warning for a missing file: CUDA opened a GPU after the files were listed, so it made the file."""
    if item.text != "is missing":
        return item
    return Item(item.subject, "warn", "was missing until CUDA made it: load nvidia_uvm at boot")


def _device_file(path: str, entry: dict[str, Any] | None, major: int | None) -> Item:
    if entry is None or entry.get("error"):
        return Item(path, "fail", "is missing" if entry is None else str(entry["error"])[:80])
    if major is None:
        return Item(path, "warn", "is there, but /proc/devices has no driver for it")
    if not entry.get("character") or entry.get("major") != major:
        text = f"is not a device of the driver (major {entry.get('major')}, the driver has {major})"
        return Item(path, "fail", text, entry.get("major"), major)
    if not entry.get("access"):
        text = f"this user may not open it (mode {entry.get('mode')}, owner {entry.get('uid')}:{entry.get('gid')})"
        return Item(path, "fail", text, entry.get("mode"), "0666")
    return Item(path, "pass", measured=entry.get("mode"))
