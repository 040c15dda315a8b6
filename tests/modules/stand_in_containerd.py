"""Stand-in for containerd, of which `config dump` alone is asked: what the real 1.6 and 2.0 were seen to make of their settings.

1: a table of runtimes in the file takes the place of its own, and an imported file's plugin takes the place of the main
file's. 2: everything is laid over what was there.
"""

import copy
import glob
import json
import os
import sys

try:
    import tomllib
except ImportError:
    import tomli as tomllib

CRI = {1: "io.containerd.grpc.v1.cri", 2: "io.containerd.cri.v1.runtime"}
RUNC = {"runtime_type": "io.containerd.runc.v2", "options": {"SystemdCgroup": False}}
CNI = {"bin_dir": "/opt/cni/bin", "conf_dir": "/etc/cni/net.d"}


def laid_over(old, new, whole=()):
    made = dict(old)
    for name, value in new.items():
        inner = isinstance(value, dict) and isinstance(made.get(name), dict) and name not in whole
        made[name] = laid_over(made[name], value, whole) if inner else value
    return made


def loaded(path, major):
    with open(path, "rb") as stream:
        given = tomllib.load(stream)
    plugins = {CRI[1] if name == "cri" else name: value for name, value in given.get("plugins", {}).items()}
    return given, plugins


def dump(path, major):
    own = {CRI[major]: {"enable_cdi": major > 1, "cni": CNI, "containerd": {"runtimes": {"runc": RUNC}}}}
    settled = copy.deepcopy(own)
    given, plugins = loaded(path, major) if os.path.exists(path) else ({}, {})
    files = [plugins]
    for pattern in given.get("imports", ()):
        files += [loaded(found, major)[1] for found in sorted(glob.glob(pattern))]
    for plugins in files:
        for name, value in plugins.items():
            base = own.get(name, {}) if major == 1 else settled.get(name, {})
            settled[name] = laid_over(base, value, ("runtimes",) if major == 1 else ())
    print("version =", given.get("version", major + 1))
    print("imports =", json.dumps([path]))
    shown("plugins", settled)


def shown(table, tree):
    print(f"\n[{table}]")
    for name, value in tree.items():
        if not isinstance(value, dict):
            print(name, "=", json.dumps(value))
    for name, value in tree.items():
        if isinstance(value, dict):
            shown(f'{table}."{name}"' if "." in name else f"{table}.{name}", value)


if __name__ == "__main__":
    dump(sys.argv[sys.argv.index("--config") + 1], int(os.environ.get("STAND_IN_CONTAINERD", "1")))
