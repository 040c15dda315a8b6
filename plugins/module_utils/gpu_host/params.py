"""Argument specifications shared by several modules, and their conversion into plain parameters."""

import contextlib
import os
import re
from typing import Any, Dict, Iterator, List, NoReturn, Optional, Tuple, Union

from . import failure, owner

Option = Dict[str, Any]


def text(description: str, default: Optional[str] = "", **more: Any) -> Option:
    """Return an option; it has the form of Ansible's argument specification, with its documentation."""
    there = {} if default is None else {"default": default}
    return {"description": description, "type": "str", **there, **more}


def needed(description: str, **more: Any) -> Option:
    return text(description, None, required=True, **more)


def choice(description: str, choices: List[str], default: Optional[str] = None) -> Option:
    """Return an option with some possible values; without a default it is required."""
    return text(description, default, choices=choices, **({"required": True} if default is None else {}))


def texts(description: str, **more: Any) -> Option:
    return {"description": description, "type": "list", "elements": "str", "default": [], **more}


def several(description: str, options: Dict[str, Option]) -> Option:
    return {"description": description, "type": "list", "elements": "dict", "default": [], "options": options}


def table(description: str, **more: Any) -> Option:
    return {"description": description, "type": "dict", **more}


def flag(description: str, default: bool = False) -> Option:
    return {"description": description, "type": "bool", "default": default}


def number(description: str, default: int, **more: Any) -> Option:
    return {"description": description, "type": "int", "default": default, **more}


COMMON = {
    "host": table(
        "Settings of the host, the same for every module.",
        options={
            "state_dir": text("State, history, jobs and logs on the host.", "/var/lib/gpusetup", type="path"),
            "simulated_root": text("Lab only. A miniature root that the probe reads instead of the machine."),
            "proxy": text("Proxy for the package manager, pip and downloads."),
            "no_proxy": texts("Hosts that are reached without the proxy."),
            "ca_file": text("PEM bundle on the host that is trusted instead of the system's."),
            "owner": text(
                "Token of the apply or removal that owns the host; a step of another one is refused meanwhile.",
                no_log=False,
            ),
        },
        apply_defaults=True,
    )
}
TRANSACTION = {
    "manager": choice("The host's package manager.", ["apt", "dnf", "zypper"]),
    "packages": several(
        "Packages wanted.",
        {
            "name": needed("Name."),
            "version": text("Exact version, or a pattern with V(*); empty is the newest."),
            "arch": text("Architecture, where it is not the host's own."),
        },
    ),
    "remove": texts("Patterns of packages that must not be installed; a wanted package is never matched."),
    "may_remove": texts("Patterns of packages that the transaction may remove as a consequence."),
    "hold": texts(
        "Patterns of installed packages to hold afterwards, together with those asked for by name; empty holds nothing."
    ),
    "free": texts("Names among the packages that are not held (compilers, headers, the distribution's Python)."),
    "streams": several("DNF module streams.", {"module": needed("Module."), "stream": needed("Stream.")}),
    "replace_runfile": flag(
        "Let the uninstaller of a .run installation remove it before the transaction; this cannot be undone."
    ),
    "optional": flag("Leave out wanted packages that the repositories no longer offer (removal), instead of refusing."),
    "no_way_back": flag("Change a host whose installed packages can no longer be had, should the transaction fail."),
    "recommends": flag("Install recommended packages too."),
    "lock_timeout": number("Seconds to wait while another program uses the package manager.", 600),
    "auto_upgrades_block": flag("Keep automatic upgrades away from the held packages.", True),
    "driver_packages": texts(
        "Names among the packages that carry the driver; a transitional one of another branch is refused."
    ),
    "driver_version": text("NVIDIA's version that the module on disk must have; empty when no driver is wanted."),
    "driver_module": choice("Flavour that the module on disk must have.", ["", "open", "proprietary"], ""),
    "kernels": texts("Kernels for which the module must be there; empty is the one that boots next."),
}
DRIVER = {
    "version": text("NVIDIA's version that must run; when empty, nothing is loaded and no reboot is needed."),
    "flavour": text("Flavour that must run."),
    "kernels": texts("Kernels that the driver was installed for."),
}
SOURCES = {
    "sources": several(
        "Repositories wanted.",
        {
            "name": needed("Name of the file that defines it."),
            "kind": choice("Package manager that it is for.", ["apt", "dnf", "zypper"]),
            "description": text("A person's words for it (dnf, zypper)."),
            "uris": texts("Addresses."),
            "like_suite": text("Take addresses and key from the host's own entry for this suite (apt)."),
            "suites": texts("Suites (apt)."),
            "components": texts("Components (apt)."),
            "architectures": texts("Architectures (apt)."),
            "repo_gpgcheck": flag("The metadata is signed (dnf, zypper).", True),
            "gpgcheck": flag("The packages are signed (dnf, zypper).", True),
            "module_hotfixes": flag("Module streams do not hide its packages (dnf)."),
            "exclude": texts("Patterns of packages that it does not give (dnf)."),
            "priority": number("Priority (dnf, zypper); 0 is the package manager's own.", 0),
            "installer": table(
                "The package on the host that this repository comes in. It is unpacked below the state folder, "
                "and brings its own key.",
                options={
                    "path": needed("Its path."),
                    "sha256": text("Its digest."),
                    "directory": text("The distribution that it must be for, as NVIDIA calls it."),
                    "fingerprints": texts(
                        "All 40 digits of each key that may sign; when empty, the digest vouches for the key in it."
                    ),
                },
            ),
            "key": table(
                "The key, proven by its full fingerprint. One of O(sources[].key.armored), file, url and package "
                "says where it is.",
                options={
                    "fingerprints": texts("All 40 digits of each key that may sign."),
                    "armored": text("The key itself."),
                    "file": text("Its path on the host."),
                    "url": text("Its address."),
                    "sha256": text("Digest of what the address gives."),
                    "package": table(
                        "A package that holds it.",
                        options={
                            "url": needed("The package's address."),
                            "sha256": needed("Its digest."),
                            "member": needed("Path of the key in it."),
                        },
                    ),
                },
                no_log=False,
            ),
        },
    ),
    "enable": texts("Identifiers of dnf repositories that are configured but off."),
    "replace": texts("Address prefixes whose other entries are switched off."),
    "pins": several(
        "apt preferences.",
        {
            "packages": {"description": "Names or patterns.", "type": "list", "elements": "str", "required": True},
            "origin": text("Host of the repository."),
            "release": text("Release terms."),
            "version": text("Version or pattern."),
            "priority": {"description": "Priority.", "type": "int", "required": True},
        },
    ),
}


def spec(options: Dict[str, Option], host: bool = True) -> Dict[str, Any]:
    """Return the argument specification of a module with these options and, for most modules, those of the host."""
    everything = {**COMMON, **options} if host else options
    found = {name: {key: option[key] for key in option if key != "description"} for name, option in everything.items()}
    for option in found.values():
        if "options" in option:
            option["options"] = spec(option["options"], host=False)
    return found


def documentation(options: Dict[str, Option]) -> Dict[str, Any]:
    """Return the same options as Ansible documents them."""
    found = {}
    for name, option in options.items():
        found[name] = {key: option[key] for key in option if key not in ("options", "no_log", "apply_defaults")}
        if "options" in option:
            found[name]["suboptions"] = documentation(option["options"])
    return found


def _hide(module: Any, value: Any, pattern: str = r"//[^/@\s:]*:([^/@\s]+)@") -> None:
    """Have Ansible hide every password in an address, wherever it came from."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            _hide(module, item)
    elif isinstance(value, str):
        module.no_log_values.update(re.findall(pattern, value))


def plain(module: Any) -> Dict[str, Any]:
    """Return the module's parameters and those of the host, whose network settings are joined under `network`.

    Every module gets its parameters here, so that no password in an address is shown, and that what it makes is open to
    others as far as its own mode says: hardened hosts have a umask with which nobody but root could use it.
    """
    os.umask(0o022)
    params = {key: value for key, value in module.params.items() if key != "host"}
    host = module.params["host"]
    params.update(state_dir=host["state_dir"], simulated_root=host["simulated_root"])
    params["network"] = {"proxy": host["proxy"], "no_proxy": host["no_proxy"], "ca_file": host["ca_file"]}
    _hide(module, module.params)
    _hide(module, host["proxy"], r"^[^/@\s:]*:([^/@\s]+)@")  # a proxy may lack its scheme
    return params


def owned(module: Any) -> Dict[str, Any]:
    """Return the parameters of a module that changes the host, or fail if somebody else owns it.

    Signs of life continue until the module ends, however long it takes.
    """
    params, token = plain(module), module.params["host"]["owner"]
    if not module.check_mode:
        try:
            owner.hold_until_gone(module, params["state_dir"], token)
        except (failure.HostFailure, OSError) as stop:
            end(module, stop)
    return params


def opened(options: Dict[str, Option], **more: Any) -> Tuple[Any, Dict[str, Any]]:
    """Return an Ansible module that changes the host, and its parameters."""
    from ansible.module_utils import basic  # only modules have it: programs on a host do without

    module = basic.AnsibleModule(argument_spec=spec(options), supports_check_mode=True, **more)
    return module, owned(module)


@contextlib.contextmanager
def failing(module: Any, **result: Any) -> Iterator[None]:
    """Turn failures of the enclosed code into a failure of the module."""
    try:
        yield
    except (failure.HostFailure, OSError) as stop:
        end(module, stop, **result)


def follow(module: Any, status: Dict[str, Any], log: str) -> None:
    """Return a job's progress or its result to Ansible."""
    progress = {key: status.get(key) for key in ("step", "message", "percent")}
    if status["state"] == "failed":
        end(module, status["failure"], finished=True, progress=progress, log=log, **status["result"])
    result = status.get("result") or {"changed": False}
    module.exit_json(finished=status["state"] == "done", progress=progress, log=log, **result)


def end(module: Any, stop: Union[failure.HostFailure, OSError, Dict[str, str]], **result: Any) -> NoReturn:
    """Fail the module with a failure, its plain data, or an error of the system."""
    if isinstance(stop, OSError):
        stop = failure.of_system(stop)
    if isinstance(stop, dict):
        stop = failure.HostFailure(**stop)
    host = module.params["host"]
    if host["owner"] and not module.check_mode:
        with contextlib.suppress(OSError):  # the failure matters more; the owner expires by itself
            owner.release(host["state_dir"], host["owner"], failed=True)
    module.fail_json(msg=stop.text(), gpu_failure=stop.fields, **result)
    raise AssertionError("fail_json came back")


def program(packed: str) -> Dict[str, str]:
    """Return {relative path: text} of the program that the action plugin packed."""
    import base64
    import io
    import zipfile

    with zipfile.ZipFile(io.BytesIO(base64.b64decode(packed))) as archive:
        return {name: archive.read(name).decode("utf-8") for name in archive.namelist()}
