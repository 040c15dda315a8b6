"""DKMS's builds and why one failed. Whether a module exists is decided by the file on disk, never by DKMS."""

import glob
import os
import re
from typing import Any, Callable, Dict, Iterable, Optional

from ..gpu_judge import driver
from ..gpu_probe import firmware
from . import files, process, signing
from .failure import HostFailure

_DKMS = "/usr/sbin/dkms"
_TREE = "/var/lib/dkms"
_UNSIGNED = "DKMS's build log names the sign command and the key that it used, or why it did not sign"


def missing(machine: Any, params: Dict[str, Any]) -> Optional[str]:
    """Return why a kernel lacks the wanted module, None if all have it or none is wanted."""
    if not params["driver_version"]:
        return None
    wish = driver.Wish(params["driver_version"], params["driver_module"])
    kernels = machine.wanted_kernels(params["kernels"])
    problems = (driver.module_problem(machine.module_on_disk(kernel), kernel, wish) for kernel in kernels)
    return next(filter(None, problems), None)


def mend(
    machine: Any, params: Dict[str, Any], env: Dict[str, str], tell: Callable[..., None], log: Callable[[str], None]
) -> None:
    """Build the module for a kernel that lacks it although the packages are installed (the kernel came later)."""
    problem = missing(machine, params)
    if problem is not None and not os.path.exists(_DKMS):
        hint = "the packages are installed; is there a module package for this kernel?"
        raise HostFailure("GS-456", f"the kernel module is missing: {problem}", hint=hint)
    for kernel in machine.wanted_kernels(params["kernels"]) if problem is not None else ():
        tell("build", "building the kernel module for " + kernel)
        process.stream([_DKMS, "autoinstall", "-k", kernel], env, log=log)
        # DKMS trusts its own record: a deleted module still counts as installed.
        _force(("install",), kernel, env, log)
    problem = missing(machine, params)
    if problem:
        raise HostFailure("GS-456", "the kernel module could not be built: " + problem)
    problem = rebuild_signed(machine, params, env, tell, log)
    if problem:
        raise HostFailure("GS-456", problem, hint=_UNSIGNED)


def _force(verbs: Iterable[str], kernel: str, env: Dict[str, str], log: Callable[[str], None]) -> None:
    """Have DKMS build or install NVIDIA's modules for a kernel although its record says that they are."""
    _code, told, _error = process.output([_DKMS, "status", "-k", kernel], env, 60)
    for name, version in sorted(set(re.findall(r"^(nvidia[\w-]*)(?:/|, )([\w.]+)", told, re.MULTILINE))):
        for verb in verbs:
            argv = [_DKMS, verb, "--force", "-m", name, "-v", version, "-k", kernel]
            process.stream(argv, env, log=log)


def rebuild_signed(
    machine: Any, params: Dict[str, Any], env: Dict[str, str], tell: Callable[..., None], log: Callable[[str], None]
) -> Optional[str]:
    """Rebuild modules that DKMS signed with the wrong key; return what is still wrong."""
    for kernel in machine.wanted_kernels(params["kernels"]) if params["driver_version"] else ():
        problem = signature_problem(machine, kernel)
        if problem is not None:
            tell("build", "building the kernel module for " + kernel + " again, to sign it")
            _force(("build", "install"), kernel, env, log)
            problem = signature_problem(machine, kernel)
        if problem:
            return problem
    return None


def signature_problem(machine: Any, kernel: str) -> Optional[str]:
    """Return what is wrong with the signature of a module that DKMS built; other modules are signed by their makers."""
    if not glob.glob(f"{_TREE}/nvidia*/kernel-{kernel}-*"):
        return None
    found = machine.module_on_disk(kernel)
    if found is None or found["signed"] is None:
        return None
    by = "signed by {}".format(found["signer"] or "another key") if found["signed"] else "not signed"
    path = signing.chosen()
    certificate = firmware.certificate(files.read_bytes(path) or b"") if path else None
    if certificate is not None and not driver.made_by(certificate, found):
        return f"the nvidia module for kernel {kernel} is {by}, and not with the key of {path}"
    if not found["signed"] and machine.secure_boot():
        return f"the nvidia module for kernel {kernel} is not signed, and Secure Boot is on"
    return None


def build_error(since: float = 0.0, root: str = "/") -> Optional[Dict[str, Any]]:
    """Return the last build error, {"log", "error", "tail"}; None if no build log is newer than `since`."""
    places = ("var/lib/dkms/*/*/build/make.log", "var/lib/dkms/*/*/*/*/log/make.log")
    logs = [path for place in places for path in glob.glob(os.path.join(root, place))]
    fresh = [path for path in logs if os.path.getmtime(path) >= since]
    for path in sorted(fresh, key=os.path.getmtime, reverse=True):
        text = files.read_text(path) or ""
        errors = first_error(text)
        if errors:
            return {"log": path, "error": errors, "tail": text.splitlines()[-30:]}
    return None


def first_error(text: str) -> str:
    """Return the compiler's first error, or make's if the compiler reported none."""
    for pattern in (r"^.*\b(?:fatal )?error:.*$", r"^(?:ERROR|FATAL): .*$", r"^make(?:\[\d+\])?: \*\*\* .*$"):
        match = re.search(pattern, text, re.MULTILINE)
        if match:
            return match.group(0).strip()[-300:]
    return ""
