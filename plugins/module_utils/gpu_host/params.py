"""Argument specifications shared by several modules, and their conversion into plain parameters."""

import contextlib
import re
import weakref
from typing import Any, Dict, Iterator, NoReturn, Union

from . import failure, owner

_LIST = {"type": "list", "elements": "str", "default": []}
_TEXT = {"type": "str", "default": ""}
_NAME = {"type": "str", "required": True}

_HOST = {
    "state_dir": {"type": "path", "default": "/var/lib/gpusetup"},
    "simulated_root": _TEXT,
    "proxy": _TEXT,
    "no_proxy": _LIST,
    "ca_file": _TEXT,
    "owner": {"type": "str", "default": "", "no_log": False},
}
COMMON = {"host": {"type": "dict", "options": _HOST, "apply_defaults": True}}
PACKAGE = {
    "type": "list",
    "elements": "dict",
    "default": [],
    "options": {"name": _NAME, "version": _TEXT, "arch": _TEXT},
}
TRANSACTION = {
    "manager": {"type": "str", "required": True, "choices": ["apt", "dnf", "zypper"]},
    "packages": PACKAGE,
    "remove": _LIST,
    "may_remove": _LIST,
    "hold": _LIST,
    "free": _LIST,
    "streams": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {"module": _NAME, "stream": _NAME},
    },
    "replace_runfile": {"type": "bool", "default": False},
    "optional": {"type": "bool", "default": False},
    "no_way_back": {"type": "bool", "default": False},
    "recommends": {"type": "bool", "default": False},
    "lock_timeout": {"type": "int", "default": 600},
    "auto_upgrades_block": {"type": "bool", "default": True},
    "driver_packages": _LIST,
    "driver_version": _TEXT,
    "driver_module": {"type": "str", "default": "", "choices": ["", "open", "proprietary"]},
    "kernels": _LIST,
}
DRIVER = {"version": _TEXT, "flavour": _TEXT, "kernels": _LIST}
SOURCES = {
    "sources": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "name": _NAME,
            "kind": {"type": "str", "required": True, "choices": ["apt", "dnf", "zypper"]},
            "description": _TEXT,
            "uris": _LIST,
            "like_suite": _TEXT,
            "suites": _LIST,
            "components": _LIST,
            "architectures": _LIST,
            "repo_gpgcheck": {"type": "bool", "default": True},
            "gpgcheck": {"type": "bool", "default": True},
            "module_hotfixes": {"type": "bool", "default": False},
            "exclude": _LIST,
            "priority": {"type": "int", "default": 0},
            "installer": {
                "type": "dict",
                "options": {"path": _NAME, "sha256": _TEXT, "directory": _TEXT, "fingerprints": _LIST},
            },
            "key": {
                "type": "dict",
                "no_log": False,
                "options": {
                    "fingerprints": _LIST,
                    **dict.fromkeys(("armored", "file", "url", "sha256"), _TEXT),
                    "package": {"type": "dict", "options": dict.fromkeys(("url", "sha256", "member"), _NAME)},
                },
            },
        },
    },
    "enable": _LIST,
    "replace": _LIST,
    "pins": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "packages": {"type": "list", "elements": "str", "required": True},
            "origin": _TEXT,
            "release": _TEXT,
            "version": _TEXT,
            "priority": {"type": "int", "required": True},
        },
    },
}


def spec(*parts: Dict[str, Any], **own: Any) -> Dict[str, Any]:
    """Return an argument specification made of shared parts and a module's own."""
    joined: Dict[str, Any] = dict(COMMON)
    for part in parts:
        joined.update(part)
    joined.update(own)
    return joined


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

    Every module gets its parameters here, so that no password in an address is shown.
    """
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
            owner.hold(params["state_dir"], token)
        except (failure.HostFailure, OSError) as stop:
            end(module, stop)
        if token:
            weakref.finalize(module, owner.show_life(params["state_dir"], token).set)
    return params


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
            owner.give_up(host["state_dir"], host["owner"])
    module.fail_json(msg=stop.text(), gpu_failure=stop.as_dict(), **result)
    raise AssertionError("fail_json came back")


def program(packed: str) -> Dict[str, str]:
    """Return {relative path: text} of the program that the action plugin packed."""
    import base64
    import io
    import zipfile

    with zipfile.ZipFile(io.BytesIO(base64.b64decode(packed))) as archive:
        return {name: archive.read(name).decode("utf-8") for name in archive.namelist()}
