"""Plain `ansible-playbook` with our roles on lab hosts: what people do who do not use the front-end."""

import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpusetup.content import host_code
from tests.lab.host import Host
from tests.lab.places import SIMULATED_ROOT
from tests.lab.process import run
from tests.lab.repository.build import Repositories
from tests.stored import stored

ROOT = Path(__file__).resolve().parents[2]
_RECAP = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)
_COUNTING_SSH = stored("plays_counting_ssh.txt")


@dataclass(frozen=True, kw_only=True)
class Played:
    text: str
    code: int
    changed: dict[str, int]
    operations: int
    polls: int

    def well(self) -> "Played":
        """Return this play; one that did not end well fails the test with what it printed."""
        assert self.code == 0, self.text
        return self

    @property
    def operations_without_polls(self) -> int:
        return self.operations - self.polls


def play(name: str, inventory: Path, variables: dict[str, Any], *arguments: str, timeout: float = 900) -> Played:
    """Run a playbook; count the SSH operations it needed."""
    folder = inventory.parent
    wrapper, counter, given = folder / "ssh", folder / "operations", folder / "variables.json"
    wrapper.write_text(_COUNTING_SSH)
    wrapper.chmod(0o755)
    counter.write_text("")
    given.write_text(json.dumps({"gpu_simulated_root": SIMULATED_ROOT, **variables}))
    argv = [
        sys.executable, "-m", "ansible", "playbook", "-i", str(inventory), "-e", f"@{given}",
        str(ROOT / "playbooks" / f"{name}.yml"),
    ]  # fmt: skip
    environment = {
        **os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_SSH_EXECUTABLE": str(wrapper),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(folder / "cp"), "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
    }  # fmt: skip
    done = run([*argv, *arguments], cwd=ROOT, env=environment, timeout=timeout, check=False)
    text = done.stdout + done.stderr
    return Played(
        text=text, code=done.returncode,
        changed={host: int(changed) for host, _ok, changed, _unreachable, _failed in _RECAP.findall(text)},
        operations=len(counter.read_text().splitlines()), polls=text.count("FAILED - RETRYING"),
    )  # fmt: skip


def packages(host: Host) -> dict[str, str]:
    text = host.ssh("dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${Package} ${Version}\n").stdout
    rows = [line.split() for line in text.splitlines() if line[1] == "i"]
    return {name: version for _status, name, version in rows}


def kernel_of(host: Host) -> str:
    """The newest kernel: an apply brings one if the mirror has a newer one than the image."""
    kernels = (path.name.partition("-")[2] for path in host.path("/boot").glob("vmlinuz-*"))
    return max(kernels, key=lambda name: [*map(int, re.findall(r"\d+", name))])


def loaded(host: Host) -> str:
    """What the simulated kernel says of its driver."""
    return host.ssh("cat", f"{SIMULATED_ROOT}/proc/driver/nvidia/version", check=False).stdout


def package(*words: str) -> dict[str, str]:
    return dict(zip(("name", "version"), words, strict=False))


def _nvidia(manager: str, version: str, sources: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "gpu_package_manager": manager, "gpu_repo_sources": sources, "gpu_driver_version": version,
        "gpu_driver_module": "open", "gpu_packages_hold": ["*nvidia*"], "gpu_nouveau_blacklist": True,
        "gpu_persistence_services": ["nvidia-persistenced"], "gpu_reboot_policy": "when-needed", **more,
    }  # fmt: skip


def _source(repositories: Repositories, name: str, kind: str, uri: str, **more: Any) -> dict[str, Any]:
    key = {"fingerprints": [repositories.fingerprint], "armored": repositories.armored}
    return {"name": name, "kind": kind, "uris": [uri], "key": key, **more}


def nvidia_on_debian(
    repositories: Repositories, version: str = "580.159.04", flavour: str = "open", **more: Any
) -> dict[str, Any]:
    """Variables for the stand-in of NVIDIA's repository, as a person writes them by hand."""
    wanted, other = ("nvidia-kernel-open-dkms", "nvidia-kernel-dkms")[:: 1 if flavour == "open" else -1]
    source = _source(repositories, "nvidia-cuda", "apt", repositories.url("debian12") + "/", suites=["/"])
    own = {
        "gpu_driver_packages": [package(wanted, f"{version}-*"), package("nvidia-driver-cuda", f"{version}-*")],
        "gpu_driver_module": flavour, "gpu_packages_remove": [other], "gpu_packages_hold": ["*nvidia*", "libcuda1"],
    }  # fmt: skip
    return _nvidia("apt", version, [source], **own | more)


def nvidia_on_el(repositories: Repositories, version: str = "580.159.04", **more: Any) -> dict[str, Any]:
    """The same for the EL-like host and its module streams."""
    places = {"nvidia-cuda": repositories.url("rhel9"), "epel-stand-in": repositories.rocky + "/epel"}
    names = ("kmod-nvidia-open-dkms", "nvidia-driver-cuda")
    own = {
        "gpu_packages_streams": [{"module": "nvidia-driver", "stream": version.partition(".")[0] + "-open"}],
        "gpu_packages_prerequisites": [package("kernel-devel")],
        "gpu_driver_packages": [package(name, f"{version}-*") for name in names],
    }
    sources = [_source(repositories, name, "dnf", uri) for name, uri in places.items()]
    return _nvidia("dnf", version, sources, **own | more)


def measured(host: Host, code: str) -> dict[str, Any]:
    """What a look of verify's finds on the host; on a simulated GPU verify itself does not look."""
    place = host.path("/root/measure")
    for name, text in host_code("programs").texts("gpu_verify").items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    before = "import sys, json; sys.path[:0] = ['/root/measure/gpu_measure', '/root/measure']; "
    found: dict[str, Any] = json.loads(host.ssh("python3", "-c", before + code).stdout)
    shutil.rmtree(place)
    return found


def files_below(host: Host, *folders: str) -> dict[str, str]:
    """Content of every configuration file in some folders, links as their target."""
    found = {}
    for path in sorted(path for folder in folders for path in host.path(folder).rglob("*")):
        if path.is_symlink() or path.is_file():
            found[str(path)] = f"-> {path.readlink()}" if path.is_symlink() else path.read_bytes().hex()
    return found


def present(host: Host, *folders: str) -> tuple[dict[str, str], dict[str, str]]:
    """Its packages, and its configuration files in some folders."""
    return packages(host), files_below(host, *folders)
