"""Hosts that exist only as answers: Ansible speaks to a program that stands in for ssh and tells what a host would.

The controller's part is real: Ansible's workers, its ssh plugin, the modules it packs and sends. Simulated are ssh itself
(no network, no cryptography) and the host (its modules are not run: an answer is read from a file).
"""

import ast
import json
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpusetup.content import host_code
from gpusetup.facts.collect import open_captured
from tests.stored import stored

_ROOTS = Path(__file__).resolve().parent / "hosts"
_SSH = stored("simulated_fleet_ssh.txt")
FAULTS = ("refused", "key", "python", "garbage", "sudo")
"""Ways in which a host fails at once; `hangs` fails when the deadline of its task has passed."""


def working(home: Path) -> list[str]:
    """Return the processes that work for a run below this home."""
    return [place.parent.name for place in Path("/proc").glob("[0-9]*/environ") if _of(place, home)]


def _of(place: Path, home: Path) -> bool:
    with suppress(OSError):
        return f"GPUSETUP_EVENTS={home}/".encode() in place.read_bytes()
    return False


class SimulatedFleet:
    """A folder with an inventory, the program that stands in for ssh, and what hosts answer."""

    def __init__(self, folder: Path, hosts: int, *, kinds: Iterable[str], racks_of: int = 40) -> None:
        self.folder, self.names = folder, [f"gpu-{number:05}" for number in range(hosts)]
        for place in ("answers/all", "faults", "calls"):
            (folder / place).mkdir(parents=True)
        ssh = folder / "ssh"
        ssh.write_text(_SSH.format(folder=folder))
        ssh.chmod(0o755)
        kinds = list(kinds)
        documents = [_facts(kind) for kind in kinds]
        for number, name in enumerate(self.names):
            self.answer("gpu_facts", {"facts": documents[number % len(kinds)]}, host=name)
        self.answer("ping", {"ping": "pong"})
        lines = [f"{name} gpusetup_domain=rack-{number // racks_of}" for number, name in enumerate(self.names)]
        shared = (
            "ansible_user=root", "ansible_python_interpreter=/usr/bin/python3", f"ansible_ssh_executable={ssh}",
            "gpusetup_become=false",
        )  # fmt: skip
        self.inventory = folder / "fleet.ini"
        self.inventory.write_text("\n".join(["[fleet]", *lines, "[fleet:vars]", *shared]) + "\n")

    def answer(self, module: str, document: Mapping[str, Any], *, host: str = "all") -> None:
        """Let a host, or all of them, answer so when they are asked by this module."""
        folder = self.folder / "answers" / host
        folder.mkdir(exist_ok=True)
        (folder / f"{module}.json").write_text(json.dumps({"changed": False, **document}))

    def listen(self) -> None:
        """Keep what each module is asked from now on, for `asked`."""
        (self.folder / "asked").mkdir(exist_ok=True)

    def asked(self, host: str, module: str) -> list[dict[str, Any]]:
        """Return the parameters of each call of a module, in their order."""
        found, name = [], ""
        for line in (self.folder / "asked" / host).read_text().splitlines():
            what, _equals, value = line.partition("=")
            if what == "module_fqn":
                name = value.strip("'").rpartition(".")[2]
            else:
                told = json.loads(ast.literal_eval(value.strip(" ,")))["ANSIBLE_MODULE_ARGS"]
                called, told = (told["module"], told["arguments"]) if name == "gpu_shared_code" else (name, told)
                if called == module:
                    found.append(told)
        return found

    def break_every(self, step: int, faults: Iterable[str] = FAULTS) -> dict[str, str]:
        """Let one host in so many fail, each in another way than the one before; return which and how."""
        ways = list(faults)
        bad = {name: ways[number % len(ways)] for number, name in enumerate(self.names[step - 1 :: step])}
        for name, fault in bad.items():
            (self.folder / "faults" / name).write_text(fault)
        return bad

    def mend(self) -> None:
        """Let all of them be well."""
        shutil.rmtree(self.folder / "faults")
        (self.folder / "faults").mkdir()


def _facts(kind: str) -> dict[str, Any]:
    """Return what the probe says of a captured machine, which has the host's name for its identity."""
    found: dict[str, Any] = host_code("gpu_probe.facts").collect(open_captured(_ROOTS / kind / "root"))
    found["boot"] = {**found.get("boot", {}), "id": "boot-@HOST@", "machine": "machine-@HOST@"}
    return found
