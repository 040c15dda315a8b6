#!/usr/bin/python
"""Ansible module: which CUDA is the default."""

DOCUMENTATION = r"""
module: gpu_cuda_default
short_description: Make one of several CUDA toolkits the default
description:
  - Points C(/usr/local/cuda), C(PATH) of login shells and the dynamic linker's path to the default toolkit. Where
    NVIDIA's packages manage C(/usr/local/cuda) through alternatives, the alternative is set instead of the link.
  - If Lmod is installed, each toolkit gets a module file.
extends_documentation_fragment: [gpusetup.stack.options.host, gpusetup.stack.options.gpu_cuda_default]
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: CUDA 12.8 is the default, 12.4 stays beside it
  gpusetup.stack.gpu_cuda_default:
    roots:
      - {version: "12.4", path: /usr/local/cuda-12.4}
      - {version: "12.8", path: /usr/local/cuda-12.8}
    default: "12.8"
"""

RETURN = r"""
path:
  description: The default toolkit's folder.
  returned: always
  type: str
"""

import os
from typing import Dict, List, Optional

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import files, params, process
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.alternatives import Alternative
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger

LINK = "/usr/local/cuda"
PROFILE = "/etc/profile.d/gpusetup-cuda.sh"
LINKER = "/etc/ld.so.conf.d/gpusetup-cuda.conf"
CACHE = "/etc/ld.so.cache"
MODULES = ("/etc/lmod/modules", "/usr/share/modulefiles", "/etc/modulefiles")
"""The module folders of Lmod on Debian, on EL and on older EL."""
LMOD = ("/etc/lmod", "/usr/share/lmod")
_MODULE = """-- Written by gpusetup: CUDA {version}.
help([[CUDA {version} in {path}]])
whatis("Name: cuda")
whatis("Version: {version}")
family("cuda")
setenv("CUDA_HOME", "{path}")
setenv("CUDA_PATH", "{path}")
prepend_path("PATH", "{path}/bin")
prepend_path("CPATH", "{path}/include")
prepend_path("LIBRARY_PATH", "{path}/lib64")
"""
_SHELL = """# Written by gpusetup: CUDA {version} for login shells.
case ":$PATH:" in
  *:/usr/local/cuda/bin:*) ;;
  *) export PATH="/usr/local/cuda/bin:$PATH" ;;
esac
"""


def chosen(roots: List[Dict[str, str]], default: str, check: bool) -> Optional[Dict[str, str]]:
    """Return the default toolkit, None without one."""
    if not default:
        return None
    root = next((item for item in roots if item["version"] == default), None)
    if root is None:
        known = ", ".join(item["version"] for item in roots)
        raise HostFailure(
            "GS-489", "CUDA {} cannot be the default: it is not among {}".format(default, known or "no toolkits")
        )
    if not os.path.isdir(root["path"]) and not check:
        raise HostFailure(
            "GS-489", "CUDA {} is not at {}".format(default, root["path"]), hint="is its package in gpu_cuda_packages?"
        )
    return root


def _is_managed() -> bool:
    return os.path.islink(LINK) and os.readlink(LINK).startswith("/etc/alternatives/")


def set_link(ledger: Ledger, root: Optional[Dict[str, str]], env: Dict[str, str]) -> bool:
    """Point /usr/local/cuda to the default toolkit; return whether anything changed."""
    if not _is_managed():
        return ledger.link(LINK, root["path"] if root else None)
    thing = Alternative(os.path.basename(os.readlink(LINK)), env)
    if root is None:
        return ledger.undo(thing)
    there = os.path.realpath(LINK) == os.path.realpath(root["path"]) and not ledger.opened(thing.kind, thing.name)
    return not there and ledger.change(thing, root["path"])


def write_modules(ledger: Ledger, roots: List[Dict[str, str]]) -> bool:
    """Write a module file for each toolkit if Lmod is installed, and remove those of other toolkits."""
    wanted: Dict[str, str] = {}
    if any(os.path.isdir(folder) for folder in LMOD):
        folder = next((place for place in MODULES if os.path.isdir(place)), MODULES[0])
        wanted = {os.path.join(folder, "cuda", root["version"] + ".lua"): _MODULE.format(**root) for root in roots}
    ours = [os.path.join(place, "cuda") for place in MODULES]
    return bool(ledger.arrange(wanted, lambda path: os.path.dirname(path) in ours))


def linker_is_behind() -> bool:
    """Return whether the dynamic linker's cache is older than the default link, or than the file that names it."""
    places = [LINK, LINKER, *([os.readlink(LINK)] if _is_managed() else [])]
    changes = [files.changed_at(path) for path in places]
    return not os.path.exists(CACHE) or os.stat(CACHE).st_mtime < max(changes)


SPEC = {
    "roots": params.several(
        "C(version) and C(path) of every toolkit.",
        {"version": params.needed("CUDA version."), "path": params.needed("Folder.", type="path")},
    ),
    "default": params.text("Version among O(roots); empty removes the default."),
}


def main() -> None:
    module, request = params.opened(SPEC)
    with params.failing(module):
        ledger, env = Ledger(request["state_dir"], module.check_mode), process.environment()
        root = chosen(module.params["roots"], module.params["default"], module.check_mode)
        changed = set_link(ledger, root, env)
        changed = write_modules(ledger, module.params["roots"]) or changed
        shell, linker = _SHELL.format(**root or {"version": ""}), f"# Written by gpusetup.\n{LINK}/lib64\n"
        changed = bool(ledger.arrange({PROFILE: root and shell, LINKER: root and linker})) or changed
        if not module.check_mode and linker_is_behind():
            process.output(["ldconfig"], env)
    module.exit_json(changed=changed, path=root["path"] if root else "", diff=ledger.diffs)


if __name__ == "__main__":
    main()
