"""The driver: its module on disk and in the kernel, its libraries, what stands in its way, and whether only a reboot
helps.

`facts` is the probe's document, or the part of it that the probe's `collect_driver` reads.
"""

import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

Facts = Dict[str, Any]

UNLOAD = ("nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia_peermem", "nvidia")
"""The driver's own modules, in the order in which they can be taken out of the kernel."""
# Names as the kernel keeps them: fifteen letters. The services of the driver itself are stopped for an exchange.
_OWN_PROCESSES = ("nvidia-persiste", "nv-fabricmanage", "nv-hostengine", "nvidia-imex")
_BUILT_HERE = re.compile(r"/(updates|extra)/")


class Wish(NamedTuple):
    """The driver that must run; without a version none is wanted. `kernels` are those that need it, else the one that
    boots next.
    """

    version: str
    flavour: str = ""
    kernels: Tuple[str, ...] = ()


def kernels(facts: Facts, wish: Wish) -> List[str]:
    """Return the kernels that count."""
    return list(wish.kernels) or [facts["kernel"]["next"]]


def module_of(facts: Facts, kernel: str) -> Optional[Dict[str, Any]]:
    """Return the NVIDIA module on disk for a kernel, None without one."""
    for item in facts["kernel"]["installed"]:
        if item["release"] == kernel:
            found: Optional[Dict[str, Any]] = item["nvidia"]
            return found
    return None


def differs(found: Dict[str, Any], wish: Wish) -> bool:
    """Say whether a module, on disk or loaded, is another one; what could not be read of it is not held against it."""
    version, flavour = found.get("version"), found.get("flavour")
    return bool((version and version != wish.version) or (wish.flavour and flavour and flavour != wish.flavour))


def module_problem(found: Optional[Dict[str, Any]], kernel: str, wish: Wish) -> Optional[str]:
    """Return why the module file found for a kernel is not the wanted one; the file decides, never what DKMS says of
    itself.
    """
    if found is None:
        return "no nvidia module for kernel " + kernel
    if not wish.version or not differs(found, wish):
        return None
    if found.get("version") and found["version"] != wish.version:
        return "the nvidia module for kernel {} is {}, not {}".format(kernel, found["version"], wish.version)
    return "the nvidia module for kernel {} is the {} one, not the {} one".format(
        kernel, found.get("flavour"), wish.flavour
    )


def module_problems(facts: Facts, wish: Wish) -> Dict[str, str]:
    """Return for each kernel without the wanted module what is wrong."""
    found = {kernel: module_problem(module_of(facts, kernel), kernel, wish) for kernel in kernels(facts, wish)}
    return {kernel: problem for kernel, problem in found.items() if problem} if wish.version else {}


def built(facts: Facts, wish: Wish) -> Facts:
    """Return the facts as they are once the wanted module is on disk; one that is there already stays as it is."""
    wanted, kernel = kernels(facts, wish), facts["kernel"]
    problems = module_problems(facts, wish)
    fresh = {"path": "", "version": wish.version, "flavour": wish.flavour or None, "signer": None}
    items = [dict(item, nvidia=fresh) if item["release"] in problems else item for item in kernel["installed"]]
    known = {item["release"] for item in items}
    items += [{"release": release, "nvidia": fresh} for release in wanted if release not in known]
    return dict(facts, kernel=dict(kernel, installed=items))


def loaded(facts: Facts) -> Optional[Dict[str, Any]]:
    """Return version and flavour of the loaded module, None when there is none."""
    found: Optional[Dict[str, Any]] = (facts["driver"] or {}).get("loaded")
    return found


def loaded_problem(facts: Facts, wish: Wish) -> Optional[str]:
    """Return why what the kernel runs is not the wanted driver, None when it is."""
    runs = loaded(facts)
    if not wish.version or (runs is not None and not differs(runs, wish)):
        return None
    if runs is None:
        return f"nvidia {wish.version} is to run, none is loaded"
    if runs.get("version") and runs["version"] != wish.version:
        return "nvidia {} is loaded, {} is to run".format(runs["version"], wish.version)
    return "the {} module is loaded, the {} one is to run".format(runs["flavour"], wish.flavour)


def nouveau_runs(facts: Facts) -> bool:
    """Say whether another driver holds the GPU."""
    return bool(facts["nouveau"]["loaded"])


def reboot_reasons(facts: Facts, wish: Wish) -> List[str]:
    """Return why the host needs a reboot before the wanted driver runs, from its state alone.

    The module on disk is taken for granted: whoever asks has put it there, or plans to.
    """
    if not wish.version:
        return []
    reasons, running, wanted = [], facts["kernel"]["running"], kernels(facts, wish)
    if running not in wanted and module_of(facts, running) is None:
        reasons.append("kernel {} runs, the driver is there for {}".format(running, ", ".join(wanted)))
    if nouveau_runs(facts):
        reasons.append("nouveau is loaded")
    problem = loaded_problem(facts, wish)
    if problem:
        reasons.append(problem)
    unsigned = unsigned_reason(facts) if reasons else None
    return reasons + ([unsigned] if unsigned else [])


def secure_boot(facts: Facts) -> bool:
    """Say whether the kernel takes only modules that are signed by a key that the firmware trusts."""
    return bool(facts["secure_boot"])


def key_unknown(facts: Facts) -> bool:
    """Say whether Secure Boot is on and the firmware does not know the key that signs what is built on this host."""
    keys = facts["firmware"]["signing_keys"]
    return secure_boot(facts) and not any(key["enrolled"] for key in keys)


def unsigned_reason(facts: Facts) -> Optional[str]:
    """Return why the kernel would refuse the module that is on disk for the next boot, None when it would take it."""
    found = module_of(facts, facts["kernel"]["next"])
    if found is None or not _BUILT_HERE.search(found.get("path") or "") or not key_unknown(facts):
        return None
    text = "Secure Boot: the key that signs the module is not enrolled; reboot and choose Enroll MOK at the console"
    password = facts["firmware"].get("password")
    return text + (f" and types the one-time password that `cat {password}` shows root" if password else "")


def obstacle(facts: Facts, wish: Wish) -> Optional[str]:
    """Return why the module cannot be loaded, or exchanged, without a reboot; None when nothing is known to stand in
    the way.
    """
    running = facts["kernel"]["running"]
    if facts["simulated"]:
        return "a simulated host has no kernel of its own to load a module into"
    if module_problem(module_of(facts, running), running, wish):
        return f"the running kernel {running} has no module {wish.version}"
    if nouveau_runs(facts):
        return "nouveau is loaded"
    if unsigned_reason(facts):
        return "the kernel does not know the key that signs it"
    users = _users(facts)
    return "in use by " + ", ".join(users) if users else None


def _users(facts: Facts) -> List[str]:
    """Return what would have to end first: programs, displays, and modules of others that sit on the driver's."""
    found = [
        "{} ({})".format(process["command"], process["pid"])
        for process in facts["processes"]
        if not process["command"].startswith(_OWN_PROCESSES)
    ]
    for name, use in sorted(facts["module_users"].items()):
        if name not in UNLOAD:
            continue
        found += [f"the module {holder}" for holder in use["holders"] if holder not in UNLOAD]
        if name in ("nvidia_drm", "nvidia_modeset") and use["references"] > len(use["holders"]):
            found.append(f"{name} (display)")
    return found


def in_use(users: Dict[str, Any]) -> Optional[str]:
    """Return which of the driver's modules is used by more than the driver's own modules, None when all can be
    unloaded.

    Asked once the driver's services are stopped: whatever still counts then is a program, a display or a module that
    no list of processes shows.
    """
    for name in UNLOAD:
        use = users.get(name)
        if use is None:
            continue
        others = [holder for holder in use["holders"] if holder not in UNLOAD]
        if others:
            return "{} is used by the module {}".format(name, ", ".join(others))
        rest = use["references"] - len(use["holders"])
        if rest > 0:
            return f"{name} is used {rest} times" if rest > 1 else f"{name} is in use"
    return None


def other_libraries(facts: Facts, version: str) -> List[str]:
    """Return the versions of the libraries that programs could load and that belong to another driver version."""
    driver = facts["driver"] or {}
    found = {text for texts in (driver.get("libraries") or {}).values() for text in texts}
    return sorted((found | {driver.get("library") or version}) - {version})
