"""What the tests of a host's life share: locks, one host's answer, drift, the variables of the stand-in repository."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.lab.applying import Answer, apply, gpusetup
from tests.lab.host import Host
from tests.lab.repository.build import Repositories

CONFIGURATION = ("/etc/apt", "/etc/modprobe.d", "/etc/modules-load.d", "/etc/default", "/etc/systemd/system")
TINY = """
for name in nvidia nvidia-modeset nvidia-drm nvidia-uvm nvidia-peermem; do
  printf '#include <linux/module.h>\\nMODULE_LICENSE("NVIDIA");\\nMODULE_VERSION("%s");\\n' "$1" >$name.c
done
echo 'obj-m := nvidia.o nvidia-modeset.o nvidia-drm.o nvidia-uvm.o nvidia-peermem.o' >Kbuild
exec make -C "$2" M="$PWD" modules
"""
"""In place of NVIDIA's sources, whose compilation takes minutes, many on a busy machine."""
BUILD = 'MAKE[0]="sh -e /root/tiny $PACKAGE_VERSION $kernel_source_dir"\n'


class Lab(NamedTuple):
    hosts: Callable[..., list[Host]]
    inventory: Callable[..., Path]
    repositories: Repositories
    folder: Path

    def one(self, variables: dict[str, str] | None = None, **spec: str) -> tuple[Host, Path]:
        """A host, and an inventory of it alone."""
        (host,) = self.hosts(**spec)
        return host, self.inventory([host], variables)

    def asking(self, host: Host, **more: str) -> Path:
        """An inventory of one host that asks for the stand-ins' driver, and for more."""
        return self.inventory([host], stand_ins(self.repositories, **more))

    def unchanged(self, inventory: Path, *words: str | Path) -> None:
        """The same apply once more has nothing to do."""
        again = apply(self.folder, inventory, *words)
        assert (again.code, host_of(again)["state"], host_of(again)["changed"]) == (0, "unchanged", 0), again.out

    def settled(self, inventory: Path, *words: str | Path) -> None:
        """Nor has anything drifted."""
        self.unchanged(inventory, *words)
        assert drift(self.folder, inventory)[1] == {}

    def refused(self, inventory: Path, *words: str | Path) -> dict[str, Any]:
        """The one reason for which an apply is refused."""
        answer = apply(self.folder, inventory, *words)
        assert answer.code == 5, answer.out + answer.err
        (refusal,) = host_of(answer)["refusals"]
        return dict(refusal)

    def removed(self, inventory: Path) -> Answer:
        answer = gpusetup(self.folder, "remove", inventory, "--yes", "--format", "json")
        assert answer.code in (0, 9), answer.out + answer.err
        return answer

    def rolled_back(self, inventory: Path, *words: str) -> None:
        gpusetup(self.folder, "rollback", inventory, *words, "--format", "json").well()


def stand_ins(repositories: Repositories, **more: str) -> dict[str, str]:
    """Inventory variables: the driver alone, from the lab's copy of NVIDIA's repository."""
    return {**repositories.variables, "gpusetup_components": '["driver"]', **more}


def builds_tiny_modules(host: Host) -> None:
    """Let DKMS on a host compile tiny modules for Debian's own driver packages."""
    host.path("/root/tiny").write_text(TINY)
    host.path("/etc/dkms").mkdir(exist_ok=True)
    for name in ("nvidia-current", "nvidia-tesla-470"):
        host.path(f"/etc/dkms/{name}.conf").write_text(BUILD)


def rpms(host: Host) -> dict[str, str]:
    """Every installed package with its version; "name-version" of what is there more than once, as kernels are."""
    text = host.ssh("rpm", "-qa", "--qf", "%{NAME} %{VERSION}-%{RELEASE}\n").stdout
    rows = sorted(line.split() for line in text.splitlines() if not line.startswith("gpg-pubkey"))
    several = {name for name, count in Counter(name for name, _version in rows).items() if count > 1}
    return {f"{name}-{version}" if name in several else name: version for name, version in rows}


def lock(folder: Path, driver: str, gpu: str = "h200", system: str = "ubuntu24.04") -> Path:
    """Make a lock for a branch (570) or a version (535.216.03)."""
    path = folder / f"{driver}.lock.json"
    wish = f"driver=={driver}" if "." in driver else f"driver=={driver}.*"
    gpusetup(folder, "lock", wish, "--gpu", gpu, "--os", system, "--out", path).well()
    return path


def host_of(answer: Answer) -> dict[str, Any]:
    (told,) = answer.hosts.values()
    return dict(told)


def drift(folder: Path, inventory: Path) -> tuple[Answer, dict[str, str]]:
    """Ask for drift; also what is different now, by its id."""
    answer = gpusetup(folder, "drift", inventory, "--format", "json")
    return answer, {item["id"]: item["now"] for item in host_of(answer)["differences"]}
